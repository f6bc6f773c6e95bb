"""Room `makespan`: heavy-tailed documents, where one slow document must not hold the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from distributed import Client

from benchmarks.figures import Better, Figure, Peer, Series, Target
from benchmarks.harness import Contestant, WrongAnswer, alternate
from benchmarks.sizes import Sizes
from benchmarks.stage import SLOTS, Stage
from benchmarks.work import calibrate, crunch, crunch_all, heavy_tailed_pages

__all__ = ["makespan"]

OVER_IDEAL = Target(floor=1.08, aim=1.03)
DASK_CHUNK = 50
"""Documents in a Dask task: about 80 ms, small enough to share out, large enough to hide Dask's overhead."""

Cruncher = Callable[[list[int]], Sequence[float]]


def makespan(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure the makespan over the ideal one, which each run computes from its own time in functions."""
    page = calibrate()
    todo = [pages * page for pages in heavy_tailed_pages(sizes.documents)]
    queue, pool = stage.lab.queue("documents"), stage.processes

    def mapped(todo: list[int]) -> Sequence[float]:
        run = queue.map(crunch, todo)
        seconds = list(run.results())
        run.drop()
        return seconds

    crunchers: dict[str, Cruncher] = {
        "pool.map": mapped,
        "Pool.imap_unordered, one by one": lambda todo: list(pool.imap_unordered(crunch, todo, chunksize=1)),
        f"client.map, chunks of {DASK_CHUNK}": partial(_dask, stage.dask),
    }
    for work in crunchers.values():
        work(todo[:100])
    contestants = [Contestant(name, partial(_over_ideal, work, todo)) for name, work in crunchers.items()]
    found = alternate(contestants, rounds=sizes.rounds)
    queue.close()
    ours, *theirs = (Peer(name, Series.of(values)) for name, values in found.items())
    name = f"{sizes.documents:,} heavy-tailed documents, makespan over ideal"
    return [Figure(name, "x", Better.LOWER, ours.series, OVER_IDEAL, tuple(theirs))]


def _over_ideal(work: Cruncher, todo: list[int]) -> float:
    start = time.perf_counter()
    seconds = work(todo)
    makespan = time.perf_counter() - start
    if len(seconds) != len(todo):
        raise WrongAnswer(f"{len(seconds):,} results from {len(todo):,} documents")
    return makespan / max(max(seconds), sum(seconds) / SLOTS)


def _dask(client: Client, todo: list[int]) -> list[float]:
    chunks = [todo[at : at + DASK_CHUNK] for at in range(0, len(todo), DASK_CHUNK)]
    return list(chain.from_iterable(client.gather(client.map(crunch_all, chunks, pure=False))))
