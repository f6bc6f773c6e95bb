"""What is remembered of a queue, a run or a consumer beside its last report: rates, and how it was over time.

Fed with absolute totals; one that falls (its actor was made anew) starts over and counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dqlab.stats import Counts, Meter
from dqlab.stats.eta import Effort, Steady
from dqlab.stats.rings import Ring

__all__ = ["CLASS_MINUTES", "DEPTH_MINUTES", "ConsumerTrack", "QueueTrack", "RunTrack"]

CLASS_MINUTES, DEPTH_MINUTES = 120, 30
"""Minutes for which failures are counted by class, and for which depths of all queues are kept."""
LATELY = 600.0
"""Seconds over which redeliveries and lost leases are counted."""


_CONSUMER_BANDS = ((5.0, 180), (60.0, 1440))


class _Growth:
    """By how much totals grew since they were last looked at."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[float, ...] | None = None

    def of(self, *totals: float) -> tuple[float, ...]:
        last, self._last = self._last, totals
        if last is None:
            return (0.0,) * len(totals)
        return tuple(max(0.0, new - old) for new, old in zip(totals, last, strict=True))


class QueueTrack:
    """One queue, or all of them together.

    Attributes
    ----------
    ring : Ring
        Gauges ready, delayed, leased, dead, live bytes, garbage bytes, lag; flows put, settled, failed.
    depth : Ring
        Gauge ready + delayed, by the minute.
    last_used : float or None
        When a message last came or left, seconds since 1970 UTC.
    """

    GAUGES = ("ready", "delayed", "leased", "dead", "live", "garbage", "lag")

    def __init__(self) -> None:
        self.ring = Ring(len(self.GAUGES), 3)
        self.depth = Ring(1, bands=((60.0, DEPTH_MINUTES + 1),))
        self.put, self.settled, self.failed, self.written = Meter(), Meter(), Meter(), Meter()
        self.redelivered, self.leases_lost = Meter(LATELY), Meter(LATELY)
        self.gauges: tuple[float, ...] = (0.0,) * len(self.GAUGES)
        self.last_used: float | None = None
        self.classes: dict[str, _ClassTrack] = {}
        self._growth = _Growth()

    def feed(
        self, now: float, wall: float, counts: Counts, lag: float, failed: int, reports: Sequence[dict[str, Any]]
    ) -> tuple[float, ...]:
        """Note the sums over a queue's shards; return how many were put, were settled and failed since the last time.

        Parameters
        ----------
        now, wall : float
            Monotonic seconds, and seconds since 1970 UTC.
        """
        self.put.feed(now, counts.all)
        self.settled.feed(now, counts.settled)
        self.failed.feed(now, failed)
        self.redelivered.feed(now, sum(report["redelivered"] for report in reports))
        self.leases_lost.feed(now, sum(report["leases_lost"] for report in reports))
        storage = [report["storage"] for report in reports if report["storage"]]
        if storage:
            self.written.feed(now, sum(each["written"] for each in storage))
        grown = self._growth.of(counts.all, counts.settled, failed)
        live, garbage = (float(sum(each[kind] for each in storage)) for kind in ("live", "garbage"))
        self.note(wall, (counts.ready, counts.delayed, counts.leased, counts.dead, live, garbage, lag), grown)
        return grown

    def note(self, wall: float, gauges: tuple[float, ...], grown: tuple[float, ...]) -> None:
        """Enter one instant into the rings."""
        self.gauges = gauges
        self.ring.note(wall, gauges, grown)
        self.depth.note(wall, (gauges[0] + gauges[1],))
        if self.last_used is None or grown[0] or grown[1]:
            self.last_used = wall

    def rings(self) -> list[Ring]:
        """Return all its rings."""
        return [self.ring, self.depth, *(track.ring for track in self.classes.values())]

    def count_classes(self, wall: float, failed: dict[str, int]) -> None:
        """Note how many deliveries have ended in each failure class so far."""
        for mark, total in failed.items():
            track = self.classes.get(mark)
            if track is None:
                if len(self.classes) >= 64:
                    continue
                track = self.classes[mark] = _ClassTrack()
            track.feed(wall, total)


class _ClassTrack:
    __slots__ = ("_last", "ring")

    def __init__(self) -> None:
        self.ring = Ring(0, 1, bands=((60.0, CLASS_MINUTES),))
        self._last = 0

    def feed(self, wall: float, total: int) -> None:
        grown, self._last = max(0, total - self._last), total
        if grown:
            self.ring.note(wall, flows=(grown,))


class RunTrack:
    """One run. `ring` has one gauge: pages left, or documents where page counts are unknown.

    Attributes
    ----------
    moved : float
        When a message was settled last, or the first report came; monotonic seconds.
    """

    def __init__(self) -> None:
        self.ring = Ring(1)
        self.settled, self.units, self.busy = Meter(), Meter(), Meter()
        self.effort = Effort()
        self.steady = Steady()
        self.moved, self._moved_to = 0.0, -1

    def feed(self, now: float, wall: float, counts: Counts, units: Counts | None, effort: Effort) -> None:
        """Note the sums over a run's lanes."""
        if counts.settled != self._moved_to:
            self.moved, self._moved_to = now, counts.settled
        progress = counts if units is None else units
        self.settled.feed(now, counts.settled)
        self.units.feed(now, progress.settled)
        self.busy.feed(now, effort.seconds)
        self.effort = effort
        self.ring.note(wall, (progress.left,))


class ConsumerTrack:
    """One consumer. `ring` has two flows: pages, and seconds in functions."""

    def __init__(self, now: float) -> None:
        self.ring = self.ring_of_host()
        self.done, self.units, self.busy = Meter(), Meter(), Meter()
        self.since = now
        self._growth = _Growth()

    @staticmethod
    def ring_of_host() -> Ring:
        """Return a ring for all consumers of a worker."""
        return Ring(0, 2, bands=_CONSUMER_BANDS)

    def feed(self, now: float, wall: float, report: dict[str, Any]) -> tuple[float, ...]:
        """Note a report; return how much its flows grew."""
        self.done.feed(now, report["done"])
        self.units.feed(now, report["units"])
        self.busy.feed(now, report["busy"])
        grown = self._growth.of(report["units"], report["busy"])
        self.ring.note(wall, flows=grown)
        return grown
