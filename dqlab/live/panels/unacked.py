"""Draw unacked messages: how long they have been held, by which consumer, and until when."""

from __future__ import annotations

import math

import numpy as np
from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter

from dqlab.live.details import held_rows
from dqlab.live.palette import Ink
from dqlab.live.panels.parts import Rows, Stage, fill, nice, show, strong, text
from dqlab.live.panels.scene import Scene
from dqlab.live.tables import Cell, Table
from dqlab.numbers import between, count, duration, many
from dqlab.stats import AGE_EDGES

__all__ = ["UnackedPanel"]

BINS = len(AGE_EDGES) + 1


class UnackedPanel:
    """A histogram of ages, the age past which only renewal keeps a message, and those held longest."""

    name, title = "unacked", "Unacked messages"

    def __init__(self, stage: Stage) -> None:
        self.source = ColumnDataSource({name: [] for name in ("left", "right", "held", "middle", "word", "range")})
        self.timeout = ColumnDataSource({"x": []})
        self._figure = fig = stage.chart(150, x_range=(0, BINS))
        fig.xaxis.ticker = FixedTicker(ticks=list(range(1, BINS)))
        fig.xaxis.major_label_overrides = {at: _edge(edge) for at, edge in enumerate(AGE_EDGES, 1)}
        fig.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
        bars = fig.quad(
            left="left", right="right", bottom=0, top="held", color=stage.theme["leased"], line_color=None,
            source=self.source,
        )  # fmt: skip
        above = {"text_align": "center", "text_baseline": "bottom", "y_offset": -2, "text_color": stage.theme["ink"]}
        fig.text(x="middle", y="held", text="word", source=self.source, **above)
        fig.vspan(x="x", source=self.timeout, line_color=stage.theme["ink2"], line_dash=value([3, 2]), line_width=1)
        fig.add_tools(HoverTool(tooltips=[("held for", "@range"), ("messages", "@held{0,0}")], renderers=[bars]))
        heads = "longest_held by held lease_ends_in renewals delivery"
        self.rows = Rows(stage, "held", heads, (166, 46, 90, 94, 70, 60), right="held lease_ends_in renewals delivery")
        self.parts = [fig, self.rows.root]

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

    def facts(self, scene: Scene) -> str:
        """Return how leases ended lately, and the age past which only renewal keeps a message."""
        unacked = scene.snapshot.unacked
        if not (scene.queue.counts.leased or unacked.total):
            return "<span>No message is held by a consumer</span>"
        facts = {
            "redelivered in 10 min": count(unacked.redelivered_10m),
            "leases lost": count(unacked.leases_lost_10m),
            "ending within 20 s": count(unacked.ending_20s),
            "by renewal only past": _seconds(unacked.timeout) if unacked.timeout else "",
        }
        return "".join(f"<span>{text(name)} {strong(words)}</span>" for name, words in facts.items() if words)

    def draw(self, scene: Scene) -> None:
        """Update histogram and table."""
        unacked = scene.snapshot.unacked
        held = np.asarray(unacked.age_bins, dtype=np.int32)
        some = np.flatnonzero(held)
        fill(
            self.source,
            left=some + 0.02,
            right=some + 0.98,
            middle=some + 0.5,
            held=held[some],
            word=[count(unacked.age_bins[at]) for at in some],
            range=[_bin(int(at)) for at in some],
        )
        show(self._figure.y_range, end=nice(max(4.0, 1.2 * float(held.max(initial=0)))))
        fill(self.timeout, x=[_place(unacked.timeout)] if unacked.timeout else [])
        rows = tuple(
            (
                # Quiet text stands in for an unknown name, and is not a name.
                Cell(held.document, Ink.PLAIN if lease.document else Ink.QUIET),
                Cell(held.consumer),
                Cell(held.held, Ink.WARN if held.late else Ink.PLAIN),
                *(Cell(words) for words in (held.ends_in, held.renewals, held.delivery)),
            )
            for held, lease in zip(held_rows(scene.snapshot), unacked.oldest, strict=True)
        )
        self.rows.draw(Table((), rows))


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
    if at == BINS - 1:
        return f"over {duration(AGE_EDGES[-1])}"
    return between(_seconds(AGE_EDGES[at - 1]), _seconds(AGE_EDGES[at]))
