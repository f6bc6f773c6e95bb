"""Define the Snapshot and the History: everything at one instant, and series over a span, as every view draws them.

Views format what they find here and compute nothing. Both are frozen and survive JSON unchanged: fields at their
default are left out, and unknown fields are ignored, so that versions can differ.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum, StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from dqlab.keywords import SuggestsAttributes
from dqlab.stats.counts import Counts, QueueState
from dqlab.stats.queues import ConsumerStats, QueueStats, StorageStats, Unacked
from dqlab.stats.runs import ClassStats, RunStats

SCHEMA = 1
# Queues past MAX_DETAILED_QUEUES have counts, state and rates alone; of consumers the slowest are listed.
MAX_RUNS, MAX_QUEUES, MAX_DETAILED_QUEUES, MAX_CONSUMERS, MAX_CLASSES, MAX_MARKS, MAX_ATTENTION = (
    20,
    100,
    20,
    32,
    8,
    20,
    5,
)


class Severity(IntEnum):
    """How bad an alert or a finding of the doctor is, spelled in small letters in plain data."""

    OK = 0
    """The check found nothing wrong."""
    NOTE = 1
    """Worth knowing."""
    WARNING = 2
    """It works, and costs speed or safety."""
    PROBLEM = 3
    """Something does not work, or will not."""


class AttentionKind(StrEnum):
    """The rule that found that something needs a user, one of `dqlab.stats.attention`."""

    STOPPED = "stopped"
    NO_CONSUMER = "no-consumer"
    UNABLE = "unable"
    NO_ANSWER = "no-answer"
    SILENT = "silent"
    STORE = "store"
    NO_ROOM = "no-room"
    SINK = "sink"
    LOST = "lost"
    MISSING = "missing"
    LEASE_ENDS = "lease-ends"
    HELD = "held"
    RUNS_ON = "runs-on"
    SLOW = "slow"
    FAILING = "failing"
    PUT_OFF = "put-off"
    PUTS_WAIT = "puts-wait"
    GROWING = "growing"
    LAG = "lag"
    LEAVING = "leaving"
    AT_REST = "at-rest"
    OTHER = ""
    """Found by a newer dqlab on the scheduler; its own words are shown."""

    @classmethod
    def _missing_(cls, value: object) -> AttentionKind:
        # Not an error: a client must draw the alerts of a newer scheduler.
        return cls.OTHER


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing that needs a user, in words, with `subject` first in bold, then `text`, and `detail` below."""

    severity: Severity
    kind: AttentionKind
    """The rule that found it."""
    subject: str
    text: str
    detail: str = ""
    action: str = ""
    """What to do: the name of a command (``retry``, ``resume``, ``scale``, ``show``, ``compact``), or ""."""
    queue: str = ""
    run: str = ""
    """Empty where there is no single queue or run."""
    target: str = ""
    """What the command is about: a failure class's fingerprint, a consumer."""
    amount: int = 0
    """How many documents, leases or puts are concerned; 0 where that has no meaning."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that a person did."""

    at: float
    """Seconds since 1970 UTC."""
    text: str
    cell: int | None = None
    queue: str = ""


@dataclass(frozen=True, slots=True)
class FailingDocument:
    """A document that failed often, with its last error."""

    key: str
    error: str
    deliveries: int
    """Deliveries that raised."""
    limit: int
    """Deliveries after which it is dead."""
    pages: int | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class Failures:
    """Why documents failed, with exact counts of messages."""

    dead: int = 0
    retrying: int = 0
    per_minute: int = 0
    """Deliveries that failed in the last minute."""
    classes_total: int = 0
    classes: tuple[ClassStats, ...] = ()
    """The largest `MAX_CLASSES`."""
    documents: tuple[FailingDocument, ...] = ()

    @property
    def other_classes(self) -> int:
        """Classes beyond those listed."""
        return max(0, self.classes_total - len(self.classes))

    @property
    def other_dead(self) -> int:
        """Dead messages of the classes beyond those listed."""
        return max(0, self.dead - sum(entry.dead for entry in self.classes))


@dataclass(frozen=True, slots=True)
class Snapshot(SuggestsAttributes):
    """Everything at one instant, with long lists capped and exact totals over all."""

    at: float
    """Seconds since 1970 UTC."""
    seq: int
    """Grows by one with each change; pass it to wait for the next change."""
    lab: str = ""
    store: str = ""
    workers: int = 0
    of_queue: str = ""
    of_run: str = ""
    """The queue and run of the request: `unacked`, `consumers`, `failures` and `storage` are limited to them."""
    units: str = "documents"
    """What `units_rate` of consumers counts: "pages" or "documents"."""
    busy_share: float | None = None
    """Share of the consumers' time spent in functions over the last minute, 0 to 1."""
    attention: tuple[Attention, ...] = ()
    attention_total: int = 0
    marks: tuple[Mark, ...] = ()
    queues: tuple[QueueStats, ...] = ()
    totals: QueueStats = field(default_factory=lambda: QueueStats("total", QueueState.TOTAL, Counts()))
    queues_by_state: Mapping[str, int] = field(default_factory=dict)
    runs: tuple[RunStats, ...] = ()
    """A run that waits only for a stuck document has no estimate."""
    consumers: tuple[ConsumerStats, ...] = ()
    median_units_rate: float | None = None
    unacked: Unacked = field(default_factory=Unacked)
    failures: Failures = field(default_factory=Failures)
    storage: StorageStats = field(default_factory=StorageStats)
    queues_total: int = 0
    runs_total: int = 0
    consumers_total: int = 0
    resting: tuple[str, ...] = ()
    """Queues in the store, where none is open yet."""
    schema: int = SCHEMA

    def run(self, name: str) -> RunStats | None:
        """Return one run by name, or None."""
        return next((run for run in self.runs if run.name == name), None)

    @property
    def own_run(self) -> RunStats | None:
        """The run that it was asked for with, or None."""
        own = (self.of_queue, self.of_run)
        return next((run for run in self.runs if (run.queue, run.name) == own), None)

    def queue(self, name: str) -> QueueStats | None:
        """Return one queue by name, or None."""
        return next((queue for queue in self.queues if queue.name == name), None)

    @property
    def deepest(self) -> int:
        """Most messages that are ready, delayed or leased in one listed queue."""
        return max((queue.counts.left for queue in self.queues), default=0)

    @property
    def dead_queues(self) -> int:
        """Listed queues with dead messages."""
        return sum(queue.counts.dead > 0 for queue in self.queues)

    @property
    def most_dead(self) -> QueueStats | None:
        """The queue that has more than half of the dead messages, or None."""
        worst = max(self.queues, key=lambda queue: queue.counts.dead, default=None)
        return worst if worst is not None and 2 * worst.counts.dead > self.totals.counts.dead > 0 else None

    @property
    def fastest_units_rate(self) -> float:
        """Speed of the fastest listed consumer, pages per second."""
        return max((consumer.units_rate or 0.0 for consumer in self.consumers), default=0.0)

    @property
    def slow_consumers(self) -> int:
        """Consumers under a third of the median speed."""
        # Only listed consumers count, and that is enough: the slowest are always listed.
        return sum(consumer.slow for consumer in self.consumers)

    @property
    def consumer_troubles(self) -> str:
        """How many consumers are silent, stuck and slow, as in "1 stuck, 2 slow"."""
        amounts = Counter(consumer.trouble for consumer in self.consumers)
        return ", ".join(f"{amounts[word]:,} {word}" for word in ("silent", "stuck", "slow") if amounts[word])

    @property
    def working_share(self) -> float | None:
        """Share of all consumers' time spent in functions over the last minute, 0 to 1, running ones too."""
        if self.busy_share is None:
            return None
        known = ((consumer.idle_share, consumer.busy_share) for consumer in self.consumers)
        # Calls that have not ended are reported only as ages: idle_share has them, busy_share has not.
        unreported = sum(1.0 - idle - busy for idle, busy in known if idle is not None and busy is not None)
        return min(1.0, self.busy_share + unreported / max(1, self.consumers_total, len(self.consumers)))

    @property
    def idle_share(self) -> float | None:
        """Share of all consumers' time spent waiting for work over the last minute, 0 to 1."""
        return None if self.working_share is None else 1.0 - self.working_share

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        # `plain` leaves out fields at their default, but a reader of another version needs the schema.
        return {**plain(self), "schema": self.schema}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Snapshot:
        """Rebuild a Snapshot from `to_dict`."""
        return from_plain(cls, data)


T = TypeVar("T")


def plain(value: Any) -> Any:
    """Return dataclasses as JSON-ready data without fields at their default, with floats to four places."""
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if not dataclasses.is_dataclass(value):
        return value
    data = {}
    kind: Any = type(value)
    for name, default in _defaults(kind):
        each = getattr(value, name)
        if each != default:
            # Most fields are simple, and skip the call of `plain`: a lab sends a snapshot with each change.
            kind_of_each = type(each)
            data[name] = round(each, 4) if kind_of_each is float else each if kind_of_each in _SIMPLE else plain(each)
    return data


def from_plain(kind: type[T], data: Mapping[str, Any]) -> T:
    """Rebuild a dataclass from the data that `plain` made of it."""
    made: Any = kind
    builders = _builders(made)
    return kind(**{name: builders[name](value) for name, value in data.items() if name in builders})


_SIMPLE = frozenset({int, str, bool, NoneType})
_MISSING = object()


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    found = []
    for each in dataclasses.fields(kind):
        if each.default is not dataclasses.MISSING:
            default = each.default
        elif each.default_factory is not dataclasses.MISSING:
            default = each.default_factory()
        else:
            default = _MISSING
        found.append((each.name, default))
    return tuple(found)


@cache
def _builders(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: _builder(hints[each.name]) for each in dataclasses.fields(kind)}


def _builder(hint: Any) -> Any:
    """Return the function that makes a value of a field's type from plain data."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        # The only unions here are `X | None`.
        inner = _builder(next(argument for argument in arguments if argument is not NoneType))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        inner = _builder(arguments[0])
        return lambda values: tuple(map(inner, values))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda value: from_plain(hint, value)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return lambda value: hint[value.upper()]
    return hint if isinstance(hint, type) and issubclass(hint, StrEnum) else lambda value: value


MAX_POINTS = 360
"""Most points of one series; the step grows with the span."""


QUIET = 5.0
"""Seconds without a new message after which the net rate is measured from these seconds alone."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures beside a history's lines, each None where nothing is known."""

    waiting: float | None = None
    """Messages ready or delayed."""
    unacked: float | None = None
    """Messages leased."""
    in_rate: float | None = None
    """Messages put per second."""
    out_rate: float | None = None
    """Messages settled per second."""
    failure_rate: float | None = None
    """Deliveries that failed, per second."""


@dataclass(frozen=True, slots=True)
class History(SuggestsAttributes):
    """Series over one span of time for one queue, one run or all queues, None where nothing is known."""

    # Points stand at ``t0 + i * step``, and the last one is now.
    t0: float
    """Seconds since 1970 UTC of the first point."""
    step: float
    """Seconds between points."""
    queue: str = ""
    run: str = ""
    ready: tuple[float | None, ...] = ()
    delayed: tuple[float | None, ...] = ()
    leased: tuple[float | None, ...] = ()
    dead: tuple[float | None, ...] = ()
    in_rate: tuple[float | None, ...] = ()
    """Messages put per second."""
    out_rate: tuple[float | None, ...] = ()
    """Messages settled per second."""
    failure_rate: tuple[float | None, ...] = ()
    """Deliveries that failed, per second."""
    units_left: tuple[float | None, ...] = ()
    """Pages or bytes left of the run that was asked for, in its unit; documents where neither is known."""
    live: tuple[float | None, ...] = ()
    garbage: tuple[float | None, ...] = ()
    """Bytes on disk, `live` and `garbage`."""
    consumers: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Pages per second by consumer; by worker where there are more than 32 consumers."""
    idle: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Idle share by the same names, 0 to 1."""
    classes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Deliveries that failed in each minute, by fingerprint; the last minute last, at most 120 of them."""
    depths: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Messages waiting by queue, one point a minute over the last half hour; only where all queues were asked for."""
    marks: tuple[Mark, ...] = ()
    """What people did in this span."""
    now: Figures = Figures()
    """The figures of the snapshot at the same instant."""
    most: Figures = Figures()
    """The largest values in this span, also rates by the second, whatever the step; failures by the minute. The
    span begins with a whole minute."""

    @property
    def times(self) -> list[float]:
        """Seconds since 1970 UTC of each point."""
        return [self.t0 + self.step * at for at in range(len(self.ready))]

    @property
    def end(self) -> float:
        """Seconds since 1970 UTC of the last point."""
        return self.t0 + self.step * max(0, len(self.ready) - 1)

    def since_known(self) -> History:
        """Return the same history from the first point with a known value."""
        first = next((at for at, value in enumerate(self.ready) if value is not None), 0)
        if not first:
            return self
        # Series of another length (`classes`, `depths`) have minutes of their own, and stay whole.
        points = len(self.ready)

        def cut(series: Any) -> Any:
            if isinstance(series, tuple):
                return series[first:] if len(series) == points else series
            return {name: each[first:] if len(each) == points else each for name, each in series.items()}

        names = [each.name for each in fields(self) if isinstance(getattr(self, each.name), tuple)]
        rest = {name: cut(getattr(self, name)) for name in (*names, "consumers", "idle") if name != "marks"}
        return replace(self, t0=self.t0 + first * self.step, **rest)

    def net_rate(self, over: float = 20.0) -> tuple[float, float] | None:
        """Return messages put less those settled, per second, and the seconds this covers, or None if unknown."""
        points = max(1, math.ceil(over / self.step))
        last = zip(self.in_rate[-points:], self.out_rate[-points:], strict=False)
        known = [(put, settled) for put, settled in last if put is not None and settled is not None]
        if not known:
            return None
        # After a batch that arrived at once the queue gets shorter: seconds before its last message would hide that.
        quiet = next((at for at, (put, _) in enumerate(reversed(known)) if put), len(known))
        if quiet * self.step >= QUIET:
            known = known[-quiet:]
        return sum(put - settled for put, settled in known) / len(known), len(known) * self.step

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        data: dict[str, Any] = plain(self)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> History:
        """Rebuild a History from `to_dict`."""
        return from_plain(cls, data)
