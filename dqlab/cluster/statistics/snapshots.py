"""Builds a Snapshot from what is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from dqlab.cluster.statistics.joins import failures_of, merged_failures, merged_storage, storage_of
from dqlab.cluster.statistics.known import Known
from dqlab.cluster.statistics.queue_scene import QueueScene
from dqlab.stats import Counts, Failures, QueueStats, RunStats, Snapshot, StorageStats, Unacked, total_queue
from dqlab.stats.attention import QueueFacts, brief, find, find_leaving
from dqlab.stats.snapshot import (
    MAX_CONSUMERS,
    MAX_DETAILED_QUEUES,
    MAX_MARKS,
    MAX_QUEUES,
    MAX_RUNS,
    Attention,
)

__all__ = ["Snapshots"]

LONGEST = 1.0
"""Seconds for which ages and rates of a queue that does not change are kept."""
FEW, JOINED_PER_S = 16, 150
"""Queues that are always joined again when they change; above that, how many per second."""


class _Joined(NamedTuple):
    """One queue, joined; as of `version` and `at` (monotonic seconds)."""

    version: int
    at: float
    scene: QueueFacts
    failures: Failures
    storage: StorageStats


class Snapshots:
    """Builds Snapshots. What was joined of a queue is kept until it changes, or a second has passed.

    With many queues one that changes all the time is joined less often than it is asked for, so that looking takes no
    more than a few hundredths of the scheduler's time.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._joined: dict[str, _Joined] = {}

    def snapshot(self, queue: str, run: str, alerts: int) -> Snapshot:
        """Return everything now; leases, consumers, failures and storage of one queue or run, if one is named."""
        known, now, wall = self._known, self._known.clock.monotonic(), self._known.clock.wall()
        names = known.queues
        if run and not queue:
            queue = next((name for name in names if known.lanes(name).named(run)), "")
        self._joined = {name: self._join(name, now, wall, len(names), wanted=name == queue) for name in names}
        if queue in self._joined and all(each.name != run for each in self._joined[queue].scene.runs):
            for old in known.lanes(queue).named(run):  # it ended before those that are listed
                scene = QueueScene(known, queue, now, wall, old).scene()
                self._joined[queue] = self._joined[queue]._replace(scene=scene)
        scenes = [joined.scene for joined in self._joined.values()]
        chosen = [joined for name, joined in self._joined.items() if queue in ("", name)]
        needs = find(scenes, known.thresholds)
        queues = _ordered(scenes, needs)
        leave, within = known.leaving(known.thresholds.leaving)
        needs = [need for need in needs if queue in ("", need.queue) and (not run or need.run in ("", run))]
        needs += find_leaving(leave, known.workers, within)
        runs = sorted((each for scene in scenes for each in scene.runs), key=lambda run: (run.finished, -run.started))
        runs = [*runs[:MAX_RUNS], *(each for each in runs[MAX_RUNS:] if (each.queue, each.name) == (queue, run))]
        everyone = [each for scene in scenes for each in scene.consumers]
        consumers = [each for joined in chosen for each in joined.scene.consumers]
        consumers.sort(key=lambda each: (each.units_rate or 0.0, each.name))
        states = [each.state for each in queues]
        paged = any(each.units for each in runs if queue in ("", each.queue) and run in ("", each.name))
        return Snapshot(
            at=wall,
            seq=known.seq,
            lab=known.where,
            where=known.where,
            workers=known.workers,
            of_queue=queue,
            of_run=run,
            units="pages" if paged else "documents",
            busy_share=_mean(each.busy_share for each in consumers),
            attention=tuple(needs[:alerts]),
            attention_total=len(needs),
            marks=tuple(known.marks_of(queue)[-MAX_MARKS:]),
            queues=tuple(
                each if place < MAX_DETAILED_QUEUES or each.name == queue else _bare(each)
                for place, each in enumerate(queues[:MAX_QUEUES])
            ),
            totals=total_queue(queues, consumers=len(everyone)),
            queues_by_state={state: states.count(state) for state in dict.fromkeys(states)},
            runs=tuple(_listed(each, chosen=each.name == run and each.queue == queue) for each in runs),
            consumers=tuple(consumers[:MAX_CONSUMERS]),
            median_units_rate=chosen[0].scene.median if len(chosen) == 1 else None,
            unacked=_merged([joined.scene.unacked for joined in chosen]),
            failures=self._failures(chosen, run, now),
            storage=merged_storage([joined.storage for joined in chosen]),
            queues_total=len(queues),
            runs_total=sum(scene.runs_total for scene in scenes),
            consumers_total=len(consumers),
        )

    def _join(self, name: str, now: float, wall: float, queues: int, *, wanted: bool) -> _Joined:
        known, last = self._known, self._joined.get(name)
        version = known.versions.get(name, 0)
        patience = 0.0 if wanted or queues <= FEW else queues / JOINED_PER_S
        if last is not None and now - last.at < (patience if last.version != version else LONGEST):
            return last
        reports, track = known.shards(name).reports, known.queue_tracks[name]
        return _Joined(
            version,
            now,
            QueueScene(known, name, now, wall).scene(),
            failures_of(
                [lane for lanes in known.lanes(name).listed().values() for lane in lanes],
                round(track.failed.growth(now)),
                dead=known.lanes(name).counts.dead,
                classes=known.lanes(name).classes(),
            ),
            storage_of(reports, track.written.rate(now)),
        )

    def _failures(self, chosen: Sequence[_Joined], run: str, now: float) -> Failures:
        if not run or len(chosen) != 1:
            return merged_failures([joined.failures for joined in chosen])
        name = chosen[0].scene.queue.name
        known = self._known.lanes(name)
        lanes = [lane for each in known.named(run) for lane in known.of(each)]
        return failures_of(lanes, round(self._known.queue_tracks[name].failed.growth(now)))


def _ordered(scenes: Sequence[QueueFacts], needs: Sequence[Attention]) -> list[QueueStats]:
    """Return the queues, those that need a user first, with why; then those that hold something."""
    briefs: dict[str, str] = {}
    for need in needs:
        briefs.setdefault(need.queue, brief(need))
    queues = [_worded(scene.queue, briefs.get(scene.queue.name, "")) for scene in scenes]
    return sorted(queues, key=lambda each: (each.name not in briefs, each.counts.left == 0, each.name))


def _listed(run: RunStats, *, chosen: bool) -> RunStats:
    return run if chosen or not run.classes else replace(run, classes=())


def _worded(queue: QueueStats, why: str) -> QueueStats:
    return replace(queue, why=why) if why and not queue.why else queue


def _bare(queue: QueueStats) -> QueueStats:
    counts = queue.counts
    shown = Counts(counts.ready, counts.delayed, counts.leased, dead=counts.dead, lost=counts.lost)
    return QueueStats(queue.name, queue.state, shown, why=queue.why)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _merged(parts: Sequence[Unacked]) -> Unacked:
    if len(parts) == 1:
        return parts[0]
    timeouts = [part.timeout for part in parts if part.timeout is not None]
    oldest = sorted((held for part in parts for held in part.oldest), key=lambda held: -held.held)
    bins = [sum(amounts) for amounts in zip(*(part.age_bins for part in parts), strict=True)]
    return Unacked(
        age_bins=tuple(bins) or Unacked().age_bins,
        total=sum(part.total for part in parts),
        past=sum(part.past for part in parts),
        past_half=sum(part.past_half for part in parts),
        timeout=max(timeouts, default=None),
        oldest=tuple(oldest[:5]),
        redelivered_10m=sum(part.redelivered_10m for part in parts),
        leases_lost_10m=sum(part.leases_lost_10m for part in parts),
        ending_20s=sum(part.ending_20s for part in parts),
    )
