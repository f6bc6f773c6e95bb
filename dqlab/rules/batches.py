"""The frames a lane holds, each with one state byte per message; the journal has their payloads.

A frame to which nothing has happened is a row of numbers, and becomes an object when it is looked up. Before that
object changes, it is kept with `Batches.keep`; else the change is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge

from sortedcontainers import SortedDict

from dqlab.rules.ids import END
from dqlab.rules.lanes.rows import FrozenRows, Row, Rows


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
