"""Room `latency`: one call on an idle system, from submit to its result."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Better, Figure, Peer, Series, Target
from benchmarks.harness import Contestant, WrongAnswer, alternate
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage

__all__ = ["latency"]

P50 = Target(floor=5.0, aim=2.0)
WARM = 50
"""Calls before those that count."""


def latency(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure p50 and p95 of blocks of calls, one after another, in alternation with Dask's.

    Each block has its own cluster and no other runs meanwhile: one that idles beside it wakes hundreds of times a
    second, and the system would not be idle.
    """
    stage.clear()

    def on_dqlab() -> list[float]:
        with Stage(stage.say) as own:
            queue = own.lab.queue("latency")
            return _warm_times(sizes.calls, lambda x: queue.submit(abs, x).results()[0])

    def on_dask() -> list[float]:
        with Stage(stage.say) as own:
            dask = own.dask
            return _warm_times(sizes.calls, lambda x: dask.submit(abs, x, pure=False).result())

    found = alternate([Contestant("pool.submit", on_dqlab), Contestant("client.submit", on_dask)], rounds=sizes.rounds)
    figures = []
    for percent, target in ((50, P50), (95, None)):
        ours, theirs = (Series.of([_percentile(block, percent) for block in blocks]) for blocks in found.values())
        name = f"one call, idle system, p{percent} of {sizes.calls}"
        figures.append(Figure(name, "ms", Better.LOWER, ours, target, (Peer("client.submit", theirs),)))
    return figures


def _warm_times(calls: int, call: Callable[[int], Any]) -> list[float]:
    _times(WARM, call)
    return _times(calls, call)


def _times(calls: int, call: Callable[[int], Any]) -> list[float]:
    """Return what each of `calls` calls took, milliseconds."""
    took = []
    for number in range(calls):
        start = time.perf_counter()
        answer = call(-number)
        took.append((time.perf_counter() - start) * 1e3)
        if answer != number:
            raise WrongAnswer(f"{answer!r} instead of {number}")
    return took


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
