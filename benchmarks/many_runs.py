"""Room `many-runs`: what runs that ended long ago cost the one that goes on; they are kept for their results."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.figures import Better, Figure, Series, Target
from benchmarks.harness import WrongAnswer
from benchmarks.processes import tree_cpu_s
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from dqlab.cluster.shard.actor import QueueActor
from dqlab.cluster.statistics.collector import Collector
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.wire import pack
from dqlab.frame import NO_ID, Frame, Kind
from dqlab.runs.session import queue_options

__all__ = ["many_runs"]

FLAT = Target(floor=1.5, aim=1.1)
ENDED = (10, 1_000, 10_000)
"""Runs that have ended. The first is what the others are compared with."""
AT_ONCE = 50
CODE = {"name": "f", "hash": "v", "short": "v", "source": "", "cell": None, "blob": b""}
LIVE_QUICK = ENDED[:2]
"""On a cluster, in a quick run: making ten thousand takes half a minute."""


def many_runs(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure with few and with many ended runs, in alternation, and compare."""
    figures = asyncio.run(_in_this_process(sizes))
    stage.clear()
    return figures + _on_clusters(stage, sizes, ENDED if sizes.full else LIVE_QUICK)


def _compared(name: str, unit: str, found: dict[int, list[float]]) -> list[Figure]:
    """Return what each number of runs took, and the ratios of the larger ones to the smallest, round by round."""
    base, *more = found
    figures = [Figure(f"{name}, {ended:,} ended runs", unit, Better.LOWER, Series.of(found[ended])) for ended in found]
    for ended in more:
        ratio = Series.of([many / few for many, few in zip(found[ended], found[base], strict=True)])
        figures.append(Figure(f"{name}, {ended:,} over {base}", "x", Better.LOWER, ratio, FLAT))
    return figures


# --- a shard and a collector alone ----------------------------------------------------------


class _Quiet:
    def touch(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class _Hall:
    """A shard with ended runs, and a scheduler's collector that knows of them."""

    def __init__(self, ended: int) -> None:
        self._ended = ended
        options = queue_options(visibility_timeout=None, max_deliveries=None, retry=None, maxsize=None, max_bytes=None)
        self.actor = QueueActor("q", 0, 1, options)
        self.collector = Collector()
        self._puts = 0

    async def begin(self) -> None:
        await self.actor._open()
        self.actor._reporter = _Quiet()  # type: ignore[assignment]
        for number in range(1, self._ended + 1):
            run = number.to_bytes(16, "big")
            self.actor.ledger.obey(
                "open", None, {"open": {"run": run, "record": {"name": f"r{number}", "codes": [CODE]}}}
            )
            self.actor.ledger.obey("seal", None, {"seal": {"run": run, "here": 0, "total": 0}})
        self.actor._dispatch()
        self.collector.take(self.actor.news())

    def put(self) -> None:
        """Let something happen that is dispatched and reported."""
        frame = Frame.encode([b"x"], kind=Kind.VALUE, run=NO_ID, producer=b"p" * 16, sequence=self._puts)
        self.actor.shard.put(Frame.decode(frame))
        self._puts += 1

    def dispatch(self) -> None:
        self.put()
        self.actor._dispatch()

    def report(self) -> None:
        self.put()
        report = self.actor.news()
        if len(report.lanes) > 1:
            raise WrongAnswer(f"{len(report.lanes)} lanes reported")

    def take(self) -> None:
        self.put()
        self.collector.take(self.actor.news())
        self.collector.remember()

    def look(self) -> None:
        self.take()
        self.collector.snapshot()


async def _in_this_process(sizes: Sizes) -> list[Figure]:
    halls = [_Hall(ended) for ended in ENDED]
    for hall in halls:
        await hall.begin()
    steps: dict[str, Callable[[_Hall], None]] = {
        "put and dispatch": _Hall.dispatch,
        "report": _Hall.report,
        "report, taken in and remembered": _Hall.take,
        "the same, and a snapshot": _Hall.look,
    }
    figures: list[Figure] = []
    for name, step in steps.items():
        found: dict[int, list[float]] = {ended: [] for ended in ENDED}
        for _ in range(sizes.rounds):
            for hall, ended in zip(halls, ENDED, strict=True):
                found[ended].append(_mean_us(lambda hall=hall, step=step: step(hall), 3 * sizes.passes))  # type: ignore[misc]
        figures += _compared(name, "µs", found)
    for hall in halls:
        await hall.actor.close(pack({}))
    return figures


def _mean_us(step: Callable[[], Any], passes: int) -> float:
    """Return the median of some passes, microseconds."""
    took = []
    for _ in range(passes):
        start = time.perf_counter()
        step()
        took.append(1e6 * (time.perf_counter() - start))
    return statistics.median(took)


# --- clusters -------------------------------------------------------------------------------


def _on_clusters(stage: Stage, sizes: Sizes, numbers: Sequence[int]) -> list[Figure]:
    """Measure one call and the idle CPU on a cluster for each number of runs, one cluster at a time."""
    calls: dict[int, list[float]] = {ended: [] for ended in numbers}
    idle: dict[int, list[float]] = {ended: [] for ended in numbers}
    naming: dict[int, list[float]] = {ended: [] for ended in numbers}
    for ended in numbers:
        with Stage(stage.say) as own:
            queue = own.lab.queue("many-runs")
            queue.submit(abs, 1).results()
            own.lab.client.sync(_end_runs, queue.handle, ended)
            for _ in range(sizes.rounds):
                took = []
                for number in range(sizes.calls):
                    start = time.perf_counter()
                    if queue.submit(abs, -number).results() != [number]:
                        raise WrongAnswer("another number")
                    took.append(1e3 * (time.perf_counter() - start))
                calls[ended].append(statistics.median(took))
                start = time.perf_counter()
                queue.map(abs, [])
                naming[ended].append(1e3 * (time.perf_counter() - start))
                time.sleep(1.0)
                before, start = tree_cpu_s(os.getpid()), time.perf_counter()
                time.sleep(sizes.idle_s / 2)
                idle[ended].append(100 * (tree_cpu_s(os.getpid()) - before) / (time.perf_counter() - start))
    return [
        *_compared("one call, p50", "ms", calls),
        *_compared("name and start a run", "ms", naming),
        *_compared("idle cluster", "% of a core", idle),
    ]


async def _end_runs(handle: Any, ended: int) -> None:
    """Open and seal so many runs without documents."""

    async def end(number: int) -> None:
        run = number.to_bytes(16, "big")
        record = {"name": f"r-{number}", "codes": [CODE], "client": ""}
        await handle.ask(0, calls.ControlCall({"op": "open", "open": {"run": run, "record": record}}))
        await handle.ask(0, calls.ControlCall({"op": "seal", "seal": {"run": run, "here": 0, "total": 0}}))

    for start in range(0, ended, AT_ONCE):
        await asyncio.gather(*map(end, range(start + 1, min(ended, start + AT_ONCE) + 1)))
