"""Draw failures: classes, how often each failed in each minute, and the documents that fail most."""

from __future__ import annotations

from math import floor

import numpy as np
from bokeh.models import ColumnDataSource

from dqlab.live.next_lines import NAMED, failed_lines
from dqlab.live.palette import Ink
from dqlab.live.panels.axis import nice, times
from dqlab.live.panels.changes import fill, html, show
from dqlab.live.panels.markup import cells, codes, columns, text, whole
from dqlab.live.panels.panel import RowChart, Stage
from dqlab.live.panels.scene import Scene
from dqlab.live.tables import Cell, Column, Table
from dqlab.numbers import UNKNOWN, between, count, many, noun_of
from dqlab.stats import ClassStats, FailingDocument

__all__ = ["FailuresPanel"]

FULL = 0.8
GAP = 6.0
"""Seconds free on either side of the bar of a minute."""
LEAST = 0.01
"""Least share of the axis that the bar of a minute that has just begun takes."""


class FailuresPanel:
    """A row per class of failures, with bars per minute on one scale."""

    name, title = "failures", "Failures"

    def __init__(self, stage: Stage) -> None:
        self._chart = RowChart(stage, "classes")
        self._source = ColumnDataSource({"x": [], "top": [], "base": [], "failed": [], "width": []})
        bars = self._chart.figure.vbar(
            x="x", top="top", bottom="base", width="width", color=stage.theme.dead, line_color=None, source=self._source
        )
        stage.axis.hover(self._chart.figure, [("failed in that minute", "@failed{0,0}")], bars, mode="mouse")
        self._documents = html(stage.sheet, "documents")
        self.parts = [self._chart.root, self._documents]

    def answer(self, scene: Scene) -> str:
        """Return how often something fails now."""
        failures = scene.snapshot.failures
        if not failures.classes_total and not failures.dead and not failures.retrying:
            dead = scene.queue.counts.dead
            return f"{many(dead, 'message')} dead" if dead else "none"
        now = f"{many(failures.per_minute, 'delivery')} failed in the last minute" if failures.per_minute else ""
        now = now or "none in the last minute"
        return f"{now}, {many(failures.classes_total, 'class')} in all"

    def draw(self, scene: Scene) -> None:
        """Update the rows."""
        failures = scene.snapshot.failures
        classes = failures.classes
        full = self._draw_bars(scene, classes)
        left = [
            (Cell(each.error, Ink.STRONG), Cell(" · ".join([*each.versions, each.message]), Ink.QUIET))
            for each in classes
        ]
        right = [(Cell(count(each.dead), Ink.STRONG), Cell(count(each.retrying))) for each in classes]
        note = ""
        if failures.other_classes:
            note = f"and {many(failures.other_classes, 'class').replace(' ', ' more ')}"
            right.append((Cell(count(failures.other_dead), Ink.STRONG), Cell("")))
        if not left and not note:
            note = "Why is not known yet" if scene.queue.counts.dead else "No message has failed in this window"
        window = f"per minute, {scene.window}, scale {between('0', count(round(full)))}"
        over = whole(window) if classes else ""
        self._chart.draw(
            Table(columns("class", ""), tuple(left), notes=(note,) if note else ()),
            Table(columns("dead", "retrying"), tuple(right)),
            over=over,
        )
        show(self._documents, text=f"{_documents(failures.documents)}{_way_to_all(scene)}")

    def table(self, scene: Scene) -> Table:
        """Return the classes, with their failures in this minute of the clock, and in all minutes shown."""
        return Table(
            columns("class", "message", "code", "dead", "retrying", "failed in this minute", "failed in the last 2 h"),
            tuple(
                (
                    *(Cell(word) for word in (each.error, each.message, ", ".join(each.versions))),
                    *(Cell(count(amount)) for amount in (each.dead, each.retrying)),
                    Cell(count(int(minutes[-1])) if minutes else UNKNOWN),
                    Cell(count(int(sum(minutes))) if minutes else UNKNOWN),
                )
                for each in scene.snapshot.failures.classes
                for minutes in [tuple(scene.history.classes.get(each.fingerprint, ()))]
            ),
        )

    def _draw_bars(self, scene: Scene, classes: tuple[ClassStats, ...]) -> float:
        minutes = [np.asarray(scene.history.classes.get(each.fingerprint, ()), dtype=np.float32) for each in classes]
        full = nice(max((float(each.max()) for each in minutes if len(each)), default=0.0), whole=True)
        rows = [np.full(len(each), at + 0.95, dtype=np.float32) for at, each in enumerate(minutes)]
        spans = [_minutes(scene, len(each)) for each in minutes]
        failed, base = _joined(minutes), _joined(rows)
        left, right = np.hstack(spans) if spans else np.zeros((2, 0))
        seen = (failed > 0) & (right >= scene.start)
        failed, base, left, right = failed[seen], base[seen], left[seen], right[seen]
        top = base - failed * np.float32(FULL / full)
        width = np.asarray(1000.0 * (right - left), dtype=np.float32)
        fill(self._source, x=times(scene, (left + right) / 2), top=top, base=base, failed=failed, width=width)
        return full


def _minutes(scene: Scene, amount: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where bars of minutes of the clock begin and end, the present one last."""
    begun = floor(scene.end / 60.0) * 60.0 - 60.0 * np.arange(amount - 1, -1, -1)
    left, right = begun + GAP, begun + 60.0 - GAP
    # The present minute ends now.
    right[-1:] = np.minimum(right[-1:], scene.end)
    left[-1:] = np.minimum(left[-1:], right[-1:] - scene.span * LEAST)
    return left, right


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.float32)


def _way_to_all(scene: Scene) -> str:
    """Return as HTML how many are dead in all, and the lines that list them with their tracebacks."""
    dead = scene.snapshot.failures.dead or scene.queue.counts.dead
    if not dead:
        return ""
    asked = scene.snapshot.of_run
    runs = [run for run in scene.runs if run.counts.dead and asked in ("", run.name)]
    # The panel lists a few documents: the lines lead to all of them, also to those of runs that are not listed.
    unlisted = 0 if asked else max(0, scene.queue.failed_runs - sum(run.resting for run in runs))
    if runs:
        lines = failed_lines(runs)
    elif unlisted:
        lines = ["%dq runs"]
    else:
        lines = [f"lab.queue({scene.queue.name!r}).dead()"] if scene.queue.state else []
    unnamed = max(0, len(runs) - NAMED) + unlisted if runs else 0
    more = f" and of {many(unnamed, 'more run')}" if unnamed else ""
    noun = noun_of(dead, "document" if runs or unlisted else "message")
    sentence = (
        f"All {count(dead)} dead {noun}, with tracebacks:" if dead > 1 else f"The dead {noun}, with its traceback:"
    )
    either = f"{codes(lines)}{text(more)} or " if lines else ""
    return f'<div class="way">{text(sentence)} {either}the Failures tab of JupyterLab</div>'


def _documents(documents: tuple[FailingDocument, ...]) -> str:
    if not documents:
        return ""
    heads = (Column("documents that fail most", mono=True), *columns("last error", "pages", "deliveries"))
    rows = tuple(
        (
            Cell(each.key),
            Cell(each.error, Ink.QUIET),
            Cell(count(each.pages)),
            Cell(count(each.deliveries)),
        )
        for each in documents
    )
    return cells("failing", Table(heads, rows))
