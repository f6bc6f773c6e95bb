"""The lanes of one queue as its shards reported them last: those at work one by one, those at rest as sums.

A lab keeps its runs until they are dropped, so nearly all of many have ended. What is done with every report, and
with every look, goes through those that have not, and the few that ended last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import chain, islice

from sortedcontainers import SortedDict

from dqlab.cluster.statistics.joins import class_stats, classes_of, failed_by_class, merged_classes, versions_of
from dqlab.cluster.transport.reports import ShardReport
from dqlab.cluster.transport.run_facts import sum_counts
from dqlab.failures.classes import FailureClass
from dqlab.rules.reports import LaneReport
from dqlab.rules.states import State
from dqlab.stats import ClassStats, Counts, total_counts
from dqlab.stats.snapshot import MAX_RUNS

__all__ = ["KnownLanes"]


class KnownLanes:
    """Lanes by run and shard.

    A run is at rest when each of its lanes has ended and nothing of it needs a user: none of its documents is lost,
    and its input was complete, or it was cancelled.

    Attributes
    ----------
    total : int
        Runs with a record.
    """

    def __init__(self) -> None:
        self.total = 0
        self._changed: dict[str, None] = {}
        self._runs: dict[str, dict[int, LaneReport]] = {}
        self._names: dict[str, dict[str, None]] = {}
        self._working: dict[str, None] = {}
        self._resting: SortedDict = SortedDict()  # (started, run) -> None
        self._places: dict[str, float] = {}
        """Of each run at rest, its key there."""
        self._sums = _Sums()

    # --- what comes in ----------------------------------------------------------------------

    def take(self, shard: int, report: ShardReport) -> None:
        """Enter a shard's report: with all its lanes, or with those that changed and the runs that were dropped."""
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
        self._leave(run, known)
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
        """Take a run out of everything that it is entered in."""
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
        """Return the runs that had a report since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    # --- what is known ----------------------------------------------------------------------

    def __contains__(self, run: str) -> bool:
        return run in self._runs

    def rests(self, run: str) -> bool:
        """Return whether a run is at rest."""
        return run in self._places

    def named(self, name: str) -> list[str]:
        """Return the runs of that name."""
        return list(self._names.get(name, ()))

    def of(self, run: str) -> list[LaneReport]:
        """Return the lanes of one run."""
        return list(self._runs.get(run, {}).values())

    def of_shard(self, shard: int) -> list[LaneReport]:
        """Return all lanes of one shard, however many there are."""
        return [known[shard] for known in self._runs.values() if shard in known]

    def working(self) -> list[LaneReport]:
        """Return the lanes of the runs that are not at rest, lane 0 among them."""
        return list(chain.from_iterable(self._runs[run].values() for run in self._working))

    def listed(self, *wanted: str) -> dict[str, list[LaneReport]]:
        """Return the runs that are not at rest, those that began last of the others, and those that are wanted."""
        recent = (run for _, run in islice(reversed(self._resting), MAX_RUNS))
        runs = dict.fromkeys(chain(self._working, recent, (run for run in wanted if run in self._runs)))
        return {run: list(self._runs[run].values()) for run in runs}

    # --- sums over all of them --------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        """Messages by state."""
        return total_counts([sum_counts(self.working()), Counts(*self._sums.counts)])

    @property
    def failed(self) -> int:
        """Deliveries that ended in a failure."""
        failed: int = sum(lane.failed for lane in self.working())
        return self._sums.failed + failed

    def failed_by_class(self) -> dict[str, int]:
        """Return the same by fingerprint."""
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
        self.failed = 0
        self.classes: dict[str, FailureClass] = {}
        self._lanes: dict[str, int] = {}
        """In how many lanes a class is."""
        self._versions: dict[str, Counter[str]] = {}
        """In how many of them each code version has made failures of a class."""

    def listed(self) -> list[ClassStats]:
        """Return the failure classes."""
        return [class_stats(entry, sorted(+self._versions[mark])) for mark, entry in self.classes.items()]

    def add(self, lanes: Collection[LaneReport], sign: int) -> None:
        """Add the lanes of a run, or with -1 take them away."""
        record = record_of(lanes)
        for lane in lanes:
            self._add(lane, record.codes if record is not None else (), sign)

    def _add(self, lane: LaneReport, codes: Iterable[tuple[str, str]], sign: int) -> None:
        self.counts = [total + sign * count for total, count in zip(self.counts, lane.counts, strict=True)]
        self.failed += sign * lane.failed
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
        first=min(known.first, entry.first),
        last=max(known.last, entry.last),
    )


def record_of(lanes: Collection[LaneReport]) -> LaneReport | None:
    """Return the lane that has the run's record; None when no shard has reported that yet."""
    return next((lane for lane in lanes if lane.name is not None), None)


def _rests(lanes: Collection[LaneReport]) -> bool:
    if any(lane.ended is None or lane.stopped or lane.missing or lane.counts[State.LOST] for lane in lanes):
        return False
    cut_off = any(lane.incomplete is not None for lane in lanes)
    return not cut_off or any(lane.counts[State.CANCELLED] for lane in lanes)
