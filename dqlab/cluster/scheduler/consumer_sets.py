"""The consumers of a queue: sets that follow the cluster, or have a fixed number of consumers.

A consumer whose worker is gone is replaced, under a name that no consumer of the queue has had.
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
from dqlab.cluster.scheduler.placement import NoWorkers, Plan
from dqlab.cluster.scheduler.state import REPLACED_IN, ClusterState, Entry
from dqlab.cluster.transport.errands import WorkerLost
from dqlab.errors import CallTimeout, QueueClosed

__all__ = ["ConsumerSets", "misplaced", "missing"]

logger = logging.getLogger("dqlab.registry")

REPLACEMENT_WAIT = 1.0
"""Seconds that a nanny has to replace a worker before its consumers are made on other workers."""

MISSED_FOR = REPLACED_IN + 1.0
"""Seconds after a worker's death in which it counts as there, and none is made beside a queue that had its own."""

STOPPED_WAIT = 10.0
"""Seconds between two tries to make consumers on a worker that does not answer; each try keeps the set busy."""

UNHURRIED = 3600.0
"""Seconds that a consumer may take for what it has begun when it only lives on the wrong worker."""


@dataclass
class _Set:
    """Consumers of one queue that belong together; `n` None: one on each consumer worker."""

    queue: str
    cls: bytes
    options: dict[str, Any]
    shards: int
    n: int | None
    names: list[str] = field(default_factory=list)
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while consumers are made or retired; it comes after a queue's turn, see `ClusterState.turn`."""
    stopped: bool = False
    """Whether it is going to be fitted once more because a worker did not answer: each cause would add a loop."""


class ConsumerSets:
    """Sets of consumers by id; the set of a queue's own consumers has the queue's name."""

    def __init__(self, state: ClusterState, actors: Actors) -> None:
        self._state = state
        self._actors = actors
        self._sets: dict[str, _Set] = {}
        self._numbers: dict[str, Iterator[int]] = {}

    @property
    def queues(self) -> list[str]:
        """Queues with a set that has a consumer on each consumer worker, sorted."""
        return sorted({one.queue for one in self._sets.values() if one.n is None})

    def most_of(self, queue: str) -> int | None:
        """Return how many consumers a queue's sets have together; None: one on each worker."""
        numbers = [one.n for one in self._sets.values() if one.queue == queue]
        return None if None in numbers else sum(n for n in numbers if n is not None)

    async def serve(
        self, queue: str, cls: bytes, options: dict[str, Any], n: int | None = None, set_id: str | None = None
    ) -> list[str]:
        """Make a set of consumers, unless it exists; return their names.

        Parameters
        ----------
        n : int, optional
            How many, spread over the consumer workers. None: one on each, also on workers that join later.
        set_id : str, optional
            Id of the set. Default: the queue's name.
        """
        async with self._state.turn(queue):  # until it is open it has no shards, and a consumer that finds none ends
            if queue not in self._state.queues:
                raise QueueClosed(queue=queue)
            shards = self._state.queues[queue].shards
        if n is not None and not (self._state.plan().consumers or self._state.missing):
            raise NoWorkers(queue=queue)
        one = self._sets.setdefault(set_id or queue, _Set(queue, cls, options, shards, n))
        await self._fit(one)
        return one.names

    async def scale(self, set_id: str, n: int | None) -> list[str] | None:
        """Scale a set to `n` consumers, or to one on each consumer worker; return None if there is no such set."""
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
        """End a set and retire its consumers; return the packed last totals of those that answered."""
        one = self._sets.pop(set_id, None)
        if one is None:
            return {}
        async with one.busy:
            return await self._actors.retire(one.names)

    def forget_queue(self, queue: str) -> None:
        """End all sets of a closed queue; the caller retires their consumers."""
        for id in [id for id, one in self._sets.items() if one.queue == queue]:
            del self._sets[id]

    def worker_came(self) -> None:
        """Fit all sets to the cluster: a worker joined."""
        for one in list(self._sets.values()):
            self._state.in_background(self._fit(one))

    def worker_left(self, dead: Collection[str]) -> None:
        """Replace consumers whose worker is gone, after a short wait: on the worker's replacement, if one comes."""
        for one in self._sets.values():
            if self._drop(one, dead):
                self._state.in_background(self._fit_later(one))

    def worker_missed(self) -> None:
        """Fit all sets to the cluster when a worker that died is expected back no longer."""
        self._state.in_background(self._fit_all_later())

    async def _fit_all_later(self) -> None:
        await asyncio.sleep(MISSED_FOR)
        self.worker_came()

    async def leave(self, addresses: Collection[str]) -> None:
        """Retire the consumers of workers that are about to leave, and replace them where needed."""
        entries = self._state.entries
        for one in list(self._sets.values()):
            async with one.busy:
                leaving = [name for name in one.names if name in entries and entries[name].address in addresses]
                self._drop(one, leaving)
                await self._actors.retire(leaving)
            await self._fit(one)

    async def wind_down(self, address: str, patience: float) -> None:
        """Retire the consumers of a worker that leaves in `patience` seconds; they finish what they have begun.

        Replacements are made at once where they are needed.
        """
        entries, going = self._state.entries, []
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
        """Make the consumers that a set is missing; retire surplus ones, newest first.

        In a set that follows the cluster, consumers on workers kept for queues are misplaced: it has grown, or a
        queue had to go there. They finish what they have begun.
        """
        async with one.busy:
            if one not in self._sets.values():
                return  # it has ended
            # No await between the look at the names and the drop: `worker_left` changes them without the lock.
            entries = self._state.entries
            here = [entries[name].address for name in one.names if name in entries]
            where = missing(one.n, self._state.plan().consumers, here)
            surplus = one.names[one.n :] if one.n is not None else doubled(one.names, entries)
            leaving = misplaced(one.names, entries, self._state.plan()) if one.n is None else []
            self._drop(one, [*surplus, *leaving])
            if leaving:
                self._state.in_background(self._actors.wind_down(leaving, UNHURRIED))
            made = await asyncio.gather(*(self._make(one, address) for address in where), return_exceptions=True)
            await self._actors.retire(surplus)
        errors = [answer for answer in made if isinstance(answer, BaseException)]
        if any(isinstance(error, WorkerLost) for error in errors):
            self._state.in_background(self._fit_later(one))
        if any(isinstance(error, CallTimeout) for error in errors) and not one.stopped:
            one.stopped = True
            self._state.in_background(self._fit_beside_stopped(one))
        # A worker that is stopped costs its own consumer; the others go on serving the queue.
        expected = (WorkerLost, QueueClosed, CallTimeout) if one.names else (WorkerLost, QueueClosed)
        for error in errors:
            if not isinstance(error, expected):
                raise error

    async def _make(self, one: _Set, address: str) -> None:
        if one not in self._sets.values():
            raise QueueClosed(queue=one.queue)  # it was closed, and another one may have its name by now
        name = f"consumer/{one.queue}/{next(self._numbers.setdefault(one.queue, count()))}"
        await self._actors.spawn(name, one.queue, address, one.cls, (name, one.queue, one.shards, one.options))
        if name in self._state.entries:  # else its worker has died already
            one.names.append(name)


def misplaced(names: Iterable[str], entries: Mapping[str, Entry], plan: Plan) -> list[str]:
    """Return the consumers that live on workers kept for queues, where there are others for consumers."""
    kept = set(plan.queues) - set(plan.consumers) if plan.consumers else set()
    return [name for name in names if name in entries and entries[name].address in kept]


def doubled(names: Iterable[str], entries: Mapping[str, Entry]) -> list[str]:
    """Return the consumers whose worker already has an older consumer of their set."""
    first: dict[str, str] = {}
    known = [name for name in names if name in entries]
    return [name for name in known if first.setdefault(entries[name].address, name) != name]


def missing(n: int | None, addresses: Sequence[str], here: Iterable[str]) -> list[str]:
    """Return where to make consumers: on each worker without one, or on the emptiest until there are `n`."""
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
