"""Reads rows that are pickled alike as columns, without making the rows.

Most results are flat dicts with the same keys. As an object, a small one costs 400 bytes and half a microsecond. Their
pickles differ only in the values, so their opcodes are read for all rows together. Other values are left to `pickle`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, overload

from dqlab.imports import import_whole

__all__ = ["FEWEST", "Alike", "alike"]

FEWEST = 64
"""Rows; for fewer, pickle itself is faster."""
_HEAD = 11
"""Bytes of the opcodes PROTO and FRAME."""
_ROOM = 16
"""Bytes of padding after the last pickle, so that reading eight bytes near its end stays inside the buffer."""
_PROTO_5_FRAME = 0x950580
_EMPTY_DICT, _MEMOIZE, _MARK, _SETITEM, _SETITEMS, _STOP = b"}\x94(su."
_SHORT_TEXT, _TEXT, _FLOAT, _TRUE, _FALSE = b"\x8cXG\x88\x89"
_INT_1, _INT_2, _INT_4, _LONG = b"KMJ\x8a"


Column: TypeAlias = Any
"""A numpy array of int64, float64 or bool; for texts, which are valid Unicode, a list or an Arrow array."""
_FARTHEST = 2**31 - 1
"""Bytes that Arrow's 32-bit offsets of texts can address."""


class Alike(Sequence[dict[str, Any]]):
    """Rows with the same keys in the same order, held as columns of one plain type each."""

    def __init__(self, columns: dict[str, Column]) -> None:
        self.columns = columns  # in the order of the rows' keys

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> Alike: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | Alike:
        if isinstance(at, slice):
            return Alike({name: column[at] for name, column in self.columns.items()})
        if at < 0:
            at += len(self)
        return next(iter(self[at : at + 1]))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = list(self.columns)
        listed = [column if isinstance(column, list) else column.tolist() for column in self.columns.values()]
        for row in zip(*listed, strict=True):
            yield dict(zip(names, row, strict=True))


def alike(
    payloads: Sequence[bytes | memoryview], lengths: Sequence[Sequence[int]], *, arrow: bool = False
) -> Alike | None:
    """Return consecutive pickles as columns, or None unless all are rows with the same keys and plain types."""
    # `payloads` contain nothing but the pickles, and `lengths` the bytes of each. With `arrow`, texts become Arrow
    # arrays, without a Python text for each.
    first = next(filter(len, payloads), b"")
    if sum(map(len, lengths)) < FEWEST or first[_HEAD : _HEAD + 1] != b"}":
        return None
    import_whole("numpy")
    return _Reading(payloads, lengths, arrow=arrow).rows()


class _NotAlike(Exception):
    """A pickle is not such a row, or differs from the others."""


class _Reading:
    """Reads all pickles in step, with its position in each of them in `_at`."""

    def __init__(
        self, payloads: Sequence[bytes | memoryview], lengths: Sequence[Sequence[int]], *, arrow: bool
    ) -> None:
        import numpy as np

        self._np, self._arrow = np, arrow
        joined = b"".join([*payloads, bytes(_ROOM)])
        self._payload, self._bytes = memoryview(joined)[:-_ROOM], np.frombuffer(joined, np.uint8)
        self._lengths = np.concatenate([np.asarray(each, np.int64) for each in lengths])
        self._ends = np.cumsum(self._lengths)
        self._at = self._ends - self._lengths

    def rows(self) -> Alike | None:
        # Anything unexpected means None: `pickle` then reads the rows, so every check below may be strict.
        try:
            return self._rows()
        except (_NotAlike, UnicodeDecodeError):
            return None

    def _rows(self) -> Alike:
        if self._lengths.min() < _HEAD + 4 or self._ends[-1] != len(self._payload):
            raise _NotAlike
        heads = self._words(self._at)
        frames = self._words(self._at + 3)
        self._check((heads & 0xFFFFFF) == _PROTO_5_FRAME)
        self._check(frames == (self._lengths - _HEAD).view(self._np.uint64))
        self._at = self._at + _HEAD
        self._take(_EMPTY_DICT)
        self._take(_MEMOIZE)
        several = self._bytes[self._at[0]] == _MARK
        if several:
            self._take(_MARK)
        columns: dict[str, Column] = {}
        while not columns or (several and self._bytes[self._at[0]] != _SETITEMS):
            name = self._key()
            columns[name] = self._value()
        self._take(_SETITEMS if several else _SETITEM)
        self._take(_STOP)
        self._check(self._at == self._ends)
        return Alike(columns)

    def _check(self, holds: Any) -> None:
        if not holds.all():
            raise _NotAlike

    def _spans(self, at: Any, size: int) -> Any:
        """Return `size` bytes at each of some positions, one row for each."""
        strided = self._np.lib.stride_tricks.as_strided
        return strided(self._bytes, (len(self._bytes) - size + 1, size), (1, 1), writeable=False)[at]

    def _words(self, at: Any) -> Any:
        """Return the eight bytes at each of some positions as a number."""
        return self._spans(at, 8).view("<u8").ravel()

    def _take(self, opcode: int) -> None:
        self._check(self._bytes[self._at] == opcode)
        self._move(self._at + 1)

    def _move(self, at: Any) -> None:
        self._check(at <= self._ends)
        self._at = at

    def _key(self) -> str:
        self._take(_SHORT_TEXT)
        first = int(self._at[0])
        size = int(self._bytes[first])
        key = bytes(self._bytes[first + 1 : first + 1 + size])
        self._check(self._bytes[self._at] == size)
        at = self._at + 1
        self._move(at + size)  # before reading: checks that the key ends inside the pickle
        self._check(self._spans(at, size) == self._np.frombuffer(key, self._np.uint8))
        self._take(_MEMOIZE)
        return key.decode()

    def _value(self) -> Column:
        opcodes = self._bytes[self._at]
        first = int(opcodes[0])
        if first in (_INT_1, _INT_2, _INT_4, _LONG):
            return self._numbers(opcodes)
        if first in (_SHORT_TEXT, _TEXT):
            return self._texts(opcodes)
        if first in (_TRUE, _FALSE):
            self._check((opcodes == _TRUE) | (opcodes == _FALSE))
            self._move(self._at + 1)
            return opcodes == _TRUE
        if first != _FLOAT:
            raise _NotAlike
        self._check(opcodes == _FLOAT)
        found = self._words(self._at + 1).view(">f8").astype(self._np.float64)
        self._move(self._at + 9)
        return found

    def _numbers(self, opcodes: Any) -> Any:
        np = self._np
        sizes = np.zeros(256, np.int64)
        sizes[[_INT_1, _INT_2, _INT_4]] = 1, 2, 4
        size, at = sizes[opcodes], self._at + 1
        longs = opcodes == _LONG
        if longs.any():
            size = np.where(longs, self._bytes[at], size)
            at = at + longs
        # Larger numbers, and opcodes that are no number (size 0), are left to `pickle`.
        self._check((size > 0) & (size <= 8))
        shift = ((8 - size) * 8).view(np.uint64)
        # Shift the bytes of the number to the top and back: this drops the bytes after it, and extends the sign.
        raised = self._words(at) << shift
        found = (raised >> shift).view(np.int64)
        signed = longs | (opcodes == _INT_4)
        if signed.any():
            found = np.where(signed, raised.view(np.int64) >> shift.view(np.int64), found)
        self._move(at + size)
        return found

    def _texts(self, opcodes: Any) -> Column:
        np = self._np
        short = opcodes == _SHORT_TEXT
        self._check(short | (opcodes == _TEXT))
        size = np.where(short, self._bytes[self._at + 1], self._words(self._at + 1) & 0xFFFFFFFF).astype(np.int64)
        starts = self._at + np.where(short, 2, 5)
        self._move(starts + size)
        stops = self._at
        self._take(_MEMOIZE)
        if self._arrow and len(self._bytes) <= _FARTHEST:
            return self._arrow_texts(starts, stops)
        payload, places = self._payload, zip(starts.tolist(), stops.tolist(), strict=True)
        return [str(payload[start:stop], "utf-8") for start, stop in places]

    def _arrow_texts(self, starts: Any, stops: Any) -> Any:
        """Return texts as an Arrow array."""
        import pyarrow as pa

        np, n = self._np, len(starts)
        offsets = np.empty(2 * n, np.int32)
        offsets[::2], offsets[1::2] = starts, stops
        # One array over all pickles, without copying: its even elements are the texts, the odd ones the bytes between.
        between = pa.StringArray.from_buffers(2 * n - 1, pa.py_buffer(offsets), pa.py_buffer(self._bytes))
        texts = between.take(pa.array(np.arange(0, 2 * n, 2, dtype=np.int32)))
        try:
            texts.validate(full=True)  # the payload of a user may not be UTF-8
        except pa.ArrowInvalid:
            raise _NotAlike from None
        return texts
