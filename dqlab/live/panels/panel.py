"""Define the common parts of panels, and the table in which one column is a chart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from bokeh.models import Column, InlineStyleSheet, Range1d
from bokeh.models import Row as BokehRow
from bokeh.plotting import figure

from dqlab.live.panels.axis import TimeAxis, bare
from dqlab.live.panels.changes import html, show
from dqlab.live.panels.look import Tokens
from dqlab.live.panels.markup import cells
from dqlab.live.panels.scene import Scene
from dqlab.live.tables import Table

__all__ = ["HEAD", "Panel", "RowChart", "Stage", "place"]

HEAD = 24
"""Pixels of the head above the rows of a table."""


class Stage:
    """What the panels of a page share."""

    def __init__(self, theme: Tokens, sheet: InlineStyleSheet, *, wall: bool = False, alone: bool = False) -> None:
        self.theme = theme
        self.sheet = sheet
        self.axis = TimeAxis(theme)
        self.wall = wall  # a display without a user, seen from afar
        self.alone = alone
        self.again: Callable[[], object] = lambda: None
        """Draws the page at once; the page sets it."""

    @property
    def rows(self) -> int:
        """Rows that a table has room for."""
        return 32 if self.alone else 8


class Panel(Protocol):
    """A chart with its title, which draws a Scene: it adds up what it shows, and asks nothing."""

    name: str
    """Its name on the page and in its address."""
    title: str
    parts: list[Any]
    """Bokeh models, from top to bottom."""

    def __init__(self, stage: Stage) -> None: ...

    def answer(self, scene: Scene) -> str:
        """Return the panel's answer in plain words, for its title line."""
        ...

    def draw(self, scene: Scene) -> None:
        """Update the models."""
        ...

    def table(self, scene: Scene) -> Table:
        """Return the figures of the chart."""
        ...


def place(name: str) -> Column:
    """Return the place of a panel for its parts, one below the other."""
    return Column(name=name, css_classes=["panel"], sizing_mode="stretch_both", spacing=0, syncable=False)


class RowChart:
    """A table whose middle column is one chart over all rows."""

    def __init__(self, stage: Stage, kind: str, *, time: bool = True) -> None:
        # `kind` is the class of its parts in `panel.css`, with their widths. Without `time` the chart has a `range` of
        # its own, moved by the panel.
        self.kind = kind
        self._row = stage.theme.row
        self.left = html(stage.sheet, "left", kind)
        self.right = html(stage.sheet, "right", kind)
        self.over = html(stage.sheet, "over", kind)
        # Downwards: row 0 covers y from 0 to 1, row 1 from 1 to 2.
        self._y = Range1d(1, 0, syncable=False)
        if time:
            self.range = stage.axis.range
            self.figure: figure = stage.axis.chart(HEAD, self._y, min_border_top=HEAD, y_axis_type=None)
        else:
            self.range = Range1d(0, 1, syncable=False)
            self.figure = bare(
                stage.theme,
                x_range=self.range,
                y_range=self._y,
                height=HEAD,
                min_border_top=HEAD,
                x_axis_type=None,
                y_axis_type=None,
            )
        self.root = BokehRow(
            self.left,
            self.figure,
            self.right,
            self.over,
            sizing_mode="stretch_width",
            spacing=0,
            css_classes=["rows"],
            stylesheets=[stage.sheet],
            syncable=False,
        )

    def draw(self, left: Table, right: Table, *, over: str = "") -> None:
        """Fill both sides, with `over` as HTML above the chart."""
        # Both sides have rows of the same heights: the chart beside them relies on that.
        rows = max(1, len(right.rows) + bool(right.total))
        height = HEAD + rows * self._row
        if self.figure.height != height:
            show(self._y, start=rows, end=0)
            show(self.figure, height=height)
        show(self.left, text=cells(self.kind, left))
        show(self.over, text=over)
        show(self.right, text=cells(self.kind, right))
