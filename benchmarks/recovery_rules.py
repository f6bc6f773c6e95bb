"""The supervisor of a large cluster alone: 1,000 workers and 200 shards that exist only in its books."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from distributed.core import Status

from benchmarks.figures import Better, Figure, Series
from benchmarks.sizes import Sizes
from dqlab.cluster.scheduler.departures import LOOK_EVERY
from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.scheduler.state import Entry
from dqlab.cluster.worker.plugin import BEAT_EVERY

__all__ = ["supervised"]

WORKERS, SHARDS, CONSUMERS = 1_000, 200, 900
SIMULATED_S = 60.0


def supervised(sizes: Sizes) -> Iterator[Figure]:
    """Measure CPU per second of a scheduler that watches over 1,000 workers; messages on the wire are not in it."""
    watching = Series.of([asyncio.run(_round()) for _ in range(sizes.rounds)])
    name = f"{WORKERS:,} workers, {SHARDS} shards, simulated: CPU of watching, in the scheduler"
    yield Figure(name, "ms/s", Better.LOWER, watching)


async def _round() -> float:
    registry = await _registry()
    departures = registry.departures
    hosts = sorted({entry.address for entry in registry.state.entries.values() if entry.is_shard})
    start = time.process_time()
    for step in range(round(SIMULATED_S / LOOK_EVERY)):
        if step % round(BEAT_EVERY / LOOK_EVERY) == 0:
            for host in hosts:
                departures.note_beat(host)
        departures.look(step * LOOK_EVERY)
    used = time.process_time() - start
    await registry.close()
    return 1e3 * used / SIMULATED_S


async def _registry() -> Registry:
    """Return a registry of a cluster that is not there."""
    workers = {f"tcp://10.0.{n >> 8}.{n & 255}:1": f"worker-{n}" for n in range(WORKERS)}
    states = {address: _worker(address, name) for address, name in workers.items()}
    scheduler: Any = SimpleNamespace(workers=states, clients={}, handlers={}, stream_handlers={}, tasks={})
    registry = Registry()
    await registry.start(scheduler)
    plan = registry.state.plan()
    options = {"store": {"directory": "", "sync": "always"}}
    for shard in range(SHARDS):
        queue, address = f"q{shard // 4}", plan.queues[shard % len(plan.queues)]
        _enter(registry, f"queue/{queue}/{shard % 4}", queue, address, (queue, shard % 4, 1, options))
    for n in range(CONSUMERS):
        queue = f"q{n % (SHARDS // 4)}"
        _enter(registry, f"consumer/{queue}/{n}", queue, plan.consumers[n % len(plan.consumers)], ())
    return registry


def _worker(address: str, name: str) -> Any:
    return SimpleNamespace(
        address=address, name=name, nthreads=1, resources={}, status=Status.running, nanny=None, memory_limit=0
    )


def _enter(registry: Registry, name: str, queue: str, address: str, args: tuple[Any, ...]) -> None:
    entry = registry.state.entries[name] = Entry(name, queue, address, f"dq-{name}", 1, args=args)
    entry.made.set()
