"""Snapshots and histories shared by the sessions of one scheduler: a reading for several of them is computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dqlab.clock import Clock, SystemClock
from dqlab.live.feed import Feed
from dqlab.stats import History, Snapshot

__all__ = ["Readings"]

QUICK, SLOW = 0.46, 0.96
"""Seconds that a reading is valid: while there is something new, and while only time passes. A little under the
periods of the pages, so that none gets the same reading twice because it asked a moment early."""
KEPT = 3.0
"""Seconds after which an unused reading is dropped."""

T = TypeVar("T")


@dataclass(slots=True)
class _Reading:
    value: Any
    at: float
    seq: int


class Readings:
    """Recent readings of a feed, by queue, run and span.

    Parameters
    ----------
    feed : Feed
    clock : Clock, optional
    """

    def __init__(self, feed: Feed, clock: Clock | None = None) -> None:
        self.feed = feed
        self._clock: Clock = clock or SystemClock()
        self._kept: dict[tuple[Any, ...], _Reading] = {}

    @property
    def seq(self) -> int:
        """Number of the feed's newest change."""
        return self.feed.seq

    def snapshot(self, queue: str, run: str) -> Snapshot:
        """Return a snapshot at most half a second old; a second, when nothing has changed."""
        return self._read((queue, run), QUICK, lambda: self.feed.snapshot(queue, run))

    def history(self, span: float, queue: str, run: str) -> History:
        """Return a history at most a second old."""
        return self._read((span, queue, run), SLOW, lambda: self.feed.history(span, queue, run))

    def _read(self, key: tuple[Any, ...], lasts: float, read: Callable[[], T]) -> T:
        now, seq = self._clock.monotonic(), self.feed.seq
        kept = self._kept.get(key)
        if kept is not None and now - kept.at < (lasts if kept.seq != seq else SLOW):
            value: T = kept.value
            return value
        self._kept = {key: kept for key, kept in self._kept.items() if now - kept.at < KEPT}
        value = read()
        self._kept[key] = _Reading(value, now, seq)
        return value
