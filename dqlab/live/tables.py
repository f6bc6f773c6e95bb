"""Make tables of queues, runs, failures, results and listings, which text and HTML draw.

Owns which columns a table of text or HTML has (panels and widgets have their own), and how it reports what it leaves
out.

"""

from __future__ import annotations

import reprlib
import textwrap
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from dqlab import numbers
from dqlab.datasets.lineage import ROW_LINEAGE
from dqlab.documents import Documents
from dqlab.documents.listing import Summary, format_of, lacking, summarize
from dqlab.errors import DqlabError, in_words
from dqlab.failures.failure import NO_ERROR
from dqlab.live.parts import Cell, Column, Field, Table, cells_of
from dqlab.live.run_rows import LAST_MINUTE, RunRow, put_off_words, runs_in_order, speeds_over
from dqlab.live.style import Ink
from dqlab.notebook import shell
from dqlab.numbers import count, many
from dqlab.stats import Attention, ClassStats, QueueState, QueueStats, RunStats, Snapshot
from dqlab.texts import as_word, one_line

SHOWN_LINES = 8
"""Most failure classes with a line that shows a document: more lines would stand far below the table."""
ROWS = 10
"""Documents that a table shows; the rest is counted."""
_PUT_OFF = 3
"""Most runs below a table that are named because their functions put documents off."""


RATES_OVER = (f"in/s and out/s: mean of the {LAST_MINUTE}, rest included",)
"""Distinguishes these rates from the speed of a run, which covers only time at work."""


def _amount(amount: int, ink: Ink = Ink.PLAIN) -> Cell:
    return Cell(numbers.count(amount), ink if amount else Ink.QUIET)


def _status_fields(state: str, *, durable: bool) -> list[Field]:
    return [
        (Column("queue"), lambda queue: Cell(one_line(queue.name, 60), Ink.PLAIN if queue.state else Ink.STRONG)),
        (
            Column(state, whole=state != "state"),
            lambda queue: Cell(one_line(queue.state, 24), Ink.WARN if queue.why else Ink.PLAIN),
        ),
        (Column("ready", right=True), lambda queue: _amount(queue.counts.ready)),
        (Column("delayed", right=True), lambda queue: _amount(queue.counts.delayed)),
        (Column("unacked", right=True), lambda queue: _amount(queue.counts.leased)),
        (Column("dead", right=True), lambda queue: _amount(queue.counts.dead, Ink.BAD)),
        (Column("in/s", right=True), lambda queue: numbers.rate(queue.in_rate)),
        (Column("out/s", right=True), lambda queue: numbers.rate(queue.out_rate)),
        (Column("lag", right=True), lambda queue: "" if queue.state is QueueState.TOTAL else lag_of(queue)),
        (
            Column("disk" if durable else "size", right=True),
            lambda queue: numbers.size(queue.disk if durable else queue.nbytes),
        ),
    ]


def status_table(snapshot: Snapshot, *, only: str = "", stale: bool = False) -> Table:
    """Return all queues, one row each, with empty ones in a line below, or `only` one queue."""
    # Old numbers: the head of the states dates them.
    state = _state_at(snapshot.at) if stale else "state"
    fields = _status_fields(state, durable=snapshot.totals.disk is not None)
    if only:
        it = [queue for queue in snapshot.queues if queue.name == only]
        about = () if stale else RATES_OVER
        return Table.of(it, fields, notes=about if it else (f"no queue named {one_line(only)}",))
    busy = [queue for queue in snapshot.queues if not queue.empty]
    idle = [one_line(queue.name, 40) for queue in snapshot.queues if queue.empty]
    notes = []
    if idle:
        names = ", ".join(idle[:5])
        notes.append(f"{len(idle)} empty: {names}" + (f" and {len(idle) - 5} more" if len(idle) > 5 else ""))
    if snapshot.queues_total > len(snapshot.queues):
        hidden = snapshot.queues_total - len(snapshot.queues)
        notes.append(f"and {many(hidden, 'queue')} not listed; the total counts all")
    lines: tuple[str, ...] = ()
    if snapshot.resting:
        names = one_line(numbers.few_of(snapshot.resting, 5), 200)
        notes.append(f"no queue is open; the store has {len(snapshot.resting)}: {names}")
        lines = ("%dq runs    # lists their runs", 'lab.attach("name")    # continues one')
    elif not snapshot.queues:
        notes.append("no queues yet")
    if busy and not stale:
        notes += RATES_OVER
    total = cells_of(snapshot.totals, fields) if len(busy) > 1 else ()
    return Table.of(busy, fields, total=total, notes=tuple(notes), lines=lines)


def _in_a_second(row: RunRow, *, named: bool) -> str:
    """Return the speed of a run, with its unit where the head of the column has none."""
    if row.rate is None:
        return numbers.UNKNOWN
    if row.unit == "bytes":
        return row.speed.removesuffix("/s")
    return (
        f"{numbers.rate(row.rate)} {'docs' if row.unit == 'documents' else row.unit}"
        if named
        else numbers.rate(row.rate)
    )


def _state_at(moment: float) -> str:
    return f"state at {numbers.clock(moment)}"


def lag_of(queue: QueueStats) -> str:
    """Return the age of the oldest waiting message, unknown where none waits."""
    if not queue.counts.waiting:
        return numbers.UNKNOWN
    return numbers.duration(queue.lag, units=1) if queue.lag < 60 else numbers.span(queue.lag)


def runs_table(
    runs: Sequence[RunStats],
    hidden: int = 0,
    attention: Sequence[Attention] = (),
    most: int | None = None,
    *,
    ended: QueueStats | None = None,
    stale: bool = False,
) -> Table:
    """Return runs, one row each, at most `most` of them."""
    every = runs_in_order(runs, attention)
    rows = every[:most]
    # `hidden` runs were left out by the caller; these are left out here.
    hidden += len(every) - len(rows)
    units = {row.unit for row in rows}
    mixed = len(units) > 1
    in_a_second = "per second" if mixed else f"{''.join(units)}/s"
    state = _state_at(max(run.at for run in runs)) if stale and runs else "state"
    fields: list[Field] = [
        (Column("run", whole=True), lambda row: one_line(row.name, 60)),
        (Column(state, whole=True), lambda row: Cell(row.state, row.ink)),
        (Column("done", right=True), lambda row: row.share),
        (Column("end", whole=True), lambda row: row.end.replace(" to ", "\N{EN DASH}")),
        (Column("dead", right=True), lambda row: _amount(row.dead, Ink.BAD)),
        (Column(in_a_second, right=True), lambda row: _in_a_second(row, named=mixed)),
        (Column("code", mono=True), lambda row: row.code),
        (Column("took", right=True, spare=True), lambda row: row.took),
    ]
    if any(row.setup for row in rows):
        fields.append((Column("set-up", right=True, spare=True), lambda row: row.setup or numbers.UNKNOWN))
    if any(row.owner for row in rows):
        fields.append((Column("owner", spare=True), lambda row: one_line(row.owner or numbers.UNKNOWN, 40)))
    if len({row.queue for row in rows}) > 1:
        fields.append((Column("queue", spare=True), lambda row: one_line(row.queue, 40)))
    notes = [f"and {numbers.count(hidden)} more: %dq runs"] if hidden > 0 else []
    if over := speeds_over(rows):
        notes.insert(0, f"{in_a_second}: {over}")
    failed = [row for row in every if row.over and row.dead]
    amount, dead = len(failed), sum(row.dead for row in failed)
    if ended is not None:
        # `ended` counts runs that are not listed too, but an older scheduler sends zeros.
        amount, dead = max(amount, ended.failed_runs), max(dead, ended.dead_at_rest)
    if failed:
        line = f"%dq failed {as_word(failed[0].name)}"
    else:
        line = "%dq runs"
    if amount:
        notes.append(f"{numbers.count(dead)} dead in {many(amount, 'run')} at rest: {line}")
    waits = [f"{one_line(run.name, 60)}: {put_off_words(run)} (dq.Later)" for run in runs if run.only_put_off]
    return Table.of(rows, fields, notes=(*notes, *waits[:_PUT_OFF]) if rows else ("no runs yet",))


def failures_table(failures: Any) -> Table:
    """Return dead documents by class, with lines to type next, or the first documents where there are no classes."""
    if not len(failures):
        return Table((), (), notes=(f"no dead documents of {one_line(failures.name, 60)}",))
    classes: tuple[ClassStats, ...] = failures.classes
    if not classes:
        return documents_table(failures)
    # All calls come before the table is made.
    unnamed = [entry.fingerprint for entry in classes[:SHOWN_LINES] if not _has_key(entry)]
    letters = {fingerprint: failures.example(fingerprint) for fingerprint in unnamed}
    # The classes are fetched after the documents: in a run that goes on, more may be dead by then.
    total = max(len(failures), sum(entry.dead for entry in classes))
    return _classes_table(failures.name, total, classes, letters)


def _classes_table(name: str, total: int, classes: tuple[ClassStats, ...], letters: Mapping[str, Any]) -> Table:
    fields: list[Field] = [
        (Column("dead", right=True), lambda entry: Cell(numbers.count(entry.dead), Ink.BAD)),
        (Column("share", right=True), lambda entry: numbers.share(min(1.0, entry.dead / total))),
        (Column("error", whole=True), lambda entry: one_line(entry.error, 40)),
        (Column("message", mono=True), lambda entry: one_line(entry.message, 80)),
        (Column("at", mono=True), lambda entry: one_line(entry.at, 40)),
    ]
    if any(entry.versions for entry in classes):
        fields.append((Column("code", mono=True), lambda entry: one_line(", ".join(entry.versions), 40)))
    rest = total - sum(entry.dead for entry in classes)
    notes = [f"{numbers.count(rest)} more: run.failures() has all"] if rest > 0 else []
    notes.append(f"{many(total, 'dead document')} of {one_line(name, 60)}. One of each class, then all again:")
    run = as_word(name)
    lines = []
    for entry in classes[:SHOWN_LINES]:
        letter = letters.get(entry.fingerprint)
        # With neither, a retry has just sent the document again.
        if entry.key is not None or letter is not None:
            named = letter is not None and letter.key != letter.ordinal
            key = letter.key if letter is not None and (named or entry.key is None) else entry.key
            lines.append(f"%dq show {as_word(key)} {run}    # {one_line(entry.error, 40)}")
    lines.append(f"%dq retry {run}")
    if len(classes) > 1:
        worst = one_line(classes[0].error, 40)
        lines.append(f"%dq retry {run} --where \"error == '{worst}'\"")
    if any(entry.error == NO_ERROR for entry in classes):
        lines.append('lab.map(fn, docs, executor="process")    # where fn ends or blocks its process, as crashes do')
    return Table.of(classes, fields, notes=tuple(notes), lines=tuple(lines))


def _has_key(entry: ClassStats) -> bool:
    """Return whether the key of the class's document is known."""
    # A consumer that died with its document left only a position, "#17".
    return entry.key is not None and not entry.key.startswith("#")


def documents_table(failures: Sequence[Any], limit: int = ROWS) -> Table:
    """Return the first dead documents, one row each."""
    fields: list[Field] = [
        (Column("document", mono=True, whole=True), lambda failure: one_line(failure.key, 60)),
        (Column("error"), lambda failure: Cell(one_line(failure.error, 40), Ink.BAD)),
        (Column("message", mono=True), lambda failure: one_line(failure.message, 80)),
        (Column("at", mono=True), lambda failure: one_line(failure.at, 40)),
        (Column("deliveries", right=True), lambda failure: numbers.count(failure.deliveries)),
        (Column("code", mono=True), lambda failure: one_line(failure.version, 12)),
    ]
    shown = list(islice(failures, limit))
    return Table.of(shown, fields, notes=_rest(len(failures), len(shown), "dead document"))


def leases_table(leases: Any, limit: int = 2 * ROWS) -> Table:
    """Return the messages that consumers hold, one row each, with lines to type about the oldest."""
    if not leases:
        return Table((), (), notes=(f"no consumer of queue {one_line(leases.queue, 60)} holds anything",))

    def known(value: object, shown: str) -> str:
        return numbers.UNKNOWN if value is None else one_line(shown, 60)

    fields: list[Field] = [
        (Column("document", mono=True), lambda lease: known(lease.document, lease.shown_document)),
        (Column("run"), lambda lease: known(lease.run, lease.run)),
        (Column("consumer", whole=True), lambda lease: one_line(lease.consumer, 40)),
        (Column("leased", right=True), lambda lease: numbers.clock(lease.since)),
        (Column("runs for", right=True), lambda lease: numbers.span(lease.running)),
        (Column("lease ends in", right=True, spare=True), lambda lease: numbers.span(max(0.0, lease.ends_in))),
        (Column("delivery", right=True, spare=True), lambda lease: numbers.count(lease.delivery)),
        (Column("messages", right=True, spare=True), lambda lease: numbers.count(lease.messages)),
    ]
    messages = sum(lease.messages for lease in leases)
    notes = [f"{many(messages, 'message')} held"] + ([f"and {len(leases) - limit} more"] if len(leases) > limit else [])
    worst = leases[0]
    holder = f"lab.queue({leases.queue!r})" if worst.run is None else f"lab.attach({worst.run!r})"
    lines = [f"{holder}.replace({worst.consumer!r})    # its documents are retried"]
    if worst.document is not None:
        lines.append(f"{holder}.give_up({worst.document!r})    # a failure, which a retry sends through again")
    return Table.of(leases[:limit], fields, notes=tuple(notes), lines=tuple(lines))


def results_table(results: Any, limit: int = ROWS) -> Table:
    """Return the first results with their keys."""
    # Only the first page is fetched: both iterators stop at the limit.
    shown = zip(islice(results.keys(), limit), islice(results, limit), strict=False)
    rows = tuple((Cell(one_line(key, 60)), Cell(one_line(reprlib.repr(value), 80))) for key, value in shown)
    columns = (Column("document", mono=True), Column("result", mono=True))
    return Table(columns, rows, notes=_rest(len(results), len(rows), "result"))


def _rest(total: int, shown: int, noun: str) -> tuple[str, ...]:
    if total > shown:
        return (f"the first {numbers.count(shown)} of {many(total, noun)}",)
    return (many(total, noun) if total else f"no {noun}s",)


COLUMNS = 12
"""Columns shown; the rest is counted."""
LOOKED_AT = 1_000
"""Rows read for the count of values in `_rest`."""


def rows_table(table: Any) -> Table:
    """Return the columns of results with their types, and the first rows."""
    total, head = table.count(), table.head(LOOKED_AT)
    rest = head.column("_rest")
    made = [name for name in head.schema.names if name in ROW_LINEAGE]
    names = [name for name in head.schema.names if name not in made]
    names = [name for name in names if name != "_rest" or rest.null_count < head.num_rows]
    shown = [name for name in names if name != "_ordinal"][:COLUMNS]
    first = head.slice(0, ROWS).select(shown).to_pylist()
    kinds = tuple(Cell(one_line(head.schema.field(name).type, 40), Ink.QUIET) for name in shown)
    rows = tuple(tuple(_cell(row[name]) for name in shown) for row in first)
    columns = tuple(Column(one_line(name, 40), mono=True) for name in shown)
    notes = [many(total, "row") if total <= ROWS else f"the first {ROWS} of {many(total, 'row')}"]
    if (hidden := len(names) - 1 - len(shown)) > 0:
        notes.append(f"and {many(hidden, 'column')} more: table.schema")
    if odd := head.num_rows - rest.null_count:
        notes.append(f"{count(odd)} of {many(head.num_rows, 'row')} with values in _rest: what fits no column, as JSON")
    # As columns they would take the room of values.
    if made:
        notes.append(f"how each row was made: {', '.join(made)}")
    notes += _where(table)
    return Table(columns, (kinds, *rows), notes=tuple(notes))


def _where(table: Any) -> list[str]:
    """Return where a sink has the rows, or a note when it does not answer."""
    try:
        place = table.place()
    except (OSError, DqlabError) as error:
        # The rows were read already: they are shown even if the storage does not answer now.
        return [f"their files cannot be listed now: {one_line(in_words(error), 120)}"]
    return [place] if place else []


def _cell(value: Any) -> Cell:
    if value is None:
        return Cell("")
    return Cell(one_line(value if isinstance(value, str) else reprlib.repr(value), 40))


_FORMATS = 5
_WIDTH = 78
"""Characters of a line of notes: tables cut longer lines, and these say why a listing ends."""
_LONGEST = 300


def listing_table(documents: Documents) -> Table:
    """Look at a listing for two seconds at most, and return what was found."""
    return table_of(summarize(documents), _variable_of(documents))


def _variable_of(documents: Documents) -> str:
    """Return the name of the variable that holds a listing, and "" for none."""
    names: dict[str, Any] = getattr(shell(), "user_ns", {})
    return next((name for name, value in names.items() if value is documents and not name.startswith("_")), "")


def table_of(summary: Summary, name: str) -> Table:
    """Return a summary as a table, where `name` is the variable that holds the listing, if any."""
    fields: list[Field] = [
        (Column("document", mono=True), lambda document: one_line(document.key, _LONGEST)),
        (Column("format"), lambda document: Cell(format_of(document), Ink.QUIET)),
        (Column("size", right=True), lambda document: numbers.size(document.size)),
    ]
    if paged := summary.paged > 0:
        fields.append((Column("pages", right=True), lambda document: numbers.count(document.page_count)))
    total: tuple[Cell, ...] = ()
    if summary.count > len(summary.first):
        size = _known(numbers.size(summary.size), summary.sized, summary.count)
        pages = _known(numbers.count(summary.pages), summary.paged, summary.count)
        total = (Cell(many(summary.count, "document"), Ink.STRONG), Cell(""), Cell(size))
        total += (Cell(pages),) if paged else ()
    # A listing known to be empty has nothing to submit.
    empty = summary.whole and not summary.count
    lines = () if empty or not name else (f"%%dq submit --over {name} --watch -o run",)
    notes = tuple(
        line for note in _listing_notes(summary) for line in textwrap.wrap(note, _WIDTH, break_on_hyphens=False)
    )
    return Table.of(summary.first, fields, total=total, notes=notes, lines=lines)


def _known(text: str, known: int, count: int) -> str:
    """Return a sum, marked as a lower bound where not every document has a value."""
    return text if known == count else (f">{text}" if known else numbers.UNKNOWN)


def _listing_notes(summary: Summary) -> list[str]:
    notes = [one_line(summary.label, _LONGEST)]
    if not summary.repeats:
        return [*notes, "from an iterator, which counting would consume: documents are counted when they are submitted"]
    if not summary.count:
        nothing = one_line(summary.none, 600) or "no documents: check the path or pattern"
        notes.append(nothing if summary.whole else "none listed so far")
    elif len(summary.formats) > 1:
        common = summary.formats.most_common()
        formats = [f"{numbers.count(amount)} {name or 'without ending'}" for name, amount in common[:_FORMATS]]
        rest = sum(amount for _, amount in common[_FORMATS:])
        notes.append(" · ".join([*formats, *([f"{numbers.count(rest)} of other formats"] if rest else [])]))
    for kind, amount in summary.formats.most_common():
        if (missing := lacking(kind)) is not None:
            notes.append(f"{numbers.count(amount)} {kind}: need the extra {missing.extra}: {missing.install}")
    if summary.unreadable:
        named = ", ".join(one_line(key, 80) for key in summary.named)
        more = ", …" if summary.unreadable > len(summary.named) else ""
        notes.append(f"{many(summary.unreadable, 'document')} cannot be read from here: {named}{more}")
    if summary.error:
        notes.append(f"the listing ends there: {one_line(summary.error, 600)}")
    elif not summary.whole:
        notes.append("so far: counting was stopped after 2 s, and a run lists all of them")
    return notes
