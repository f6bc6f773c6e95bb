"""The frames a lane holds, each with one state byte per message.

Owns which ids stand in which frame; knows nothing of what the states mean, and has no payloads: they are
the journal's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sortedcontainers import SortedDict

__all__ = ["Batch", "Batches", "share"]


def share(size: int, count: int, a: int, b: int) -> int:
    """Return what positions `a` to `b` of `count` have of a size; neighbours' shares add up exactly."""
    return size * b // count - size * a // count


class Batch:
    """One stored frame.

    Attributes
    ----------
    first : int
        Id of its first message; the others follow.
    ordinal : int
        Position of the first message in the run's input.
    put_at : float
        When it came, monotonic seconds.
    size : int
        Bytes of all payloads. A part of the batch counts for its share, whatever its messages weigh: a frame
        is at most a few hundred kilobytes, and its shares add up to it.
    weights : sequence of int or None
        Pages of each message.
    place : int
        Where the journal keeps the frame.
    states : bytearray
        One `State` per message.
    left : int
        Messages whose state is not final.
    """

    __slots__ = ("first", "left", "ordinal", "place", "put_at", "size", "states", "weights")

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
        self.first = first
        self.ordinal = ordinal
        self.put_at = put_at
        self.size = size
        self.weights = weights
        self.place = place
        self.left = count
        self.states = bytearray(count)

    def nbytes(self, a: int, b: int) -> int:
        """Return the share of messages `a` to `b` in the payload, bytes."""
        return share(self.size, len(self.states), a, b)

    def units(self, a: int, b: int) -> int:
        """Return the weights (pages) of messages `a` to `b`; 0 when the frame has none."""
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

    __slots__ = ("_by_first",)

    def __init__(self) -> None:
        self._by_first: SortedDict = SortedDict()

    def __len__(self) -> int:
        return len(self._by_first)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._by_first.values())

    def __getitem__(self, first: int) -> Batch:
        batch: Batch = self._by_first[first]
        return batch

    def add(self, batch: Batch) -> None:
        """Store a batch."""
        self._by_first[batch.first] = batch

    def extend(self, batches: Iterable[Batch]) -> None:
        """Store many at once, which costs less each."""
        self._by_first.update((batch.first, batch) for batch in batches)

    def remove(self, batch: Batch) -> None:
        """Forget a batch."""
        del self._by_first[batch.first]

    def at(self, id: int) -> tuple[Batch, int] | None:
        """Return the batch that holds a message and the message's index in it, or None."""
        at = self._by_first.bisect_right(id)
        if not at:
            return None
        first, batch = self._by_first.peekitem(at - 1)
        return (batch, id - first) if id - first < len(batch.states) else None

    def covering(self, lo: int, hi: int) -> list[tuple[Batch, int, int]]:
        """Return (batch, a, b) for each batch with ids in ``[lo, hi)``: its messages `a` to `b`."""
        found: list[tuple[Batch, int, int]] = []
        if hi <= lo:
            return found
        before = self.at(lo)
        if before is not None:
            batch, a = before
            found.append((batch, a, min(len(batch.states), hi - batch.first)))
        for first in self._by_first.irange(lo, hi, inclusive=(False, False)):
            batch = self._by_first[first]
            found.append((batch, 0, min(len(batch.states), hi - first)))
        return found
