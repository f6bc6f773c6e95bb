"""What is known when checks begin: plain data about every process, the registry, queues and stores.

An answer of another version of dqlab may lack fields, or have more: what is missing has its default.
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
    """Make a dataclass of those parts of an answer that it has fields for."""
    names = {each.name for each in fields(cls)}  # type: ignore[arg-type]
    return cls(**{key: value for key, value in answer.items() if key in names} | more)


@dataclass(frozen=True, slots=True)
class Process:
    """One process: `protocol` and `version` are dqlab's, None when it has none; `skew` is its clock beside ours.

    Attributes
    ----------
    descriptors, descriptors_max : int or None
        Open files and sockets, and how many there may be.
    lag : float
        Seconds by which its event loop comes late.
    skew, doubt : float
        Seconds that its clock is ahead of this process's, and how far off that may be.
    """

    host: str = ""
    pid: int = 0
    python: str = ""
    protocol: int | None = None
    version: str | None = None
    packages: Mapping[str, str | None] = field(default_factory=dict)
    descriptors: int | None = None
    descriptors_max: int | None = None
    lag: float = 0.0
    skew: float = 0.0
    doubt: float = 0.0


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """The oldest lease of a shard; seconds that it is held, that are left, and of one visibility timeout."""

    consumer: str
    messages: int
    held: float
    left: float
    timeout: float


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """A shard as its own process knows it; `log` is None in memory."""

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

    @property
    def name(self) -> str:
        """What sentences call it."""
        return f"shard {self.shard} of queue {self.queue}"


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker. `process` is None when it did not answer; `silence` is how it failed to.

    Attributes
    ----------
    path : {"direct", "proxied", ""}
        How its answer came.
    plugin : bool
        It has what dqlab puts on workers.
    silent : float
        Seconds since the scheduler last received a sign of life.
    memory, memory_limit : int, int or None
        Bytes resident, and at which Dask ends it.
    lifetime_left : float or None
        Seconds until it ends itself; None: never.
    batch : str
        The batch system in one of whose jobs it runs; "" for none.
    job_left : float or None
        Seconds until that job ends, if the job reports it.
    missing : tuple of str or None
        Packages that open runs need, and that it cannot import; None: not known.
    unsent : int
        Reports of its shards and consumers that it had to leave out.
    """

    address: str
    name: str = ""
    process: Process | None = None
    silence: str = ""
    path: str = ""
    plugin: bool = True
    silent: float = 0.0
    memory: int = 0
    memory_limit: int | None = None
    lifetime_left: float | None = None
    batch: str = ""
    job_left: float | None = None
    shards: tuple[ShardFacts, ...] = ()
    consumers: tuple[str, ...] = ()
    abandoned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By consumer, the cancelled messages whose functions still run."""
    missing: tuple[str, ...] | None = None
    probes: tuple[Probe, ...] = ()
    unsent: int = 0

    @property
    def title(self) -> str:
        """What sentences call it."""
        return f"worker {self.name} ({self.address})" if self.name else f"worker {self.address}"

    def probe(self, directory: str) -> Probe | None:
        """Return how it sees a store."""
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
        """It is a shard of a queue."""
        return self.name.startswith("queue/")


@dataclass(frozen=True, slots=True)
class Queue:
    """A registered queue's options; `directory` is None in memory."""

    name: str
    shards: int = 1
    directory: str | None = None
    max_bytes: int | None = None
    results_memory: int | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """What the registry believes: `hosts` and `serving` are addresses that may hold shards, and consumers."""

    hosts: tuple[str, ...] = ()
    serving: tuple[str, ...] = ()
    shared: bool = False
    actors: tuple[Actor, ...] = ()
    queues: tuple[Queue, ...] = ()
    served: tuple[str, ...] = ()
    """Queues with a consumer on each serving worker."""
    untaken: int = 0
    """Reports that came and could not be read."""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The scheduler; `registry` is None where dqlab was never installed, or is another version's."""

    address: str
    process: Process | None = None
    silence: str = ""
    registry: Registered | None = None


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A store: how this process sees it, and its files.

    Attributes
    ----------
    probe : Probe
        From here.
    shards : tuple of SurveyedShard
        Its queues' shards, as their files are.
    error : str
        Why the files are not known.
    """

    directory: str
    probe: Probe
    shards: tuple[SurveyedShard, ...] = ()
    error: str = ""


def look_at_store(directory: Path) -> StoreFacts:
    """Return what a store looks like from this process; blocks."""
    seen = probe(directory)
    return StoreFacts(str(directory), seen, survey(directory) if seen.made and not seen.error else ())


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was gathered; `scheduler` is None when only a store is looked at.

    Attributes
    ----------
    limit : float
        Seconds that were given.
    direct : bool
        This process calls workers without the scheduler.
    embedded : bool
        The cluster was started by this process, and its workers are made again by it.
    packages : tuple of str
        What the functions of open runs import.
    """

    of: str
    client: Process
    scheduler: Scheduler | None = None
    workers: tuple[WorkerFacts, ...] = ()
    stores: tuple[StoreFacts, ...] = ()
    snapshot: Snapshot | None = None
    packages: tuple[str, ...] = ()
    direct: bool = True
    embedded: bool = False
    limit: float = 10.0
    at: float = 0.0
    took: float = 0.0

    @property
    def alerts(self) -> tuple[Attention, ...]:
        """What the scheduler's statistics find wrong, the worst first."""
        return () if self.snapshot is None else self.snapshot.attention

    @property
    def registry(self) -> Registered | None:
        """What the registry believes."""
        return None if self.scheduler is None else self.scheduler.registry

    @property
    def answering(self) -> tuple[WorkerFacts, ...]:
        """The workers that answered."""
        return tuple(worker for worker in self.workers if worker.process is not None)

    @property
    def processes(self) -> list[tuple[str, Process]]:
        """Every process that is known, by what to call it: this one first."""
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
        """What a sentence about all queues must add when some of them did not answer."""
        return f"; of queue {', '.join(self.silenced)} nothing is known" if self.silenced else ""

    def hosting(self, address: str) -> list[str]:
        """Return the queues that have a shard on a worker, as registered."""
        actors = self.registry.actors if self.registry is not None else ()
        return sorted({actor.queue for actor in actors if actor.is_shard and actor.address == address})
