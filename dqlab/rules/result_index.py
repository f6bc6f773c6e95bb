"""Index of the results of one lane, in the order of completion and by ordinal; owns no bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from sortedcontainers import SortedDict, SortedKeyList

from dqlab.frame import Piece
from dqlab.rules.ranges import Ranges

T = TypeVar("T")

BLOCK = 4096
"""Stretches that a checkpoint copies together, and not again until one of them changes."""


@dataclass(slots=True)
class Stretch:
    """Neighbouring results."""

    piece: Piece
    """Which messages."""
    place: int
    """The journal's place of the settlement that brought them."""
    at: int
    """Where they begin in the settlement's columns."""
    number: int = field(default=-1, compare=False)
    """Its number in the lane, in the order of completion."""


class Once(Generic[T]):
    """A value that is made at the first call, in any thread."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._made: T

    def __call__(self) -> T:
        """Return the value."""
        make = self._make
        # Read once, above: of two threads that make the value, the one that is first releases what it is made of. Both
        # make the same value.
        if make is not None:
            self._made = make()
            self._make = None
        return self._made


class ResultIndex:
    """The results of one lane."""

    def __init__(self) -> None:
        self._in_order: SortedDict = SortedDict()  # number -> Stretch
        self._parts: dict[int, list[Stretch]] = {}
        """What is left of stretches out of which results were cut, by number, where that is in several parts."""
        self._by_place: dict[int, list[Stretch]] = {}
        self._held: dict[int, Once[Any]] = {}
        """Full blocks of `BLOCK` numbers as a checkpoint copied them, unchanged since."""
        self.end = 0
        """The cursor after the newest result."""
        self._by_ordinal: SortedKeyList = SortedKeyList(key=lambda stretch: stretch.piece.ordinal)
        self.covered = Ranges()
        """Their ordinals."""

    def __len__(self) -> int:
        """Return the number of results."""
        return self.covered.size

    def __iter__(self) -> Iterator[Stretch]:
        """Return all stretches in the order of completion."""
        return (part for number in self._in_order for part in self._at(number))

    def __contains__(self, stretch: Stretch) -> bool:
        """Return whether this stretch itself is among them, not an equal one."""
        return stretch.number in self._in_order and any(part is stretch for part in self._at(stretch.number))

    def _at(self, number: int) -> Sequence[Stretch]:
        return self._parts.get(number) or (self._in_order[number],)

    def add(self, stretch: Stretch) -> list[Stretch]:
        """Add accepted results in place of earlier ones, and return a stretch of each settlement that has none left."""
        piece, freed = stretch.piece, list[Stretch]()
        size = self.covered.size
        self.covered.add(piece.ordinal, piece.ordinal + piece.n)
        if self.covered.size != size + piece.n:  # these documents have run again
            freed = self._cut(piece.ordinal, piece.ordinal + piece.n)
        stretch.number, self.end = self.end, self.end + 1
        self._in_order[stretch.number] = stretch
        self._by_place.setdefault(stretch.place, []).append(stretch)
        self._by_ordinal.add(stretch)
        return freed

    def held(self, of: Callable[[Sequence[Stretch]], T], *, reuse: bool) -> list[Once[T]]:
        """Return what a function makes of all stretches, in blocks and in the order of completion, for any thread."""
        # Only the lists are copied now: a later `relocate` would change the places of these very stretches. With
        # `reuse`, unchanged blocks are returned again: a checkpoint does not copy millions of results each time.
        blocks, number = [], next(iter(self._in_order), None)
        while number is not None:
            at = number // BLOCK
            behind = (at + 1) * BLOCK
            block = self._held.get(at) if reuse else None
            if block is None:
                numbers = self._in_order.irange(number, behind, inclusive=(True, False))
                block = Once(partial(of, [part for number in numbers for part in self._at(number)]))
                # Only full blocks: the last one still grows.
                if reuse and behind <= self.end:
                    self._held[at] = block
            blocks.append(block)
            number = next(self._in_order.irange(behind), None)
        return blocks

    def behind(self, cursor: int) -> Iterator[Stretch]:
        """Yield the stretches after a cursor, in the order of completion."""
        # Looked up each time, because stretches may come and go during the loop.
        while (number := next(self._in_order.irange(cursor), None)) is not None:
            yield from self._at(number)
            cursor = number + 1

    def forget(self, lo: int, hi: int) -> list[Stretch]:
        """Forget results with ordinals in ``[lo, hi)``, and return a stretch of each settlement that has none left."""
        self.covered.discard(lo, hi)
        return self._cut(lo, hi)

    def _cut(self, lo: int, hi: int) -> list[Stretch]:
        """Take results out of their stretches, and return a stretch of each settlement that has none left."""
        freed = []
        for stretch in list({id(stretch): stretch for stretch, _, _ in self.between(lo, hi)}.values()):
            # New objects: a checkpoint may be packing the old one in another thread.
            left = _outside(stretch, lo, hi)
            number, place = stretch.number, stretch.place
            self._by_ordinal.remove(stretch)
            self._by_ordinal.update(left)
            self._held.pop(number // BLOCK, None)
            parts = [part for part in self._at(number) if part is not stretch] + left
            self._parts.pop(number, None)
            if parts:
                self._in_order[number] = parts[0]
            else:
                del self._in_order[number]
            if len(parts) > 1:
                self._parts[number] = parts
            same = self._by_place[place]
            _remove(same, stretch)
            same += left
            if not same:
                del self._by_place[place]
                freed.append(stretch)
        return freed

    def relocate(self, old: int, new: int) -> bool:
        """Record that a settlement was moved, and return whether any of its results are here."""
        moved = self._by_place.pop(old, None)
        if moved is None:
            return False
        for stretch in moved:
            stretch.place = new
            self._held.pop(stretch.number // BLOCK, None)
        self._by_place[new] = moved
        return True

    def between(self, lo: int, hi: int) -> Iterator[tuple[Stretch, Piece, int]]:
        """Yield (stretch, piece, at) for results with ordinals in ``[lo, hi)``, clipped to them, by ordinal."""
        start = max(0, self._by_ordinal.bisect_key_right(lo) - 1)
        for stretch in self._by_ordinal.islice(start):
            first, ordinal, n = stretch.piece
            if ordinal >= hi:
                return
            skip, stop = max(0, lo - ordinal), min(n, hi - ordinal)
            if skip < stop:
                yield stretch, Piece(first + skip, ordinal + skip, stop - skip), stretch.at + skip


def _remove(stretches: list[Stretch], stretch: Stretch) -> None:
    del stretches[next(at for at, each in enumerate(stretches) if each is stretch)]


def _outside(stretch: Stretch, lo: int, hi: int) -> list[Stretch]:
    """Return the parts of a stretch with ordinals outside of ``[lo, hi)``."""
    (first, ordinal, n), place, at, number = stretch.piece, stretch.place, stretch.at, stretch.number
    spans = (0, max(0, lo - ordinal)), (min(n, hi - ordinal), n)
    return [Stretch(Piece(first + a, ordinal + a, b - a), place, at + a, number) for a, b in spans if a < b]
