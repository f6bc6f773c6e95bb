"""Draw unacked messages: how long they have been held, by which consumer, and until when."""

from __future__ import annotations

import math

import numpy as np
from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NoOverlap, NumeralTickFormatter, Range1d

from dqlab.live.details import held_rows
from dqlab.live.palette import Ink
from dqlab.live.panels.axis import Caption, bare, nice, spread, strip, tip
from dqlab.live.panels.changes import fill, html, show
from dqlab.live.panels.look import SANS
from dqlab.live.panels.markup import cells, columns
from dqlab.live.panels.panel import Stage
from dqlab.live.panels.scene import Scene
from dqlab.live.tables import Cell, Column, Table
from dqlab.numbers import between, count, duration, many
from dqlab.stats import AGE_EDGES, Snapshot, Unacked

__all__ = ["UnackedPanel"]

BINS = len(AGE_EDGES) + 1
LISTED = 3
NONE_HELD = '<div class="strip"><i class="empty">No message is held by a consumer</i></div>'
RENEWAL = "by renewal only"


class UnackedPanel:
    """A histogram of ages, the age past which only renewal keeps a message, and those held longest."""

    name, title = "unacked", "Unacked messages"

    def __init__(self, stage: Stage) -> None:
        theme = stage.theme
        self._bars = ColumnDataSource({name: [] for name in ("left", "right", "held", "middle", "word", "range")})
        self._line = ColumnDataSource({"x": []})
        self._notes = ColumnDataSource({name: [] for name in ("x", "y", "text", "align", "shift", "lift")})
        self._range = Range1d(0, 1, syncable=False)
        self._ticks = FixedTicker(ticks=[0, 0.5, 1], syncable=False)
        fig = bare(
            theme, x_range=Range1d(0, BINS), y_range=self._range, height=176, min_border_left=30, min_border_top=4
        )
        fig.update(sizing_mode="stretch_both", min_height=80, min_border_right=8)
        fig.yaxis[0].update(ticker=self._ticks, formatter=NumeralTickFormatter(format="0,0"))
        fig.ygrid[0].update(ticker=self._ticks, grid_line_color=theme.grid)
        fig.xaxis[0].update(
            ticker=FixedTicker(ticks=list(range(1, BINS))),
            major_label_overrides={at: _edge(edge) for at, edge in enumerate(AGE_EDGES, 1)},
            major_label_standoff=4,
            major_label_policy=NoOverlap(min_distance=4, syncable=False),
        )
        bars = fig.quad(
            left="left", right="right", bottom=0, top="held", color=theme.leased, line_color=None, source=self._bars
        )
        words = {"text_font": value(SANS), "text_font_size": theme.small, "text_color": theme.ink}
        fig.text(
            x="middle", y="held", text="word", text_align="center", text_baseline="bottom", y_offset=-2,
            source=self._bars, **words,
        )  # fmt: skip
        fig.vspan(x="x", source=self._line, line_color=theme.ink2, line_dash=value([3, 2]), line_width=1)
        fig.text(
            x="x",
            y="y",
            text="text",
            text_align="align",
            x_offset="shift",
            y_offset="lift",
            source=self._notes,
            **words,
        )
        fig.add_tools(
            HoverTool(tooltips=tip(("held for", "@range"), ("messages", "@held{0,0}")), renderers=[bars], mode="vline")
        )
        self._above = html(stage.sheet, "above", "ages")
        self._facts = html(stage.sheet, "facts")
        self._held = html(stage.sheet, "held")
        self.parts = [self._above, fig, self._facts, self._held]

    def answer(self, scene: Scene) -> str:
        """Return how many messages only renewal keeps."""
        unacked = scene.snapshot.unacked
        held = unacked.total or scene.queue.counts.leased
        if not held:
            return "none"
        if unacked.timeout is None or not unacked.total:
            return f"{many(held, 'message')} held"
        past = count(unacked.past) if unacked.past else "none"
        return f"{past} of {many(unacked.total, 'message')} past {_seconds(unacked.timeout)}"

    def draw(self, scene: Scene) -> None:
        """Update histogram, facts and table."""
        unacked = scene.snapshot.unacked
        held = np.asarray(unacked.age_bins, dtype=np.int32)
        some = np.flatnonzero(held)
        top = nice(max(4.0, 1.12 * float(held.max())), whole=True) if len(held) else 4.0
        fill(
            self._bars,
            left=some + 0.02,
            right=some + 0.98,
            middle=some + 0.5,
            held=held[some],
            word=[count(unacked.age_bins[at]) for at in some],
            range=[_bin(int(at)) for at in some],
        )
        show(self._range, **spread(top))
        show(self._ticks, ticks=[0, top / 2, top])
        self._draw_notes(scene, top)
        show(self._facts, text=_facts(unacked))
        show(self._held, text=_table(scene.snapshot))

    def table(self, scene: Scene) -> Table:
        """Return how many messages are held for how long."""
        bins = scene.snapshot.unacked.age_bins
        rows = ((Cell(_bin(at)), Cell(count(amount))) for at, amount in enumerate(bins) if amount)
        return Table(columns("held for", "messages"), tuple(rows))

    def _draw_notes(self, scene: Scene, top: float) -> None:
        unacked = scene.snapshot.unacked
        notes: list[tuple[float, float, str, str, int, int]] = []
        oldest = unacked.oldest_delivery
        if oldest is not None:
            at = min(math.floor(_place(oldest)), BINS - 1) if oldest else 0
            height = unacked.age_bins[at] if at < len(unacked.age_bins) else 0
            if height <= top / 2 and at >= 3:
                notes.append(
                    (min(at + 0.5, BINS - 1.4), height, f"oldest delivery {duration(oldest)}", "center", 0, -16)
                )
        names = ("x", "y", "text", "align", "shift", "lift")
        fill(self._notes, **{name: [note[at] for note in notes] for at, name in enumerate(names)})
        fill(self._line, x=[_place(unacked.timeout)] if unacked.timeout else [])
        renewal = [Caption(_place(unacked.timeout), _seconds(unacked.timeout), RENEWAL)] if unacked.timeout else []
        show(self._above, text=strip(renewal, 0, BINS) if scene.queue.counts.leased or unacked.total else NONE_HELD)


def _place(age: float) -> float:
    """Return the position of an age, with an edge at its number, and ages between by their logarithm."""
    edges = np.log([AGE_EDGES[0] / 2, *AGE_EDGES, AGE_EDGES[-1] * 2])
    return float(np.interp(math.log(max(age, 1e-3)), edges, np.arange(len(edges))))


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 60 or (seconds % 60 and seconds <= 120) else duration(seconds)


def _edge(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g}" + (" s" if seconds == AGE_EDGES[0] else "")
    return f"{seconds / 60:g}" + (" min" if seconds == 60 else "")


def _bin(at: int) -> str:
    if at == 0:
        return f"under {_seconds(AGE_EDGES[0])}"
    return (
        f"over {duration(AGE_EDGES[-1])}"
        if at == BINS - 1
        else between(_seconds(AGE_EDGES[at - 1]), _seconds(AGE_EDGES[at]))
    )


def _facts(unacked: Unacked) -> str:
    facts = (
        ("in 10 min redelivered", unacked.redelivered_10m, ""),
        ("leases lost", unacked.leases_lost_10m, ""),
        ("ending within 20 s", unacked.ending_20s, "warn" if unacked.ending_20s else ""),
    )
    return "".join(f'<span>{name} <b class="{kind}">{count(amount)}</b></span>' for name, amount, kind in facts)


def _table(snapshot: Snapshot) -> str:
    rows = tuple(
        (
            Cell(held.document, Ink.PLAIN if lease.document else Ink.QUIET),
            Cell(held.consumer),
            Cell(held.held, Ink.WARN if held.late else Ink.PLAIN),
            Cell(held.ends_in),
            Cell(held.renewals),
            Cell(held.delivery),
        )
        for held, lease in zip(held_rows(snapshot)[:LISTED], snapshot.unacked.oldest, strict=False)
    )
    heads = (Column("longest held", mono=True), *columns("by", "held", "lease ends in", "renewals", "delivery"))
    return cells("oldest", Table(heads, rows)) if rows else ""
