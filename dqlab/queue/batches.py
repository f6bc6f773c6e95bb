"""The frames a lane holds, each with one state byte per message.

Owns where a message's bytes are; knows nothing of what the states mean.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from sortedcontainers import SortedDict

from dqlab.frame import Frame

__all__ = ["Batch", "Batches"]


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
    states : bytearray
        One `State` per message.
    left : int
        Messages whose state is not final.
    """

    __slots__ = ("first", "frame", "left", "ordinal", "put_at", "states")

    def __init__(self, frame: Frame, first: int, ordinal: int, put_at: float) -> None:
        self.frame = frame
        self.first = first
        self.ordinal = ordinal
        self.put_at = put_at
        self.left = frame.count
        self.states = bytearray(frame.count)

    def nbytes(self, a: int, b: int) -> int:
        """Return the payload bytes of messages `a` to `b`."""
        if b - a == len(self.states):
            return len(self.frame.payload)
        ends = self.frame.ends()
        return ends[b - 1] - ends[a] + self.frame.lengths[a]

    def units(self, a: int, b: int) -> int:
        """Return the weights (pages) of messages `a` to `b`; 0 when the frame has none."""
        weights = self.frame.weights
        return 0 if weights is None else sum(weights[a:b])

    def fit(self, a: int, b: int, room: int) -> int:
        """Return how many of the messages `a` to `b` fit into `room` bytes, from the front."""
        if self.nbytes(a, b) <= room:
            return b - a
        ends = self.frame.ends()
        return bisect_right(ends, ends[a] - self.frame.lengths[a] + room, a, b) - a


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

    def remove(self, batch: Batch) -> None:
        """Forget a batch."""
        del self._by_first[batch.first]

    def at(self, id: int) -> tuple[Batch, int] | None:
        """Return the batch that holds a message and the message's index in it, or None."""
        first = next(self._by_first.irange(None, id, reverse=True), None)
        if first is None:
            return None
        batch: Batch = self._by_first[first]
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
