"""What is known before the checks begin, as plain data about every process, the registry, queues and stores.

The reply of another version of dqlab may lack fields or have more: every field that may be missing has a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from dqlab.stats import Attention, Snapshot
from dqlab.store.inspection import SurveyedShard, survey
from dqlab.store.probe import Probe, probe

__all__ = [
    "Actor",
    "Facts",
    "LeaseFacts",
    "Process",
    "Queue",
    "Registered",
    "Scheduler",
    "ShardFacts",
    "StoreFacts",
    "WorkerFacts",
    "known",
    "look_at_store",
]

T = TypeVar("T")


def known(cls: type[T], answer: Mapping[str, Any], **more: Any) -> T:
    """Make a dataclass of the parts of a reply for which it has fields."""
    names = {each.name for each in fields(cls)}  # type: ignore[arg-type]
    return cls(**{key: value for key, value in answer.items() if key in names} | more)


@dataclass(frozen=True, slots=True)
class Process:
    """One process."""

    host: str = ""
    pid: int = 0
    python: str = ""
    protocol: int | None = None
    version: str | None = None
    """Version of dqlab, like `protocol` None where it has none."""
    packages: Mapping[str, str | None] = field(default_factory=dict)
    descriptors: int | None = None
    """Open files and sockets."""
    descriptors_max: int | None = None
    lag: float = 0.0
    """Seconds by which its event loop is late."""
    skew: float = 0.0
    """Seconds by which its clock is ahead of this process's."""
    doubt: float = 0.0
    """Seconds by which `skew` may be wrong."""


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """The oldest lease of a shard."""

    consumer: str
    messages: int
    held: float
    """Seconds since it was given."""
    left: float
    """Seconds until it ends."""
    timeout: float
    """Seconds of one visibility timeout."""


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """A shard as its own process knows it."""

    queue: str
    shard: int
    epoch: int = 1
    consumers: int = 0
    lag: float = 0.0
    leases: int = 0
    oldest: LeaseFacts | None = None
    failure: str = ""
    results_full: bool = False
    packages: tuple[str, ...] = ()
    log: Mapping[str, Any] | None = None
    """None for a shard in memory."""

    @property
    def name(self) -> str:
        """The name that sentences give it."""
        return f"shard {self.shard} of queue {self.queue}"


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker."""

    address: str
    name: str = ""
    process: Process | None = None
    """None where it did not answer."""
    silence: str = ""
    """Why it did not answer."""
    path: str = ""
    """How its reply arrived: "direct" or "proxied"."""
    plugin: bool = True
    """Whether it has dqlab's plugin for workers."""
    silent: float = 0.0
    """Seconds since the scheduler last received a sign of life."""
    memory: int = 0
    """Resident bytes."""
    memory_limit: int | None = None
    """Bytes at which Dask ends the worker."""
    lifetime_left: float | None = None
    """Seconds until it ends itself, or None for never."""
    batch: str = ""
    """The batch system of the job in which it runs, or "" outside jobs."""
    job_left: float | None = None
    """Seconds until that job ends, if the job reports it."""
    shards: tuple[ShardFacts, ...] = ()
    consumers: tuple[str, ...] = ()
    abandoned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By consumer, the cancelled messages whose functions still run."""
    missing: tuple[str, ...] | None = None
    """Packages that open runs need and that it cannot import, or None where that is not known."""
    probes: tuple[Probe, ...] = ()
    unsent: int = 0
    """Reports of its shards and consumers that it could not send."""

    @property
    def title(self) -> str:
        """The name that sentences give it."""
        return f"worker {self.name} ({self.address})" if self.name else f"worker {self.address}"

    def probe(self, directory: str) -> Probe | None:
        """Return how this worker sees a store."""
        return next((probe for probe in self.probes if probe.directory == directory), None)


@dataclass(frozen=True, slots=True)
class Actor:
    """A queue's shard or a consumer as it is registered."""

    name: str
    queue: str
    address: str
    epoch: int = 1
    gone: str | None = None
    made: bool = True
    failure: str = ""
    """Why its log cannot be opened at present."""

    @property
    def is_shard(self) -> bool:
        """Whether it is a shard of a queue."""
        return self.name.startswith("queue/")


@dataclass(frozen=True, slots=True)
class Queue:
    """A registered queue's options."""

    name: str
    shards: int = 1
    directory: str | None = None
    """None for a queue in memory."""
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """The registry's view of the cluster."""

    hosts: tuple[str, ...] = ()
    """Addresses of workers that may hold shards."""
    serving: tuple[str, ...] = ()
    """Addresses of workers that may have consumers."""
    shared: bool = False
    """Whether shards and consumers share workers."""
    shared_logs: bool = False
    """Whether all workers see the logs of transient queues."""
    actors: tuple[Actor, ...] = ()
    queues: tuple[Queue, ...] = ()
    served: tuple[str, ...] = ()
    """Queues with a consumer on each serving worker."""
    untaken: int = 0
    """Reports that arrived and could not be read."""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The scheduler."""

    address: str
    process: Process | None = None
    silence: str = ""
    registry: Registered | None = None
    """None where dqlab was never installed, or is of another version."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A store, with its files."""

    directory: str
    probe: Probe
    """How this process sees the store."""
    shards: tuple[SurveyedShard, ...] = ()
    """The shards of its queues, by their files."""
    error: str = ""
    """Why the files are not known."""


def look_at_store(directory: Path) -> StoreFacts:
    """Return how a store looks from this process, blocking on its disk."""
    seen = probe(directory)
    return StoreFacts(str(directory), seen, survey(directory) if seen.made and not seen.error else ())


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was gathered."""

    of: str
    client: Process
    scheduler: Scheduler | None = None
    """None where only a store is examined."""
    workers: tuple[WorkerFacts, ...] = ()
    stores: tuple[StoreFacts, ...] = ()
    snapshot: Snapshot | None = None
    packages: tuple[str, ...] = ()
    """Packages that the functions of open runs import."""
    direct: bool = True
    """Whether this process calls workers without the scheduler."""
    embedded: bool = False
    """Whether this process started the cluster, and replaces its workers."""
    limit: float = 10.0
    """Seconds that the examination could take."""
    at: float = 0.0
    """When it began, in seconds since 1970 UTC."""
    took: float = 0.0
    """Seconds that it took."""

    @property
    def alerts(self) -> tuple[Attention, ...]:
        """The alerts of the scheduler's statistics, the worst first."""
        return () if self.snapshot is None else self.snapshot.attention

    @property
    def registry(self) -> Registered | None:
        """The registry's view of the cluster."""
        return None if self.scheduler is None else self.scheduler.registry

    @property
    def answering(self) -> tuple[WorkerFacts, ...]:
        """The workers that answered."""
        return tuple(worker for worker in self.workers if worker.process is not None)

    @property
    def processes(self) -> list[tuple[str, Process]]:
        """Every known process with the name that sentences give it, this one first."""
        found = [("this process", self.client)]
        if self.scheduler is not None and self.scheduler.process is not None:
            found.append(("the scheduler", self.scheduler.process))
        return found + [(worker.title, worker.process) for worker in self.workers if worker.process is not None]

    @property
    def silenced(self) -> list[str]:
        """Queues with a shard on a worker that gave no answer."""
        silent = [worker.address for worker in self.workers if worker.process is None]
        return sorted({queue for address in silent for queue in self.hosting(address)})

    @property
    def unknown(self) -> str:
        """What a sentence about all queues must add where some of them did not answer."""
        return f"; of queue {', '.join(self.silenced)} nothing is known" if self.silenced else ""

    def hosting(self, address: str) -> list[str]:
        """Return the queues that have a shard on a worker, as registered."""
        actors = self.registry.actors if self.registry is not None else ()
        return sorted({actor.queue for actor in actors if actor.is_shard and actor.address == address})
