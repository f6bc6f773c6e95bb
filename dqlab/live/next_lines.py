"""Find the line to type next about what needs the user, where a view has no buttons.

Pure: takes what a Snapshot lists. The doctor shows the same lines, with advice (`checkup.alerts`).

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dqlab import numbers
from dqlab.live.views import Need
from dqlab.stats import Attention, AttentionKind, RunStats
from dqlab.texts import as_word

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
