"""A cell that rehearses: whether it does, what the sample says, and the choice to go on."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any

from dqlab.documents import Documents
from dqlab.jupyter.rerun_prompt import can_ask
from dqlab.live.canvases import has_a_reader
from dqlab.live.display import Mode, mode, sends_widgets
from dqlab.notebook import in_jupyter, shell
from dqlab.runs.run import Run
from dqlab.stats import Snapshot
from dqlab.texts import one_line

MANY, LONG, SAMPLE = 10_000, 600.0, 30
"""Documents, and expected seconds, above which a cell rehearses by itself, and in how many documents."""
SHOWN = 3
"""Results of the sample that a cell shows."""


def sample_for(
    rehearse: int | None, documents: object, stats: Callable[[], Snapshot], function: Callable[..., Any], *, yes: bool
) -> int | None:
    """Return how many documents a cell tries first: as its line says, else some where it is long and has a reader."""
    if rehearse is not None or yes:
        return rehearse or 0
    if not (can_ask() and has_a_reader(shell())):
        return None
    return SAMPLE if _are_more(documents, min(MANY, _in_time(stats(), getattr(function, "__name__", "")))) else None


def hint(rehearse: int | None, documents: object, *, yes: bool) -> list[str]:
    """Return how to rehearse, where there are many documents and nobody can be asked."""
    if rehearse is not None or yes or not _are_more(documents, MANY):
        return []
    return [f"--rehearse {SAMPLE} tries {SAMPLE} documents first, and says how long all of them take"]


def _are_more(documents: object, n: int) -> bool:
    """Return whether an input is known to have more than `n` documents, without reading it."""
    if isinstance(documents, Documents):
        return documents._more_than(n)
    return isinstance(documents, Sized) and len(documents) > n


def _in_time(snapshot: Snapshot, name: str) -> int:
    """Return how many documents take not too long, by the last run of a function of that name."""
    # Before a single document ran, nothing else is known of how long one takes.
    known = [run for run in snapshot.runs if run.code.name == name and run.mean_seconds]
    last = max(known, key=lambda run: run.started, default=None)
    consumers = max((queue.consumers for queue in snapshot.queues), default=0)
    return MANY if last is None or not last.mean_seconds else int(LONG * max(1, consumers) / last.mean_seconds)


def asked(run: Run, rate: float | None, say: Callable[[str], None], *, yes: bool) -> bool:
    """Report what the sample of a run says, submit the rest or ask, and return whether its view has buttons."""
    run.rate = rate
    rehearsal = run.rehearsal
    for sentence in rehearsal.text(rate).split("\n"):
        say(sentence)
    if yes:
        run.go()
        return False
    done = [each for each in rehearsal.tried if each.outcome == "done"]
    for each in done[:: max(1, len(done) // SHOWN)][:SHOWN]:  # wrong answers are seen by nobody else
        say(f"    {one_line(repr(each.key), 40)}: {one_line(repr(each.value), 100)}")
    if done:
        say("    right or wrong? run.rehearsal.table has all of them; run.marks.right(KEY) and .wrong(KEY) count")
    live = in_jupyter() and mode() is Mode.LIVE and sends_widgets()
    if not live:
        say(f"    {run.name} waits. --yes    # on this line, or run.go() in Python: submit the rest")
    return live
