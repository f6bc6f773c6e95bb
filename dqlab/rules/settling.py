"""The rules of a settle: which of a consumer's outcomes count.

An outcome is accepted when its message is leased under the settlement's receipt. An ack or a failure is
also accepted when the message is ready or delayed and no consumer holds it (its lease expired, or an earlier
epoch granted it): that saves running it again. A failure counts once per delivery, however often its
settlement arrives. What was settled before is a duplicate, which is success; the rest is stale.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from dqlab.frame import Outcome, Piece, Settlement
from dqlab.rules.batches import Batch
from dqlab.rules.endings import fail
from dqlab.rules.lane import Lane
from dqlab.rules.leases import Lease
from dqlab.rules.states import State, stretches
from dqlab.rules.trouble import Receipt

__all__ = ["Failed", "Settled", "Settling"]

_OUTCOMES = tuple(Outcome)


class Failed(NamedTuple):
    """A newly accepted FAIL or REJECT.

    Attributes
    ----------
    at : int
        Its position in the settlement's columns.
    dead : bool
        False when the message will be tried again.
    """

    id: int
    ordinal: int
    at: int
    dead: bool


class Settled(NamedTuple):
    """What a settlement changed.

    Attributes
    ----------
    results : tuple of (Piece, int)
        Newly acked messages, and the position of their stretch in the settlement's columns.
    failed : tuple of Failed
        Newly accepted exceptions.
    duplicates : int
        Outcomes of messages that were settled before.
    stale : int
        Outcomes of messages that are leased to another consumer, cancelled or unknown.
    """

    results: tuple[tuple[Piece, int], ...] = ()
    failed: tuple[Failed, ...] = ()
    duplicates: int = 0
    stale: int = 0


class Settling:
    """Applies one settlement to a lane.

    Parameters
    ----------
    lane : Lane
        The lane that the settlement names; it does not know messages of other lanes, so they are stale.
    lease : Lease or None
        The lease of the receipt, None when it no longer exists.
    """

    def __init__(
        self,
        lane: Lane,
        lease: Lease | None,
        settlement: Settlement,
        *,
        now: float,
        random: Random,
    ) -> None:
        self._lane = lane
        self._lease = lease
        self._settlement = settlement
        self._receipt: Receipt = (settlement.epoch, settlement.lease)
        self._now = now
        self._random = random
        self._results: list[tuple[Piece, int]] = []
        self._failed: list[Failed] = []
        self._duplicates = 0
        self._stale = 0
        self.processed = 0
        """Messages with an accepted outcome other than RETURN."""

    def apply(self) -> Settled:
        """Judge every outcome, change the lane accordingly and return what happened."""
        outcomes, at = self._settlement.outcomes, 0
        for first, _, n in self._settlement.pieces:
            for start, stop, outcome in stretches(outcomes, at, at + n):
                self._stretch(first + start - at, first + stop - at, _OUTCOMES[outcome], start)
            at += n
        return Settled(tuple(self._results), tuple(self._failed), self._duplicates, self._stale)

    def _stretch(self, lo: int, hi: int, outcome: Outcome, at: int) -> None:
        """Judge ids ``[lo, hi)``, which all have the same outcome and start at position `at`."""
        if self._lease is None:
            self._free(lo, hi, outcome, at)
            return
        remaining = self._lease.remaining
        held = remaining.overlap(lo, hi)
        others = remaining.gaps(lo, hi) if held != [(lo, hi)] else []
        for a, b in held:
            remaining.discard(a, b)
            for batch, start, stop in self._lane.batches.covering(a, b):
                self._accept(batch, start, stop, outcome, at + batch.first + start - lo)
        for a, b in others:
            self._free(a, b, outcome, at + a - lo)

    def _free(self, lo: int, hi: int, outcome: Outcome, at: int) -> None:
        """Judge ids that are not leased under the receipt."""
        # Counted first: an ack below may free its frame, and would then be counted here again.
        settled = sum(b - a for a, b in self._lane.settled.within(lo, hi))
        unknown = hi - lo - settled
        for batch, a, b, state in self._lane.stretches(lo, hi):
            unknown -= b - a
            if state in (State.ACKED, State.DEAD):
                self._duplicates += b - a
            elif state not in (State.READY, State.DELAYED):
                self._stale += b - a
            elif outcome is Outcome.ACK:
                self._accept(batch, a, b, outcome, at + batch.first + a - lo)
            else:
                self._free_failures(batch, a, b, outcome, at + batch.first + a - lo)
        self._duplicates += settled
        self._stale += unknown

    def _free_failures(self, batch: Batch, a: int, b: int, outcome: Outcome, at: int) -> None:
        """Accept failures of waiting messages unless the same delivery was counted or given back before."""
        for index in range(a, b):
            record = self._lane.trouble.get(batch.first + index)
            if outcome is Outcome.RETURN or (record is not None and record.receipt == self._receipt):
                self._duplicates += 1
            else:
                self._fail(batch, index, outcome, at + index - a, early=False)

    def _accept(self, batch: Batch, a: int, b: int, outcome: Outcome, at: int) -> None:
        if outcome is Outcome.ACK:
            self._lane.move(batch, a, b, State.ACKED)
            self._results.append((Piece(batch.first + a, batch.ordinal + a, b - a), at))
            self.processed += b - a
        elif outcome is Outcome.RETURN:
            suspect = self._lease is not None and self._lease.suspect
            self._lane.move(batch, a, b, State.READY, suspect=suspect)
        else:
            early = self._lease is not None and self._lease.early
            for index in range(a, b):
                self._fail(batch, index, outcome, at + index - a, early=early)

    def _fail(self, batch: Batch, index: int, outcome: Outcome, at: int, *, early: bool) -> None:
        dead = fail(
            self._lane,
            batch,
            index,
            outcome,
            bytes(self._settlement.entry(at)),
            early=early,
            receipt=self._receipt,
            now=self._now,
            random=self._random,
        )
        self.processed += 1
        if outcome is not Outcome.NACK:
            self._failed.append(Failed(batch.first + index, batch.ordinal + index, at, dead))
