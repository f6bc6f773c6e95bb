"""What the shards of a queue say of one run, joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dqlab.rules.book import CANCELLED
from dqlab.stats import Counts, total_counts

__all__ = ["RunStanding"]


@dataclass(frozen=True)
class RunStanding:
    """What a run's shards say of it right now, joined: their answers to ``watch``."""

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
        """It was cancelled and nothing of it is left, though its input, which nobody needs, may not end for long."""
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
    def paused(self) -> bool:
        """No new leases for this run."""
        return any(shard["paused"] or shard["queue_paused"] for shard in self.shards)

    @property
    def consumers(self) -> int:
        """Consumer slots that ever parked and are alive, at the shard that has most."""
        return max(int(shard["consumers"]) for shard in self.shards)
