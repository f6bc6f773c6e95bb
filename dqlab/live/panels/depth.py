"""Draw queue depth by state: one stack of messages, and below it the small states on a scale of their own."""

from __future__ import annotations

from bokeh.models import ColumnDataSource, NumeralTickFormatter

from dqlab.live.palette import StateLook
from dqlab.live.panels.parts import Series, Stage, amount, fill, nice, series, show, times
from dqlab.live.panels.scene import Scene
from dqlab.numbers import count, due, duration, rate
from dqlab.stats import Mark, QueueState

LATELY = 20.0
"""Seconds over which the trend of the depth is judged."""
SMALL = (StateLook.DELAYED, StateLook.LEASED, StateLook.DEAD)
"""64 of 48,210 messages cannot be seen in the stack. Dead ones do not wait, and are no part of it."""
STACKED = (StateLook.LEASED, StateLook.DELAYED, StateLook.READY)
ALL = (StateLook.READY, *SMALL)


class DepthPanel:
    """Ready, delayed and unacked messages over time as a stack, with delayed, unacked and dead ones as lines below."""

    name, title = "depth", "Queue depth by state"

    def __init__(self, stage: Stage) -> None:
        self.source = ColumnDataSource({name: [] for name in ("x", *(state.field for state in ALL))})
        self.marks = ColumnDataSource({"x": [], "word": []})
        self._stack, self._lines = stage.over_time(170), stage.over_time(96, first=False)
        self._stack.xaxis.visible = False
        tips = [(state.word, f"@{state.field}{{0,0}}") for state in ALL]
        self._stack.varea_stack(
            [state.field for state in STACKED],
            x="x",
            color=[stage.theme[state.field] for state in STACKED],
            alpha=0.8,
            source=self.source,
        )
        stage.hover(self._stack, self._stack.line("x", "ready", alpha=0, source=self.source), *tips)
        for state in SMALL:
            colour = stage.theme[state.field]
            line = self._lines.line("x", state.field, color=colour, line_width=1.5, source=self.source)
        stage.hover(self._lines, line, *tips)
        for fig in (self._stack, self._lines):
            fig.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
            stage.marks(self.marks, fig)
        self.parts = [self._stack, self._lines]

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

    def facts(self, scene: Scene) -> str:
        """Return how many messages are in each state now."""
        if not scene.history.ready and not scene.queue.counts.all:
            return "<span>No message has come in this window</span>"
        return "".join(amount(state, count(getattr(scene.queue.counts, state.field))) for state in ALL)

    def draw(self, scene: Scene) -> None:
        """Update stack, lines and marks."""
        history, counts = scene.history, scene.queue.counts
        columns = {state.field: series(scene.full(getattr(history, state.field))) for state in ALL}
        fill(self.source, x=times(scene, history.times), **columns)
        stacked = columns["leased"] + columns["delayed"] + columns["ready"]
        show(self._stack.y_range, end=nice(max(_highest(stacked), counts.left, 4)))
        small = (max(_highest(columns[state.field]), getattr(counts, state.field)) for state in SMALL)
        top = nice(max(*small, 4))
        # Without a share of its height below zero, a line at zero is cut in half.
        show(self._lines.y_range, start=-0.03 * top, end=1.06 * top)
        fill(self.marks, x=times(scene, [mark.at for mark in history.marks]), word=[*map(_words, history.marks)])


def _highest(column: Series) -> float:
    return float(column.max(initial=0.0))


def _words(mark: Mark) -> str:
    return mark.text if mark.cell is None else f"[{mark.cell}] {mark.text}"
