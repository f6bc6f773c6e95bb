"""Reports of one shard about its leases and one lane, as absolute totals for the collector and for waiting clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

from dqlab.failures.classes import FailureClass
from dqlab.stats.counts import StopReason
from dqlab.stats.eta import Effort
from dqlab.stats.runs import Spending


class CodeName(NamedTuple):
    """A code version as views name it."""

    name: str
    """Name of its function."""
    short: str
    """Short hash."""
    cell: int | None = None
    """Number of its cell in the notebook."""
    note: str = ""
    """What the retry was for that brought it."""


class Failing(NamedTuple):
    """A document that failed and was not acked since."""

    key: str
    error: str
    exceptions: int
    """How many of its deliveries raised."""
    pages: int | None


class HeldFor(NamedTuple):
    """Messages that were leased in the same second."""

    age: float
    """Seconds since then."""
    left: float
    """Seconds until the first of their leases ends."""
    timeout: float
    messages: int


class HeldLease(NamedTuple):
    """A lease that has been held for `age` seconds and ends in `left`."""

    consumer: str
    age: float
    left: float
    messages: int
    renewals: int
    delivery: int
    """How often its message was delivered, where it has one."""
    run: bytes = b""


@dataclass(slots=True, kw_only=True)
class LaneReport:
    """One lane, which is a run in one shard, or its plain puts."""

    # Times are seconds since 1970 UTC, durations seconds. Only the shard with the run's record knows `name`, and each
    # field that is None or empty by default.
    run: str
    """Id in hex digits."""
    name: str | None = None
    code: CodeName | None = None
    codes: list[tuple[str, str]] = field(default_factory=list)
    """Name and short hash of each code version, first to newest."""
    blobs: dict[str, int] = field(default_factory=dict)
    """Number of the version that each function is of, from 1, by its hash in hex digits."""
    runs: list[str] = field(default_factory=list)
    """Functions that documents which are not settled will run, in hex digits."""
    owner: str = ""
    acked_by: dict[str, int] = field(default_factory=dict)
    """Acked messages by the function that they ran, in hex digits."""
    counts: list[int]
    """Messages by state, in the order of `rules.states.State`."""
    missing: int = 0
    """Acked messages without a result: a defect."""
    units: list[int] | None = None
    revived: list[int] = field(default_factory=lambda: [0, 0])
    """Messages that were settled and are delivered again, and the sum of their weights; see `Lane.revived`."""
    unit: str = ""
    """Unit of these: "bytes"; "" for pages."""
    retrying: int = 0
    nbytes: int = 0
    paused: bool = False
    stopped: bool = False
    """Paused because no room was left for results."""
    halted: str = ""
    """Why it paused itself, in words."""
    halt: StopReason = StopReason.ALL_FAILED
    """The same as a value, while `halted` has words."""
    held: str = ""
    """Why its consumers cannot keep results at the moment."""
    pace: str = ""
    """How many calls its flow lets through, in words."""
    shut: str = ""
    """Why its flow lets nothing through at the moment, in words."""
    spending: Spending | None = None
    """None where nothing is spent, and nothing holds it back."""
    unable: str = ""
    """What no slot has that its messages need, as its shard's shell knows it."""
    stop_if: int | float | None = None
    stop_despite: bool = False
    sealed: bool = False
    total: int | None = None
    incomplete: str | None = None
    why: str = ""
    started: float = 0.0
    ended: float | None = None
    idle: float = 0.0
    classes: list[FailureClass] = field(default_factory=list)
    classes_total: int = 0
    failed: int = 0
    """Deliveries that ended in a failure."""
    failing: list[Failing] = field(default_factory=list)
    max_deliveries: int = 1
    effort: Effort = field(default_factory=Effort)

    def to_wire(self) -> dict[str, Any]:
        """Return plain data."""
        return plain(self) | {
            "code": None if self.code is None else self.code._asdict(),
            "classes": [each.to_dict() for each in self.classes],
            "effort": self.effort.to_list(),
            "spending": None if self.spending is None else plain(self.spending),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Return what `to_wire` was called on, without names that this version does not know."""
        # Lists are not copied: a report is absolute, and replaced as a whole.
        known = fields_of(cls, wire)
        code = known.get("code")
        known["code"] = None if code is None else CodeName(**code)
        known["codes"] = [(name, short) for name, short in known.get("codes", ())]
        known["classes"] = [FailureClass(**each) for each in known.get("classes", ())]
        known["failing"] = [Failing(*each) for each in known.get("failing", ())]
        known["halt"] = StopReason(known.get("halt", StopReason.ALL_FAILED))
        spending = known.get("spending")
        known["spending"] = None if spending is None else Spending(**fields_of(Spending, spending))
        known["effort"] = Effort.of(known["effort"]) if known.get("effort") else Effort()
        return cls(**known)


def plain(report: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, as they are."""
    return {each.name: getattr(report, each.name) for each in fields(report)}


def fields_of(kind: Any, wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a dataclass has fields for, from what another version of dqlab may have sent."""
    return {each.name: wire[each.name] for each in fields(kind) if each.name in wire}
