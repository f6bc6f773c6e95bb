"""Frames to which nothing has happened yet: a row of numbers each, for there may be millions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

from sortedcontainers import SortedDict

from dqlab.rules.columns import Column

__all__ = ["CHUNK", "FrozenRows", "Row", "Rows"]

CHUNK = 4096
"""Rows that share their first numbers, and go together when the last of them has gone."""


class Row(NamedTuple):
    """One frame of `n` messages; see `queue.batches.Batch`. `put_at` is in microseconds here."""

    first: int
    n: int
    ordinal: int
    put_at: int
    size: int
    place: int


class Rows:
    """Rows by the ids of their messages, which only ever go up; `end` is the id behind the last of them."""

    __slots__ = ("_chunks", "_last", "_n", "end")

    def __init__(self) -> None:
        self._chunks: SortedDict = SortedDict()  # first id -> _Chunk
        self._last: _Chunk | None = None  # of them, for new rows
        self.end = self._n = 0

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Row]:
        for chunk in self._chunks.values():
            yield from chunk

    def add(self, row: Row) -> bool:
        """Add a row behind all others; return False if its ids are not behind theirs."""
        if row.first < self.end:
            return False
        if self._last is None or not self._last.add(row):
            self._last = self._chunks[row.first] = _Chunk()
            self._last.add(row)
        self.end = row.first + row.n
        self._n += 1
        return True

    def extend(self, columns: Sequence[Sequence[int]], *, put_at_shift: int) -> None:
        """Add many rows, given as one column for each field, behind all others.

        Parameters
        ----------
        put_at_shift : int
            Added to each `put_at`, microseconds.
        """
        for start in range(0, len(columns[0]), CHUNK):
            chunk = _Chunk.of([column[start : start + CHUNK] for column in columns], put_at_shift)
            self._last = self._chunks[chunk.first[0]] = chunk
            self._n += len(chunk.here)
            self.end = chunk.first[-1] + chunk.n[-1]

    def at(self, id: int) -> Row | None:
        """Return the row that holds a message."""
        row = self.behind(id)
        return row if row is not None and row.first <= id else None

    def behind(self, id: int) -> Row | None:
        """Return the row that holds a message, else the first one behind it."""
        at = self._chunks.bisect_right(id)
        for place in (at - 1, at):
            if 0 <= place < len(self._chunks):
                row: Row | None = self._chunks.peekitem(place)[1].behind(id)
                if row is not None:
                    return row
        return None

    def take(self, first: int) -> None:
        """Remove a row if it is there."""
        at = self._chunks.bisect_right(first)
        if not at:
            return
        key, chunk = self._chunks.peekitem(at - 1)
        if chunk.take(first):
            self._n -= 1
            if not chunk.left:
                del self._chunks[key]
                self._last = None if chunk is self._last else self._last

    def relocate(self, places: Mapping[int, int]) -> None:
        """Give rows, by their first ids, other places."""
        by_chunk: dict[int, dict[int, int]] = {}
        for first, place in places.items():
            key, _ = self._chunks.peekitem(self._chunks.bisect_right(first) - 1)
            by_chunk.setdefault(key, {})[first] = place
        for key, changes in by_chunk.items():
            self._chunks[key].relocate(changes)

    def frozen(self) -> list[FrozenRows]:
        """Return all rows as they are now, for another thread; copies next to nothing."""
        return [chunk.frozen() for chunk in self._chunks.values()]


class FrozenRows(NamedTuple):
    """Some rows as they were: their columns, in the order of the fields of `Row`, and which of them are there."""

    columns: tuple[Column, ...]
    here: bytes

    def column(self, field: str) -> Iterator[int]:
        """Return one field of each row that was there."""
        return compress(self.columns[Row._fields.index(field)], self.here)


class _Chunk:
    """Neighbours; `here` has a 1 for each row that was not yet taken, `left` is their number."""

    __slots__ = ("first", "here", "left", "n", "ordinal", "place", "put_at", "size")

    def __init__(self) -> None:
        self.first, self.ordinal, self.place = Column("Q"), Column("Q"), Column("Q")
        self.n, self.put_at, self.size = Column("I"), Column("I"), Column("I")
        self.here = bytearray()
        self.left = 0

    @classmethod
    def of(cls, columns: Sequence[Sequence[int]], put_at_shift: int) -> _Chunk:
        """Return a chunk of whole columns."""
        chunk = cls()
        first, n, ordinal, put_at, size, place = columns
        chunk.first, chunk.n, chunk.ordinal = Column.of("Q", first), Column.of("I", n), Column.of("Q", ordinal)
        chunk.put_at = Column.of("Q", put_at, put_at_shift)
        chunk.size, chunk.place = Column.of("I", size), Column.of("Q", place)
        chunk.left = len(first)
        chunk.here = bytearray(b"\1") * chunk.left
        return chunk

    @property
    def columns(self) -> tuple[Column, ...]:
        """In the order of the fields of `Row`."""
        return self.first, self.n, self.ordinal, self.put_at, self.size, self.place

    def __iter__(self) -> Iterator[Row]:
        return map(Row._make, compress(zip(*self.columns, strict=False), bytes(self.here)))

    def add(self, row: Row) -> bool:
        """Add a row; return False if there is no room for it, or its numbers are too far from those of the first."""
        n = len(self.here)
        if n == CHUNK:
            return False
        try:
            self.first.append(row.first)
            self.n.append(row.n)
            self.ordinal.append(row.ordinal)
            self.put_at.append(row.put_at)
            self.size.append(row.size)
            self.place.append(row.place)
        except OverflowError:
            for column in self.columns:
                column.cut(n)
            return False
        self.here.append(1)
        self.left += 1
        return True

    def behind(self, id: int) -> Row | None:
        """Return the row that holds a message, else the first one behind it."""
        at = self.first.rank(id)
        if at < 0 or not self.here[at] or id >= self.first[at] + self.n[at]:
            at = self.here.find(1, at + 1)
            if at < 0:
                return None
        return Row(self.first[at], self.n[at], self.ordinal[at], self.put_at[at], self.size[at], self.place[at])

    def take(self, first: int) -> bool:
        """Remove a row; return whether it was there."""
        at = self.first.rank(first)
        if at < 0 or not self.here[at] or self.first[at] != first:
            return False
        self.here[at] = 0
        self.left -= 1
        return True

    def relocate(self, places: Mapping[int, int]) -> None:
        """Give rows other places."""
        self.place.replace({self.first.rank(first): place for first, place in places.items()})

    def frozen(self) -> FrozenRows:
        """Return the rows as they are now."""
        return FrozenRows(tuple(column.shared() for column in self.columns), bytes(self.here))
