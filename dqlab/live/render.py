"""Draw parts as text of at most 80 columns, and as HTML that needs nothing else.

Text is for terminals, logs and notebooks without HTML. HTML has inline styles only: without script, class, image or
font, the fragment looks the same in a saved notebook, on a code host that strips styles, and in print, on light and
dark pages. All users' text is escaped here.

"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape

from dqlab.live.parts import Box, Cell, Chart, Code, Column, Gauge, Line, Part, Steps, Table, Title
from dqlab.live.style import PLAIN, STATES, Ink, Span, TextStyle, columns, cut, paint

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


_OUTER = (
    "font-family:system-ui,-apple-system,'Helvetica Neue',Helvetica,Arial,sans-serif;font-size:13px;line-height:1.5;"
    "margin-top:4px;max-width:1100px"
)
_HEAD = "font-weight:normal;opacity:.7;border-bottom:1px solid rgba(128,128,128,.5)"
_LINE = "border-bottom:1px solid rgba(128,128,128,.35)"
_LEFT, _RIGHT = "padding:3px 14px 3px 0;text-align:left", "padding:3px 14px 3px 0;text-align:right"
_MONO = ";font-family:monospace;overflow-wrap:anywhere;min-width:10ch"
_FIGURES = "font-variant-numeric:tabular-nums"
_INKS = {Ink.BAD: "#E0533F", Ink.WARN: "#9A6200", Ink.GOOD: "#0A9F88"}


def render_html(parts: Iterable[Part]) -> str:
    """Return parts as one fragment."""
    drawn = [html for part in parts if (html := _html(part))]
    return f'<div style="{_OUTER}">\n' + "\n".join(drawn) + "\n</div>"


def _html(part: Part) -> str:
    match part:
        case Title(name, state, about, ink):
            # The name alone is bold.
            rest = [_inked(state, Ink.PLAIN if ink is Ink.STRONG else ink), _inked(about, Ink.QUIET)]
            words = " &nbsp;".join(each for each in [f"<b>{escape(name)}</b>", *rest] if each)
            return f'<div style="font-size:15px;margin:0 0 4px">{words}</div>'
        case Line(spans):
            return f"<div>{''.join(_inked(text, ink) for text, ink in spans)}</div>" if spans else ""
        case Box():
            return _box_html(part)
        case Gauge():
            return _gauge_html(part) if part.bars else ""
        case Steps(lines, label):
            return "\n".join(f"<div>{escape(f'{label} ' if label else '')}{_code(line)}</div>" for line in lines)
        case Code(text):
            return f'<pre style="margin:8px 0 0;overflow-x:auto">{escape(text)}</pre>'
        case Chart():
            return _chart_html(part)
        case Table():
            return _table_html(part)


def _inked(text: str, ink: Ink) -> str:
    """Return escaped text in a colour."""
    safe = escape(text)
    if ink is Ink.STRONG and safe:
        return f"<b>{safe}</b>"
    if ink is Ink.QUIET and safe:
        return f'<span style="opacity:.7">{safe}</span>'
    return f'<span style="color:{_INKS[ink]}">{safe}</span>' if ink in _INKS and safe else safe


def _code(line: str) -> str:
    return f'<code style="overflow-wrap:anywhere">{escape(line)}</code>'


def _box_html(box: Box) -> str:
    if box.quiet:
        head = f"{_inked(box.mark, box.ink)} {escape(box.head)}: "
        return f'<div style="margin:2px 0">{head}{_inked(box.text, Ink.QUIET)}</div>'
    head = f"<b>{_inked(box.mark, box.ink)} {escape(box.head)}</b>: " if box.head else ""
    inner = f"{head}{escape(box.text)}"
    if box.advice:
        inner += f"<div>{escape(box.advice)}</div>"
    if box.command:
        inner += _code(box.command)
    edge = _INKS.get(box.ink, "#888")
    return f'<div style="border-left:3px solid {edge};padding-left:8px;margin:0 0 8px">{inner}</div>'


def _gauge_html(gauge: Gauge) -> str:
    pieces = []
    for place, bar in enumerate(gauge.bars):
        gap = ";margin-left:1px" if place else ""
        colour = "#888" if gauge.stale else STATES[bar.state].static
        pieces.append(f'<span style="flex:{bar.fraction:.5f};min-width:3px{gap};background:{colour}"></span>')
    label = escape(gauge.label)
    unit = f" of {escape(gauge.unit)}" if gauge.unit else ""
    return (
        f"<div><b>{escape(gauge.percent)}</b>{unit}</div>"
        f'<div role="img" aria-label="{label}" style="display:flex;height:10px;margin:4px 0 10px">'
        f"{''.join(pieces)}</div>"
    )


def _table_html(table: Table) -> str:
    parts = []
    if table.rows:
        body = [_row_html(row, table.columns) for row in (*table.rows, *([table.total] if table.total else []))]
        titles = "".join(
            f'<th style="{_RIGHT if column.right else _LEFT};{_HEAD}">{escape(column.title)}</th>'
            for column in table.columns
        )
        head = f"<thead><tr>{titles}</tr></thead>" if any(column.title for column in table.columns) else ""
        parts.append(
            '<div style="overflow-x:auto">'
            '<table style="border-collapse:collapse;margin:4px 0 8px;font:inherit;color:inherit">'
            f"{head}<tbody>{''.join(body)}</tbody></table></div>"
        )
    parts += [f'<div style="opacity:.7">{escape(note)}</div>' for note in table.notes]
    parts += [f"<div>{_code(line)}</div>" for line in table.lines]
    return "\n".join(parts)


def _row_html(cells: Sequence[Cell], columns: Sequence[Column]) -> str:
    inner = "".join(_td(cell, column) for cell, column in zip(cells, columns, strict=True))
    return f"<tr>{inner}</tr>"


def _td(cell: Cell, column: Column) -> str:
    style = f"{_RIGHT};{_FIGURES}" if column.right else _LEFT
    if column.right and " " in cell.text:
        style += ";white-space:nowrap"  # "62.5 %" is one figure
    return f'<td style="{style};{_LINE}{_MONO if column.mono else ""}">{_inked(cell.text, cell.ink)}</td>'


def _chart_html(chart: Chart) -> str:
    label = escape("; ".join(f"{each.name}: {each.words}" for each in chart.series))
    text = escape("\n".join(chart_lines(chart, PLAIN)))
    return f'<pre role="img" aria-label="{label}" style="margin:0;line-height:1.2;overflow-x:auto">{text}</pre>'
