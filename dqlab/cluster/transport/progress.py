"""Reports of a queue's shards about one run, joined: how far it is, and which of its documents are where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dqlab.cluster.transport.run_facts import run_facts
from dqlab.errors import SubmissionIncomplete
from dqlab.rules.book import CANCELLED, CUT_OFF
from dqlab.rules.ranges import Ranges
from dqlab.rules.states import State
from dqlab.rules.submitted import Submitted
from dqlab.stats import Counts, RunFacts, total_counts

__all__ = ["Progress"]


@dataclass(frozen=True)
class Progress:
    """Current reports of a run's shards, joined: their answers to ``watch``."""

    shards: list[dict[str, Any]]

    @property
    def by_shard(self) -> list[Counts]:
        """Messages by state in each shard."""
        return [Counts(*shard["counts"]) for shard in self.shards]

    @property
    def counts(self) -> Counts:
        """Messages by state."""
        return total_counts(self.by_shard)

    @property
    def record(self) -> dict[str, Any]:
        """The run record, from shard 0."""
        return self.shards[0]

    @property
    def sealed(self) -> bool:
        """The input has ended and its total is known."""
        return all(shard["sealed"] for shard in self.shards)

    @property
    def cancelled(self) -> bool:
        """It was given up before its end, and takes no more."""
        return self.record["incomplete"] == CANCELLED or any(shard["cancelled"] for shard in self.shards)

    @property
    def given_up(self) -> bool:
        """It was cancelled and nothing of it is left, though its input, no longer needed, may not end for long."""
        return self.cancelled and not self.counts.left

    @property
    def done(self) -> bool:
        """Nothing more will happen by itself."""
        return all(shard["done"] for shard in self.shards)

    @property
    def complete(self) -> bool:
        """It is done with all of its input, and nothing of it is lost."""
        return self.done and not self.counts.lost and self.record["incomplete"] is None

    @property
    def missing(self) -> int:
        """Documents that were processed, and have no result."""
        return sum(shard["missing"] for shard in self.shards)

    @property
    def unaccounted(self) -> int:
        """Documents of an input that has ended which no shard has in any state; 0, unless something is broken."""
        total: int | None = self.record["total"]
        if not self.sealed or total is None or self.record["incomplete"] is not None or self.cancelled:
            return 0
        return max(0, total - self.counts.all)

    @property
    def blocked(self) -> str:
        """Why nothing that happens now can be confirmed: a disk that is full, or that failed; "" when it can."""
        return next((why for shard in self.shards if (why := shard["failure"] or shard["short"])), "")

    @property
    def stopped(self) -> bool:
        """It paused itself: no room for results, or everything fails."""
        return bool(self.halted) or any(shard["stopped"] for shard in self.shards)

    @property
    def halted(self) -> str:
        """Why it paused itself because everything fails; "" when it did not."""
        return next((shard["halted"] for shard in self.shards if shard["halted"]), "")

    @property
    def run_paused(self) -> bool:
        """No new leases for this run alone."""
        return any(shard["paused"] for shard in self.shards)

    @property
    def queue_paused(self) -> bool:
        """No new leases for its whole queue."""
        return any(shard["queue_paused"] for shard in self.shards)

    @property
    def paused(self) -> bool:
        """No new leases for this run."""
        return self.run_paused or self.queue_paused

    def facts(self, queue: str, *, paused_by: str = "", consumers: int = 0) -> RunFacts:
        """Return what its statistics are made from; `consumers` are known of beside those that have asked for work."""
        return run_facts(
            self.shards,
            self.record,
            queue=queue,
            paused=any(shard["queue_paused"] for shard in self.shards),
            paused_by=paused_by,
            trouble=next((shard["trouble"] for shard in self.shards if shard["trouble"]), ""),
            blocked=self.blocked,
            served=max(consumers, self.consumers) > 0,
        )

    @property
    def consumers(self) -> int:
        """Consumer slots that ever parked and are alive, at the shard that has most."""
        return max(int(shard["consumers"]) for shard in self.shards)

    # --- its documents by ordinal -----------------------------------------------------------------

    @property
    def came(self) -> list[tuple[int, int]]:
        """Ordinals that were put and are not lost, as half-open ranges; asked with `covered`."""
        return [(lo, hi) for shard in self.shards for lo, hi in shard["came"]]

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
        kept[max(range(len(kept)), key=lambda shard: len(self.shards[shard]["died"]))] += gone
        return kept

    def cut_off(self, name: str) -> SubmissionIncomplete | None:
        """Return the error of a run that has a part of its input; None when it has all, or was cancelled."""
        incomplete = self.record["incomplete"]
        if incomplete is None or self.cancelled:
            return None
        if incomplete == CUT_OFF:
            reason = f"{CUT_OFF}; map the same documents under this name again to go on"
            return SubmissionIncomplete(run=name, position=self.counts.all, reason=reason)
        return SubmissionIncomplete(run=name, position=self.record["submitted"], reason=incomplete)

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Ordinals that were put and are lost, as half-open ranges; asked with `covered`."""
        held = Submitted.of(self.record).held
        if self.sealed and self.record["incomplete"] is None:
            held = [(0, self.record["total"])]
        came = Ranges(self.came)
        return [gap for lo, hi in held for gap in came.gaps(lo, hi)] if self.counts.lost else []

    def how_lost(self, queue: str) -> str:
        """Say how many documents were lost in which shard, and with which workers."""
        parts = []
        for index, shard in enumerate(self.shards):
            lost = shard["counts"][State.LOST]
            if lost and shard["died"]:
                workers = ", ".join(shard["died"][-3:])
                parts.append(f"{lost:,} were in memory, in shard {index} of queue {queue!r}, and worker {workers} died")
            elif lost:
                parts.append(f"{lost:,} were in damaged files of shard {index} of queue {queue!r} (see `dqlab fsck`)")
        return "; ".join(parts)
