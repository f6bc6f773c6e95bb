"""Records what happens to a shard in its log, and counts which bytes of the log the shard still needs.

The bodies of the records are plain data in msgpack::

    PUT       the frame, verbatim; base = first id, count = messages, aux = wall clock, ns
    SETTLE    u32 size of the ruling | ruling | the settlement, verbatim; no ruling: every ack was accepted
              a copy: base = place of the original without its size, which is the copy's
    STATE     moves
    RUN       [op, run, meta]: an order, carried out again by the replay
    FUNCTION  hash | blob
    LEASE     [run, [[lo, hi], ...]]: acked early, never to be delivered again
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import msgpack

from dqlab.clock import Clock
from dqlab.errors import PutError
from dqlab.frame import Frame, Outcome, Piece, Settlement
from dqlab.log.log import Log
from dqlab.log.records import HEADER_BYTES, Position, Record, RecordType
from dqlab.rules.batches import Batch, share
from dqlab.rules.deliveries import Failed, Settled
from dqlab.rules.journal import Op
from dqlab.rules.lane import Lane, microseconds
from dqlab.rules.leases import Lease
from dqlab.rules.ledger import Ledger
from dqlab.rules.ranges import Ranges
from dqlab.rules.result_index import Stretch
from dqlab.rules.states import State, stretches
from dqlab.rules.trouble import Trouble
from dqlab.store.values import MAX_FUNCTION, too_large
from dqlab.texts import EXACT

_SIZE = struct.Struct("<I")
_OFFSET_BITS = _SIZE_BITS = 27
"""A record's body is at most 64 MiB, and begins within a segment's first 128 MiB. Checkpoints hold places: never change
the widths."""


def place_of(position: Position) -> int:
    """Return a record's position as the one number that the rules carry."""
    segment, offset, size = position
    return (segment << _OFFSET_BITS | offset) << _SIZE_BITS | size


def position_of(place: int) -> Position:
    """Return the position that `place_of` was given."""
    rest, size = place >> _SIZE_BITS, place & ((1 << _SIZE_BITS) - 1)
    return Position(rest >> _OFFSET_BITS, rest & ((1 << _OFFSET_BITS) - 1), size)


def base_of_copy(place: int) -> int:
    """Return the field `base` of a copied settlement, given the place of the original."""
    return place >> _SIZE_BITS


def old_place(record: Record) -> int:
    """Return the place of the settlement that a record is a copy of."""
    return record.base << _SIZE_BITS | record.position.size


class DeliveryCounts(NamedTuple):
    """The counts of a message in trouble after a move."""

    deliveries: int
    exceptions: int
    reason: str
    receipt: tuple[int, int] | None
    failure: int | bytes | None
    """The failure record, or its index in the settlement; None when it did not change."""

    @classmethod
    def of(cls, trouble: Trouble) -> DeliveryCounts:
        """Return a message's counts without its failure record."""
        return cls(trouble.deliveries, trouble.exceptions, trouble.reason, trouble.receipt, None)


class Move(NamedTuple):
    """Messages that changed their state."""

    run: bytes
    lo: int
    """With `hi`, a half-open range of ids."""
    hi: int
    state: State
    suspect: bool
    """With READY: they are to be leased alone."""
    delay: int
    """With DELAYED: microseconds after the record's time."""
    counts: DeliveryCounts | None
    """Counts of a single message in trouble."""

    @classmethod
    def from_list(cls, row: Sequence[Any]) -> Move:
        """Return the move that msgpack unpacked as a list."""
        run, lo, hi, state, suspect, delay, counts = row
        if counts is not None:
            deliveries, exceptions, reason, receipt, failure = counts
            counts = DeliveryCounts(deliveries, exceptions, reason, tuple(receipt) if receipt else None, failure)
        return cls(run, lo, hi, State(state), suspect, delay, counts)


@dataclass(frozen=True, slots=True)
class Ruling:
    """The decision of the rules about a settlement, unless they accepted every ack."""

    acked: tuple[tuple[Piece, int], ...]
    failed: tuple[Failed, ...]
    moves: tuple[Move, ...]
    put_off: tuple[int, ...] = ()

    @classmethod
    def of(cls, settled: Settled, moves: Sequence[Move]) -> Ruling:
        """Return the ruling, with failure records replaced by their index in the settlement."""
        at = {failed.id: failed.at for failed in settled.failed}
        named = []
        for move in moves:
            if move.counts is not None and move.lo in at:
                move = move._replace(counts=move.counts._replace(failure=at[move.lo]))
            named.append(move)
        return cls(settled.results, settled.failed, tuple(named), settled.put_off)

    def pack(self) -> bytes:
        """Return its bytes."""
        return pack_plain([[[*piece, at] for piece, at in self.acked], self.failed, self.moves, self.put_off])

    @classmethod
    def unpack(cls, blob: bytes) -> Ruling:
        """Return the ruling that `pack` made bytes of."""
        acked, failed, moves, *put_off = unpack_plain(blob)  # earlier stores lack the last one
        return cls(
            tuple((Piece(first, ordinal, n), at) for first, ordinal, n, at in acked),
            tuple(Failed(*row) for row in failed),
            tuple(map(Move.from_list, moves)),
            tuple(put_off[0]) if put_off else (),
        )


def pack_plain(value: Any) -> bytes:
    """Return numbers, strings, bytes, lists and dicts as msgpack."""
    # EXACT keeps users' texts that are no valid Unicode: a key or an error with a lone surrogate must not make a record
    # unwritable.
    packed: bytes = msgpack.packb(value, use_bin_type=True, unicode_errors=EXACT)
    return packed


def pack_with_list(state: dict[str, Any], name: str, packed: Sequence[bytes]) -> bytes:
    """Return a packed dict with one more entry, which is a list of values that are packed already."""
    packer = msgpack.Packer(use_bin_type=True, unicode_errors=EXACT)
    entries = chain.from_iterable((packer.pack(key), packer.pack(value)) for key, value in state.items())
    head = (packer.pack_map_header(len(state) + 1), *entries, packer.pack(name), packer.pack_array_header(len(packed)))
    return b"".join((*head, *packed))


def unpack_plain(blob: bytes | memoryview) -> Any:
    """Return what `pack_plain` was given, with lists in place of tuples."""
    return msgpack.unpackb(blob, raw=False, strict_map_key=False, use_list=True, unicode_errors=EXACT)


def pack_settle(settlement: Settlement, ruling: Ruling | None) -> list[bytes | memoryview]:
    """Return the parts of a SETTLE record's body."""
    packed = b"" if ruling is None else ruling.pack()
    return [_SIZE.pack(len(packed)), packed, settlement.blob]


def open_settle(body: bytes | memoryview) -> tuple[Ruling | None, memoryview]:
    """Return a SETTLE record's ruling, None when every ack was accepted, and its settlement's bytes."""
    view = memoryview(body)
    (size,) = _SIZE.unpack_from(view)
    at = _SIZE.size + size
    return (Ruling.unpack(bytes(view[_SIZE.size : at])) if size else None), view[at:]


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
