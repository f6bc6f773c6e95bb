"""What stands in place of results that are not there, in document order; of dead letters one page at a time."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from dqlab.errors import ResultUnreadable
from dqlab.runs.failures import DeadLetter, Failures
from dqlab.runs.lost import LostDocument

__all__ = ["InPlace"]


class InPlace:
    """Dead letters and lost documents by ordinal.

    A dead letter has a traceback of up to 16 KiB, and there may be a million: only where they are is held.
    """

    def __init__(self, failures: Failures | None, lost: Mapping[int, LostDocument]) -> None:
        self._failures, self._lost = failures, dict(sorted(lost.items()))
        places = failures.places() if failures is not None else []
        self._dead = array("Q", (ordinal for ordinal, _ in places))
        self._ids = array("Q", (id for _, id in places))
        self._gone = array("Q", self._lost)

    def __bool__(self) -> bool:
        return bool(self._dead or self._gone)

    @staticmethod
    def is_one(value: object) -> bool:
        """Return whether a value stands in place of a result."""
        return isinstance(value, DeadLetter | LostDocument | ResultUnreadable)

    @property
    def ordinals(self) -> Iterator[int]:
        """All ordinals, those of dead letters first."""
        yield from self._dead
        yield from self._gone

    def between(self, lo: int, hi: int) -> Iterator[DeadLetter | LostDocument]:
        """Yield what stands at ordinals from `lo` to below `hi`; dead letters are fetched."""
        if self._failures is not None:
            yield from self._failures.named(self._ids[bisect_left(self._dead, lo) : bisect_left(self._dead, hi)])
        for ordinal in self._gone[bisect_left(self._gone, lo) : bisect_left(self._gone, hi)]:
            yield self._lost[ordinal]
