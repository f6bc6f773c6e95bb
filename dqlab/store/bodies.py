"""The bodies of the journal's records, plain data in msgpack, and the number by which the rules know a record.

::

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
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import msgpack

from dqlab.frame import Piece, Settlement
from dqlab.log.records import Position, Record
from dqlab.rules.deliveries import Failed, Settled
from dqlab.rules.lanes.trouble import Trouble
from dqlab.rules.states import State
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
