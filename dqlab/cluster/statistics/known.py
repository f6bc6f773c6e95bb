"""Keeps the last reports, and values over time, of queues, runs and consumers, for snapshots and histories.

A lab keeps its runs until they are dropped, so nearly all of many runs have ended. Lanes at rest are therefore kept as
sums: the work for each report and each snapshot depends only on the other runs and the few that ended last.

Tracks are fed with absolute totals. A total that falls, because its actor was recreated, starts over and counts nothing
twice.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import add

from sortedcontainers import SortedDict

from dqlab.clock import Clock
from dqlab.cluster.statistics.joins import (
    Shards,
    class_stats,
    classes_of,
    failed_by_class,
    merged_classes,
    sum_counts,
    sum_revived,
    versions_of,
)
from dqlab.cluster.transport.reports import ConsumerReport, ShardReport
from dqlab.failures.classes import FailureClass
from dqlab.rules.reports import LaneReport
from dqlab.rules.states import State
from dqlab.stats import ClassStats, Counts, Mark, Meter, QueueState, RunState, RunStats, Speed, total_counts
from dqlab.stats.attention import Thresholds
from dqlab.stats.eta import Effort, Steady, typical
from dqlab.stats.meter import STALL, Ring
from dqlab.stats.snapshot import MAX_RUNS

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


class KnownConsumer:
    """The last report and values over time of one consumer."""

    def __init__(self, report: ConsumerReport) -> None:
        self.report = report
        self.came = 0.0
        """When it came, monotonic seconds."""
        self.taken: tuple[str, float] = ("", 0.0)
        """The document that was taken from it last, and when."""
        self.due: tuple[float, float] | None = None
        """Monotonic and wall seconds of a report that is not in the values over time yet."""
        self.remembered = -math.inf
        """Monotonic seconds of the last entry into them."""
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

    def feed(self, now: float, wall: float, *, awake: bool = True) -> tuple[float, ...]:
        """Enter the report and return the growth of the flows."""
        # After this process was stopped (not `awake`), time up to the next report is not work.
        report = self.report
        lasts = 0.0 if not awake else math.inf if report.leased else STALL
        self.done.feed(now, report.done)
        self.units.feed(now, report.units)
        self.pace.feed(now, report.units, lasts=lasts)
        self.busy.feed(now, report.busy)
        grown = self._growth.of(report.units, report.busy)
        self.ring.note(wall, flows=grown)
        return grown

    @property
    def was_taken(self) -> bool:
        """Whether the document that it reported as running has been taken from it."""
        oldest, (document, at) = self.report.oldest, self.taken
        # It may run the same document again: only a take after its start counts.
        return oldest is not None and oldest.document == document and self.came - oldest.seconds < at


class KnownLanes:
    """Lanes by run and shard."""

    def __init__(self) -> None:
        self.total = 0
        """Number of runs with a record."""
        self._changed: dict[str, None] = {}
        self._runs: dict[str, dict[int, LaneReport]] = {}
        self._names: dict[str, dict[str, None]] = {}
        """Name to the ids of its runs."""
        self._working: dict[str, None] = {}
        """Runs that are not at rest; see `_rests`."""
        self._resting: SortedDict = SortedDict()  # (started, run) -> None
        self._places: dict[str, float] = {}
        """Run at rest to its `started` in `_resting`, since a later report may have another one."""
        self._sums = _Sums()

    # --- reports ----------------------------------------------------------------------------

    def take(self, shard: int, report: ShardReport) -> None:
        """Enter the lanes of a shard's report, which are all of them or only those that changed."""
        lanes = report.lanes
        if report.whole:
            named = {lane.run for lane in lanes}
            gone = [run for run, known in self._runs.items() if shard in known and run not in named]
        else:
            gone = [run for run in report.dropped if shard in self._runs.get(run, ())]
        for run in gone:
            self._enter(run, shard, None)
        for lane in lanes:
            self._enter(lane.run, shard, lane)

    def _enter(self, run: str, shard: int, lane: LaneReport | None) -> None:
        self._changed[run] = None
        known = self._runs.setdefault(run, {})
        self._leave(run, known)  # before `known` changes: sums must lose the values that were added
        if lane is not None:
            known[shard] = lane
        else:
            known.pop(shard, None)
        if not known:
            del self._runs[run]
            return
        record = record_of(known.values())
        if record is not None:
            self._names.setdefault(record.name or "", {})[run] = None
            self.total += 1
        if record is None or not _rests(known.values()):
            self._working[run] = None
            return
        self._places[run] = record.started
        self._resting[record.started, run] = None
        self._sums.add(known.values(), 1)

    def _leave(self, run: str, known: dict[int, LaneReport]) -> None:
        """Remove a run from all indexes and sums."""
        self._working.pop(run, None)
        started = self._places.pop(run, None)
        if started is not None:
            del self._resting[started, run]
            self._sums.add(known.values(), -1)
        record = record_of(known.values())
        if record is not None:
            self.total -= 1
            name = record.name or ""
            named = self._names[name]
            named.pop(run, None)
            if not named:
                del self._names[name]

    def take_changed(self) -> Collection[str]:
        """Return the runs that were reported since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    # --- queries ----------------------------------------------------------------------------

    def __contains__(self, run: str) -> bool:
        return run in self._runs

    def rests(self, run: str) -> bool:
        """Return whether a run is at rest."""
        return run in self._places

    def named(self, name: str) -> list[str]:
        """Return the ids of the runs of a name."""
        return list(self._names.get(name, ()))

    def of(self, run: str) -> list[LaneReport]:
        """Return the lanes of one run."""
        return list(self._runs.get(run, {}).values())

    def of_shard(self, shard: int) -> list[LaneReport]:
        """Return all lanes of one shard, also those at rest."""
        return [known[shard] for known in self._runs.values() if shard in known]

    def working(self) -> list[LaneReport]:
        """Return the lanes of the runs that are not at rest, including lane 0."""
        return list(chain.from_iterable(self._runs[run].values() for run in self._working))

    def listed(self, *wanted: str) -> dict[str, list[LaneReport]]:
        """Return the runs that are not at rest, the newest of the others, and the wanted ones."""
        recent = (run for _, run in islice(reversed(self._resting), MAX_RUNS))
        runs = dict.fromkeys(chain(self._working, recent, (run for run in wanted if run in self._runs)))
        return {run: list(self._runs[run].values()) for run in runs}

    # --- sums over all of them --------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        """Messages by state."""
        return total_counts([sum_counts(self.working()), Counts(*self._sums.counts)])

    @property
    def revived(self) -> int:
        """Number of messages that were settled and are delivered again."""
        return self._sums.revived + sum_revived(self.working())[0]

    @property
    def dead_at_rest(self) -> tuple[int, int]:
        """Number of runs at rest that have dead documents, and number of those documents."""
        return self._sums.failed_runs, self._sums.counts[State.DEAD]

    @property
    def failed(self) -> int:
        """Number of deliveries that failed."""
        failed: int = sum(lane.failed for lane in self.working())
        return self._sums.failed + failed

    def failed_by_class(self) -> dict[str, int]:
        """Return the number of failed deliveries by fingerprint."""
        failed = failed_by_class(self.working())
        for each in self._sums.classes.values():
            failed[each.fingerprint] = failed.get(each.fingerprint, 0) + each.failed
        return failed

    def classes(self) -> list[ClassStats]:
        """Return the failure classes, the most dead first."""
        return merged_classes(chain(classes_of(self.working()), self._sums.listed()))


class _Sums:
    """Sums over the lanes of runs at rest."""

    def __init__(self) -> None:
        self.counts = [0] * len(State)
        self.failed = self.failed_runs = self.revived = 0
        self.classes: dict[str, FailureClass] = {}
        self._lanes: dict[str, int] = {}
        """Class to the number of lanes that have it."""
        self._versions: dict[str, Counter[str]] = {}
        """Class to the number of lanes in which each code version has made failures of it."""

    def listed(self) -> list[ClassStats]:
        """Return the failure classes."""
        return [class_stats(entry, sorted(+self._versions[mark])) for mark, entry in self.classes.items()]

    def add(self, lanes: Collection[LaneReport], sign: int) -> None:
        """Add the lanes of a run, or subtract them with sign -1."""
        record = record_of(lanes)
        self.failed_runs += sign * any(lane.counts[State.DEAD] for lane in lanes)
        for lane in lanes:
            self._add(lane, record.codes if record is not None else (), sign)

    def _add(self, lane: LaneReport, codes: Iterable[tuple[str, str]], sign: int) -> None:
        self.counts = [total + sign * count for total, count in zip(self.counts, lane.counts, strict=True)]
        self.failed += sign * lane.failed
        self.revived += sign * lane.revived[0]
        for entry in lane.classes:
            mark = entry.fingerprint
            self._lanes[mark] = self._lanes.get(mark, 0) + sign
            versions = self._versions.setdefault(mark, Counter())
            for version in versions_of(entry, codes):
                versions[version] += sign
            if not self._lanes[mark]:
                del self._lanes[mark], self.classes[mark], self._versions[mark]
                continue
            known = self.classes.get(mark)
            self.classes[mark] = entry if known is None else _joined(known, entry, sign)


def _joined(known: FailureClass, entry: FailureClass, sign: int) -> FailureClass:
    return known._replace(
        dead=known.dead + sign * entry.dead,
        retrying=known.retrying + sign * entry.retrying,
        failed=known.failed + sign * entry.failed,
        # Not undone with sign -1: the lane nearly always returns with other counts and the same times.
        first=min(known.first, entry.first),
        last=max(known.last, entry.last),
    )


def record_of(lanes: Collection[LaneReport]) -> LaneReport | None:
    """Return the lane with the run's record, or None before its shard has reported."""
    return next((lane for lane in lanes if lane.name is not None), None)


def _rests(lanes: Collection[LaneReport]) -> bool:
    """Return whether all lanes of a run have ended and nothing of the run needs a user."""
    # Lost documents need one, and so does an incomplete input, unless the run was cancelled.
    if any(lane.ended is None or lane.stopped or lane.missing or lane.counts[State.LOST] for lane in lanes):
        return False
    cut_off = any(lane.incomplete is not None for lane in lanes)
    return not cut_off or any(lane.counts[State.CANCELLED] for lane in lanes)


MAX_MARKS = 200
"""Most marks of people's actions that are kept."""


class KnownQueue:
    """The latest reports and values over time of one queue."""

    # All times of arrival are monotonic seconds.

    def __init__(self) -> None:
        self.reports: dict[int, ShardReport] = {}
        """By shard, without their lanes."""
        self.came: dict[int, float] = {}
        """When each of them came."""
        self.asked: dict[int, float] = {}
        """Shards that lost a report, with the time when they were asked for all their lanes."""
        self.lanes = KnownLanes()
        self.consumers: dict[str, KnownConsumer] = {}
        self.unserved_since: float | None = None
        """When a consumer left it last."""
        self.paused_by = ""
        """Who paused it, or a run of it, last: "by ana, 13:34"."""
        self.version = 0
        """Grows with each change."""
        self.track = QueueTrack()
        self.runs: defaultdict[str, RunTrack] = defaultdict(RunTrack)
        self.due: tuple[float, float] | None = None
        self.remembered = -math.inf
        """As those of `KnownConsumer`."""

    def shards(self) -> Shards:
        """Return the reports of the shards that have reported, and when they came."""
        order = sorted(self.reports)
        return Shards([self.reports[index] for index in order], [self.came[index] for index in order])

    def run(self, run: str) -> RunTrack:
        """Return the track of a run, an empty one if the run ended long ago."""
        return self.runs.get(run) or RunTrack()

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return any(report.state == QueueState.PAUSED for report in self.reports.values())

    @property
    def failure(self) -> str:
        """Why its store has failed, "" for a store in order."""
        return next((report.failure for report in self.reports.values() if report.failure), "")

    @property
    def trouble(self) -> str:
        """Why its store can confirm nothing, "" where it can."""
        return self.failure or next((report.short for report in self.reports.values() if report.short), "")


class Known:
    """All queues and consumers that have reported."""

    def __init__(self, where: str, clock: Clock, thresholds: Thresholds) -> None:
        self.where = where
        """Name of the cluster in views."""
        self.clock = clock
        self.thresholds = thresholds
        self.seq = 0
        """Number of the newest change."""
        self.workers = 0
        self.leaving: Callable[[float], tuple[int, float]] = lambda within: (0, 0.0)
        """Returns how many workers leave within some seconds because their jobs end, and when the first leaves."""
        self.queues: defaultdict[str, KnownQueue] = defaultdict(KnownQueue)
        self.consumers: dict[str, KnownConsumer] = {}
        self.silent: dict[str, float] = {}
        """Worker, by name, that has been silent for too long, to the time of its last heartbeat."""
        self.all = QueueTrack()
        """All queues together."""
        self.host_rings: defaultdict[str, Ring] = defaultdict(KnownConsumer.ring_of_host)
        """Worker to the pages, and the seconds in functions, of all its consumers."""
        self.marks: deque[Mark] = deque(maxlen=MAX_MARKS)
        self.told: dict[str, tuple[str, float | None, float]] = {}
        """Run to what a client does to it, in how many seconds it goes on with that, and when it said so."""

    # --- queues and runs ----------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Names of the queues with a shard that has reported, sorted."""
        return sorted(name for name, queue in self.queues.items() if queue.reports)

    def of(self, queue: str) -> KnownQueue:
        """Return what is known of a queue, which may be nothing."""
        return self.queues.get(queue) or KnownQueue()

    def shard(self, queue: str, index: int) -> ShardReport | None:
        """Return the latest report of one shard with all its lanes."""
        known = self.of(queue)
        report = known.reports.get(index)
        return None if report is None else replace(report, lanes=known.lanes.of_shard(index))

    def has_run(self, name: str) -> bool:
        """Return whether a shard has reported a run of that name."""
        return any(queue.lanes.named(name) for queue in self.queues.values())

    def longest(self) -> float:
        """Return the seconds in which 95 of 100 documents end, for the slowest run of the queues that hold work."""
        working = [queue for queue in self.queues.values() if sum(queue.track.gauges[:3])]
        return max((typical(track.effort) for queue in working for track in queue.runs.values()), default=0)

    # --- consumers ----------------------------------------------------------------------------

    def answering(self, queue: KnownQueue) -> list[KnownConsumer]:
        """Return the consumers of a queue whose workers are not silent."""
        return [consumer for consumer in queue.consumers.values() if consumer.report.host not in self.silent]

    def slots(self, queue: KnownQueue) -> int:
        """Return the number of slots that serve a queue, without those of silent workers."""
        return sum(consumer.report.slots for consumer in self.answering(queue))

    # --- over time ----------------------------------------------------------------------------

    def rings(self) -> Iterator[Ring]:
        """Return all rings."""
        for track in (self.all, *(queue.track for queue in self.queues.values())):
            yield from track.rings()
        yield from (track.ring for queue in self.queues.values() for track in queue.runs.values())
        yield from (consumer.ring for consumer in self.consumers.values())
        yield from self.host_rings.values()

    def marks_of(self, queue: str, since: float = 0.0) -> Sequence[Mark]:
        """Return the marks of a queue, or of all, since an instant in seconds since 1970 UTC."""
        return [mark for mark in self.marks if mark.at >= since and (not queue or mark.queue in ("", queue))]
