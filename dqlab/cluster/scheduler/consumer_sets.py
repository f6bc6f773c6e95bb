"""Keeps the sets of consumers of each queue: one consumer on each worker, or a fixed number.

A consumer is replaced when its worker is gone, under a name that no consumer of the queue has had.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.state import REPLACED_IN, ClusterState, Entry, NoWorkers, Plan
from dqlab.cluster.transport.internals import WorkerLost
from dqlab.errors import CallTimeout, QueueClosed

logger = logging.getLogger("dqlab.registry")

REPLACEMENT_WAIT = 1.0
"""Seconds that a nanny has to replace a worker before its consumers are made on other workers."""

MISSED_FOR = REPLACED_IN + 1.0
"""Seconds after a worker's death in which it counts as present, and no consumer is made on a queue's own worker."""

STOPPED_WAIT = 10.0
"""Seconds between two tries to make consumers on a worker that does not answer; each try keeps the set busy."""

UNHURRIED = 3600.0
"""Seconds that a consumer on the wrong worker may take to finish what it has begun."""


@dataclass
class _Set:
    """Consumers of one queue that are scaled and retired together."""

    queue: str
    cls: bytes
    options: dict[str, Any]
    shards: int
    n: int | None
    """How many; None: one on each consumer worker."""
    names: list[str] = field(default_factory=list)
    """Oldest first."""
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while consumers are made or retired. Acquire it after a queue's turn, never before: `ClusterState.turn`."""
    stopped: bool = False
    """Whether a retry for a worker that did not answer is scheduled. Else each fit would start another loop of them."""


class ConsumerSets:
    """Keeps sets of consumers by id, which is the queue's name for the queue's own consumers."""

    def __init__(self, state: ClusterState, actors: Actors) -> None:
        self._state = state
        self._actors = actors
        self._sets: dict[str, _Set] = {}
        self._numbers: dict[str, Iterator[int]] = {}

    def most_of(self, queue: str) -> int | None:
        """Return how many consumers a queue's sets have together, None for one on each worker."""
        numbers = [one.n for one in self._sets.values() if one.queue == queue]
        return None if None in numbers else sum(n for n in numbers if n is not None)

    async def serve(
        self, queue: str, cls: bytes, options: dict[str, Any], n: int | None = None, set_id: str | None = None
    ) -> list[str]:
        """Make a set unless it exists, and return the names of its consumers."""
        # Wait until the queue is open: before that it has no shards, and a consumer that finds none ends.
        async with self._state.turn(queue):
            if queue not in self._state.queues:
                raise QueueClosed(queue=queue)
            shards = self._state.queues[queue].shards
        if n is not None and not (self._state.plan().consumers or self._state.missing):
            raise NoWorkers(queue=queue)
        # No await since the check that the queue is open: closing it forgets its sets, and must not miss this one.
        one = self._sets.setdefault(set_id or queue, _Set(queue, cls, options, shards, n))
        await self._fit(one)
        return one.names

    async def scale(self, set_id: str, n: int | None) -> list[str] | None:
        """Scale a set to `n` consumers, or one on each consumer worker, and return None if the set does not exist."""
        one = self._sets.get(set_id)
        if one is None:
            return None
        one.n = n
        await self._fit(one)
        return one.names

    async def consumers(self, set_id: str) -> list[str]:
        """Return the names of a set's consumers, oldest first."""
        one = self._sets.get(set_id)
        return [] if one is None else one.names

    async def retire(self, set_id: str) -> dict[str, Any]:
        """End a set, retire its consumers, and return the packed last totals of those that answered."""
        one = self._sets.pop(set_id, None)  # before waiting: a fit that is under way stops making consumers
        if one is None:
            return {}
        async with one.busy:
            return await self._actors.retire(one.names)

    def forget_queue(self, queue: str) -> None:
        """End all sets of a closed queue without retiring their consumers, which the caller does."""
        for id in [id for id, one in self._sets.items() if one.queue == queue]:
            del self._sets[id]

    def worker_came(self) -> None:
        """Fit all sets to a cluster that a worker has joined."""
        for one in list(self._sets.values()):
            self._state.in_background(self._fit(one))

    def worker_left(self, dead: Collection[str]) -> None:
        """Replace dead consumers after a short wait, in which a nanny may replace their worker."""
        for one in self._sets.values():
            if self._drop(one, dead):
                self._state.in_background(self._fit_later(one))

    def worker_missed(self) -> None:
        """Fit all sets to the cluster once a worker that died is no longer expected back."""
        self._state.in_background(self._fit_all_later())

    async def _fit_all_later(self) -> None:
        await asyncio.sleep(MISSED_FOR)
        self.worker_came()

    async def leave(self, addresses: Collection[str]) -> None:
        """Retire the consumers of workers that are about to leave, and replace them."""
        entries = self._state.entries
        for one in list(self._sets.values()):
            async with one.busy:
                leaving = [name for name in one.names if name in entries and entries[name].address in addresses]
                self._drop(one, leaving)
                await self._actors.retire(leaving)
            await self._fit(one)

    async def wind_down(self, address: str, patience: float) -> None:
        """Let the consumers of a worker finish what they have begun within `patience` seconds, and replace them now."""
        entries, going = self._state.entries, []
        # Without the sets' locks: winding down may take the whole patience, and would keep the sets busy.
        for one in list(self._sets.values()):
            leaving = [name for name in one.names if name in entries and entries[name].address == address]
            self._drop(one, leaving)
            going += leaving
            self._state.in_background(self._fit(one))
        await self._actors.wind_down(going, patience)

    @staticmethod
    def _drop(one: _Set, names: Collection[str]) -> bool:
        had = len(one.names)
        one.names = [name for name in one.names if name not in names]
        return len(one.names) < had

    async def _fit_later(self, one: _Set) -> None:
        await asyncio.sleep(REPLACEMENT_WAIT)
        await self._fit(one)

    async def _fit_beside_stopped(self, one: _Set) -> None:
        await asyncio.sleep(STOPPED_WAIT)
        one.stopped = False
        await self._fit(one)

    async def _fit(self, one: _Set) -> None:
        """Make the consumers that a set is missing, and retire surplus and misplaced ones."""
        async with one.busy:
            if one not in self._sets.values():
                return  # it has ended
            # No await between reading `names` and `_drop`: `worker_left` changes `names` without the lock.
            entries = self._state.entries
            here = [entries[name].address for name in one.names if name in entries]
            where = missing(one.n, self._state.plan().consumers, here)
            surplus = one.names[one.n :] if one.n is not None else doubled(one.names, entries)
            leaving = misplaced(one.names, entries, self._state.plan()) if one.n is None else []
            self._drop(one, [*surplus, *leaving])
            if leaving:  # in the background: winding down may take an hour, and would keep the set busy
                self._state.in_background(self._actors.wind_down(leaving, UNHURRIED))
            made = await asyncio.gather(*(self._make(one, address) for address in where), return_exceptions=True)
            await self._actors.retire(surplus)
        errors = [answer for answer in made if isinstance(answer, BaseException)]
        if any(isinstance(error, WorkerLost) for error in errors):
            self._state.in_background(self._fit_later(one))
        if any(isinstance(error, CallTimeout) for error in errors) and not one.stopped:
            one.stopped = True
            self._state.in_background(self._fit_beside_stopped(one))
        # A stopped worker costs only its own consumer. With others serving the queue, that is no error for the caller.
        expected = (WorkerLost, QueueClosed, CallTimeout) if one.names else (WorkerLost, QueueClosed)
        for error in errors:
            if not isinstance(error, expected):
                raise error

    async def _make(self, one: _Set, address: str) -> None:
        if one not in self._sets.values():
            raise QueueClosed(queue=one.queue)  # a new queue may have its name by now, and `spawn` would not notice
        name = f"consumer/{one.queue}/{next(self._numbers.setdefault(one.queue, count()))}"
        await self._actors.spawn(name, one.queue, address, one.cls, (name, one.queue, one.shards, one.options))
        if name in self._state.entries:  # else its worker has died already
            one.names.append(name)


def misplaced(names: Iterable[str], entries: Mapping[str, Entry], plan: Plan) -> list[str]:
    """Return the consumers on workers kept for queues, if other workers are for consumers."""
    # They got there while the cluster was smaller, or a queue had to move to their worker.
    kept = set(plan.queues) - set(plan.consumers) if plan.consumers else set()
    return [name for name in names if name in entries and entries[name].address in kept]


def doubled(names: Iterable[str], entries: Mapping[str, Entry]) -> list[str]:
    """Return the consumers whose worker already has an older consumer of their set."""
    first: dict[str, str] = {}
    known = [name for name in names if name in entries]
    return [name for name in known if first.setdefault(entries[name].address, name) != name]


def missing(n: int | None, addresses: Sequence[str], here: Iterable[str]) -> list[str]:
    """Return where to make consumers, on each worker without one, or on the emptiest until there are `n`."""
    held = Counter(dict.fromkeys(addresses, 0))
    held.update(address for address in here)
    if n is None:
        return [address for address in addresses if not held[address]]
    found: list[str] = []
    for _ in range(n - held.total() if addresses else 0):
        emptiest = min(addresses, key=held.__getitem__)
        held[emptiest] += 1
        found.append(emptiest)
    return found
