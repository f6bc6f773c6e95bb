"""Enters the reports of actors into `Known`, and builds a Snapshot or a History on request.

Reports have absolute totals, so a lost, repeated or late report does no harm. `stats` and `joins` compute, `tracks` has
the values over time. While no view is open, only reports are entered. `show` installs
the views that the scheduler draws.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, replace
from importlib import import_module
from itertools import chain
from operator import add, sub
from typing import Any

from distributed import Scheduler

from dqlab.clock import Clock, SystemClock
from dqlab.cluster.statistics.histories import history
from dqlab.cluster.statistics.joins import state_of, sum_counts, sum_effort, sum_revived, sum_units
from dqlab.cluster.statistics.known import Known, KnownConsumer, KnownQueue
from dqlab.cluster.statistics.snapshots import Snapshots
from dqlab.cluster.transport.parking import Bell
from dqlab.cluster.transport.reports import ConsumerReport, ShardReport
from dqlab.config import option, seconds
from dqlab.errors import BadOption
from dqlab.stats import History, Mark, RunState, Snapshot, Speed
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
        self._ahead = -math.inf
        """Wall seconds less monotonic seconds. It falls when the wall clock is set back."""
        self._snapshots = Snapshots(self.known)
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
        queue = self.known.queues[report.queue]
        if isinstance(report, ShardReport):
            before = queue.reports.get(report.shard)
            # A lower epoch comes from a shard that was presumed dead and replaced. But a current report always counts:
            # the higher epoch is then of an earlier queue with this name.
            if before is not None and before.epoch > report.epoch and not current:
                return
            self._enter_late(queue, now)
            if before is None:  # remember the sums without this shard first
                self._remember(queue)
            self._enter(queue, before, report, now)
            self._note(queue, now, wall)
            if before is None:
                self._remember(queue)
        else:
            consumer = queue.consumers.get(report.name) or KnownConsumer(report)
            self._enter_late(consumer, now)
            consumer.report, consumer.came = report, now
            queue.consumers[report.name] = self.known.consumers[report.name] = consumer
            self._note(consumer, now, wall)
        self._changed(queue)

    def _times(self) -> tuple[float, float]:
        """Return monotonic and wall seconds, and correct all rings when the wall clock was set back."""
        # Rings cannot notice that themselves: entries that come late have an earlier time too.
        now, wall = self.known.clock.monotonic(), self.known.clock.wall()
        ahead, self._ahead = self._ahead, wall - now
        if self._ahead < ahead - SET_BACK:
            for known in self._each():
                if known.due is not None:
                    known.due = known.due[0], min(known.due[1], wall)
            for ring in self.known.rings():
                ring.forget_after(wall)
        return now, wall

    def _each(self) -> Iterator[KnownQueue | KnownConsumer]:
        return chain(self.known.queues.values(), self.known.consumers.values())

    def _enter(self, queue: KnownQueue, before: ShardReport | None, report: ShardReport, now: float) -> None:
        """Enter a report and its lanes, and ask the shard for all lanes if an earlier report was lost."""
        index = report.shard
        queue.reports[index], queue.came[index] = replace(report, lanes=[]), now
        queue.lanes.take(index, report)
        if report.whole:
            queue.asked.pop(index, None)
            return
        # Reports of changed lanes only add up without gaps. Once one is lost, ask until a whole report comes.
        last = None if before is None or before.epoch != report.epoch else before.number or 0
        lost = last is None or report.number != last + 1 or index in queue.asked
        if lost and now - queue.asked.get(index, -math.inf) >= ASK_EVERY:
            queue.asked[index] = now
            self.missing(report.queue, index)

    def look(self) -> None:
        """Note that this process is awake, and after a stop leave the time of the stop out of all speeds."""
        now = self.known.clock.monotonic()
        since, self._looked = self._looked, now
        # Laptop suspended, or process stopped: the reports of that time now come all at once.
        if now - since > SLEPT:
            self.remember()
            self._woke = now
            for queue in self.known.queues.values():
                queue.track.settled.interrupt()
                for track in queue.runs.values():
                    track.interrupt()
            for consumer in self.known.consumers.values():
                consumer.pace.interrupt()

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
        queues = {one.report.queue for one in known.consumers.values() if one.report.host in changed}
        for name in queues:
            self._remember_now(known.queues[name])
            self._changed(known.queues[name])

    def _enter_late(self, known: KnownQueue | KnownConsumer, now: float) -> None:
        """Remember the last report before a report that comes long after it."""
        # The values of the last report have lasted until now: they belong to its time, not to the new one's.
        if known.due is not None and now - known.due[0] >= REMEMBER_EVERY:
            self._remember(known)

    def _note(self, known: KnownQueue | KnownConsumer, now: float, wall: float) -> None:
        """Remember a report at once if the last entry is a second old, else with the next call of `remember`."""
        known.due = now, wall
        if now - known.remembered >= REMEMBER_EVERY:
            self._remember(known)

    def _remember_now(self, queue: KnownQueue) -> None:
        """Remember what has changed of a queue without a report."""
        if queue.reports:
            queue.due = self._times()
            self._remember(queue)

    def _remember(self, known: KnownQueue | KnownConsumer) -> None:
        if known.due is None:
            return
        (now, wall), known.due = known.due, None
        known.remembered = now
        if isinstance(known, KnownQueue):
            self._remember_queue(known, now, wall)
            return
        flows = known.feed(now, wall, awake=now - self._woke >= WAKES)
        self.known.host_rings[known.report.host].note(wall, flows=flows)

    def _remember_queue(self, queue: KnownQueue, now: float, wall: float) -> None:
        known, track, lanes = self.known, queue.track, queue.lanes
        reports = list(queue.reports.values())
        lag, before = max(report.lag for report in reports), track.gauges
        works, slots = now - self._woke >= WAKES, known.slots(queue)
        blocked, paused, served = queue.trouble, queue.paused, bool(known.answering(queue))
        free = works and not blocked and not paused
        again = track.reopens(reports)
        grown = track.feed(
            now, wall, lanes.counts, lag, lanes.failed, reports, works=free, revived=lanes.revived, reopened=again
        )
        known.all.note(wall, tuple(map(add, known.all.gauges, map(sub, track.gauges, before))), grown)
        track.count_classes(wall, lanes.failed_by_class(), reopened=again)
        listed, changed = lanes.listed(), lanes.take_changed()
        for run, own in listed.items():
            if run in queue.runs and run not in changed and lanes.rests(run):
                continue  # nothing of it has changed
            state = RunState.WAITING
            if works:
                state = state_of(own, paused=paused, blocked=blocked, served=served)
            sums = sum_counts(own), sum_units(own), sum_effort(own)
            queue.runs[run].feed(now, wall, *sums, state=state, slots=slots, revived=sum_revived(own), reopened=again)
        # Others were dropped, or more runs than are listed have ended since.
        for run in queue.runs.keys() - listed.keys():
            del queue.runs[run]

    def remember(self) -> None:
        """Enter the reports that are due into the rings and meters, to be called before reading these."""
        self._times()
        for known in self._each():
            self._remember(known)

    def mark(self, text: str, *, cell: int | None = None, queue: str = "", by: str = "") -> None:
        """Note an action of a person."""
        self.known.marks.append(Mark(self.known.clock.wall(), text, cell, queue))
        known = self.known.queues[queue] if by else self.known.queues.get(queue)
        if known is not None and by:
            known.paused_by = by
        self._changed(known)

    def took(self, consumer: str, document: str) -> None:
        """Note that a document was taken from a consumer, by its full name."""
        known = self.known.consumers.get(consumer)
        if known is not None:
            self._remember(known)  # first: its report is of before this instant
            known.pace = Speed()  # else it would seem slow by that document, as soon as it has others
            known.taken = document, self.known.clock.monotonic()
            self._changed(self.known.queues[known.report.queue])

    def forget(self, consumers: Collection[str]) -> None:
        """Forget consumers that are gone."""
        known = self.known
        gone = {one.report.queue for name in consumers if (one := known.consumers.get(name)) is not None}
        for name in gone:
            queue = known.queues[name]
            queue.consumers = {each: one for each, one in queue.consumers.items() if each not in consumers}
            queue.unserved_since = known.clock.monotonic()
            # Before other consumers come. Else the queue would seem to have been served all along.
            self._remember_now(queue)
            self._changed(queue)
        known.consumers = {name: one for name, one in known.consumers.items() if name not in consumers}
        for host in known.host_rings.keys() - {one.report.host for one in known.consumers.values()}:
            del known.host_rings[host]
        self._changed()

    def forget_queue(self, name: str) -> None:
        """Forget a queue that was closed."""
        known, queue = self.known, self.known.of(name)
        self.forget(list(queue.consumers))
        if known.queues.pop(name, None) is not None:  # take its messages out of the sums over all queues
            gauges = tuple(map(sub, known.all.gauges, queue.track.gauges))
            known.all.note(self._times()[1], gauges, (0.0, 0.0, 0.0))

    def touch(self) -> None:
        """Note a change without a report."""
        self._changed()

    def _changed(self, queue: KnownQueue | None = None) -> None:
        """Count a change, of a queue so that snapshots join its facts again."""
        if queue is not None:
            queue.version += 1
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
        known = self.known.of(queue)
        for lane in known.lanes.working():
            ready, _, leased, *_ = lane.counts
            left = leased + (0 if lane.paused else ready)
            track = known.runs.get(lane.run)
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
