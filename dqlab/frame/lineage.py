"""What is known of how the results of a settlement were made, as bytes: seconds, time, consumer, code, and so on.

Most results differ in their seconds alone, so that is what costs bytes for each of them: three, the upper ones of a
float of four, which is 15 bits of precision and no limit. Versions and attempts come as runs of equal ones.

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
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple, TypeVar

from dqlab.frame.columns import Flag, lengths_column, numbers, read_lengths
from dqlab.texts import kept, restored

__all__ = ["Made", "Making"]

_HEAD = struct.Struct("<dIII")
_COUNT = struct.Struct("<I")
_YEAR_10000 = 253_402_300_800.0
_LARGEST = 3e38
_BYTES = 3
"""Of a number of seconds."""
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
    """How the results of a settlement were made, to be packed.

    Attributes
    ----------
    consumer, code : str
        Its name, and the short code version; "" where not known.
    at : float
        When they ended, seconds since 1970 UTC.
    seconds : sequence of float
        How long each took, NaN where not known.
    ages : sequence of float or None
        How many seconds before `at` each ended; None: at that moment, more or less.
    attempts : sequence of int or None
        The number of each delivery; None: all were the first.
    versions : sequence of str or None
        The version of each document, "" where it has none; None: none has any.
    """

    consumer: str
    code: str
    at: float
    seconds: Sequence[float]
    ages: Sequence[float] | None = None
    attempts: Sequence[int] | None = None
    versions: Sequence[str] | None = None

    @property
    def columns(self) -> list[Sequence[Any]]:
        """Return the columns that have an entry for each result."""
        return [column for column in (self.seconds, self.ages, self.attempts, self.versions) if column is not None]

    def encode(self) -> bytes:
        """Return it as bytes."""
        return _joined(
            # A machine without a clock is in 1970, and what ended before it was set is earlier: refused, its
            # settlement would come again forever. NaN becomes 0: no comparison with it holds.
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
    """How the results of a settlement were made; each column is opened when it is asked for.

    Attributes
    ----------
    at : float
        A moment, seconds since 1970 UTC. Each result ended then; where there are ages, its age before that.
    """

    at: float
    _code: memoryview
    _consumer: memoryview
    _seconds: memoryview
    _ages: memoryview | None
    _attempts: tuple[_Runs, Sequence[int]] | None
    _versions: tuple[_Runs, _Texts] | None

    @classmethod
    def decode(cls, view: memoryview, count: int) -> Made:
        """Open what `Making.encode` has packed for so many results; `ValueError` if it is anything else."""
        if len(view) < _HEAD.size:
            raise ValueError("cut off before what is known of its results")
        at, columns, code_n, consumer_n = _HEAD.unpack_from(view)
        if columns & ~_ALL or not 0.0 <= at < _YEAR_10000:
            raise ValueError(f"columns {columns:#x} of what is known of its results, at {at}")
        cursor = _Cursor(view, _HEAD.size)
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
            raise ValueError("lengths do not add up to what is known of its results")
        return cls(at, code, consumer, seconds, ages, attempts, versions)

    @property
    def code(self) -> str:
        """The short code version; "" where it is not known."""
        return _text(self._code)

    @property
    def consumer(self) -> str:
        """Name of the consumer; "" where it is not known."""
        return _text(self._consumer)

    def seconds(self, start: int, stop: int) -> array[float]:
        """Return how long results took, from one position to before another."""
        return _lengthened(self._seconds[_BYTES * start : _BYTES * stop])

    def ages(self, start: int, stop: int) -> array[float] | None:
        """Return how many seconds before `at` results ended; None: all of them then."""
        return None if self._ages is None else _lengthened(self._ages[_BYTES * start : _BYTES * stop])

    def attempts(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the numbers of the deliveries that made results, as runs of equal ones: (attempt, results)."""
        if self._attempts is None:
            return [(1, stop - start)]
        runs, values = self._attempts
        return [(values[number], n) for number, n in runs.within(start, stop)]

    def versions(self, start: int, stop: int) -> list[tuple[str, int]]:
        """Return the versions of documents, "" where there is none, as runs of equal ones: (version, results)."""
        if self._versions is None:
            return [("", stop - start)]
        runs, texts = self._versions
        return [(texts[number], n) for number, n in runs.within(start, stop)]

    def cut(self, start: int, stop: int) -> bytes:
        """Return what is known of the results from one position to before another, on its own."""
        attempts = None if self._attempts is None else self.attempts(start, stop)
        versions = None if self._versions is None else self.versions(start, stop)
        at = slice(_BYTES * start, _BYTES * stop)
        ages = None if self._ages is None else self._ages[at]
        return _joined(self.at, self._code, self._consumer, self._seconds[at], ages, attempts, versions)


class _Runs:
    """Runs of equal values, found by position without going through those before: a settlement is cut many times."""

    __slots__ = ("_ends",)

    def __init__(self, lengths: Sequence[int]) -> None:
        self._ends = _Ends(lengths)

    def within(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the runs between two positions: (number of the run, how much of it)."""
        ends = self._ends()
        number = bisect_right(ends, start)  # the first one that ends behind `start`: a run of none holds no position
        while start < stop and number < len(ends):
            end = min(ends[number], stop)
            if end > start:
                yield number, end - start
            start, number = end, number + 1


class _Texts:
    """Texts that stand one behind another, each opened when it is asked for."""

    __slots__ = ("_data", "_ends", "_sizes")

    def __init__(self, sizes: Sequence[int], data: memoryview) -> None:
        self._sizes, self._data, self._ends = sizes, data, _Ends(sizes)

    def __getitem__(self, number: int) -> str:
        end = self._ends()[number]
        return _text(self._data[end - self._sizes[number] : end])


class _Ends:
    """Where things of some lengths end; computed when it is first asked for."""

    __slots__ = ("_ends", "_lengths")

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths
        self._ends: array[int] | None = None

    def __call__(self) -> array[int]:
        if self._ends is None:
            self._ends = array("Q", accumulate(self._lengths))
        return self._ends


class _Cursor:
    """Takes one column after another, and raises `ValueError` where there is no more."""

    __slots__ = ("_view", "at")

    def __init__(self, view: memoryview, at: int) -> None:
        self._view, self.at = view, at

    def take(self, n: int) -> memoryview:
        start, self.at = self.at, self.at + n
        if self.at > len(self._view):
            raise ValueError("cut off in what is known of its results")
        return self._view[start : self.at]

    def lengths(self, count: int, *, equal: bool) -> Sequence[int]:
        column, self.at = read_lengths(self._view, self.at, count, Flag.EQUAL if equal else 0)
        return column

    def runs(self, count: int, *, equal: bool) -> Sequence[int]:
        """Return the lengths of runs, which are no more than there are results."""
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
    """Return a block of these columns; runs without a value that matters are left out."""
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
    """Return the column of how long runs are, with their number before it, and its flag."""
    flag, column = lengths_column(n for _, n in runs)
    return flag, _COUNT.pack(len(runs)) + column


def _runs(values: Sequence[T]) -> list[tuple[T, int]]:
    """Return runs of equal values: (value, how many)."""
    if values and values.count(values[0]) == len(values):
        return [(values[0], len(values))]
    return [(value, sum(1 for _ in alike)) for value, alike in groupby(values)]


def _shortened(values: Sequence[float]) -> bytes:
    """Return numbers as the upper three bytes of a float of four."""
    try:
        whole = struct.pack(f"<{len(values)}f", *values)  # half the time of an array
    except OverflowError:
        whole = struct.pack(f"<{len(values)}f", *map(_bounded, values))
    short = bytearray(_BYTES * len(values))
    for at in range(_BYTES):  # a loop over bytes of a number, not over numbers
        short[at::_BYTES] = whole[at + 1 :: 4]
    return bytes(short)


def _bounded(value: float) -> float:
    """Return what a float of four bytes can hold; NaN, which stands for a number that is not known, stays NaN."""
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


def _text(data: memoryview) -> str:
    try:
        return restored(bytes(data))
    except UnicodeDecodeError:
        return bytes(data).decode("utf-8", "replace")
