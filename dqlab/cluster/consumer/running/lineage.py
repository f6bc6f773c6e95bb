"""Notes when a chunk makes each result, how long that takes, at which attempt, and from which document version."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import sub
from typing import TYPE_CHECKING

from dqlab.frame import Making, Outcome

if TYPE_CHECKING:
    from dqlab.cluster.consumer.running.chunk import Lease
    from dqlab.cluster.consumer.running.outcomes import Columns

_NAN = float("nan")
FAR_APART = 0.2
"""Seconds between the first and the last result of a settlement above which each result gets its own time."""


class Lineage:
    """What threads and processes note of messages that they run, until it stands in a settlement."""

    lease: Lease
    code = ""
    """Short code version, as the results name it."""
    began: float
    """When the first message began, in seconds of `time.perf_counter`, as below; 0 where that is unknown."""
    ended: list[float]
    """When each message ended, by position."""
    took: dict[int, float]
    """Seconds that a message took, by position, where messages run together or in a process."""
    versions: dict[int, str]
    """Versions of documents, by position."""
    attempts: Mapping[int, int]
    """Numbers of deliveries that are not the first, by position."""

    def seconds_at(self, indexes: Sequence[int]) -> list[float]:
        """Return how many seconds the messages at some ascending positions took, NaN where that is unknown."""
        if self.took or not self.began:
            return [self.took.get(index, _NAN) for index in indexes]
        # Messages that run one after another have one time each: a message begins when the one before it ends.
        ended, first, last = self.ended, indexes[0], indexes[-1]
        before = ended[first - 1] if first else self.began
        if last - first + 1 == len(indexes) and before:
            ends = ended[first : last + 1]
            return list(map(sub, ends, [before, *ends[:-1]]))
        return [ended[index] - self._before(index) for index in indexes]

    def _before(self, index: int) -> float:
        """Return when the last message before a position ended, or when the first one began."""
        return next((end for end in reversed(self.ended[:index]) if end), self.began)

    def attempts_at(self, indexes: Sequence[int]) -> list[int]:
        """Return the delivery numbers of the messages at some positions."""
        return [self.attempts.get(index, 1) for index in indexes] if self.attempts else [1] * len(indexes)

    def versions_at(self, indexes: Sequence[int]) -> list[str] | None:
        """Return the versions of the documents at some positions, or None where no document has one."""
        # Look up each position instead of walking the dict: the slot's thread adds to it meanwhile.
        return list(map(self.versions.get, indexes, repeat(""))) if self.versions else None

    def making(self, done: Columns) -> Making:
        """Return how the results among some outcomes were made, by ascending position."""
        indexes = sorted(done.positions)
        seconds = self.seconds_at(indexes)
        attempts = self.attempts_at(indexes) if self.attempts else None
        versions = self.versions_at(indexes)
        now, ages = time.perf_counter(), None
        acked = done.outcomes.index(Outcome.ACK), len(indexes) - 1 - done.outcomes[::-1].index(Outcome.ACK)
        first, last = (self.ended[done.positions[place]] or now for place in acked)
        if last - first > FAR_APART:
            ages = [last - (self.ended[index] or last) for index in indexes]
            first = last
        at = time.time() - now + (first + last) / 2
        return Making(self.lease.consumer, self.code, at, seconds, ages, attempts, versions)
