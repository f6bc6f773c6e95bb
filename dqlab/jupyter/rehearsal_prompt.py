"""A cell that rehearses: whether it does, what the sample says, and the choice to go on."""

from __future__ import annotations

from collections.abc import Callable, Sized

from dqlab.documents import Documents
from dqlab.jupyter.rerun_prompt import can_ask
from dqlab.live.display import Mode, mode, sends_widgets
from dqlab.live.outputs.frontend import has_a_reader
from dqlab.notebook import in_jupyter, shell
from dqlab.runs.run import Run

MANY, SAMPLE = 10_000, 30
"""Documents above which a cell rehearses by itself, and in how many documents."""


def sample_for(rehearse: int | None, documents: object, *, yes: bool) -> int | None:
    """Return how many documents a cell tries first: as its line says, else some where there are many and a reader."""
    if rehearse is not None or yes:
        return rehearse or 0
    return SAMPLE if _are_many(documents) and can_ask() and has_a_reader(shell()) else None


def hint(rehearse: int | None, documents: object, *, yes: bool) -> list[str]:
    """Return how to rehearse, where there are many documents and nobody can be asked."""
    if rehearse is not None or yes or not _are_many(documents):
        return []
    return [f"--rehearse {SAMPLE} tries {SAMPLE} documents first, and says how long all of them take"]


def _are_many(documents: object) -> bool:
    """Return whether an input is known to have many documents, without reading it."""
    if isinstance(documents, Documents):
        return documents._more_than(MANY)
    return isinstance(documents, Sized) and len(documents) > MANY


def asked(run: Run, rate: float | None, say: Callable[[str], None], *, yes: bool) -> bool:
    """Report what the sample of a run says, submit the rest or ask, and return whether its view has buttons."""
    run.rate = rate
    for sentence in run.rehearsal.text(rate).split("\n"):
        say(sentence)
    if yes:
        run.go()
        return False
    live = in_jupyter() and mode() is Mode.LIVE and sends_widgets()
    if not live:
        say(f"    {run.name} waits. --yes    # on this line, or run.go() in Python: submit the rest")
    return live
