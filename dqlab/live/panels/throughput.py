"""Draw throughput per consumer: a line each, all on one scale, the slowest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource
from numpy.typing import NDArray

from dqlab.live.palette import Ink
from dqlab.live.panels.axis import nice, times
from dqlab.live.panels.changes import Series, fill, series
from dqlab.live.panels.markup import columns, whole
from dqlab.live.panels.panel import RowChart, Stage
from dqlab.live.panels.scene import Scene
from dqlab.live.run_rows import LAST_MINUTE
from dqlab.live.tables import Cell, Column, Table
from dqlab.numbers import UNKNOWN, between, count, noun_of, rate, share
from dqlab.stats import ConsumerStats, History

__all__ = ["ThroughputPanel"]

POINTS = 100
"""Most points of one line, which is some 300 pixels wide."""
FULL = 0.78
"""Height of the highest line, as a share of its row."""
FOOT = 0.94
"""Height of a line of zeros in its row."""
Line = tuple[Cell, ...]
BLANK: Line = (Cell(""),) * 4
GAP = np.full(1, np.nan, dtype=np.float32)
NOTHING = np.zeros(0, dtype=np.float32)
RE_SORTED = 5.0
"""Seconds that rows keep their order."""
PER_DOCUMENT = "documents"
"""The unit of speeds where pages are unknown: one column of speeds is enough then."""


class ThroughputPanel:
    """A row per consumer with its line, pages and documents per second, idle share, and held messages."""

    name, title = "throughput", "Throughput per consumer"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._chart = RowChart(stage, "consumers")
        theme, fig = stage.theme, self._chart.figure
        self._sources = {}
        for kind, colour in (("fast", theme.ready), ("slow", theme.leased)):
            source = self._sources[kind] = ColumnDataSource({"x": [], "y": [], "area": [], "value": []})
            fig.patch("x", "area", color=colour, alpha=0.2, line_color=None, source=source)
            fig.line("x", "y", color=colour, line_width=1.4, source=source)
            wide = fig.line("x", "y", color=colour, line_width=20, alpha=0, source=source)
            stage.axis.hover(fig, [("per second", "@value{0,0.[00]}")], wide, mode="mouse")
        self._order: list[tuple[str, str]] = []
        self._sorted = 0.0
        self.parts = [self._chart.root]

    def answer(self, scene: Scene) -> str:
        """Return which consumers are slow, compared with the median."""
        snapshot = scene.snapshot
        if not snapshot.consumers:
            return "no consumer"
        unit, median = f"{snapshot.units}/s", f"median {rate(snapshot.median_units_rate)}"
        slow = next((each for each in snapshot.consumers if each.slow), None)
        if slow is None:
            words = [f"{median} {unit}"] if snapshot.median_units_rate is not None else []
            troubles = snapshot.consumer_troubles or ("none slow" if words else "")
            return ", ".join([*words, troubles] if troubles else words)
        more = f", {snapshot.slow_consumers - 1} more slow" if snapshot.slow_consumers > 1 else ""
        return f"{slow.name} does {rate(slow.units_rate)} {unit}, {median}{more}"

    def draw(self, scene: Scene) -> None:
        """Update the rows."""
        lines = scene.history.consumers
        listed = self._listed(scene)
        named = {_line_of(each, scene.history): each for each in listed}
        # With many consumers the history has a line for each worker instead.
        by_worker = bool(lines) and not any(name in lines for name in named)
        names = list(lines)[: self._stage.rows] if by_worker else list(named)
        full = self._draw_lines(scene, names, {name for name, each in named.items() if each.trouble})
        unit = f"{scene.snapshot.units}/s"
        paged = scene.snapshot.units != PER_DOCUMENT
        of = f"newest point, sum: {LAST_MINUTE}" if by_worker else LAST_MINUTE
        over = whole(f"{unit}, {scene.window}, same scale {between('0', _end(full))} \N{MIDDLE DOT} figures: {of}")
        if by_worker:
            idle = {name: _last(scene.history.idle.get(name, ())) for name in names}
            left: list[Line] = [(Cell(""), Cell(name, Ink.STRONG), Cell("")) for name in names]
            right: list[Line] = [
                (Cell(rate(_last(lines[name]))), Cell(UNKNOWN if paged else ""), _bar(idle[name]), Cell(UNKNOWN))
                for name in names
            ]
        else:
            several = any(name != each.name for name, each in named.items())
            left = [_name(each, several=several) for each in named.values()]
            right = [_numbers(each, paged=paged) for each in listed]
        heads = columns("slowest first" if names else "", "", "")
        figures = (*columns(unit, "documents/s" if paged else ""), Column("idle", bars=True), Column("holds"))
        if not listed and not names:
            self._chart.draw(Table(heads, (), notes=("No consumer works here",)), Table(figures, (BLANK,)))
            return
        notes: tuple[str, ...] = ()
        beyond = (len(lines) if by_worker else scene.queue.consumers) - len(right)
        if beyond > 0:
            notes = (f"and {count(beyond)} more {noun_of(beyond, 'worker' if by_worker else 'consumer')}",)
            right.append(BLANK)
        all_of_them = (Cell(""), Cell(f"all {scene.queue.consumers}", Ink.STRONG), Cell(""))
        self._chart.draw(
            Table(heads, tuple(left), all_of_them, notes), Table(figures, tuple(right), _total(scene)), over=over
        )

    def table(self, scene: Scene) -> Table:
        """Return the speeds of all listed consumers."""
        units = scene.snapshot.units, "documents"
        return Table(
            columns("consumer", "queue", "worker", *(f"{each}/s, {LAST_MINUTE}" for each in units), "idle", "holds"),
            tuple(
                tuple(
                    Cell(word)
                    for word in (
                        each.name, each.queue, each.worker, rate(each.units_rate), rate(each.rate),
                        share(each.idle_share, places=0), count(each.leased),
                    )
                )
                for each in scene.snapshot.consumers
            ),
        )  # fmt: skip

    def _listed(self, scene: Scene) -> list[ConsumerStats]:
        """Return the consumers that have a row, in the order of a moment ago."""
        # A stable sort: the slowest stay first among those that work, and among those that rest.
        listed = sorted(scene.snapshot.consumers, key=lambda each: _rests(each, scene))
        consumers = {(each.queue, each.name): each for each in listed}
        at = scene.snapshot.at
        # Rows that change places each second cannot be read. Below 0 the clock was set back.
        if not RE_SORTED > at - self._sorted >= 0 or any(name not in consumers for name in self._order):
            self._order, self._sorted = list(consumers), at
        self._order += [name for name in consumers if name not in set(self._order)]
        return [consumers[name] for name in self._order[: self._stage.rows]]

    def _draw_lines(self, scene: Scene, names: list[str], slow: set[str]) -> float:
        history = scene.history
        lines = {name: _thinned(history, series(history.consumers.get(name, ()))) for name in names}
        highest = (float(speeds[speeds == speeds].max(initial=0.0)) for _, speeds in lines.values())
        full = nice(max(highest, default=0.0))
        for kind, source in self._sources.items():
            rows = [(at, *lines[name]) for at, name in enumerate(names) if (name in slow) == (kind == "slow")]
            fill(source, **_drawn(scene, rows, full))
        return full


def _end(full: float) -> str:
    """Return the end of the scale."""
    # Slow consumers have a scale that ends below 1.
    return f"{full:g}" if full < 100 else count(round(full))


def _drawn(scene: Scene, rows: list[tuple[int, NDArray[np.float64], Series]], full: float) -> dict[str, Any]:
    """Return all lines as one, broken where nothing is known, and the areas between them and the feet of their rows."""
    x: list[Any] = []
    y: list[Any] = []
    area: list[Any] = []
    value: list[Any] = []
    for at, instants, speeds in rows:
        foot = at + FOOT
        for start, end in _stretches(speeds):
            stretch, xs = speeds[start:end], times(scene, instants[start:end])
            heights = np.float32(foot) - stretch * np.float32(FULL / full)
            x += [xs[:1], xs, xs[-1:], GAP]
            y += [GAP, heights, GAP, GAP]
            area += [[foot], heights, [foot], GAP]
            value += [GAP, stretch, GAP, GAP]
    named = {"x": x, "y": y, "area": area, "value": value}
    return {
        name: np.concatenate(pieces, dtype=np.float64 if name == "x" else np.float32) if pieces else NOTHING
        for name, pieces in named.items()
    }


def _stretches(line: Series) -> list[tuple[int, int]]:
    """Return the known parts of a line, as starts and ends."""
    # NaN differs from itself.
    known = np.concatenate([[False], line == line, [False]])
    edges = np.flatnonzero(known[1:] != known[:-1])
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _thinned(history: History, line: Series) -> tuple[NDArray[np.float64], Series]:
    """Return instants and means of neighbouring points."""
    stride = max(1, -(-len(line) // POINTS))
    # Groups begin at fixed instants, and not with the first point: else every mean would change with each second.
    ahead = round(history.t0 / history.step) % stride
    tail = -(ahead + len(line)) % stride
    padded = np.pad(line, (ahead, tail), constant_values=np.nan).reshape(-1, stride)
    known = padded == padded
    amounts = known.sum(axis=1)
    sums = np.where(known, padded, 0.0).sum(axis=1)
    means = np.where(amounts > 0, sums / np.maximum(amounts, 1), np.nan).astype(np.float32)
    ends = np.minimum(np.arange(1, len(means) + 1) * stride - ahead, len(line)) - 1
    return history.t0 + history.step * ends.astype(np.float64), means


def _last(values: Sequence[float | None]) -> float | None:
    return values[-1] if values else None


def _rests(consumer: ConsumerStats, scene: Scene) -> bool:
    """Return whether a consumer has no work because there is none."""
    queue = scene.snapshot.queue(consumer.queue)
    # Such a consumer is not slow.
    return not consumer.leased and queue is not None and not queue.counts.left


def _line_of(consumer: ConsumerStats, history: History) -> str:
    """Return the name of a consumer's line, with its queue where consumers of several are drawn."""
    full = f"{consumer.queue}/{consumer.name}"
    return full if full in history.consumers else consumer.name


def _name(consumer: ConsumerStats, *, several: bool) -> Line:
    """Return the cells that name a consumer."""
    worker = f"worker {consumer.worker}"
    # The end is cut, so what differs between neighbours stands first.
    where = f"{consumer.queue} \N{MIDDLE DOT} {worker}" if several else worker
    return (
        Cell("", glyph="slow" if consumer.trouble else ""),
        Cell(consumer.name, Ink.STRONG),
        Cell(where, Ink.QUIET),
    )


def _numbers(consumer: ConsumerStats, *, paged: bool) -> Line:
    return (
        Cell(rate(consumer.units_rate), Ink.WARN if consumer.trouble else Ink.PLAIN),
        Cell(rate(consumer.rate) if paged else ""),
        _bar(consumer.idle_share),
        Cell(count(consumer.leased), Ink.QUIET),
    )


def _total(scene: Scene) -> Line:
    """Return the sum of all consumers, listed or not."""
    snapshot = scene.snapshot
    # Not what left the queue: a failed delivery that is retried leaves nothing, and cancelled documents leave without a
    # consumer. Not the queue's unacked messages: some are under way to consumers, or back.
    listed = snapshot.consumers_total <= len(snapshot.consumers)
    known = [each.rate for each in snapshot.consumers if each.rate is not None]
    documents = sum(known) if known and listed else None
    held = sum(each.leased for each in snapshot.consumers) if listed else None
    return (
        Cell(rate(scene.queue.units_rate), Ink.STRONG),
        Cell(rate(documents) if snapshot.units != PER_DOCUMENT else "", Ink.STRONG),
        _bar(snapshot.idle_share),
        Cell(count(held)),
    )


def _bar(part: float | None) -> Cell:
    return Cell(share(part, places=0), filled=part or 0.0)
