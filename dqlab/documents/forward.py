"""What can only be read from its start: compressed files, and row groups that are decoded batch by batch.

Owns how far each reader is, and the pieces it read last. Knows nothing of what the pieces hold.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Forward", "Piece"]

T = TypeVar("T")
READERS = 4
"""Most readers of one source: slots of a process may be at different places of it."""


class Piece(NamedTuple, Generic[T]):
    """Positions from `start` up to `stop`, what is there, and how many bytes of memory that takes."""

    start: int
    stop: int
    held: T
    size: int


class Forward(Generic[T]):
    """Pieces by position. Ascending positions never start over; others do, unless they were read just before.

    Parameters
    ----------
    start : callable
        Begins to read from position 0; yields pieces without gaps.
    budget : int
        Bytes of pieces that are kept, the last one in any case.

    Examples
    --------
    >>> letters = Forward(lambda: (Piece(at, at + 1, letter, 1) for at, letter in enumerate("abc")), budget=2)
    >>> [letters.at(position).held for position in (0, 2, 1)]
    ['a', 'c', 'b']
    """

    def __init__(self, start: Callable[[], Iterator[Piece[T]]], budget: int) -> None:
        self._start, self._budget = start, budget
        self._lock = threading.Lock()
        self._pieces: deque[Piece[T]] = deque()
        self._held = 0
        self._readers: list[tuple[Piece[T], Iterator[Piece[T]]]] = []
        """What each read last, and where it goes on; the one that was used last comes last."""
        self.starts = 0
        """How often reading began at position 0."""

    def at(self, position: int) -> Piece[T]:
        """Return the piece that holds a position.

        Raises
        ------
        IndexError
            The source ends before it.
        """
        # Without the lock: both are copied in one step, and most documents lie in the piece of the one before.
        found = self._found(position)
        if found is None:
            with self._lock:
                found = self._found(position) or self._read(position)  # another slot may have read it meanwhile
        return found

    def _found(self, position: int) -> Piece[T] | None:
        # Also what each reader read last: slots far from each other would push each other's pieces out, and start over.
        for piece, _ in tuple(self._readers):
            if piece.start <= position < piece.stop:
                return piece
        for piece in reversed(tuple(self._pieces)):
            if piece.start <= position < piece.stop:
                return piece
        return None

    def _read(self, position: int) -> Piece[T]:
        before = [reader for reader in self._readers if reader[0].stop <= position]
        if before:
            nearest = max(before, key=lambda reader: reader[0].stop)
            self._readers.remove(nearest)
            pieces = nearest[1]
        else:
            self.starts += 1
            pieces = self._start()
        for piece in pieces:
            self._keep(piece)
            if position < piece.stop:
                self._readers.append((piece, pieces))
                del self._readers[:-READERS]
                return piece
        raise IndexError(position)

    def _keep(self, piece: Piece[T]) -> None:
        self._pieces.append(piece)
        self._held += piece.size
        while self._held > self._budget and len(self._pieces) > 1:
            self._held -= self._pieces.popleft().size

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._pieces.clear()
            self._readers.clear()
            self._held = 0
