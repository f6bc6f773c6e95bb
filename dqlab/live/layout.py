"""Lay out as parts what text and HTML draw: views, what needs the user, timelines, checkups and comparisons."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dqlab import numbers
from dqlab.live import details
from dqlab.live.next_lines import lines_of, more_needs
from dqlab.live.parts import GAP, Box, Cell, Chart, Column, Field, Gauge, Line, Part, Series, Steps, Table, Title, line
from dqlab.live.run_picture import NEAR_END
from dqlab.live.run_rows import AT_WORK, LAST_MINUTE, WHOLE_RUN
from dqlab.live.style import PLAIN, STATES, Ink, Span, TextStyle, paint
from dqlab.live.tables import ROWS, runs_table, status_table
from dqlab.live.views import Face, Figure, Need, Notice, QueuesView, RunView, Tone
from dqlab.numbers import UNKNOWN, many
from dqlab.runs.compare.comparison import Became, Compared, Comparison, difference
from dqlab.stats import History, Mark, Severity, Snapshot
from dqlab.stats.snapshot import MAX_ATTENTION
from dqlab.texts import as_word, one_line

_TONES = {Tone.PLAIN: Ink.PLAIN, Tone.QUIET: Ink.QUIET, Tone.WARN: Ink.WARN, Tone.BAD: Ink.BAD}
_FACE_INKS = {
    Face.STOPPED: Ink.BAD,
    Face.DONE_DEAD: Ink.BAD,
    Face.DONE: Ink.GOOD,
    Face.WAITING: Ink.WARN,
    Face.NO_ANSWER: Ink.WARN,
    Face.GONE: Ink.WARN,
    Face.INCOMPLETE: Ink.WARN,
}
_CLASSES = 5
"""Most failure classes that are listed."""


def parts_of(view: RunView | QueuesView) -> tuple[Part, ...]:
    """Return the parts of a view."""
    return tuple(_run(view) if isinstance(view, RunView) else _queues(view))


def ended_line(view: RunView, style: TextStyle = PLAIN) -> str:
    """Return in one line of any width how a run ended."""
    name, state = Span(f"{view.name}  ", Ink.STRONG), Span(view.chip.lower(), _ink(view))
    return paint((name, state, Span(f"  {view.sentence or view.notice.text}")), replace(style, width=sys.maxsize))


def log_line(view: RunView | QueuesView) -> str:
    """Return a view in one line for pipes and logs, as "14:22:07 parse running 65.4 % left 48,210 pages ..."."""
    state = (view.chip.lower(), view.percent) if isinstance(view, RunView) else (view.chip.lower(),)
    figures = [f"{figure.label.partition(',')[0].lower()} {figure.value} {figure.unit}" for figure in view.figures]
    words = (view.moment or "-", view.name, *state, *figures, view.notice.text)
    return " ".join(word.strip() for word in words if word)


def needs_table(needs: tuple[Need, ...], total: int, *, ended: bool = False) -> Table:
    """Return what needs the user, how much more there is, and what to type."""
    fields: list[Field] = [
        (Column("", whole=True), lambda each: Cell("✕", Ink.BAD) if each.tone == "bad" else Cell("!", Ink.WARN)),
        (Column("", whole=True), lambda each: each.subject),
        (Column(""), lambda each: each.text),
        (Column(""), lambda each: Cell(each.detail, Ink.QUIET)),
    ]
    more = more_needs(needs, total, ended=ended)
    return Table.of(needs, fields, notes=(more,) if more else (), lines=tuple(lines_of(needs)))


def _run(view: RunView) -> list[Part]:
    parts: list[Part] = [Title(view.name, view.chip.lower(), _about(view), _ink(view)), *_notice(view.notice)]
    parts.append(Gauge(view.percent, view.unit, view.bar_label, view.bars, view.stale))
    parts += [line(sentence, Ink.QUIET) for sentence in view.compact]
    if view.ended and view.sentence:
        parts.append(line(view.sentence))
    if len(view.figures) == 4:
        parts.append(_figures(view))
    if view.counters:
        parts.append(_counters(view))
    if view.details.needs:
        parts.append(needs_table(view.details.needs, view.details.needs_total, ended=bool(view.ended)))
    elif view.failures:
        parts.append(_failures(view))
    # A run that exists no more cannot be attached.
    if view.saved and view.code and view.face is not Face.GONE:
        parts.append(Steps((f"%dq attach {as_word(view.name)} -o {view.variable or 'run'}",), "Back to it:"))
    return parts


def _ink(view: RunView) -> Ink:
    return _FACE_INKS.get(view.face, Ink.STRONG)


def _about(view: RunView) -> str:
    """Return code and queue, and the consumers, or the time of the numbers where these are old or read later."""
    later = view.period.partition(", began")[0] if view.saved else view.live if view.stale else view.consumers
    code = f"{view.code} on queue {view.queue}" if view.code else view.queue and f"queue {view.queue}"
    return ", ".join(part for part in (code, later) if part)


def _queues(view: QueuesView) -> list[Part]:
    # A long line is cut at its end. In a picture that is read later, the time of the numbers must survive that, and the
    # path of the store need not.
    about = (view.live, view.about) if view.saved or view.stale else (view.about, view.live)
    ink = Ink.WARN if view.tone else Ink.STRONG
    parts: list[Part] = [Title(view.name, view.chip.lower(), " · ".join(filter(None, about)), ink)]
    parts += _notice(view.notice)
    parts += [_sentence(view.figures[at : at + 3]) for at in range(0, len(view.figures), 3)]
    parts += [table for table in (view.table, view.runs_table) if table.columns]
    needs = view.details.needs
    return [*parts, *([needs_table(needs, view.details.needs_total)] if needs else [])]


def _notice(notice: Notice) -> list[Part]:
    return [Box(notice.text, _TONES[notice.tone])] if notice.text else []


def _sentence(figures: tuple[Figure, ...]) -> Line:
    """Return some figures as a sentence."""
    spans: list[Span] = []
    for figure in figures:
        label, comma, span = figure.label.lower().partition(", ")
        rest = " ".join(part for part in ("", figure.unit, f"({figure.extra})" if figure.extra else "") if part)
        spans += [Span(f"{', ' if spans else ''}{label} "), Span(figure.value, Ink.STRONG)]
        spans.append(Span(f"{' ' if rest else ''}{rest}{comma}{span}"))
    return Line(tuple(spans))


def _figures(view: RunView) -> Table:
    """Return what is left, when it is done, the speed and what is dead."""
    left, done, speed, dead = view.figures
    over = WHOLE_RUN if speed.label.endswith(WHOLE_RUN) else AT_WORK if speed.value != UNKNOWN else ""
    near = done.label == NEAR_END
    ended = f" {done.second}" if done.second.startswith("after ") and done.value != UNKNOWN else ""
    ended = f" ({view.band})" if view.band else ended
    rows = (
        ("left", f"{left.value} {left.unit}", left.second, "done"),
        ("speed", f"{speed.value} {speed.unit}", over or speed.second, "dead"),
    )
    ends = (
        Cell(f"in {done.value} {done.unit}" if near else f"{done.value}{ended}", Ink.STRONG),
        Cell(f"{dead.value} ({dead.second})", _TONES[dead.tone]),
    )
    columns = (Column("", whole=True),) * 5
    return Table(columns, tuple((*map(Cell, row), end) for row, end in zip(rows, ends, strict=True)))


def _counters(view: RunView) -> Line:
    spans: list[Span] = []
    for counter in view.counters:
        state = STATES[counter.state]
        name, documents = f"{state.glyph} {counter.word}", f" {counter.documents}"
        spans.append(Span("  " if spans else ""))
        if counter.zero:
            spans.append(Span(name + documents, Ink.QUIET))
        else:
            spans += [Span(name, state.ink), Span(documents)]
    return Line(tuple(spans))


def _failures(view: RunView) -> Table:
    shown = view.failures[:_CLASSES]
    fields: list[Field] = [
        (Column("dead", right=True), lambda row: Cell(row.dead, Ink.QUIET if row.dead == "0" else Ink.BAD)),
        (Column("failure"), lambda row: one_line(f"{row.error} {row.message}", 80)),
        (Column("raised at", mono=True), lambda row: ", ".join(part for part in (row.at, row.code) if part)),
    ]
    if any(row.document != UNKNOWN for row in shown):
        fields.append((Column("one of them", mono=True, spare=True), lambda row: one_line(row.document, 60)))
    hidden = len(view.failures) - _CLASSES
    classes = many(hidden, "class").replace(" ", " more ")
    more = f"and {classes}, listed by %dq failed {as_word(view.name)}" if hidden > 0 else ""
    return Table.of(shown, fields, notes=tuple(note for note in (more, view.more) if note))


RUNS_OF_STATUS = 20
"""Rows of runs that a status shows; `%dq runs` lists them all."""
NEEDS = "needs you"


def snapshot_parts(snapshot: Snapshot) -> list[Part]:
    """Return the runs and queues of a lab, and what needs the user."""
    parts: list[Part] = [status_table(snapshot)]
    if snapshot.runs:
        hidden = snapshot.runs_total - len(snapshot.runs)
        table = runs_table(snapshot.runs, hidden, snapshot.attention, RUNS_OF_STATUS, ended=snapshot.totals)
        # "in 12 min" is read later, too: it needs a date.
        if any(not run.resting for run in snapshot.runs):
            at = f"as of {numbers.date(snapshot.at)}, {numbers.clock(snapshot.at)}"
            table = replace(table, notes=(*table.notes, at))
        parts = [table, GAP, *parts]
    if needs := details.needs(snapshot.attention, (), MAX_ATTENTION, several=True):
        parts += [GAP, line(NEEDS, Ink.STRONG), needs_table(needs, snapshot.attention_total)]
    return parts


_MARKS = 8
"""Most marks that are shown, the newest."""


def timeline_parts(history: History) -> tuple[Part, ...]:
    """Return depth, unacked messages, throughput and failures over time."""
    history = history.since_known()
    marks = tuple((_place(history, mark), _mark(mark)) for mark in history.marks[-_MARKS:])
    chart = Chart(_series(history), numbers.minute(history.t0), numbers.minute(history.end), marks)
    return Title(_title(history)), GAP, chart


def _title(history: History) -> str:
    of = f"queue {one_line(history.queue, 60)}" if history.queue else "all queues"
    return f"{of}, last {numbers.span(history.end - history.t0)}"


def _series(history: History) -> tuple[Series, ...]:
    depth = [
        None if ready is None or delayed is None else ready + delayed
        for ready, delayed in zip(history.ready, history.delayed, strict=True)
    ]
    failures = [None if rate is None else 60 * rate for rate in history.failure_rate]
    now, most = history.now, history.most
    failed = _spelled(now.failure_rate, most.failure_rate, _by_minute, "per minute", LAST_MINUTE)
    return (
        Series("waiting", depth, _spelled(now.waiting, most.waiting, _count, "messages")),
        Series("unacked", history.leased, _spelled(now.unacked, most.unacked, _count, "messages")),
        Series("in", history.in_rate, _spelled(now.in_rate, most.in_rate, numbers.rate, "messages/s", LAST_MINUTE)),
        Series("out", history.out_rate, _spelled(now.out_rate, most.out_rate, numbers.rate, "messages/s", LAST_MINUTE)),
        Series("failures", failures, failed),
    )


def _count(value: float) -> str:
    return numbers.count(round(value))


def _by_minute(value: float) -> str:
    """Return a number per minute."""
    # A count of whole failures, except for a mean of a longer time that is below one.
    return _count(60 * value) if value <= 0 or 60 * value >= 0.5 else numbers.rate(60 * value)


def _spelled(now: float | None, most: float | None, spell: Callable[[float], str], unit: str, word: str = "now") -> str:
    """Return the present and the largest figure of a series."""
    if now is None or most is None:
        return numbers.UNKNOWN
    # Over a span shorter than that of the mean, the mean may be above every value in it.
    return f"{word} {spell(now)}, most {spell(max(now, most))} {unit}"


def _place(history: History, mark: Mark) -> float:
    """Return the place of a mark in the span, 0 to 1."""
    span = history.end - history.t0
    return max(0.0, min(1.0, (mark.at - history.t0) / span)) if span > 0 else 0.0


def _mark(mark: Mark) -> str:
    cell = f"[{mark.cell}] " if mark.cell is not None else ""
    return f"{cell}{one_line(mark.text, 40)}, {numbers.minute(mark.at)}"


_LOOKS = {
    Severity.PROBLEM: ("✕", "problem", Ink.BAD),
    Severity.WARNING: ("◐", "warning", Ink.WARN),
    Severity.NOTE: ("○", "note", Ink.READY),
}
"""Glyph, word and ink by severity."""
_COMPARED = ("host", "python", "dqlab", "protocol", "dask", "distributed", "cloudpickle", "msgpack", "fsspec")
_FIGURES = frozenset({"memory", "late", "files", "clock", "leaves in", "pid"})
_REACHED = {"directly": "", "through the scheduler": "indirectly"}
_CLOCK = 1.0
"""Seconds by which clocks may differ."""
_LONGEST = 600


def checkup_parts(checkup: Any) -> tuple[Part, ...]:
    """Return the parts of a checkup."""
    verdict, ink = _verdict(checkup)
    when = f"{numbers.clock(checkup.at)}, took {numbers.duration(checkup.took)}"
    parts: list[Part] = [Title(_line(checkup.of), verdict, ink=ink), line(when, Ink.QUIET)]
    for finding in checkup.findings:
        if finding.severity in _LOOKS:
            parts += [GAP, _finding(finding)]
    fine = [finding for finding in checkup.findings if finding.severity is Severity.OK]
    parts += [GAP] if fine else []
    parts += [Box(_line(each.what), Ink.GOOD, each.check, "●", quiet=True) for each in fine]
    return (*parts, GAP, _processes(checkup.processes))


def _finding(finding: Any) -> Box:
    glyph, word, ink = _LOOKS[finding.severity]
    end = ":" if finding.command else "."
    advice = f"{_line(finding.advice)}{end}" if finding.advice else ""
    mark, command = f"{glyph} {word}", _line(finding.command)
    return Box(f"{_line(finding.what)}.", ink, finding.check, mark, advice, command)


def _processes(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the facts of all processes, with columns for those hosts and versions alone that differ."""
    known = [row for row in rows if row["python"]]
    differing = [name for name in _COMPARED if len({row.get(name) for row in known}) > 1]
    shown = {
        "memory": [_memory(row["memory"], row["memory_limit"]) for row in rows],
        "late": [f"{row['lag'] * 1000:.0f} ms" if row["python"] else UNKNOWN for row in rows],
        "files": [numbers.count(row["descriptors"]) for row in rows],
        "clock": [f"{row['clock_ahead']:+.0f} s" if abs(row["clock_ahead"]) > _CLOCK else "" for row in rows],
        **{name: [str(row.get(name) or UNKNOWN) for row in rows] for name in differing},
        "job": [row["job"] for row in rows],
        "leaves in": ["" if row["leaves_in"] is None else numbers.duration(row["leaves_in"]) for row in rows],
        "reached": [_REACHED.get(row["answers"], "no") for row in rows],
        "pid": [str(row["pid"] or "") for row in rows],
        "holds": [", ".join(row["shards"]) for row in rows],
        "serves": [", ".join(row["consumers"]) for row in rows],
    }
    shown = {title: cells for title, cells in shown.items() if any(cells)}
    columns = (Column("process", whole=True), *(Column(title, right=title in _FIGURES) for title in shown))
    body = tuple(
        (
            Cell(one_line(row["process"], _LONGEST).removeprefix("the ")),
            *(Cell(one_line(text, _LONGEST)) for text in cells),
        )
        for row, cells in zip(rows, zip(*shown.values(), strict=True), strict=True)
    )
    same = [f"{name} {known[0][name]}" for name in _COMPARED if name not in differing and known[0].get(name)]
    return Table(columns, body, notes=tuple(textwrap.wrap(f"everywhere: {', '.join(same)}", 78)) if same else ())


def _memory(used: int, limit: int | None) -> str:
    shown = numbers.size(used or None)
    return f"{shown} of {numbers.size(limit)}" if used and limit else shown


def _verdict(checkup: Any) -> tuple[str, Ink]:
    counts = [
        (sum(finding.severity is severity for finding in checkup.findings), word, ink)
        for severity, (_, word, ink) in _LOOKS.items()
    ]
    amounts = [many(count, word) for count, word, _ in counts if count]
    worst = next((ink for count, _, ink in counts[:2] if count), Ink.GOOD)
    word = "not healthy" if not checkup else "works, not as it should" if counts[1][0] else "healthy"
    return word + (f": {', '.join(amounts)}" if amounts else ""), worst


def _line(text: str) -> str:
    return one_line(text, _LONGEST)


WIDTH = 76
"""Columns of a line of what was found."""
_STEPS = (
    "run.accept(found)    # take this code; redo='changed' runs again what differs",
    "found.to_frame()    # every document of the sample",
)


def compared_parts(found: Comparison) -> list[Part]:
    """Return what was found, the first documents that differ, and the next steps."""
    parts: list[Part] = [*_found(found)]
    if found.changed:
        parts.append(_differences(found.changed))
    return [*parts, *([Steps(_STEPS, "")] if found.changed else [])]


def first_differences(found: Comparison, known: int, most: int = 3) -> list[str]:
    """Return in a line each the next documents that differ, after the first `known`, up to `most` in all."""
    new = found.changed[known:most] if known < most else ()
    return [f"{one_line(each.key, 40)} {each.became}: {' → '.join(_texts(each))}" for each in new]


def _found(found: Comparison) -> list[Line]:
    lines: list[str] = []
    for sentence in found.summary.split("\n"):
        head, *parts = sentence.split(" · ")
        for part in parts:  # broken only between figures
            if len(head) + len(part) + 3 > WIDTH:
                lines.append(head)
                head = part
            else:
                head = f"{head} · {part}"
        lines.append(head)
    return [line(each) for each in lines]


def _differences(changed: tuple[Compared, ...]) -> Table:
    def fails(each: Compared) -> bool:
        return each.became is Became.NEWLY_FAILS

    fields: list[Field] = [
        (Column("document", mono=True, whole=True), lambda each: one_line(each.key, 60)),
        (Column("became"), lambda each: Cell(str(each.became), Ink.BAD if fails(each) else Ink.PLAIN)),
        (
            Column("before", mono=True),
            lambda each: Cell(_texts(each)[0], Ink.QUIET if each.failed else Ink.WARN),
        ),
        (Column("after", mono=True), lambda each: Cell(_texts(each)[1], Ink.BAD if fails(each) else Ink.GOOD)),
    ]
    kinds = Counter(str(each.became) for each in changed)
    named = ", ".join(f"{numbers.count(n)} {kind}" for kind, n in kinds.most_common())
    first = f"the first {ROWS} of {many(len(changed), 'document')}: " if len(changed) > ROWS else ""
    return Table.of(changed[:ROWS], fields, notes=(first + named,))


def _texts(each: Compared) -> tuple[str, str]:
    """Return the two results, or the failure in place of one, as they differ."""
    if each.became is Became.CHANGED:
        before, after = difference(each.before, each.after)
    else:
        error = one_line(each.error, 60)
        (before, _), (_, after) = difference(each.before, ""), difference("", each.after)
        before, after = (error, after) if each.failed else (before, error)
    return one_line(_quoted(each.before, before), 90), one_line(_quoted(each.after, after), 90)


def _quoted(value: Any, text: str) -> str:
    return "(empty)" if isinstance(value, str) and not text else text
