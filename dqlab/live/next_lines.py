"""Word what can be typed next: lines about what needs the user, and cells that a run's widget offers.

Runs none of it. The doctor shows the same lines, with advice (`checkup.alerts`).

"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dqlab import numbers
from dqlab.live.views import Need, Offers
from dqlab.notebook import shell
from dqlab.stats import Attention, AttentionKind, RunStats
from dqlab.texts import as_word, one_line

if TYPE_CHECKING:
    pass


def is_lab(source: object) -> bool:
    """Return whether a source is a lab that can be followed."""
    return _has(source, "snapshot", "past", "controls")


def is_queue(source: object) -> bool:
    """Return whether a source is a queue that can be followed."""
    return _has(source, "snapshot", "past", "drain", "purge")


def cluster_of(source: object) -> str:
    """Return the address of the scheduler of a run, a queue or a lab, and "" where it has none."""
    owner = getattr(source, "handle", None) or getattr(source, "session", None)
    return str(getattr(getattr(owner, "link", None), "address", ""))


def is_embedded(source: object) -> bool:
    """Return whether a lab has started the processes of its cluster."""
    return bool(getattr(source, "embedded", False))


def _has(source: object, *names: str) -> bool:
    # Of the type: on the object, a property such as `source` or `closed` would be computed, and may ask the cluster.
    return all(hasattr(type(source), name) for name in names)


DOCTOR = "%dq doctor"
NAMED = 3
"""Most runs that are named where several have dead documents."""


def next_line(need: Attention) -> str:
    """Return the line that acts on an alert or shows more of it, and "" where there is none."""
    line = _LINES.get(need.kind)
    return "" if line is None else line(need)


def lines_of(needs: Iterable[Need]) -> list[str]:
    """Return the lines about some alerts, each line once."""
    return [line for line in dict.fromkeys(each.line for each in needs) if line]


def more_needs(needs: Sequence[Need], total: int, *, ended: bool = False) -> str:
    """Return how many alerts are not listed, and the line that lists them, and "" when all are listed."""
    more = total - len(needs)
    # The alerts of an ended run are classes of failures, and the line about one of them lists them all.
    line = next(iter(lines_of(needs)), DOCTOR) if ended else DOCTOR
    return f"and {numbers.count(more)} more: {line}" if more > 0 else ""


def failed_lines(runs: Sequence[RunStats]) -> list[str]:
    """Return the lines that list the dead documents of the first of some runs."""
    return [_failed(run.name) for run in runs[:NAMED]]


def _failed(run: str) -> str:
    return f"%dq failed {as_word(run)}"


def _stopped(need: Attention) -> str:
    """Return the line that goes on with a run that paused itself."""
    # Where everything failed, resuming the same code would fail the rest too.
    return _failed(need.run) if need.action == "retry" else f"%dq resume {as_word(need.run)}"


def _scale(need: Attention) -> str:
    return f"%dq scale auto {as_word(need.queue)}"


def _unacked(need: Attention) -> str:
    return f"lab.queue({need.queue!r}).unacked()"


_LINES: dict[AttentionKind, Callable[[Attention], str]] = {
    AttentionKind.STOPPED: _stopped,
    AttentionKind.FAILING: lambda need: _failed(need.run),
    AttentionKind.PUT_OFF: lambda need: f"%dq cancel {as_word(need.run)}",
    AttentionKind.NO_CONSUMER: _scale,
    AttentionKind.UNABLE: lambda need: f"%dq cancel {as_word(need.run)}",
    AttentionKind.GROWING: _scale,
    AttentionKind.LAG: _scale,
    AttentionKind.LEASE_ENDS: _unacked,
    AttentionKind.HELD: _unacked,
    AttentionKind.SLOW: _unacked,
    AttentionKind.PUTS_WAIT: _unacked,
    AttentionKind.STORE: lambda _: DOCTOR,
    AttentionKind.NO_ANSWER: lambda _: DOCTOR,
    AttentionKind.SILENT: lambda _: DOCTOR,
    AttentionKind.RUNS_ON: lambda _: DOCTOR,
    AttentionKind.NO_ROOM: lambda need: f"%dq compact {as_word(need.queue)}",
}
"""By kind of alert; the details of "lost" and "missing" name the line themselves."""


CANARY = 100
"""Dead documents above which a retry of so many is offered first; the sidebar has the same number."""


class NotebookNames(NamedTuple):
    """The notebook's names for a run and its lab, empty where it has none."""

    run: str = ""
    lab: str = ""
    magic: bool = False
    """The notebook has `%dq`."""
    cluster: str = ""
    """Address of the scheduler, by which the front end finds the service."""


NO_NAMES = NotebookNames()


def names_here(source: object) -> NotebookNames:
    """Return the notebook's names for a run and its lab."""
    known: Mapping[str, Any] = dict(vars(sys.modules["__main__"])) if "__main__" in sys.modules else {}
    mine = {name: value for name, value in known.items() if not name.startswith("_")}
    runs = [name for name, value in mine.items() if value is source]
    labs = [item for item in mine.items() if is_lab(item[1]) and not isinstance(item[1], type) and not item[1].closed]
    cluster = cluster_of(source)
    # A lab of another cluster cannot attach this run.
    own = [name for name, lab in labs if not cluster or cluster_of(lab) == cluster]
    magics = getattr(shell(), "find_line_magic", None)
    run, lab = min(runs, key=len, default=""), own[0] if own else ""
    return NotebookNames(run, lab, bool(magics and magics("dq")), cluster)


def first(dead: int) -> int:
    """Return how many of many dead documents are retried first, and 0 where all are retried together."""
    return CANARY if dead > CANARY else 0


def offers(stats: RunStats, source: str | None, names: NotebookNames, *, newer: bool = False) -> Offers:
    """Return what can be done with a run in the notebook."""
    run, name = _handle(stats.name, names), stats.code.name
    named = source is not None and name.isidentifier()
    results, without = _results(run, stats, names)
    return Offers(
        cluster=names.cluster,
        queue=one_line(stats.queue, 80),
        run=one_line(stats.name, 80),
        results=f"# {without}\n{results}" if without else results,
        code=(source or "").rstrip("\n") if named else "",
        label=f"Insert cell with {name}(){f' v{stats.code.version}' if newer else ''}" if named else "",
        open="%dq open" if names.magic else f"{names.lab or 'lab'}.panel()",
    )


def _results(run: str, stats: RunStats, names: NotebookNames) -> tuple[str, str]:
    """Return the line that gets the existing results, and words for the missing ones."""
    missing = _missing(stats)
    # Without `--errors skip` the line would raise where documents have no result.
    if names.magic and not names.run:
        return f"%dq results {as_word(stats.name)}{' --errors skip' if missing else ''}", missing
    return run + ('.results(errors="skip").to_frame()' if missing else ".results()"), missing


def _missing(stats: RunStats) -> str:
    """Return which documents have no result and never will, and "" when there are none."""
    counts = stats.counts
    kinds = ("dead", counts.dead), ("cancelled", counts.cancelled), ("lost", counts.lost)
    parts = [f"{numbers.count(amount)} {word}" for word, amount in kinds if amount]
    return f"without the documents that have no result: {', '.join(parts)}" if parts else ""


def run_here(letter: Any, stats: RunStats, names: NotebookNames) -> str:
    """Return the cell that runs a dead document here, under the debugger where it fails."""
    # By key, which any later run has too: a position is valid in one run. A key that is cut may be that of several
    # documents.
    named = type(letter.key) is str and one_line(letter.key) == letter.key and not letter.key.startswith("#")
    word = letter.key if named else f"#{letter.ordinal}"
    if names.magic:
        return f"%dq debug {as_word(word)} {as_word(stats.name)}"
    return f"{_handle(stats.name, names)}.debug({word!r})"


def _handle(name: str, names: NotebookNames) -> str:
    return names.run or f"{names.lab or 'lab'}.attach({name!r})"
