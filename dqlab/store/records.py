"""What the journal's records say: bodies of SETTLE, STATE and RUN as plain data in msgpack.

::

    PUT       the frame, verbatim; base = first id, count = messages, aux = wall clock, ns
    SETTLE    u32 size of the ruling | ruling | the settlement, verbatim; no ruling: all of it was acked
    STATE     moves
    RUN       [op, run, meta]: an order, made again when the log is read
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
from dqlab.rules.settling import Failed, Settled
from dqlab.rules.states import State
from dqlab.rules.trouble import Trouble
from dqlab.texts import EXACT

__all__ = ["Counts", "Move", "Ruling", "open_settle", "pack_plain", "pack_settle", "pack_with_list", "unpack_plain"]

_SIZE = struct.Struct("<I")


class Counts(NamedTuple):
    """What is remembered of a message in trouble, after a move; `failure` is None when that did not change."""

    deliveries: int
    exceptions: int
    reason: str
    receipt: tuple[int, int] | None
    failure: int | bytes | None
    """Where its record stands in the settlement, or the record itself."""

    @classmethod
    def of(cls, trouble: Trouble) -> Counts:
        """Return a message's counts; its failure record is left out."""
        return cls(trouble.deliveries, trouble.exceptions, trouble.reason, trouble.receipt, None)


class Move(NamedTuple):
    """Messages that went into another state.

    Attributes
    ----------
    lo, hi : int
        Half-open range of ids.
    suspect : bool
        With READY: to be leased alone.
    delay : int
        With DELAYED: microseconds from the record's time on.
    counts : Counts or None
        Of a single message in trouble.
    """

    run: bytes
    lo: int
    hi: int
    state: State
    suspect: bool
    delay: int
    counts: Counts | None

    @classmethod
    def from_list(cls, row: Sequence[Any]) -> Move:
        """Return what msgpack made a list of."""
        run, lo, hi, state, suspect, delay, counts = row
        if counts is not None:
            deliveries, exceptions, reason, receipt, failure = counts
            counts = Counts(deliveries, exceptions, reason, tuple(receipt) if receipt else None, failure)
        return cls(run, lo, hi, State(state), suspect, delay, counts)


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules made of a settlement, when that was not simply to accept every ack."""

    acked: tuple[tuple[Piece, int], ...]
    failed: tuple[Failed, ...]
    moves: tuple[Move, ...]

    @classmethod
    def of(cls, settled: Settled, moves: Sequence[Move]) -> Ruling:
        """Return the ruling; failure records are named by where they stand in the settlement."""
        at = {failed.id: failed.at for failed in settled.failed}
        told = []
        for move in moves:
            if move.counts is not None and move.lo in at:
                move = move._replace(counts=move.counts._replace(failure=at[move.lo]))
            told.append(move)
        return cls(settled.results, settled.failed, tuple(told))

    def pack(self) -> bytes:
        """Return its bytes."""
        return pack_plain([[[*piece, at] for piece, at in self.acked], self.failed, self.moves])

    @classmethod
    def unpack(cls, blob: bytes) -> Ruling:
        """Return what `pack` was given."""
        acked, failed, moves = unpack_plain(blob)
        return cls(
            tuple((Piece(first, ordinal, n), at) for first, ordinal, n, at in acked),
            tuple(Failed(*row) for row in failed),
            tuple(map(Move.from_list, moves)),
        )


def pack_plain(value: Any) -> bytes:
    """Return numbers, strings, bytes, lists and dicts as msgpack."""
    packed: bytes = msgpack.packb(value, use_bin_type=True, unicode_errors=EXACT)
    return packed


def pack_with_list(state: dict[str, Any], name: str, packed: Sequence[bytes]) -> bytes:
    """Return a dict with one more entry: a list of what `pack_plain` has packed already."""
    packer = msgpack.Packer(use_bin_type=True, unicode_errors=EXACT)
    entries = chain.from_iterable((packer.pack(key), packer.pack(value)) for key, value in state.items())
    head = (packer.pack_map_header(len(state) + 1), *entries, packer.pack(name), packer.pack_array_header(len(packed)))
    return b"".join((*head, *packed))


def unpack_plain(blob: bytes | memoryview) -> Any:
    """Return what `pack_plain` was given; tuples have become lists."""
    return msgpack.unpackb(blob, raw=False, strict_map_key=False, use_list=True, unicode_errors=EXACT)


def pack_settle(settlement: Settlement, ruling: Ruling | None) -> list[bytes | memoryview]:
    """Return the parts of a SETTLE record's body."""
    packed = b"" if ruling is None else ruling.pack()
    return [_SIZE.pack(len(packed)), packed, settlement.blob]


def open_settle(body: bytes | memoryview) -> tuple[Ruling | None, memoryview]:
    """Return a SETTLE record's ruling, None when every ack counted, and its settlement's bytes."""
    view = memoryview(body)
    (size,) = _SIZE.unpack_from(view)
    at = _SIZE.size + size
    return (Ruling.unpack(bytes(view[_SIZE.size : at])) if size else None), view[at:]
