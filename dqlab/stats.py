"""Statistics at one instant: the Snapshot that every view draws.

Owns the arithmetic. Views format what they find here and compute nothing. Pure: no clock, no
Dask; actors report absolute totals, `cluster.collector` joins them and asks this module for the
rest. A Snapshot is frozen, carries `schema`, and turns into JSON and back unchanged.

Units: counts are messages (documents, for people), `units` are pages, times are seconds since
1970 UTC, durations and rates are in seconds and per second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

__all__ = [
    "SCHEMA",
    "ClassStats",
    "CodeStats",
    "ConsumerStats",
    "Counts",
    "Meter",
    "QueueStats",
    "RunState",
    "RunStats",
    "Snapshot",
]

SCHEMA = 1
RATE_WINDOW = 60.0
"""Seconds over which rates are measured."""
MAX_RUNS, MAX_QUEUES, MAX_CONSUMERS, MAX_CLASSES = 20, 100, 32, 8


class RunState(StrEnum):
    """What a run is doing, in one word."""

    SUBMITTING = "submitting"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"
    """Work waits and no consumer exists."""
    DONE = "done"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"
    """The input ended early; what was submitted goes on."""
    STOPPED = "stopped"
    """Paused itself: no room for results."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages, or pages, by state."""

    ready: int = 0
    delayed: int = 0
    leased: int = 0
    acked: int = 0
    dead: int = 0
    cancelled: int = 0
    lost: int = 0

    def __add__(self, other: Counts) -> Counts:
        mine, theirs = asdict(self), asdict(other)
        return Counts(**{state: mine[state] + theirs[state] for state in mine})

    @property
    def settled(self) -> int:
        """Acked, dead, cancelled or lost: nothing more will happen to them by itself."""
        return self.acked + self.dead + self.cancelled + self.lost

    @property
    def left(self) -> int:
        """Ready, delayed or leased."""
        return self.ready + self.delayed + self.leased

    @property
    def all(self) -> int:
        """Every message there is or was."""
        return self.settled + self.left

    @property
    def shares(self) -> dict[str, float]:
        """Each state's share of all, 0 to 1, by field name; all 0 when there is nothing."""
        total = self.all
        return {state: amount / total if total else 0.0 for state, amount in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class CodeStats:
    """The function a run uses now. `version` counts from 1 within the run; `short` starts its hash."""

    name: str
    short: str = ""
    version: int = 1
    cell: int | None = None


@dataclass(frozen=True, slots=True)
class ClassStats:
    """Failures with the same fingerprint. `first` and `last` are seconds since 1970 UTC."""

    fingerprint: str
    error: str
    message: str
    at: str
    dead: int
    retrying: int
    first: float
    last: float
    key: str | None = None
    """One of the documents that failed so."""


@dataclass(frozen=True, slots=True)
class RunStats:
    """One run. `units` is None where page counts are unknown; `total` is None while submitting.

    `idle` is the time between an end and the retry that followed it: nothing was asked of the run then.
    """

    name: str
    queue: str
    state: RunState
    counts: Counts
    units: Counts | None = None
    why: str = ""
    code: CodeStats = field(default_factory=lambda: CodeStats(name="?"))
    total: int | None = None
    retrying: int = 0
    started: float = 0.0
    ended: float | None = None
    idle: float = 0.0
    at: float = 0.0
    rate: float | None = None
    units_rate: float | None = None
    consumers: int = 0
    classes: tuple[ClassStats, ...] = ()
    classes_total: int = 0

    @property
    def unit(self) -> str:
        """Word for what progress counts: "pages" when they are known, else "documents"."""
        return "pages" if self.units is not None else "documents"

    @property
    def progress(self) -> Counts:
        """The counts that progress is measured in."""
        return self.units if self.units is not None else self.counts

    @property
    def share(self) -> float | None:
        """Settled share, 0 to 1; None before the total is known; 1 only at the true end."""
        if self.total is None:
            return None
        if self.counts.left == 0:
            return 1.0
        progress = self.progress
        return min(progress.settled / progress.all, 0.999999) if progress.all else 0.0

    @property
    def dead_share(self) -> float:
        """Dead documents as a share of the settled ones, 0 to 1."""
        return self.counts.dead / self.counts.settled if self.counts.settled else 0.0

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the end, or to this snapshot, without those between an end and a retry."""
        return max(0.0, (self.ended if self.ended is not None else self.at) - self.started - self.idle)

    @property
    def mean_rate(self) -> float | None:
        """Documents settled per second over the whole run."""
        return self.counts.settled / self.elapsed if self.elapsed > 0 else None

    @property
    def mean_units_rate(self) -> float | None:
        """Pages settled per second over the whole run."""
        return self.units.settled / self.elapsed if self.units is not None and self.elapsed > 0 else None

    @property
    def worked_share(self) -> float | None:
        """Settled share without what was cancelled, 0 to 1; None before the total is known."""
        share, progress = self.share, self.progress
        if share is None or not progress.cancelled or not progress.all:
            return share
        return (progress.settled - progress.cancelled) / progress.all

    @property
    def classes_more(self) -> int:
        """Failure classes that exist beyond those in `classes`."""
        return max(0, self.classes_total - len(self.classes))

    @property
    def dead_more(self) -> int:
        """Dead documents of the classes beyond those in `classes`."""
        return max(0, self.counts.dead - sum(entry.dead for entry in self.classes))

    @property
    def empty(self) -> bool:
        """The input had no documents."""
        return self.total == 0

    @property
    def finished(self) -> bool:
        """Nothing more will happen by itself."""
        return self.state in (RunState.DONE, RunState.CANCELLED)

    @property
    def resting(self) -> bool:
        """Finished, or the input ended early and all that was submitted is settled."""
        return self.finished or (self.state is RunState.INCOMPLETE and self.counts.left == 0)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue, over all its shards. `lag` is the age of the oldest ready message."""

    name: str
    state: str
    counts: Counts
    why: str = ""
    retrying: int = 0
    nbytes: int = 0
    maxsize: int | None = None
    lag: float = 0.0
    in_rate: float | None = None
    out_rate: float | None = None
    shards: int = 1
    consumers: int = 0

    @property
    def empty(self) -> bool:
        """Nothing waits, runs or is dead here, and nothing stops new messages."""
        return not (self.counts.left or self.counts.dead or self.counts.lost or self.why)


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """One consumer. `busy_share` is the share of its slots' time spent in functions, 0 to 1."""

    name: str
    queue: str
    worker: str
    leased: int = 0
    done: int = 0
    rate: float | None = None
    units_rate: float | None = None
    busy_share: float | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one instant. Caps: 100 queues, 20 runs, 32 consumers; totals are exact.

    Attributes
    ----------
    at : float
        Seconds since 1970 UTC.
    seq : int
        Grows by one with each change; ask with it to wait for the next.
    """

    at: float
    seq: int
    lab: str = ""
    where: str = ""
    workers: int = 0
    queues: tuple[QueueStats, ...] = ()
    runs: tuple[RunStats, ...] = ()
    consumers: tuple[ConsumerStats, ...] = ()
    queues_total: int = 0
    runs_total: int = 0
    consumers_total: int = 0
    schema: int = SCHEMA

    def run(self, name: str) -> RunStats | None:
        """Return one run by name, or None."""
        return next((run for run in self.runs if run.name == name), None)

    def queue(self, name: str) -> QueueStats | None:
        """Return one queue by name, or None."""
        return next((queue for queue in self.queues if queue.name == name), None)

    @property
    def totals(self) -> QueueStats:
        """The sum over the queues listed here; rates are None when no queue's is known."""
        ins = [queue.in_rate for queue in self.queues if queue.in_rate is not None]
        outs = [queue.out_rate for queue in self.queues if queue.out_rate is not None]
        return QueueStats(
            name="total",
            state="",
            counts=total_counts(queue.counts for queue in self.queues),
            retrying=sum(queue.retrying for queue in self.queues),
            nbytes=sum(queue.nbytes for queue in self.queues),
            lag=max((queue.lag for queue in self.queues), default=0.0),
            in_rate=sum(ins) if ins else None,
            out_rate=sum(outs) if outs else None,
            consumers=self.consumers_total,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Snapshot:
        """Rebuild a Snapshot from `to_dict`."""
        plain = dict(data)
        plain["queues"] = tuple(QueueStats(**{**q, "counts": Counts(**q["counts"])}) for q in data["queues"])
        plain["consumers"] = tuple(ConsumerStats(**c) for c in data["consumers"])
        plain["runs"] = tuple(_run_from(run) for run in data["runs"])
        return cls(**plain)


def _run_from(data: Mapping[str, Any]) -> RunStats:
    plain = dict(data)
    plain["state"] = RunState(data["state"])
    plain["counts"] = Counts(**data["counts"])
    plain["units"] = None if data["units"] is None else Counts(**data["units"])
    plain["code"] = CodeStats(**data["code"])
    plain["classes"] = tuple(ClassStats(**entry) for entry in data["classes"])
    return RunStats(**plain)


class Meter:
    """Rate of a growing total over the last minute.

    Keeps one point a second at most, so its size does not depend on how often it is fed.
    """

    __slots__ = ("_points", "window")

    def __init__(self, window: float = RATE_WINDOW) -> None:
        self.window = window
        self._points: deque[tuple[float, float]] = deque()

    def feed(self, at: float, total: float) -> None:
        """Note a total at an instant; both never go back (a smaller total starts over)."""
        points = self._points
        if points and total < points[-1][1]:
            points.clear()
        if len(points) >= 2 and at - points[-2][0] < 1.0:
            points[-1] = (at, total)
        else:
            points.append((at, total))
        while len(points) > 2 and at - points[1][0] >= self.window:
            points.popleft()

    def rate(self, at: float) -> float | None:
        """Return the mean rate per second over the window, or since the first point; None if unknown."""
        points = self._points
        if not points:
            return None
        start, end = points[0], points[-1]
        for point in points:
            if at - point[0] > self.window:
                start = point
        span = at - start[0]
        return (end[1] - start[1]) / span if span > 0 else None


def run_state(
    counts: Counts,
    *,
    sealed: bool,
    incomplete: bool = False,
    paused: bool = False,
    stopped: bool = False,
    consumers: int = 0,
) -> RunState:
    """Judge what a run is doing from what its shards and consumers report."""
    if sealed and counts.left == 0:
        return RunState.CANCELLED if counts.cancelled else RunState.INCOMPLETE if incomplete else RunState.DONE
    if stopped:
        return RunState.STOPPED
    if paused:
        return RunState.PAUSED
    if counts.left and consumers == 0:
        return RunState.WAITING
    return RunState.RUNNING if sealed else RunState.SUBMITTING


def total_counts(parts: Iterable[Counts]) -> Counts:
    """Sum counts over shards, lanes or queues."""
    total = Counts()
    for part in parts:
        total += part
    return total
