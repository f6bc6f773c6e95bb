"""How far the input of a run was submitted: which elements the queue holds, and a hash to know them again."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dqlab.documents import Document
from dqlab.rules.ranges import Ranges
from dqlab.texts import kept

__all__ = ["Digest", "Submitted"]

BLOCK = 500
_ENDLESS = 1 << 62


class Digest:
    """Rolling hash of an input: documents by key and version, else by key and place; other elements by their pickle.

    Parameters
    ----------
    confirmed : callable
        Returns how many elements from the first on the queue holds; further back nobody asks.
    """

    def __init__(self, confirmed: Callable[[], int]) -> None:
        self._confirmed = confirmed
        self._lock = threading.Lock()
        """Elements come in one thread, and are recorded by another while the input gives none."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._folded = 0
        self._pending: list[bytes] = []
        self._blocks: deque[tuple[int, Any, list[bytes]]] = deque()
        """Elements that are in the hash but perhaps not in the queue: position, hash before them, what was hashed."""
        self.marks: list[tuple[int, str]] = []
        """Digests of the first so many elements, every some hundred; a second reading of the input is compared."""

    def update(self, element: Any, payload: bytes) -> None:
        """Take in the next element."""
        if type(element) is Document:
            # Without a version the place is all that tells it from another one of that key.
            payload = kept(f"{element.key}\0{element.version or element.where}\n")
        with self._lock:
            self._pending.append(payload)
            if len(self._pending) > BLOCK:
                self._fold()

    @property
    def count(self) -> int:
        """Elements taken in so far."""
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
            return self._hash.hexdigest()

    def _fold(self) -> None:
        if not self._pending:
            return
        # One update of a joined block costs a tenth of one update an element.
        inputs, self._pending = self._pending, []
        self._blocks.append((self._folded, self._hash.copy(), inputs))
        self._hash.update(b"".join(inputs))
        self._folded += len(inputs)
        self.marks.append((self._folded, self._hash.hexdigest()))
        confirmed = self._confirmed()
        while self._blocks and self._blocks[0][0] + len(self._blocks[0][2]) <= confirmed:
            self._blocks.popleft()


@dataclass(frozen=True)
class Submitted:
    """What a queue holds of an input.

    Attributes
    ----------
    through : int
        Elements from the first on.
    digest : str
        Theirs.
    beyond : Ranges
        Ordinals behind a gap: one shard refused a frame, others took later ones.
    end_digest : str
        Digest of all elements before the end of those, "" when nobody recorded it.
    """

    through: int = 0
    digest: str = ""
    beyond: Ranges = field(default_factory=Ranges)
    end_digest: str = ""

    @classmethod
    def now(cls, held: Ranges, digest: Digest, before: Submitted) -> Submitted:
        """Return what the queue holds.

        Parameters
        ----------
        held : Ranges
            Its ordinals.
        digest : Digest
            Of the input, as far as it was iterated.
        before : Submitted
            What the queue held before that; the input need not have reached its end again.
        """
        through = min(held.gaps(0, _ENDLESS)[0][0], digest.count)
        beyond = Ranges(held.within(through, _ENDLESS))
        end = max((hi for _, hi in beyond), default=0)
        end_digest = digest.at(end) if end <= digest.count else before.end_digest
        return cls(through, digest.at(through), beyond, end_digest if beyond else "")

    @classmethod
    def of(cls, record: dict[str, Any], came: Iterable[tuple[int, int]] = ()) -> Submitted:
        """Return what `record` put into a run record, and with it what came since.

        Parameters
        ----------
        came : iterable of (int, int)
            Ranges of ordinals that the shards hold: who died while submitting had no time to record the last ones.
        """
        digest, *more = record["digest"].split("+")
        beyond = Ranges((int(lo), int(hi)) for lo, hi in (span.split("-") for span in more[1:]))
        known = cls(record["submitted"], digest, beyond, "".join(more[:1]))
        held = Ranges([*known.held, *came])
        later = Ranges(held.within(known.through, _ENDLESS))
        end = max((hi for _, hi in later), default=0)
        return cls(known.through, digest, later, known.end_digest if end == known.end else "")

    def record(self) -> dict[str, Any]:
        """Return it as the run record keeps it: {submitted, digest}; with gaps, the digest has them in its text."""
        gaps = [self.end_digest, *(f"{lo}-{hi}" for lo, hi in self.beyond)] if self.beyond else []
        return {"submitted": self.through, "digest": "+".join([self.digest, *gaps])}

    @property
    def held(self) -> list[tuple[int, int]]:
        """All ordinals the queue holds, as half-open ranges."""
        return [(0, self.through), *self.beyond]

    @property
    def end(self) -> int:
        """One more than the last ordinal the queue holds."""
        return max(hi for _, hi in self.held)
