"""Numbers of messages, and sets of such numbers as sorted, disjoint, half-open intervals.

A number is shard << 45 | sequence, below 2**53 so that every language reads it exactly. In a set, a thousand neighbours
cost as much as one; every operation is O(log k) on k intervals, plus the intervals it removes or returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict

from dqlab.errors import BadOption

ENDLESS = 1 << 62
"""Above every ordinal."""


class Ranges:
    """A set of integers, in which touching intervals are merged, so that equal sets have equal intervals."""

    __slots__ = ("_ends", "_size")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._ends: SortedDict = SortedDict()  # start of an interval -> its end
        self._size = 0
        for lo, hi in intervals:
            self.add(lo, hi)

    @property
    def size(self) -> int:
        """How many integers there are."""
        # Not `__len__`: `list` would allocate room for that many, and the set of all ids has one interval.
        return self._size

    def __bool__(self) -> bool:
        return bool(self._ends)

    def __contains__(self, number: object) -> bool:
        start = self._floor(number) if isinstance(number, int) else None
        return start is not None and bool(number < self._ends[start])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ends.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and bool(self._ends == other._ends)

    def __repr__(self) -> str:
        return f"Ranges({list(self)})"

    @property
    def first(self) -> int | None:
        """The smallest integer, None when empty."""
        return self._ends.keys()[0] if self._ends else None

    def add(self, lo: int, hi: int) -> None:
        """Add the integers ``lo <= i < hi``."""
        if hi <= lo:
            return
        last, end = self._ends.peekitem() if self._ends else (lo, lo)
        if last <= lo:  # nearly always: it comes last, or extends the last one
            start, end = (last, end) if lo <= end else (lo, lo)
            if hi > end:
                self._ends[start] = hi
                self._size += hi - end
            return
        floor = self._floor(lo)
        start = lo if floor is None or self._ends[floor] < lo else floor
        lo = start
        swallowed = list(self._ends.irange(lo, hi))
        if swallowed:
            hi = max(hi, self._ends[swallowed[-1]])
            for key in swallowed:
                self._size -= self._ends[key] - key
                if key != start:
                    del self._ends[key]
        self._ends[start] = hi
        self._size += hi - start

    def discard(self, lo: int, hi: int) -> None:
        """Remove the integers ``lo <= i < hi``."""
        if self._ends.get(lo) == hi:  # nearly always: a whole interval
            del self._ends[lo]
            self._size -= hi - lo
            return
        if hi <= lo:
            return
        start = self._floor(lo)
        touched = [] if start is None or start == lo or self._ends[start] <= lo else [start]
        touched.extend(self._ends.irange(lo, hi, inclusive=(True, False)))
        for key in touched:
            end = self._ends[key]
            self._size -= min(hi, end) - max(lo, key)
            if key < lo:
                self._ends[key] = lo
            else:
                del self._ends[key]
            if end > hi:
                self._ends[hi] = end

    @property
    def intervals(self) -> int:
        """How many intervals there are, which determines the memory the set takes."""
        return len(self._ends)

    def keep_last(self, intervals: int) -> None:
        """Remove the first integers until at most `intervals` intervals are left."""
        while len(self._ends) > intervals:
            lo, hi = self._ends.popitem(0)
            self._size -= hi - lo

    def within(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Yield the intervals inside ``[lo, hi)``, clipped to it."""
        # Lazy, so the set must not change during the loop; `overlap` returns a list for callers that change it.
        if hi <= lo:
            return
        start = self._floor(lo)
        if start is not None and start < lo < self._ends[start]:
            yield lo, min(hi, self._ends[start])
        for key in self._ends.irange(lo, hi, inclusive=(True, False)):
            yield key, min(hi, self._ends[key])

    def numbers(self, lo: int, hi: int) -> Iterator[int]:
        """Yield the integers inside ``[lo, hi)``, ascending."""
        for start, stop in self.within(lo, hi):
            yield from range(start, stop)

    def overlap(self, lo: int, hi: int) -> list[tuple[int, int]]:
        """Return the intervals inside ``[lo, hi)``, clipped to it."""
        return list(self.within(lo, hi))

    def gaps(self, lo: int, hi: int) -> list[tuple[int, int]]:
        """Return the intervals inside ``[lo, hi)`` that are not in the set."""
        gaps = []
        for start, stop in self.within(lo, hi):
            if lo < start:
                gaps.append((lo, start))
            lo = stop
        if lo < hi:
            gaps.append((lo, hi))
        return gaps

    def _floor(self, number: int) -> int | None:
        """Return the greatest start <= number."""
        at: int = self._ends.bisect_right(number)  # a third of what irange takes
        return self._ends.peekitem(at - 1)[0] if at else None


_SEQUENCE_BITS = 45
_EPOCH_STRIDE = 1 << 24  # ids that one epoch may give
_MAX_SHARDS = 256

ID_BITS = 53
ID_MASK = (1 << ID_BITS) - 1
END = 1 << ID_BITS
"""Above every id."""


def first_id(index: int, sequence: int) -> int:
    """Return the id of a shard's message number `sequence`, or raise BadOption when either is out of range."""
    if not 0 <= index < _MAX_SHARDS:
        raise BadOption(option="index", value=index, problem=f"a queue has shards 0 to {_MAX_SHARDS - 1}.")
    if not 0 <= sequence < 1 << _SEQUENCE_BITS:
        raise BadOption(option="first_sequence", value=sequence, problem=f"fits {_SEQUENCE_BITS} bits, from 0.")
    return index << _SEQUENCE_BITS | sequence


def shard_of(id: int) -> int:
    """Return the shard a message id belongs to."""
    return id >> _SEQUENCE_BITS


def next_sequence(highest: int | None) -> int:
    """Return where a new epoch's sequences start, given the highest known id or sequence of its shard, if any."""
    if highest is None:
        return 0
    sequence = highest & ((1 << _SEQUENCE_BITS) - 1)
    # Not the next number: puts that were confirmed and did not reach the disk took ids too, though fewer than a stride.
    # No id may be given twice, since clients hold them and late settlements name them.
    return (sequence // _EPOCH_STRIDE + 1) * _EPOCH_STRIDE
