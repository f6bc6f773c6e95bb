"""Defines the reports of actors: what they send to the scheduler, and what shards answer to clients about a run.

All totals are absolute, so that no report depends on another. They are sent at most four times a second, and nothing
while nothing changes.
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
from dqlab.errors import Rehearsed, SubmissionIncomplete
from dqlab.rules.book import CANCELLED, CUT_OFF, REHEARSED, CodeRecord
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import Ranges
from dqlab.rules.reports import HeldFor, HeldLease, LaneReport, fields_of, plain
from dqlab.stats import Counts, QueueState, StopReason, total_counts


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


# --- the progress of one run ----------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class ShardProgress:
    """A shard's answer to a client that waits for a run, with the run's lane and record and the shard's own state."""

    # Only shard 0 knows how far the input came: `submitted` and what follows from it. `covered`, `came` and
    # `missing_ordinals` are half-open ranges of ordinals, answered only if asked for.

    lane: LaneReport
    done: bool
    consumers: int = 0
    """Living slots that have ever asked the shard for work, and can run it."""
    parked: int = 0
    """Waiting calls for work."""
    failure: str = ""
    """Why the shard's log failed."""
    short: str = ""
    """The resource that the log waits for: room on the disk, or file descriptors."""
    queue_paused: bool = False
    stored: int = 0
    """Bytes of results."""
    results_maxsize: int = 0
    codes: list[CodeRecord] = field(default_factory=list)
    """Code versions in full, first to newest."""
    submitted: int = 0
    digest: str = ""
    beyond: list[tuple[int, int]] = field(default_factory=list)
    end_digest: str = ""
    keyed: bool = False
    cancelled: bool = False
    client: str = ""
    process: dict[str, Any] | None = None
    sink: dict[str, Any] | None = None
    options: list[str] = field(default_factory=list)
    """Options with which its documents are opened."""
    flow: dict[str, Any] | None = None
    """What holds its messages back."""
    unit: str = ""
    """Unit of its messages' weights: "bytes"; "" for pages."""
    needs: dict[str, float] = field(default_factory=dict)
    marks: list[tuple[int, bool]] = field(default_factory=list)
    covered: list[tuple[int, int]] = field(default_factory=list)
    came: list[tuple[int, int]] = field(default_factory=list)
    missing_ordinals: list[tuple[int, int]] = field(default_factory=list)

    def to_wire(self) -> dict[str, Any]:
        """Return plain data."""
        return plain(self) | {"lane": self.lane.to_wire()}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Return the object of plain data, without fields that this version does not know."""
        known = fields_of(cls, wire)
        for spans in ("beyond", "covered", "came", "missing_ordinals"):
            known[spans] = [(lo, hi) for lo, hi in known.get(spans, ())]
        return cls(**known | {"lane": LaneReport.from_wire(wire["lane"])})

    def to_dict(self) -> dict[str, Any]:
        """Return all fields by name, with those of the lane beside its own."""
        own = self.to_wire()
        return {**own.pop("lane"), **own}  # its own fields win

    def opening(self) -> dict[str, Any]:
        """Return the run record with which missing lanes are opened."""
        record: dict[str, Any] = {
            "name": self.lane.name,
            "codes": self.codes,
            "process": self.process,
            "stop_if": self.lane.stop_if,
            "stop_despite": self.lane.stop_despite,
        }
        record |= {} if self.sink is None else {"sink": self.sink}
        record |= {"options": self.options} if self.options else {}
        record |= {"needs": self.needs} if self.needs else {}
        record |= {} if self.flow is None else {"flow": self.flow}
        return record | ({"unit": self.unit} if self.unit else {})

    @property
    def input(self) -> Submitted:
        """Part of the input that the queue holds, by the record."""
        return Submitted.of({part: getattr(self, part) for part in ("submitted", "digest", "beyond", "end_digest")})


@dataclass(frozen=True)
class Progress:
    """Joined answers of a run's shards to ``watch``."""

    shards: list[ShardProgress]

    @property
    def by_shard(self) -> list[Counts]:
        """Messages by state in each shard."""
        return [Counts(*shard.lane.counts) for shard in self.shards]

    @property
    def counts(self) -> Counts:
        """Messages by state."""
        return total_counts(self.by_shard)

    @property
    def record(self) -> ShardProgress:
        """The answer of shard 0, which has the run record."""
        return self.shards[0]

    @property
    def incomplete(self) -> str | None:
        """Why the input ended early, None if it did not or has not ended."""
        return self.record.lane.incomplete

    @property
    def rehearsed(self) -> bool:
        """Whether a sample of the input was submitted, and the rest waits for its user."""
        return not self.cancelled and (self.incomplete or "").startswith(REHEARSED)

    @property
    def total(self) -> int | None:
        """Number of documents of the input, None until it has ended."""
        return self.record.lane.total

    @property
    def sealed(self) -> bool:
        """Whether the input has ended and its total is known."""
        return all(shard.lane.sealed for shard in self.shards)

    @property
    def cancelled(self) -> bool:
        """Whether the run was given up before its end, and takes no more documents but by an update."""
        return self.incomplete == CANCELLED or any(shard.cancelled for shard in self.shards)

    @property
    def given_up(self) -> bool:
        """Whether the run was cancelled and no message is left."""
        # Callers need not wait for `done`: an input that nobody needs may take long to end.
        return self.cancelled and not self.counts.left

    @property
    def done(self) -> bool:
        """Whether nothing more will happen by itself."""
        return all(shard.done for shard in self.shards)

    @property
    def complete(self) -> bool:
        """Whether the run is done with all of its input, and nothing is lost."""
        return self.done and not self.counts.lost and self.incomplete is None

    @property
    def missing(self) -> int:
        """Number of processed documents without a result."""
        return sum(shard.lane.missing for shard in self.shards)

    @property
    def unaccounted(self) -> int:
        """Number of documents of an ended input that no shard has in any state, 0 unless something is broken."""
        total = self.total
        if not self.sealed or total is None or self.incomplete is not None or self.cancelled:
            return 0
        return max(0, total - self.counts.all)

    @property
    def blocked(self) -> str:
        """Why no change can be confirmed now, like a full or failed disk, or ""."""
        return next((why for shard in self.shards if (why := shard.failure or shard.short or shard.lane.held)), "")

    @property
    def stopped(self) -> bool:
        """Whether the run paused itself because results have no room or everything fails."""
        return bool(self.halted) or any(shard.lane.stopped for shard in self.shards)

    @property
    def halted(self) -> str:
        """Why the run paused itself, in words, or ""."""
        return next((shard.lane.halted for shard in self.shards if shard.lane.halted), "")

    @property
    def unable(self) -> str:
        """What its documents need and no consumer has, or ""."""
        return self.record.lane.unable

    @property
    def halt(self) -> StopReason:
        """The same as a value, while `halted` has words."""
        return next((shard.lane.halt for shard in self.shards if shard.lane.halted), StopReason.ALL_FAILED)

    @property
    def run_paused(self) -> bool:
        """Whether this run alone is paused."""
        return any(shard.lane.paused for shard in self.shards)

    @property
    def queue_paused(self) -> bool:
        """Whether the whole queue is paused."""
        return any(shard.queue_paused for shard in self.shards)

    @property
    def paused(self) -> bool:
        """Whether this run gets no new leases."""
        return self.run_paused or self.queue_paused

    @property
    def consumers(self) -> int:
        """Number of living consumer slots that ever parked, at the shard that has most."""
        # Not the sum: each slot parks at every shard.
        return max(shard.consumers for shard in self.shards)

    # --- its documents by ordinal -----------------------------------------------------------------

    @property
    def came(self) -> list[tuple[int, int]]:
        """Ordinals that were put and are not lost, as half-open ranges, if `covered` was asked for."""
        return [span for shard in self.shards for span in shard.came]

    def cut_off(self, name: str) -> SubmissionIncomplete | None:
        """Return the error of a run with a part of its input, or None if it has all or was cancelled."""
        incomplete = self.incomplete
        if incomplete is None or self.cancelled:
            return None
        if self.rehearsed:
            return Rehearsed(run=name, reason=incomplete)
        if incomplete == CUT_OFF:
            reason = f"{CUT_OFF}; map the same documents under this name again to go on"
            return SubmissionIncomplete(run=name, position=self.counts.all, reason=reason)
        return SubmissionIncomplete(run=name, position=self.record.submitted, reason=incomplete)

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Ordinals that were put and are lost, as half-open ranges, if `covered` was asked for."""
        held = self.record.input.held
        if self.sealed and self.incomplete is None and self.total is not None:
            held = [(0, self.total)]
        came = Ranges(self.came)
        return [gap for lo, hi in held for gap in came.gaps(lo, hi)] if self.counts.lost else []

    def how_lost(self, queue: str) -> str:
        """Return in words how many documents were lost in each shard."""
        lost = ((index, counts.lost) for index, counts in enumerate(self.by_shard) if counts.lost)
        where = f"of queue {queue!r} (see `dqlab store check`)"
        return "; ".join(f"{n:,} were in damaged files of shard {at} {where}" for at, n in lost)
