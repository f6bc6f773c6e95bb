"""Pieces shared by the pictures of runs and of queues, ready to be drawn: needs, consumers, leases, code, a chart."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = [
    "NO_DETAILS",
    "NO_PULSE",
    "Chart",
    "CodePane",
    "ConsumerRow",
    "Consumers",
    "Details",
    "Example",
    "HeldRow",
    "Leases",
    "Mark",
    "Need",
    "Pulse",
    "plain",
]


class Need(NamedTuple):
    """A line of what needs the user.

    `key` identifies it; `action` is the command of its button, and `label` the button's text; `pane` is
    the table that the button opens, unless it is `ready` to be carried out at once.
    """

    key: str
    tone: str
    icon: str
    subject: str
    text: str
    detail: str
    action: str = ""
    label: str = ""
    pane: str = ""
    queue: str = ""
    run: str = ""
    target: str = ""
    ready: bool = False


class ConsumerRow(NamedTuple):
    """One consumer; `fraction` is its speed beside the fastest one's, 0 to 1."""

    name: str
    worker: str
    fraction: float
    units_rate: str
    rate: str
    idle: str
    leased: str
    oldest: str
    memory: str
    error: str
    slow: bool
    document: str


@dataclass(frozen=True, slots=True)
class Consumers:
    """A table of consumers: how many there are, how many are slow, what its figures are."""

    title: str = ""
    slow: str = ""
    caption: str = ""
    unit: str = ""
    rows: tuple[ConsumerRow, ...] = ()
    more: str = ""


class HeldRow(NamedTuple):
    """Messages under one lease."""

    document: str
    consumer: str
    held: str
    ends_in: str
    renewals: str
    delivery: str
    late: bool


@dataclass(frozen=True, slots=True)
class Leases:
    """What consumers hold: the oldest, messages by age, and how leases ended."""

    title: str = ""
    summary: str = ""
    bins: tuple[tuple[str, int, bool], ...] = ()
    """Words for the age, messages, and whether that is beyond the visibility timeout."""
    rows: tuple[HeldRow, ...] = ()


@dataclass(frozen=True, slots=True)
class CodePane:
    """The function a run uses: version, where it is from, its source."""

    title: str = ""
    caption: str = ""
    text: str = ""


class Example(NamedTuple):
    """A document of a requested failure class."""

    document: str
    deliveries: str
    version: str
    traceback: str
    cell: str = ""
    """Opens it and calls the function with it."""


class Mark(NamedTuple):
    """Something a person did: seconds after the chart's start, the cell, what."""

    at: float
    cell: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A line over time, and its estimated course from now on.

    Attributes
    ----------
    title, label, empty : str
        `label` is the sentence for screen readers, `empty` stands in place of a line while there is none.
    step, now, end : float
        Seconds between values; seconds after the first value.
    values : tuple of int or None
    fan : tuple of float
        Where it reaches zero: early, probably, late; seconds after the first value. Empty when unknown.
    due, band : str
        The same as times of day.
    ticks : tuple of (float, str)
        Times of day below it.
    """

    title: str = ""
    label: str = ""
    empty: str = ""
    step: float = 1.0
    now: float = 0.0
    end: float = 0.0
    values: tuple[int | None, ...] = ()
    fan: tuple[float, ...] = ()
    due: str = ""
    band: str = ""
    ticks: tuple[tuple[float, str], ...] = ()
    marks: tuple[Mark, ...] = ()


class Pulse(NamedTuple):
    """Speed over a whole run in one line of block characters: what it is, the line, its scale."""

    title: str = ""
    line: str = ""
    scale: str = ""


NO_PULSE = Pulse()


@dataclass(frozen=True, slots=True)
class Details:
    """What stands below the figures of a run or a queue."""

    chart: Chart | None = None
    needs: tuple[Need, ...] = ()
    needs_total: int = 0
    consumers: Consumers | None = None
    leases: Leases | None = None
    code: CodePane | None = None
    examples: tuple[str, tuple[Example, ...]] | None = None
    """Fingerprint of the requested class, and documents of it."""

    def parts(self) -> dict[str, Any]:
        """Return plain JSON-ready data in parts, as widgets receive them."""
        return {
            "chart": plain(self.chart),
            "needs": plain({"total": self.needs_total, "rows": self.needs}),
            "consumers": plain(self.consumers),
            "leases": plain(self.leases),
            "code": plain(self.code),
            "examples": plain(self.examples),
        }


NO_DETAILS = Details()


def plain(value: Any) -> Any:
    """Return JSON-ready data: named tuples and dataclasses as objects, other tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, tuple | list):
        as_dict = getattr(value, "_asdict", None)
        return [plain(each) for each in value] if as_dict is None else plain(as_dict())
    if hasattr(value, "__dataclass_fields__"):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value
