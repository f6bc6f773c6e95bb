"""Batches of messages, and of their outcomes, as bytes.

Owns the layout of the two frames that cross every boundary: a `Frame` carries messages from a
client through a queue to a consumer; a `Settlement` carries outcomes and results back. Knows
nothing of pickles, queues or Dask: payloads are opaque. All integers are little-endian.
Decoding checks every length, so malformed bytes raise `FrameCorrupt` and nothing else.

::

    Frame       72 B header | u32 lengths[count] | u32 weights[count]? | payload
    Settlement  48 B header | u64 (first, ordinal, n)[pieces] | u8 outcomes[count], padded to 4
                | u32 lengths[count] | u32 key lengths[count]? | payload | keys
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from itertools import accumulate
from typing import NamedTuple

from dqlab.errors import FrameCorrupt

__all__ = ["NO_ID", "Frame", "Kind", "Outcome", "Piece", "Settlement"]

NO_ID = bytes(16)
"""Sixteen zero bytes: no run (lane 0), or no function (plain values)."""

_VERSION = 1
_FRAME = struct.Struct("<2sBBIQQ16s16s16s")
_SETTLEMENT = struct.Struct("<2sBBIQQ16sII")
_MAX_COUNT = 1 << 24


class Kind(IntEnum):
    """What a frame's payloads are."""

    ELEMENT = 0
    """One pickled value each: the function's only argument."""
    CALL = 1
    """A pickled (args, kwargs) each."""
    VALUE = 2
    """A pickled value each, for a consumer's own process_item; no function."""


class Outcome(IntEnum):
    """How one delivery ended; a consumer's word, before the rules judge it."""

    ACK = 0
    """Done; the payload is the pickled result."""
    FAIL = 1
    """An exception that may be retried; the payload is a failure record."""
    REJECT = 2
    """A failure that retrying cannot mend: straight to dead letters; the payload is a failure record."""
    NACK = 3
    """Given back by the function, counted; the payload is the delay in seconds as ASCII."""
    RETURN = 4
    """Given back untouched, uncounted; no payload."""


class _Flag(IntFlag):
    WEIGHTED = 0x10
    KEYED = 0x20


class Piece(NamedTuple):
    """Neighbours in one frame: `n` messages from id `first`, which stand at `ordinal` in their run's input."""

    first: int
    ordinal: int
    n: int


def _u32(values: Iterable[int]) -> bytes:
    numbers = array("I", values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(view: memoryview, code: str) -> Sequence[int]:
    if sys.byteorder == "little":
        return view.cast(code)
    numbers = array(code, bytes(view))
    numbers.byteswap()
    return numbers


@dataclass(slots=True, eq=False)
class Frame:
    """A batch of messages of one run (or of lane 0), with one function.

    Attributes
    ----------
    run : bytes, 16
        The run's id; `NO_ID` for plain puts.
    function : bytes, 16
        Blob hash of the function; `NO_ID` for values.
    producer : bytes, 16
        Who numbers these frames.
    sequence : int
        The producer's number for this frame within its shard, from 0, without gaps.
    ordinal : int
        Position of the first message in the run's input.
    lengths, weights : sequence of int
        Bytes and pages of each message; `weights` is None when pages are unknown.
    payload : memoryview
        All messages, one after another.
    """

    blob: bytes | memoryview
    kind: Kind
    run: bytes
    function: bytes
    producer: bytes
    sequence: int
    ordinal: int
    lengths: Sequence[int]
    weights: Sequence[int] | None
    payload: memoryview
    _ends: array[int] | None = None

    @staticmethod
    def encode(
        messages: Sequence[bytes],
        *,
        kind: Kind,
        run: bytes = NO_ID,
        function: bytes = NO_ID,
        producer: bytes = NO_ID,
        sequence: int = 0,
        ordinal: int = 0,
        weights: Sequence[int] | None = None,
    ) -> bytes:
        """Pack messages into one immutable frame.

        Parameters
        ----------
        messages : sequence of bytes
            At least one.
        weights : sequence of int, same length, optional
            Pages of each message, 0 to 2**32 - 1.
        """
        if not messages:
            raise ValueError("a frame holds at least one message")
        flags = kind | (_Flag.WEIGHTED if weights is not None else 0)
        header = _FRAME.pack(b"DQ", _VERSION, flags, len(messages), sequence, ordinal, run, function, producer)
        columns = [header, _u32(map(len, messages))]
        if weights is not None:
            columns.append(_u32(weights))
        return b"".join((*columns, *messages))

    @classmethod
    def decode(cls, blob: bytes | memoryview) -> Frame:
        """Open a frame without copying its payload.

        Raises
        ------
        FrameCorrupt
            Wrong magic, version or kind, or lengths that do not add up.
        """
        view = memoryview(blob)
        if len(view) < _FRAME.size:
            raise FrameCorrupt(kind="frame", reason="shorter than its header", size=len(view))
        magic, version, flags, count, sequence, ordinal, run, function, producer = _FRAME.unpack_from(view)
        _check_head("frame", magic == b"DQ", version, count, len(view))
        if (flags & 0x0F) not in Kind._value2member_map_ or flags & 0xC0 or flags & _Flag.KEYED or count == 0:
            raise FrameCorrupt(kind="frame", reason=f"unknown flags {flags:#x} or no messages", size=len(view))
        at = _FRAME.size
        weighted = bool(flags & _Flag.WEIGHTED)
        body = at + 4 * count * (2 if weighted else 1)
        if body > len(view):
            raise FrameCorrupt(kind="frame", reason=f"cut off before its {count} lengths end", size=len(view))
        lengths = _numbers(view[at : at + 4 * count], "I")
        weights = _numbers(view[at + 4 * count : body], "I") if weighted else None
        if sum(lengths) != len(view) - body:
            raise FrameCorrupt(kind="frame", reason="lengths do not add up to the payload", size=len(view))
        kind = Kind(flags & 0x0F)
        return cls(blob, kind, run, function, producer, sequence, ordinal, lengths, weights, view[body:])

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.lengths)

    @property
    def nbytes(self) -> int:
        """Size of the whole frame, bytes."""
        return len(self.blob)

    def ends(self) -> array[int]:
        """Return where each message ends in the payload, bytes; computed once."""
        if self._ends is None:
            self._ends = array("Q", accumulate(self.lengths))
        return self._ends

    def message(self, index: int) -> memoryview:
        """Return one message's bytes, by position in the frame."""
        ends = self.ends()
        return self.payload[ends[index] - self.lengths[index] : ends[index]]

    def messages(self) -> list[bytes]:
        """Return every message's bytes, in order."""
        ends, payload = self.ends(), bytes(self.payload)
        return [payload[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def cut(self, lo: int, n: int, *, function: bytes | None = None, ordinal: int | None = None) -> bytes | memoryview:
        """Return messages `lo` to `lo + n` as a frame of their own; the payload is copied verbatim.

        Parameters
        ----------
        function, ordinal : optional
            Replace the function's hash, or the ordinal of the first message of the cut.
        """
        if n == self.count and function in (None, self.function) and ordinal in (None, self.ordinal):
            return self.blob
        ends = self.ends()
        start = ends[lo] - self.lengths[lo]
        header = _FRAME.pack(
            b"DQ",
            _VERSION,
            self.kind | (_Flag.WEIGHTED if self.weights is not None else 0),
            n,
            self.sequence,
            self.ordinal + lo if ordinal is None else ordinal,
            self.run,
            self.function if function is None else function,
            self.producer,
        )
        columns: list[bytes | memoryview] = [header, _u32(self.lengths[lo : lo + n])]
        if self.weights is not None:
            columns.append(_u32(self.weights[lo : lo + n]))
        return b"".join((*columns, self.payload[start : ends[lo + n - 1]]))


@dataclass(slots=True, eq=False)
class Settlement:
    """Outcomes of messages of one lease: acks with results, failures, messages given back.

    Attributes
    ----------
    run : bytes, 16
        Lane of the lease.
    epoch, lease : int
        With a message's id, its receipt.
    busy_s : float
        Seconds spent in the function for these messages.
    pieces : tuple of Piece
        Which messages, in the order of the columns below.
    outcomes : bytes
        One `Outcome` a message.
    keys : list of str or None
        The documents' keys, when the run's input has keys.
    """

    blob: bytes | memoryview
    run: bytes
    epoch: int
    lease: int
    busy_s: float
    pieces: tuple[Piece, ...]
    outcomes: bytes
    lengths: Sequence[int]
    key_lengths: Sequence[int] | None
    payload: memoryview
    _keys: memoryview
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
    ) -> bytes:
        """Pack outcomes; `outcomes`, `payloads` and `keys` run over the pieces' messages in order."""
        encoded = None if keys is None else [key.encode("utf-8", "surrogatepass") for key in keys]
        header = _SETTLEMENT.pack(
            b"DS",
            _VERSION,
            _Flag.KEYED if keys is not None else 0,
            len(outcomes),
            lease,
            round(busy_s * 1e6),
            run,
            epoch,
            len(pieces),
        )
        columns = [
            header,
            struct.pack(f"<{3 * len(pieces)}Q", *(number for piece in pieces for number in piece)),
            outcomes,
            bytes(-len(outcomes) % 4),
            _u32(map(len, payloads)),
        ]
        if encoded is not None:
            columns.append(_u32(map(len, encoded)))
        return b"".join((*columns, *payloads, *(encoded or ())))

    @classmethod
    def decode(cls, blob: bytes | memoryview) -> Settlement:
        """Open a settlement without copying its payload.

        Raises
        ------
        FrameCorrupt
            Wrong magic or version, an unknown outcome, or lengths that do not add up.
        """
        view = memoryview(blob)
        size = len(view)
        if size < _SETTLEMENT.size:
            raise FrameCorrupt(kind="settlement", reason="shorter than its header", size=size)
        magic, version, flags, count, lease, busy_us, run, epoch, n_pieces = _SETTLEMENT.unpack_from(view)
        _check_head("settlement", magic == b"DS", version, count, size)
        keyed = bool(flags & _Flag.KEYED)
        outcomes_at = _SETTLEMENT.size + 24 * n_pieces
        lengths_at = outcomes_at + count + (-count % 4)
        body = lengths_at + 4 * count * (2 if keyed else 1)
        if flags & ~_Flag.KEYED or body > size:
            raise FrameCorrupt(kind="settlement", reason=f"flags {flags:#x}, or cut off in its columns", size=size)
        numbers = struct.unpack_from(f"<{3 * n_pieces}Q", view, _SETTLEMENT.size)
        pieces = tuple(map(Piece, numbers[::3], numbers[1::3], numbers[2::3]))
        outcomes = bytes(view[outcomes_at : outcomes_at + count])
        if sum(piece.n for piece in pieces) != count or (outcomes and max(outcomes) > max(Outcome)):
            raise FrameCorrupt(kind="settlement", reason="pieces or outcomes do not fit its count", size=size)
        lengths = _numbers(view[lengths_at : lengths_at + 4 * count], "I")
        key_lengths = _numbers(view[lengths_at + 4 * count : body], "I") if keyed else None
        keys_at = body + sum(lengths)
        if keys_at + sum(key_lengths or ()) != size:
            raise FrameCorrupt(kind="settlement", reason="lengths do not add up to the payload", size=size)
        payload, keys = view[body:keys_at], view[keys_at:]
        return cls(blob, run, epoch, lease, busy_us / 1e6, pieces, outcomes, lengths, key_lengths, payload, keys)

    @property
    def count(self) -> int:
        """Number of messages settled."""
        return len(self.outcomes)

    @property
    def nbytes(self) -> int:
        """Size of the whole settlement, bytes."""
        return len(self.blob)

    def entry(self, index: int) -> memoryview:
        """Return the payload at a position: a pickled result, a failure record or a delay."""
        if self._ends is None:
            self._ends = array("Q", accumulate(self.lengths))
        return self.payload[self._ends[index] - self.lengths[index] : self._ends[index]]

    def key(self, index: int) -> str | None:
        """Return the key of the document at a position, or None when this run has no keys."""
        if self.key_lengths is None:
            return None
        if self._key_ends is None:
            self._key_ends = array("Q", accumulate(self.key_lengths))
        end = self._key_ends[index]
        return bytes(self._keys[end - self.key_lengths[index] : end]).decode("utf-8", "surrogatepass")

    def ordinals(self) -> Iterable[int]:
        """Yield each message's position in the run's input, in the order of the columns."""
        for piece in self.pieces:
            yield from range(piece.ordinal, piece.ordinal + piece.n)

    def ids(self) -> Iterable[int]:
        """Yield each message's id, in the order of the columns."""
        for piece in self.pieces:
            yield from range(piece.first, piece.first + piece.n)

    def entries(self) -> list[bytes]:
        """Return every payload, in the order of the columns."""
        ends, payload = list(accumulate(self.lengths)), bytes(self.payload)
        return [payload[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def cut(self, piece: Piece, at: int) -> bytes:
        """Return one piece, whose columns begin at position `at`, as a settlement of its own."""
        n, stop = piece.n, at + piece.n
        header = _SETTLEMENT.pack(
            b"DS",
            _VERSION,
            _Flag.KEYED if self.key_lengths is not None else 0,
            n,
            self.lease,
            0,
            self.run,
            self.epoch,
            1,
        )
        columns: list[bytes | memoryview] = [
            header,
            struct.pack("<3Q", *piece),
            self.outcomes[at:stop],
            bytes(-n % 4),
            _u32(self.lengths[at:stop]),
        ]
        start = sum(self.lengths[:at])
        columns.append(self.payload[start : start + sum(self.lengths[at:stop])])
        if self.key_lengths is not None:
            columns.insert(5, _u32(self.key_lengths[at:stop]))
            start = sum(self.key_lengths[:at])
            columns.append(self._keys[start : start + sum(self.key_lengths[at:stop])])
        return b"".join(columns)


def _check_head(kind: str, magic_fits: bool, version: int, count: int, size: int) -> None:
    if not magic_fits:
        raise FrameCorrupt(kind=kind, reason="wrong first two bytes", size=size)
    if version != _VERSION:
        raise FrameCorrupt(kind=kind, reason=f"version {version}, this dqlab reads {_VERSION}", size=size)
    if count > _MAX_COUNT or count > size:
        raise FrameCorrupt(kind=kind, reason=f"claims {count:,} messages", size=size)
