"""Reports of a queue's shards about one run, joined: how far it is, and which of its documents are where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from dqlab.cluster.transport.orders import TRANSIENT
from dqlab.cluster.transport.run_facts import run_facts
from dqlab.errors import SubmissionIncomplete
from dqlab.rules.book import CANCELLED, CUT_OFF, CodeRecord
from dqlab.rules.ranges import Ranges
from dqlab.rules.reports import LaneReport, fields_of, plain
from dqlab.rules.states import State
from dqlab.rules.submitted import Submitted
from dqlab.stats import Counts, RunFacts, total_counts

__all__ = ["Progress", "ShardProgress"]


@dataclass(slots=True, kw_only=True)
class ShardProgress:
    """What a shard answers to a client that waits for a run: its report of that, its own state, and the run's record.

    The record is in the first shard; `covered`, `came` and `missing_ordinals` are half-open ranges of ordinals, and
    answered when they are asked for.
    """

    lane: LaneReport
    done: bool
    consumers: int = 0
    """Slots that have ever asked it for work, and are alive."""
    parked: int = 0
    """Calls for work that wait."""
    failure: str = ""
    """Why its log failed."""
    short: str = ""
    """What its log waits for: room on the disk, or file descriptors."""
    trouble: str = ""
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
    """What its documents are opened with."""
    unit: str = ""
    """What the weights of its messages count: "bytes"; "" for pages."""
    covered: list[tuple[int, int]] = field(default_factory=list)
    came: list[tuple[int, int]] = field(default_factory=list)
    missing_ordinals: list[tuple[int, int]] = field(default_factory=list)

    def to_wire(self) -> dict[str, Any]:
        """Return plain data."""
        return plain(self) | {"lane": self.lane.to_wire()}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Return what `to_wire` was called on; names that this version does not know are left out."""
        known = fields_of(cls, wire)
        for spans in ("beyond", "covered", "came", "missing_ordinals"):
            known[spans] = [(lo, hi) for lo, hi in known.get(spans, ())]
        return cls(**known | {"lane": LaneReport.from_wire(wire["lane"])})

    def to_dict(self) -> dict[str, Any]:
        """Return all of it by name, with the fields of the lane beside its own, which have precedence."""
        own = self.to_wire()
        return {**own.pop("lane"), **own}

    def opening(self) -> dict[str, Any]:
        """Return the run record that lanes are opened with where they are missing."""
        record: dict[str, Any] = {
            "name": self.lane.name,
            "codes": self.codes,
            "process": self.process,
            "stop_if": self.lane.stop_if,
        }
        record |= {} if self.sink is None else {"sink": self.sink}
        record |= {"options": self.options} if self.options else {}
        return record | ({"unit": self.unit} if self.unit else {})

    @property
    def input(self) -> Submitted:
        """How much of the input the queue holds, as the record has it."""
        return Submitted.of({part: getattr(self, part) for part in ("submitted", "digest", "beyond", "end_digest")})


@dataclass(frozen=True)
class Progress:
    """Current reports of a run's shards, joined: their answers to ``watch``."""

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
        """Why its input ended early; None when it did not, or has not ended."""
        return self.record.lane.incomplete

    @property
    def total(self) -> int | None:
        """Documents of its input; None until that has ended."""
        return self.record.lane.total

    @property
    def sealed(self) -> bool:
        """The input has ended and its total is known."""
        return all(shard.lane.sealed for shard in self.shards)

    @property
    def cancelled(self) -> bool:
        """It was given up before its end, and takes no more."""
        return self.incomplete == CANCELLED or any(shard.cancelled for shard in self.shards)

    @property
    def given_up(self) -> bool:
        """It was cancelled and nothing of it is left, though its input, no longer needed, may not end for long."""
        return self.cancelled and not self.counts.left

    @property
    def done(self) -> bool:
        """Nothing more will happen by itself."""
        return all(shard.done for shard in self.shards)

    @property
    def complete(self) -> bool:
        """It is done with all of its input, and nothing of it is lost."""
        return self.done and not self.counts.lost and self.incomplete is None

    @property
    def missing(self) -> int:
        """Documents that were processed, and have no result."""
        return sum(shard.lane.missing for shard in self.shards)

    @property
    def unaccounted(self) -> int:
        """Documents of an input that has ended which no shard has in any state; 0, unless something is broken."""
        total = self.total
        if not self.sealed or total is None or self.incomplete is not None or self.cancelled:
            return 0
        return max(0, total - self.counts.all)

    @property
    def blocked(self) -> str:
        """Why nothing that happens now can be confirmed: a disk that is full, or that failed; "" when it can."""
        return next((why for shard in self.shards if (why := shard.failure or shard.short or shard.lane.held)), "")

    @property
    def stopped(self) -> bool:
        """It paused itself: no room for results, or everything fails."""
        return bool(self.halted) or any(shard.lane.stopped for shard in self.shards)

    @property
    def halted(self) -> str:
        """Why it paused itself because everything fails; "" when it did not."""
        return next((shard.lane.halted for shard in self.shards if shard.lane.halted), "")

    @property
    def run_paused(self) -> bool:
        """No new leases for this run alone."""
        return any(shard.lane.paused for shard in self.shards)

    @property
    def queue_paused(self) -> bool:
        """No new leases for its whole queue."""
        return any(shard.queue_paused for shard in self.shards)

    @property
    def paused(self) -> bool:
        """No new leases for this run."""
        return self.run_paused or self.queue_paused

    def facts(self, queue: str, *, paused_by: str = "", consumers: int = 0, unanswered: str = "") -> RunFacts:
        """Return what its statistics are made from.

        Parameters
        ----------
        consumers : int, default 0
            Known of beside those that have asked for work.
        paused_by, unanswered : str
            See `RunFacts`; where all consumers are silent, none serves it.
        """
        lanes = [shard.lane for shard in self.shards]
        return run_facts(
            lanes,
            lanes[0],
            queue=queue,
            paused=any(shard.queue_paused for shard in self.shards),
            paused_by=paused_by,
            trouble=next((shard.trouble for shard in self.shards if shard.trouble), ""),
            blocked=self.blocked,
            served=not unanswered and max(consumers, self.consumers) > 0,
            unanswered=unanswered,
        )

    @property
    def consumers(self) -> int:
        """Consumer slots that ever parked and are alive, at the shard that has most."""
        return max(shard.consumers for shard in self.shards)

    # --- its documents by ordinal -----------------------------------------------------------------

    @property
    def came(self) -> list[tuple[int, int]]:
        """Ordinals that were put and are not lost, as half-open ranges; asked with `covered`."""
        return [span for shard in self.shards for span in shard.came]

    def kept_of(self, held: Iterable[tuple[int, int]]) -> list[int]:
        """Return how many documents each shard holds, if lost ones that are not among the ordinals `held` come again.

        Which shard had which of the lost ones is not known; together they have all of them. A shard that died may have
        had more than it had reported: it confirmed them a moment before it died.
        """
        kept = [counts.all - counts.lost for counts in self.by_shard]
        came = Ranges(self.came)
        gone = sum(b - a for lo, hi in held for a, b in came.gaps(lo, hi))
        for shard, counts in enumerate(self.by_shard):
            share = min(gone, counts.lost)
            kept[shard] += share
            gone -= share
        kept[max(range(len(kept)), key=lambda shard: len(self.shards[shard].lane.died))] += gone
        return kept

    def cut_off(self, name: str) -> SubmissionIncomplete | None:
        """Return the error of a run that has a part of its input; None when it has all, or was cancelled."""
        incomplete = self.incomplete
        if incomplete is None or self.cancelled:
            return None
        if incomplete == CUT_OFF:
            reason = f"{CUT_OFF}; map the same documents under this name again to go on"
            return SubmissionIncomplete(run=name, position=self.counts.all, reason=reason)
        return SubmissionIncomplete(run=name, position=self.record.submitted, reason=incomplete)

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Ordinals that were put and are lost, as half-open ranges; asked with `covered`."""
        held = self.record.input.held
        if self.sealed and self.incomplete is None and self.total is not None:
            held = [(0, self.total)]
        came = Ranges(self.came)
        return [gap for lo, hi in held for gap in came.gaps(lo, hi)] if self.counts.lost else []

    def how_lost(self, queue: str, promise: str) -> str:
        """Return in words how many documents were lost in which shard, and with which workers."""
        parts = []
        for index, shard in enumerate(self.shards):
            lost = shard.lane.counts[State.LOST]
            if lost and shard.lane.died:
                workers = ", ".join(shard.lane.died[-3:])
                parts.append(f"{lost:,} were in memory, in shard {index} of queue {queue!r}, and worker {workers} died")
            elif lost and promise == TRANSIENT:
                parts.append(f"{lost:,} were in memory, in queue {queue!r}, when a client closed it")
            elif lost:
                parts.append(f"{lost:,} were in damaged files of shard {index} of queue {queue!r} (see `dqlab fsck`)")
        return "; ".join(parts)
