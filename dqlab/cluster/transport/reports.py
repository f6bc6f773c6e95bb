"""What actors report to the scheduler at most four times a second, and the reporter that sends it.

All totals are absolute, so that none depends on another. Nothing is sent while nothing changes.
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

__all__ = ["FRESH", "ConsumerReport", "Reporter", "Running", "ShardReport", "StorageReport", "packed", "unpacked"]


@dataclass(slots=True, kw_only=True)
class StorageReport:
    """The files of one shard: bytes, seconds, and past compactions as [at, bytes freed, seconds]."""

    total: int
    live: int
    garbage: int
    free: int
    """Bytes free on the disk, or of the quota."""
    written: int
    """Bytes appended since the log was opened."""
    sync_p99: float | None
    compact_above: float
    """Share of garbage above which it is compacted, 0 to 1."""
    compactions: list[list[Any]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ShardReport:
    """One shard of a queue. Times are seconds since 1970 UTC, durations seconds.

    `lanes` are all lanes where it is `whole`, else those that changed since report `number` - 1; `dropped` are the runs
    that are gone since. A report without a number answers a call, and is not part of the sequence.
    """

    queue: str
    shard: int
    epoch: int
    next_id: int = 0
    at: float = 0.0
    state: QueueState = QueueState.RUNNING
    """Running, paused or draining: it knows no more."""
    lag: float = 0.0
    maxsize: int | None = None
    consumers: int = 0
    """Slots that have ever asked it for work, and are alive."""
    stored: int = 0
    puts_waiting: int = 0
    failure: str = ""
    """Why its log failed."""
    short: str = ""
    """What its log waits for: room on the disk, or file descriptors."""
    trouble: str = ""
    storage: StorageReport | None = None
    lanes: list[LaneReport] = field(default_factory=list)
    held: list[HeldFor] = field(default_factory=list)
    oldest: list[HeldLease] = field(default_factory=list)
    leases_lost: int = 0
    redelivered: int = 0
    number: int | None = None
    whole: bool = True
    dropped: list[str] = field(default_factory=list)
    unsent: int = 0
    """Reports that it could not make or pack."""

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
        """Return what `to_wire` was called on."""
        known = fields_of(cls, wire)
        known["state"] = QueueState(known.get("state", QueueState.RUNNING))
        storage = known.get("storage")
        known["storage"] = None if storage is None else StorageReport(**fields_of(StorageReport, storage))
        known["lanes"] = [LaneReport.from_wire(lane) for lane in known.get("lanes", ())]
        known["held"] = [HeldFor(*each) for each in known.get("held", ())]
        known["oldest"] = [HeldLease(*each) for each in known.get("oldest", ())]
        return cls(**known)


class Running(NamedTuple):
    """The document that a consumer has run for longest: its name, the seconds, and its run in hex digits."""

    document: str
    seconds: float
    run: str = ""


@dataclass(slots=True, kw_only=True)
class ConsumerReport:
    """One consumer."""

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
    abandoned: list[str] = field(default_factory=list)
    """Documents whose threads were left behind, because they did not end."""
    last_error: str | None = None
    unsent: int = 0

    def to_wire(self) -> dict[str, Any]:
        """Return plain data."""
        return plain(self) | {"kind": "consumer"}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Return what `to_wire` was called on."""
        known = fields_of(cls, wire)
        known["oldest"] = None if known.get("oldest") is None else Running(*known["oldest"])
        return cls(**known)


def packed(report: ShardReport | ConsumerReport) -> bytes:
    """Return a report as bytes; texts in it become valid.

    Raises
    ------
    Exception
        Something in it is not plain data.
    """
    return pack_report(report.to_wire())


def unpacked(report: bytes) -> ShardReport | ConsumerReport:
    """Return what `packed` was given."""
    wire = unpack_report(report)
    return ShardReport.from_wire(wire) if wire["kind"] == "shard" else ConsumerReport.from_wire(wire)


logger = logging.getLogger("dqlab.reporter")

INTERVAL = 0.25
"""Seconds between two reports of an actor, at least."""
FRESH = 1.0
"""Seconds that statistics of this instant wait for reports of workers, which answer within milliseconds unless they are
starved or hang."""


class Reporter:
    """Sends absolute totals, so that a lost or repeated report does no harm.

    One that cannot be made or packed is left out and counted: views are late then, and work continues.

    Parameters
    ----------
    worker : Worker
        Whose stream to the scheduler is used.
    totals : callable
        Returns the report.

    Attributes
    ----------
    unsent : int
        Reports that were left out.
    """

    def __init__(self, worker: Worker, totals: Callable[[], ShardReport | ConsumerReport]) -> None:
        self._worker, self._totals = worker, totals
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0
        self.unsent = 0

    def touch(self) -> None:
        """Note that something changed; a report follows within the interval."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            delay = max(0.0, self._last + INTERVAL - loop.time())
            self._timer = loop.call_later(delay, self.send)

    def send_due(self) -> None:
        """Report now what would be reported within the interval."""
        if self._timer is not None:
            self.send()

    def send(self) -> None:
        """Report now."""
        self.close()
        self._last = asyncio.get_running_loop().time()
        try:
            totals = packed(replace(self._totals(), unsent=self.unsent))
        except Exception:  # the next one may fare better, and nothing else is to suffer
            self.unsent += 1
            logger.exception("event=report_not_sent worker=%s so_far=%s", self._worker.address, self.unsent)
            return
        report(self._worker, "dq-report", totals=totals)

    def close(self) -> None:
        """Cancel what is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
