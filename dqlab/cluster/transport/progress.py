"""Joins the reports of a queue's shards about one run: its progress, and the places of its documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from dqlab.errors import Rehearsed, SubmissionIncomplete
from dqlab.rules.book import CANCELLED, CUT_OFF, REHEARSED, CodeRecord
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import Ranges
from dqlab.rules.reports import LaneReport, fields_of, plain
from dqlab.stats import Counts, StopReason, total_counts


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
