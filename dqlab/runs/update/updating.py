"""Puts documents of a run again, each under its ordinal and in its shard, and new ones behind all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dqlab.cluster.transport import orders
from dqlab.cluster.transport.reports import Progress
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.runs.submit.mapping import Submitter
from dqlab.runs.submit.sender import RunSender, UnsentFrame

TOGETHER = 64
"""Frames of one call, at most."""


class UpdateSender(RunSender):
    """Sends documents to the shards that have them already, and what is new to any."""

    _homes: dict[int, int]
    """By the end of a gap, the shard that its documents go to."""

    def put_back(self, progress: Progress, ordinals: Iterable[int]) -> None:
        """Give the next documents these ordinals, ascending, and those that follow the ones behind all others."""
        # A frame goes to one shard: two results of a document in two shards would both be read.
        self.frames_per_call = 1
        self.go_on([counts.all for counts in progress.by_shard], progress.came)
        self._end = max((hi for _, hi in self.held), default=0)
        wanted = Ranges((ordinal, ordinal + 1) for ordinal in ordinals)
        self.again = wanted.size
        gaps = sorted(
            (*span, number)
            for number, shard in enumerate(progress.shards)
            for lo, hi in shard.came
            for span in wanted.within(lo, hi)
        )
        self._homes = {hi: shard for _, hi, shard in gaps}
        self._gaps = deque([*((lo, hi) for lo, hi, _ in gaps), (self._end, ENDLESS)])

    def choose(self) -> int:
        """Return the shard of the next frame."""
        home = self._homes.get(self._gaps[0][1])
        return super().choose() if home is None else home

    def _parcel(self) -> list[UnsentFrame]:
        """Take the frames of one call, of which those for scattered documents have one each."""
        room = self.taken_bytes + self.frame_bytes
        parcel = super()._parcel()
        while len(parcel) < TOGETHER and self.buffer and self.taken_bytes < room:
            if self._homes.get(self._gaps[0][1]) != self.shard:
                break
            parcel.append(self._number(self.gather(), self.shard))
        return parcel

    def _confirmed(self, batch: UnsentFrame, first: int | None) -> None:
        super()._confirmed(batch, first)
        if batch.ordinal < self._end:
            self.here[batch.shard] -= len(batch.payloads)  # they count there already


class UpdateSubmitter(Submitter):
    """Puts documents again and new ones, and then ends the run's input as `submitted` says."""

    def __init__(
        self,
        name: str,
        elements: Iterable[Any],
        documents: Sequence[Any],
        sender: UpdateSender,
        submitted: Submitted | str,
    ) -> None:
        # submitted: what is recorded of the input, or its digest, where that is no longer the one of before.
        super().__init__(name, elements, sender)
        self.count = sum(sender.here) - sender.again
        self._documents, self._record = documents, submitted

    def reading(self) -> Iterator[Any]:
        """Return the documents to put."""
        return iter(self._documents)

    def _submitted(self, held: Ranges) -> orders.RecordSubmitted:
        record = self._record
        if isinstance(record, str):
            through = held.gaps(0, ENDLESS)[0][0]
            record = Submitted(through, record, Ranges(held.within(through, ENDLESS)), record)
        return orders.RecordSubmitted(self.sender.run, record, self.sender.producer)
