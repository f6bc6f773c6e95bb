"""Make pieces of HTML for panels, with all users' text escaped by `text`."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from dqlab.live.palette import Ink
from dqlab.live.tables import Cell, Column, Table

__all__ = ["cells", "code", "columns", "glyph", "heads", "listed", "strong", "text", "unit", "whole"]

_INKS = {
    Ink.STRONG: "<b>{}</b>",
    Ink.QUIET: '<span class="mut">{}</span>',
    Ink.WARN: '<b class="warn">{}</b>',
    Ink.BAD: '<b class="bad">{}</b>',
    Ink.GOOD: '<span class="ok">{}</span>',
}
_SHAPES = {
    "ready": '<circle cx="6" cy="6" r="4.2" stroke-width="2"/>',
    "delayed": '<circle cx="6" cy="6" r="4.4"/><path d="M6 3.2V6l2 1.4"/>',
    "leased": '<circle cx="6" cy="6" r="4.4"/><path d="M6 1.6a4.4 4.4 0 0 1 0 8.8z" class="f"/>',
    "dead": '<path d="M2.5 2.5 9.5 9.5M9.5 2.5 2.5 9.5" stroke-width="2.2"/>',
    "slow": '<circle cx="6" cy="6" r="4.6"/><path d="M6 6 3.4 4.2" stroke-width="1.5"/>',
    "running": '<path d="M3 1.8 10.2 6 3 10.2z" class="f" stroke="none"/>',
    "paused": '<path d="M3 2h2v8H3zM7 2h2v8H7z" class="f" stroke="none"/>',
    "done": '<circle cx="6" cy="6" r="5.2" class="f" stroke="none"/><path d="M3.4 6.2 5.2 8l3.4-4" class="tick"/>',
    "waiting": '<path d="M3 2.2h6M3 9.8h6M4 2.5c0 3 4 4 4 7M8 2.5c0 3-4 4-4 7"/>',
    "cancelled": '<circle cx="6" cy="6" r="4.4"/><path d="M3 9 9 3"/>',
}


SHORT = 4
"""Characters that each cell has room for."""


def text(value: object) -> str:
    """Return anything as HTML that reads as it is written."""
    return escape(str(value))


def whole(words: str) -> str:
    """Return text that is shown in full under the pointer where it is cut."""
    return f'<span title="{text(words)}">{text(words)}</span>'


def strong(value: object) -> str:
    """Return text in bold."""
    return f"<b>{text(value)}</b>"


def code(line: object) -> str:
    """Return a line that can be typed."""
    return f'<code class="mono">{text(line)}</code>'


def codes(lines: Iterable[object]) -> str:
    """Return lines that can be typed, one by one."""
    return " · ".join(map(code, lines))


def glyph(shape: str) -> str:
    """Return a picture of 12 pixels, coloured by its class, which never stands without a word."""
    return (
        f'<svg class="g {shape}" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true" fill="none" '
        f'stroke="currentColor" stroke-width="1.4">{_SHAPES[shape]}</svg>'
    )


def unit(spelt: str) -> tuple[str, str]:
    """Return a formatted size cut into figure and unit, as in ``("2.2", "GB")``."""
    figure, _, name = spelt.partition(" ")
    return figure, name


def columns(*titles: str) -> tuple[Column, ...]:
    """Return plain columns, placed by `panel.css`."""
    return tuple(map(Column, titles))


def heads(kind: str, target: str, titles: Iterable[tuple[str, str, str]], *, pressed: bool) -> str:
    """Return the head of a table, whose titles are buttons that ask the model `target` for an order."""
    # A title is a word, the order that it asks for ("" for none), and "up" or "down" where rows are sorted so now.
    return f'<div class="t {kind}">{_line((_head(target, *each, pressed=pressed) for each in titles), "h")}</div>'


def _head(target: str, title: str, order: str, mark: str, *, pressed: bool) -> str:
    if not order or not pressed:
        return text(title)
    arrow = {"down": " \N{BLACK DOWN-POINTING SMALL TRIANGLE}", "up": " \N{BLACK UP-POINTING SMALL TRIANGLE}"}.get(
        mark, ""
    )
    sorted_now = {"down": ", sorted now", "up": ", sorted backwards now"}.get(mark, "")
    return (
        f'<button type="button" data-dq="{text(target)}" data-value="{text(order)}" data-word="{text(title)}" '
        f'aria-label="Sort by {text(title)}{sorted_now}">{text(title)}{arrow}</button>'
    )


def cells(kind: str, table: Table) -> str:
    """Return a table as rows of equal height below a head, laid out by the class `kind` in `panel.css`."""
    # Each note has a row of its own before the total: charts beside the table count rows of equal height.
    note = "mut beyond" if table.rows else "empty"
    body = [_row(row, table.columns) for row in table.rows]
    body += [
        _line(f'<span class="{note}">{text(each)}</span>' if at == 1 else "" for at in range(len(table.columns)))
        for each in table.notes
    ]
    if table.total:
        body.append(_row(table.total, table.columns, "all"))
    head = _line((text(column.title) for column in table.columns), "h")
    return f'<div class="t {kind}">{head}{"".join(body)}</div>'


def listed(table: Table, caption: str) -> str:
    """Return a table as an HTML table, for readers who cannot see the chart, or want its figures."""
    head = "".join(f'<th scope="col">{text(column.title)}</th>' for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{text(cell.text)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<table><caption>{text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _line(inner: Iterable[str], name: str = "") -> str:
    return f'<div class="r {name}">{"".join(f"<span>{each}</span>" for each in inner)}</div>'


def _row(row: Iterable[Cell], columns: Iterable[Column], name: str = "") -> str:
    """Return a row, in which cut text is shown in full under the pointer."""
    pairs = ((_title(cell.text), _cell(cell, column)) for cell, column in zip(row, columns, strict=False))
    return f'<div class="r {name}">{"".join(f"<span{title}>{inner}</span>" for title, inner in pairs)}</div>'


def _title(words: str) -> str:
    return f' title="{text(words)}"' if len(words) > SHORT else ""


def _cell(cell: Cell, column: Column) -> str:
    if cell.glyph:
        return glyph(cell.glyph)
    if not cell.text:
        return ""
    words = _INKS.get(cell.ink, "{}").format(text(cell.text))
    if column.bars:
        width = min(max(cell.filled, 0.0), 1.0) * 100
        return f'<i class="bar"><i style="width:{width:.0f}%"></i></i><em>{words}</em>'
    # Quiet text stands in for an unknown name, and is not a name.
    is_name = column.mono and cell.ink is not Ink.QUIET
    return f'<span class="mono">{words}</span>' if is_name else words
