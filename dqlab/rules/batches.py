"""The frames a lane holds, each with one state byte per message; the journal has their payloads.

A frame to which nothing has happened is a row of numbers, in compact columns for millions of them, and becomes an
object when it is looked up. Before that object changes, it is kept with `Batches.keep`; else the change is lost.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import compress, islice, repeat
from typing import Literal, NamedTuple, Self

from sortedcontainers import SortedDict

from dqlab.rules.ranges import END


class Column:
    """A sequence of integers."""

    __slots__ = ("_first", "_n", "_rest", "_step", "_typecode")

    def __init__(self, typecode: Literal["I", "Q"]) -> None:
        # While the step between neighbours is constant, only the first number, the step and the count are kept; after
        # that, the difference of each number to the first, in 32 ("I") or 64 ("Q") bits, never negative.
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
        """Add a number, or raise OverflowError and add nothing when its difference to the first does not fit."""
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
        """Return the index of the last number not above `value` in an ascending column, or -1 when all are above."""
        if value < self._first or not self._n:
            return -1
        if self._rest is not None:
            return bisect_right(self._rest, value - self._first, hi=self._n) - 1
        return min(self._n - 1, (value - self._first) // self._step) if self._n > 1 else 0

    def shared(self) -> Column:
        """Return the column as it is now, for another thread."""
        # The array is shared, not copied. It may grow, since `_n` bounds what the copy reads, but no number in it may
        # change: `replace` makes a new one, and `cut` takes away only what was added last.
        copy = Column(self._typecode)
        copy._first, copy._step, copy._n, copy._rest = self._first, self._step, self._n, self._rest
        return copy

    def replace(self, changes: Mapping[int, int]) -> None:
        """Replace the numbers at some places."""
        values = list(self)
        # In a new array: columns from `shared` stay as they were.
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


CHUNK = 4096
"""Rows that share their first numbers, and are freed together with the last of them."""


class Row(NamedTuple):
    """One frame of `n` messages, with the fields of `dqlab.rules.batches.Batch`."""

    first: int
    n: int
    ordinal: int
    put_at: int
    size: int
    place: int


class Rows:
    """Rows by the ids of their messages, which only increase."""

    __slots__ = ("_chunks", "_last", "_n", "end")

    def __init__(self) -> None:
        self._chunks: SortedDict = SortedDict()  # first id -> _Chunk
        self._last: _Chunk | None = None  # the chunk that takes new rows
        # `end` is the id after the last row's messages.
        self.end = self._n = 0

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Row]:
        for chunk in self._chunks.values():
            yield from chunk

    def add(self, row: Row) -> bool:
        """Add a row after all others, or return False if its ids are not above theirs."""
        if row.first < self.end:
            return False
        if self._last is None or not self._last.add(row):
            self._last = self._chunks[row.first] = _Chunk()
            self._last.add(row)
        self.end = row.first + row.n
        self._n += 1
        return True

    def extend(self, columns: Sequence[Sequence[int]], *, put_at_shift: int) -> None:
        """Add many rows, given as one column per field, after all others."""
        # `put_at_shift` is in microseconds: a checkpoint has wall times, and rows have the monotonic clock's.
        for start in range(0, len(columns[0]), CHUNK):
            chunk = _Chunk.of([column[start : start + CHUNK] for column in columns], put_at_shift)
            self._last = self._chunks[chunk.first[0]] = chunk
            self._n += len(chunk.here)
            self.end = chunk.first[-1] + chunk.n[-1]

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
        """Move rows to other places, given by their first ids."""
        by_chunk: dict[int, dict[int, int]] = {}
        for first, place in places.items():
            key, _ = self._chunks.peekitem(self._chunks.bisect_right(first) - 1)
            by_chunk.setdefault(key, {})[first] = place
        for key, changes in by_chunk.items():
            self._chunks[key].relocate(changes)

    def frozen(self) -> list[FrozenRows]:
        """Return all rows as they are now, for another thread, and copy almost nothing."""
        return [chunk.frozen() for chunk in self._chunks.values()]


class FrozenRows(NamedTuple):
    """Some rows at one instant."""

    columns: tuple[Column, ...]
    """In the order of the fields of `Row`."""
    here: bytes
    """A 1 for each row that was present."""

    def column(self, field: str) -> Iterator[int]:
        """Return one field of each row that was present."""
        return compress(self.columns[Row._fields.index(field)], self.here)


class _Chunk:
    """Neighbouring rows."""

    __slots__ = ("first", "here", "left", "n", "ordinal", "place", "put_at", "size")

    def __init__(self) -> None:
        self.first, self.ordinal, self.place = Column("Q"), Column("Q"), Column("Q")
        self.n, self.put_at, self.size = Column("I"), Column("I"), Column("I")
        self.here = bytearray()
        """A 1 for each row that was not taken yet."""
        self.left = 0

    @classmethod
    def of(cls, columns: Sequence[Sequence[int]], put_at_shift: int) -> _Chunk:
        """Make a chunk from whole columns."""
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
        """The columns, in the order of the fields of `Row`."""
        return self.first, self.n, self.ordinal, self.put_at, self.size, self.place

    def __iter__(self) -> Iterator[Row]:
        return map(Row._make, compress(zip(*self.columns, strict=False), bytes(self.here)))

    def add(self, row: Row) -> bool:
        """Add a row, or return False if there is no room, or its numbers are too far from the first row's."""
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
                # Columns before the one that overflowed have the number already.
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
        """Remove a row, and return whether it was there."""
        at = self.first.rank(first)
        if at < 0 or not self.here[at] or self.first[at] != first:
            return False
        self.here[at] = 0
        self.left -= 1
        return True

    def relocate(self, places: Mapping[int, int]) -> None:
        """Move rows to other places."""
        self.place.replace({self.first.rank(first): place for first, place in places.items()})

    def frozen(self) -> FrozenRows:
        """Return the rows as they are now."""
        return FrozenRows(tuple(column.shared() for column in self.columns), bytes(self.here))


def share(size: int, count: int, a: int, b: int) -> int:
    """Return the share of a size that positions `a` to `b` of `count` have."""
    # Neighbours' shares add up exactly, and to the whole: the log deletes a segment when the bytes it counts reach 0.
    return size * b // count - size * a // count


class Batch:
    """One stored frame."""

    __slots__ = ("first", "kept", "left", "ordinal", "place", "put_at", "size", "states", "weights")

    def __init__(
        self,
        first: int,
        count: int,
        *,
        ordinal: int,
        put_at: float,
        size: int,
        weights: Sequence[int] | None = None,
        place: int = 0,
    ) -> None:
        self.first = first  # id of its first message; the others follow
        self.ordinal = ordinal  # position of the first message in the run's input
        self.put_at = put_at  # when it came, monotonic seconds
        # Bytes of all payloads. A part of the batch counts for its share, whatever its messages weigh: a frame is at
        # most a few hundred kilobytes, and its shares add up to it.
        self.size = size
        self.weights = weights  # pages, or bytes, of each message's document
        self.place = place  # where the journal keeps the frame
        self.left = count  # messages whose state is not final
        self.kept = False  # it is only built from its row
        self.states = bytearray(count)  # one `State` per message, READY at first

    def nbytes(self, a: int, b: int) -> int:
        """Return the share of messages `a` to `b` in the payload, bytes."""
        return share(self.size, len(self.states), a, b)

    def units(self, a: int, b: int) -> int:
        """Return the weights of messages `a` to `b`, or 0 when the frame has none."""
        return 0 if self.weights is None else sum(self.weights[a:b])

    def fit(self, a: int, b: int, room: int) -> int:
        """Return how many of the messages `a` to `b` fit into `room` bytes, from the front."""
        if self.nbytes(a, b) <= room:
            return b - a
        if room < 0:
            return 0
        count = len(self.states)
        return ((room + 1 + self.size * a // count) * count - 1) // self.size - a


class Batches:
    """Stored frames by id."""

    __slots__ = ("_kept", "_rows", "_weights")

    def __init__(self) -> None:
        self._kept: SortedDict = SortedDict()  # first id -> Batch
        self._rows = Rows()
        self._weights: dict[int, Sequence[int]] = {}  # of rows, by first id

    def __len__(self) -> int:
        return len(self._kept) + len(self._rows)

    def __iter__(self) -> Iterator[Batch]:
        made = (_made(row, self._weights.get(row.first)) for row in self._rows)
        return merge(made, self._kept.values(), key=_first)

    def __getitem__(self, first: int) -> Batch:
        found = self.at(first)
        if found is None or found[1]:
            raise KeyError(first)
        return found[0]

    @property
    def end(self) -> int:
        """The id after the last row's messages, from which rows can be added."""
        return self._rows.end

    def add(self, row: Row, weights: Sequence[int] | None) -> None:
        """Store a frame to which nothing has happened."""
        if not self._rows.add(row):
            self.keep(_made(row, weights))
        elif weights is not None:
            self._weights[row.first] = weights

    def extend(self, columns: Sequence[Sequence[int]], *, put_at_shift: int) -> None:
        """Store many such frames without weights, after all others."""
        self._rows.extend(columns, put_at_shift=put_at_shift)

    def keep(self, batch: Batch) -> None:
        """Keep a batch that is about to change."""
        if batch.kept:
            return
        self._rows.take(batch.first)
        self._weights.pop(batch.first, None)
        assert batch.first not in self._kept, "of one frame there is one object at most"
        self._kept[batch.first] = batch
        batch.kept = True

    def remove(self, batch: Batch) -> None:
        """Forget a kept batch."""
        del self._kept[batch.first]

    def relocate(self, places: Mapping[int, int]) -> None:
        """Move stored frames to other places, given by their first ids."""
        for first in places.keys() & self._kept.keys():
            self._kept[first].place = places[first]
        self._rows.relocate({first: place for first, place in places.items() if first not in self._kept})

    def kept(self, lo: int = 0, hi: int = END) -> list[Batch]:
        """Return the batches with ids in ``[lo, hi)`` to which something has happened."""
        if lo >= hi:
            return []
        start = max(0, self._kept.bisect_right(lo) - 1)
        found = [self._kept[first] for first in self._kept.islice(start, self._kept.bisect_left(hi))]
        return found if not found or found[0].first + len(found[0].states) > lo else found[1:]

    def frozen(self) -> list[FrozenRows]:
        """Return the batches that are not kept, as they are now, for another thread."""
        return self._rows.frozen()

    def weights(self) -> dict[int, Sequence[int]]:
        """Return the weights of the batches that are not kept, by first id."""
        return dict(self._weights)

    def at(self, id: int) -> tuple[Batch, int] | None:
        """Return the batch that holds a message and the message's index in it, or None."""
        batch = self._behind(id)
        return None if batch is None or batch.first > id else (batch, id - batch.first)

    def covering(self, lo: int, hi: int) -> Iterator[tuple[Batch, int, int]]:
        """Yield (batch, a, b) for each batch with ids in ``[lo, hi)``, which are its messages `a` to `b`."""
        while lo < hi:
            batch = self._behind(lo)
            # Looked up each time: callers change or remove a batch before they take the next one.
            if batch is None or batch.first >= hi:
                return
            stop = batch.first + len(batch.states)
            yield batch, max(0, lo - batch.first), min(stop, hi) - batch.first
            lo = stop

    def _behind(self, id: int) -> Batch | None:
        """Return the batch that holds a message, else the first one after it."""
        kept = self._kept
        at = kept.bisect_right(id)
        if at:
            before: Batch = kept.peekitem(at - 1)[1]
            if id - before.first < len(before.states):
                return before
        row = self._rows.behind(id)
        batch: Batch | None = kept.peekitem(at)[1] if at < len(kept) else None
        if row is None or (batch is not None and batch.first < row.first):
            return batch
        return _made(row, self._weights.get(row.first))


def _made(row: Row, weights: Sequence[int] | None) -> Batch:
    first, count, ordinal, put_at, size, place = row
    return Batch(first, count, ordinal=ordinal, put_at=put_at / 1e6, size=size, weights=weights, place=place)


def _first(batch: Batch) -> int:
    return batch.first
