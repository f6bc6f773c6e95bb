"""A batch of messages of one run, as bytes."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise

from dqlab.errors import FrameCorrupt
from dqlab.frame.columns import VERSION, Flag, check_head, lengths_column, read_lengths, u32

__all__ = ["NO_ID", "Frame", "Kind", "Numbered"]

NO_ID = bytes(16)
"""The id, sixteen zero bytes, of no run (lane 0) and of no function (plain values)."""

_FRAME = struct.Struct("<2sBBIQQ16s16s16s")
_FLAGS_AT = 3
_NUMBER, _NUMBERED = struct.Struct("<I"), struct.Struct("<II")


class Kind(IntEnum):
    """The meaning of a frame's payloads."""

    # These numbers are in logs, and at most 15: the flags have the other bits of the byte.
    ELEMENT = 0
    """Each is one pickled value, the function's only argument."""
    CALL = 1
    """Each is a pickled (args, kwargs)."""
    VALUE = 2
    """Each is a pickled value for a consumer's own process_item, without a function."""


_KINDS = {int(kind): kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Numbered:
    """Messages that differ in one number: a little-endian u32 between the same bytes, one higher in each message."""

    prefix: bytes
    suffix: bytes
    first: int
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        prefix, suffix, pack = self.prefix, self.suffix, _NUMBER.pack
        return (prefix + pack(number) + suffix for number in range(self.first, self.first + self.count))

    def cut(self, lo: int, n: int) -> Numbered:
        """Return messages `lo` to `lo + n`."""
        return Numbered(self.prefix, self.suffix, self.first + lo, n)

    @property
    def length(self) -> int:
        """Bytes of each message."""
        return len(self.prefix) + _NUMBER.size + len(self.suffix)

    def packed(self) -> bytes:
        """Return the payload of a frame of these messages."""
        return b"".join((_NUMBERED.pack(len(self.prefix), self.first), self.prefix, self.suffix))

    @classmethod
    def opened(cls, payload: memoryview, count: int, length: int) -> Numbered:
        """Return the messages of a payload, or raise ValueError."""
        if len(payload) < _NUMBERED.size:
            raise ValueError("cut off before its numbers")
        cut, first = _NUMBERED.unpack_from(payload)
        rest = bytes(payload[_NUMBERED.size :])
        if cut > len(rest) or len(rest) + _NUMBER.size != length or first + count > 1 << 32:
            raise ValueError("numbers do not fit the payload")
        return cls(rest[:cut], rest[cut:], first, count)


@dataclass(slots=True, eq=False)
class Frame:
    """A batch of messages of one run (or of lane 0), with one function."""

    blob: bytes | memoryview
    """The whole frame; `payload` is a view of it, so holding either one keeps all of it in memory."""
    kind: Kind
    run: bytes
    """Id of the run, 16 bytes, or `NO_ID` for plain puts."""
    function: bytes
    """Blob hash of the function, 16 bytes, or `NO_ID` for values."""
    producer: bytes
    """Id of the client that numbers these frames, 16 bytes."""
    sequence: int
    """The producer's number for this frame within its shard, from 0, without gaps."""
    ordinal: int
    """Position of the first message in the run's input."""
    lengths: Sequence[int]
    """Bytes of each message."""
    weights: Sequence[int] | None
    """Pages or bytes of each message's document, or None where unknown."""
    payload: memoryview
    """All messages, one after another."""
    count: int
    nbytes: int
    opens: bool = False
    """Whether the first message begins a group of neighbours, which cost one consumer less than two."""
    numbered: Numbered | None = None
    """The messages, where the frame has a number for each in place of its bytes."""
    _ends: array[int] | None = None

    @staticmethod
    def encode(
        messages: Sequence[bytes] | Numbered,
        *,
        kind: Kind,
        run: bytes = NO_ID,
        function: bytes = NO_ID,
        producer: bytes = NO_ID,
        sequence: int = 0,
        ordinal: int = 0,
        weights: Sequence[int] | None = None,
        opens: bool = False,
    ) -> bytes:
        """Pack at least one message into an immutable frame, with weights from 0 to 2**32 - 1."""
        if not messages:
            raise ValueError("a frame holds at least one message")
        if isinstance(messages, Numbered):
            equal, lengths = Flag.NUMBERED | Flag.EQUAL, u32([messages.length])
        else:
            equal, lengths = lengths_column(map(len, messages))
        flags = kind | equal | (Flag.WEIGHTED if weights is not None else 0) | (Flag.OPENS if opens else 0)
        header = _FRAME.pack(b"DQ", VERSION, flags, len(messages), sequence, ordinal, run, function, producer)
        columns = [header, lengths]
        if weights is not None:
            columns.append(u32(weights))
        parts = (messages.packed(),) if isinstance(messages, Numbered) else messages
        return b"".join((*columns, *parts))

    @classmethod
    def decode(cls, blob: bytes | memoryview) -> Frame:
        """Open a frame without copying its payload."""
        view = memoryview(blob)
        if len(view) < _FRAME.size:
            raise FrameCorrupt(kind="frame", reason="shorter than its header", size=len(view))
        magic, version, flags, count, sequence, ordinal, run, function, producer = _FRAME.unpack_from(view)
        check_head("frame", magic_fits=magic == b"DQ", version=version, count=count, size=len(view))
        kind = _KINDS.get(flags & 0x0F)
        if kind is None or count == 0:
            raise FrameCorrupt(kind="frame", reason=f"unknown flags {flags:#x} or no messages", size=len(view))
        try:
            lengths, body = read_lengths(view, _FRAME.size, count, flags)
            weights = None
            if flags & Flag.WEIGHTED:
                weights, body = read_lengths(view, body, count, flags & ~Flag.EQUAL)
            numbered = None
            if flags & Flag.NUMBERED:
                numbered = Numbered.opened(view[body:], count, lengths[0] if flags & Flag.EQUAL else -1)
        except ValueError as error:
            raise FrameCorrupt(kind="frame", reason=str(error), size=len(view)) from None
        if numbered is None and sum(lengths) != len(view) - body:
            raise FrameCorrupt(kind="frame", reason="lengths do not add up to the payload", size=len(view))
        payload, size, opens = view[body:], len(view), bool(flags & Flag.OPENS)
        about = run, function, producer, sequence, ordinal, lengths, weights
        return cls(blob, kind, *about, payload, count, size, opens, numbered)

    def ends(self) -> array[int]:
        """Return, from a cache, where each message ends in the payload."""
        if self._ends is None:
            self._ends = array("Q", accumulate(self.lengths))
        return self._ends

    def message(self, index: int) -> memoryview:
        """Return one message's bytes, by position in the frame."""
        if self.numbered is not None:
            return memoryview(next(iter(self.numbered.cut(index, 1))))
        ends = self.ends()
        return self.payload[ends[index] - self.lengths[index] : ends[index]]

    def messages(self) -> list[bytes]:
        """Return every message's bytes, in order."""
        if self.numbered is not None:
            return list(self.numbered)
        ends, payload = self.ends(), bytes(self.payload)
        return [payload[a:b] for a, b in pairwise([0, *ends])]

    def cut(self, lo: int, n: int, *, function: bytes | None = None, ordinal: int | None = None) -> bytes | memoryview:
        """Return messages `lo` to `lo + n` as a frame of their own, with another function or first ordinal if given."""
        if n == self.count and function in (None, self.function) and ordinal in (None, self.ordinal):
            return self.blob  # not a copy: nobody may write into a frame
        if self.numbered is not None:
            equal, lengths = Flag.NUMBERED | Flag.EQUAL, u32(self.lengths[:1])
            messages: bytes | memoryview = self.numbered.cut(lo, n).packed()
        else:
            ends = self.ends()
            equal, lengths = lengths_column(self.lengths[lo : lo + n])
            messages = self.payload[ends[lo] - self.lengths[lo] : ends[lo + n - 1]]
        header = _FRAME.pack(  # without OPENS: the rules note groups when a frame is put, and ask no cut for them
            b"DQ",
            VERSION,
            self.kind | equal | (Flag.WEIGHTED if self.weights is not None else 0),
            n,
            self.sequence,
            self.ordinal + lo if ordinal is None else ordinal,
            self.run,
            self.function if function is None else function,
            self.producer,
        )
        columns: list[bytes | memoryview] = [header, lengths]
        if self.weights is not None:
            columns.append(u32(self.weights[lo : lo + n]))
        return b"".join((*columns, messages))

    def hollow(self, keep: Iterable[tuple[int, int]]) -> bytes:
        """Return the frame with the payloads of ascending half-open ranges only, and 0 bytes for the other messages."""
        # The messages that are left out keep their positions and weights: ids are counted from the frame's first one.
        if self.numbered is not None:
            return bytes(self.blob)  # there is nothing to leave out
        ends, lengths = self.ends(), array("I", bytes(4 * self.count))
        flags = self.kind | (Flag.WEIGHTED if self.weights is not None else 0)
        parts: list[bytes | memoryview] = []
        for lo, hi in keep:
            lengths[lo:hi] = array("I", self.lengths[lo:hi])
            parts.append(self.payload[ends[lo] - self.lengths[lo] : ends[hi - 1]])
        equal, column = lengths_column(lengths)
        head = bytearray(memoryview(self.blob)[: _FRAME.size])
        head[_FLAGS_AT] = flags | equal
        weights = () if self.weights is None else (u32(self.weights),)
        return b"".join((head, column, *weights, *parts))
