"""Lay out the history of a queue with the cells that ran."""

from __future__ import annotations

from collections.abc import Callable

from dqlab import numbers
from dqlab.live.parts import GAP, Chart, Part, Series, Title
from dqlab.live.run_rows import LAST_MINUTE
from dqlab.stats import History, Mark
from dqlab.texts import one_line

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
