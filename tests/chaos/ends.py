"""How runs and puts ended, asked of dqlab at the end in all the ways there are."""

from __future__ import annotations

import time
from typing import Any

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.frame import NO_ID
from dqlab.rules.states import State
from dqlab.runs.failures import DeadLetter
from dqlab.runs.reading.results import open_settlements
from dqlab.stats import Counts
from tests.chaos.functions import ordinal_of, told

__all__ = ["of_puts", "of_run", "results", "states", "stream"]

LOOK_AT_LEAST = 0.5
"""Seconds after which counts are asked again, though the statistics have not changed."""


def states(counts: Counts) -> tuple[int, ...]:
    """Return messages by state, in the order of `State`."""
    return tuple(getattr(counts, state.name.lower()) for state in State)


def of_run(run: dq.Run) -> dict[str, Any]:
    """Return results, as a sequence and as a stream, dead ordinals and counts."""
    return {
        "results": results(run),
        "dead": sorted(_dead(run, letter) for letter in run.failures()),
        "counts": list(run.counts.values()),
        "stream": sorted(stream(run)),
        "rows": _rows(run),
    }


def results(run: dq.Run, timeout: float | None = None) -> list[tuple[int, str]]:
    """Wait for a run; return ordinals and values of what did not fail."""
    return [_one(run, key, value) for key, value in run.results(errors="skip", timeout=timeout).items()]


def stream(run: dq.Run, timeout: float | None = None) -> list[tuple[int, str]]:
    """Return the same as it comes."""
    return [_one(run, key, value) for key, value in run.as_completed(timeout=timeout)]


def _one(run: dq.Run, key: int | str, value: object) -> tuple[int, str]:
    """Return the ordinal that a key stands for, and what is passed on of its value."""
    return ordinal_of(key, run.name), told(value)


def _rows(run: dq.Run) -> list[tuple[int, str]] | None:
    """Return ordinals and values as the files of a run's sink have them; None of a run without one."""
    if run.sink is None:
        return None
    table = run.table().to_arrow()
    names = [name for name in table.column_names if not name.startswith("_")]
    ordinals = table.column("_ordinal").to_pylist()
    return [(ordinal, told(row)) for ordinal, row in zip(ordinals, table.select(names).to_pylist(), strict=True)]


def _dead(run: dq.Run, letter: DeadLetter) -> int:
    """Return the ordinal of a dead letter; -1 where its key is another document's."""
    same = letter.key is None or ordinal_of(letter.key, run.name) == letter.ordinal
    return letter.ordinal if same else -1


def of_puts(lab: dq.Lab, pool: dq.QueuePool, patience: float) -> dict[str, Any]:
    """Wait until a queue holds nothing that waits; return the results of what was put by hand, each time it occurs."""
    deadline, seen = time.monotonic() + patience, lab.stats().seq
    while alive := sum(pool.counts()[state.name.lower()] for state in State if state.alive):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{alive} messages of {pool.name!r} have not ended: {pool.counts()}")
        seen = lab.wait_for_change(seen, timeout=LOOK_AT_LEAST).seq
    found: list[Any] = []
    for shard in range(len(pool)):
        cursor = 0
        while True:
            answer, parts = pool.handle.link.sync(pool.handle.ask(shard, calls.StreamCall(NO_ID, cursor, wait=0.0)))
            found += [(value[1], told(value)) for stretch in open_settlements(parts) for value in stretch.values]
            if answer.cursor == cursor:
                break
            cursor = answer.cursor
    dead = [letter.argument[0][0][1] for letter in pool.dead()]
    return {"results": found, "dead": dead, "counts": list(pool.counts().values())}
