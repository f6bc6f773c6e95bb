"""Index of the results of one lane, in the order of completion and by ordinal; owns no bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sortedcontainers import SortedDict, SortedKeyList

from dqlab.frame import Piece
from dqlab.rules.ranges import Ranges

__all__ = ["HeldStretches", "ResultIndex", "Stretch"]

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


class HeldStretches:
    """Some stretches, and a value made from them once, in any thread."""

    __slots__ = ("_made", "_stretches")

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._stretches = stretches
        self._made: Any = None

    def make(self, of: Callable[[Sequence[Stretch]], T]) -> T:
        """Return what a function makes of the stretches."""
        # Read first: another thread may be making the value, and then releases the stretches. The function must be the
        # same one each time, because only the first value is kept.
        stretches = self._stretches
        if self._made is None:
            self._made = of(stretches)
            self._stretches = ()
        made: T = self._made
        return made


class ResultIndex:
    """The results of one lane."""

    def __init__(self) -> None:
        self._in_order: SortedDict = SortedDict()  # number -> Stretch
        self._by_place: dict[int, list[Stretch]] = {}
        self._held: dict[int, HeldStretches] = {}
        """Full blocks of `BLOCK` numbers as a checkpoint copied them, unchanged since."""
        self.end = 0
        """The cursor after the newest result."""
        self._by_ordinal: SortedKeyList = SortedKeyList(key=lambda stretch: stretch.piece.ordinal)
        self.covered = Ranges()
        """Their ordinals."""
        self.forgotten = Ranges()
        """Ordinals of forgotten results in a stretch that still has others."""

    def __len__(self) -> int:
        """Return the number of results."""
        return self.covered.size

    def __iter__(self) -> Iterator[Stretch]:
        """Return all stretches in the order of completion."""
        return iter(self._in_order.values())

    def __contains__(self, stretch: Stretch) -> bool:
        """Return whether this stretch itself is among them, not an equal one."""
        return self._in_order.get(stretch.number) is stretch

    def add(self, stretch: Stretch) -> None:
        """Add accepted results."""
        piece = stretch.piece
        stretch.number, self.end = self.end, self.end + 1
        self._in_order[stretch.number] = stretch
        self._by_place.setdefault(stretch.place, []).append(stretch)
        self._by_ordinal.add(stretch)
        self.covered.add(piece.ordinal, piece.ordinal + piece.n)
        self.forgotten.discard(piece.ordinal, piece.ordinal + piece.n)

    def held(self, *, reuse: bool) -> list[HeldStretches]:
        """Return all stretches as they are now, in blocks and in the order of completion, for another thread."""
        # Only the lists are copied: a later `relocate` would change the places of these very stretches. With `reuse`,
        # unchanged blocks are returned again, so that a checkpoint does not copy millions of results each time.
        blocks, number = [], next(iter(self._in_order), None)
        while number is not None:
            at = number // BLOCK
            behind = (at + 1) * BLOCK
            block = self._held.get(at) if reuse else None
            if block is None:
                numbers = self._in_order.irange(number, behind, inclusive=(True, False))
                block = HeldStretches([self._in_order[each] for each in numbers])
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
            yield self._in_order[number]
            cursor = number + 1

    def forget(self, lo: int, hi: int) -> list[Stretch]:
        """Forget results with ordinals in ``[lo, hi)``, and return a stretch of each settlement that has none left."""
        freed = []
        self.covered.discard(lo, hi)
        for stretch in list({id(stretch): stretch for stretch, _, _ in self.between(lo, hi)}.values()):
            _, ordinal, n = stretch.piece
            if self.covered.overlap(ordinal, ordinal + n):
                # A settlement with something left stays whole, since a journal keeps it as one record.
                self.forgotten.add(max(lo, ordinal), min(hi, ordinal + n))
                continue
            self.forgotten.discard(ordinal, ordinal + n)
            del self._in_order[stretch.number]
            self._held.pop(stretch.number // BLOCK, None)
            self._by_ordinal.remove(stretch)
            same = self._by_place[stretch.place]
            same.remove(stretch)
            if not same:
                del self._by_place[stretch.place]
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
