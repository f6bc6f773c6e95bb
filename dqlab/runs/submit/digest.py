"""A hash of a run's input, to recognise what a queue holds of it."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dqlab.documents import Document
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.rules.submitted import Submitted
from dqlab.texts import kept

__all__ = ["Digest"]

BLOCK = 500


class Digest:
    """Rolling hash of an input: documents by key and version, else by key and place; other elements by their pickle.

    Parameters
    ----------
    confirmed : callable
        Returns how many elements from the first on the queue holds; no digest is needed further back.
    """

    def __init__(self, confirmed: Callable[[], int]) -> None:
        self._confirmed = confirmed
        self._lock = threading.Lock()
        """Guards what is folded: elements come in one thread, and another records them while the input gives none."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._folded = 0
        self._pending: list[bytes] = []
        """Elements that are not folded yet. The list is never replaced, so elements are added without the lock."""
        self._blocks: deque[tuple[int, Any, list[bytes]]] = deque()
        """Elements that are in the hash but perhaps not in the queue: position, hash before them, what was hashed."""
        self._back_to: int | None = None
        """While it is set, elements from here on are kept, whatever is confirmed meanwhile."""
        self.marks: list[tuple[int, str]] = []
        """Digests of the first elements, every few hundred, for comparison with a second reading of the input."""

    def update(self, element: Any, payload: bytes) -> None:
        """Add the next element."""
        if type(element) is Document:
            # Without a version, only the place distinguishes it from another document of that key.
            payload = kept(f"{element.key}\0{element.version or element.where}\n")
        self._pending.append(payload)
        if len(self._pending) > BLOCK:
            with self._lock:
                self._fold()

    @property
    def count(self) -> int:
        """Elements added so far."""
        with self._lock:
            return self._folded + len(self._pending)

    def at(self, count: int) -> str:
        """Return the digest of the first `count` elements: all so far, or at least those that are confirmed."""
        with self._lock:
            self._fold()
            for first, before, inputs in self._blocks:
                if first <= count < first + len(inputs):
                    hash = before.copy()
                    hash.update(b"".join(inputs[: count - first]))
                    return str(hash.hexdigest())
            assert count >= self._folded, f"the digest of the first {count:,} elements was forgotten"
            return self._hash.hexdigest()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Forget no element that is not confirmed now, while what the queue holds is looked up."""
        with self._lock:
            self._fold()
            self._back_to = self._confirmed()
        try:
            yield
        finally:
            with self._lock:
                self._back_to = None

    def _fold(self) -> None:
        if not self._pending:
            return
        # One update of a joined block costs a tenth of one update an element.
        inputs = self._pending[:]
        del self._pending[: len(inputs)]  # what the other thread adds meanwhile stands behind them
        self._blocks.append((self._folded, self._hash.copy(), inputs))
        self._hash.update(b"".join(inputs))
        self._folded += len(inputs)
        self.marks.append((self._folded, self._hash.hexdigest()))
        confirmed = self._confirmed() if self._back_to is None else self._back_to
        while self._blocks and self._blocks[0][0] + len(self._blocks[0][2]) <= confirmed:
            self._blocks.popleft()

    def submitted(self, held: Ranges, before: Submitted) -> Submitted:
        """Return what the queue holds of the input, as far as it was read.

        Parameters
        ----------
        held : Ranges
            The ordinals that the queue holds.
        before : Submitted
            What it held before that; the input need not have reached its end again.
        """
        through = min(held.gaps(0, ENDLESS)[0][0], self.count)
        beyond = Ranges(held.within(through, ENDLESS))
        if not beyond:
            return Submitted(through, self.at(through), beyond)
        end = max(hi for _, hi in beyond)
        return Submitted(through, self.at(through), beyond, self.at(end) if end <= self.count else before.end_digest)
