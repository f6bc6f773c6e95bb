"""Draw failures: how many deliveries failed in each minute, their classes, and the documents that fail most."""

from __future__ import annotations

from itertools import zip_longest
from math import floor

import numpy as np
from bokeh.models import ColumnDataSource, NumeralTickFormatter

from dqlab.live.next_lines import failed_lines
from dqlab.live.palette import Ink
from dqlab.live.panels.parts import Rows, Stage, code, fill, nice, show, text, times
from dqlab.live.panels.scene import Scene
from dqlab.live.tables import Cell, Table
from dqlab.numbers import count, many, noun_of

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
        self.classes.draw(Table((), rows, total=total if more else ()))
        documents = (
            (Cell(each.key), Cell(each.error, Ink.QUIET), Cell(count(each.pages)), Cell(count(each.deliveries)))
            for each in failures.documents
        )
        self.documents.draw(Table((), tuple(documents)))
