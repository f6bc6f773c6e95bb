"""Draw runs: a table, those that need the user first."""

from __future__ import annotations

from collections import Counter

from dqlab.live.palette import Ink
from dqlab.live.panels.parts import Rows, Stage, text
from dqlab.live.panels.scene import Scene
from dqlab.live.run_rows import run_rows, run_word, speeds_over
from dqlab.live.tables import Cell, Table
from dqlab.numbers import UNKNOWN, count, instant
from dqlab.stats import RunState


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
        # By words, which tell runs that ended with dead documents from others.
        states = {run_word(run)[0]: run.state for run in scene.runs}
        amounts = Counter(run_word(run)[0] for run in scene.runs)
        words = [f"{count(amounts[word])} {word}" for word in sorted(states, key=lambda it: _rank(it, states[it]))]
        if words and scene.unlisted_runs:
            words.append(f"{count(scene.unlisted_runs)} more")
        return ", ".join(words) or "none"

    def facts(self, scene: Scene) -> str:
        """Return what is not listed, and over which time speeds are."""
        if not scene.runs:
            return "<span>Nothing has been mapped here yet</span>"
        over = speeds_over(run_rows(scene.snapshot))
        beyond = max(0, len(scene.runs) - self._stage.rows) + (scene.unlisted_runs or 0)
        words = [f"speed: {over}" if over else "", f"and {count(beyond)} more: %dq runs" if beyond else ""]
        if scene.unlisted_runs is None:
            words.append(f"of the newest {count(len(scene.snapshot.runs))} runs of all queues")
        return "".join(f"<span>{text(word)}</span>" for word in words if word)

    def draw(self, scene: Scene) -> None:
        """Update the rows."""
        stats = {(run.queue, run.name): run for run in scene.runs}
        rows = [row for row in run_rows(scene.snapshot) if (row.queue, row.name) in stats][: self._stage.rows]
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
                Cell(stats[row.queue, row.name].owner or UNKNOWN, Ink.QUIET),
                Cell(instant(row.started, now=at) if row.started else UNKNOWN, Ink.QUIET),
            )
            for row in rows
        )
        self.rows.draw(Table((), cells))


def _rank(word: str, state: RunState) -> tuple[int, bool, str]:
    """Return the place of a word among the words of runs."""
    words = [each.value for each in RunState]
    # A word that is not a state stands behind its state. A run behind a stuck document counts as one that waits.
    return words.index(word if word in words else state.value), word not in words, word
