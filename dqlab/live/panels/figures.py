"""Draw the panels: depth, throughput, failures, unacked messages, runs and storage."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from math import floor

import numpy as np
from bokeh.core.properties import value
from bokeh.models import (
    ColumnDataSource,
    CustomJSTickFormatter,
    FixedTicker,
    HoverTool,
    NoOverlap,
    NumeralTickFormatter,
)

from dqlab.live.details import leases
from dqlab.live.next_lines import failed_lines
from dqlab.live.panels.parts import Rows, Series, Stage, amount, code, fill, nice, series, show, strong, text, times
from dqlab.live.panels.scene import Scene
from dqlab.live.parts import Cell
from dqlab.live.run_rows import LAST_MINUTE, RunRow, run_rows, speeds_over
from dqlab.live.style import Ink, StateLook
from dqlab.numbers import UNKNOWN, count, due, duration, instant, many, noun_of, rate, share, size
from dqlab.stats import AGE_EDGES, ConsumerStats, Mark, QueueState


class RunsPanel:
    """A row per run: those that need the user first."""

    name, title = "runs", "Runs"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        heads = "run state settled end dead speed took queue code by started"
        widths = (150, 84, 92, 108, 80, 110, 76, 80, 90, 90, 70)
        self.rows = Rows(stage, "listed", heads, widths, right="settled end dead speed took started")
        self.parts = [self.rows.root]

    def answer(self, scene: Scene) -> str:
        """Return how many runs are in each state, and how many are not listed."""
        # By words, which tell runs that ended with dead documents from others; those that need the user stand first.
        amounts = Counter(row.state for row in _rows(scene))
        words = [f"{count(amount)} {word}" for word, amount in amounts.items()]
        if words and scene.unlisted_runs:
            words.append(f"{count(scene.unlisted_runs)} more")
        return ", ".join(words) or "none"

    def facts(self, scene: Scene) -> str:
        """Return what is not listed, and over which time speeds are."""
        if not scene.runs:
            return "<span>Nothing has been mapped here yet</span>"
        over = speeds_over(run_rows(scene.snapshot))
        beyond = max(0, len(scene.runs) - self._stage.rows) + scene.unlisted_runs
        words = [f"speed: {over}" if over else "", f"and {count(beyond)} more: %dq runs" if beyond else ""]
        return "".join(f"<span>{text(word)}</span>" for word in words if word)

    def draw(self, scene: Scene) -> None:
        """Update the rows."""
        rows = _rows(scene)[: self._stage.rows]
        at = scene.snapshot.at
        cells = tuple(
            (
                Cell(row.name, Ink.STRONG),
                Cell(row.state, row.ink),
                Cell(row.share, filled=row.done or 0.0),
                Cell(row.end, Ink.PLAIN if row.over else Ink.STRONG),
                Cell(count(row.dead + row.lost), Ink.BAD if row.dead or row.lost else Ink.QUIET),
                Cell(row.speed),
                Cell(row.took),
                Cell(row.queue, Ink.QUIET),
                Cell(row.code or row.why, Ink.QUIET),
                Cell(row.owner or UNKNOWN, Ink.QUIET),
                Cell(instant(row.started, now=at) if row.started else UNKNOWN, Ink.QUIET),
            )
            for row in rows
        )
        self.rows.draw(cells)


def _rows(scene: Scene) -> list[RunRow]:
    shown = {(run.queue, run.name) for run in scene.runs}
    return [row for row in run_rows(scene.snapshot) if (row.queue, row.name) in shown]


TREND = 20.0
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
        net, over = scene.history.net_rate(TREND) or (queue.net_rate, 60.0)
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
        self.rows.draw(rows)


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
        self.rows.draw(rows, total if rows else ())


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


GAP = 6.0
"""Seconds free on either side of the bar of a minute."""


class FailuresPanel:
    """Failed deliveries per minute, and a row per class of failures and per document."""

    name, title = "failures", "Failures"

    def __init__(self, stage: Stage) -> None:
        self.source = ColumnDataSource({"x": [], "failed": [], "width": []})
        self._figure = stage.over_time(96)
        self._figure.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
        bars = self._figure.vbar(
            x="x", top="failed", width="width", color=stage.theme["dead"], line_color=None, source=self.source
        )
        stage.hover(self._figure, bars, ("failed in that minute", "@failed{0,0}"), mode="mouse")
        self.classes = Rows(
            stage, "classes", "class message code dead retrying", (110, 170, 66, 84, 64), right="dead retrying"
        )
        self.documents = Rows(
            stage, "failing", "documents_that_fail_most last_error pages deliveries", (230, 120, 56, 76),
            right="pages deliveries",
        )  # fmt: skip
        self.parts = [self._figure, self.classes.root, self.documents.root]

    def answer(self, scene: Scene) -> str:
        """Return how often something fails now."""
        failures = scene.snapshot.failures
        if not failures.classes_total and not failures.dead and not failures.retrying:
            dead = scene.queue.counts.dead
            return f"{many(dead, 'message')} dead" if dead else "none"
        now = f"{many(failures.per_minute, 'delivery')} failed in the last minute" if failures.per_minute else ""
        now = now or "none in the last minute"
        return f"{now}, {many(failures.classes_total, 'class')} in all"

    def facts(self, scene: Scene) -> str:
        """Return how many are dead in all, and the lines that list them with their tracebacks."""
        dead = scene.snapshot.failures.dead or scene.queue.counts.dead
        if not dead:
            quiet = not scene.snapshot.failures.classes_total
            return "<span>No message has failed in this window</span>" if quiet else ""
        asked = scene.snapshot.of_run
        runs = [run for run in scene.runs if run.counts.dead and asked in ("", run.name)]
        # The runs of a queue that are not listed have dead documents too.
        unlisted = not asked and scene.queue.failed_runs > sum(run.resting for run in runs)
        lines = failed_lines(runs) + ["%dq runs"] * unlisted
        noun = noun_of(dead, "document" if lines else "message")
        if not lines and scene.queue.state:
            lines = [f"lab.queue({scene.queue.name!r}).dead()"]
        return (
            f"<span>{text(f'{count(dead)} dead {noun}, with tracebacks:')} {' · '.join(map(code, lines))} "
            "or the Failures tab of JupyterLab</span>"
        )

    def draw(self, scene: Scene) -> None:
        """Update bars and rows."""
        failures, history = scene.snapshot.failures, scene.history
        minutes = [reversed(history.classes.get(each.fingerprint, ())) for each in failures.classes]
        failed = np.array([sum(amounts) for amounts in zip_longest(*minutes, fillvalue=0)][::-1], dtype=np.float32)
        begun = floor(scene.end / 60.0) * 60.0 - 60.0 * np.arange(len(failed) - 1, -1, -1)
        # The present minute ends now.
        left, right = begun + GAP, np.maximum(np.minimum(begun + 60.0 - GAP, scene.end), begun + 2 * GAP)
        fill(self.source, x=times(scene, (left + right) / 2), failed=failed, width=(right - left) * 1000.0)
        show(self._figure.y_range, end=nice(max(4.0, float(failed[right >= scene.start].max(initial=0.0)))))
        rows = tuple(
            (
                Cell(each.error, Ink.STRONG),
                Cell(each.message),
                Cell(", ".join(each.versions), Ink.QUIET),
                Cell(count(each.dead), Ink.BAD if each.dead else Ink.QUIET),
                Cell(count(each.retrying)),
            )
            for each in failures.classes
        )
        more = f"and {many(failures.other_classes, 'class').replace(' ', ' more ')}" if failures.other_classes else ""
        total = (Cell(""), Cell(more, Ink.QUIET), Cell(""), Cell(count(failures.other_dead)), Cell(""))
        self.classes.draw(rows, total=total if more else ())
        documents = (
            (Cell(each.key), Cell(each.error, Ink.QUIET), Cell(count(each.pages)), Cell(count(each.deliveries)))
            for each in failures.documents
        )
        self.documents.draw(tuple(documents))


SIZES = """const power = tick >= 1 ? Math.min(Math.floor(Math.log10(tick) / 3), 5) : 0
return tick ? `${Number((tick / 1000 ** power).toFixed(1))} ${["B", "kB", "MB", "GB", "TB", "PB"][power]}` : "0" """


class StoragePanel:
    """Live and garbage bytes stacked, with compactions as marks."""

    name, title = "storage", "Storage"

    def __init__(self, stage: Stage) -> None:
        theme = stage.theme
        self.source = ColumnDataSource({"x": [], "live": [], "garbage": []})
        self.marks = ColumnDataSource({"x": [], "word": []})
        self._figure = fig = stage.over_time(190)
        fig.min_border_left = 60
        fig.yaxis.formatter = CustomJSTickFormatter(code=SIZES)
        fig.varea_stack(
            ["live", "garbage"],
            x="x",
            color=[theme["ready"], theme["cancelled"]],
            alpha=[0.75, 0.45],
            source=self.source,
        )
        line = fig.line("x", "live", alpha=0, source=self.source)
        stage.hover(fig, line, ("live", "@live{0.0 b}"), ("garbage", "@garbage{0.0 b}"))
        stage.marks(self.marks, fig)
        self.parts = [fig]

    def answer(self, scene: Scene) -> str:
        """Return the share of garbage, and when compaction will remove it."""
        storage = scene.snapshot.storage
        if not storage.total:
            return "nothing on disk"
        above, part = storage.compact_above, share(storage.garbage_share, places=0)
        if above is None:
            return f"{part} garbage"
        if storage.garbage_share <= above:
            return f"{part} garbage · compacts itself above {share(above, places=0)}"
        return f"{part} garbage, more than {share(above, places=0)} · compacts itself at the next checkpoint"

    def facts(self, scene: Scene) -> str:
        """Return what is on disk now, and how fast the disk is."""
        storage = scene.snapshot.storage
        if not storage.total and storage.disk_free is None:
            return "<span>Queues here are transient</span>"
        writes = size(round(storage.write_rate)) if storage.write_rate is not None else UNKNOWN
        sync = f"{storage.fsync_p99 * 1000:.1f} ms" if storage.fsync_p99 is not None else UNKNOWN
        rest = {"writes": f"{writes}/s", "fsync p99": sync, "disk free": size(storage.disk_free)}
        return (
            f'<span><i class="key ready"></i>{strong(size(storage.live))} live</span>'
            f'<span><i class="key cancelled"></i>{strong(size(storage.garbage))} garbage</span>'
            + "".join(f"<span>{text(name)} {strong(words)}</span>" for name, words in rest.items())
        )

    def draw(self, scene: Scene) -> None:
        """Update the stack and its marks."""
        history, storage = scene.history, scene.snapshot.storage
        live, garbage = (series(scene.full(each)) for each in (history.live, history.garbage))
        fill(self.source, x=times(scene, history.times), live=live, garbage=garbage)
        show(self._figure.y_range, end=nice(max(float((live + garbage).max(initial=0.0)), storage.total, 1000.0)))
        fill(
            self.marks,
            x=times(scene, [compaction.at for compaction in storage.compactions]),
            word=[f"\N{MINUS SIGN}{size(each.freed)} in {duration(each.seconds)}" for each in storage.compactions],
        )
