"""Submits what a plan has: documents that changed, each at its ordinal and in its shard, and new ones behind all."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dqlab.cluster.transport import orders
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.rules.submitted import Submitted
from dqlab.runs.submit.mapping import Submitter
from dqlab.runs.submit.sender import RunSender, UnsentFrame
from dqlab.runs.update.plan import UPDATED, UpdatePlan

__all__ = ["UpdateSender", "UpdateSubmitter"]


class UpdateSender(RunSender):
    """Sends documents to the shards that have them already, and what is new to any."""

    _homes: dict[int, int]
    """By the end of a gap, the shard that its documents go to."""

    def put_back(self, ordinals: Iterable[int], came: Sequence[Ranges], end: int) -> None:
        """Give the next documents these ordinals, ascending, and those that follow the ordinals from `end` on."""
        # A frame goes to one shard: two results of a document in two shards would both be read.
        self.frames_per_call = 1
        wanted = Ranges((ordinal, ordinal + 1) for ordinal in ordinals)
        gaps = sorted(
            (*span, shard) for shard, there in enumerate(came) for lo, hi in there for span in wanted.within(lo, hi)
        )
        self._homes = {hi: shard for _, hi, shard in gaps}
        self._gaps = deque([*((lo, hi) for lo, hi, _ in gaps), (end, ENDLESS)])
        self.again, self._end = wanted.size, end

    def choose(self) -> int:
        """Return the shard of the next frame."""
        home = self._homes.get(self._gaps[0][1])
        return super().choose() if home is None else home

    def _confirmed(self, batch: UnsentFrame, first: int | None) -> None:
        super()._confirmed(batch, first)
        if batch.ordinal < self._end:
            self.here[batch.shard] -= len(batch.payloads)  # they count there already


class UpdateSubmitter(Submitter):
    """Puts the documents of a plan, and then ends the run's input again."""

    def __init__(self, plan: UpdatePlan, sender: UpdateSender) -> None:
        super().__init__(plan.run, plan.input, sender)
        self.count = sum(sender.here) - sender.again
        self._documents = [*(document for _, document in plan.changed), *plan.new]
        self._mark = f"{UPDATED}{uuid.uuid4().hex}"

    def reading(self) -> Iterator[Any]:
        """Return the documents to put."""
        return iter(self._documents)

    def _submitted(self, held: Ranges) -> orders.RecordSubmitted:
        through = held.gaps(0, ENDLESS)[0][0]
        record = Submitted(through, self._mark, Ranges(held.within(through, ENDLESS)), self._mark)
        return orders.RecordSubmitted(self.sender.run, record, self.sender.producer)
