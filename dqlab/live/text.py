"""Draw parts as text of at most 80 columns, for terminals, logs and notebooks without HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dqlab.live.palette import STATES, Ink
from dqlab.live.parts import Box, Chart, Code, Gauge, Line, Part, Steps, Title
from dqlab.live.style import PLAIN, Span, TextStyle, columns, cut, paint
from dqlab.live.tables import Cell, Column, Table

_BAR = {"acked": "█", "dead": "▚", "lost": "▚", "leased": "▌", "ready": "░", "delayed": "░", "cancelled": "╌"}
_INDENT = "    "
_UNICODE_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_NARROWEST, _NAME = 16, 10
"""Least columns of a line of blocks, and columns of the names before them."""


def render_text(parts: Iterable[Part], style: TextStyle = PLAIN) -> str:
    """Return parts as lines of text, no wider than the style except for what is to be copied."""
    return "\n".join(line for part in parts for line in _lines(part, style))


def _lines(part: Part, style: TextStyle) -> list[str]:
    match part:
        case Title():
            return [_title(part, style)]
        case Line(spans):
            return [paint(spans, style)]
        case Box():
            return _box(part, style)
        case Gauge():
            return [paint(_gauge(part, style), style)]
        case Steps(lines, label):
            return [_step(f"{label} {line}" if label else line, style) for line in lines]
        case Code(text):
            return text.split("\n")
        case Chart():
            return chart_lines(part, style)
        case Table():
            return _table(part, style)


def _step(line: str, style: TextStyle) -> str:
    """Return a line to type, whole, except on a screen that is redrawn in place, which a wrapped line would break."""
    return paint((Span(f"  {line}"),), style) if style.moves else f"  {style.spell(line)}"


def _title(title: Title, style: TextStyle) -> str:
    # On a screen that is redrawn the name is cut before the state, which is what one looks for; elsewhere it is whole.
    name = cut(title.name, max(8, style.width - columns(title.state) - 2)) if style.moves else title.name
    state = (Span(title.state, title.ink), Span("   " if title.state else ""))
    spans = (Span(f"{name}  ", Ink.STRONG), *state, Span(title.about, Ink.QUIET))
    return paint(spans, _room_for(f"{name}  {title.state}", style))


def _room_for(line: str, style: TextStyle) -> TextStyle:
    """Return a style in which a line with a long path or name stays whole, unless the screen is redrawn."""
    return style if style.moves else replace(style, width=max(style.width, columns(line)))


def _box(box: Box, style: TextStyle) -> list[str]:
    mark = f"{box.mark} {box.head}: " if box.head else f"{box.mark} "
    first, *rest = _wrapped(f"{mark}{box.text}", style.width, _INDENT if box.head else "  ")
    ink = Ink.QUIET if box.quiet else Ink.PLAIN
    lines = [paint((Span(box.mark, box.ink), Span(first[len(box.mark) :], ink)), _room_for(first, style))]
    lines += [paint((Span(line, ink),), _room_for(line, style)) for line in rest]
    if box.advice:
        advice = _wrapped(f"{_INDENT}{box.advice}", style.width, _INDENT)
        lines += [paint((Span(line),), _room_for(line, style)) for line in advice]
    if box.command:
        whole = replace(style, width=max(style.width, 2 * len(_INDENT) + columns(box.command)))
        lines.append(paint((Span(f"{_INDENT}{_INDENT}{box.command}", Ink.STRONG),), whole))
    return lines


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    # Only at spaces: a path or a name that is broken elsewhere could not be copied.
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False) or [""]


def _gauge(gauge: Gauge, style: TextStyle) -> list[Span]:
    unit = f" of {gauge.unit}" if gauge.unit else ""
    room = style.width - 8 - columns(unit) - 1 - (0 if style.unicode else 2)
    pieces = []
    for bar, cells in zip(gauge.bars, _shared([bar.fraction for bar in gauge.bars], room), strict=True):
        state = STATES[bar.state]
        character = _BAR[bar.state] if style.unicode else state.mark
        pieces.append(Span(character * cells, Ink.GONE if gauge.stale else state.ink))
    if not pieces:
        pieces = [Span(("╌" if style.unicode else " ") * room, Ink.GONE)]
    before, after = ("", "") if style.unicode else ("[", "]")
    return [Span(f"{gauge.percent:>7} ", Ink.STRONG), Span(before), *pieces, Span(after), Span(unit)]


def _shared(fractions: list[float], room: int) -> list[int]:
    """Share out cells so that every piece gets one, and the largest absorbs the rounding."""
    cells = [max(1, round(fraction * room)) for fraction in fractions]
    if cells:
        largest = cells.index(max(cells))
        cells[largest] = max(1, cells[largest] + room - sum(cells))
    return cells


def _table(table: Table, style: TextStyle) -> list[str]:
    steps = [_step(line, style) for line in table.lines]
    if not table.rows:
        return [*(paint((Span(note),), style) for note in table.notes), *steps]
    heads, body = list(table.columns), [*table.rows, *([table.total] if table.total else [])]
    widths = [max(columns(head.title), *(columns(row[place].text) for row in body)) for place, head in enumerate(heads)]
    while heads[-1].spare and sum(widths) > style.width - 2 * (len(widths) - 1):
        del heads[-1], widths[-1]
    _fit(widths, style.width - 2 * (len(widths) - 1), heads)
    lines = []
    if any(head.title for head in heads):
        lines.append(_row([Cell(head.title, Ink.QUIET) for head in heads], heads, widths, style))
    lines += [_row(row, heads, widths, style) for row in table.rows]
    lines += [paint((Span(note, Ink.QUIET),), style) for note in table.notes]
    if table.total:
        total = [cell._replace(ink=cell.ink or Ink.STRONG) for cell in table.total]
        lines.append(_row(total, heads, widths, style))
    return [*lines, *steps]


def _row(cells: Sequence[Cell], heads: list[Column], widths: list[int], style: TextStyle) -> str:
    spans = []
    # Not strict: a row still has the columns that had no room.
    for cell, head, width in zip(cells, heads, widths, strict=False):
        text = cut(cell.text, width)
        pad = " " * (width - columns(text))
        spans += [Span(pad + text if head.right else text + pad, cell.ink), Span("  ")]
    return paint(spans, style)


def _fit(widths: list[int], room: int, of: list[Column]) -> None:
    # Words shrink first, then names that people type, figures last: a cut figure would be a wrong one.
    words = [place for place, column in enumerate(of) if not column.right and not column.whole]
    for givers in (words, [place for place, column in enumerate(of) if not column.right], range(len(of))):
        while sum(widths) > room and givers:
            widest = max(givers, key=widths.__getitem__)
            if widths[widest] <= 8:
                break
            widths[widest] -= 1


def chart_lines(chart: Chart, style: TextStyle) -> list[str]:
    """Return each series of a chart as a line of blocks, their span of time, and its marks."""
    wide = max(_NARROWEST, style.width - _NAME - 2 - max(columns(each.words) for each in chart.series))
    shapes = _UNICODE_BLOCKS if style.unicode else _ASCII_BLOCKS
    lines = [f"{each.name:<{_NAME}} {blocks(each.values, wide, shapes)} {each.words}" for each in chart.series]
    lines.append(f"{'':<{_NAME}} {chart.start}{chart.end:>{wide - len(chart.start)}}")
    last = _NAME + wide
    lines += [_mark(min(last, _NAME + 1 + int(at * wide)), words, style.width) for at, words in chart.marks]
    return [paint((Span(line),), style) for line in lines]


def _mark(place: int, words: str, width: int) -> str:
    """Return a line with a mark at a place, and its words on the side where there is room."""
    if place + 2 + columns(words) <= width:
        return f"{'':<{place}}^ {words}"
    words = cut(words, place - 1)
    return f"{'':<{place - 1 - columns(words)}}{words} ^"


def blocks(values: Sequence[float | None], width: int, shapes: str = _UNICODE_BLOCKS) -> str:
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
