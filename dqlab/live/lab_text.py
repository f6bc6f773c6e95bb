"""A lab or a queue as text, and as HTML that needs nothing else: figures, queues, runs, what needs the user."""

from __future__ import annotations

from html import escape

from dqlab.live.html import needs_html, notice_html, table_html, wrap
from dqlab.live.lab_view import QueuesView
from dqlab.live.palette import Ink
from dqlab.live.run_view import Tone
from dqlab.live.style import PLAIN, Span, TextStyle, paint
from dqlab.live.text import need_lines, table_text

__all__ = ["queues_html", "queues_screen"]


def queues_screen(view: QueuesView, style: TextStyle = PLAIN) -> str:
    """Return a lab or queue as text: a summary line, queues, runs, what needs the user."""
    head = [Span(f"{view.name}  ", Ink.STRONG)]
    head += [Span(f"{view.chip.lower()}  ", Ink.WARN if view.tone else Ink.STRONG)] if view.chip else []
    lines = [[*head, Span(view.subtitle, Ink.QUIET)]]
    if view.notice.text:
        ink = {Tone.BAD: Ink.BAD, Tone.WARN: Ink.WARN}.get(view.notice.tone, Ink.PLAIN)
        lines.append([Span(f"! {view.notice.text}", ink)])
    if view.figures:
        said = [f"{each.label.lower()} {each.value} {each.unit}".rstrip() for each in view.figures]
        lines += [[Span(", ".join(said[:3]))], [Span(", ".join(said[3:]))]]
    text = [paint(line, style) for line in lines]
    text += [table_text(table, style) for table in (view.table, view.runs_table) if table.columns]
    text += [paint(line, style) for line in need_lines(view.details.needs)] if view.details.needs else []
    return "\n".join(text)


def queues_html(view: QueuesView) -> str:
    """Return a lab or queue as a fragment with inline styles only; words and figures carry all of it."""
    chip = f"{escape(view.chip.lower())} &nbsp;" if view.chip else ""
    parts = [
        f'<div style="font-size:15px"><b>{escape(view.name)}</b> &nbsp;{chip}'
        f'<span style="opacity:.7">{escape(view.subtitle)}</span></div>',
        *notice_html(view.notice),
    ]
    if view.figures:
        said = (
            f"{each.label.lower()} <b>{escape(each.value)}</b> {escape(each.unit)}".rstrip() for each in view.figures
        )
        parts.append(f'<div style="margin:2px 0 8px">{" · ".join(said)}</div>')
    parts += needs_html(view.details.needs)
    parts += [table_html(table) for table in (view.table, view.runs_table) if table.columns]
    return wrap(parts, width=1100)
