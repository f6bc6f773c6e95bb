"""Outcomes of messages of one lease, as bytes."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import NamedTuple

from dqlab.errors import FrameCorrupt
from dqlab.frame.columns import (
    VERSION,
    Flag,
    Rider,
    check_head,
    decode_riders,
    encode_riders,
    joined,
    lengths_column,
    read_lengths,
    u32,
)
from dqlab.frame.lineage import Made, Making
from dqlab.texts import kept, restored

_SETTLEMENT = struct.Struct("<2sBBIQQ16sII")
_SIZE = struct.Struct("<I")


class Outcome(IntEnum):
    """How one delivery ended, as the consumer reports it and before the rules judge it."""

    # These numbers are in logs. ACK is 0: outcomes that are all ACK are left out, and read as zero bytes.
    ACK = 0
    """Done; the payload is the pickled result, or refers to a row in the sink of the run."""
    FAIL = 1
    """An exception that may be retried; the payload is a failure record."""
    REJECT = 2
    """A failure that no retry can fix, so the message is dead; the payload is a failure record."""
    NACK = 3
    """Returned by the function with `dq.Later`, not counted; the payload is the delay in seconds as ASCII."""
    RETURN = 4
    """Returned unprocessed, not counted, without a payload."""
    REFUSED = 5
    """Returned by a server that refused the call for now, not counted; the payload is the seconds for which it asks to
    wait as ASCII, 0 where it does not say, and after a blank what it said."""


_LAST_OUTCOME = max(Outcome)
_VIEWED = 1024
"""Bytes of a payload from which a view costs less than a copy."""


class Piece(NamedTuple):
    """Neighbours in one frame."""

    first: int
    """Id of the first of `n` messages."""
    ordinal: int
    """Its position in the run's input."""
    n: int


@dataclass(slots=True, eq=False)
class Settlement:
    """Outcomes of messages of one lease, which are acks with results, failures, and returned messages."""

    blob: bytes | memoryview
    run: bytes
    """Lane of the lease, 16 bytes."""
    epoch: int
    lease: int
    """With the epoch and a message's id, the receipt of that message."""
    busy_s: float
    """Seconds spent in the function for these messages."""
    pieces: tuple[Piece, ...]
    """The messages, in the order of the columns below."""
    outcomes: bytes
    """One `Outcome` for each message."""
    lengths: Sequence[int]
    key_lengths: Sequence[int] | None
    payload: memoryview
    _keys: memoryview
    made: Made | None = None
    """How the results were made, or None where that was not recorded."""
    riders: Mapping[str, Rider] = field(default_factory=dict)
    """Side columns by name."""
    _ends: array[int] | None = None
    _key_ends: array[int] | None = None

    @staticmethod
    def encode(
        pieces: Sequence[Piece],
        outcomes: bytes,
        payloads: Sequence[bytes],
        *,
        run: bytes,
        epoch: int,
        lease: int,
        busy_s: float = 0.0,
        keys: Sequence[str] | None = None,
        made: Making | None = None,
        riders: Mapping[str, Mapping[int, bytes]] | None = None,
    ) -> bytes | memoryview:
        """Pack outcomes, or raise `FrameCorrupt` where the columns do not fit the pieces' messages."""
        # Pieces that overlap or columns of another length would record outcomes for the wrong messages.
        columns_n = {len(outcomes), len(payloads), len(outcomes if keys is None else keys)}
        if made is not None:
            columns_n |= {len(column) for column in made.columns}
        if wrong := _disorder(pieces, len(outcomes)) or (len(columns_n) > 1 and "columns of different lengths"):
            raise FrameCorrupt(kind="settlement", reason=wrong, size=sum(map(len, payloads)))
        encoded: Sequence[bytes] = ()
        if keys is not None:  # at once where bytes are characters, as nearly always
            text = "".join(keys)
            encoded = [kept(text)] if text.isascii() else list(map(kept, keys))
            sized = keys if text.isascii() else encoded
        flags, columns = _columns(pieces, outcomes, map(len, payloads), None if keys is None else map(len, sized))
        behind = [] if made is None else [made.encode()]
        flags |= Flag.MADE if behind else 0
        if riders:
            beside = encode_riders(riders, len(outcomes))
            behind += beside, _SIZE.pack(len(beside))
            flags |= Flag.RIDERS
        head = b"DS", VERSION, flags, len(outcomes), lease, round(busy_s * 1e6), run, epoch, len(pieces)
        return joined((_SETTLEMENT.pack(*head), *columns, *payloads, *encoded, *behind))

    @classmethod
    def decode(cls, blob: bytes | memoryview) -> Settlement:
        """Open a settlement without copying its payload."""
        view = memoryview(blob)
        size = len(view)
        if size < _SETTLEMENT.size:
            raise FrameCorrupt(kind="settlement", reason="shorter than its header", size=size)
        magic, version, flags, count, lease, busy_us, run, epoch, n_pieces = _SETTLEMENT.unpack_from(view)
        check_head("settlement", magic_fits=magic == b"DS", version=version, count=count, size=size)
        at = _SETTLEMENT.size + 24 * n_pieces
        if flags & ~Flag.OF_SETTLEMENTS or at > size:
            raise FrameCorrupt(kind="settlement", reason=f"flags {flags:#x}, or cut off in its pieces", size=size)
        triples = struct.unpack_from(f"<{3 * n_pieces}Q", view, _SETTLEMENT.size)
        pieces = tuple(map(Piece, triples[::3], triples[1::3], triples[2::3]))
        outcomes = bytes(count) if flags & Flag.ACKED else bytes(view[at : at + count])
        at += 0 if flags & Flag.ACKED else count + (-count % 4)
        fits = sum(piece.n for piece in pieces) == count == len(outcomes)
        if not fits or max(outcomes, default=0) > _LAST_OUTCOME:
            raise FrameCorrupt(kind="settlement", reason="pieces or outcomes do not fit its count", size=size)
        try:
            lengths, body = read_lengths(view, at, count, flags)
            key_lengths = None
            if flags & Flag.KEYED:
                key_lengths, body = read_lengths(view, body, count, flags & ~Flag.EQUAL)
        except ValueError as error:
            raise FrameCorrupt(kind="settlement", reason=str(error), size=size) from None
        keys_at = body + sum(lengths)
        made_at = keys_at + sum(key_lengths or ())
        made_end = beside_end = size
        if flags & Flag.RIDERS:
            beside_end -= _SIZE.size
            made_end = beside_end - (_SIZE.unpack_from(view, beside_end)[0])
        if made_at > made_end or (made_at < made_end and not flags & Flag.MADE):
            raise FrameCorrupt(kind="settlement", reason="lengths do not add up to the payload", size=size)
        payload, keys = view[body:keys_at], view[keys_at:made_at]
        try:
            # A copy: lineage is kept as long as values are, and a view would keep all payloads in memory as well.
            made = Made.decode(memoryview(bytes(view[made_at:made_end])), count) if flags & Flag.MADE else None
            riders = decode_riders(view[made_end:beside_end], count) if flags & Flag.RIDERS else {}
        except ValueError as error:
            raise FrameCorrupt(kind="settlement", reason=str(error), size=size) from None
        busy_s, columns = busy_us / 1e6, (outcomes, lengths, key_lengths, payload, keys, made, riders)
        return cls(blob, run, epoch, lease, busy_s, pieces, *columns)

    def check_order(self) -> None:
        """Raise `FrameCorrupt` for pieces that `encode` refuses to pack."""
        # Apart from `decode`, which must open what older logs hold.
        if wrong := _disorder(self.pieces, self.count):
            raise FrameCorrupt(kind="settlement", reason=wrong, size=self.nbytes)

    @property
    def count(self) -> int:
        """Number of messages settled."""
        return len(self.outcomes)

    @property
    def nbytes(self) -> int:
        """Size of the whole settlement, bytes."""
        return len(self.blob)

    def entry(self, index: int) -> memoryview:
        """Return the payload at a position, which is a pickled result, a failure record or a delay."""
        ends = self.ends()
        return self.payload[ends[index] - self.lengths[index] : ends[index]]

    def ends(self) -> array[int]:
        """Return, from a cache, where each entry ends in the payload."""
        if self._ends is None:
            self._ends = array("Q", accumulate(self.lengths))
        return self._ends

    def keys(self) -> list[str] | None:
        """Return the key of each document, or None when this run has no keys."""
        if self.key_lengths is None:
            return None
        keys, cuts = bytes(self._keys), pairwise(accumulate(self.key_lengths, initial=0))
        if keys.isascii():  # as nearly always: decoded at once
            text = keys.decode()
            return [text[a:b] for a, b in cuts]
        return [restored(keys[a:b]) for a, b in cuts]

    def place_of(self, key: str) -> int | None:
        """Return the first position whose document has this key, or None."""
        if self.key_lengths is None:
            return None
        sought, keys, at = kept(key), bytes(self._keys), -1
        ends = self._ends_of_keys(self.key_lengths)
        while (at := keys.find(sought, at + 1)) >= 0:
            place = bisect_right(ends, at)
            if ends[place] - self.key_lengths[place] == at and ends[place] == at + len(sought):
                return place
        return None

    def _ends_of_keys(self, lengths: Sequence[int]) -> array[int]:
        """Return, from a cache, where each key ends."""
        if self._key_ends is None:
            self._key_ends = array("Q", accumulate(lengths))
        return self._key_ends

    def ordinals(self) -> Iterable[int]:
        """Yield each message's position in the run's input, in the order of the columns."""
        for piece in self.pieces:
            yield from range(piece.ordinal, piece.ordinal + piece.n)

    def position_of(self, id: int) -> int:
        """Return the position of a message in the columns, or -1 if it is not settled here."""
        at = 0
        for piece in self.pieces:
            if piece.first <= id < piece.first + piece.n:
                return at + id - piece.first
            at += piece.n
        return -1

    def ids(self) -> Iterable[int]:
        """Yield each message's id, in the order of the columns."""
        for piece in self.pieces:
            yield from range(piece.first, piece.first + piece.n)

    def entries(self) -> list[bytes]:
        """Return every payload, in the order of the columns."""
        ends, payload = list(accumulate(self.lengths)), bytes(self.payload)
        return [payload[a:b] for a, b in pairwise([0, *ends])]

    def views(self) -> Sequence[bytes | memoryview]:
        """Return every payload, large ones without a copy."""
        if len(self.payload) < _VIEWED * self.count:
            return self.entries()
        return [self.payload[a:b] for a, b in pairwise([0, *accumulate(self.lengths)])]

    def cut(self, piece: Piece, at: int, *, bare: bool = False) -> bytes:
        """Return one piece, whose columns begin at position `at`, as a settlement without riders, or also values."""
        n, stop = piece.n, at + piece.n
        key_lengths = None if self.key_lengths is None else self.key_lengths[at:stop]
        lengths = [0] * n if bare else self.lengths[at:stop]
        flags, columns = _columns([piece], self.outcomes[at:stop], lengths, key_lengths)
        flags |= Flag.MADE if self.made is not None else 0
        parts: list[bytes | memoryview] = [
            _SETTLEMENT.pack(b"DS", VERSION, flags, n, self.lease, 0, self.run, self.epoch, 1),
            *columns,
        ]
        if not bare:
            ends = self.ends()
            parts.append(self.payload[ends[at] - self.lengths[at] : ends[stop - 1]])
        if self.key_lengths is not None and key_lengths is not None:
            key_ends = self._ends_of_keys(self.key_lengths)
            parts.append(self._keys[key_ends[at] - self.key_lengths[at] : key_ends[stop - 1]])
        if self.made is not None:
            parts.append(self.made.cut(at, stop))
        return b"".join(parts)


def _disorder(pieces: Sequence[Piece], count: int) -> str:
    """Return why pieces do not ascend or do not make up `count` messages, or "" where they do."""
    least = total = 0
    for first, _, n in pieces:
        if n < 1 or first < least:
            return f"{n:,} messages from id {first} stand behind id {least - 1}"
        least, total = first + n, total + n
    return "" if total == count else f"pieces of {total:,} messages with {count:,} outcomes"


def _columns(
    pieces: Sequence[Piece], outcomes: bytes, lengths: Iterable[int], key_lengths: Iterable[int] | None
) -> tuple[int, list[bytes]]:
    """Return the columns after a settlement's header, and its flags."""
    flags, column = lengths_column(lengths)
    columns = [struct.pack(f"<{3 * len(pieces)}Q", *(number for piece in pieces for number in piece))]
    if outcomes.count(Outcome.ACK) != len(outcomes):
        columns += [outcomes, bytes(-len(outcomes) % 4)]  # padded, so that the columns of u32 are aligned
    else:
        flags |= Flag.ACKED
    columns.append(column)
    if key_lengths is not None:
        flags |= Flag.KEYED
        columns.append(u32(key_lengths))
    return flags, columns
