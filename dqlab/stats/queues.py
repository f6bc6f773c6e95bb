"""What is known about queues, their consumers, and the messages they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dqlab.keywords import SuggestsAttributes
from dqlab.stats.counts import Counts, QueueState, total_counts

__all__ = [
    "AGE_EDGES",
    "Compaction",
    "ConsumerStats",
    "Held",
    "QueueStats",
    "StorageStats",
    "Unacked",
    "short_name",
    "total_queue",
]

WINDOW = 60.0
"""Seconds that rates and shares of consumers are about."""
AGE_EDGES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0)
"""Seconds between the bins of `Unacked.age_bins`: the first is below one second, the last above eight minutes."""


@dataclass(frozen=True, slots=True)
class QueueStats(SuggestsAttributes):
    """One queue, over all its shards; rates are per second over the last minute, None when not known.

    Attributes
    ----------
    state : QueueState
    why : str
        It is what is wrong, or who paused it; "" when there is nothing to report.
    retrying : int
        Messages waiting for another delivery after a failed one.
    nbytes : int
        Payload bytes of messages that are ready, delayed or leased.
    lag : float
        Age of the oldest ready message, seconds.
    units_rate : float or None
        Pages per second that all its consumers do; documents where page counts are unknown.
    empty_in : float or None
        Seconds until it is empty: its run's, if it has one, else by how much faster messages leave than come.
    put_waiting : int
        Puts that wait for room.
    disk : int or None
        Bytes of its segments, needed or not; a reserve and checkpoints come on top. None for a queue in memory.
    last_used : float or None
        When a message last came or left, seconds since 1970 UTC.
    never_empty : bool
        Messages wait, more may come, and they come at least as fast as they leave.
    runs, failed_runs, dead_at_rest : int
        All its runs, listed or not; those at rest with dead documents, and how many documents these are.
    """

    name: str
    state: QueueState
    counts: Counts
    why: str = ""
    retrying: int = 0
    nbytes: int = 0
    maxsize: int | None = None
    lag: float = 0.0
    in_rate: float | None = None
    out_rate: float | None = None
    shards: int = 1
    consumers: int = 0
    empty_in: float | None = None
    put_waiting: int = 0
    disk: int | None = None
    last_used: float | None = None
    never_empty: bool = False
    runs: int = 0
    failed_runs: int = 0
    dead_at_rest: int = 0
    units_rate: float | None = None

    @property
    def empty(self) -> bool:
        """Nothing waits, runs or is dead here, and nothing stops new messages."""
        return not (self.counts.left or self.counts.dead or self.counts.lost or self.why)

    @property
    def net_rate(self) -> float | None:
        """Messages that come less those that leave, per second: below zero when the queue gets shorter."""
        return None if self.in_rate is None or self.out_rate is None else self.in_rate - self.out_rate

    @property
    def troubled(self) -> bool:
        """`why` is what is wrong here, rather than who stopped it on purpose or when it was used."""
        return bool(self.why) and self.state not in _AT_REST


_AT_REST = frozenset({QueueState.PAUSED, QueueState.DRAINING, QueueState.EMPTY})


def total_queue(queues: Sequence[QueueStats], *, consumers: int = 0) -> QueueStats:
    """Return the sum over queues; what is known of none is None. The last end that is estimated is the end of all."""

    def known(field: str) -> list[float]:
        return [value for value in (getattr(queue, field) for queue in queues) if value is not None]

    ins, outs, units, disks = known("in_rate"), known("out_rate"), known("units_rate"), known("disk")
    ends = [queue.empty_in for queue in queues if queue.empty_in is not None and queue.counts.left]
    return QueueStats(
        name="total",
        state=QueueState.TOTAL,
        counts=total_counts(queue.counts for queue in queues),
        retrying=sum(queue.retrying for queue in queues),
        nbytes=sum(queue.nbytes for queue in queues),
        lag=max((queue.lag for queue in queues), default=0.0),
        in_rate=sum(ins) if ins else None,
        out_rate=sum(outs) if outs else None,
        units_rate=sum(units) if units else None,
        shards=sum(queue.shards for queue in queues),
        consumers=consumers,
        empty_in=max(ends, default=None),
        put_waiting=sum(queue.put_waiting for queue in queues),
        disk=int(sum(disks)) if disks else None,
        runs=sum(queue.runs for queue in queues),
        failed_runs=sum(queue.failed_runs for queue in queues),
        dead_at_rest=sum(queue.dead_at_rest for queue in queues),
    )


def short_name(consumer: str) -> str:
    """Return what views call a consumer or a slot of it: ``c5`` for ``consumer/pages/5#0``."""
    name = consumer.rsplit("/", 1)[-1].split("#", 1)[0]
    return f"c{name}" if name.isdecimal() else name


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """One consumer. `busy_share` is the share of its slots' time spent in functions, 0 to 1.

    Attributes
    ----------
    rate, units_rate : float or None
        Documents and pages per second over the last minute; documents where page counts are unknown. A consumer that is
        younger has done nothing before, so that the sum over consumers is what their queue has done.
    oldest_age : float or None
        Seconds since the document that it has had longest was begun.
    document : str or None
        That document.
    run : str
        Name of the run that it is of; "" where that is not known, or not listed.
    silent : float or None
        Seconds since its worker was heard last, where that is too long: it does not count as one that works.
    chunk : int or None
        Messages that it was given together last.
    rss : int or None
        Bytes of memory of its worker's process, and of the processes of its slots.
    slow : bool
        Under a third of the median speed.
    stuck : bool
        It has held one document for so long that it needs a user.
    """

    name: str
    queue: str
    worker: str
    leased: int = 0
    done: int = 0
    rate: float | None = None
    units_rate: float | None = None
    busy_share: float | None = None
    last_error: str | None = None
    oldest_age: float | None = None
    document: str | None = None
    rss: int | None = None
    slow: bool = False
    chunk: int | None = None
    run: str = ""
    silent: float | None = None
    stuck: bool = False

    @property
    def trouble(self) -> str:
        """What is wrong with it in one word, the worst first: "silent", "stuck" or "slow"; "" where nothing is."""
        return "silent" if self.silent is not None else "stuck" if self.stuck else "slow" if self.slow else ""

    @property
    def idle_share(self) -> float | None:
        """Share of its slots' time spent waiting for work, 0 to 1.

        Time in a function is reported when a document ends: a consumer that has had one for a minute was busy with it.
        """
        if self.busy_share is None:
            return None
        return 1.0 - max(self.busy_share, min(1.0, (self.oldest_age or 0.0) / WINDOW))


@dataclass(frozen=True, slots=True)
class Held:
    """Messages that one consumer holds under one lease.

    Attributes
    ----------
    document : str or None
        What the consumer is running of them.
    held, ends_in : float
        Seconds since they were delivered, and until the lease ends unless it is renewed.
    running : float or None
        Seconds since the function began with that document; None where that is not known.
    renewals, delivery, messages : int
        How often the lease was renewed; which delivery it is, for a message alone; how many messages.
    """

    consumer: str
    held: float
    ends_in: float
    messages: int = 1
    document: str | None = None
    renewals: int = 0
    delivery: int = 1
    running: float | None = None

    @property
    def age(self) -> float:
        """Seconds for which it is held, as every view shows it: since its function began, or else since delivery."""
        return self.held if self.running is None else self.running


@dataclass(frozen=True, slots=True)
class Unacked:
    """Messages in consumers' hands. Ages of `age_bins` are seconds since delivery.

    Attributes
    ----------
    age_bins : tuple of int
        Messages by age, eleven bins; see `AGE_EDGES`.
    past : int
        Messages held for longer than `timeout`, the visibility timeout in seconds: only renewal keeps them.
    oldest : tuple of Held
        At most five, the oldest first.
    redelivered_10m, leases_lost_10m : int
        In the last ten minutes: messages redelivered, leases that ended by death or expiry.
    ending_20s : int
        Messages whose leases end within 20 s and were not renewed in time.
    """

    age_bins: tuple[int, ...] = (0,) * (len(AGE_EDGES) + 1)
    total: int = 0
    past: int = 0
    timeout: float | None = None
    oldest: tuple[Held, ...] = ()
    redelivered_10m: int = 0
    leases_lost_10m: int = 0
    ending_20s: int = 0

    @property
    def oldest_delivery(self) -> float | None:
        """Seconds since the message that is held longest was delivered."""
        return max((each.held for each in self.oldest), default=None)


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction: when it ended (seconds since 1970 UTC), bytes it gave back, seconds it took."""

    at: float
    freed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StorageStats:
    """Files of durable queues, bytes.

    Attributes
    ----------
    live, garbage : int
        Bytes still needed, and the rest, which a compaction gives back.
    disk_free : int or None
        Room on the disk; of several, the least.
    write_rate : float or None
        Bytes written per second over the last minute.
    fsync_p99 : float or None
        Seconds; of the last thousand syncs.
    compact_above : float or None
        Garbage share above which queues compact themselves.
    compactions : tuple of Compaction
        The last ten.
    """

    live: int = 0
    garbage: int = 0
    disk_free: int | None = None
    write_rate: float | None = None
    fsync_p99: float | None = None
    compact_above: float | None = None
    compactions: tuple[Compaction, ...] = ()

    @property
    def total(self) -> int:
        """All bytes."""
        return self.live + self.garbage

    @property
    def garbage_share(self) -> float:
        """Garbage as a share of all bytes, 0 to 1."""
        return self.garbage / self.total if self.total else 0.0
