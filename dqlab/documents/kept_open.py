"""Keeps open what a process needs between documents of one file: archives, files, and the pieces that were read last.

Owns how many stay open, that each is opened once for all slots, and how far each reader of a source is that can only be
read from its start. Does not know what files and pieces hold.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
_forks = 0
"""How often this process was made by forking one that had these."""


def _note_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_note_fork)


class KeptOpen(Generic[T]):
    """The most recently used open objects, at most `most`.

    Examples
    --------
    >>> import io
    >>> files = KeptOpen(2)
    >>> files.get("a", lambda: io.BytesIO(b"1")) is files.get("a", io.BytesIO)
    True
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._forks = _forks
        self._lock = threading.Lock()
        self._open: OrderedDict[Hashable, _Slot[T]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is open under a key, or open it, once for all threads, and raise what `make` raises."""
        if self._forks != _forks:  # a forked child shares file positions with its parent, and maybe a held lock
            self._begin()
        with self._lock:
            slot = self._open.get(key)
            if slot is None:
                slot = self._open[key] = _Slot()
                # Drop the reference, do not close: another slot may still read. The last reference closes.
                while len(self._open) > self._most:
                    self._open.popitem(last=False)
            self._open.move_to_end(key)
        with slot.lock:  # one lock per key: a slow open makes only those wait that need the same key
            if slot.value is None:
                try:
                    slot.value = make()
                except BaseException:
                    self.forget(key, slot)
                    raise
            return slot.value

    def forget(self, key: Hashable, slot: _Slot[T] | None = None) -> None:
        """Drop what is open under a key, because the file has changed or cannot be read."""
        # With `slot`, drop only that one: another thread may have opened the key again meanwhile.
        with self._lock:
            if slot is None or self._open.get(key) is slot:
                self._open.pop(key, None)

    def clear(self) -> None:
        """Drop everything that is open."""
        with self._lock:
            self._open.clear()


_at_let_go: list[Callable[[], None]] = []


def at_let_go(call: Callable[[], None]) -> Callable[[], None]:
    """Register a function that `let_go` calls."""
    _at_let_go.append(call)
    return call


def let_go() -> None:
    """Drop everything that this process has open, because the credentials it was opened with may have expired."""
    for call in _at_let_go:
        call()


class _Slot(Generic[T]):
    __slots__ = ("lock", "value")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: T | None = None


# --- what can only be read from its start ----------------------------------------------------


H = TypeVar("H")
READERS = 4
"""Readers of one source, at most; slots of a process may be at different positions."""


class Piece(NamedTuple, Generic[H]):
    """What a source has from position `start` up to `stop`."""

    start: int
    stop: int
    held: H
    size: int
    """Bytes of memory that `held` takes."""


class Forward(Generic[H]):
    """Pieces by position, of a source that can only be read from its start.

    Examples
    --------
    >>> letters = Forward(lambda: (Piece(at, at + 1, letter, 1) for at, letter in enumerate("abc")), budget=2)
    >>> [letters.at(position).held for position in (0, 2, 1)]
    ['a', 'c', 'b']
    """

    def __init__(self, start: Callable[[], Iterator[Piece[H]]], budget: int) -> None:
        # `start` yields pieces without gaps from position 0. `budget`: bytes of pieces to keep, at least the last one.
        self._start, self._budget = start, budget
        self._lock = threading.Lock()
        self._pieces: deque[Piece[H]] = deque()
        self._held = self._furthest = 0
        self._readers: list[tuple[Piece[H], Iterator[Piece[H]]]] = []
        """The last piece and the iterator of each reader, most recently used last."""
        self.starts = 0
        """How often reading began at position 0."""

    def at(self, position: int) -> Piece[H]:
        """Return the piece that holds a position, or raise `IndexError` if the source ends before it."""
        # Outside the lock: most documents lie in the same piece as the one before, and copying readers and pieces to
        # tuples is atomic.
        found = self._found(position)
        if found is None:
            with self._lock:
                found = self._found(position) or self._read(position)  # another slot may have read it meanwhile
        return found

    def _found(self, position: int) -> Piece[H] | None:
        # Look at the last piece of each reader first: slots far from each other evict each other's pieces, and without
        # this each would start over.
        if position >= self._furthest:
            return None
        for piece, _ in tuple(self._readers):
            if piece.start <= position < piece.stop:
                return piece
        for piece in reversed(tuple(self._pieces)):
            if piece.start <= position < piece.stop:
                return piece
        return None

    def _read(self, position: int) -> Piece[H]:
        # Continue the nearest reader before the position: a new one has to read everything from the start.
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

    def _keep(self, piece: Piece[H]) -> None:
        self._pieces.append(piece)
        self._furthest = max(self._furthest, piece.stop)
        self._held += piece.size
        while self._held > self._budget and len(self._pieces) > 1:
            self._held -= self._pieces.popleft().size
