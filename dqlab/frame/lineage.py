"""How the results of a settlement were made, as bytes: seconds, time, consumer, code, attempts and versions.

Most results differ only in their seconds, so these alone cost bytes for each result: three, the upper ones of a 4-byte
float, with 15 bits of precision and no limit. Attempts and versions are runs of equal values.

::

    f64 at | u32 columns | u32 bytes of the code | u32 bytes of the consumer | code | consumer | 3 B seconds[count]
    | 3 B ages[count]? | (u32 runs | u32 lengths of the runs | u32 attempts)?
    | (u32 runs | u32 lengths of the runs | u32 lengths of the texts | versions)?

Columns of lengths are one number where all are equal.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, groupby, repeat
from typing import Any, Final, NamedTuple, TypeVar

from dqlab.frame.columns import Cursor, Flag, lengths_column, numbers, read_lengths
from dqlab.texts import kept, restored

_HEAD = struct.Struct("<dIII")
_COUNT = struct.Struct("<I")
_YEAR_10000 = 253_402_300_800.0
_LARGEST = 3e38
_BYTES = 3
"""Bytes of a number of seconds."""
# Bits of `columns`, which are in logs: a new column takes a new bit.
_AGES: Final = 1
_ATTEMPTS: Final = 2
_ATTEMPT_RUNS_EQUAL: Final = 4
_ATTEMPTS_EQUAL: Final = 8
_VERSIONS: Final = 16
_VERSION_RUNS_EQUAL: Final = 32
_VERSIONS_EQUAL: Final = 64
_ALL = 127

T = TypeVar("T")


class Making(NamedTuple):
    """How the results of a settlement were made, to be packed."""

    consumer: str
    """Name of the consumer, or "" where it is not known."""
    code: str
    """Short code version, or "" where it is not known."""
    at: float
    """When the results ended, in seconds since 1970 UTC."""
    seconds: Sequence[float]
    """How long each result took, NaN where not known."""
    ages: Sequence[float] | None = None
    """How many seconds before `at` each result ended, or None for about 0."""
    attempts: Sequence[int] | None = None
    """The number of each delivery, or None where all were the first."""
    versions: Sequence[str] | None = None
    """The version of each document, "" for none, or None where no document has one."""

    @property
    def columns(self) -> list[Sequence[Any]]:
        """The columns that have an entry for each result."""
        return [column for column in (self.seconds, self.ages, self.attempts, self.versions) if column is not None]

    def encode(self) -> bytes:
        """Return the columns as bytes."""
        return _joined(
            # Clamped, not refused: a machine whose clock is not set is in 1970, and a settlement that cannot be decoded
            # would be sent again forever. NaN becomes 0, since no comparison with it is true.
            min(max(0.0, self.at), _YEAR_10000 - 1),
            kept(self.code),
            kept(self.consumer),
            _shortened(self.seconds),
            None if self.ages is None else _shortened(self.ages),
            None if self.attempts is None else _runs(self.attempts),
            None if self.versions is None else _runs(self.versions),
        )


@dataclass(slots=True, eq=False)
class Made:
    """How the results of a settlement were made, with each column opened on first use."""

    at: float
    """When the results ended, in seconds since 1970 UTC, or where there are ages, the instant from which they count."""
    _block: memoryview
    """All of it, as it was packed."""
    _code: memoryview
    _consumer: memoryview
    _seconds: memoryview
    _ages: memoryview | None
    _attempts: tuple[_Runs, Sequence[int]] | None
    _versions: tuple[_Runs, _Texts] | None

    @classmethod
    def decode(cls, view: memoryview, count: int) -> Made:
        """Open the bytes that `Making.encode` packed for `count` results, or raise `ValueError`."""
        if len(view) < _HEAD.size:
            raise ValueError("cut off before the lineage of its results")
        at, columns, code_n, consumer_n = _HEAD.unpack_from(view)
        if columns & ~_ALL or not 0.0 <= at < _YEAR_10000:
            raise ValueError(f"unknown columns {columns:#x} in the lineage of its results, at {at}")
        cursor = _Cursor(view, "the lineage of its results", _HEAD.size)
        code, consumer, seconds = cursor.take(code_n), cursor.take(consumer_n), cursor.take(_BYTES * count)
        ages = cursor.take(_BYTES * count) if columns & _AGES else None
        attempts = versions = None
        if columns & _ATTEMPTS:
            lengths = cursor.runs(count, equal=bool(columns & _ATTEMPT_RUNS_EQUAL))
            attempts = _Runs(lengths), cursor.lengths(len(lengths), equal=bool(columns & _ATTEMPTS_EQUAL))
        if columns & _VERSIONS:
            lengths = cursor.runs(count, equal=bool(columns & _VERSION_RUNS_EQUAL))
            sizes = cursor.lengths(len(lengths), equal=bool(columns & _VERSIONS_EQUAL))
            versions = _Runs(lengths), _Texts(sizes, cursor.take(sum(sizes)))
        if cursor.at != len(view):
            raise ValueError("lengths do not add up to the lineage of its results")
        return cls(at, view, code, consumer, seconds, ages, attempts, versions)

    @property
    def code(self) -> str:
        """The short code version, or "" where it is not known."""
        return _text(self._code)

    @property
    def consumer(self) -> str:
        """Name of the consumer, or "" where it is not known."""
        return _text(self._consumer)

    def seconds(self, start: int, stop: int) -> array[float]:
        """Return how long results took, from one position to before another."""
        return _lengthened(self._seconds[_BYTES * start : _BYTES * stop])

    def ages(self, start: int, stop: int) -> array[float] | None:
        """Return how many seconds before `at` results ended, or None where all ended then."""
        return None if self._ages is None else _lengthened(self._ages[_BYTES * start : _BYTES * stop])

    def attempts(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the numbers of the deliveries that made results, as runs of (attempt, results)."""
        if self._attempts is None:
            return [(1, stop - start)]
        runs, values = self._attempts
        return [(values[number], n) for number, n in runs.within(start, stop)]

    def versions(self, start: int, stop: int) -> list[tuple[str, int]]:
        """Return the versions of documents, "" for none, as runs of (version, results)."""
        if self._versions is None:
            return [("", stop - start)]
        runs, texts = self._versions
        numbers = list(runs.within(start, stop))
        first, end = (numbers[0][0], numbers[-1][0] + 1) if numbers else (0, 0)
        found = texts.between(first, end)
        return [(found[number - first], n) for number, n in numbers]

    def each_version(self) -> list[str]:
        """Return the version of each document, "" for none."""
        if self._versions is not None and len(self._versions[1]) == self._count:  # each has its own
            return self._versions[1].between(0, self._count)
        return list(chain.from_iterable(repeat(version, n) for version, n in self.versions(0, self._count)))

    @property
    def _count(self) -> int:
        return len(self._seconds) // _BYTES

    def cut(self, start: int, stop: int) -> bytes:
        """Return the block of the results from one position to before another."""
        if stop - start == self._count:
            return bytes(self._block)
        attempts = None if self._attempts is None else self.attempts(start, stop)
        versions = None if self._versions is None else self.versions(start, stop)
        at = slice(_BYTES * start, _BYTES * stop)
        ages = None if self._ages is None else self._ages[at]
        return _joined(self.at, self._code, self._consumer, self._seconds[at], ages, attempts, versions)


class _Parts:
    """Parts of these lengths one after another, whose ends are computed on first use."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    @cached_property
    def _ends(self) -> array[int]:
        return array("Q", accumulate(self._lengths))


class _Runs(_Parts):
    """Runs of equal values, found by position in logarithmic time, since a settlement is cut many times."""

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the runs between two positions as (number of the run, values of it in between)."""
        ends = self._ends
        number = bisect_right(ends, start)  # the first run that ends after `start`, which skips empty ones
        while start < stop and number < len(ends):
            end = min(ends[number], stop)
            if end > start:
                yield number, end - start
            start, number = end, number + 1


class _Texts(_Parts):
    """Texts one after another, opened on use."""

    def __init__(self, sizes: Sequence[int], data: memoryview) -> None:
        super().__init__(sizes)
        self._data = data

    def between(self, first: int, end: int) -> list[str]:
        """Return the texts with numbers from `first` to before `end`."""
        sizes, ends = self._lengths[first:end], self._ends[first:end]
        if not ends:
            return []
        at = ends[0] - sizes[0]
        data = bytes(self._data[at : ends[-1]])
        if data.isascii():  # as nearly always: decoded at once
            text = data.decode()
            return [text[stop - at - size : stop - at] for stop, size in zip(ends, sizes, strict=True)]
        return [_text(data[stop - at - size : stop - at]) for stop, size in zip(ends, sizes, strict=True)]


class _Cursor(Cursor):
    """Takes columns of lengths too."""

    def lengths(self, count: int, *, equal: bool) -> Sequence[int]:
        column, self.at = read_lengths(self.view, self.at, count, Flag.EQUAL if equal else 0)
        return column

    def runs(self, count: int, *, equal: bool) -> Sequence[int]:
        """Return the lengths of runs, which are at most as many as the results."""
        (n,) = numbers(self.take(_COUNT.size))
        if n > count:
            raise ValueError(f"{n:,} runs of {count:,} results")
        lengths = self.lengths(n, equal=equal)
        if sum(lengths) != count:
            raise ValueError("runs do not add up to its results")
        return lengths


def _joined(
    at: float,
    code: bytes | memoryview,
    consumer: bytes | memoryview,
    seconds: bytes | memoryview,
    ages: bytes | memoryview | None,
    attempts: Sequence[tuple[int, int]] | None,
    versions: Sequence[tuple[str, int]] | None,
) -> bytes:
    """Return a block of these columns, without runs whose values are all the default."""
    columns, parts = 0, [code, consumer, seconds]
    if ages is not None:
        columns |= _AGES
        parts.append(ages)
    if attempts is not None and any(attempt != 1 for attempt, _ in attempts):
        flags, column = _runs_column(attempts)
        equal, values = lengths_column([attempt for attempt, _ in attempts])
        columns |= _ATTEMPTS | (_ATTEMPT_RUNS_EQUAL if flags else 0) | (_ATTEMPTS_EQUAL if equal else 0)
        parts += [column, values]
    if versions is not None and any(version for version, _ in versions):
        flags, column = _runs_column(versions)
        texts = [kept(version) for version, _ in versions]
        equal, sizes = lengths_column(map(len, texts))
        columns |= _VERSIONS | (_VERSION_RUNS_EQUAL if flags else 0) | (_VERSIONS_EQUAL if equal else 0)
        parts += [column, sizes, *texts]
    return b"".join((_HEAD.pack(at, columns, len(code), len(consumer)), *parts))


def _runs_column(runs: Sequence[tuple[T, int]]) -> tuple[int, bytes]:
    """Return the column of the lengths of runs, after their number, and its flag."""
    flag, column = lengths_column(n for _, n in runs)
    return flag, _COUNT.pack(len(runs)) + column


def _runs(values: Sequence[T]) -> list[tuple[T, int]]:
    """Return runs of equal values as (value, how many)."""
    if values and values.count(values[0]) == len(values):  # nearly always, and without a loop in Python
        return [(values[0], len(values))]
    return [(value, sum(1 for _ in alike)) for value, alike in groupby(values)]


def _shortened(values: Sequence[float]) -> bytes:
    """Return numbers as the upper three bytes of a 4-byte float."""
    try:
        whole = struct.pack(f"<{len(values)}f", *values)  # takes half the time of an array
    except OverflowError:
        whole = struct.pack(f"<{len(values)}f", *map(_bounded, values))
    short = bytearray(_BYTES * len(values))
    for at in range(_BYTES):  # a loop over the bytes of one number, not over the numbers
        short[at::_BYTES] = whole[at + 1 :: 4]
    return bytes(short)


def _bounded(value: float) -> float:
    """Return a number bounded to what a 4-byte float holds, and NaN, which stands for an unknown one, unchanged."""
    return max(-_LARGEST, min(value, _LARGEST)) if math.isfinite(value) else value


def _lengthened(short: memoryview) -> array[float]:
    """Return the numbers that `_shortened` was given, to 15 bits."""
    count, data = len(short) // _BYTES, bytes(short)
    whole = bytearray(4 * count)
    for at in range(_BYTES):
        whole[at + 1 :: 4] = data[at::_BYTES]
    column = array("f", bytes(whole))
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _text(data: bytes | memoryview) -> str:
    try:
        return restored(bytes(data))
    except UnicodeDecodeError:
        return bytes(data).decode("utf-8", "replace")
