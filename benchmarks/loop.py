"""Room `loop`: rehearsals, their cost and whether their intervals hold; comparisons, how soon they show; updates."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import dqlab as dq
from benchmarks.figures import Better, Figure, Series, Target
from benchmarks.harness import WrongAnswer
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from benchmarks.updates import updates
from dqlab.runs.compare.comparing import compare
from dqlab.testing import Tally

__all__ = ["loop"]

SAMPLE = 30
MEAN = 0.02
"""Seconds of a document of the runs whose end is estimated."""


def double(number: int) -> int:
    """Return in no time."""
    return 2 * number


def loop(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure overhead, repeats and intervals of rehearsals, and the first difference of a comparison."""
    n, runs, documents = (20_000, 10, 600) if sizes.full else (4_000, 2, 150)
    stage.lab.map(double, range(n)).wait().drop()
    over = [_overhead(stage.lab, n) for _ in range(sizes.rounds)]
    held = [_holds(stage.lab, documents, seed) for seed in range(runs)]
    first = [_first_difference(stage.lab, n) for _ in range(sizes.rounds)]
    return [
        Figure(f"{n:,} documents rehearsed first, over at once", "s", Better.LOWER, Series.of(over), Target(1.0, 0.3)),
        Figure("documents that run twice", "documents", Better.LOWER, Series.of([_twice(stage.lab)]), Target(0)),
        Figure(
            f"intervals from {SAMPLE} of {documents} documents that hold the end of {runs} runs",
            "%",
            Better.HIGHER,
            Series.of([100 * sum(held) / runs]),
            Target(80, 90),
        ),
        Figure("first difference of a comparison of 300", "s", Better.LOWER, Series.of(first), Target(2.0, 0.5)),
        *updates(sizes),
    ]


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _overhead(lab: dq.Lab, n: int) -> float:
    def rehearsed() -> None:
        run = lab.map(double, range(n), rehearse=SAMPLE)
        str(run.rehearsal)
        run.go().wait().drop()

    # Next to each other: what else the machine does slows both down.
    return _seconds(rehearsed) - _seconds(lambda: lab.map(double, range(n)).wait().drop())


def _twice(lab: dq.Lab) -> int:
    with tempfile.TemporaryDirectory() as folder:
        seen = Tally(Path(folder), "seen")

        def counted(number: int) -> None:
            seen.add(number)

        run = lab.map(counted, range(500), rehearse=SAMPLE)
        str(run.rehearsal)
        str(run.rehearse(100).rehearsal)
        run.go().wait().drop()
        if len(set(seen.seen())) != 500:
            raise WrongAnswer(f"{len(set(seen.seen()))} of 500 documents ran")
        return len(seen) - 500


def _holds(lab: dq.Lab, n: int, seed: int) -> bool:
    """Return whether the end of a run with a heavy tail is in the interval of its rehearsal."""
    random = Random(seed)
    lasting = [min(1.0, MEAN * random.lognormvariate(-0.32, 0.8)) for _ in range(n)]
    start = time.perf_counter()
    run = lab.map(time.sleep, lasting, rehearse=SAMPLE)
    found = run.rehearsal.estimate()
    took = time.perf_counter() - start
    if found is None:
        raise WrongAnswer("a rehearsal without an estimate")
    took += _seconds(lambda: run.go().wait())
    run.drop()
    return found.seconds.low <= took <= found.seconds.high


def _first_difference(lab: dq.Lab, n: int) -> float:
    run = lab.map(double, range(n)).wait()
    seen: list[float] = []
    start = time.perf_counter()
    found = compare(
        run,
        lambda number: number * 2 + (number % 10 == 0),
        sample=300,
        equal=None,
        score=None,
        noise=0,
        seen=lambda so_far: seen.append(time.perf_counter()) if so_far.changed else None,
    )
    if not found.changed:
        raise WrongAnswer("a comparison without a difference")
    run.drop()
    return seen[0] - start
