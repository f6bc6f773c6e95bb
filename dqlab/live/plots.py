"""Figures of matplotlib, to keep in a notebook or a report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dqlab.live.palette import StateLook
from dqlab.stats import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["timeline_figure"]

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
    _say(depth, f"{history.queue or 'all queues'}: messages waiting")
    depth.legend(loc="upper left", frameon=False, ncols=2)
    unacked.fill_between(times, _numbers(history.leased), color=StateLook.LEASED.static, alpha=0.5)
    _say(unacked, "unacked")
    rates.plot(times, _numbers(history.in_rate), color=StateLook.READY.static, label="in", linestyle="--")
    rates.plot(times, _numbers(history.out_rate), color=StateLook.ACKED.static, label="out")
    _say(rates, "messages/s")
    rates.legend(loc="upper left", frameon=False, ncols=2)
    failures.fill_between(times, [60 * each for each in _numbers(history.failure_rate)], color=StateLook.DEAD.static)
    _say(failures, "failures/min")
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


def _say(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=9, pad=2)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


def _numbers(series: tuple[float | None, ...]) -> list[float]:
    return [float("nan") if value is None else value for value in series]
