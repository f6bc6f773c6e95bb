"""The history of a queue as text: one line of blocks for each series, all equally wide, with the cells that ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from dqlab import numbers
from dqlab.live.html import wrap
from dqlab.live.style import TextStyle
from dqlab.stats import History, Mark
from dqlab.texts import one_line

__all__ = ["blocks", "timeline_html", "timeline_text"]

BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
WIDTH, NAME = 44, 10


def timeline_text(history: History, style: TextStyle) -> str:
    """Return depth, unacked messages, throughput and failures over time."""
    lines = [_title(history), ""]
    for name, values, spelled in _series(history):
        drawn = blocks(values, WIDTH, BLOCKS if style.unicode else ASCII_BLOCKS)
        lines.append(f"{name:<{NAME}} {drawn} {spelled}")
    ticks = f"{numbers.minute(history.t0)}{numbers.minute(history.end):>{WIDTH - 5}}"
    lines.append(f"{'':<{NAME}} {ticks}")
    lines += [f"{'':<{NAME}} {' ' * _place(history, mark)}{_mark(mark)}" for mark in history.marks[-8:]]
    return "\n".join(lines)


def timeline_html(history: History) -> str:
    """Return the same as a fragment with inline styles only."""
    return wrap([f'<pre style="line-height:1.35">{escape(timeline_text(history, TextStyle()))}</pre>'])


def blocks(values: Sequence[float | None], width: int, shapes: str = BLOCKS) -> str:
    """Return a series as a line of characters from 0 to its largest value; a space where nothing is known."""
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
    rows: list[tuple[str, Sequence[float | None], Callable[[float], str], str]] = [
        ("waiting", depth, lambda value: numbers.count(round(value)), "messages"),
        ("unacked", history.leased, lambda value: numbers.count(round(value)), "messages"),
        ("in", history.in_rate, numbers.rate, "messages/s"),
        ("out", history.out_rate, numbers.rate, "messages/s"),
        ("failures", failures, numbers.rate, "per minute"),
    ]
    return [(name, values, _spelled(values, spell, unit)) for name, values, spell, unit in rows]


def _spelled(values: Sequence[float | None], spell: Callable[[float], str], unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return numbers.UNKNOWN
    now = values[-1]
    return f"now {numbers.UNKNOWN if now is None else spell(now)}, most {spell(max(known))} {unit}"


def _place(history: History, mark: Mark) -> int:
    span = history.end - history.t0
    return max(0, min(WIDTH - 1, int((mark.at - history.t0) / span * WIDTH))) if span > 0 else 0


def _mark(mark: Mark) -> str:
    cell = f"[{mark.cell}] " if mark.cell is not None else ""
    return f"^ {cell}{one_line(mark.text, 40)}, {numbers.minute(mark.at)}"
