"""Records what happens to a shard in its log, and counts which bytes of the log the shard still needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from dqlab.clock import Clock
from dqlab.errors import PutError
from dqlab.frame import Frame, Outcome, Settlement
from dqlab.log.log import Log
from dqlab.log.records import HEADER_BYTES, RecordType
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
from dqlab.store.values import MAX_FUNCTION, too_large

MOVES = 100_000
"""Most moves in one record: some 20 MB."""

_ADDED = 1024
_UNRECORDED = frozenset({Op.WHY, Op.PURGE})
"""Orders that are not recorded: `why` is for people only, and what `purge` does depends on leases, which a replay does
not have; its moves are recorded instead."""


class LogJournal:
    """A `Journal` over a log, in which only `body` does I/O."""

    # Leases are not recorded: what was leased when a shard died is ready again. Orders are recorded as they were given,
    # everything else that the rules do as moves of messages between states.
    #
    # The needed bytes that it counts must agree with what the ledger holds: the log deletes a segment once its count is
    # 0. A byte freed too often deletes messages, and a byte never freed keeps its file until the next opening, which
    # counts again by `needed_by`. So each count taken here has one way to end: a message's share when its state becomes
    # final (`moved`) or its lane is dropped (`freed`), a settlement when its last result is forgotten (`forgot`).

    def __init__(self, log: Log | None, clock: Clock) -> None:
        # None for a replay by a reader of files, which never records anything.
        self._log = log
        self._clock = clock  # its wall time is kept with frames and delays
        self._moves: list[Move] = []
        self.recording = False
        """False during a replay: what moves then is in the log already, and is not counted."""
        self._early = Ranges()
        # Bytes of settlements that are kept for their results.
        self.stored = 0

    @property
    def log(self) -> Log:
        """The log that it records in."""
        assert self._log is not None, "a reader of files records nothing"
        return self._log

    def start_recording(self, ledger: Ledger) -> None:
        """Record what happens from here on to a ledger that was replayed."""
        self.log.needs(needed_by(ledger))
        self.stored = sum(position_of(place).size for place in _places_of_results(ledger))
        self.recording = True

    # --- what the rules report ----------------------------------------------------------------

    def room(self, nbytes: int) -> bool:
        """Return whether the disk has room for a frame."""
        return self.log.room(nbytes)

    def put(self, frame: Frame, first: int) -> int:
        """Append a frame, and return the place of its record."""
        # Not `admitted`: `Shard.put` appends before it changes anything, so a refusal here changes nothing.
        body, size = [frame.blob], HEADER_BYTES + len(frame.blob)
        return place_of(
            self.log.append(RecordType.PUT, body, count=frame.count, base=first, aux=self._now(), needed=size)
        )

    def moved(
        self, lane: Lane, batch: Batch, a: int, b: int, old: State, new: State, *, suspect: bool, due: int
    ) -> None:
        """Free the share of final messages, and remember the moves that a replay could not repeat by itself."""
        if not self.recording:
            return
        if new.final:
            self._free_share(batch, a, b)
        # Neither leases nor the end of a delay are recorded: a replay has no leases, and ends delays by the time that
        # has passed.
        if new is State.LEASED or (old is State.DELAYED and new is State.READY):
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

    def freed(self, batch: Batch) -> None:
        """Free the share of messages that a dropped lane still had."""
        if self.recording and batch.left:
            for a, b in unsettled(batch):
                self._free_share(batch, a, b)

    def forgot(self, results: Iterable[Stretch]) -> None:
        """Free the settlements of forgotten results."""
        # A set: one settlement holds several stretches, and was counted once.
        for place in {stretch.place for stretch in results} if self.recording else ():
            position = position_of(place)
            self.log.free(position.segment, position.size)
            self.stored -= position.size

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
        needed = HEADER_BYTES + sum(map(len, parts)) if settled.results else 0
        self.stored += needed
        position = self.log.append(
            RecordType.SETTLE, parts, count=settlement.count, aux=self._now(), needed=needed, admitted=True
        )
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
        """Append a function, or raise `PutError`."""
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

    def _free_share(self, batch: Batch, a: int, b: int) -> None:
        position = position_of(batch.place)
        self.log.free(position.segment, share(position.size, len(batch.states), a, b))

    def _now(self) -> int:
        return round(self._clock.wall() * 1e9)


def _check_function(blob: bytes) -> None:
    if len(blob) > MAX_FUNCTION:
        raise PutError(reason=too_large(len(blob)))


def unsettled(batch: Batch) -> list[tuple[int, int]]:
    """Return the half-open ranges of a batch's messages whose state is not final."""
    spans = stretches(batch.states, 0, len(batch.states))
    return [(a, b) for a, b, state in spans if not State(state).final]


def needed_by(ledger: Ledger) -> dict[int, int]:
    """Return the bytes of each segment that a ledger needs."""
    needed: defaultdict[int, int] = defaultdict(int)
    for lane in ledger.shard.lanes.values():
        for batch in lane.batches.kept():
            segment, _, size = position_of(batch.place)
            needed[segment] += sum(share(size, len(batch.states), a, b) for a, b in unsettled(batch))
        for rows in lane.batches.frozen():
            for place in rows.column("place"):
                segment, _, size = position_of(place)
                needed[segment] += size
    for place in _places_of_results(ledger):
        segment, _, size = position_of(place)
        needed[segment] += size
    return {segment: nbytes for segment, nbytes in needed.items() if nbytes}


def _places_of_results(ledger: Ledger) -> set[int]:
    return {stretch.place for book in ledger.books.values() for stretch in book.results}
