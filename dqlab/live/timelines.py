"""Lay out the history of a queue with the cells that ran, or plot it as a figure of matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dqlab import numbers
from dqlab.live.palette import StateLook
from dqlab.live.parts import GAP, Chart, Part, Series, Title
from dqlab.live.run_rows import LAST_MINUTE
from dqlab.stats import History, Mark
from dqlab.texts import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["timeline_figure", "timeline_parts"]

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


WIDTH, HEIGHT = 9.0, 6.0
"""Inches."""


def timeline_figure(history: History) -> Figure:
    """Return depth by state, unacked messages, throughput and failures over one time axis, with marks of cells."""
    import matplotlib.pyplot as plt  # registers matplotlib's formatters with IPython

    figure, (depth, unacked, rates, failures) = plt.subplots(
        4, 1, sharex=True, height_ratios=[3, 1, 2, 1], figsize=(WIDTH, HEIGHT), layout="constrained"
    )
    plt.close(figure)  # the notebook shows it as the value of its cell, and not a second time
    times = [datetime.fromtimestamp(at, tz=UTC).astimezone() for at in history.times]
    ready, delayed = _numbers(history.ready), _numbers(history.delayed)
    depth.stackplot(
        times,
        ready,
        delayed,
        colors=[StateLook.READY.static, StateLook.DELAYED.static],
        labels=["ready", "delayed"],
        alpha=0.7,
    )
    _label(depth, f"{history.queue or 'all queues'}: messages waiting")
    depth.legend(loc="upper left", frameon=False, ncols=2)
    unacked.fill_between(times, _numbers(history.leased), color=StateLook.LEASED.static, alpha=0.5)
    _label(unacked, "unacked")
    rates.plot(times, _numbers(history.in_rate), color=StateLook.READY.static, label="in", linestyle="--")
    rates.plot(times, _numbers(history.out_rate), color=StateLook.ACKED.static, label="out")
    _label(rates, "messages/s")
    rates.legend(loc="upper left", frameon=False, ncols=2)
    failures.fill_between(times, _numbers(history.failure_rate), color=StateLook.DEAD.static)
    _label(failures, "failures/s")
    for axes in (depth, unacked, rates, failures):
        for mark in history.marks:
            axes.axvline(datetime.fromtimestamp(mark.at, tz=UTC).astimezone(), color="gray", linestyle=":", linewidth=1)
    for mark in history.marks:
        label = f"[{mark.cell}] {mark.text}" if mark.cell is not None else mark.text
        at = datetime.fromtimestamp(mark.at, tz=UTC).astimezone()
        depth.annotate(
            label, (at, 1), xycoords=("data", "axes fraction"), fontsize=8, rotation=20, annotation_clip=True
        )
    return figure


def _label(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=9, pad=2)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


def _numbers(series: tuple[float | None, ...]) -> list[float]:
    return [float("nan") if value is None else value for value in series]
