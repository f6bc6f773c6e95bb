"""Snapshots and histories shared by the sessions of one scheduler: a reading for several of them is computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

from dqlab.clock import Clock, SystemClock
from dqlab.live.feeds import Feed
from dqlab.live.panels.scene import SHORTEST
from dqlab.stats import History, Snapshot

__all__ = ["Readings"]

QUICK, SLOW = 0.46, 0.96
"""Seconds that a reading is valid: while there is something new, and while only time passes. A little under the
periods of the pages, so that none gets the same reading twice because it asked a moment early."""
MINUTES = 2.5
"""Seconds that figures per minute are valid."""
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

    def classes(self, queues: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Return deliveries that failed in each minute by class, added up over queues; the last minute last."""
        summed: dict[str, tuple[int, ...]] = {}
        for queue in queues:
            past = self._read(("classes", queue), MINUTES, partial(self.feed.history, SHORTEST, queue))
            for mark, amounts in past.classes.items():
                pairs = zip_longest(reversed(summed.get(mark, ())), reversed(tuple(amounts)), fillvalue=0)
                summed[mark] = tuple(one + other for one, other in pairs)[::-1]
        return summed

    def _read(self, key: tuple[Any, ...], lasts: float, read: Callable[[], T]) -> T:
        now, seq = self._clock.monotonic(), self.feed.seq
        kept = self._kept.get(key)
        if kept is not None and now - kept.at < (lasts if kept.seq != seq else max(lasts, SLOW)):
            value: T = kept.value
            return value
        self._kept = {key: kept for key, kept in self._kept.items() if now - kept.at < KEPT}
        value = read()
        self._kept[key] = _Reading(value, now, seq)
        return value
