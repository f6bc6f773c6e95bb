"""The controls of a page: another queue, another span of time, Hold. Nothing here changes a queue."""

from __future__ import annotations

from typing import Any, Protocol

from bokeh.models import CustomJS, InlineStyleSheet, RadioButtonGroup, Select, Toggle

from dqlab.live.panels.changes import html, show
from dqlab.live.panels.markup import strong, text
from dqlab.live.panels.request import SPANS, WHOLE, Request
from dqlab.live.panels.scene import Scene
from dqlab.live.panels.templates import read
from dqlab.numbers import many

__all__ = ["Controls"]

ALL = "all queues"
LABELS = [*(label for label, _ in SPANS), "whole run"]
VALUES = [*(span for _, span in SPANS), WHOLE]
ADDRESS = """const url = new URL(window.location)
url.searchParams.set(name, String(values === null ? cb_obj.value : values[cb_obj.active]))
window.history.replaceState(null, "", url)"""
"""Keeps the address in step, so that a reload shows the same."""


class Looks(Protocol):
    """A page, as its controls see it."""

    @property
    def seq(self) -> int:
        """Number of the newest change."""
        ...

    def look(self, **changes: Any) -> None:
        """Look at something else."""
        ...


class Controls:
    """The line above the figures.

    Parameters
    ----------
    page : Looks
    sheet : InlineStyleSheet
        How HTML looks.
    asked : Request
        What the address asks for.
    """

    def __init__(self, page: Looks, sheet: InlineStyleSheet, asked: Request) -> None:
        style, self._page, self._wall = InlineStyleSheet(css=read("controls.css")), page, asked.wall
        self._from = 0
        self._where = html(sheet, "where")
        self._where.name = "where"
        chosen = [(asked.queue, asked.queue)] if asked.queue else []
        self._queues = Select(
            name="queues", value=asked.queue, options=[("", ALL), *chosen], stylesheets=[style], margin=0
        )
        self._spans = RadioButtonGroup(
            name="spans",
            labels=LABELS,
            active=VALUES.index(asked.span) if asked.span in VALUES else None,
            stylesheets=[style],
            margin=0,
        )
        self._hold = Toggle(name="hold", label="Hold", stylesheets=[style], margin=0)
        self._queues.on_change("value", lambda _, __, queue: page.look(queue=queue, run=""))
        self._spans.on_change("active", lambda _, __, at: page.look(span=VALUES[at]) if at is not None else None)
        self._hold.on_change("active", lambda _, __, held: self._held(held=held))
        spans = [*(f"{span:.0f}" for _, span in SPANS), "run"]
        self._queues.js_on_change("value", CustomJS(args={"name": "queue", "values": None}, code=ADDRESS))
        self._spans.js_on_change("active", CustomJS(args={"name": "span", "values": spans}, code=ADDRESS))

    @property
    def held(self) -> bool:
        """Whether the page stands still."""
        return bool(self._hold.active)

    def roots(self) -> list[Any]:
        """Return the models to place; on a wall display there are no controls."""
        return [self._where] if self._wall else [self._where, self._queues, self._spans, self._hold]

    def miss(self, seq: int) -> None:
        """Show how much has changed since the page was held."""
        show(self._hold, label=f"Held, {many(seq - self._from, 'change')} missed")

    def draw(self, scene: Scene) -> None:
        """Update the name and the list of queues."""
        lab = scene.snapshot.lab or "dqlab"
        said = f" <span>queue</span> {strong(scene.queue.name if scene.queue.state else ALL)}" if self._wall else ""
        window = f" <span>last {text(scene.window)}</span>" if self._wall else " <span>queue</span>"
        show(self._where, text=f"{text(lab)}{said}{window}")
        if not self._wall:
            names = [queue.name for queue in scene.snapshot.queues]
            gone = [self._queues.value] if self._queues.value and self._queues.value not in names else []
            show(self._queues, options=[("", ALL), *((name, name) for name in [*names, *gone])])

    def _held(self, *, held: bool) -> None:
        if held:
            self._from = self._page.seq
            self.miss(self._from)
        else:
            self._hold.label = "Hold"
            self._page.look()
