"""The Snapshot: everything at one instant, as every view draws it.

Views format what they find here and compute nothing. A Snapshot is frozen, carries `schema`, and turns into JSON and
back unchanged: fields that are at their default are left out, unknown ones are passed over.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from dqlab.keywords import SuggestsAttributes
from dqlab.stats.counts import Counts, QueueState
from dqlab.stats.queues import ConsumerStats, QueueStats, StorageStats, Unacked
from dqlab.stats.runs import ClassStats, RunStats

__all__ = [
    "MAX_ATTENTION",
    "MAX_CLASSES",
    "MAX_CONSUMERS",
    "MAX_DETAILED_QUEUES",
    "MAX_MARKS",
    "MAX_QUEUES",
    "MAX_RUNS",
    "SCHEMA",
    "Attention",
    "FailingDocument",
    "Failures",
    "Mark",
    "Severity",
    "Snapshot",
    "from_plain",
    "plain",
]

SCHEMA = 1
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
    """How bad something is, in alerts and in what the doctor finds; plain data has its name, in small letters."""

    OK = 0
    """What was checked is as it should be."""
    NOTE = 1
    """Worth knowing."""
    WARNING = 2
    """It works, and costs speed or safety."""
    PROBLEM = 3
    """Something does not work, or will not."""


class AttentionKind(StrEnum):
    """Which rule found that something needs a user; see `dqlab.stats.attention`."""

    STOPPED = "stopped"
    NO_CONSUMER = "no-consumer"
    NO_ANSWER = "no-answer"
    SILENT = "silent"
    STORE = "store"
    NO_ROOM = "no-room"
    SINK = "sink"
    REFUSED = "refused"
    LOST = "lost"
    MISSING = "missing"
    LEASE_ENDS = "lease-ends"
    HELD = "held"
    SLOW = "slow"
    FAILING = "failing"
    PUT_OFF = "put-off"
    PUTS_WAIT = "puts-wait"
    GROWING = "growing"
    LAG = "lag"
    LEAVING = "leaving"
    AT_REST = "at-rest"
    OTHER = ""
    """A newer dqlab on the scheduler has found it; its own words are shown."""

    @classmethod
    def _missing_(cls, value: object) -> AttentionKind:
        return cls.OTHER


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing that needs a user, in words: ``subject`` comes first in bold, then `text`, with `detail` below.

    Attributes
    ----------
    kind : AttentionKind
        Which rule found it.
    action : str
        What to do: the name of a command (``retry``, ``resume``, ``scale``, ``show``, ``compact``), or "".
    queue, run : str
        Where; "" when that has no meaning.
    target : str
        What the command is about: a failure class's fingerprint, a consumer.
    amount : int
        How many documents, leases or puts are concerned; 0 when that has no meaning.
    """

    severity: Severity
    kind: AttentionKind
    subject: str
    text: str
    detail: str = ""
    action: str = ""
    queue: str = ""
    run: str = ""
    target: str = ""
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """Something a person did: when (seconds since 1970 UTC), in which cell, what, to which queue."""

    at: float
    text: str
    cell: int | None = None
    queue: str = ""


@dataclass(frozen=True, slots=True)
class FailingDocument:
    """A document that failed often: its key, its last error, pages, and how many of `limit` deliveries raised."""

    key: str
    error: str
    deliveries: int
    limit: int
    pages: int | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class Failures:
    """Why documents failed. Counts are messages and exact; `classes` are the largest eight.

    Attributes
    ----------
    per_minute : int
        Deliveries that failed in the last minute.
    """

    dead: int = 0
    retrying: int = 0
    per_minute: int = 0
    classes_total: int = 0
    classes: tuple[ClassStats, ...] = ()
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
    """Everything at one instant.

    Caps: 100 queues (those past 20 have counts, state and rates alone), 20 runs, the 32 slowest consumers, 8 failure
    classes; totals are exact and over all. `unacked`, `consumers`, `failures` and `storage` are those of `of_queue` and
    `of_run`, when the Snapshot was asked for with one. A run that waits for a stuck document alone has no estimate.

    Attributes
    ----------
    at : float
        Seconds since 1970 UTC.
    seq : int
        Grows by one with each change; ask with it to wait for the next.
    busy_share : float or None
        Share of the consumers' time spent in functions over the last minute, 0 to 1.
    units : str
        What `units_rate` of consumers counts: "pages" or "documents".
    resting : tuple of str
        Queues in the store, where none is open yet.
    """

    at: float
    seq: int
    lab: str = ""
    store: str = ""
    workers: int = 0
    of_queue: str = ""
    of_run: str = ""
    units: str = "documents"
    busy_share: float | None = None
    attention: tuple[Attention, ...] = ()
    attention_total: int = 0
    marks: tuple[Mark, ...] = ()
    queues: tuple[QueueStats, ...] = ()
    totals: QueueStats = field(default_factory=lambda: QueueStats("total", QueueState.TOTAL, Counts()))
    queues_by_state: Mapping[str, int] = field(default_factory=dict)
    runs: tuple[RunStats, ...] = ()
    consumers: tuple[ConsumerStats, ...] = ()
    median_units_rate: float | None = None
    unacked: Unacked = field(default_factory=Unacked)
    failures: Failures = field(default_factory=Failures)
    storage: StorageStats = field(default_factory=StorageStats)
    queues_total: int = 0
    runs_total: int = 0
    consumers_total: int = 0
    resting: tuple[str, ...] = ()
    schema: int = SCHEMA

    def run(self, name: str) -> RunStats | None:
        """Return one run by name, or None."""
        return next((run for run in self.runs if run.name == name), None)

    def queue(self, name: str) -> QueueStats | None:
        """Return one queue by name, or None."""
        return next((queue for queue in self.queues if queue.name == name), None)

    @property
    def deepest(self) -> int:
        """Most messages that are ready, delayed or leased in one listed queue."""
        return max((queue.counts.left for queue in self.queues), default=0)

    @property
    def endless(self) -> tuple[str, ...]:
        """Names of the listed queues that hold messages and have no estimate; those listed in short are left out."""
        listed = self.queues[:MAX_DETAILED_QUEUES]
        return tuple(queue.name for queue in listed if queue.counts.left and queue.empty_in is None)

    @property
    def dead_queues(self) -> int:
        """Listed queues with dead messages."""
        return sum(queue.counts.dead > 0 for queue in self.queues)

    @property
    def most_dead(self) -> QueueStats | None:
        """The queue that has most of the dead messages, or None."""
        worst = max(self.queues, key=lambda queue: queue.counts.dead, default=None)
        return worst if worst is not None and 2 * worst.counts.dead > self.totals.counts.dead > 0 else None

    @property
    def fastest_units_rate(self) -> float:
        """Speed of the fastest listed consumer, pages per second."""
        return max((consumer.units_rate or 0.0 for consumer in self.consumers), default=0.0)

    @property
    def slow_consumers(self) -> int:
        """Listed consumers under a third of the median speed; the slowest are always listed."""
        return sum(consumer.slow for consumer in self.consumers)

    @property
    def consumer_troubles(self) -> str:
        """How many consumers are silent, stuck and slow: "1 stuck, 2 slow"; the slowest are always listed."""
        amounts = Counter(consumer.trouble for consumer in self.consumers)
        return ", ".join(f"{amounts[word]:,} {word}" for word in ("silent", "stuck", "slow") if amounts[word])

    @property
    def working_share(self) -> float | None:
        """Share of all consumers' time spent in functions over the last minute, 0 to 1, unended ones too."""
        if self.busy_share is None:
            return None
        known = ((each.idle_share, each.busy_share) for each in self.consumers)
        unreported = sum(1.0 - idle - busy for idle, busy in known if idle is not None and busy is not None)
        return min(1.0, self.busy_share + unreported / max(1, self.consumers_total, len(self.consumers)))

    @property
    def idle_share(self) -> float | None:
        """Share of all consumers' time spent waiting for work over the last minute, 0 to 1."""
        return None if self.working_share is None else 1.0 - self.working_share

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        return {**plain(self), "schema": self.schema}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Snapshot:
        """Rebuild a Snapshot from `to_dict`."""
        return from_plain(cls, data)


T = TypeVar("T")


def plain(value: Any) -> Any:
    """Return dataclasses as JSON-ready data, without the fields that are at their default; floats to four places."""
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
            kind_of_each = type(each)
            data[name] = round(each, 4) if kind_of_each is float else each if kind_of_each in _SIMPLE else plain(each)
    return data


def from_plain(kind: type[T], data: Mapping[str, Any]) -> T:
    """Return the dataclass that `plain` made data of."""
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
    """Return what makes a value of a field's type from plain data."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        inner = _builder(next(each for each in arguments if each is not NoneType))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        inner = _builder(arguments[0])
        return lambda values: tuple(map(inner, values))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda value: from_plain(hint, value)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return lambda value: hint[value.upper()]
    return hint if isinstance(hint, type) and issubclass(hint, StrEnum) else lambda value: value
