"""State that the scheduler's parts share: registered actors, open queues, and which workers may host what.

Everything here lives on the scheduler's event loop. State read and changed with no `await` between cannot change
meanwhile; the parts rely on that, and say where.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from distributed import Scheduler
from distributed.scheduler import WorkerState

from dqlab import numbers
from dqlab.cluster.scheduler.placement import Host, Plan, plan
from dqlab.cluster.statistics.collector import Collector
from dqlab.cluster.transport.internals import is_leaving, memory_at_its_kill

__all__ = ["REPLACED_IN", "ClusterState", "Entry", "OpenQueue"]

logger = logging.getLogger("dqlab.registry")

MOST_LIMITS = 10_000
REPLACED_IN = 30.0
"""Seconds in which a nanny has replaced a worker that died, also on a machine that is busy or loads over a network."""


@dataclass
class Entry:
    """One registered actor. `gone` is why it no longer answers, and never will."""

    name: str
    queue: str
    address: str
    key: str
    epoch: int
    host: str = ""
    """Name of its worker."""
    sealed: bytes = b""
    args: tuple[Any, ...] = ()
    """The pickled class of the actor, and its arguments."""
    gone: str | None = None
    last: str = ""
    """Address of the worker of its last epoch."""
    left: float = 0.0
    """When that epoch ended, seconds of the event loop."""
    failure: str = ""
    """Why its log failed when last open, or could not be opened since."""
    failed_epoch: int = -1
    """Epoch of the log when it failed."""
    failures: int = 0
    """How often it has failed in a row, less than a minute apart."""
    deaths: int = 0
    """How many of its workers have died in a row, each less than a minute after the shard was made there."""
    stood: float = 0.0
    """Since when it has been made, seconds of the event loop."""
    asked: bool = False
    """Its worker is making it now."""
    made: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its start has succeeded or failed: an actor that is still being made is neither closed nor called."""

    @property
    def is_shard(self) -> bool:
        """Whether it is a shard, which is recreated when its worker is gone."""
        return self.name.startswith("queue/")

    @property
    def durable(self) -> bool:
        """Whether it is a shard with a log."""
        return self.is_shard and "store" in self.args[3]

    async def standing(self, timeout: float) -> bool:
        """Wait until it is made, for at most `timeout` seconds; return whether it is.

        Do not await between the last check and the answer: its worker may die in between.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self.made.is_set():
                    await self.made.wait()
        return self.made.is_set()


@dataclass(frozen=True, slots=True)
class OpenQueue:
    """A queue that is open, or being opened."""

    shards: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def store(self) -> dict[str, Any] | None:
        """Where its logs are and how they are kept; None for a queue in memory."""
        return self.options.get("store")

    def to_dict(self) -> dict[str, Any]:
        """Return what clients get."""
        return {"shards": self.shards, "options": self.options}


class ClusterState:
    """State of one cluster, as the scheduler's parts see it.

    Parameters
    ----------
    collector : Collector
        What actors reported last.
    reserved : collection of str
        Names of workers that host queues only.

    Attributes
    ----------
    entries : dict of str to Entry
        Registered actors, by name.
    queues : dict of str to OpenQueue
        By name.
    leaving : set of str
        Addresses of workers that get no new actors.
    away : set of str
        Clients that left and may come back.
    """

    def __init__(self, scheduler: Scheduler, collector: Collector, reserved: Collection[str] = ()) -> None:
        self.scheduler = scheduler
        self.collector = collector
        self.reserved = reserved
        self.entries: dict[str, Entry] = {}
        self.queues: dict[str, OpenQueue] = {}
        self.leaving: set[str] = set()
        self.away: set[str] = set()
        self._with_nanny: set[str] = set()
        """Addresses of workers that are replaced when they die."""
        self._lost: deque[float] = deque()
        """When workers left that have not been replaced, seconds of the event loop."""
        self._limits: dict[str, int] = {}
        """Memory limits of workers in bytes, including some that are gone."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Cancel what runs in the background."""
        for task in self._tasks:
            task.cancel()

    def of(self, queue: str) -> list[Entry]:
        """Return the actors of a queue."""
        return [entry for entry in self.entries.values() if entry.queue == queue]

    def clients(self) -> list[str]:
        """Return the clients that are connected, or were a moment ago."""
        return list(self.away.union(self.scheduler.clients))

    # --- workers ------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return which workers host queues, and which host consumers."""
        used = {entry.address for entry in self.entries.values() if entry.is_shard and entry.gone is None}
        hosts = [
            Host(ws.address, str(ws.name), ws.nthreads, dict(ws.resources), ws.address in used)
            for ws in self._staying()
        ]
        return plan(hosts, self.reserved, self.missing)

    def addresses_of(self, host: str) -> list[str]:
        """Return the addresses of the workers of that name, at most one, that are not about to leave."""
        return [state.address for state in self._staying() if str(state.name) == host]

    def host_of(self, address: str) -> str:
        """Return the name of a worker; "" when it is gone."""
        state = self.scheduler.workers.get(address)
        return "" if state is None else str(state.name)

    def _staying(self) -> list[WorkerState]:
        return [
            state
            for address, state in self.scheduler.workers.items()
            if address not in self.leaving and not is_leaving(state)
        ]

    def note_came(self, worker: str) -> None:
        """Note that a worker joined, perhaps in place of one that died."""
        if self.scheduler.workers[worker].nanny:
            self._with_nanny.add(worker)
        if self._lost:
            self._lost.popleft()

    def note_left(self, worker: str) -> bool:
        """Note that a worker is gone; return whether its replacement is expected, for `REPLACED_IN` seconds.

        It is if the worker has a nanny and was not to leave.
        """
        if worker not in self._with_nanny:
            return False
        self._with_nanny.discard(worker)
        if worker in self.leaving:
            return False
        self._lost.append(asyncio.get_running_loop().time())
        return True

    @property
    def missing(self) -> int:
        """How many workers died a moment ago and have not been replaced."""
        since = asyncio.get_running_loop().time() - REPLACED_IN
        while self._lost and self._lost[0] <= since:
            self._lost.popleft()
        return len(self._lost)

    def note_limit(self, worker: str) -> None:
        """Record a worker's memory limit: Dask has forgotten it by the time the cause of its death is needed."""
        self._limits[worker] = self.scheduler.workers[worker].memory_limit
        if len(self._limits) > MOST_LIMITS:
            del self._limits[next(iter(self._limits))]

    def why_gone(self, worker: str) -> str:
        """Return why a worker died, "" if that is not known."""
        used, limit = memory_at_its_kill(self.scheduler, worker), self._limits.get(worker)
        if used is None:
            return ""
        of = f" of {numbers.size(limit)}" if limit else ""
        return f"its worker was killed when it had taken {numbers.size(used)}{of} of memory"

    # --- what runs at the same time -------------------------------------------------------------

    def turn(self, queue: str) -> asyncio.Lock:
        """Return the lock for opening or closing a queue of that name.

        Acquire it first: with it held, a set of consumers may be locked (`busy` of `ConsumerSets`), never the reverse.
        """
        return self._turns.setdefault(queue, asyncio.Lock())

    def in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in the background; log what it raises."""
        task = asyncio.get_running_loop().create_task(work, name="dqlab-registry")
        self._tasks.add(task)  # the event loop alone would not keep it
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.warning("event=background_failed %r", task.exception())
