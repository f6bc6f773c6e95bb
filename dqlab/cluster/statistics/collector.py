"""Enters the reports of actors into `Known`, and builds a Snapshot or a History on request.

Reports have absolute totals, so a lost, repeated or late report does no harm. `stats` and `joins` compute, `tracks` has
the values over time. While no view is open, only reports are entered. `show` installs
the views that the scheduler draws.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from importlib import import_module
from operator import add, sub
from typing import Any

from distributed import Scheduler

from dqlab.clock import Clock, SystemClock
from dqlab.cluster.statistics.histories import history
from dqlab.cluster.statistics.joins import state_of, sum_counts, sum_effort, sum_revived, sum_units
from dqlab.cluster.statistics.known import ConsumerTrack, Known, KnownLanes, QueueTrack, RunTrack
from dqlab.cluster.statistics.snapshots import Snapshots
from dqlab.cluster.transport.parking import Bell
from dqlab.cluster.transport.reports import ConsumerReport, ShardReport
from dqlab.config import option, seconds
from dqlab.errors import BadOption
from dqlab.stats import History, Mark, QueueState, RunState, Snapshot, Speed
from dqlab.stats.attention import Thresholds
from dqlab.stats.snapshot import MAX_ATTENTION

logger = logging.getLogger("dqlab.registry")

REMEMBER_EVERY = 1.0
"""Seconds between two entries into the rings and meters of a queue or consumer."""
SET_BACK = 1.0
"""Least seconds by which the wall clock was set back. A smaller step back is a correction of its drift."""
ASK_EVERY = 1.0
"""Seconds after which a shard is asked again for a report with all its lanes."""
SLEPT = 5.0
"""Seconds without a look after which this process counts as stopped: it read no reports meanwhile."""
WAKES = 2.0
"""Seconds that the process takes afterwards to read the reports that waited."""
SILENT, SILENT_AT_MOST = 10.0, 60.0
"""Seconds without a heartbeat after which the consumers of a worker do not count as working. Native code that holds the
GIL may silence a worker for the time of two documents: that time is allowed, within these least and most seconds."""


class Collector:
    """Takes in the reports of every shard and consumer."""

    def __init__(self, *, where: str = "", clock: Clock | None = None, thresholds: Thresholds | None = None) -> None:
        self.known = Known(where, clock or SystemClock(), thresholds or Thresholds())
        """Up to a second old: call `remember` before reading its rings and meters."""
        self.untaken = 0
        """Number of reports that could not be read."""
        self.missing: Callable[[str, int], None] = lambda queue, shard: None
        """Asks a shard for a report with all its lanes after one of its reports was lost."""
        self._due: dict[str, tuple[float, float]] = {}
        self._consumers_due: dict[str, tuple[float, float]] = {}
        """Queues, and consumers, whose last report is not in the tracks yet, with its monotonic and wall seconds."""
        self._remembered: dict[str, float] = {}
        """Queue or consumer to the monotonic seconds of its last entry into the tracks."""
        self._ahead = -math.inf
        """Wall seconds less monotonic seconds. It falls when the wall clock is set back."""
        self._snapshots = Snapshots(self.known)
        self._asked: dict[tuple[str, int], float] = {}
        """Shards that have lost a report, with the monotonic seconds at which they were asked for all their lanes."""
        self._bell = Bell()
        self._looked = math.inf
        """When the scheduler last checked that it is awake, monotonic seconds; inf before the first check."""
        self._woke = -math.inf
        """When this process last went on after it was stopped, monotonic seconds."""

    # --- reports ----------------------------------------------------------------------------

    def take(self, report: ShardReport | ConsumerReport, *, current: bool = False) -> None:
        """Enter a report, of the registered shard if `current`."""
        now, wall = self._times()
        if self._looked < math.inf:
            self.look()
        queue = report.queue
        if isinstance(report, ShardReport):
            known = self.known.reports.setdefault(queue, {})
            index = report.shard
            # A lower epoch comes from a shard that was presumed dead and replaced. But a current report always counts:
            # the higher epoch is then of an earlier queue with this name.
            if index in known and known[index].epoch > report.epoch and not current:
                return
            self._enter_late(self._due, queue, now)
            joins = index not in known
            if joins and queue in self._due:  # remember the sums without this shard first
                self._remember(queue, self._due)
            known[index] = self._enter(queue, index, known.get(index), report, now)
            self.known.came.setdefault(queue, {})[index] = now
            self._note(self._due, queue, now, wall)
            if joins and queue in self._due:
                self._remember(queue, self._due)
        else:
            name = report.name
            self._enter_late(self._consumers_due, name, now)
            self.known.consumers[name], self.known.consumers_came[name] = report, now
            self.known.serving.setdefault(queue, {})[name] = None
            self._note(self._consumers_due, name, now, wall)
        self._count_change(queue)
        self._changed()

    def _times(self) -> tuple[float, float]:
        """Return monotonic and wall seconds, and correct all rings when the wall clock was set back."""
        # Rings cannot notice that themselves: entries that come late have an earlier time too.
        now, wall = self.known.clock.monotonic(), self.known.clock.wall()
        ahead, self._ahead = self._ahead, wall - now
        if self._ahead < ahead - SET_BACK:
            for due in (self._due, self._consumers_due):
                due |= {name: (came, min(at, wall)) for name, (came, at) in due.items()}
            for ring in self.known.rings():
                ring.forget_after(wall)
        return now, wall

    def _enter(
        self, queue: str, index: int, before: ShardReport | None, report: ShardReport, now: float
    ) -> ShardReport:
        """Enter a report's lanes and return the rest, or ask the shard for all lanes if an earlier report was lost."""
        self.known.lanes_by_queue.setdefault(queue, KnownLanes()).take(index, report)
        number = report.number
        if report.whole:
            self._asked.pop((queue, index), None)
        else:
            # Reports of changed lanes only add up without gaps. Once one is lost, ask until a whole report comes.
            last = None if before is None or before.epoch != report.epoch else before.number or 0
            if last is None or number != last + 1 or (queue, index) in self._asked:
                asked = self._asked.get((queue, index))
                if asked is None or now - asked >= ASK_EVERY:
                    self._asked[queue, index] = now
                    self.missing(queue, index)
        return replace(report, lanes=[])

    def look(self) -> None:
        """Note that this process is awake, and after a stop leave the time of the stop out of all speeds."""
        now = self.known.clock.monotonic()
        since, self._looked = self._looked, now
        # Laptop suspended, or process stopped: the reports of that time now come all at once.
        if now - since > SLEPT:
            self.remember()
            self._woke = now
            for track in self.known.run_tracks.values():
                track.interrupt()
            for queue_track in self.known.queue_tracks.values():
                queue_track.settled.interrupt()
            for consumer in self.known.consumer_tracks.values():
                consumer.interrupt()

    def hear(self, silences: Mapping[str, float]) -> None:
        """Enter the seconds since the last heartbeat of workers by name."""
        known, now = self.known, self.known.clock.monotonic()
        found: dict[str, float] = {}
        # After this process was stopped, it has read no heartbeats: the silence is its own.
        if silences and max(silences.values()) > SILENT and now - self._woke >= WAKES:
            patience = max(SILENT, min(SILENT_AT_MOST, 2 * known.longest()))
            found = {name: now - silence for name, silence in silences.items() if silence > patience}
        changed = found.keys() ^ known.silent.keys()
        known.silent = {name: known.silent.get(name, since) for name, since in found.items()}
        if not changed:
            return
        queues = {report.queue for report in known.consumers.values() if report.host in changed}
        for queue in queues:
            self._count_change(queue)
        for queue in queues & known.reports.keys():
            self._due[queue] = self._times()
            self._remember(queue, self._due)
        if queues:
            self._changed()

    def _enter_late(self, due: dict[str, tuple[float, float]], name: str, now: float) -> None:
        """Remember the last report before a report that comes long after it."""
        # The values of the last report have lasted until now: they belong to its time, not to the new one's.
        if name in due and now - due[name][0] >= REMEMBER_EVERY:
            self._remember(name, due)

    def _note(self, due: dict[str, tuple[float, float]], name: str, now: float, wall: float) -> None:
        """Remember a report at once if the last entry is a second old, else with the next call of `remember`."""
        due[name] = now, wall
        if now - self._remembered.get(name, -REMEMBER_EVERY) >= REMEMBER_EVERY:
            self._remember(name, due)

    def _remember(self, name: str, due: dict[str, tuple[float, float]]) -> None:
        now, wall = due.pop(name)
        self._remembered[name] = now
        if due is self._due:
            self._remember_queue(name, now, wall)
            return
        report = self.known.consumers[name]
        track = self.known.consumer_tracks.setdefault(name, ConsumerTrack())
        units, busy = track.feed(now, wall, report, awake=now - self._woke >= WAKES)
        self.known.host_rings.setdefault(report.host, track.ring_of_host()).note(wall, flows=(units, busy))

    def _remember_queue(self, queue: str, now: float, wall: float) -> None:
        known = self.known
        track = known.queue_tracks.setdefault(queue, QueueTrack())
        reports, lanes = list(known.reports[queue].values()), known.lanes(queue)
        lag, before = max(report.lag for report in reports), track.gauges
        works, slots = now - self._woke >= WAKES, known.slots(queue)
        blocked = next((why for report in reports if (why := report.failure or report.short)), "")
        paused, served = any(report.state == QueueState.PAUSED for report in reports), bool(known.answering(queue))
        free = works and not blocked and not paused
        again = track.reopens(reports)
        grown = track.feed(
            now, wall, lanes.counts, lag, lanes.failed, reports, works=free, revived=lanes.revived, reopened=again
        )
        known.all.note(wall, tuple(map(add, known.all.gauges, map(sub, track.gauges, before))), grown)
        track.count_classes(wall, lanes.failed_by_class(), reopened=again)
        listed, changed = lanes.listed(), lanes.take_changed()
        for run, own in listed.items():
            track_of_run = known.run_tracks.get((queue, run))
            if track_of_run is None:
                track_of_run = known.run_tracks[queue, run] = RunTrack()
            elif run not in changed and lanes.rests(run):
                continue  # nothing of it has changed
            state = RunState.WAITING
            if works:
                state = state_of(own, paused=paused, blocked=blocked, served=served)
            sums = sum_counts(own), sum_units(own), sum_effort(own)
            track_of_run.feed(now, wall, *sums, state=state, slots=slots, revived=sum_revived(own), reopened=again)
        for key in [key for key in known.run_tracks if key[0] == queue and key[1] not in listed]:
            del known.run_tracks[key]  # dropped, or more runs than are listed have ended since

    def remember(self) -> None:
        """Enter the reports that are due into the rings and meters, to be called before reading these."""
        self._times()
        for due in (self._due, self._consumers_due):
            for name in list(due):
                self._remember(name, due)

    def mark(self, text: str, *, cell: int | None = None, queue: str = "", by: str = "") -> None:
        """Note an action of a person."""
        self.known.marks.append(Mark(self.known.clock.wall(), text, cell, queue))
        if by:
            self.known.paused_by[queue] = by
        self._count_change(queue)
        self._changed()

    def took(self, consumer: str, document: str) -> None:
        """Note that a document was taken from a consumer, by its full name."""
        if consumer in self._consumers_due:  # first: its report is of before this instant
            self._remember(consumer, self._consumers_due)
        track, now = self.known.consumer_tracks.get(consumer), self.known.clock.monotonic()
        if track is not None:
            track.pace = Speed()  # else the consumer would seem slow by that document, as soon as it has others
            self.known.taken[consumer] = document, now
            queue = self.known.consumers[consumer].queue
            self._count_change(queue)
            self._changed()

    def forget(self, consumers: Collection[str]) -> None:
        """Forget consumers that are gone."""
        known = self.known
        left: set[str] = set()
        for name in consumers:
            report = known.consumers.pop(name, None)
            for memory in (
                known.consumers_came,
                known.consumer_tracks,
                known.taken,
                self._consumers_due,
                self._remembered,
            ):
                memory.pop(name, None)
            if report is not None:
                queue = report.queue
                known.serving.get(queue, {}).pop(name, None)
                known.unserved_since[queue] = known.clock.monotonic()
                self._count_change(queue)
                left.add(queue)
        for queue in left & known.reports.keys():
            # Before other consumers come. Else the queue would seem to have been served all along.
            self._due[queue] = self._times()
            self._remember(queue, self._due)
        for host in known.host_rings.keys() - {report.host for report in known.consumers.values()}:
            del known.host_rings[host]
        self._changed()

    def forget_queue(self, queue: str) -> None:
        """Forget a queue that was closed."""
        known = self.known
        for index in known.reports.get(queue, ()):
            self._asked.pop((queue, index), None)
        for memory in (
            known.reports,
            known.came,
            known.lanes_by_queue,
            self._due,
            self._remembered,
            known.paused_by,
        ):
            memory.pop(queue, None)
        track = known.queue_tracks.pop(queue, None)
        if track is not None:  # take its messages out of the sums over all queues
            gauges = tuple(map(sub, known.all.gauges, track.gauges))
            known.all.note(self._times()[1], gauges, (0.0, 0.0, 0.0))
        for key in [key for key in known.run_tracks if key[0] == queue]:
            del known.run_tracks[key]
        self.forget(list(known.serving.pop(queue, ())))
        known.unserved_since.pop(queue, None)  # `forget` has entered both again
        known.versions.pop(queue, None)

    def touch(self) -> None:
        """Note a change without a report."""
        self._changed()

    def _count_change(self, queue: str) -> None:
        """Count a change of a queue, so that snapshots join its facts again."""
        self.known.versions[queue] = self.known.versions.get(queue, 0) + 1

    def _changed(self) -> None:
        self.known.seq += 1
        self._bell.ring()

    # --- snapshots and histories ------------------------------------------------------------

    @property
    def seq(self) -> int:
        """Number of the newest change, as `Feed` requires."""
        return self.known.seq

    async def change(self, since: int, timeout: float) -> None:
        """Wait up to `timeout` seconds for a change after number `since`."""
        await self._bell.until(lambda: self.known.seq > since, timeout)

    def snapshot(self, queue: str = "", run: str = "", *, alerts: int = MAX_ATTENTION) -> Snapshot:
        """Return a snapshot of now, with the details of one queue or run if one is named."""
        self.remember()
        return self._snapshots.snapshot(queue, run, alerts)

    def history(self, span: float, queue: str = "", run: str = "", *, whole: bool = False) -> History:
        """Return the history of the last `span` seconds, from `histories.history`."""
        self.remember()
        return history(self.known, span, queue, run, whole=whole)

    def backlog(self, queue: str, unknown: float) -> tuple[int, float]:
        """Return a queue's number of messages to process, and the seconds in functions that they need."""
        self.remember()
        messages, seconds, now = 0, 0.0, self.known.clock.monotonic()
        for lane in self.known.lanes(queue).working():
            ready, _, leased, *_ = lane.counts
            left = leased + (0 if lane.paused else ready)
            track = self.known.run_tracks.get((queue, lane.run))
            effort = track.effort if track is not None else None
            each = effort.seconds / effort.documents if effort is not None and effort.documents else unknown
            if track is not None and leased:  # no settlement for longer than the mean: messages have become slower
                each = max(each, now - track.moved)
            messages, seconds = messages + left, seconds + left * each
        return messages, seconds


def show(scheduler: Scheduler, collector: Collector) -> list[Callable[[], None]]:
    """Install the modules named in the option ``views``, and return what removes them."""
    # Each has `install(scheduler, feed)`, which returns a function that removes the view, or None. A view whose
    # packages are not installed is left out.
    undone: list[Callable[[], None]] = []
    for name in option("views") or ():
        try:
            undo = import_module(name).install(scheduler, collector)
        except ImportError as error:
            logger.info("event=view_left_out view=%s %s", name, error)
        except Exception:  # a missing view must not stop queues
            logger.warning("event=view_left_out view=%s", name, exc_info=True)
        else:
            undone += [undo] if undo is not None else []
    return undone


def thresholds(spoken: Mapping[str, Any]) -> Thresholds:
    """Return the thresholds of the option ``attention``, or raise BadOption."""
    known = {field.name.replace("_", "-"): field.name for field in fields(Thresholds)}
    values = {}
    for key, value in spoken.items():
        name = f"dqlab.attention.{key}"
        if key not in known:
            raise BadOption(option=name, value=value, problem=f"is not a threshold. There are: {', '.join(known)}.")
        values[known[key]] = _share(value, name) if key in ("slow", "failing") else seconds(value, name=name)
    return Thresholds(**values)


def _share(value: Any, name: str) -> float:
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    raise BadOption(option=name, value=value, problem="is a share, from 0 to 1.")
