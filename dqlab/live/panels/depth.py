"""Draw queue depth by state: one stack of messages, and below it each small state on a scale of its own."""

from __future__ import annotations

from bokeh.models import ColumnDataSource, FixedTicker, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from dqlab.live.palette import StateLook
from dqlab.live.panels.axis import LEFT, Caption, nice, spread, strip, times
from dqlab.live.panels.changes import Series, fill, html, show, together
from dqlab.live.panels.markup import columns, glyph, strong, text
from dqlab.live.panels.panel import Stage
from dqlab.live.panels.scene import Scene
from dqlab.live.tables import Cell, Table
from dqlab.numbers import clock, count, due, duration, rate
from dqlab.stats import Mark, QueueState

__all__ = ["DepthPanel"]

LANE, LABELS, STRIP = 27, 22, 18
"""Heights in pixels: a small state, the times of day, the marks."""
LATELY = 20.0
"""Seconds over which the trend of the depth is judged."""
FULL = 0.7
"""Height of the highest value of a small state, as a share of its lane."""
SMALL = (StateLook.DELAYED, StateLook.LEASED, StateLook.DEAD)
# Dead messages do not wait: they are not a part of the depth.
STACKED = (StateLook.LEASED, StateLook.DELAYED, StateLook.READY)


class DepthPanel:
    """Ready, delayed and unacked messages over time as a stack, with dead ones beside it."""

    name, title = "depth", "Queue depth by state"

    def __init__(self, stage: Stage) -> None:
        self._source = ColumnDataSource({name: [] for name in ("x", "ready", "delayed", "leased", "dead")})
        self._marks = ColumnDataSource({"x": []})
        self._range = Range1d(0, 1, syncable=False)
        self._ticks = FixedTicker(ticks=[0, 0.5, 1], syncable=False)
        self._lanes = {state: Range1d(0, 1, syncable=False) for state in SMALL}
        self._tops = dict.fromkeys(SMALL, 1.0)
        self._above = html(stage.sheet, "above", "gutter")
        self._values = html(stage.sheet, "values")
        figures = [self._stacked(stage), *(self._lane(stage, state, last=state is SMALL[-1]) for state in SMALL)]
        stage.axis.marks(self._marks, *figures)
        self.parts = [self._above, *figures, self._values]

    def _stacked(self, stage: Stage) -> figure:
        fig = stage.axis.chart(
            180,
            self._range,
            min_border_left=LEFT,
            min_border_right=stage.theme.gutter,
            min_border_top=4,
            min_border_bottom=4,
        )
        fig.update(sizing_mode="stretch_both", min_height=60)
        fig.yaxis[0].update(ticker=self._ticks, formatter=NumeralTickFormatter(format="0.[0]a"))
        fig.ygrid[0].update(ticker=self._ticks, grid_line_color=stage.theme.grid)
        fig.varea_stack(
            [state.field for state in STACKED],
            x="x",
            color=[getattr(stage.theme, state.field) for state in STACKED],
            alpha=0.8,
            source=self._source,
        )
        self._hover(stage, fig, StateLook.READY)
        return fig

    def _lane(self, stage: Stage, state: StateLook, *, last: bool) -> figure:
        colour = getattr(stage.theme, state.field)
        fig = stage.axis.chart(
            LANE + (LABELS if last else 0),
            self._lanes[state],
            labels=last,
            min_border_left=LEFT,
            min_border_right=stage.theme.gutter,
            min_border_bottom=LABELS if last else 0,
            y_axis_type=None,
        )
        fig.varea(x="x", y1=0, y2=state.field, color=colour, alpha=0.25, source=self._source)
        self._hover(stage, fig, state)
        return fig

    def _hover(self, stage: Stage, fig: figure, state: StateLook) -> None:
        line = fig.line(
            "x",
            state.field,
            color=getattr(stage.theme, state.field),
            line_width=1.5,
            alpha=0 if state is StateLook.READY else 1,
            source=self._source,
        )
        order = (StateLook.READY, StateLook.DELAYED, StateLook.LEASED, StateLook.DEAD)
        stage.axis.hover(fig, [(each.word, f"@{each.field}{{0,0}}") for each in order], line)

    def answer(self, scene: Scene) -> str:
        """Return whether the depth falls or grows, and when the queue will be empty."""
        queue = scene.queue
        if queue.state == QueueState.PAUSED:
            return f"paused {queue.why}".strip()
        if queue.counts.left == 0:
            return "nothing waits"
        net, over = scene.history.net_rate(LATELY) or (queue.net_rate, 60.0)
        words = []
        if net is not None:
            spelt = f"by {rate(abs(net))} messages/s, last {duration(over)}"
            words.append("steady" if abs(net) < 0.005 else f"fell {spelt}" if net < 0 else f"grew {spelt}")
        if queue.empty_in is not None:
            words.append(f"empty about {due(scene.snapshot.at + queue.empty_in, now=scene.snapshot.at)}")
        elif queue.why:
            words.append(queue.why)
        return " · ".join(words)

    def draw(self, scene: Scene) -> None:
        """Update stack, lanes, marks and last values."""
        history = scene.history
        order = (*STACKED, StateLook.DEAD)
        first, columns = together(len(history.ready), **{each.field: getattr(history, each.field) for each in order})
        fill(self._source, x=times(scene, history.times[first:]), **columns)
        inside = [mark for mark in history.marks if scene.start <= mark.at <= scene.end]
        fill(self._marks, x=times(scene, [mark.at for mark in inside]))
        counts = scene.queue.counts
        stacked = _highest(columns["ready"] + columns["delayed"] + columns["leased"])
        top = nice(max(stacked, counts.left, 4), whole=True)
        show(self._range, **spread(top))
        show(self._ticks, ticks=[0, top / 2, top])
        for state, lane in self._lanes.items():
            self._tops[state] = nice(max(_highest(columns[state.field]), getattr(counts, state.field), 1))
            show(lane, end=self._tops[state] / FULL)
        show(self._above, text=self._marks_html(scene))
        show(self._values, text=self._values_html(scene, top))

    def table(self, scene: Scene) -> Table:
        """Return the messages in each state, at some instants."""
        states = (StateLook.READY, *SMALL)
        history = scene.history
        return Table(
            columns("at", *(state.word for state in states)),
            tuple(
                (Cell(clock(at)), *(Cell(count(None if value is None else round(value))) for value in values))
                for at, values in scene.points(*(getattr(history, state.field) for state in states))
            ),
        )

    def _marks_html(self, scene: Scene) -> str:
        if not scene.history.ready and not scene.queue.counts.all:
            return '<div class="strip"><i class="empty">No message has come in this window</i></div>'
        return strip(map(_caption, scene.history.marks), scene.start, scene.end)

    def _values_html(self, scene: Scene, top: float) -> str:
        counts = scene.queue.counts
        share = (counts.leased + counts.delayed + counts.ready / 2) / top
        below = LABELS + LANE * len(SMALL)
        height = f"{min(max(1 - share, 0), 1):.3f}"
        pieces = [
            f'<div class="v two" style="top:calc({STRIP + 4}px + (100% - {STRIP + 8 + below}px) * {height})">'
            f"{glyph('ready')}<span>{strong(count(counts.ready))}<br>{text(StateLook.READY.word)}</span></div>"
        ]
        for at, state in enumerate(SMALL):
            bottom = LABELS + LANE * (len(SMALL) - 1 - at)
            pieces.append(
                f'<div class="v" style="bottom:{bottom}px">{glyph(state.field)}<span title="{text(state.word)}">'
                f"{strong(count(getattr(counts, state.field)))} {text(state.word)}</span></div>"
                f'<div class="top" style="bottom:{bottom}px">{count(round(self._tops[state]))}</div>'
            )
        return "".join(pieces)


def _highest(column: Series) -> float:
    return float(column.max(initial=0.0))


def _caption(mark: Mark) -> Caption:
    """Return the words of a mark, first those that stay where there is no room for the rest."""
    if mark.cell is not None:
        return Caption(mark.at, f"[{mark.cell}]", mark.text, "cell")
    lead, _, rest = mark.text.partition(" ")
    return Caption(mark.at, lead.rstrip(","), rest)
