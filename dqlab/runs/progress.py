"""How far a run is: what its shards say of it, and which of its documents are where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dqlab.cluster.transport.run_standing import RunStanding
from dqlab.errors import SubmissionIncomplete
from dqlab.rules.book import CUT_OFF
from dqlab.rules.ranges import Ranges
from dqlab.rules.states import State
from dqlab.rules.submitted import Submitted

__all__ = ["Progress"]


@dataclass(frozen=True)
class Progress(RunStanding):
    """What a run's shards say of it right now, joined, down to the ordinals of its documents."""

    @property
    def came(self) -> list[tuple[int, int]]:
        """Ordinals that were put and are not lost, as half-open ranges; asked with `covered`."""
        return [(lo, hi) for shard in self.shards for lo, hi in shard["came"]]

    def kept_of(self, held: Iterable[tuple[int, int]]) -> list[int]:
        """Return how many documents each shard holds, if lost ones that are not among the ordinals `held` come again.

        Which shard had which of the lost ones is not known; together they have all of them. A shard that died may have
        had more than it had reported: who died confirmed them a moment before.
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
