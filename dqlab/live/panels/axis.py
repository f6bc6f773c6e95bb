"""Make the time axis that all charts of a page share, with its crosshair, and charts on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.models import (
    ColumnDataSource,
    CrosshairTool,
    DatetimeTickFormatter,
    GlyphRenderer,
    HoverTool,
    NoOverlap,
    Range1d,
    Span,
)
from bokeh.plotting import figure
from numpy.typing import NDArray

from dqlab.live.panels.changes import show
from dqlab.live.panels.look import SANS, Tokens
from dqlab.live.panels.markup import text
from dqlab.live.panels.scene import Scene

__all__ = ["LEFT", "Caption", "TimeAxis", "bare", "nice", "spread", "strip", "times", "tip"]

STEPS = (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10, 12, 16, 20)
LEFT = 44
"""Pixels left of a chart, for the figures of its axis."""
HALF_NOW = 14
"""Pixels that half of the word "now" takes."""


def times(scene: Scene, at: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return instants as values of the axis, in milliseconds that read as the local time of day."""
    # Bokeh writes times as UTC: moved by the zone, they read as the time of day here.
    return (np.asarray(at, dtype=np.float64) + scene.zone) * 1000.0


def nice(value: float, *, whole: bool = False) -> float:
    """Return a round end of an axis that must show `value`, with a round half too where `whole` asks for it."""
    if not value > 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    ends = (step * scale for step in STEPS if step * scale >= value * 0.9999)
    return next(end for end in ends if not whole or round(end, 6) % 2 == 0 or end >= 50)


def spread(top: float) -> dict[str, float]:
    """Return the ends of an upright axis from 0 to `top`, a little outside, so that its lines are seen whole."""
    return {"start": -0.006 * top, "end": 1.006 * top}


@dataclass(frozen=True, slots=True)
class Caption:
    """A word above a chart, at an instant."""

    at: float
    lead: str
    """Kept where there is no room for `rest`."""
    rest: str = ""
    kind: str = ""


def strip(places: Iterable[Caption], start: float, end: float) -> str:
    """Return HTML of words above a chart."""
    inside = sorted((place for place in places if start <= place.at <= end), key=lambda place: place.at)
    pieces = []
    for place, after in zip_longest(inside, inside[1:]):
        left = (place.at - start) / (end - start) * 100
        # A caption gets the room up to the next one: CSS leaves out what does not fit.
        right = 100 - (after.at - start) / (end - start) * 100 if after is not None else 0
        side = f"left:{left:.2f}%;right:{right:.2f}%" if place.kind not in ("tick", "now") else f"left:{left:.2f}%"
        # It is centred, and half of it would be cut at an edge: "nov".
        if place.kind == "now":
            side = f"left:clamp({HALF_NOW}px,{left:.2f}%,calc(100% - {HALF_NOW}px))"
        rest = f"<span>{text(place.rest)}</span>" if place.rest else ""
        title = f' title="{text(f"{place.lead} {place.rest}")}"' if place.rest else ""
        pieces.append(f'<i class="{place.kind}" style="{side}"{title}><s></s><b>{text(place.lead)}</b>{rest}</i>')
    return f'<div class="strip">{"".join(pieces)}</div>'


def tip(*lines: tuple[str, str]) -> str:
    """Return the tooltip under the pointer, with labels and the columns of their values."""
    # Bokeh escapes the values of columns, so nothing is escaped here.
    rows = "".join(
        f'<span style="opacity:.7">{word}</span><b style="text-align:right">{column}</b>' for word, column in lines
    )
    return f'<div style="display:grid;grid-template-columns:auto auto;gap:0 10px;padding:1px 4px">{rows}</div>'


def bare(theme: Tokens, *, x_range: Any, y_range: Any, height: int, **more: Any) -> figure:
    """Return an empty chart without tools, on the ground of its card."""
    fig = figure(
        x_range=x_range,
        y_range=y_range,
        height=height,
        sizing_mode="stretch_width",
        tools="",
        toolbar_location=None,
        outline_line_color=None,
        background_fill_alpha=0,
        border_fill_alpha=0,
        min_border=0,
        # `syncable=False` on every model that the browser changes: otherwise each zoom or layout sends messages to the
        # scheduler.
        syncable=False,
        **more,
    )
    for axis in fig.axis:
        axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = None
        axis.major_label_text_color = theme.ink2
        axis.major_label_text_font_size = theme.small
        axis.major_label_text_font = SANS
        axis.major_label_standoff = 8
    for grid in fig.grid:
        grid.grid_line_color = None
    return fig


class TimeAxis:
    """One span of time and one crosshair."""

    def __init__(self, theme: Tokens) -> None:
        self.theme = theme
        self.range = Range1d(0, 1, syncable=False)
        self.crosshair = Span(
            dimension="height",
            level="overlay",
            line_color=theme.ink2,
            line_width=1,
            line_alpha=0.7,
            syncable=False,
        )

    def move(self, scene: Scene) -> None:
        """Move the end of the axis to now."""
        start, end = times(scene, [scene.start, scene.end])
        show(self.range, start=float(start), end=float(end))

    def chart(self, height: int, y_range: Range1d, *, labels: bool = False, **more: Any) -> figure:
        """Return an empty chart on this axis, with times below it where `labels` asks for them."""
        kind = "datetime" if labels else None
        fig = bare(self.theme, x_range=self.range, y_range=y_range, height=height, x_axis_type=kind, **more)
        fig.add_tools(CrosshairTool(overlay=self.crosshair, syncable=False))
        if labels:
            axis = fig.xaxis[0]
            axis.formatter = _clock()
            axis.ticker.num_minor_ticks = 0
            axis.ticker.desired_num_ticks = 5
            axis.major_label_standoff = 4
            axis.major_label_policy = NoOverlap(min_distance=8, syncable=False)
        return fig

    def marks(self, source: ColumnDataSource, *figures: figure) -> None:
        """Draw dashed lines at the instants of column ``x``."""
        for fig in figures:
            fig.ray(
                x="x", y=0, length=0, angle=math.pi / 2, source=source, line_color=self.theme.ink2,
                line_dash=value([2, 2]), line_width=1,
            )  # fmt: skip

    @staticmethod
    def hover(fig: figure, lines: list[tuple[str, str]], renderer: GlyphRenderer, *, mode: str = "vline") -> None:
        """Show exact values and their time under the pointer."""
        fig.add_tools(
            HoverTool(
                tooltips=tip(("at", "@x{%H:%M:%S}"), *lines),
                formatters={"@x": "datetime"},
                renderers=[renderer],
                mode=mode,
                attachment="horizontal",
                line_policy="nearest",
                syncable=False,
            )
        )


def _clock() -> DatetimeTickFormatter:
    spellings = dict.fromkeys(("days", "months", "years"), "%d %b")
    minutes = dict.fromkeys(("minutes", "hourmin", "hours"), "%H:%M")
    seconds = dict.fromkeys(("microseconds", "milliseconds", "seconds", "minsec"), "%H:%M:%S")
    return DatetimeTickFormatter(**spellings, **minutes, **seconds, syncable=False)
