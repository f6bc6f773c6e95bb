"""Integers by the million: kept as differences, and not even so while they go up in equal steps."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Literal, Self

__all__ = ["Column"]


class Column:
    """A sequence of integers.

    While each is as far from the last as that was from the one before, only the first, the step and their number
    are kept; from then on the difference of each to the first.

    Parameters
    ----------
    typecode : {"I", "Q"}
        Of the differences: 32 or 64 bits, never negative.
    """

    __slots__ = ("_first", "_n", "_rest", "_step", "_typecode")

    def __init__(self, typecode: Literal["I", "Q"]) -> None:
        self._typecode = typecode
        self._first = self._step = self._n = 0
        self._rest: array[int] | list[int] | None = None

    @classmethod
    def of(cls, typecode: Literal["I", "Q"], values: Sequence[int], shift: int = 0) -> Self:
        """Return a column of these numbers, at least one, each with `shift` added."""
        column = cls(typecode)
        column._n = n = len(values)
        column._first, column._step = values[0] + shift, values[1] - values[0] if n > 1 else 0
        if not _equal_steps(values, column._step):
            column._keep(values)
            column._first += shift
        return column

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, at: int) -> int:
        return self._first + (at * self._step if self._rest is None else self._rest[at])

    def __iter__(self) -> Iterator[int]:
        if self._rest is not None:
            return map(self._first.__add__, islice(self._rest, self._n))
        if self._step:
            return iter(range(self._first, self._first + self._n * self._step, self._step))
        return repeat(self._first, self._n)

    def append(self, value: int) -> None:
        """Add a number.

        Raises
        ------
        OverflowError
            Its difference to the first cannot be kept; nothing was added.
        """
        n = self._n
        if self._rest is not None:
            self._rest.append(value - self._first)
        elif n == 0:
            self._first = value
        elif n == 1:
            self._step = value - self._first
        elif value != self._first + n * self._step:
            rest = array(self._typecode, (at * self._step for at in range(n)))
            rest.append(value - self._first)
            self._rest = rest
        self._n = n + 1

    def cut(self, n: int) -> None:
        """Drop all numbers but the first `n`."""
        if self._rest is not None:
            del self._rest[n:]
        self._n = n

    def rank(self, value: int) -> int:
        """Return where the last number stands that is not above `value`, -1 when all are; they must be ascending."""
        if value < self._first or not self._n:
            return -1
        if self._rest is not None:
            return bisect_right(self._rest, value - self._first, hi=self._n) - 1
        return min(self._n - 1, (value - self._first) // self._step) if self._n > 1 else 0

    def shared(self) -> Column:
        """Return the column as it is now, for another thread; what is appended later is not in it."""
        copy = Column(self._typecode)
        copy._first, copy._step, copy._n, copy._rest = self._first, self._step, self._n, self._rest
        return copy

    def replace(self, changes: Mapping[int, int]) -> None:
        """Put other numbers in some places; what was `shared` stays as it was."""
        values = list(self)
        for at, value in changes.items():
            values[at] = value
        self._keep(values)

    def _keep(self, values: Sequence[int]) -> None:
        try:
            self._first, self._rest = 0, array(self._typecode, values)
        except OverflowError:
            self._first = min(values)
            differences = [value - self._first for value in values]
            try:
                self._rest = array(self._typecode, differences)
            except OverflowError:  # as in a log of a thousand segments: rare, and only memory
                self._rest = differences


def _equal_steps(values: Sequence[int], step: int) -> bool:
    first, n = values[0], len(values)
    if step == 0:
        return values.count(first) == n
    if step < 0 or values[-1] != first + (n - 1) * step:
        return False
    return list(values) == list(range(first, first + n * step, step))
