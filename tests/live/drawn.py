"""Views as text and as HTML."""

from __future__ import annotations

from dqlab.live.layout import parts_of
from dqlab.live.parts import Part
from dqlab.live.render import render_html, render_text
from dqlab.live.style import PLAIN, TextStyle
from dqlab.live.views import QueuesView, RunView

__all__ = ["html_of", "screen_of", "table_html", "table_text"]


def screen_of(view: RunView | QueuesView, style: TextStyle = PLAIN) -> str:
    return render_text(parts_of(view), style)


def html_of(view: RunView | QueuesView) -> str:
    return render_html(parts_of(view.as_saved()))


def table_text(table: Part, style: TextStyle = PLAIN) -> str:
    return render_text((table,), style)


def table_html(table: Part) -> str:
    return render_html((table,))
