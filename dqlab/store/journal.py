"""What happens to a shard, as records of a log, and which bytes of the log are still needed for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dqlab.clock import Clock
from dqlab.errors import FunctionTooLarge
from dqlab.frame import Frame, Outcome, Settlement
from dqlab.log import Log, RecordType
from dqlab.log.records import MAX_BODY
from dqlab.rules.batches import Batch
from dqlab.rules.lane import Lane, microseconds
from dqlab.rules.leases import Lease
from dqlab.rules.ranges import Ranges
from dqlab.rules.results import Stretch
from dqlab.rules.settling import Settled
from dqlab.rules.states import State
from dqlab.store.needed import NeededBytes
from dqlab.store.places import place_of, position_of
from dqlab.store.records import Counts, Move, Ruling, pack_plain, pack_settle

__all__ = ["MAX_FUNCTION", "MAX_RESULT", "MOVES", "LogJournal"]

MAX_FUNCTION = MAX_BODY - (1 << 20)
"""Bytes of a function, with room beside it for the order that brings it."""
MAX_RESULT = MAX_BODY - (4 << 20)
"""Bytes of a result, with room beside it for its document's key and what else its settlement tells."""
MOVES = 100_000
"""Most moves in one record: some 20 MB."""

_ADDED = 1024
_UNRECORDED = frozenset({"why", "purge"})
"""Orders that are no records: words for people, and one whose moves are recorded, for it depends on leases."""


class LogJournal(NeededBytes):
    """A `Journal` over a log. Does no I/O but in `body`, when that is not in memory.

    Leases are not recorded: what was leased when a shard died is ready again. Orders are recorded as they
    were given, and everything else that the rules do as moves of messages between states.

    Parameters
    ----------
    log : Log
    clock : Clock
        Its wall time is kept with frames and delays.
    """

    def __init__(self, log: Log, clock: Clock) -> None:
        super().__init__(log.need, log.free)
        self.log = log
        self._clock = clock
        self._moves: list[Move] = []
        self.recording = True
        """False while records are read back: what moves then stands in the log already."""
        self._early = Ranges()

    # --- what the rules tell ----------------------------------------------------------------

    def room(self, nbytes: int) -> bool:
        """Return whether the disk and the quota have room for a frame, and the reserve is there."""
        return self.log.room(nbytes)

    def put(self, frame: Frame, first: int) -> int:
        """Append a frame; its place is that of its record."""
        position = self.log.append(RecordType.PUT, [frame.blob], count=frame.count, base=first, aux=self._now())
        self.took(position.segment, position.size)
        return place_of(position)

    def moved(
        self, lane: Lane, batch: Batch, a: int, b: int, old: State, new: State, *, suspect: bool, due: int
    ) -> None:
        """Free the share of what is final; remember what a later reader could not know."""
        super().moved(lane, batch, a, b, old, new, suspect=suspect, due=due)
        if not self.recording or new is State.LEASED or (old is State.DELAYED and new is State.READY):
            return
        lo, hi = batch.first + a, batch.first + b
        trouble = lane.trouble.get(lo) if b - a == 1 else None
        early = bool(self._early) and bool(self._early.overlap(lo, hi))
        self._early.discard(lo, hi)
        if new is State.READY and trouble is None and not suspect and not early:
            return  # given back, as if it had never been leased
        delay = max(0, due - microseconds(self._clock.monotonic())) if new is State.DELAYED else 0
        counts = None if trouble is None or new.final else Counts.of(trouble)
        self._moves.append(Move(lane.run, lo, hi, new, suspect, delay, counts))

    def admit(self, nbytes: int = 0) -> None:
        """Raise why the log would not take a record of so many bytes."""
        self.log.admit(nbytes)

    def admit_order(self, op: str, run: bytes | None, meta: dict[str, Any]) -> None:
        """Raise why the log would not take an order, with what carrying it out may add."""
        _check_function(meta.get("blob") or b"")
        self.log.admit(0 if op in _UNRECORDED else len(pack_plain([op, run, meta])) + _ADDED)

    def settled(self, settlement: Settlement, settled: Settled) -> list[Stretch]:
        """Append a settlement that changed something; return where its results are."""
        if not (settled.results or settled.failed or self._moves):
            return []
        moves, self._moves = self._moves, []
        whole = (
            settlement.outcomes.count(Outcome.ACK) == settlement.count
            and tuple(piece for piece, _ in settled.results) == settlement.pieces
        )
        ruling = None if whole else Ruling.of(settled, [move for move in moves if move.state is not State.ACKED])
        parts = pack_settle(settlement, ruling)
        position = self.log.append(RecordType.SETTLE, parts, count=settlement.count, aux=self._now(), admitted=True)
        if settled.results:
            self.keep(position)
        place = place_of(position)
        return [Stretch(piece, place, at) for piece, at in settled.results]

    def ordered(self, op: str, run: bytes | None, meta: dict[str, Any]) -> None:
        """Append an order; what moved by it will move again when it is read."""
        if op in _UNRECORDED:
            self.noted()
            return
        self._moves.clear()
        self.log.append(RecordType.RUN, [pack_plain([op, run, meta])], aux=self._now(), admitted=True)

    def noted(self) -> None:
        """Append what has moved since the last record, in as many records as it takes."""
        moves, self._moves = self._moves, []
        for start in range(0, len(moves), MOVES):
            part = moves[start : start + MOVES]
            self.log.append(RecordType.STATE, [pack_plain(part)], aux=self._now(), admitted=True)

    def begun(self, lease: Lease) -> None:
        """Append that these messages are never to be delivered again, unless they are given back untouched."""
        self.log.append(RecordType.LEASE, [pack_plain([lease.run, list(lease.remaining)])], aux=self._now())
        self.remember_begun([lease])

    def remember_begun(self, leases: Iterable[Lease]) -> None:
        """Take in what the log says already, of leases of an earlier epoch."""
        for lease in leases:
            for lo, hi in lease.remaining:
                self._early.add(lo, hi)

    def function(self, hash: bytes, blob: bytes) -> None:
        """Append a function, unless it fits no record."""
        _check_function(blob)
        self.log.append(RecordType.FUNCTION, [hash, blob], aux=self._now())

    # --- what was kept ----------------------------------------------------------------------

    def cached(self, place: int) -> bytes | None:
        """Return the body of the record at a place if that needs no I/O."""
        return self.log.cached(position_of(place))

    def body(self, place: int) -> bytes:
        """Return the body of the record at a place; blocks when it is not in memory."""
        return self.log.read(position_of(place))

    def _now(self) -> int:
        return round(self._clock.wall() * 1e9)


def _check_function(blob: bytes) -> None:
    if len(blob) > MAX_FUNCTION:
        raise FunctionTooLarge(size=len(blob), limit=MAX_FUNCTION)
