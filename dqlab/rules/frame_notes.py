"""What a lane notes of its frames: the functions that their messages run, and groups of neighbours.

A group costs one consumer less than two, such as the rows of a row group. Which process runs which is a preference and
in memory only: where no other group is left, consumers share one, and after a restart messages are leased from the
front.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from sortedcontainers import SortedList

from dqlab.frame import NO_ID
from dqlab.rules.ranges import END, Ranges

LATEST = 8
"""Functions of the last frames that a lane keeps although those are freed: their client sends no pickle next time."""


class FrameFunctions:
    """Stretches of frames, by id, with the same function."""

    __slots__ = ("_assumed", "_end", "_firsts", "_stretches", "latest")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._stretches: list[list[Any]] = []  # [function, frames]
        self._assumed: set[bytes] = set()
        self._end = -1
        self.latest: dict[bytes, None] = {}
        """The functions of the last frames, the newest last."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the functions that stored frames name, some more than once."""
        for function, _ in self._stretches:
            yield function
        yield from self._assumed

    @property
    def only(self) -> bytes | None:
        """The function of all stored frames, or None where they may have several, or there are none."""
        return self._stretches[0][0] if len(self._stretches) == 1 and not self._assumed else None

    def between(self, lo: int, hi: int) -> set[bytes]:
        """Return the functions of the frames that have the ids ``[lo, hi)``, at least one."""
        at, stop = max(0, bisect_right(self._firsts, lo) - 1), bisect_left(self._firsts, hi)
        return {function for function, _ in self._stretches[at:stop]} | self._assumed

    def put(self, first: int, function: bytes) -> None:
        """Record the function of a frame."""
        self.came(function)
        if first < self._end:  # records were copied, so a log has them in another order
            self._assumed.add(function)
            return
        self._end = first
        if self._stretches and self._stretches[-1][0] == function:
            self._stretches[-1][1] += 1
        else:
            self._firsts.append(first)
            self._stretches.append([function, 1])

    def came(self, function: bytes) -> None:
        """Record that frames with a function arrive."""
        if next(reversed(self.latest), None) != function and function != NO_ID:
            self.latest.pop(function, None)
            self.latest[function] = None
            if len(self.latest) > LATEST:
                del self.latest[next(iter(self.latest))]

    def freed(self, first: int) -> None:
        """Record that a frame is no longer stored."""
        at = bisect_right(self._firsts, first) - 1
        if at < 0:
            return
        stretch = self._stretches[at]
        stretch[1] -= 1
        if stretch[1] == 0:
            if self._assumed:  # this frame may have been another one's
                self._assumed.add(stretch[0])
            del self._firsts[at], self._stretches[at]

    def emptied(self) -> None:
        """Record that no frame is stored any more."""
        self._firsts.clear()
        self._stretches.clear()
        self._assumed.clear()

    def assume(self, functions: Iterable[bytes]) -> None:
        """Assume that stored frames name these functions."""
        # For checkpoints of earlier versions, which do not have which frames name which function.
        self._assumed.update(functions)

    def to_list(self) -> list[Any]:
        """Return everything as plain data."""
        stretches = [[first, *stretch] for first, stretch in zip(self._firsts, self._stretches, strict=True)]
        return [stretches, sorted(self._assumed), list(self.latest), [self._end]]

    def restore(self, plain: list[Any]) -> None:
        """Restore what `to_list` returned."""
        stretches, assumed, latest, (end,) = plain
        self._firsts = [first for first, _, _ in stretches]
        self._stretches = [[function, frames] for _, function, frames in stretches]
        self._assumed = set(assumed)
        self.latest = dict.fromkeys(latest)
        self._end = end


class Overrides:
    """Ids by the function that they run in place of their frames' function."""

    __slots__ = ("_by_function",)

    def __init__(self) -> None:
        self._by_function: dict[bytes, Ranges] = {}
        """Empty in nearly every lane, so methods return early then."""

    def __bool__(self) -> bool:
        return bool(self._by_function)

    def items(self) -> Iterator[tuple[bytes, Ranges]]:
        """Yield each function and the ids that have it."""
        yield from self._by_function.items()

    def assign(self, lo: int, hi: int, function: bytes) -> None:
        """Assign a function to the ids ``[lo, hi)``, in place of any other."""
        self.discard(lo, hi)
        self._by_function.setdefault(function, Ranges()).add(lo, hi)

    def discard(self, lo: int, hi: int) -> None:
        """Restore the frames' own functions for the ids ``[lo, hi)``."""
        for function, ids in list(self._by_function.items()):
            ids.discard(lo, hi)
            if not ids:
                del self._by_function[function]

    def split(self, lo: int, hi: int) -> Iterator[tuple[int, int, bytes | None]]:
        """Yield ``[lo, hi)`` as stretches of one function each (None = the frame's own), in order."""
        if not self._by_function:
            yield lo, hi, None
            return
        assigned = [(a, b, function) for function, ids in self._by_function.items() for a, b in ids.within(lo, hi)]
        for a, b, function in sorted(assigned):
            if lo < a:
                yield lo, a, None
            yield a, b, function
            lo = b
        if lo < hi:
            yield lo, hi, None


class Groups:
    """The groups of one lane; messages behind the last known end belong to no group.

    Examples
    --------
    >>> groups, ready = Groups(), Ranges([(0, 300)])
    >>> groups.end(100)
    >>> groups.end(200)
    >>> [groups.span(slot, ready, 10)[0] for slot in ("a#0", "b#0", "a#1", "c#0")]
    [0, 100, 0, 200]
    """

    __slots__ = ("_ends", "_run", "_runs")

    def __init__(self) -> None:
        self._ends: SortedList = SortedList()
        """Ends of the groups that still had messages to lease at the last look."""
        self._runs: dict[str, int] = {}
        """By process, the end of the group that it runs; no two run the same one."""
        self._run: set[int] = set()
        """These ends."""

    def end(self, id: int) -> None:
        """Note that a group ends before an id."""
        self._ends.add(id)

    def among(self, slot: str, ready: Ranges, n: int) -> Iterable[tuple[int, int]]:
        """Return the intervals from which a slot of a consumer leases next, up to `n` messages."""
        self._pass(ready)
        # The caller must not change `ready` before it has read them all.
        return ready.within(*self.span(slot, ready, n)) if self._ends else ready

    def span(self, slot: str, ready: Ranges, n: int) -> tuple[int, int]:
        """Return the ids, some of them ready, among which a slot of a consumer leases next."""
        # First the group that its process runs, else the first one that no other process runs, with those behind it
        # that can be leased with it whole. Else what is behind all groups, else the group of another process.
        first, process = self._pass(ready), slot.partition("#")[0]
        found = self._left_of(self.forget(process), ready) or self._first_free(first, ready)
        if found is None:
            behind = _first(ready, self._ends[-1], END) if self._ends else None
            return (first if behind is None else behind), END
        lo, at = found
        end = self._ends[at]
        for behind in self._ends.islice(at + 1):
            if behind - lo > n or behind in self._run:
                break
            end = behind
        self._runs[process] = end
        self._run.add(end)
        return lo, end

    def forget(self, process: str) -> int | None:
        """Forget a process that is gone, so that its group is free, and return the end of that group."""
        end = self._runs.pop(process, None)
        if end is not None:
            self._run.discard(end)
        return end

    def _pass(self, ready: Ranges) -> int:
        """Forget the groups in front of all that is ready, and return the first id of that."""
        first = ready.first
        assert first is not None, "asked only when something is ready"
        while self._ends and self._ends[0] <= first:
            del self._ends[0]
        return first

    def _left_of(self, end: int | None, ready: Ranges) -> tuple[int, int] | None:
        """Return the first ready id of a group, and the index of its end, or None when nothing is ready."""
        if end is None or end not in self._ends:
            return None
        at = self._ends.index(end)
        lo = _first(ready, self._ends[at - 1] if at else 0, end)
        return None if lo is None else (lo, at)

    def _first_free(self, lo: int | None, ready: Ranges) -> tuple[int, int] | None:
        """Return these of the first group that no process runs, from the first ready id on."""
        while lo is not None:
            at = self._ends.bisect_right(lo)
            if at == len(self._ends):
                return None
            if self._ends[at] not in self._run:
                return lo, at
            lo = _first(ready, self._ends[at], END)
        return None


def _first(ready: Ranges, lo: int, hi: int) -> int | None:
    return next((start for start, _ in ready.within(lo, hi)), None)
