"""Defines the reports that actors send to the scheduler, and sends them at most four times a second.

All totals are absolute, so that no report depends on another. Nothing is sent while nothing changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from distributed import Worker

from dqlab.cluster.transport.internals import report
from dqlab.cluster.transport.wire import pack_report, unpack_report
from dqlab.rules.reports import HeldFor, HeldLease, LaneReport, fields_of, plain
from dqlab.stats import QueueState


@dataclass(slots=True, kw_only=True)
class StorageReport:
    """The files of one shard in bytes."""

    total: int
    live: int
    garbage: int
    free: int
    """Bytes free on the disk, or of the quota."""
    written: int
    """Bytes appended since the log was opened."""
    sync_p99: float | None
    compact_above: float
    """Share of garbage above which the log is compacted, 0 to 1."""
    compactions: list[list[Any]] = field(default_factory=list)
    """Past compactions, each [at, bytes freed, seconds]."""


@dataclass(slots=True, kw_only=True)
class ShardReport:
    """The state of one shard of a queue."""

    # Times are seconds since 1970 UTC, durations seconds.

    queue: str
    shard: int
    epoch: int
    next_id: int = 0
    at: float = 0.0
    state: QueueState = QueueState.RUNNING
    """Running, paused or draining: a shard knows no other state."""
    lag: float = 0.0
    maxsize: int | None = None
    consumers: int = 0
    """Living slots that have ever asked the shard for work."""
    stored: int = 0
    puts_waiting: int = 0
    failure: str = ""
    """Why the log failed."""
    short: str = ""
    """The resource that the log waits for: room on the disk, or file descriptors."""
    storage: StorageReport | None = None
    lanes: list[LaneReport] = field(default_factory=list)
    """All lanes if `whole`, else those that changed since report `number` - 1."""
    held: list[HeldFor] = field(default_factory=list)
    oldest: list[HeldLease] = field(default_factory=list)
    leases_lost: int = 0
    redelivered: int = 0
    number: int | None = None
    """Position in the sequence of reports; None: the answer to a call, outside the sequence."""
    whole: bool = True
    dropped: list[str] = field(default_factory=list)
    """Runs that are gone since report `number` - 1."""
    unsent: int = 0
    """Reports that could not be made or packed."""

    def to_wire(self) -> dict[str, Any]:
        """Return plain data."""
        return plain(self) | {
            "kind": "shard",
            "state": str(self.state),
            "storage": None if self.storage is None else plain(self.storage),
            "lanes": [lane.to_wire() for lane in self.lanes],
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Return the report of plain data."""
        known = fields_of(cls, wire)
        known["state"] = QueueState(known.get("state", QueueState.RUNNING))
        storage = known.get("storage")
        known["storage"] = None if storage is None else StorageReport(**fields_of(StorageReport, storage))
        known["lanes"] = [LaneReport.from_wire(lane) for lane in known.get("lanes", ())]
        known["held"] = [HeldFor(*each) for each in known.get("held", ())]
        known["oldest"] = [HeldLease(*each) for each in known.get("oldest", ())]
        return cls(**known)


class Running(NamedTuple):
    """The document that a consumer has run for longest."""

    document: str
    seconds: float
    run: str = ""
    """Id of the run in hex digits."""
    step: str = ""
    """How far its function is in the document, as "12 of 300", where it says so."""


@dataclass(slots=True, kw_only=True)
class ConsumerReport:
    """The state of one consumer."""

    name: str
    queue: str
    host: str
    """Name of its worker."""
    at: float = 0.0
    slots: int = 1
    chunk: int | None = None
    leased: int = 0
    done: int = 0
    units: int = 0
    busy: float = 0.0
    """Seconds in functions."""
    oldest: Running | None = None
    rss: int | None = None
    peak: int | None = None
    setups: list[list[Any]] = field(default_factory=list)
    """Of the runs whose functions had objects made here last, [run in hex digits, seconds that it took]."""
    abandoned: list[str] = field(default_factory=list)
    """Documents whose threads were abandoned, because they did not end."""
    last_error: str | None = None
    unsent: int = 0
    batches: list[list[Any]] = field(default_factory=list)
    """Of the runs whose batches ran here last, each [run in hex digits, size, calls, documents]."""

    def to_wire(self) -> dict[str, Any]:
        """Return plain data."""
        return plain(self) | {"kind": "consumer"}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Return the report of plain data."""
        known = fields_of(cls, wire)
        known["oldest"] = None if known.get("oldest") is None else Running(*known["oldest"])
        return cls(**known)


def packed(report: ShardReport | ConsumerReport) -> bytes:
    """Return a report as bytes with valid texts, or raise any error if it is not plain data."""
    return pack_report(report.to_wire())


def unpacked(report: bytes) -> ShardReport | ConsumerReport:
    """Return the report in packed bytes."""
    wire = unpack_report(report)
    return ShardReport.from_wire(wire) if wire["kind"] == "shard" else ConsumerReport.from_wire(wire)


logger = logging.getLogger("dqlab.reporter")

INTERVAL = 0.25
"""Least seconds between two reports of an actor."""
FRESH = 1.0
"""Seconds that current statistics wait for reports. Workers answer within milliseconds, unless starved or hanging."""


class Reporter:
    """Sends an actor's reports over its worker's stream to the scheduler."""

    def __init__(self, worker: Worker, totals: Callable[[], ShardReport | ConsumerReport]) -> None:
        self._worker, self._totals = worker, totals
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0
        self.unsent = 0
        """Number of reports that could not be made or packed."""

    def touch(self) -> None:
        """Schedule a report of a change within the interval."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            delay = max(0.0, self._last + INTERVAL - loop.time())
            self._timer = loop.call_later(delay, self.send)

    def send_due(self) -> None:
        """Send a scheduled report now."""
        if self._timer is not None:
            self.send()

    def send(self) -> None:
        """Send a report now."""
        self.close()
        self._last = asyncio.get_running_loop().time()
        try:
            totals = packed(replace(self._totals(), unsent=self.unsent))
        except Exception:  # views are late, but work must continue, and the next report may succeed
            self.unsent += 1
            logger.exception("event=report_not_sent worker=%s so_far=%s", self._worker.address, self.unsent)
            return
        report(self._worker, "dq-report", totals=totals)

    def close(self) -> None:
        """Cancel the scheduled report."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
