"""A hash of a run's input, to recognise which part of it a queue holds."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dqlab.documents import Document
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.rules.submitted import Submitted
from dqlab.texts import kept

BLOCK = 500
"""Elements that are hashed at once."""


class Digest:
    """Rolling hash of an input, which identifies documents by key and version, and other elements by their pickle."""

    def __init__(self, confirmed: Callable[[], int]) -> None:
        # Returns how many of the first elements the queue holds; `at` is not asked about fewer.
        self._confirmed = confirmed
        self._lock = threading.Lock()
        """Guards folding: one thread adds elements, and another one records them while the input yields none."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._folded = 0
        self._pending: list[bytes] = []
        """Elements that are not folded yet. The list is never replaced, so `update` appends without the lock."""
        self._blocks: deque[tuple[int, Any, list[bytes]]] = deque()
        """Elements that are hashed but not confirmed: position, hash before them, hashed bytes."""
        self._back_to: int | None = None
        """While set, elements from here on are kept, even if they are confirmed meanwhile."""

    def update(self, element: Any, payload: bytes) -> None:
        """Add the next element."""
        if type(element) is Document:
            # Without a version, only the place tells two documents with the same key apart.
            payload = kept(f"{element.key}\0{element.version or element.where}\n")
        self.extend((payload,))

    def extend(self, payloads: Sequence[bytes]) -> None:
        """Add the next elements by what identifies them."""
        self._pending.extend(payloads)
        if len(self._pending) > BLOCK:
            with self._lock:
                self._fold()

    @property
    def count(self) -> int:
        """Elements added so far."""
        with self._lock:
            return self._folded + len(self._pending)

    def at(self, count: int) -> str:
        """Return the digest of the first `count` elements, which must not be fewer than the confirmed ones."""
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
        """Keep all elements that are not confirmed now, while the queue is asked what it holds."""
        with self._lock:
            self._fold()
            # The answer may be older than the next confirmation: `at` then asks about fewer elements than are
            # confirmed.
            self._back_to = self._confirmed()
        try:
            yield
        finally:
            with self._lock:
                self._back_to = None

    def _fold(self) -> None:
        if not self._pending:
            return
        # One update with a joined block costs a tenth of one update per element.
        inputs = self._pending[:]
        del self._pending[: len(inputs)]  # in place: the other thread may append behind them meanwhile
        self._blocks.append((self._folded, self._hash.copy(), inputs))
        self._hash.update(b"".join(inputs))
        self._folded += len(inputs)
        confirmed = self._confirmed() if self._back_to is None else self._back_to
        while self._blocks and self._blocks[0][0] + len(self._blocks[0][2]) <= confirmed:
            self._blocks.popleft()

    def submitted(self, held: Ranges, before: Submitted) -> Submitted:
        """Return the record of what the queue holds of the input, given the ordinals it holds and the record before."""
        through = min(held.gaps(0, ENDLESS)[0][0], self.count)
        beyond = Ranges(held.within(through, ENDLESS))
        if not beyond:
            return Submitted(through, self.at(through), beyond)
        end = max(hi for _, hi in beyond)
        # The input may not have been read that far again: then the earlier record knows the digest at the end.
        return Submitted(through, self.at(through), beyond, self.at(end) if end <= self.count else before.end_digest)
