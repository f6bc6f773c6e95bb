"""Draw parts as HTML that needs nothing else.

Inline styles only: without script, class, image or font, the fragment looks the same in a saved notebook, on a code
host that strips styles, and in print, on light and dark pages. All users' text is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dqlab.live.palette import STATES, Ink
from dqlab.live.parts import Box, Chart, Code, Gauge, Line, Part, Steps, Title
from dqlab.live.style import PLAIN
from dqlab.live.tables import Cell, Column, Table
from dqlab.live.text import chart_lines

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
            return _box(part)
        case Gauge():
            return _gauge(part) if part.bars else ""
        case Steps(lines, label):
            return "\n".join(f"<div>{escape(f'{label} ' if label else '')}{_code(line)}</div>" for line in lines)
        case Code(text):
            return f'<pre style="margin:8px 0 0;overflow-x:auto">{escape(text)}</pre>'
        case Chart():
            return _chart(part)
        case Table():
            return _table(part)


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


def _box(box: Box) -> str:
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


def _gauge(gauge: Gauge) -> str:
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


def _table(table: Table) -> str:
    parts = []
    if table.rows:
        body = [_row(row, table.columns) for row in (*table.rows, *([table.total] if table.total else []))]
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


def _row(cells: Sequence[Cell], columns: Sequence[Column]) -> str:
    inner = "".join(_td(cell, column) for cell, column in zip(cells, columns, strict=True))
    return f"<tr>{inner}</tr>"


def _td(cell: Cell, column: Column) -> str:
    style = f"{_RIGHT};{_FIGURES}" if column.right else _LEFT
    if column.right and " " in cell.text:
        style += ";white-space:nowrap"  # "62.5 %" is one figure
    return f'<td style="{style};{_LINE}{_MONO if column.mono else ""}">{_inked(cell.text, cell.ink)}</td>'


def _chart(chart: Chart) -> str:
    label = escape("; ".join(f"{each.name}: {each.words}" for each in chart.series))
    text = escape("\n".join(chart_lines(chart, PLAIN)))
    return f'<pre role="img" aria-label="{label}" style="margin:0;line-height:1.2;overflow-x:auto">{text}</pre>'
