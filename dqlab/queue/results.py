"""Where the results of one lane are: in the order of completion, and by ordinal. Owns no bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sortedcontainers import SortedDict, SortedKeyList

from dqlab.frame import Piece
from dqlab.queue.ranges import Ranges

__all__ = ["ResultIndex", "Stretch"]


@dataclass(slots=True)
class Stretch:
    """Neighbouring results.

    Attributes
    ----------
    piece : Piece
        Which messages.
    place : int
        Of the settlement that brought them; the journal's.
    at : int
        Where they begin in the settlement's columns.
    number : int
        Which of its lane's, in the order of completion.
    """

    piece: Piece
    place: int
    at: int
    number: int = field(default=-1, compare=False)


class ResultIndex:
    """The results of one lane.

    Attributes
    ----------
    covered : Ranges
        Their ordinals.
    end : int
        The cursor behind the newest result; see `behind`.
    """

    def __init__(self) -> None:
        self._in_order: SortedDict = SortedDict()  # number -> Stretch
        self._by_place: dict[int, list[Stretch]] = {}
        self.end = 0
        self._by_ordinal: SortedKeyList = SortedKeyList(key=lambda stretch: stretch.piece.ordinal)
        self.covered = Ranges()

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self.covered)

    def __iter__(self) -> Iterator[Stretch]:
        """Return all stretches in the order of completion."""
        return iter(self._in_order.values())

    def __contains__(self, stretch: Stretch) -> bool:
        """Return whether this very stretch is among them, not an equal one."""
        return self._in_order.get(stretch.number) is stretch

    def add(self, stretch: Stretch) -> None:
        """Note results that were accepted."""
        piece = stretch.piece
        stretch.number, self.end = self.end, self.end + 1
        self._in_order[stretch.number] = stretch
        self._by_place.setdefault(stretch.place, []).append(stretch)
        self._by_ordinal.add(stretch)
        self.covered.add(piece.ordinal, piece.ordinal + piece.n)

    def behind(self, cursor: int) -> Iterator[Stretch]:
        """Yield the stretches behind a cursor, in the order of completion."""
        for number in self._in_order.irange(cursor):
            yield self._in_order[number]

    def forget(self, lo: int, hi: int) -> list[Stretch]:
        """Forget results with ordinals in ``[lo, hi)``.

        Returns
        -------
        list of Stretch
            One of each settlement of which nothing is left; one of which something is left stays whole.
        """
        freed = []
        self.covered.discard(lo, hi)
        for stretch in list({id(stretch): stretch for stretch, _, _ in self.between(lo, hi)}.values()):
            _, ordinal, n = stretch.piece
            if self.covered.overlap(ordinal, ordinal + n):
                continue
            del self._in_order[stretch.number]
            self._by_ordinal.remove(stretch)
            same = self._by_place[stretch.place]
            same.remove(stretch)
            if not same:
                del self._by_place[stretch.place]
                freed.append(stretch)
        return freed

    def relocate(self, old: int, new: int) -> bool:
        """Note that a settlement lies elsewhere now; return whether any results of it are here."""
        moved = self._by_place.pop(old, None)
        if moved is None:
            return False
        for stretch in moved:
            stretch.place = new
        self._by_place[new] = moved
        return True

    def between(self, lo: int, hi: int) -> Iterator[tuple[Stretch, Piece, int]]:
        """Yield (stretch, piece, at) for what has ordinals in ``[lo, hi)``, clipped to them, by ordinal."""
        start = max(0, self._by_ordinal.bisect_key_right(lo) - 1)
        for stretch in self._by_ordinal.islice(start):
            first, ordinal, n = stretch.piece
            if ordinal >= hi:
                return
            skip, stop = max(0, lo - ordinal), min(n, hi - ordinal)
            if skip < stop:
                yield stretch, Piece(first + skip, ordinal + skip, stop - skip), stretch.at + skip
