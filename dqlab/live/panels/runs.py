"""Runs: from their start to now, and from now to their estimated end."""

from __future__ import annotations

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, HoverTool, Span

from dqlab.live.palette import Ink
from dqlab.live.panels.axis import Place, strip, times, tip
from dqlab.live.panels.changes import fill, show
from dqlab.live.panels.markup import columns
from dqlab.live.panels.panel import RowChart, Stage
from dqlab.live.panels.scene import Scene
from dqlab.live.tables import Cell, Table
from dqlab.numbers import UNKNOWN, between, clock, count, duration, minute, share
from dqlab.stats import RunState, RunStats

__all__ = ["Runs"]

STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Seconds between the times of day above the chart."""
GLYPHS = {
    RunState.PAUSED: "paused",
    RunState.STOPPED: "paused",
    RunState.WAITING: "waiting",
    RunState.DONE: "done",
    RunState.CANCELLED: "cancelled",
}
UNTIL_NOW, REST = 0.6, 0.3
"""How far back the axis reaches, and ahead when nothing is estimated: shares of the page's span at least."""


class Runs:
    """A row per run: a bar until now, dots to the early estimate, a band to the late one, a tick between."""

    name, title = "runs", "Runs"

    def __init__(self, stage: Stage) -> None:
        self._stage, theme = stage, stage.theme
        self._chart = RowChart(stage, "jobs", time=False)
        fig = self._chart.figure
        self._bars = ColumnDataSource({name: [] for name in ("y", "left", "right", "colour", "name", "from", "until")})
        self._bands = ColumnDataSource({name: [] for name in ("y", "left", "right", "middle", "sure")})
        self._dots = ColumnDataSource({name: [] for name in ("y", "left", "right", "colour")})
        self._now = Span(dimension="height", location=0, line_color=theme.ink2, line_width=1, syncable=False)
        fig.add_layout(self._now)
        fig.segment(
            x0="left",
            x1="right",
            y0="y",
            y1="y",
            color="colour",
            line_dash=value([2, 2]),
            line_width=1,
            source=self._dots,
        )
        bands = fig.hbar(
            y="y",
            left="left",
            right="right",
            height=0.3,
            color=theme.brand,
            alpha=0.28,
            line_color=None,
            source=self._bands,
        )
        fig.rect(x="middle", y="y", width=2, width_units="screen", height=0.54, color=theme.brand, source=self._bands)
        bars = fig.hbar(
            y="y", left="left", right="right", height=0.3, color="colour", line_color=None, source=self._bars
        )
        fig.add_tools(
            HoverTool(tooltips=tip(("run", "@name"), ("started", "@from"), ("ended", "@until")), renderers=[bars]),
            HoverTool(tooltips=tip(("done at, 80 % sure", "@sure")), renderers=[bands]),
        )
        self.parts = [self._chart.root]

    def answer(self, scene: Scene) -> str:
        """How many runs are in each state."""
        return ", ".join(f"{count(amount)} {state}" for state, amount in scene.snapshot.runs_by_state.items()) or "none"

    def draw(self, scene: Scene) -> None:
        """Update the rows and the axis."""
        runs = scene.snapshot.runs[: self._stage.rows]
        start, end = _axis(scene, runs)
        now = scene.snapshot.at
        left_end, right_end, here = (float(at) for at in times(scene, [start, end, now]))
        show(self._chart.range, start=left_end, end=right_end)
        show(self._now, location=here)
        self._draw_bars(scene, runs, end)
        left = tuple(
            (
                Cell("", glyph=GLYPHS.get(run.state, "running")),
                Cell(run.name, Ink.STRONG),
                Cell(share(run.worked_share)),
            )
            for run in runs
        )
        right = [(_done_at(run), Cell(_note(run), Ink.QUIET)) for run in runs]
        note, beyond = "", scene.snapshot.runs_total - len(runs)
        if beyond > 0:
            note = f"and {count(beyond)} more"
            right.append((Cell(""), Cell("")))
        elif not runs:
            note = "Nothing has been mapped here yet"
        over = strip(_places(start, end, now), start, end) if runs else ""
        self._chart.draw(
            Table(columns("", "run", "settled"), left, notes=(note,) if note else ()),
            Table(columns("done at", "80 % sure, or why not"), tuple(right)),
            over=over,
        )

    def _draw_bars(self, scene: Scene, runs: tuple[RunStats, ...], end: float) -> None:
        theme, now = self._stage.theme, scene.snapshot.at
        bars: list[tuple[float, float, float, str, RunStats]] = []
        dots: list[tuple[float, float, float, str]] = []
        bands: list[tuple[float, float, float, float, str]] = []
        for at, run in enumerate(runs):
            y, until = at + 0.5, run.ended if run.ended is not None else now
            if run.resting:
                bars.append(
                    (y, run.started, until, theme.cancelled if run.state is not RunState.DONE else theme.acked, run)
                )
            elif run.state in (RunState.PAUSED, RunState.STOPPED, RunState.WAITING):
                dots.append((y, run.started, now, theme.ink2))
            else:
                bars.append((y, run.started, now, theme.ready, run))
                dots.append((y, now, run.eta.p10 if run.eta is not None else end, theme.brand))
            if run.eta is not None:
                sure = between(minute(run.eta.p10), minute(run.eta.p90))
                bands.append((y, run.eta.p10, run.eta.p90, run.eta.p50, sure))
        fill(
            self._bars,
            y=[bar[0] for bar in bars],
            left=times(scene, [bar[1] for bar in bars]),
            right=times(scene, [bar[2] for bar in bars]),
            colour=[bar[3] for bar in bars],
            name=[bar[4].name for bar in bars],
            **{"from": [clock(bar[1]) for bar in bars]},
            until=[clock(bar[2]) if bar[4].ended is not None else UNKNOWN for bar in bars],
        )
        fill(
            self._dots,
            y=[dot[0] for dot in dots],
            left=times(scene, [dot[1] for dot in dots]),
            right=times(scene, [dot[2] for dot in dots]),
            colour=[dot[3] for dot in dots],
        )
        fill(
            self._bands,
            y=[band[0] for band in bands],
            left=times(scene, [band[1] for band in bands]),
            right=times(scene, [band[2] for band in bands]),
            middle=times(scene, [band[3] for band in bands]),
            sure=[band[4] for band in bands],
        )


def _axis(scene: Scene, runs: tuple[RunStats, ...]) -> tuple[float, float]:
    """Return where the axis begins and ends: the page's span at most, and all estimates that are near."""
    now, span = scene.snapshot.at, scene.span
    started = [max(run.started, now - 2 * span) for run in runs if run.started]
    ends = [run.eta.p90 for run in runs if run.eta is not None and run.eta.p90 < now + 4 * span]
    back = max([now - min(started, default=now), UNTIL_NOW * span])
    return now - 1.04 * back, max([now + REST * back, *(now + 1.06 * (end - now) for end in ends)])


def _places(start: float, end: float, now: float) -> list[Place]:
    """Return the times of day to be written above the chart, none on top of "now"."""
    step = next((each for each in STEPS if (end - start) / each <= 4), STEPS[-1])
    first = int(start // step + 1) * step
    marks = [at for at in range(first, int(end), step) if abs(at - now) > 0.17 * (end - start)]
    hours = [Place(float(at), minute(at), kind="tick") for at in marks if at - start > 0.04 * (end - start)]
    return [*hours, Place(now, "now", kind="now")]


def _done_at(run: RunStats) -> Cell:
    at = run.ended if run.ended is not None else run.eta.p50 if run.eta is not None else None
    return Cell(minute(at), Ink.STRONG) if at is not None else Cell(UNKNOWN)


def _note(run: RunStats) -> str:
    if run.finished and run.ended is not None:
        return f"{'took' if run.state is RunState.DONE else str(run.state) + ' after'} {duration(run.elapsed)}"
    if run.eta is not None:
        return between(minute(run.eta.p10), minute(run.eta.p90))
    spoken = run.state not in (RunState.RUNNING, RunState.SUBMITTING)
    return " ".join(filter(None, (str(run.state) if spoken else "", run.why)))
