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

NO_ID = bytes(16)
"""The id, sixteen zero bytes, of no run (lane 0) and of no function (plain values)."""

_FRAME = struct.Struct("<2sBBIQQ16s16s16s")
_FLAGS_AT = 3
_NUMBER, _NUMBERED = struct.Struct("<I"), struct.Struct("<II")
_KINDS_MASK = 0x07


class Kind(IntEnum):
    """The meaning of a frame's payloads."""

    # These numbers are in logs, and at most 7: the flags have the other bits of the byte.
    ELEMENT = 0
    """Each is one pickled value, the function's only argument."""
    CALL = 1
    """Each is a pickled (args, kwargs)."""
    VALUE = 2
    """Each is a pickled value for a consumer's own process_item, without a function."""


_KINDS = {int(kind): kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Numbered:
    """Messages that differ in a number, a little-endian u32 one higher in each, and in what stands right behind it."""

    prefix: bytes
    suffix: bytes
    first: int
    count: int
    column: bytes = b""
    """What stands behind the number in all messages, joined."""
    sizes: Sequence[int] = ()
    """Bytes of each message's part of the column; empty where there is no column."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        prefix, suffix, pack, column = self.prefix, self.suffix, _NUMBER.pack, self.column
        numbers = range(self.first, self.first + self.count)
        if not self.sizes:
            return (prefix + pack(number) + suffix for number in numbers)
        ends = pairwise(accumulate(self.sizes, initial=0))
        return (prefix + pack(number) + column[a:b] + suffix for number, (a, b) in zip(numbers, ends, strict=True))

    def cut(self, lo: int, n: int) -> Numbered:
        """Return messages `lo` to `lo + n`."""
        start, sizes = sum(self.sizes[:lo]), self.sizes[lo : lo + n]
        column = self.column[start : start + sum(sizes)]
        return Numbered(self.prefix, self.suffix, self.first + lo, n, column, sizes)

    @property
    def nbytes(self) -> int:
        """Bytes that all messages take together."""
        return len(self.prefix) + len(self.suffix) + len(self.column)

    def longest(self) -> tuple[int, int]:
        """Return the position of the longest message, and its bytes."""
        most = max(self.sizes, default=0)
        at = list(self.sizes).index(most) if self.sizes else 0
        return at, len(self.prefix) + _NUMBER.size + len(self.suffix) + most

    def packed(self) -> bytes:
        """Return the payload of a frame of these messages."""
        tail = (_NUMBER.pack(len(self.suffix)),) if self.sizes else ()
        head = _NUMBERED.pack(len(self.prefix), self.first)
        return b"".join((head, *tail, self.prefix, self.suffix, self.column))

    @classmethod
    def opened(cls, payload: memoryview, lengths: Sequence[int], *, column: bool) -> Numbered:
        """Return the messages of a payload, or raise ValueError."""
        at, count = _NUMBERED.size + (_NUMBER.size if column else 0), len(lengths)
        if len(payload) < at:
            raise ValueError("cut off before its numbers")
        cut, first = _NUMBERED.unpack_from(payload)
        rest = bytes(payload[at:])
        stop = cut + _NUMBER.unpack_from(payload, _NUMBERED.size)[0] if column else len(rest)
        fits = sum(lengths) == (len(rest) - stop if column else count * (stop + _NUMBER.size))
        if not cut <= stop <= len(rest) or not fits or first + count > 1 << 32:
            raise ValueError("numbers do not fit the payload")
        return cls(rest[:cut], rest[cut:stop], first, count, rest[stop:], lengths if column else ())


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
    """Bytes of each message; of each part of the column, where messages are numbered and have one."""
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
        equal, lengths, packed = _packed(messages)
        flags = kind | equal | (Flag.WEIGHTED if weights is not None else 0) | (Flag.OPENS if opens else 0)
        header = _FRAME.pack(b"DQ", VERSION, flags, len(messages), sequence, ordinal, run, function, producer)
        columns = [header, lengths]
        if weights is not None:
            columns.append(u32(weights))
        return b"".join((*columns, *packed))

    @classmethod
    def decode(cls, blob: bytes | memoryview) -> Frame:
        """Open a frame without copying its payload."""
        view = memoryview(blob)
        if len(view) < _FRAME.size:
            raise FrameCorrupt(kind="frame", reason="shorter than its header", size=len(view))
        magic, version, flags, count, sequence, ordinal, run, function, producer = _FRAME.unpack_from(view)
        check_head("frame", magic_fits=magic == b"DQ", version=version, count=count, size=len(view))
        kind = _KINDS.get(flags & _KINDS_MASK)
        if kind is None or count == 0:
            raise FrameCorrupt(kind="frame", reason=f"unknown flags {flags:#x} or no messages", size=len(view))
        try:
            lengths, body = read_lengths(view, _FRAME.size, count, flags)
            weights = None
            if flags & Flag.WEIGHTED:
                weights, body = read_lengths(view, body, count, flags & ~Flag.EQUAL)
            numbered = None
            if flags & Flag.NUMBERED:
                numbered = Numbered.opened(view[body:], lengths, column=bool(flags & Flag.COLUMN))
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
            equal, lengths, messages = _packed(self.numbered.cut(lo, n))
        else:
            ends = self.ends()
            equal, lengths = lengths_column(self.lengths[lo : lo + n])
            messages = (self.payload[ends[lo] - self.lengths[lo] : ends[lo + n - 1]],)
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
        return b"".join((*columns, *messages))

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


def _packed(messages: Sequence[bytes] | Numbered) -> tuple[int, bytes, Sequence[bytes | memoryview]]:
    """Return the flags of some messages, the column of their lengths, and the parts of their payload."""
    if isinstance(messages, Numbered):
        equal, lengths = lengths_column(messages.sizes or [messages.longest()[1]])
        return Flag.NUMBERED | equal | (Flag.COLUMN if messages.sizes else 0), lengths, (messages.packed(),)
    return *lengths_column(map(len, messages)), messages
