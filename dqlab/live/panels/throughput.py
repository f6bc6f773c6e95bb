"""Draw throughput per consumer: a line each, all on one scale, and a row each, those in trouble first."""

from __future__ import annotations

from bokeh.models import ColumnDataSource, HoverTool

from dqlab.live.palette import Ink
from dqlab.live.panels.parts import Rows, Stage, fill, nice, series, show, text, times
from dqlab.live.panels.scene import Scene
from dqlab.live.run_rows import LAST_MINUTE
from dqlab.live.tables import Cell, Table
from dqlab.numbers import count, many, rate, share
from dqlab.stats import ConsumerStats

PER_DOCUMENT = "documents"
"""The unit of speeds where pages are unknown: one column of speeds is enough then."""


class ThroughputPanel:
    """A line per consumer, and its speeds, idle share and held messages."""

    name, title = "throughput", "Throughput per consumer"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.source = ColumnDataSource({name: [] for name in ("x", "y", "name", "colour")})
        self._figure = stage.over_time(110)
        lines = self._figure.multi_line("x", "y", color="colour", line_width=1.4, source=self.source)
        self._figure.add_tools(HoverTool(tooltips="@name", renderers=[lines]))
        heads = "consumer worker per_second documents/s idle holds"
        self.rows = Rows(
            stage, "consumers", heads, (76, 130, 76, 84, 90, 50), right="per_second documents/s idle holds"
        )
        self.parts = [self._figure, self.rows.root]

    def answer(self, scene: Scene) -> str:
        """Return which consumers are slow, compared with the median."""
        snapshot = scene.snapshot
        if not snapshot.consumers:
            return "no consumer"
        unit, median = f"{snapshot.units}/s", f"median {rate(snapshot.median_units_rate)}"
        slow = next((consumer for consumer in snapshot.consumers if consumer.slow), None)
        if slow is None:
            words = [f"{median} {unit}"] if snapshot.median_units_rate is not None else []
            troubles = snapshot.consumer_troubles or ("none slow" if words else "")
            return ", ".join([*words, troubles] if troubles else words)
        more = f", {snapshot.slow_consumers - 1} more slow" if snapshot.slow_consumers > 1 else ""
        return f"{slow.name} does {rate(slow.units_rate)} {unit}, {median}{more}"

    def facts(self, scene: Scene) -> str:
        """Return what the chart and the table show, and over which time."""
        if not scene.snapshot.consumers and not scene.history.consumers:
            return "<span>No consumer works here</span>"
        unit = text(scene.snapshot.units)
        return f"<span>Lines: {unit}/s, {scene.window}</span><span>Table: {unit}/s, {LAST_MINUTE}</span>"

    def draw(self, scene: Scene) -> None:
        """Update lines and rows."""
        history, snapshot = scene.history, scene.snapshot
        troubled = {consumer.name for consumer in snapshot.consumers if consumer.trouble}
        # Of several queues a line is named "queue/consumer".
        slow = [name.rpartition("/")[2] in troubled for name in history.consumers]
        instants = times(scene, history.times)
        lines = [series(line) for line in history.consumers.values()]
        fill(
            self.source,
            x=[instants[: len(line)] for line in lines],
            y=lines,
            name=list(history.consumers),
            colour=[self._stage.theme["leased"] if each else self._stage.theme["ready"] for each in slow],
        )
        known = (each for line in history.consumers.values() for each in line if each is not None)
        top = nice(max(known, default=0.0))
        show(self._figure.y_range, start=-0.03 * top, end=1.06 * top)
        listed = sorted(snapshot.consumers, key=lambda each: _place(each, scene))[: self._stage.rows]
        beyond = scene.queue.consumers - len(listed)
        more = f"and {many(beyond, 'consumer').replace(' ', ' more ')}" if beyond > 0 else ""
        total = (
            Cell(f"all {scene.queue.consumers}", Ink.STRONG),
            Cell(more, Ink.QUIET),
            Cell(rate(scene.queue.units_rate), Ink.STRONG),
            Cell(""),
            _idle(snapshot.idle_share),
            Cell(""),
        )
        paged = snapshot.units != PER_DOCUMENT
        rows = tuple(_row(each, paged=paged, several=not scene.queue.state) for each in listed)
        self.rows.draw(Table((), rows, total if rows else ()))


def _place(consumer: ConsumerStats, scene: Scene) -> tuple[bool, bool, str, int, str]:
    """Return the place of a row: those in trouble first, those without work last, and no row moves for its speed."""
    queue = scene.snapshot.queue(consumer.queue)
    rests = not consumer.leased and queue is not None and not queue.counts.left
    return not consumer.trouble, rests, consumer.queue, len(consumer.name), consumer.name


def _row(consumer: ConsumerStats, *, paged: bool, several: bool) -> tuple[Cell, ...]:
    return (
        Cell(consumer.name, Ink.WARN if consumer.trouble else Ink.STRONG),
        # The end is cut, so what differs between neighbours stands first.
        Cell(f"{consumer.queue} · {consumer.worker}" if several else consumer.worker, Ink.QUIET),
        Cell(rate(consumer.units_rate), Ink.WARN if consumer.trouble else Ink.PLAIN),
        Cell(rate(consumer.rate) if paged else ""),
        _idle(consumer.idle_share),
        Cell(count(consumer.leased)),
    )


def _idle(part: float | None) -> Cell:
    return Cell(share(part, places=0), filled=part or 0.0)
