"""Draw unacked messages: how long they have been held, by which consumer, and until when."""

from __future__ import annotations

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NoOverlap, NumeralTickFormatter

from dqlab.live.details import leases
from dqlab.live.palette import Ink
from dqlab.live.panels.parts import Rows, Stage, fill, nice, show, text
from dqlab.live.panels.scene import Scene
from dqlab.live.tables import Cell, Table
from dqlab.numbers import count
from dqlab.stats import AGE_EDGES

BINS = len(AGE_EDGES) + 1


class UnackedPanel:
    """A histogram of ages, the age past which only renewal keeps a message, and those held longest."""

    name, title = "unacked", "Unacked messages"

    def __init__(self, stage: Stage) -> None:
        self.source = ColumnDataSource({name: [] for name in ("x", "held", "word", "age")})
        self.timeout = ColumnDataSource({"x": []})
        self._figure = fig = stage.chart(150, x_range=(0, BINS))
        fig.xaxis.ticker = FixedTicker(ticks=[at + 0.5 for at in range(BINS)])
        fig.xaxis.major_label_policy = NoOverlap(min_distance=6)
        fig.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
        colour = stage.theme["leased"]
        bars = fig.vbar(x="x", top="held", width=0.96, color=colour, line_color=None, source=self.source)
        above = {"text_align": "center", "text_baseline": "bottom", "y_offset": -2, "text_color": stage.theme["ink"]}
        fig.text(x="x", y="held", text="word", source=self.source, **above)
        fig.vspan(x="x", source=self.timeout, line_color=stage.theme["ink2"], line_dash=value([3, 2]), line_width=1)
        fig.add_tools(HoverTool(tooltips=[("held for", "@age"), ("messages", "@held{0,0}")], renderers=[bars]))
        heads = "longest_held by held lease_ends_in renewals delivery"
        self.rows = Rows(stage, "held", heads, (166, 46, 90, 94, 70, 60), right="held lease_ends_in renewals delivery")
        self.parts = [fig, self.rows.root]

    def answer(self, scene: Scene) -> str:
        """Return how many are held, and the oldest."""
        held = scene.snapshot.unacked.total or scene.queue.counts.leased
        return leases(scene.snapshot).title if scene.snapshot.unacked.total else count(held) if held else "none"

    def facts(self, scene: Scene) -> str:
        """Return how leases ended lately, and how many messages only renewal keeps."""
        if not (scene.queue.counts.leased or scene.snapshot.unacked.total):
            return "<span>No message is held by a consumer</span>"
        return "".join(f"<span>{text(each)}</span>" for each in leases(scene.snapshot).summary.split(" · "))

    def draw(self, scene: Scene) -> None:
        """Update histogram and table."""
        seen = leases(scene.snapshot)
        held = [(at + 0.5, amount, count(amount), age) for at, (age, amount, _) in enumerate(seen.bins) if amount]
        columns = [list(column) for column in zip(*held, strict=True)] or [[], [], [], []]
        fill(self.source, **dict(zip(("x", "held", "word", "age"), columns, strict=True)))
        show(self._figure.y_range, end=nice(max([4.0, *(1.2 * amount for _, amount, *_ in held)])))
        ages = {at + 0.5: age for at, (age, *_) in enumerate(seen.bins)}
        show(self._figure.xaxis[0], major_label_overrides=ages, visible=bool(ages))
        fill(self.timeout, x=[at for at, (*_, late) in enumerate(seen.bins) if late][:1])
        rows = tuple(
            (
                # Quiet text stands in for an unknown name, and is not a name.
                Cell(row.document, Ink.PLAIN if lease.document else Ink.QUIET),
                Cell(row.consumer),
                Cell(row.held, Ink.WARN if row.late else Ink.PLAIN),
                *(Cell(words) for words in (row.ends_in, row.renewals, row.delivery)),
            )
            for row, lease in zip(seen.rows, scene.snapshot.unacked.oldest, strict=True)
        )
        self.rows.draw(Table((), rows))
