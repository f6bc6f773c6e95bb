"""Builds a Snapshot from `Known`, first each queue alone, then all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dqlab import numbers
from dqlab.cluster.statistics.joins import (
    classes_of,
    failures_of,
    mark_slow,
    merged_failures,
    merged_unacked,
    run_stats,
    storage_of,
    unacked_of,
)
from dqlab.cluster.statistics.known import Known, KnownConsumer, RunTrack, record_of
from dqlab.cluster.transport.reports import Running
from dqlab.rules.reports import LaneReport
from dqlab.rules.states import State
from dqlab.stats import (
    BatchStats,
    ConsumerStats,
    Counts,
    Eta,
    Failures,
    QueueState,
    QueueStats,
    RunState,
    RunStats,
    Snapshot,
    short_name,
    total_queue,
)
from dqlab.stats.attention import QueueFacts, brief, find, find_leaving, is_stuck
from dqlab.stats.eta import MIN_SECONDS, estimate, typical, with_stuck
from dqlab.stats.runs import spend_of
from dqlab.stats.snapshot import (
    MAX_CLASSES,
    MAX_CONSUMERS,
    MAX_DETAILED_QUEUES,
    MAX_MARKS,
    MAX_QUEUES,
    MAX_RUNS,
    Attention,
)

KEEPS_UP = 2.0
"""Seconds of lag under which a queue keeps up."""
TOLD_FOR = 5.0
"""Seconds for which a run at rest is still taken for one that a client does something to."""
SHOWN_FOR = 1.0
"""Seconds for which the shown speed of a run at rest counts as current."""
RISES = 3
"""Parts of the last minutes: a queue grows if more messages wait at the end of each part."""
OUTLASTS = 10.0, 10.0
"""Seconds, and multiple of the run's mean: a document held for longer than both is unlike the others."""
LONG = 5.0
"""Mean seconds of a document from which working slots are counted, because settlements are too rare to measure them."""


class JoinedQueue:
    """The facts of one queue at an instant, with `run` listed however long ago it ended."""

    def __init__(self, known: Known, name: str, now: float, wall: float, run: str = "") -> None:
        self._known, self._name, self._now, self._wall = known, name, now, wall
        self._queue = known.of(name)
        self._track, self._lanes, self._trouble = self._queue.track, self._queue.lanes, self._queue.trouble
        self._shards = self._queue.shards()
        self._listed = self._lanes.listed(run)
        self._answering = len(known.answering(self._queue))
        self._typical = max((typical(self._queue.run(each).effort) for each in self._listed), default=0.0)
        consumers = [self._consumer(each, one) for each, one in self._queue.consumers.items()]
        paces = [one.pace for one in self._queue.consumers.values()]
        self._consumers, self._median = mark_slow(consumers, paces, now, known.thresholds.slow)

    def facts(self) -> QueueFacts:
        """Return the queue with its runs, consumers and leases."""
        known, track, now, wall = self._known, self._track, self._now, self._wall
        found = dict(self._runs())
        runs = tuple(found.values())
        queue = self._with_all_runs(self._stats(runs), found)
        serving = self._queue.consumers
        begun = {name: running for name, one in serving.items() if (running := self._begun(one)) is not None}
        lately = round(track.redelivered.growth(now)), round(track.leases_lost.growth(now))
        ins, outs, lag = self._lately(queue)
        return QueueFacts(
            queue,
            runs=runs,
            consumers=self._consumers,
            runs_on={short_name(name): one.report.abandoned for name, one in serving.items() if one.report.abandoned},
            unacked=unacked_of(self._shards, now, begun, lately),
            at=wall,
            median=self._median,
            unserved=self._unserved() if queue.counts.waiting else None,
            unanswered=self._unanswered() if queue.counts.left else None,
            trouble=self._trouble,
            full=not self._queue.failure and bool(self._trouble),
            missing=self._missing(),
            typical=self._typical,
            marked=max((mark.at for mark in known.marks_of(self._name)), default=0.0),
            in_lately=ins,
            out_lately=outs,
            depths=self._depths(queue) if ins is not None else (),
            lag_before=lag,
            runs_total=self._lanes.total,
        )

    def _missing(self) -> dict[str, int]:
        """Return the number of processed documents without a result, by run that has any."""
        lanes = self._lanes.working()
        names: dict[str, str] = {lane.run: lane.name for lane in lanes if lane.name is not None}
        found: dict[str, int] = {}
        for lane in lanes:
            if lane.missing:
                name = names.get(lane.run, lane.run)
                found[name] = found.get(name, 0) + lane.missing
        return found

    def _unserved(self) -> float | None:
        """Return the seconds since the queue had a consumer, or since its first report if it never had one."""
        if self._queue.consumers:
            return None  # for silent consumers see `_unanswered`
        since, born = self._queue.unserved_since, self._track.ring.born
        return self._now - since if since is not None else self._wall - born if born is not None else None

    def _unanswered(self) -> float | None:
        """Return the seconds since a consumer answered, or None while one does or there is none."""
        if self._answering or not self._queue.consumers:
            return None
        return self._now - max(self._known.silent[one.report.host] for one in self._queue.consumers.values())

    def _why_unanswered(self) -> str:
        silence = self._unanswered()
        if silence is None:
            return ""
        names = numbers.few_of([f"{consumer.name} on worker {consumer.worker}" for consumer in self._consumers])
        return f"no consumer answers since {numbers.clock(self._wall - silence)}: {names}"

    def _lately(self, queue: QueueStats) -> tuple[float | None, float | None, float | None]:
        """Return rates in and out over the last minutes, and the lag before, or None for a queue that keeps up."""
        # None also for a queue younger than those minutes: its rates would be of less time.
        ring, span = self._track.ring, self._known.thresholds.growing
        if queue.lag < KEEPS_UP or ring.born is None or self._wall - ring.born < span:
            return None, None, None
        put, settled, _ = (series[0] for series in ring.rates(self._wall, span, 1))
        return put, settled, ring.gauges(self._wall - span, span, 1)[self._track.GAUGES.index("lag")][0]

    def _depths(self, queue: QueueStats) -> list[float | None]:
        """Return the number of waiting messages at some instants of the last minutes, and now."""
        span = self._known.thresholds.growing
        ready, delayed, *_ = self._track.ring.gauges(self._wall - span, span / RISES, RISES)
        both = zip(ready, delayed, strict=True)
        before = [None if one is None or other is None else one + other for one, other in both]
        return [*before, float(queue.counts.waiting)]

    def _stats(self, runs: Sequence[RunStats]) -> QueueStats:
        track, reports, now = self._track, self._shards.reports, self._now
        lanes = self._lanes.working()
        counts, ins, outs = self._lanes.counts, track.put.rate(now), track.out.rate(now)
        lag = max(
            report.lag + (now - came if report.lag else 0.0)
            for report, came in zip(reports, self._shards.came, strict=True)
        )
        # A shard cannot know whether there are consumers: any other state than RUNNING is decided there, the rest here.
        state = next((report.state for report in reports if report.state != QueueState.RUNNING), QueueState.RUNNING)
        if state == QueueState.RUNNING:
            keeps_up = lag < KEEPS_UP and ins and not any(run.state is RunState.RUNNING for run in runs)
            state = self._state(counts, keeps_up=bool(keeps_up))
        reasons = {
            QueueState.WAITING: self._trouble or self._why_unanswered() or "no consumer",
            QueueState.PAUSED: self._queue.paused_by,
        }
        why = reasons.get(state, "")
        held = [run for run in runs if _stands_still(run)]
        if state == QueueState.RUNNING and counts.left == sum(run.counts.left for run in held):
            state = QueueState.WAITING
            if all(run.state is not RunState.WAITING for run in held):
                why = f"{held[0].name} is paused" if len(held) == 1 else "its runs are paused"
        storage = [report.storage for report in reports if report.storage]
        units = [consumer.units_rate for consumer in self._consumers if consumer.units_rate is not None]
        return QueueStats(
            name=self._name,
            state=state,
            why=why,
            counts=counts,
            retrying=sum(lane.retrying for lane in lanes),
            nbytes=sum(lane.nbytes for lane in lanes),
            maxsize=reports[0].maxsize,
            lag=lag,
            in_rate=ins,
            out_rate=outs,
            units_rate=sum(units) if units else None,
            shards=len(reports),
            consumers=len(self._consumers),
            empty_in=self._empty_in(counts, lag, ins, runs),
            never_empty=self._never_empty(counts, lag, ins, outs, runs),
            put_waiting=sum(report.puts_waiting for report in reports),
            disk=sum(each.live + each.garbage for each in storage) if storage else None,
            last_used=track.last_used,
        )

    def _empty_in(self, counts: Counts, lag: float, ins: float | None, runs: Sequence[RunStats]) -> float | None:
        if any(_stands_still(run) or self._waits_for_stuck(run) for run in runs):
            return None
        ends = [run.eta.p50 for run in runs if run.eta is not None]
        if ends:
            return max(0.0, max(ends) - self._wall)
        ins, outs = ins if self._more_may_come else 0.0, self._track.settled.rate(self._now)
        if not counts.left or lag < KEEPS_UP or ins is None or outs is None or outs <= ins:
            return None
        return counts.left / (outs - ins)

    def _never_empty(
        self, counts: Counts, lag: float, ins: float | None, outs: float | None, runs: Sequence[RunStats]
    ) -> bool:
        ends = any(run.eta is not None or run.state is RunState.SUBMITTING for run in runs)
        waits = counts.waiting > 0 and lag >= KEEPS_UP and self._more_may_come and not ends
        return waits and ins is not None and ins > 0 and ins >= (outs or 0.0)

    @property
    def _more_may_come(self) -> bool:
        """Whether a used lane still takes messages, of a run under submission or of plain puts."""
        return any(not lane.sealed and any(lane.counts) for lane in self._lanes.working())

    def _state(self, counts: Counts, *, keeps_up: bool) -> QueueState:
        if counts.left == 0:
            return QueueState.EMPTY
        if not self._answering or self._trouble:
            return QueueState.WAITING
        return QueueState.KEEPING_UP if keeps_up else QueueState.RUNNING

    def _name_of(self, run: str) -> str:
        record = record_of(self._listed.get(run, []))
        return (record.name or "") if record is not None else ""

    def _begun(self, consumer: KnownConsumer) -> Running | None:
        """Return the document that a consumer has run for longest, with its seconds by now."""
        # A function may run for a while after its document was given up or its run cancelled. Nothing is held then.
        oldest = consumer.report.oldest
        if oldest is None or consumer.was_taken:
            return None
        lanes = self._lanes.of(oldest.run)
        if lanes and not any(lane.counts[State.LEASED] for lane in lanes):
            return None
        return oldest._replace(seconds=oldest.seconds + self._now - consumer.came)

    def _consumer(self, name: str, track: KnownConsumer) -> ConsumerStats:
        report = track.report
        busy, oldest, over = track.busy.rate(self._now), self._begun(track), self._track.out.span(self._now)
        stats = ConsumerStats(
            name=short_name(name),
            queue=report.queue,
            worker=report.host,
            leased=report.leased,
            done=report.done,
            rate=track.done.rate(self._now, over=over),
            units_rate=track.units.rate(self._now, over=over),
            busy_share=None if busy is None else min(1.0, busy / max(1, report.slots)),
            last_error=report.last_error,
            oldest_age=None if oldest is None else oldest.seconds,
            document=None if oldest is None else oldest.document,
            step="" if oldest is None else oldest.step,
            run="" if oldest is None else self._name_of(oldest.run),
            silent=None if (heard := self._known.silent.get(report.host)) is None else self._now - heard,
            rss=report.rss,
            peak=report.peak,
            chunk=report.chunk,
        )
        stuck = self._lanes.counts.leased > 0 and is_stuck(stats, self._typical, self._known.thresholds)
        return replace(stats, stuck=True) if stuck else stats

    # --- runs -------------------------------------------------------------------------------

    def _with_all_runs(self, queue: QueueStats, listed: Mapping[str, RunStats]) -> QueueStats:
        """Return a queue with sums over all its runs, which are more than those listed."""
        failed, dead = self._lanes.dead_at_rest
        for run, stats in listed.items():
            if stats.resting and stats.counts.dead and not self._lanes.rests(run):
                failed, dead = failed + 1, dead + stats.counts.dead
        return replace(queue, runs=self._lanes.total, failed_runs=failed, dead_at_rest=dead)

    def _runs(self) -> Iterator[tuple[str, RunStats]]:
        told = self._known.told
        yield from ((run, self._as_told(run, stats) if run in told else stats) for run, stats in self._counted())

    def _as_told(self, run: str, stats: RunStats) -> RunStats:
        """Return the stats of a run with what a client does to it, unless that is over."""
        text, due, at = self._known.told[run]
        ago = self._now - at
        if not stats.resting:
            return stats if stats.why else replace(stats, why=text)
        if ago > TOLD_FOR + (2 * due if due is not None else 0):  # its process has ended, or the update has
            del self._known.told[run]
        elif due is not None and stats.state is RunState.DONE:
            soon = f"next look in {numbers.span(due - ago)}" if ago < due else "looking now"
            return replace(stats, state=RunState.FOLLOWING, why=f"{text}, {soon}")
        return stats

    def _counted(self) -> Iterator[tuple[str, RunStats]]:
        for run, lanes in self._listed.items():
            track = self._queue.run(run)
            if track.shown is not None:
                yield run, self._shown_again(run, track, track.shown)
                continue
            record = record_of(lanes)
            if record is not None:
                stats = self._run(run, lanes, record)
                eta = self._eta(stats, run)
                track.shown = stats if self._lanes.rests(run) else None
                yield run, stats if eta is None else replace(stats, eta=eta)

    def _shown_again(self, run: str, track: RunTrack, shown: RunStats) -> RunStats:
        """Return the stats shown last of a run at rest, with current time and consumers at most once a second."""
        if not 0 <= self._wall - shown.at < SHOWN_FOR or shown.consumers != self._answering:
            batch = self._batches(run) or shown.batch  # consumers report a moment after the end
            setup = self._setup(run) or shown.setup
            shown = track.shown = replace(shown, at=self._wall, consumers=self._answering, batch=batch, setup=setup)
        return shown

    def _run(self, run: str, lanes: list[LaneReport], record: LaneReport) -> RunStats:
        track = self._queue.run(run)
        stats = run_stats(
            lanes,
            record,
            queue=self._name,
            at=self._wall,
            consumers=self._answering,
            paused=self._queue.paused,
            paused_by=self._queue.paused_by,
            blocked=self._trouble,
            unanswered=self._why_unanswered(),
        )
        classes = classes_of(lanes)
        # A run that rests or is held has no current speed: the last minute would still show the one it had before.
        moves = not (stats.resting or stats.held)
        stuck = any(consumer.stuck and consumer.run == record.name for consumer in self._consumers)
        stats = replace(
            stats,
            rate=track.settled.rate(self._now) if moves else None,
            units_rate=track.units.rate(self._now) if moves and stats.units is not None else None,
            classes=tuple(classes[:MAX_CLASSES]),
            classes_total=max(len(classes), lanes[0].classes_total if len(lanes) == 1 else 0),
            mean_seconds=track.effort.mean,
            paused=track.paused,
            stuck=stuck and stats.state is RunState.RUNNING and not stats.counts.waiting,
            batch=self._batches(run),
            setup=self._setup(run),
        )
        spends = [lane.spending for lane in lanes if lane.spending is not None]
        return replace(stats, spend=spend_of(spends, stats)) if spends else stats

    def _setup(self, run: str) -> float:
        """Return how long the objects of a run's function took in the slot where it took longest."""
        setups = (setup for one in self._queue.consumers.values() for setup in one.report.setups)
        return max((took for each, took in setups if each == run), default=0.0)

    def _batches(self, run: str) -> BatchStats | None:
        """Return how full the batches of a run are, as its consumers report it."""
        batches = (batch for one in self._queue.consumers.values() for batch in one.report.batches)
        found = [batch[1:] for batch in batches if batch[0] == run]
        if not found:
            return None
        sizes, calls, documents = zip(*found, strict=True)
        return BatchStats(max(sizes), sum(calls), sum(documents))

    def _eta(self, run: RunStats, key: str) -> Eta | None:
        track = self._queue.run(key)
        if self._waits_for_stuck(run):  # by the mean of the others, an estimate would say one second
            track.forget_pace()  # else documents retried later would be expected to take as long as the stuck one
            return track.steady.show(None, at=self._wall)
        if run.state is not RunState.RUNNING or min(run.elapsed, track.busy.span(self._now)) < MIN_SECONDS:
            return track.steady.show(None, at=self._wall)
        effort = track.effort
        slots = track.at_work(self._now, self._known.slots(self._queue))
        if (effort.mean or 0.0) > LONG:  # settlements are too rare to measure by
            slots = max(
                slots,
                float(min(run.counts.leased, sum(each.leased > 0 and each.silent is None for each in self._consumers))),
            )
        left, documents = run.progress.left, run.counts.left
        stuck = self._stuck(run)
        free = slots - len(stuck)  # a stuck document occupies its slot
        new = estimate(effort, units=left, documents=documents, slots=free if free > 0 else slots, at=self._wall)
        return track.steady.show(with_stuck(new, stuck, at=self._wall), at=self._wall)

    def _waits_for_stuck(self, run: RunStats) -> bool:
        """Return whether a run has no waiting documents, and a stuck one."""
        return not run.counts.waiting and bool(self._stuck(run))

    def _stuck(self, run: RunStats) -> list[float]:
        """Return the seconds for which each stuck document has been held, much longer than the others took."""
        if not run.counts.leased:
            return []
        seconds, times = OUTLASTS
        limit = max(seconds, times * (run.mean_seconds or 0.0))
        held = (consumer.oldest_age for consumer in self._consumers if consumer.run == run.name)
        return [age for age in held if age is not None and age > limit]


def _stands_still(run: RunStats) -> bool:
    """Return whether a run has documents left and does not process them, as a paused run does."""
    return run.held and run.counts.left > 0


LONGEST = 1.0
"""Seconds for which ages and rates of an unchanged queue are kept."""
FEW, JOINED_PER_S = 16, 150
"""Most queues that are joined again whenever they change; with more queues, the number of joins per second."""


class _Joined(NamedTuple):
    """The joined facts of one queue."""

    version: int
    """Version of the queue in `Known.versions`."""
    at: float
    """Monotonic seconds."""
    facts: QueueFacts
    failures: Failures


class Snapshots:
    """Builds Snapshots, keeping the facts of each queue until the queue changes or a second has passed."""

    # With many queues, a busy queue is joined less often than snapshots are asked for: snapshots must take at most a
    # few hundredths of the scheduler's time.

    def __init__(self, known: Known) -> None:
        self._known = known
        self._joined: dict[str, _Joined] = {}

    def snapshot(self, queue: str, run: str, alerts: int) -> Snapshot:
        """Return a snapshot of now, with the details of one queue or run if one is named."""
        known, now, wall = self._known, self._known.clock.monotonic(), self._known.clock.wall()
        names = known.names
        if run and not queue:
            queue = next((name for name in names if known.of(name).lanes.named(run)), "")
        self._joined = {name: self._join(name, now, wall, len(names), wanted=name == queue) for name in names}
        if queue in self._joined and all(each.name != run for each in self._joined[queue].facts.runs):
            for old in known.of(queue).lanes.named(run):  # it ended before the listed runs
                facts = JoinedQueue(known, queue, now, wall, old).facts()
                self._joined[queue] = self._joined[queue]._replace(facts=facts)
        all_facts = [joined.facts for joined in self._joined.values()]
        shown = [name for name in names if queue in ("", name)]
        chosen = [self._joined[name] for name in shown]
        needs = find(all_facts, known.thresholds)
        queues = _ordered(all_facts, needs)
        leave, within = known.leaving(known.thresholds.leaving)
        needs = [need for need in needs if queue in ("", need.queue) and (not run or need.run in ("", run))]
        needs += find_leaving(leave, known.workers, within)
        runs = sorted(
            (run for queue_facts in all_facts for run in queue_facts.runs),
            key=lambda run: (run.finished, -run.started),
        )
        runs = [*runs[:MAX_RUNS], *(each for each in runs[MAX_RUNS:] if (each.queue, each.name) == (queue, run))]
        everyone = [consumer for facts in all_facts for consumer in facts.consumers]
        consumers = [consumer for joined in chosen for consumer in joined.facts.consumers]
        consumers.sort(key=lambda each: (each.units_rate or 0.0, each.name))
        states = [queue.state for queue in queues]
        paged = any(each.unit == "pages" for each in runs if queue in ("", each.queue) and run in ("", each.name))
        return Snapshot(
            at=wall,
            seq=known.seq,
            lab=known.where,
            workers=known.workers,
            of_queue=queue,
            of_run=run,
            units="pages" if paged else "documents",
            busy_share=_mean(consumer.busy_share for consumer in consumers),
            attention=tuple(needs[:alerts]),
            attention_total=len(needs),
            marks=tuple(known.marks_of(queue)[-MAX_MARKS:]),
            queues=tuple(
                each if place < MAX_DETAILED_QUEUES or each.name == queue else _shortened(each)
                for place, each in enumerate(queues[:MAX_QUEUES])
            ),
            totals=total_queue(queues, consumers=len(everyone)),
            queues_by_state={state: states.count(state) for state in dict.fromkeys(states)},
            runs=tuple(_listed(each, chosen=each.name == run and each.queue == queue) for each in runs),
            consumers=tuple(consumers[:MAX_CONSUMERS]),
            median_units_rate=chosen[0].facts.median if len(chosen) == 1 else None,
            unacked=merged_unacked([joined.facts.unacked for joined in chosen]),
            failures=self._failures(chosen, run, now),
            storage=storage_of(
                (report for name in shown for report in known.of(name).reports.values()),
                (known.of(name).track.written.rate(now) for name in shown),
            ),
            queues_total=len(queues),
            runs_total=sum(facts.runs_total for facts in all_facts),
            consumers_total=len(consumers),
        )

    def _join(self, name: str, now: float, wall: float, queues: int, *, wanted: bool) -> _Joined:
        known, last = self._known.of(name), self._joined.get(name)
        patience = 0.0 if wanted or queues <= FEW else queues / JOINED_PER_S
        if last is not None and now - last.at < (patience if last.version != known.version else LONGEST):
            return last
        return _Joined(
            known.version,
            now,
            JoinedQueue(self._known, name, now, wall).facts(),
            failures_of(
                [lane for lanes in known.lanes.listed().values() for lane in lanes],
                round(known.track.failed.growth(now)),
                dead=known.lanes.counts.dead,
                classes=known.lanes.classes(),
            ),
        )

    def _failures(self, chosen: Sequence[_Joined], run: str, now: float) -> Failures:
        if not run or len(chosen) != 1:
            return merged_failures([joined.failures for joined in chosen])
        known = self._known.of(chosen[0].facts.queue.name)
        lanes = [lane for each in known.lanes.named(run) for lane in known.lanes.of(each)]
        return failures_of(lanes, round(known.track.failed.growth(now)))


def _ordered(all_facts: Sequence[QueueFacts], needs: Sequence[Attention]) -> list[QueueStats]:
    """Return the queues, first those that need a user, with the reason, then those that hold messages."""
    briefs: dict[str, str] = {}
    for need in needs:
        briefs.setdefault(need.queue, brief(need))
    queues = [_with_reason(facts.queue, briefs.get(facts.queue.name, "")) for facts in all_facts]
    return sorted(queues, key=lambda each: (each.name not in briefs, each.counts.left == 0, each.name))


def _listed(run: RunStats, *, chosen: bool) -> RunStats:
    return run if chosen or not run.classes else replace(run, classes=())


def _with_reason(queue: QueueStats, why: str) -> QueueStats:
    return replace(queue, why=why) if why and not queue.why else queue


def _shortened(queue: QueueStats) -> QueueStats:
    counts = queue.counts
    shown = Counts(counts.ready, counts.delayed, counts.leased, dead=counts.dead, lost=counts.lost)
    ins, outs = queue.in_rate, queue.out_rate
    return QueueStats(queue.name, queue.state, shown, why=queue.why, in_rate=ins, out_rate=outs, disk=queue.disk)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
