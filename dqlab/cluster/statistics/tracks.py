"""Keeps rates and values over time of a queue, a run or a consumer.

Tracks are fed with absolute totals. A total that falls, because its actor was recreated, starts over and counts nothing
twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import add

from dqlab.cluster.transport.reports import ConsumerReport, ShardReport
from dqlab.stats import Counts, Meter, RunState, RunStats, Speed
from dqlab.stats.eta import Effort, Steady
from dqlab.stats.meter import STALL
from dqlab.stats.rings import Ring

CLASS_MINUTES, DEPTH_MINUTES = 120, 30
"""Minutes for which failures are counted by class, and for which the depths of all queues are kept."""
LATELY = 600.0
"""Seconds over which redeliveries and lost leases are counted."""


_CONSUMER_BANDS = ((5.0, 180), (60.0, 1440))


class _Growth:
    """Computes the growth of totals between two calls."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[float, ...] | None = None

    def of(self, *totals: float, new: bool = False, old: bool = False) -> tuple[float, ...]:
        """Return the growth of the totals since the last call."""
        # At the first call, all of it is growth if `new`, else nothing. With `old`, the growth happened long ago.
        last, self._last = self._last, totals
        if last is None or old:
            return totals if new else (0.0,) * len(totals)
        return tuple(max(0.0, total - old) for total, old in zip(totals, last, strict=True))


class _Highs:
    """The largest values of each minute."""

    # A slot of a ring keeps its last gauge. So the running maximum of the minute is entered as a gauge.

    def __init__(self) -> None:
        self.ring = Ring(5, bands=((60.0, 1440),))
        """Gauges waiting and unacked, and put, settled and failed in one second."""
        self._minute = self._second = -1
        self._most: tuple[float, ...] = (0.0,) * 5
        self._before: tuple[float, ...] = self._most
        self._amounts: tuple[float, ...] = (0.0, 0.0, 0.0)

    def note(self, wall: float, waiting: float, unacked: float, grown: tuple[float, ...]) -> None:
        if math.floor(wall) != self._second:
            self._second, self._amounts = math.floor(wall), (0.0, 0.0, 0.0)
        self._amounts = tuple(map(add, self._amounts, grown))
        if wall // 60 != self._minute:
            self._minute, self._most = int(wall // 60), self._before
        present = (waiting, unacked, *self._amounts)
        self._most = tuple(map(max, self._most, present))
        self._before = (waiting, unacked, 0.0, 0.0, 0.0)  # a minute starts with the gauges of the last one
        self.ring.note(wall, self._most)


class QueueTrack:
    """Values over time of one queue, or of all queues together."""

    GAUGES = ("ready", "delayed", "leased", "dead", "live", "garbage", "lag")

    def __init__(self) -> None:
        self.ring = Ring(len(self.GAUGES), 3)
        """`GAUGES`, with live and garbage in bytes, and the flows put, settled and failed."""
        self.highs = _Highs()
        self.depth = Ring(1, bands=((60.0, DEPTH_MINUTES + 1),))
        """Gauge ready + delayed, by the minute."""
        # Meters count the whole last minute, idle time included, since views draw put and out side by side. A Speed
        # counts only time with work: it predicts when the messages left will be done.
        self.put, self.out, self.failed, self.written = Meter(), Meter(), Meter(), Meter()
        self.settled = Speed()
        self.redelivered, self.leases_lost = Meter(LATELY), Meter(LATELY)
        self.gauges: tuple[float, ...] = (0.0,) * len(self.GAUGES)
        self.last_used: float | None = None
        """When a message last came or left, seconds since 1970 UTC."""
        self.classes: dict[str, _ClassTrack] = {}
        self._growth = _Growth()
        self._shards: set[int] = set()

    def reopens(self, reports: Iterable[ShardReport]) -> bool:
        """Return whether the totals include a newly reported shard whose log was open before."""
        unknown = [report for report in reports if report.shard not in self._shards]
        self._shards.update(report.shard for report in unknown)
        return any(report.epoch > 1 for report in unknown)

    def feed(
        self,
        now: float,
        wall: float,
        counts: Counts,
        lag: float,
        failed: int,
        reports: Sequence[ShardReport],
        *,
        works: bool = True,
        revived: int = 0,
        reopened: bool = False,
    ) -> tuple[float, ...]:
        """Enter the sums over a queue's shards and return how many messages were put, ended and failed since."""
        # `works`: nothing keeps consumers from taking messages. `reopened`: the totals have grown by the messages of a
        # reopened shard (see `reopens`), which is not growth of now.
        worked = counts.worked + revived  # without cancelled messages: they leave without being worked on
        for meter, total in ((self.put, counts.all), (self.out, worked), (self.settled, worked), (self.failed, failed)):
            if reopened or total < meter.total:  # a total falls when runs are dropped: their past work still counts
                meter.had(total)
        self.put.feed(now, counts.all)
        self.out.feed(now, worked)
        self.settled.feed(now, worked, lasts=_lasts(counts) if works else 0.0)
        self.failed.feed(now, failed)
        self.redelivered.feed(now, sum(report.redelivered for report in reports))
        self.leases_lost.feed(now, sum(report.leases_lost for report in reports))
        storage = [report.storage for report in reports if report.storage]
        if storage:
            self.written.feed(now, sum(each.written for each in storage))
        # All totals of a new queue are growth: messages came before its first report.
        grown = self._growth.of(counts.all, worked, failed, new=not reopened, old=reopened)
        live, garbage = float(sum(each.live for each in storage)), float(sum(each.garbage for each in storage))
        self.note(wall, (counts.ready, counts.delayed, counts.leased, counts.dead, live, garbage, lag), grown)
        return grown

    def note(self, wall: float, gauges: tuple[float, ...], grown: tuple[float, ...]) -> None:
        """Enter one instant into the rings."""
        self.gauges = gauges
        self.ring.note(wall, gauges, grown)
        self.highs.note(wall, gauges[0] + gauges[1], gauges[2], grown)
        self.depth.note(wall, (gauges[0] + gauges[1],))
        if self.last_used is None or grown[0] or grown[1]:
            self.last_used = wall

    def rings(self) -> list[Ring]:
        """Return all its rings."""
        return [self.ring, self.highs.ring, self.depth, *(track.ring for track in self.classes.values())]

    def count_classes(self, wall: float, failed: dict[str, int], *, reopened: bool = False) -> None:
        """Enter the number of deliveries that have ended in each failure class so far."""
        for mark, total in failed.items():
            track = self.classes.get(mark)
            if track is None:
                if len(self.classes) >= 64:  # a run whose every document has a class of its own must not fill memory
                    continue
                track = self.classes[mark] = _ClassTrack()
            track.feed(wall, total, old=reopened)


class _ClassTrack:
    __slots__ = ("_last", "ring")

    def __init__(self) -> None:
        self.ring = Ring(0, 1, bands=((60.0, CLASS_MINUTES),))
        self._last = 0

    def feed(self, wall: float, total: int, *, old: bool) -> None:
        grown, self._last = max(0, total - self._last), total
        if grown and not old:
            self.ring.note(wall, flows=(grown,))


class RunTrack:
    """Values over time of one run."""

    def __init__(self) -> None:
        self.ring = Ring(1)
        """Gauge pages left, or documents left where page counts are unknown."""
        self.settled, self.units, self.busy, self._offered = Speed(), Speed(), Speed(), Speed()
        self._slot_seconds, self._slots, self._fed = 0.0, 0, 0.0
        self.effort = Effort()
        self.steady = Steady()
        # `moved`: monotonic seconds at which a message was settled last, or the first report came.
        self.moved, self._moved_to = 0.0, -1
        self.shown: RunStats | None = None
        """Its stats in views, kept while it is at rest; each report clears them."""
        # `paused`: seconds that it was paused, by a user or by itself, since this scheduler knows it.
        self.paused, self._is_paused = 0.0, False
        self._lasts, self._revived = math.inf, 0

    def feed(
        self,
        now: float,
        wall: float,
        counts: Counts,
        units: Counts | None,
        effort: Effort,
        *,
        state: RunState = RunState.RUNNING,
        slots: int = 0,
        revived: tuple[int, int] = (0, 0),
        reopened: bool = False,
    ) -> None:
        """Enter the sums over a run's lanes, its state, and the number of slots that serve its queue."""
        self.shown = None
        progress = counts if units is None else units
        messages, weights = revived
        settled = counts.settled + messages
        done = progress.settled + (messages if units is None else weights)
        if reopened:
            self._revived = messages
            for speed, total in ((self.settled, settled), (self.units, done), (self.busy, effort.seconds)):
                speed.had(total)
        lasts = 0.0 if state in _KEPT else _lasts(counts)
        self.paused += now - self._fed if self._is_paused else 0.0
        self._is_paused = state in (RunState.PAUSED, RunState.STOPPED)
        self._slot_seconds += self._slots * (now - self._fed)
        self._slots, self._fed, gaps = slots if lasts == math.inf else 0, now, self.settled.gaps
        # A retry after a rest gets a speed of its own: it may run other code.
        if messages > self._revived and self._lasts < math.inf:
            self.settled.start_over(now)
            self.units.start_over(now)
        self._lasts, self._revived = lasts, messages
        self._offered.feed(now, self._slot_seconds, lasts=lasts)
        self.settled.feed(now, settled, lasts=lasts)
        self.units.feed(now, done, lasts=lasts)
        self.busy.feed(now, effort.seconds, lasts=lasts)
        if settled != self._moved_to or self.settled.gaps != gaps:
            self.moved, self._moved_to = now, settled
        self.effort = effort
        self.ring.note(wall, (progress.left,))

    def interrupt(self) -> None:
        """Leave out the time from the last report to the next."""
        self._slots = 0
        for speed in (self.settled, self.units, self.busy, self._offered):
            speed.interrupt()

    def forget_pace(self) -> None:
        """Forget the share of the slots that worked on the run, because they waited for a stuck document."""
        self.busy, self._offered = Speed(), Speed()

    def at_work(self, now: float, slots: int) -> float:
        """Return how many of the current slots will work on the run, by its past share of all slots."""
        busy, offered = self.busy.lasting(now) or 0.0, self._offered.lasting(now) or 0.0
        return min(1.0, busy / offered) * slots if offered > 0 and slots else busy


_KEPT = (RunState.PAUSED, RunState.STOPPED, RunState.WAITING)
"""States in which a run has work and cannot do it."""


def _lasts(counts: Counts) -> float:
    """Return for how many seconds after a report time counts as work, inf while messages can be processed."""
    return math.inf if counts.ready or counts.leased else STALL


class ConsumerTrack:
    """Values over time of one consumer."""

    def __init__(self) -> None:
        self.ring = self.ring_of_host()
        """Flows pages, and seconds in functions."""
        # Meters count the whole last minute, idle time included, like those of queues. `pace` compares consumers: it
        # counts pages only while there was work, without the time of documents that were taken away.
        self.done, self.units, self.busy, self.pace = Meter(), Meter(), Meter(), Speed()
        self._growth = _Growth()

    @staticmethod
    def ring_of_host() -> Ring:
        """Return a ring with the flows of one consumer, or of all consumers of a worker."""
        return Ring(0, 2, bands=_CONSUMER_BANDS)

    def feed(self, now: float, wall: float, report: ConsumerReport, *, awake: bool = True) -> tuple[float, ...]:
        """Enter a report and return the growth of the flows."""
        # After this process was stopped (not `awake`), time up to the next report is not work.
        lasts = 0.0 if not awake else math.inf if report.leased else STALL
        self.done.feed(now, report.done)
        self.units.feed(now, report.units)
        self.pace.feed(now, report.units, lasts=lasts)
        self.busy.feed(now, report.busy)
        grown = self._growth.of(report.units, report.busy)
        self.ring.note(wall, flows=grown)
        return grown

    def interrupt(self) -> None:
        """Leave out the time from the last report to the next."""
        self.pace.interrupt()
