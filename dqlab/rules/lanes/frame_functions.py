"""Which functions the messages of a lane run: those that their frames name, and others after a retry."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from dqlab.frame import NO_ID
from dqlab.rules.ranges import Ranges

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
