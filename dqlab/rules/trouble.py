"""Records of messages that failed, were given back or lost their consumer, and an index of the dead ones.

Messages that just run have no record here: their state byte is enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import NamedTuple, TypeAlias

from sortedcontainers import SortedList

from dqlab.failures.classes import StoredRecord, fingerprint_of
from dqlab.rules.ranges import ID_BITS, ID_MASK

_HISTORY = 8
ONCE = "once"
"""Name of the side column of settlements with the answers that messages keep."""

Receipt: TypeAlias = tuple[int, int]
"""Epoch and lease id of a delivery."""


class Death(NamedTuple):
    """An earlier death of a message that has been retried."""

    reason: str
    failure: StoredRecord
    deliveries: int
    exceptions: int

    def opened(self) -> Death:
        """Return this death with its record as the consumer sent it."""
        return self._replace(failure=bytes(self.failure))


class StoredLetter(NamedTuple):
    """A message that is no longer delivered, and why."""

    id: int
    ordinal: int
    """Its position in the run's input."""
    reason: str
    """The limit it reached."""
    failure: bytes
    """The record of its last exception, opaque here; empty when it never raised."""
    deliveries: int
    """Counted deliveries since the last retry by hand."""
    exceptions: int
    """Those of them that raised."""
    history: tuple[Death, ...]
    """Its earlier deaths, oldest first; the last eight."""


@dataclass(slots=True)
class Trouble:
    """Counts of one message."""

    deliveries: int = 0
    exceptions: int = 0
    reason: str = ""
    failure: StoredRecord = b""
    receipt: Receipt | None = None
    """The last counted delivery, which is never counted twice."""
    due: int = 0
    """When a delayed message is ready again, monotonic microseconds."""
    history: tuple[Death, ...] = ()
    once: bytes = b""
    """Answers that its function has kept for the next delivery, opaque here."""
    first_lease: int = 0
    """Since the last retry by hand, the first lease that could have it. What earlier ones report does not count: they
    ran the code that was retried, and a sweep of the run, which had ended, may have deleted what they wrote."""
    filed: int = field(default=0, compare=False, repr=False)
    """Where a dead message is in the lane's `DeadIndex`; 0 = nowhere. It contains Python's hash of a string, which
    differs from process to process, so it is never stored or sent."""
    deaths: int = field(default=0, compare=False, repr=False)
    """Counted deliveries that ended by the death of a consumer, as far as this process has seen them: like `expiries`,
    they are not recorded."""
    expiries: int = field(default=0, compare=False, repr=False)
    """Counted deliveries that ended by the end of a lease."""

    @property
    def unanswered(self) -> int:
        """Counted deliveries that ended by death or expiry."""
        return self.deliveries - self.exceptions

    def restart(self, first_lease: int) -> None:
        """Move the counts to the history, before a retry by hand."""
        death = Death(self.reason, self.failure, self.deliveries, self.exceptions)
        self.history = (*self.history, death)[-_HISTORY:]
        self.deliveries = self.exceptions = self.deaths = self.expiries = 0
        self.reason, self.failure, self.first_lease = "", b"", first_lease

    def letter(self, id: int, ordinal: int) -> StoredLetter:
        """Return the dead letter of this message."""
        history = tuple(death.opened() for death in self.history)
        return StoredLetter(id, ordinal, self.reason, bytes(self.failure), self.deliveries, self.exceptions, history)


_HASH_MASK = (1 << 64) - 1


class DeadIndex:
    """Ids of dead messages by the fingerprint of their last failure, `NO_ANSWER` if they have none."""

    __slots__ = ("_filed",)

    def __init__(self) -> None:
        self._filed: SortedList = SortedList()  # hash of the fingerprint << 53 | id

    def file(self, id: int, trouble: Trouble) -> None:
        """Add a message that is dead now."""
        if not trouble.filed:
            trouble.filed = _begin(fingerprint_of(trouble.failure)) | id
            self._filed.add(trouble.filed)

    def take(self, trouble: Trouble) -> None:
        """Remove a message that is no longer dead."""
        if trouble.filed:
            # By the key under which it was filed: its failure may have changed since.
            self._filed.remove(trouble.filed)
            trouble.filed = 0

    def count(self, fingerprints: Collection[str]) -> int:
        """Return how many are of one of these classes."""
        return sum(
            self._filed.bisect_right(_begin(fingerprint) | ID_MASK) - self._filed.bisect_left(_begin(fingerprint))
            for fingerprint in set(fingerprints)
        )

    def ids(self, fingerprints: Collection[str], after: int) -> Iterator[int]:
        """Yield the ids above `after` of these classes, ascending."""
        # Lazy, so the index must not change during the loop.
        lines: list[Iterable[int]] = [
            self._filed.irange(_begin(each) | max(0, after + 1), _begin(each) | ID_MASK) for each in set(fingerprints)
        ]
        return merge(*map(_ids, lines))


def _ids(keys: Iterable[int]) -> Iterator[int]:
    return (key & ID_MASK for key in keys)


def _begin(fingerprint: str) -> int:
    return (hash(fingerprint) & _HASH_MASK) << ID_BITS
