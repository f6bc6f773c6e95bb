"""What is known before the checks begin, and what they find, as plain data.

The reply of another version of dqlab may lack fields or have more: every field that may be missing has a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar, cast

from dqlab.live.layout import checkup_parts
from dqlab.live.render import render_text
from dqlab.stats import Severity, Snapshot
from dqlab.store.probe import Probe

T = TypeVar("T")

UNSEEN = Snapshot(at=0.0, seq=0)


def from_answer(cls: type[T], answer: Mapping[str, Any], **more: Any) -> T:
    """Make a dataclass of the parts of a reply for which it has fields."""
    names = {each.name for each in fields(cast("Any", cls))}
    return cls(**{key: value for key, value in answer.items() if key in names} | more)


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the cluster, or this one."""

    name: str = "this process"
    address: str = ""
    silence: str = ""
    """Why it did not answer; "" where it did."""
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
    ahead: float = 0.0
    """Seconds by which its clock is ahead of this process's, about."""
    memory: int = 0
    """Resident bytes."""
    memory_limit: int | None = None
    """Bytes at which Dask ends it."""

    # --- of workers ---

    direct: bool = True
    """Whether its reply came directly, and not through the scheduler."""
    plugin: bool = True
    """Whether it has dqlab's plugin for workers."""
    silent: float = 0.0
    """Seconds since the scheduler last received a sign of life."""
    lifetime_left: float | None = None
    """Seconds until it ends itself, or None for never."""
    batch: str = ""
    """The batch system of the job in which it runs, or "" outside jobs."""
    job_left: float | None = None
    """Seconds until that job ends, if the job reports it."""
    stores: tuple[Probe, ...] = ()

    @property
    def title(self) -> str:
        """The name that sentences give it."""
        return f"{self.name} ({self.address})" if self.address not in self.name else self.name

    @property
    def leaves_in(self) -> float | None:
        """Seconds until it ends, or None where no end is known."""
        return min((left for left in (self.job_left, self.lifetime_left) if left is not None), default=None)


@dataclass(frozen=True, slots=True)
class Actor:
    """A queue's shard or a consumer as it is registered."""

    name: str
    queue: str
    address: str
    gone: str | None = None
    made: bool = True
    failure: str = ""
    """Why its log cannot be opened at present."""

    @property
    def is_shard(self) -> bool:
        """Whether it is a shard of a queue."""
        return self.name.startswith("queue/")

    @property
    def title(self) -> str:
        """The name that sentences give it."""
        number = self.name.rpartition("/")[2]
        return f"{'shard' if self.is_shard else 'consumer'} {number} of queue {self.queue}"


@dataclass(frozen=True, slots=True)
class Registered:
    """The registry's view of the cluster."""

    hosts: tuple[str, ...] = ()
    """Addresses of workers that may hold shards."""
    shared_logs: bool = False
    """Whether all workers see the logs of transient queues."""
    actors: tuple[Actor, ...] = ()
    directories: Mapping[str, str | None] = field(default_factory=dict)
    """By queue, where a durable one is kept; None for transient ones."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was gathered."""

    of: str
    client: Process
    scheduler: Process
    registry: Registered = Registered()
    """Empty where the scheduler does not answer."""
    workers: tuple[Process, ...] = ()
    stores: tuple[Probe, ...] = ()
    snapshot: Snapshot = UNSEEN
    """Empty where the scheduler does not answer in time."""
    embedded: bool = False
    """Whether this process started the cluster, and replaces its workers."""
    at: float = 0.0
    """When it began, in seconds since 1970 UTC."""
    took: float = 0.0
    """Seconds that it took."""

    @property
    def processes(self) -> list[Process]:
        """All processes, this one first."""
        return [self.client, self.scheduler, *self.workers]

    @property
    def answering(self) -> list[Process]:
        """The processes that answered."""
        return [process for process in self.processes if not process.silence]

    @property
    def actors(self) -> tuple[Actor, ...]:
        """Shards and consumers, as registered."""
        return self.registry.actors

    def hosting(self, address: str) -> list[str]:
        """Return the queues that have a shard on a worker, as registered."""
        return sorted({actor.queue for actor in self.actors if actor.is_shard and actor.address == address})

    def rows(self) -> tuple[dict[str, Any], ...]:
        """Return the facts of every process of a cluster as plain data, with the same keys."""
        return tuple(self._row(process) for process in self.processes)

    def _row(self, process: Process) -> dict[str, Any]:
        here = [actor for actor in self.actors if actor.address == process.address]
        reached = "directly" if process.direct else "through the scheduler"
        return {
            "process": process.name,
            "address": process.address,
            "answers": process.silence or reached,
            "host": process.host,
            "pid": process.pid,
            "python": process.python,
            "dqlab": process.version,
            "protocol": process.protocol,
            **process.packages,
            "memory": process.memory,
            "memory_limit": process.memory_limit,
            "lag": process.lag,
            "descriptors": process.descriptors,
            "descriptors_max": process.descriptors_max,
            "clock_ahead": process.ahead,
            "job": process.batch,
            "leaves_in": process.leaves_in,
            "shards": [actor.name.removeprefix("queue/") for actor in here if actor.is_shard],
            "consumers": sorted({actor.queue for actor in here if not actor.is_shard}),
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Attributes
    ----------
    check : str
        Name of the check, such as "versions".
    severity : Severity
    what : str
        A sentence without its period.
    advice : str
        What to do next, a sentence without its period; "" when there is nothing to do.
    command : str
        A line to copy, for Python, a magic or a shell; "" when there is none.
    values : mapping
        The values in the sentence, JSON-ready.
    """

    check: str
    severity: Severity
    what: str
    advice: str = ""
    command: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data, with the name of the severity."""
        return asdict(self) | {"severity": self.severity.name.lower(), "values": dict(self.values)}


@dataclass(frozen=True, slots=True, repr=False)
class Checkup:
    """The findings of an examination and the facts of every process, true when there is no problem. Displays itself.

    Attributes
    ----------
    of : str
        What was examined.
    findings : tuple of Finding
        The worst first.
    processes : tuple of mapping
        The facts of every process, JSON-ready and with the same keys, this one first. Sizes are in bytes, times in
        seconds. Empty where only a store was examined.
    at : float
        When it was examined, seconds since 1970 UTC.
    took : float
        Seconds that the examination took.
    """

    of: str
    findings: tuple[Finding, ...]
    processes: tuple[Mapping[str, Any], ...] = ()
    at: float = 0.0
    took: float = 0.0

    def __bool__(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        return render_text(checkup_parts(self))

    def having(self, severity: Severity) -> list[Finding]:
        """Return the findings of one severity."""
        return [finding for finding in self.findings if finding.severity is severity]

    @property
    def problems(self) -> list[Finding]:
        """Findings on what does not work, or soon will not."""
        return self.having(Severity.PROBLEM)

    @property
    def warnings(self) -> list[Finding]:
        """Findings on what works, but costs speed or safety."""
        return self.having(Severity.WARNING)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        return {
            "schema": 1,
            "of": self.of,
            "healthy": bool(self),
            "at": self.at,
            "took": self.took,
            "findings": [finding.to_dict() for finding in self.findings],
            "processes": [dict(process) for process in self.processes],
        }
