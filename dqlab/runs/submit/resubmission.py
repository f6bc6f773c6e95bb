"""Reads the lost documents of a run again from its input, and puts them again with the same ordinals."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from dqlab.cluster.transport import calls
from dqlab.cluster.transport.sealed import SealError, seal_or_explain
from dqlab.documents.named_rows import sealer_of_rows
from dqlab.errors import InputChanged, RunExists
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.runs.claiming import Claim
from dqlab.runs.submit.digest import Digest
from dqlab.runs.submit.mapping import Submitter
from dqlab.runs.submit.sender import Entry

__all__ = ["Resubmission", "claim_of"]


class Resubmission(Submitter):
    """Sends the lost documents of a run, once the earlier submission has ended."""

    def __init__(
        self,
        earlier: Submitter,
        entry: Entry,
        lost: Callable[[], tuple[list[tuple[int, int]], list[int]]],
        claim: Claim,
    ) -> None:
        super().__init__(earlier.name, earlier.elements, earlier.sender.successor(entry))
        self._had = earlier._had
        # The first reading of the input, which this one is compared with: a resubmission reads only as far as it must.
        self.source: Submitter = earlier.source if isinstance(earlier, Resubmission) else earlier
        self.digest = self.source.digest
        self._earlier = earlier
        """Has read all of the input in this process."""
        self._lost = lost
        """Returns the lost ordinals as half-open ranges, and how many documents each shard has lost."""
        self._claim = claim
        """Allows this resubmission; given back at the end."""

    def stop(self, error: BaseException) -> None:
        """Stop sending, here and in the earlier submission."""
        self._earlier.stop(error)
        super().stop(error)

    def end(self) -> None:
        """End both submissions."""
        self._earlier.end()
        super().end()

    def _submit(self) -> None:
        self._earlier.finished.wait()
        self._raise_given_up()
        # Where the source found another input, its digest is not the run's, so nothing read now can be compared with
        # it.
        found = self.source.error
        if found is not None and (self.source.verifies or isinstance(found, RunExists)):
            raise found
        self.digest.at(self.source.count)  # folds the last elements, so that a mark stands at the input's end
        sender, number = self.sender, self._claim.number
        # Before asking what is lost: from here on no shard accepts documents from an earlier holder of the claim.
        sender.handle.link.sync(sender.handle.ask_all(calls.ClaimCall(sender.run, number)))
        lost, room = self._lost()
        if not lost or self._stopped is not None:
            return
        sender.replace(lost, room, number)
        for element, payload in self._read(Ranges(lost), lost[-1][1]):
            sender.append(element, payload)

    def _read(self, lost: Ranges, end: int) -> Iterator[tuple[Any, bytes]]:
        """Yield the lost elements and their payloads, once the input around them has been compared."""
        seal, digest, marks = sealer_of_rows(self.sealer()), Digest(lambda: ENDLESS), deque(self.digest.marks)
        # An element is put only when the input up to the next mark is the same as the first time: a document that moved
        # would get the result of another one.
        checked, waiting = 0, list[tuple[Any, bytes]]()
        for ordinal, element in enumerate(self.reading()):
            self._raise_given_up()
            try:
                payload = seal(element)
            except SealError:
                payload = seal_or_explain(element, f"element {ordinal}")
            digest.update(element, payload)
            if ordinal in lost:
                waiting.append((element, payload))
            while marks and marks[0][0] == ordinal + 1:
                if digest.at(ordinal + 1) != marks.popleft()[1]:
                    difference = f"they differ before document {ordinal + 1:,}"
                    raise InputChanged(run=self.name, difference=difference)
                checked = ordinal + 1
                yield from waiting
                waiting.clear()
            self.count = ordinal + 1
            if checked >= end:
                return
        if checked < end:
            difference = f"it had {end:,} or more, these are {self.count:,}"
            raise InputChanged(run=self.name, difference=difference)

    def _finish(self) -> None:
        """Confirm what was sent, and give the claim back."""
        try:
            # Unlike a submission, this seals no shard: the run's input has ended already.
            self._confirm()
        finally:
            self._claim.give_back()


def claim_of(run: bytes) -> str:
    """Return the name, at the scheduler, of the claim to send a run's lost documents again."""
    return f"lost/{run.hex()}"
