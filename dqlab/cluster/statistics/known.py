"""What is known of queues, runs and consumers: their last reports, and what is remembered of them.

`Collector` enters it; snapshots and histories read it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dqlab.clock import Clock
from dqlab.cluster.statistics.joins import Shards
from dqlab.cluster.statistics.known_lanes import KnownLanes
from dqlab.cluster.statistics.tracks import ConsumerTrack, QueueTrack, RunTrack
from dqlab.cluster.transport.reports import ConsumerReport, ShardReport
from dqlab.stats import Mark
from dqlab.stats.attention import Thresholds
from dqlab.stats.eta import typical
from dqlab.stats.rings import Ring

__all__ = ["Known"]

MAX_MARKS = 200
"""How many marks, of what people did, are kept."""


class Known:
    """Latest report of every shard and consumer, and what is remembered of them.

    Parameters
    ----------
    where : str
        What views call the cluster.
    thresholds : Thresholds
        When something needs a user.
    """

    def __init__(self, where: str, clock: Clock, thresholds: Thresholds) -> None:
        self.where = where
        self.clock = clock
        self.thresholds = thresholds
        self.seq = 0
        """Number of the newest change."""
        self.workers = 0
        self.leaving: Callable[[float], tuple[int, float]] = lambda within: (0, 0.0)
        """How many workers leave within some seconds because their jobs end, and when the first does."""
        self.reports: dict[str, dict[int, ShardReport]] = {}
        """Of shards, without their lanes, by queue and index."""
        self.came: dict[str, dict[int, float]] = {}
        """When each of them came, monotonic seconds."""
        self.lanes_by_queue: dict[str, KnownLanes] = {}
        self.consumers: dict[str, ConsumerReport] = {}
        self.consumers_came: dict[str, float] = {}
        """When each of them came, monotonic seconds."""
        self.serving: dict[str, dict[str, None]] = {}
        """Names of the consumers of each queue."""
        self.unserved_since: dict[str, float] = {}
        """When the last consumer of a queue left, or one of them; monotonic seconds."""
        self.queue_tracks: dict[str, QueueTrack] = {}
        self.run_tracks: dict[tuple[str, str], RunTrack] = {}
        self.consumer_tracks: dict[str, ConsumerTrack] = {}
        self.all = QueueTrack()
        """All queues together."""
        self.host_rings: dict[str, Ring] = {}
        """Pages, and seconds in functions, of all consumers of a worker."""
        self.marks: deque[Mark] = deque(maxlen=MAX_MARKS)
        self.paused_by: dict[str, str] = {}
        """Who paused a queue, or a run of it, last, by queue: "by ana, 13:34"."""
        self.versions: dict[str, int] = {}
        """Grow with each change of a queue."""

    # --- queues and runs ----------------------------------------------------------------------

    @property
    def queues(self) -> list[str]:
        """Names of the queues with a shard that has reported, sorted."""
        return sorted(self.reports)

    def shards(self, queue: str) -> Shards:
        """Return the latest reports of a queue's shards without their lanes, by index, and when each came.

        Those that have not reported yet are missing.
        """
        known, came = self.reports.get(queue, {}), self.came.get(queue, {})
        order = sorted(known)
        return Shards([known[index] for index in order], [came.get(index, 0.0) for index in order])

    def shard(self, queue: str, index: int) -> ShardReport | None:
        """Return the latest report of one shard, with all its lanes."""
        report = self.reports.get(queue, {}).get(index)
        return None if report is None else replace(report, lanes=self.lanes(queue).of_shard(index))

    def lanes(self, queue: str) -> KnownLanes:
        """Return the lanes of a queue."""
        return self.lanes_by_queue.get(queue) or KnownLanes()

    def track_of(self, queue: str, run: str) -> RunTrack:
        """Return what is remembered of a run: nothing of one that ended long ago."""
        return self.run_tracks.get((queue, run)) or RunTrack()

    def has_run(self, name: str) -> bool:
        """Return whether a shard has reported a run of that name."""
        return any(lanes.named(name) for lanes in self.lanes_by_queue.values())

    def longest(self) -> float:
        """Return the seconds in which 95 of 100 documents are done, of the slowest run on queues that hold work."""
        waiting = {name for name, track in self.queue_tracks.items() if sum(track.gauges[:3])}
        return max(
            (typical(track.effort) for (name, _), track in self.run_tracks.items() if name in waiting), default=0
        )

    # --- consumers ----------------------------------------------------------------------------

    def slots(self, queue: str) -> int:
        """Return how many slots serve a queue."""
        return sum(self.consumers[name].slots for name in self.serving.get(queue, ()))

    def busy(self) -> set[str]:
        """Return the names of the consumers that hold messages."""
        return {name for name, report in self.consumers.items() if report.leased}

    # --- over time ----------------------------------------------------------------------------

    def rings(self) -> Iterator[Ring]:
        """Return all rings."""
        for track in (self.all, *self.queue_tracks.values()):
            yield from track.rings()
        yield from (track.ring for track in self.run_tracks.values())
        yield from (track.ring for track in self.consumer_tracks.values())
        yield from self.host_rings.values()

    def marks_of(self, queue: str, since: float = 0.0) -> Sequence[Mark]:
        """Return what people did to a queue, or to all, since an instant; seconds since 1970 UTC."""
        return [mark for mark in self.marks if mark.at >= since and (not queue or mark.queue in ("", queue))]
