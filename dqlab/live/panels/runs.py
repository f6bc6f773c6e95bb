"""Draw runs: a table that is sorted by any column, with each run from its start to its estimated end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, HoverTool, Span, TextInput

from dqlab.live.details import band
from dqlab.live.palette import Ink
from dqlab.live.panels.axis import Caption, strip, times, tip
from dqlab.live.panels.changes import fill, html, show
from dqlab.live.panels.markup import columns, heads
from dqlab.live.panels.panel import RowChart, Stage
from dqlab.live.panels.scene import Scene
from dqlab.live.run_rows import RunRow, SortBy, run_rows, run_word, speeds_over
from dqlab.live.tables import Cell, Table
from dqlab.numbers import UNKNOWN, count, instant, minute
from dqlab.stats import RunState, RunStats

__all__ = ["RunsPanel"]

STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Seconds between the times of day above the chart."""
GLYPHS = {
    RunState.PAUSED: "paused",
    RunState.STOPPED: "dead",
    RunState.WAITING: "waiting",
    RunState.DONE: "done",
    RunState.CANCELLED: "cancelled",
    RunState.INCOMPLETE: "waiting",
}
REST = 0.3
"""How far the axis reaches ahead without an estimate, as a share of the time until now."""
LEAST_DEAD = 3
"""Least pixels of red in a bar with dead documents, as in all views; else red is their share. One in a million is seen
then, and nobody takes 3 pixels for a share: the number of dead documents stands beside the bar."""
RE_SORTED = 5.0
"""Seconds that rows keep their order."""
LEFT = ((SortBy.NAME, "run"), (SortBy.NEED, "state"), (SortBy.SHARE, "settled"))
RIGHT_COLUMNS = columns("", "", "", "", "", "")
"""Without titles: their heads stand apart, because they are buttons."""
RIGHT = ((SortBy.END, "end"), (SortBy.DEAD, "dead"), (SortBy.SPEED, "speed"), (SortBy.TOOK, "took"))


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The order of rows, spelled ``dead``, or ``-dead`` from the end."""

    by: SortBy = SortBy.NEED
    back: bool = False

    @classmethod
    def read(cls, spelt: str) -> SortOrder:
        """Return the order that a browser asks for."""
        # The browser may send anything: nonsense is the usual order.
        by = spelt.removeprefix("-")
        return cls(SortBy(by), spelt.startswith("-")) if by in list(SortBy) else cls()


class RunsPanel:
    """A row per run, with figures, and a bar until now, dots to the early estimate, a band to the late one."""

    name, title = "runs", "Runs"

    def __init__(self, stage: Stage) -> None:
        self._stage, theme = stage, stage.theme
        self._chart = RowChart(stage, "jobs", time=False)
        self._order = SortOrder()
        self._keys: list[tuple[str, str]] = []
        self._sorted = 0.0
        self._left_head = html(stage.sheet, "head", "left", "jobs")
        self._right_head = html(stage.sheet, "head", "right", "jobs")
        self._asked = TextInput(name="runs-order", visible=False)
        self._asked.on_change("value", lambda _, __, spelt: self._sort(SortOrder.read(spelt)))
        self._chart.root.children = [*self._chart.root.children, self._left_head, self._right_head]
        fig = self._chart.figure
        self._bars = ColumnDataSource({name: [] for name in ("y", "left", "right", "colour", "name", "from", "until")})
        self._bands = ColumnDataSource({name: [] for name in ("y", "left", "right", "middle", "sure")})
        self._dots = ColumnDataSource({name: [] for name in ("y", "left", "right", "colour")})
        self._dead = ColumnDataSource({"x": [], "y": []})
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
        fig.rect(
            x="x", y="y", width=LEAST_DEAD, width_units="screen", height=0.3, color=theme.dead, line_color=None,
            source=self._dead,
        )  # fmt: skip
        fig.add_tools(
            HoverTool(tooltips=tip(("run", "@name"), ("started", "@from"), ("ended", "@until")), renderers=[bars]),
            HoverTool(tooltips=tip(("done at, 80 % sure", "@sure")), renderers=[bands]),
        )
        self._write_heads()
        self.parts = [self._chart.root, self._asked]

    def answer(self, scene: Scene) -> str:
        """Return how many runs are in each state, and how many are not listed."""
        # By words, which tell runs that ended with dead documents from others.
        states = {run_word(run)[0]: run.state for run in scene.runs}
        amounts = Counter(run_word(run)[0] for run in scene.runs)
        words = [f"{count(amounts[word])} {word}" for word in sorted(states, key=lambda it: _rank(it, states[it]))]
        if words and scene.unlisted_runs:
            words.append(f"{count(scene.unlisted_runs)} more")
        return ", ".join(words) or "none"

    def draw(self, scene: Scene) -> None:
        """Update the rows and the axis."""
        stats = {(run.queue, run.name): run for run in scene.runs}
        rows = self._rows(scene, stats)
        runs = [stats[row.queue, row.name] for row in rows]
        start, end = _axis(scene, runs)
        now = scene.snapshot.at
        left_end, right_end, here = (float(at) for at in times(scene, [start, end, now]))
        show(self._chart.range, start=left_end, end=right_end)
        show(self._now, location=here)
        self._draw_bars(scene, runs, end)
        left = tuple(
            (Cell("", glyph=_glyph(run)), Cell(row.name, Ink.STRONG), Cell(row.state, row.ink), Cell(row.share))
            for row, run in zip(rows, runs, strict=True)
        )
        right = [_figures(row, run.owner) for row, run in zip(rows, runs, strict=True)]
        notes = []
        beyond = len(stats) - len(rows) + (scene.unlisted_runs or 0)
        if beyond > 0:
            notes.append(f"and {count(beyond)} more")
        elif scene.unlisted_runs is None:
            notes.append(f"of the newest {count(len(scene.snapshot.runs))} runs of all queues")
        if not runs:
            notes = ["Nothing has been mapped here yet"]
        elif over_time := speeds_over(rows):
            notes = [" \N{MIDDLE DOT} ".join([*notes, f"speed: {over_time}"])]
        if runs and notes:
            right.append((Cell(""),) * len(RIGHT_COLUMNS))
        self._write_heads(owned=any(run.owner for run in runs))
        over = strip(_places(start, end, now), start, end) if runs else ""
        self._chart.draw(
            Table(columns("", "", "", ""), left, notes=tuple(notes)),
            Table(RIGHT_COLUMNS, tuple(right)),
            over=over,
        )

    def table(self, scene: Scene) -> Table:
        """Return the figures of all listed runs."""
        rows = run_rows(scene.snapshot, self._order.by)
        stats = {(run.queue, run.name): run for run in scene.runs}
        return Table(
            columns(
                "run", "queue", "state", "settled", "dead", "started", "end", "speed", "took", "code", "by", "note"
            ),
            tuple(
                (
                    *(Cell(each) for each in (row.name, row.queue, row.state, row.share, count(row.dead))),
                    Cell(instant(row.started, now=scene.snapshot.at) if row.started else UNKNOWN),
                    *(Cell(each) for each in (row.end, row.speed, row.took, row.code)),
                    Cell(stats[row.queue, row.name].owner or UNKNOWN),
                    Cell(row.why),
                )
                for row in rows
                if (row.queue, row.name) in stats
            ),
        )

    def _rows(self, scene: Scene, stats: dict[tuple[str, str], RunStats]) -> list[RunRow]:
        """Return the runs that have a row."""
        rows = {(row.queue, row.name): row for row in run_rows(scene.snapshot, self._order.by)}
        rows = {key: row for key, row in rows.items() if key in stats}
        fresh = list(reversed(rows)) if self._order.back else list(rows)
        at = scene.snapshot.at
        # Rows that change places each second cannot be read. Below 0 the clock was set back.
        if not RE_SORTED > at - self._sorted >= 0 or set(self._keys) != set(rows):
            self._keys, self._sorted = fresh, at
        return [rows[key] for key in self._keys[: self._stage.rows]]

    def _sort(self, order: SortOrder) -> None:
        self._order, self._keys = order, []
        self._write_heads()
        self._stage.again()

    def _write_heads(self, *, owned: bool = False) -> None:
        order, pressed = self._order, not self._stage.wall

        def head(named: tuple[tuple[SortBy, str], ...]) -> list[tuple[str, str, str]]:
            marks = {order.by: "up" if order.back else "down"}
            return [
                (title, f"-{by}" if by is order.by and not order.back else str(by), marks.get(by, ""))
                for by, title in named
            ]

        show(self._left_head, text=heads("jobs", "runs-order", [("", "", ""), *head(LEFT)], pressed=pressed))
        show(
            self._right_head,
            text=heads(
                "jobs", "runs-order", [*head(RIGHT), ("code", "", ""), ("by" if owned else "", "", "")], pressed=pressed
            ),
        )

    def _draw_bars(self, scene: Scene, runs: list[RunStats], end: float) -> None:
        theme, now = self._stage.theme, scene.snapshot.at
        bars: list[tuple[float, float, float, str, RunStats]] = []
        dots: list[tuple[float, float, float, str]] = []
        bands: list[tuple[float, float, float, float, str]] = []
        dead: list[tuple[float, float]] = []
        for at, run in enumerate(runs):
            y, until = at + 0.5, run.ended if run.ended is not None else now
            held = run.state in (RunState.PAUSED, RunState.STOPPED, RunState.WAITING)
            if held:
                dots.append((y, run.started, now, theme.ink2))
            grey = run.counts.cancelled / run.counts.all if run.resting and run.counts.cancelled else 0.0
            bad = run.counts.dead + run.counts.lost
            red = min(bad / max(1, run.counts.settled), 1.0 - grey)
            good = theme.acked if run.resting else theme.ready
            length, left = until - run.started, run.started
            # Red is what is dead or lost; grey what was cancelled and never ran.
            for part, colour in ((1.0 - red - grey, good), (red, theme.dead), (grey, theme.cancelled)):
                if part > 0 and not (held and colour is good):
                    bars.append((y, left, left + part * length, colour, run))
                left += part * length
            if bad:
                dead.append((left - grey * length, y))
            if not (run.resting or held):
                dots.append((y, now, run.eta.p10 if run.eta is not None else end, theme.brand))
            if run.eta is not None:
                bands.append((y, run.eta.p10, run.eta.p90, run.eta.p50, band(run.eta, run.at)))
        fill(
            self._bars,
            y=[bar[0] for bar in bars],
            left=times(scene, [bar[1] for bar in bars]),
            right=times(scene, [bar[2] for bar in bars]),
            colour=[bar[3] for bar in bars],
            name=[bar[4].name for bar in bars],
            **{"from": [instant(bar[4].started, now=now) for bar in bars]},
            until=[instant(bar[4].ended, now=now) if bar[4].ended is not None else UNKNOWN for bar in bars],
        )
        fill(self._dead, x=times(scene, [each[0] for each in dead]), y=[each[1] for each in dead])
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


def _rank(word: str, state: RunState) -> tuple[int, bool, str]:
    """Return the place of a word among the words of runs."""
    words = [each.value for each in RunState]
    # A word that is not a state stands behind its state. A run behind a stuck document counts as one that waits.
    return words.index(word if word in words else state.value), word not in words, word


def _glyph(run: RunStats) -> str:
    if run.state is RunState.DONE and (run.counts.dead or run.counts.lost):
        return "dead"
    if run.stuck:
        return GLYPHS[RunState.WAITING]
    return GLYPHS.get(run.state, "running")


def _figures(row: RunRow, owner: str) -> tuple[Cell, ...]:
    return (
        Cell(row.end, Ink.PLAIN if row.over else Ink.STRONG),
        Cell(count(row.dead + row.lost), Ink.BAD if row.dead or row.lost else Ink.QUIET),
        Cell(row.speed),
        Cell(row.took),
        Cell(row.code or row.why, Ink.QUIET),
        Cell(owner, Ink.QUIET),
    )


def _axis(scene: Scene, runs: list[RunStats]) -> tuple[float, float]:
    """Return where the axis begins and ends."""
    now, span = scene.snapshot.at, scene.span
    # The axis begins with the first listed run, but not far before the chosen span, and ends with the near estimates.
    started = [max(run.started, now - 2 * span) for run in runs if run.started]
    back = max(now - min(started, default=now - span), 1.0)
    ends = [run.eta.p90 for run in runs if run.eta is not None and run.eta.p90 < now + 4 * max(span, back)]
    going = any(not run.resting for run in runs)
    return now - 1.04 * back, max([now + (REST if going else 0.02) * back, *(now + 1.06 * (end - now) for end in ends)])


def _places(start: float, end: float, now: float) -> list[Caption]:
    """Return the times of day above the chart, none on top of "now"."""
    step = next((each for each in STEPS if (end - start) / each <= 4), STEPS[-1])
    first = int(start // step + 1) * step
    marks = [at for at in range(first, int(end), step) if abs(at - now) > 0.24 * (end - start)]
    inside = [at for at in marks if 0.08 * (end - start) < at - start < 0.92 * (end - start)]
    return [*(Caption(float(at), minute(at), kind="tick") for at in inside), Caption(now, "now", kind="now")]
