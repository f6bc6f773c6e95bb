"""Statistics: what every view draws, and the arithmetic behind it.

Pure: no clock, no Dask; actors report absolute totals, `cluster.statistics` joins them and computes the rest here.

::

    counts      messages by state             meter       rates of totals, and how it was over time
    runs        one run                       eta         when it will end
    queues      queues, consumers, leases     sample      what a few documents tell of all
    snapshot    everything at one instant, and series over one span, ready to be drawn
    attention   what needs a user

Units: counts are messages (documents, for people), `units` are pages or bytes, times are seconds since 1970 UTC,
durations and rates are in seconds and per second.
"""

from dqlab.stats.counts import Blocked, Counts, QueueState, RunState, StopReason, run_state, total_counts
from dqlab.stats.meter import Meter, Speed
from dqlab.stats.queues import (
    AGE_EDGES,
    Compaction,
    ConsumerStats,
    Held,
    QueueStats,
    StorageStats,
    Unacked,
    short_name,
    total_queue,
)
from dqlab.stats.runs import NO_ROOM, BatchStats, ClassStats, CodeStats, Eta, RunList, RunStats
from dqlab.stats.snapshot import (
    Attention,
    AttentionKind,
    FailingDocument,
    Failures,
    History,
    Mark,
    Severity,
    Snapshot,
)

__all__ = [
    "AGE_EDGES",
    "NO_ROOM",
    "Attention",
    "AttentionKind",
    "BatchStats",
    "Blocked",
    "ClassStats",
    "CodeStats",
    "Compaction",
    "ConsumerStats",
    "Counts",
    "Eta",
    "FailingDocument",
    "Failures",
    "Held",
    "History",
    "Mark",
    "Meter",
    "QueueState",
    "QueueStats",
    "RunList",
    "RunState",
    "RunStats",
    "Severity",
    "Snapshot",
    "Speed",
    "StopReason",
    "StorageStats",
    "Unacked",
    "run_state",
    "short_name",
    "total_counts",
    "total_queue",
]
