"""Draw the history of a queue as text, as HTML and as a figure of matplotlib, with the cells that ran.

As text, each series is one line of blocks; in HTML, one small drawing beside the same words. A host that strips
drawings leaves the words.

"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from dqlab import numbers
from dqlab.live.html import quiet, wrap
from dqlab.live.palette import StateLook
from dqlab.live.run_rows import LAST_MINUTE
from dqlab.live.style import TextStyle, columns, cut
from dqlab.stats import History, Mark
from dqlab.texts import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["blocks", "timeline_figure", "timeline_html", "timeline_text"]

BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
NARROWEST, NAME = 16, 10
"""Least columns of a line of blocks, and columns of the names before them."""
DRAWN = 480, 30
"""Pixels of one drawing."""
MARKS = 8
"""Most marks that are shown, the newest."""


def timeline_text(history: History, style: TextStyle) -> str:
    """Return depth, unacked messages, throughput and failures over time, no wider than the style."""
    history = history.since_known()
    series = _series(history)
    wide = max(NARROWEST, style.width - NAME - 2 - max(columns(spelled) for _, _, spelled in series))
    lines = [_title(history), ""]
    for name, values, spelled in series:
        drawn = blocks(values, wide, BLOCKS if style.unicode else ASCII_BLOCKS)
        lines.append(f"{name:<{NAME}} {drawn} {spelled}")
    ticks = f"{numbers.minute(history.t0)}{numbers.minute(history.end):>{wide - 5}}"
    lines.append(f"{'':<{NAME}} {ticks}")
    last = NAME + wide
    places = [(min(last, NAME + 1 + int(_place(history, mark) * wide)), mark) for mark in history.marks[-MARKS:]]
    lines += [_mark_line(place, _mark(mark), style.width) for place, mark in places]
    return "\n".join(cut(line, style.width, ellipsis="…" if style.unicode else "~") for line in lines)


def _mark_line(place: int, words: str, width: int) -> str:
    """Return a line with a mark at a place, and its words on the side where there is room."""
    if place + 2 + columns(words) <= width:
        return f"{'':<{place}}^ {words}"
    words = cut(words, place - 1)
    return f"{'':<{place - 1 - columns(words)}}{words} ^"


def timeline_html(history: History) -> str:
    """Return the same as a fragment of drawings and words, with inline styles only."""
    history = history.since_known()
    parts = [f"<div><b>{escape(_title(history))}</b></div>"]
    marks = history.marks[-MARKS:]
    for name, values, spelled in _series(history):
        words = f'<span style="flex:none;width:70px">{name}</span>'
        figures = f'<span style="flex:none">{quiet(spelled)}</span>'
        picture = _drawing(f"{name}: {spelled}", values, [_place(history, mark) for mark in marks])
        parts.append(f'<div style="display:flex;gap:10px;align-items:center">{words}{picture}{figures}</div>')
    ends = f"<span>{numbers.minute(history.t0)}</span><span>{numbers.minute(history.end)}</span>"
    style = f"display:flex;justify-content:space-between;width:{DRAWN[0]}px;margin-left:80px;opacity:.7"
    parts.append(f'<div style="{style}">{ends}</div>')
    parts += [f'<div style="margin-left:80px">{quiet(_mark(mark))}</div>' for mark in marks]
    return wrap(parts, width=1100)


def _drawing(label: str, values: Sequence[float | None], marks: Sequence[float]) -> str:
    """Return an area over time, with a line at each of `marks`, places from 0 to 1."""
    width, height = DRAWN
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    step = width / max(1, len(values) - 1)
    areas: list[str] = []
    for known, run in groupby(enumerate(values), key=lambda point: point[1] is not None):
        if known:
            points = [(at * step, height - 1 - (height - 2) * (value or 0.0) / top) for at, value in run]
            # One point alone has no width.
            points += [(points[0][0] + step, points[0][1])] * (len(points) == 1)
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            areas.append(
                f'<polygon points="{points[0][0]:.1f},{height} {line} {points[-1][0]:.1f},{height}" '
                'fill="currentColor" fill-opacity="0.18"></polygon>'
                f'<polyline points="{line}" fill="none" stroke="currentColor"></polyline>'
            )
    lines = "".join(
        f'<line x1="{place * width:.1f}" x2="{place * width:.1f}" y1="0" y2="{height}" stroke="#9A6200" '
        'stroke-dasharray="3 2"></line>'
        for place in marks
    )
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" style="flex:none">{"".join(areas)}{lines}</svg>'
    )


def blocks(values: Sequence[float | None], width: int, shapes: str = BLOCKS) -> str:
    """Return a series as a line of characters from 0 to its largest value, with spaces where nothing is known."""
    if not values:
        return " " * width
    cells = []
    for at in range(width):
        part = values[at * len(values) // width : max((at + 1) * len(values) // width, at * len(values) // width + 1)]
        known = [value for value in part if value is not None]
        cells.append(max(known) if known else None)
    scale = (len(shapes) - 1) / (max((cell for cell in cells if cell is not None), default=0.0) or 1.0)
    return "".join(" " if cell is None else shapes[round(cell * scale)] for cell in cells)


def _title(history: History) -> str:
    of = f"queue {one_line(history.queue, 60)}" if history.queue else "all queues"
    return f"{of}, last {numbers.span(history.end - history.t0)}"


def _series(history: History) -> list[tuple[str, Sequence[float | None], str]]:
    depth = [
        None if ready is None or delayed is None else ready + delayed
        for ready, delayed in zip(history.ready, history.delayed, strict=True)
    ]
    failures = [None if rate is None else 60 * rate for rate in history.failure_rate]
    now, most = history.now, history.most
    rows: list[tuple[str, Sequence[float | None], str]] = [
        ("waiting", depth, _spelled(now.waiting, most.waiting, _count, "messages")),
        ("unacked", history.leased, _spelled(now.unacked, most.unacked, _count, "messages")),
        ("in", history.in_rate, _spelled(now.in_rate, most.in_rate, numbers.rate, "messages/s", LAST_MINUTE)),
        ("out", history.out_rate, _spelled(now.out_rate, most.out_rate, numbers.rate, "messages/s", LAST_MINUTE)),
        ("failures", failures, _spelled(now.failure_rate, most.failure_rate, _by_minute, "per minute", LAST_MINUTE)),
    ]
    return rows


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
