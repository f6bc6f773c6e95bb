"""What the shards of a queue report of one run, joined: for the client that asks them and for the collector.

A lane is what one shard reports of one run: `rules.book.Book.report`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dqlab.rules.book import CANCELLED
from dqlab.stats import CodeStats, Counts, RunFacts, RunState, run_state, total_counts

__all__ = ["RunStanding", "run_facts", "state_of", "sum_counts", "sum_units"]


def sum_counts(lanes: Iterable[dict[str, Any]]) -> Counts:
    """Return the messages of lanes by state."""
    return _summed([lane["counts"] for lane in lanes])


def sum_units(lanes: Iterable[dict[str, Any]]) -> Counts | None:
    """Return the pages of lanes by state, None where none is known."""
    known = [lane["units"] for lane in lanes if lane["units"]]
    return _summed(known) if known else None


def _summed(rows: Sequence[Sequence[int]]) -> Counts:
    if len(rows) == 1:
        return Counts(*rows[0])
    return Counts(*map(sum, zip(*rows, strict=True))) if rows else Counts()


def state_of(lanes: Collection[dict[str, Any]], *, paused: bool, blocked: str, served: bool) -> RunState:
    """Return what the run of these lanes does; `paused`, `blocked` and `served` are of its queue."""
    return run_state(
        sum_counts(lanes),
        sealed=all(lane["sealed"] for lane in lanes),
        incomplete=any(lane["name"] is not None and lane["incomplete"] is not None for lane in lanes),
        paused=paused or any(lane["paused"] for lane in lanes),
        stopped=any(lane["stopped"] or lane["halted"] for lane in lanes),
        consumers=int(served),
        blocked=bool(blocked),
    )


def run_facts(
    lanes: Collection[dict[str, Any]],
    record: dict[str, Any],
    *,
    queue: str,
    paused: bool,
    paused_by: str,
    trouble: str,
    blocked: str,
    served: bool,
) -> RunFacts:
    """Return what the lanes of a run tell, and its queue.

    Parameters
    ----------
    record : dict
        The lane with the run's record.
    paused, served : bool
        The queue is paused, and has a consumer.
    paused_by, trouble, blocked : str
        See `RunFacts`.
    """
    ends = [lane["ended"] for lane in lanes]
    code = record["code"]
    return RunFacts(
        name=record["name"],
        queue=queue,
        state=state_of(lanes, paused=paused, blocked=blocked, served=served),
        counts=sum_counts(lanes),
        units=sum_units(lanes),
        retrying=sum(lane["retrying"] for lane in lanes),
        sealed=all(lane["sealed"] for lane in lanes),
        total=record["total"],
        incomplete=record["incomplete"],
        noted=record["why"],
        paused_by=paused_by,
        halted=next((lane["halted"] for lane in lanes if lane["halted"]), ""),
        full=any(lane["stopped"] for lane in lanes),
        trouble=trouble,
        blocked=blocked,
        code=CodeStats(name=code["name"], short=code["short"], version=record["versions"], cell=code["cell"]),
        started=record["started"],
        ended=max(ends) if None not in ends else None,
        idle=max(lane["idle"] for lane in lanes),
    )


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
