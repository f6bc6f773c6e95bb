"""The dead letters of a lane by failure class: a page of one class costs what it shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import merge

from sortedcontainers import SortedList

from dqlab.failures.records import fingerprint_of
from dqlab.rules.trouble import Trouble

__all__ = ["DeadIndex"]

_ID_BITS = 53
_ID_MASK = (1 << _ID_BITS) - 1
_HASH_MASK = (1 << 64) - 1


class DeadIndex:
    """Ids of dead messages by the fingerprint of their last failure; those without one are in no class."""

    __slots__ = ("_filed",)

    def __init__(self) -> None:
        self._filed: SortedList = SortedList()  # hash of the fingerprint << 53 | id

    def file(self, id: int, trouble: Trouble) -> None:
        """Enter a message that is dead now."""
        fingerprint = fingerprint_of(trouble.failure)
        if fingerprint and not trouble.filed:
            trouble.filed = _begin(fingerprint) | id
            self._filed.add(trouble.filed)

    def take(self, trouble: Trouble) -> None:
        """Remove a message that is not dead any more, whatever its failure is now."""
        if trouble.filed:
            self._filed.remove(trouble.filed)
            trouble.filed = 0

    def count(self, fingerprints: Collection[str]) -> int:
        """Return how many are of one of these classes."""
        return sum(
            self._filed.bisect_right(_begin(each) | _ID_MASK) - self._filed.bisect_left(_begin(each))
            for each in set(fingerprints)
        )

    def ids(self, fingerprints: Collection[str], after: int) -> Iterator[int]:
        """Yield the ids above `after` of these classes, ascending; the index must not change meanwhile."""
        lines: list[Iterable[int]] = [
            self._filed.irange(_begin(each) | max(0, after + 1), _begin(each) | _ID_MASK) for each in set(fingerprints)
        ]
        return merge(*map(_ids, lines))


def _ids(keys: Iterable[int]) -> Iterator[int]:
    return (key & _ID_MASK for key in keys)


def _begin(fingerprint: str) -> int:
    return (hash(fingerprint) & _HASH_MASK) << _ID_BITS
