"""Where the results of one lane are: in the order of completion, and by ordinal. Owns no bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sortedcontainers import SortedKeyList

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
    """

    piece: Piece
    place: int
    at: int


class ResultIndex:
    """The results of one lane; `covered` are their ordinals."""

    def __init__(self) -> None:
        self._in_order: list[Stretch] = []
        self._by_ordinal: SortedKeyList = SortedKeyList(key=lambda stretch: stretch.piece.ordinal)
        self.covered = Ranges()

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self.covered)

    def __iter__(self) -> Iterator[Stretch]:
        """Return all stretches in the order of completion."""
        return iter(self._in_order)

    def __contains__(self, stretch: Stretch) -> bool:
        """Return whether this very stretch is among them, not an equal one."""
        start = self._by_ordinal.bisect_key_left(stretch.piece.ordinal)
        same = self._by_ordinal.islice(start, self._by_ordinal.bisect_key_right(stretch.piece.ordinal))
        return any(found is stretch for found in same)

    @property
    def end(self) -> int:
        """The cursor behind the newest result; see `behind`."""
        return len(self._in_order)

    def add(self, stretch: Stretch) -> None:
        """Note results that were accepted."""
        piece = stretch.piece
        self._in_order.append(stretch)
        self._by_ordinal.add(stretch)
        self.covered.add(piece.ordinal, piece.ordinal + piece.n)

    def behind(self, cursor: int) -> Iterator[Stretch]:
        """Yield the stretches behind a cursor, in the order of completion."""
        for position in range(cursor, len(self._in_order)):
            yield self._in_order[position]

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
