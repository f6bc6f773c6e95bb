"""Records what happens to a shard in its log, and counts which bytes of the log the shard still needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dqlab.clock import Clock
from dqlab.errors import FunctionTooLarge
from dqlab.frame import Frame, Outcome, Settlement
from dqlab.log import Log, Position, RecordType
from dqlab.rules.batches import Batch, share
from dqlab.rules.deliveries import Settled
from dqlab.rules.journal import Op
from dqlab.rules.lane import Lane, microseconds
from dqlab.rules.leases import Lease
from dqlab.rules.ledger import Ledger
from dqlab.rules.ranges import Ranges
from dqlab.rules.result_index import Stretch
from dqlab.rules.states import State, stretches
from dqlab.store.bodies import DeliveryCounts, Move, Ruling, pack_plain, pack_settle, place_of, position_of
from dqlab.store.values import MAX_FUNCTION

__all__ = ["MOVES", "LogJournal", "NeededBytes", "needed_by"]

MOVES = 100_000
"""Most moves in one record: some 20 MB."""

_ADDED = 1024
_UNRECORDED = frozenset({Op.WHY, Op.PURGE})
"""Orders that are not recorded: `why` is for people only, and what `purge` does depends on leases, which a replay does
not have; its moves are recorded instead."""


class NeededBytes:
    """A `Journal` that records nothing and only counts the bytes still needed, for replays."""

    # These books must agree with what the ledger holds, byte for byte, across restarts: the log deletes a segment once
    # its count is 0. A byte freed too often deletes messages, and a byte never freed keeps its file forever. So each
    # count taken here has one way to end: a message's share when its state becomes final (`moved`) or its lane is
    # dropped (`freed`), a settlement when its last result is forgotten (`forgot`). `needed_by` counts from the ledger
    # alone, and tests and `dqlab store check` compare the two.

    def __init__(self, need: Callable[[int, int], None], free: Callable[[int, int], None]) -> None:
        # Both are called with a segment, and with bytes that become needed, or are needed no longer.
        self._need = need
        self._free = free
        # Bytes of settlements that are kept for their results.
        self.stored = 0

    def room(self, nbytes: int) -> bool:
        """Return False, because a journal that only counts takes no frame."""
        return False

    def put(self, frame: Frame, first: int) -> int:
        """Raise, because a journal without room is never asked to put."""
        raise AssertionError("a journal that is only read takes no frame")

    def moved(
        self, lane: Lane, batch: Batch, a: int, b: int, old: State, new: State, *, suspect: bool, due: int
    ) -> None:
        """Free the share of messages whose state is final now."""
        if new.final:
            self._free_share(batch, a, b)

    def freed(self, batch: Batch) -> None:
        """Free the share of messages that a dropped lane still had."""
        if batch.left:
            for a, b, state in stretches(batch.states, 0, len(batch.states)):
                if not State(state).final:
                    self._free_share(batch, a, b)

    def forgot(self, results: Iterable[Stretch]) -> None:
        """Free the settlements of forgotten results."""
        # A set: one settlement holds several stretches, and was counted once.
        for place in {stretch.place for stretch in results}:
            position = position_of(place)
            self._free(position.segment, position.size)
            self.stored -= position.size

    def admit(self, nbytes: int = 0) -> None:
        """Do nothing, because what is replayed was admitted."""

    def admit_order(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> None:
        """Do nothing, as `admit`."""

    def settled(self, settlement: Settlement, settled: Settled) -> list[Stretch]:
        """Raise, because a replay brings no new settlement."""
        raise AssertionError("a journal that is only read takes no settlement")

    def ordered(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> None:
        """Raise, because a replay brings no new order."""
        raise AssertionError("a journal that is only read takes no order")

    def begun(self, lease: Lease) -> None:
        """Raise, because a replay brings no new lease."""
        raise AssertionError("a journal that is only read takes no lease")

    def function(self, hash: bytes, blob: bytes) -> None:
        """Raise, because a replay brings no new function."""
        raise AssertionError("a journal that is only read takes no function")

    def noted(self) -> None:
        """Do nothing, because moves of a replay are recorded already."""

    def took(self, segment: int, nbytes: int) -> None:
        """Count frames as needed."""
        self._need(segment, nbytes)

    def keep(self, position: Position) -> None:
        """Count a settlement as needed, for the results in it."""
        self._need(position.segment, position.size)
        self.stored += position.size

    def _free_share(self, batch: Batch, a: int, b: int) -> None:
        position = position_of(batch.place)
        self._free(position.segment, share(position.size, len(batch.states), a, b))


class LogJournal(NeededBytes):
    """A `Journal` over a log, in which only `body` does I/O."""

    # Leases are not recorded: what was leased when a shard died is ready again. Orders are recorded as they were given,
    # everything else that the rules do as moves of messages between states.

    def __init__(self, log: Log, clock: Clock) -> None:
        super().__init__(log.need, log.free)
        self.log = log
        self._clock = clock  # its wall time is kept with frames and delays
        self._moves: list[Move] = []
        self.recording = True
        """False during a replay: what moves then is in the log already."""
        self._early = Ranges()

    # --- what the rules report ----------------------------------------------------------------

    def room(self, nbytes: int) -> bool:
        """Return whether the disk and the quota have room for a frame, and the reserve is there."""
        return self.log.room(nbytes)

    def put(self, frame: Frame, first: int) -> int:
        """Append a frame, and return the place of its record."""
        # Not `admitted`: `Shard.put` appends before it changes anything, so a refusal here changes nothing.
        position = self.log.append(RecordType.PUT, [frame.blob], count=frame.count, base=first, aux=self._now())
        self.took(position.segment, position.size)
        return place_of(position)

    def moved(
        self, lane: Lane, batch: Batch, a: int, b: int, old: State, new: State, *, suspect: bool, due: int
    ) -> None:
        """Free the share of final messages, and remember the moves that a replay could not repeat by itself."""
        super().moved(lane, batch, a, b, old, new, suspect=suspect, due=due)
        # Neither leases nor the end of a delay are recorded: a replay has no leases, and ends delays by the time that
        # has passed.
        if not self.recording or new is State.LEASED or (old is State.DELAYED and new is State.READY):
            return
        lo, hi = batch.first + a, batch.first + b
        trouble = lane.trouble.get(lo) if b - a == 1 else None
        # Read before it is forgotten: what was acked early and is given back must be recorded, or a replay ends it.
        early = bool(self._early) and bool(self._early.overlap(lo, hi))
        self._early.discard(lo, hi)
        if new is State.READY and trouble is None and not suspect and not early:
            return  # given back, as if never leased
        delay = max(0, due - microseconds(self._clock.monotonic())) if new is State.DELAYED else 0
        counts = None if trouble is None or new.final else DeliveryCounts.of(trouble)
        self._moves.append(Move(lane.run, lo, hi, new, suspect, delay, counts))

    def admit(self, nbytes: int = 0) -> None:
        """Raise the reason why the log would not take a record of this size."""
        self.log.admit(nbytes)

    def admit_order(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> None:
        """Raise the reason why the log would not take an order, with all that executing it may add."""
        _check_function(meta.get("blob") or b"")
        self.log.admit(0 if op in _UNRECORDED else len(pack_plain([op, run, meta])) + _ADDED)

    def settled(self, settlement: Settlement, settled: Settled) -> list[Stretch]:
        """Append a settlement that changed something, and return the places of its results."""
        if not (settled.results or settled.failed or self._moves):
            return []
        moves, self._moves = self._moves, []
        # Nearly always every ack is accepted; then the settlement alone says it all, and no ruling is stored.
        whole = (
            settlement.outcomes.count(Outcome.ACK) == settlement.count
            and tuple(piece for piece, _ in settled.results) == settlement.pieces
        )
        # Acks are in the results already, with their place; as moves they would be stored twice.
        ruling = None if whole else Ruling.of(settled, [move for move in moves if move.state is not State.ACKED])
        parts = pack_settle(settlement, ruling)
        position = self.log.append(RecordType.SETTLE, parts, count=settlement.count, aux=self._now(), admitted=True)
        if settled.results:
            self.keep(position)
        place = place_of(position)
        return [Stretch(piece, place, at) for piece, at in settled.results]

    def ordered(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> None:
        """Append an order."""
        if op in _UNRECORDED:
            self.noted()
            return
        # A replay carries the order out again. With these moves it would apply them twice.
        self._moves.clear()
        self.log.append(RecordType.RUN, [pack_plain([op, run, meta])], aux=self._now(), admitted=True)

    def noted(self) -> None:
        """Append the moves since the last record, in as many records as it takes."""
        moves, self._moves = self._moves, []
        for start in range(0, len(moves), MOVES):
            part = moves[start : start + MOVES]
            self.log.append(RecordType.STATE, [pack_plain(part)], aux=self._now(), admitted=True)

    def begun(self, lease: Lease) -> None:
        """Append that these messages are acked early, so that only their consumer can give them back."""
        # Not `admitted`: it may raise, and then the lease is not begun.
        self.log.append(RecordType.LEASE, [pack_plain([lease.run, list(lease.remaining)])], aux=self._now())
        self.remember_begun([lease])

    def remember_begun(self, leases: Iterable[Lease]) -> None:
        """Take over early acks of an earlier epoch, which are in the log already."""
        for lease in leases:
            for lo, hi in lease.remaining:
                self._early.add(lo, hi)

    def function(self, hash: bytes, blob: bytes) -> None:
        """Append a function, or raise `FunctionTooLarge`."""
        _check_function(blob)
        self.log.append(RecordType.FUNCTION, [hash, blob], aux=self._now())

    # --- reading ----------------------------------------------------------------------

    def cached(self, place: int) -> bytes | None:
        """Return the body of the record at a place if that needs no I/O."""
        return self.log.cached(position_of(place))

    def body(self, place: int) -> bytes:
        """Return the body of the record at a place, from memory or from the disk."""
        # Blocks when it is not in memory, so a shard calls it in a thread.
        return self.log.read(position_of(place))

    def _now(self) -> int:
        return round(self._clock.wall() * 1e9)


def _check_function(blob: bytes) -> None:
    if len(blob) > MAX_FUNCTION:
        raise FunctionTooLarge(size=len(blob), limit=MAX_FUNCTION)


def needed_by(ledger: Ledger) -> dict[int, int]:
    """Return the bytes of each segment that a ledger needs, counted from the ledger alone."""
    needed: dict[int, int] = {}

    def add(place: int, nbytes: int) -> None:
        segment = position_of(place).segment
        needed[segment] = needed.get(segment, 0) + nbytes

    for lane in ledger.shard.lanes.values():
        for batch in lane.batches:
            size, count = position_of(batch.place).size, len(batch.states)
            for a, b, state in stretches(batch.states, 0, count):
                if not State(state).final:
                    add(batch.place, share(size, count, a, b))
    for place in {stretch.place for book in ledger.books.values() for stretch in book.results}:
        add(place, position_of(place).size)
    return {segment: nbytes for segment, nbytes in needed.items() if nbytes}
