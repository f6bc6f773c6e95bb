"""A cell that rehearses: whether it does, what the sample says, and the choice to go on."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any

from dqlab.clock import SystemClock
from dqlab.documents import Documents
from dqlab.jupyter.rerun_prompt import can_ask, offer_choice
from dqlab.live.display import look_again, watch
from dqlab.live.outputs.frontend import has_a_reader
from dqlab.notebook import shell
from dqlab.numbers import many, minute
from dqlab.runs.rehearsal import Rehearsal
from dqlab.runs.run import Run

__all__ = ["asked", "hint", "sample_for"]

MANY, SAMPLE, MORE = 10_000, 30, 100
"""Documents above which a cell rehearses by itself, in how many documents, and in how many at a second try."""


def sample_for(rehearse: int | None, documents: object, *, yes: bool) -> int | None:
    """Return how many documents a cell tries first: as its line says, else some where there are many and a reader."""
    if rehearse is not None or yes:
        return rehearse or 0
    return SAMPLE if _are_many(documents) and can_ask() and has_a_reader(shell()) else None


def hint(rehearse: int | None, documents: object, *, yes: bool) -> str:
    """Return how to rehearse, where there are many documents and nobody can be asked, or ""."""
    if rehearse is not None or yes or not _are_many(documents):
        return ""
    return f"--rehearse {SAMPLE} tries {SAMPLE} documents first, and says how long all of them take"


def _are_many(documents: object) -> bool:
    """Return whether an input is known to have many documents, without reading it."""
    return isinstance(documents, Sized) and not isinstance(documents, Documents) and len(documents) > MANY


def asked(run: Run, rate: float | None, again: Callable[[int], Run], say: Callable[[str], None], *, yes: bool) -> None:
    """Report what the sample of a run says, and submit the rest or offer to do so."""
    rehearsal = run.rehearsal
    sentences = rehearsal.text(rate).split("\n")
    if yes:
        for sentence in sentences:
            say(sentence)
        run.go()
        return
    sentences.append(f"    {run.name} waits. --yes    # on this line, or run.go() in Python: submit the rest")
    offer_choice(Question(run, rate, again, rehearsal), sentences, say)


class Question:
    """The actions for a run that was rehearsed."""

    def __init__(self, run: Run, rate: float | None, again: Callable[[int], Run], rehearsal: Rehearsal) -> None:
        self.run, self._rate, self._again, self._tried = run, rate, again, len(rehearsal.tried)
        self.place: Callable[[Run], Any] = watch

    @property
    def labels(self) -> dict[str, Callable[[], str]]:
        """The actions, which return a report, by the labels of their buttons."""
        more = {f"Rehearse {MORE}": self.rehearse_more} if self._tried < MORE else {}
        return {"Go": self.go, **more, "Cancel": self.cancel}

    def lost_by(self, act: Callable[[], str]) -> str:
        """Return "": no action drops a result."""
        return ""

    def go(self) -> str:
        """Submit the rest, in the view that the cell has of the run, or else in a new one."""
        self.run.go()
        if not look_again(self.run):
            self.place(self.run)
        return f"{self.run.name} went on at {minute(SystemClock().wall())}"

    def rehearse_more(self) -> str:
        """Try more documents, and report again."""
        rehearsal = self._again(MORE).rehearsal
        return f"{rehearsal.text(self._rate)}\n{self.run.name} waits: run.go() submits the rest"

    def cancel(self) -> str:
        """Give up the rest."""
        self.run.cancel()
        return f"{self.run.name}: {many(self._tried, 'document')} of it are done, and the rest was not submitted"
