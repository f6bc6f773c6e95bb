"""Statistics of queues, of their consumers, and of the messages they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dqlab.keywords import SuggestsAttributes
from dqlab.stats.counts import Counts, QueueState, sums, total_counts

WINDOW = 60.0
"""Seconds over which rates and shares of consumers are measured."""
AGE_EDGES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0)
"""Seconds between the bins of `Unacked.age_bins`: the first bin is below one second, the last above eight minutes."""


@dataclass(frozen=True, slots=True)
class QueueStats(SuggestsAttributes):
    """One queue over all its shards, with rates per second over the last minute, None where unknown."""

    name: str
    state: QueueState
    counts: Counts
    why: str = ""
    """What is wrong, or who paused it; "" when there is nothing to report."""
    retrying: int = 0
    """Messages that wait for another delivery after a failed one."""
    nbytes: int = 0
    """Payload bytes of messages that are ready, delayed or leased."""
    maxsize: int | None = None
    lag: float = 0.0
    """Age of the oldest ready message, seconds."""
    in_rate: float | None = None
    out_rate: float | None = None
    shards: int = 1
    consumers: int = 0
    empty_in: float | None = None
    """Seconds until it is empty: by the estimate of its run, if it has one, else by its net rate."""
    put_waiting: int = 0
    """Puts that wait for room."""
    disk: int | None = None
    """Bytes of its segments, needed or not, without checkpoints; None for a transient queue."""
    last_used: float | None = None
    """When a message last arrived or left, seconds since 1970 UTC."""
    never_empty: bool = False
    """Messages wait, more may arrive, and they arrive at least as fast as they leave."""
    runs: int = 0
    """All its runs, listed or not."""
    failed_runs: int = 0
    """Runs at rest with dead documents."""
    dead_at_rest: int = 0
    """Dead documents of these runs."""
    units_rate: float | None = None
    """Pages per second of all its consumers; documents where page counts are unknown."""

    @property
    def empty(self) -> bool:
        """Nothing waits, runs or is dead here, and nothing stops new messages."""
        return not (self.counts.left or self.counts.dead or self.counts.lost or self.why)

    @property
    def net_rate(self) -> float | None:
        """Messages put less those settled, per second, which is below zero when the queue gets shorter."""
        return None if self.in_rate is None or self.out_rate is None else self.in_rate - self.out_rate

    @property
    def troubled(self) -> bool:
        """`why` names a fault, and not who paused the queue or when it was used."""
        return bool(self.why) and self.state not in _AT_REST


_AT_REST = frozenset({QueueState.PAUSED, QueueState.DRAINING, QueueState.EMPTY})


def total_queue(queues: Sequence[QueueStats], *, consumers: int = 0) -> QueueStats:
    """Return the sum over queues, None where no queue has a value."""

    def known(field: str) -> list[float]:
        return [value for value in (getattr(queue, field) for queue in queues) if value is not None]

    ins, outs, units, disks = known("in_rate"), known("out_rate"), known("units_rate"), known("disk")
    # The last queue to become empty ends them all, among those with an estimate.
    ends = [queue.empty_in for queue in queues if queue.empty_in is not None and queue.counts.left]
    return QueueStats(
        name="total",
        state=QueueState.TOTAL,
        counts=total_counts(queue.counts for queue in queues),
        lag=max((queue.lag for queue in queues), default=0.0),
        in_rate=sum(ins) if ins else None,
        out_rate=sum(outs) if outs else None,
        units_rate=sum(units) if units else None,
        consumers=consumers,
        empty_in=max(ends, default=None),
        disk=int(sum(disks)) if disks else None,
        **sums(queues, "retrying", "nbytes", "shards", "put_waiting", "runs", "failed_runs", "dead_at_rest"),
    )


def short_name(consumer: str) -> str:
    """Return the name that views show for a consumer or one of its slots, as in ``c5`` for ``consumer/pages/5#0``."""
    name = consumer.rsplit("/", 1)[-1].split("#", 1)[0]
    return f"c{name}" if name.isdecimal() else name


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """One consumer, with rates over the last minute."""

    name: str
    queue: str
    worker: str
    leased: int = 0
    done: int = 0
    rate: float | None = None
    """Documents per second; a consumer younger than the window counts as idle before it, so that the sum over consumers
    is the work of their queue."""
    units_rate: float | None = None
    """Pages per second; documents where page counts are unknown."""
    busy_share: float | None = None
    """Share of its slots' time spent in functions, 0 to 1."""
    last_error: str | None = None
    oldest_age: float | None = None
    """Seconds since its oldest document was begun."""
    document: str | None = None
    """The oldest document."""
    rss: int | None = None
    """Bytes of memory of its worker's process and of its slots' processes."""
    peak: int | None = None
    """The most that was measured of them, once a second while it works."""
    slow: bool = False
    """Under a third of the median speed."""
    chunk: int | None = None
    """Messages in its last delivery."""
    run: str = ""
    """Name of the run of that document; "" where it is not known, or not listed."""
    silent: float | None = None
    """Seconds since its worker's last heartbeat, if that is too long for it to count as working."""
    stuck: bool = False
    """It has held one document for so long that it needs a user."""
    step: str = ""
    """How far its function is in that document, as "12 of 300", where it says so."""

    @property
    def shown_document(self) -> str:
        """The oldest document, with how far its function is in it; "" where it is not known."""
        return f"{self.document} ({self.step})" if self.document and self.step else self.document or ""

    @property
    def trouble(self) -> str:
        """The worst thing wrong with it, "silent", "stuck" or "slow", and "" where nothing is."""
        return "silent" if self.silent is not None else "stuck" if self.stuck else "slow" if self.slow else ""

    @property
    def idle_share(self) -> float | None:
        """Share of its slots' time spent waiting for work, 0 to 1."""
        if self.busy_share is None:
            return None
        # Time in a function is reported when a document ends: until then its age counts as busy.
        return 1.0 - max(self.busy_share, min(1.0, (self.oldest_age or 0.0) / WINDOW))


@dataclass(frozen=True, slots=True)
class Held:
    """Messages that one consumer holds under one lease."""

    consumer: str
    held: float
    """Seconds since delivery."""
    ends_in: float
    """Seconds until the lease ends unless it is renewed."""
    messages: int = 1
    document: str | None = None
    """The document that the consumer runs."""
    renewals: int = 0
    """How often the lease was renewed."""
    delivery: int = 1
    """Which delivery this is, for a lease of one message."""
    running: float | None = None
    """Seconds since the function began with that document; None where that is not known."""

    @property
    def age(self) -> float:
        """Seconds for which it is held, since its function began, or since delivery where that is not known."""
        return self.held if self.running is None else self.running


@dataclass(frozen=True, slots=True)
class Unacked:
    """Messages that consumers hold."""

    age_bins: tuple[int, ...] = (0,) * (len(AGE_EDGES) + 1)
    """Messages by seconds since delivery; see `AGE_EDGES`."""
    total: int = 0
    past: int = 0
    """Messages held for longer than `timeout`: only renewal keeps them."""
    timeout: float | None = None
    """The visibility timeout, seconds."""
    oldest: tuple[Held, ...] = ()
    """At most five, the oldest first."""
    redelivered_10m: int = 0
    leases_lost_10m: int = 0
    """In the last ten minutes: messages redelivered, leases that ended by death or expiry."""
    ending_20s: int = 0
    """Messages whose leases end within 20 s and were not renewed in time."""

    @property
    def oldest_delivery(self) -> float | None:
        """Seconds since delivery of the message held longest."""
        return max((each.held for each in self.oldest), default=None)


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction of a durable queue."""

    at: float
    """When it ended, seconds since 1970 UTC."""
    freed: int
    """Bytes that it gave back."""
    seconds: float
    """How long it took."""


@dataclass(frozen=True, slots=True)
class StorageStats:
    """Files of durable queues, in bytes."""

    live: int = 0
    """Bytes still needed."""
    garbage: int = 0
    """Bytes that a compaction gives back."""
    disk_free: int | None = None
    """Bytes free on the disk; with several disks, the least."""
    write_rate: float | None = None
    """Bytes written per second over the last minute."""
    fsync_p99: float | None = None
    """Seconds, over the last thousand syncs."""
    compact_above: float | None = None
    """Garbage share above which queues compact themselves."""
    compactions: tuple[Compaction, ...] = ()
    """The last ten."""

    @property
    def total(self) -> int:
        """All bytes."""
        return self.live + self.garbage

    @property
    def garbage_share(self) -> float:
        """Garbage as a share of all bytes, 0 to 1."""
        return self.garbage / self.total if self.total else 0.0
