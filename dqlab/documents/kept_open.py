"""What a process keeps between documents of one file: open archives and files, and the pieces that were read last.

Owns how many stay open, that each is opened once however many slots need it, and how far each reader of a source is
that can only be read from its start. Knows nothing of what files and pieces hold.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

__all__ = ["Forward", "KeptOpen", "Piece", "at_let_go", "let_go"]


class _Closable(Protocol):
    def close(self) -> object: ...


T = TypeVar("T", bound=_Closable)


class KeptOpen(Generic[T]):
    """The most recently used of what was opened.

    Parameters
    ----------
    most : int
        How many stay open. The least recently used one is let go, and closes when its last user lets it go too:
        closing it here would close it under a slot that still reads.

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
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._open: OrderedDict[Hashable, _Slot[T]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is open under a key; open it first, once, if nothing is. Errors of `make` are raised again."""
        if self._process != os.getpid():  # a child shares places in files with its parent, and perhaps a held lock
            self._begin()
        with self._lock:
            slot = self._open.get(key)
            if slot is None:
                slot = self._open[key] = _Slot()
                while len(self._open) > self._most:
                    self._open.popitem(last=False)
            self._open.move_to_end(key)
        with slot.lock:  # one slot opens while others wait; other keys are not held up
            if slot.value is None:
                try:
                    slot.value = make()
                except BaseException:
                    self.forget(key, slot)
                    raise
            return slot.value

    def forget(self, key: Hashable, slot: _Slot[T] | None = None) -> None:
        """Let go of what is open under a key, if anything: the file has changed, or cannot be read."""
        with self._lock:
            if slot is None or self._open.get(key) is slot:
                self._open.pop(key, None)

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._open.clear()


_at_let_go: list[Callable[[], None]] = []


def at_let_go(call: Callable[[], None]) -> Callable[[], None]:
    """Have a function called by `let_go`."""
    _at_let_go.append(call)
    return call


def let_go() -> None:
    """Keep nothing of what this process has opened: the credentials that it was opened with may have expired."""
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
"""Most readers of one source: slots of a process may be at different places of it."""


class Piece(NamedTuple, Generic[H]):
    """Positions from `start` up to `stop`, what is there, and how many bytes of memory that takes."""

    start: int
    stop: int
    held: H
    size: int


class Forward(Generic[H]):
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

    def __init__(self, start: Callable[[], Iterator[Piece[H]]], budget: int) -> None:
        self._start, self._budget = start, budget
        self._lock = threading.Lock()
        self._pieces: deque[Piece[H]] = deque()
        self._held = 0
        self._readers: list[tuple[Piece[H], Iterator[Piece[H]]]] = []
        """What each read last, and where it goes on; the one that was used last comes last."""
        self.starts = 0
        """How often reading began at position 0."""

    def at(self, position: int) -> Piece[H]:
        """Return the piece that holds a position; `IndexError` where the source ends before it."""
        # Without the lock: both are copied in one step, and most documents lie in the piece of the one before.
        found = self._found(position)
        if found is None:
            with self._lock:
                found = self._found(position) or self._read(position)  # another slot may have read it meanwhile
        return found

    def _found(self, position: int) -> Piece[H] | None:
        # Also what each reader read last: slots far from each other would push each other's pieces out, and start over.
        for piece, _ in tuple(self._readers):
            if piece.start <= position < piece.stop:
                return piece
        for piece in reversed(tuple(self._pieces)):
            if piece.start <= position < piece.stop:
                return piece
        return None

    def _read(self, position: int) -> Piece[H]:
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
        self._held += piece.size
        while self._held > self._budget and len(self._pieces) > 1:
            self._held -= self._pieces.popleft().size

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._pieces.clear()
            self._readers.clear()
            self._held = 0
