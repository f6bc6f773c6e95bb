"""Counts the workers that the backlog needs. Dask does not see our messages, and would close every worker.

Adaptive clusters (`cluster.adapt` of Dask, jobqueue, Kubernetes and others) ask the scheduler how many workers there
should be. With dqlab, the answer counts messages too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from distributed.scheduler import WorkerState

from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.placement import WORKERS_PER_HOST
from dqlab.cluster.scheduler.state import ClusterState
from dqlab.cluster.transport.internals import has_tasks, take_over_adapting

UNKNOWN_S = 0.5
"""Seconds that a message is assumed to take while none has been settled."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The work that waits in one queue."""

    messages: int
    """Ready and leased messages."""
    seconds: float
    """Seconds in functions that they need."""
    consumers: int | None = None
    """Most consumers that the queue may have; None: one on each worker."""


def workers_for(backlogs: Iterable[Backlog], *, threads: int, duration: float, hosts: int) -> int:
    """Return how many workers finish the backlog in `duration` seconds, including those that host queues."""
    # `threads`: of one worker. `hosts`: workers on which shards live now, which must stay.
    serving = 0
    for backlog in backlogs:
        slots = min(backlog.messages, math.ceil(backlog.seconds / duration))
        workers = math.ceil(slots / threads)
        serving += workers if backlog.consumers is None else min(workers, backlog.consumers)
    if serving <= 1:
        return max(serving, hosts)  # one worker can do both
    # One worker in `WORKERS_PER_HOST` hosts queues (see `placement.plan`), and the others serve.
    return serving + max(hosts, -(-serving // (WORKERS_PER_HOST - 1)))


class Elasticity:
    """Answers how many workers there should be, and which are not needed."""

    def __init__(self, state: ClusterState, consumer_sets: ConsumerSets) -> None:
        self._state = state
        self._consumer_sets = consumer_sets

    def start(self) -> None:
        """Begin to answer Dask's question for the number of workers."""
        take_over_adapting(self._state.scheduler, self.target)

    async def target(self, target_duration: Any = None) -> int:
        """Return the number of workers that Dask's tasks or our messages need, plus one for each that is leaving."""
        # Without tasks, do not ask for Dask's own target: for our actors alone, it keeps workers that nobody needs.
        state, scheduler = self._state, self._state.scheduler
        wanted = scheduler.adaptive_target(target_duration=target_duration) if has_tasks(scheduler) else 0
        workers = scheduler.workers
        threads = max(1, round(sum(worker.nthreads for worker in workers.values()) / len(workers))) if workers else 1
        shards = {entry.address for entry in state.entries.values() if entry.is_shard and entry.gone is None}
        ours = workers_for(
            (self._backlog(name) for name in state.queues),
            threads=threads,
            duration=max(1.0, float(target_duration or 5.0)),
            hosts=len(shards),
        )
        return max(wanted, ours) + len(state.leaving & set(workers))

    def idle(self, workers: Iterable[WorkerState]) -> list[WorkerState]:
        """Return the workers that may be closed, which are idle and host no queue."""
        busy = self._state.collector.known.busy()
        kept = {entry.address for entry in self._state.entries.values() if entry.is_shard or entry.name in busy}
        return [worker for worker in workers if worker.address not in kept]

    def _backlog(self, queue: str) -> Backlog:
        messages, seconds = self._state.collector.backlog(queue, UNKNOWN_S)
        return Backlog(messages, seconds, self._consumer_sets.most_of(queue))
