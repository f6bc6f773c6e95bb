"""What a process keeps open between documents of one file: archives with their directories, decoded row groups.

Owns how many stay open and that each is opened once, however many slots ask for it. Knows nothing of what they are.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

__all__ = ["KeptOpen"]


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
        self._lock = threading.Lock()
        self._open: OrderedDict[Hashable, _Slot[T]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is open under a key; open it first, once, if nothing is. Errors of `make` are raised again."""
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


class _Slot(Generic[T]):
    __slots__ = ("lock", "value")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: T | None = None
