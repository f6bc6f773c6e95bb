"""Keeps the state that the scheduler's parts share: registered actors, open queues, and workers.

All of it lives on the scheduler's event loop. Between two awaits, no other part can change it: code that relies on this
has a comment "No await".

`plan` chooses the workers that host queues and those that host consumers. A worker that runs users' functions cannot
promise to answer: C code that holds the GIL stalls its event loop for seconds. So queues get workers of their own where
there are enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from distributed import Scheduler
from distributed.scheduler import WorkerState

from dqlab import numbers
from dqlab.cluster.statistics.collector import Collector
from dqlab.cluster.transport.internals import is_leaving, is_paused, memory_at_its_kill
from dqlab.errors import DqlabError
from dqlab.store.directories import private_directory

QUEUE_RESOURCE = "dq-queue"
"""Workers started with this Dask resource host queues first."""
WORKERS_PER_HOST = 16
"""One of this many workers is kept for queues."""


@dataclass(frozen=True, slots=True)
class Host:
    """A worker as the scheduler sees it."""

    address: str
    name: str
    slots: int
    resources: Mapping[str, float] = field(default_factory=dict)
    hosting: bool = False
    """Whether a shard lives there."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Addresses of workers for queues and for consumers."""

    queues: tuple[str, ...]
    consumers: tuple[str, ...]
    shared: bool = False
    """Whether one worker hosts both."""


def plan(hosts: Sequence[Host], reserved: Collection[str] = (), missing: int = 0) -> Plan:
    """Split the workers that run now between queues and consumers."""
    # Workers with the resource come first, then those where a queue lives, so that a new worker moves no queue.
    ranked = sorted(
        hosts,
        key=lambda host: (
            QUEUE_RESOURCE not in host.resources,
            not host.hosting,
            bool(host.resources.keys() - {QUEUE_RESOURCE}),  # only they can run what needs their resources
            host.slots,
            host.name,
            host.address,
        ),
    )
    # An embedded cluster reserves workers by name: a nanny's replacement has another address and the same name.
    named = [host.address for host in ranked if host.name in reserved]
    if named:
        return Plan(tuple(named), tuple(host.address for host in ranked if host.address not in named))
    everyone = tuple(host.address for host in ranked)
    # Count workers that died a moment ago, and may be replaced soon. Else consumers would be made beside the queues
    # until then, and the document that killed those workers would kill the queues next.
    usual = len(ranked) + missing
    if usual <= 2:
        return Plan(everyone[:1], everyone, shared=bool(ranked))
    kept = -(-usual // WORKERS_PER_HOST)
    return Plan(everyone[:kept], everyone[kept:])


class NoWorkers(DqlabError):
    """The cluster has no worker to put a queue or a consumer on."""

    text = "the cluster has no worker for queue {queue!r}. Nothing was made. Scale the cluster up, then call again."


logger = logging.getLogger("dqlab.registry")

MOST_LIMITS = 10_000
REPLACED_IN = 30.0
"""Seconds within which a nanny replaces a worker that died, even on a busy machine or one that loads over a network."""


@dataclass
class Entry:
    """One registered actor."""

    name: str
    queue: str
    address: str
    key: str
    epoch: int
    host: str = ""
    """Name of its worker."""
    machine: str = ""
    """Where its worker runs, as Dask has it: "" if unknown."""
    sealed: bytes = b""
    """The pickled class of the actor; empty: ConsumerActor."""
    args: tuple[Any, ...] = ()
    opening: str = ""
    """Which queue of that name it belongs to; "" for a durable one."""
    gone: str | None = None
    """Why it never answers again; None: it does, or will once it is made."""
    without_files: bool = False
    """Whether that is because the log of a durable queue was deleted or moved."""
    last: str = ""
    """Address of the worker of its previous epoch."""
    left: float = 0.0
    """When that epoch ended, in seconds of the event loop."""
    failure: str = ""
    """Why its log failed, or could not be opened since; "" for a log in order."""
    failed_epoch: int = -1
    """Epoch of the log when it failed last."""
    failures: int = 0
    """How often the log has failed in a row, less than a minute apart."""
    deaths: int = 0
    """How many of its workers have died in a row, each less than a minute after the shard was made there."""
    stood: float = 0.0
    """When it was made last, in seconds of the event loop."""
    asked: bool = False
    """Whether its worker is making it now."""
    made: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once its start has succeeded or failed. Before that, it is neither closed nor called."""

    @property
    def is_shard(self) -> bool:
        """Whether it is a shard, not a consumer."""
        return self.name.startswith("queue/")

    @property
    def durable(self) -> bool:
        """Whether it is a shard with a log in a store."""
        return self.is_shard and "store" in self.args[3]

    @property
    def reads(self) -> bool:
        """Whether it is a shard whose log may be long."""
        return self.durable or (self.is_shard and self.epoch > 1)

    async def standing(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until it is made, and return whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self.made.is_set():  # a worker's death may clear it before this waiter runs
                    await self.made.wait()
        # No await before the answer: its worker may die in between.
        return self.made.is_set()


@dataclass(frozen=True, slots=True)
class OpenQueue:
    """A queue that is open, or being opened."""

    shards: int
    options: dict[str, Any] = field(default_factory=dict)
    opening: str = ""
    """Distinguishes a transient queue from others that were open under its name."""

    @property
    def store(self) -> dict[str, Any] | None:
        """Directory and options of its logs, None for a transient queue."""
        return self.options.get("store")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that clients get."""
        return {"shards": self.shards, "options": self.options, "opening": self.opening}


class ClusterState:
    """State of one cluster, as the scheduler's parts see it."""

    def __init__(
        self, scheduler: Scheduler, collector: Collector, reserved: Collection[str] = (), shared: str = ""
    ) -> None:
        self.scheduler = scheduler
        self.collector = collector
        self.reserved = reserved
        """Names of workers that host queues only."""
        self.shared = shared
        """A directory that all workers see, for the logs of transient queues; "" for one on each machine."""
        self.entries: dict[str, Entry] = {}
        """Registered actors by name."""
        self.queues: dict[str, OpenQueue] = {}
        self.leaving: set[str] = set()
        """Addresses of workers that get no new actors."""
        self.away: set[str] = set()
        """Clients that left and may come back."""
        self._with_nanny: set[str] = set()
        """Addresses of workers that a nanny replaces when they die."""
        self._lost: deque[float] = deque()
        """When each worker died that has not been replaced, in seconds of the event loop."""
        self._limits: dict[str, int] = {}
        """Memory limits of workers in bytes, including workers that are gone."""
        # Weak: a queue's lock lives as long as somebody holds it or waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Cancel the background tasks."""
        for task in self._tasks:
            task.cancel()

    def of(self, queue: str) -> list[Entry]:
        """Return the actors of a queue."""
        return [entry for entry in self.entries.values() if entry.queue == queue]

    def clients(self) -> list[str]:
        """Return the clients that are connected or may come back."""
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

    @property
    def scratch(self) -> str:
        """Where the logs of transient queues are, see `log_directory`."""
        cluster = str(self.scheduler.id)
        return str(private_directory(self.shared) / cluster) if self.shared else cluster

    def hosts_for(self, shard: Entry) -> Sequence[str]:
        """Return the workers that can open a shard's log, those that host queues first."""
        hosts = self.plan().queues
        if shard.durable or self.shared:
            return hosts
        beside = [worker.address for worker in self._staying() if worker.host == shard.machine]
        return [address for address in hosts if address in beside] or beside

    def addresses_of(self, host: str) -> list[str]:
        """Return the address of the worker of a name as a list, empty if it is gone or about to leave."""
        return [state.address for state in self._staying() if str(state.name) == host]

    def machine_of(self, address: str) -> str:
        """Return where a worker runs, "" if it is gone."""
        state = self.scheduler.workers.get(address)
        return "" if state is None else str(state.host)

    def host_of(self, address: str) -> str:
        """Return the name of a worker, "" if it is gone."""
        state = self.scheduler.workers.get(address)
        return "" if state is None else str(state.name)

    def _staying(self) -> list[WorkerState]:
        return [
            state
            for address, state in self.scheduler.workers.items()
            if address not in self.leaving and not is_leaving(state)
        ]

    def note_came(self, worker: str) -> None:
        """Note that a worker joined, perhaps as the replacement of one that died."""
        if self.scheduler.workers[worker].nanny:
            self._with_nanny.add(worker)
        if self._lost:
            self._lost.popleft()

    def note_left(self, worker: str) -> bool:
        """Note that a worker is gone, and return whether its nanny is expected to replace it."""
        if worker not in self._with_nanny:
            return False
        self._with_nanny.discard(worker)
        if worker in self.leaving:
            return False
        self._lost.append(asyncio.get_running_loop().time())
        return True

    @property
    def missing(self) -> int:
        """Number of workers that died in the last `REPLACED_IN` seconds and have not been replaced."""
        since = asyncio.get_running_loop().time() - REPLACED_IN
        while self._lost and self._lost[0] <= since:
            self._lost.popleft()
        return len(self._lost)

    def note_limit(self, worker: str) -> None:
        """Record a worker's memory limit."""
        # Dask has forgotten the limit by the time `why_gone` needs it.
        self._limits[worker] = self.scheduler.workers[worker].memory_limit
        if len(self._limits) > MOST_LIMITS:
            del self._limits[next(iter(self._limits))]

    def why_gone(self, worker: str) -> str:
        """Return why a worker died, "" if unknown."""
        used, limit = memory_at_its_kill(self.scheduler, worker), self._limits.get(worker)
        if used is None:
            return ""
        of = f" of {numbers.size(limit)}" if limit else ""
        return f"its worker was killed when it had taken {numbers.size(used)}{of} of memory"

    def paused_at(self, worker: str) -> str:
        """Return how much memory a worker has taken that Dask has paused for it, "" if it is not paused."""
        found = self.scheduler.workers.get(worker)
        if found is None or not is_paused(found):
            return ""
        return f"{numbers.size(found.memory.process)} of {numbers.size(found.memory_limit)}"

    # --- concurrency ----------------------------------------------------------------------------

    def turn(self, queue: str) -> asyncio.Lock:
        """Return the lock for opening or closing a queue."""
        # Lock order: a queue's turn first, then the `busy` of a set of consumers. The reverse can deadlock.
        return self._turns.setdefault(queue, asyncio.Lock())

    def in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in the background, and log its error."""
        task = asyncio.get_running_loop().create_task(work, name="dqlab-registry")
        self._tasks.add(task)  # the event loop holds only a weak reference
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.warning("event=background_failed %r", task.exception())
