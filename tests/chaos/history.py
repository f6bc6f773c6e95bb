"""All that is known of a round when it is over: what really happened, and what dqlab says happened."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.chaos.plan import Load, QueuePlan
from tests.chaos.truth import Confirmed, Execution, Taking

__all__ = ["CellEnd", "Closing", "History", "Left", "PutsEnd", "Refusal", "RunEnd", "Unrest"]


@dataclass
class RunEnd:
    """How a run ended.

    Attributes
    ----------
    results : list of (int, str)
        Ordinals, and what is passed on of the values (`functions.told`), as `run.results` has them.
    stream : list of (int, str)
        The same as `run.as_completed` has them.
    counts : list of int
        Messages by state, as `run.counts` says.
    shown : list of int
        The same as the statistics say.
    rows : list of (int, str)
        Results as the files of the run's sink have them.
    """

    load: Load
    results: list[tuple[int, str]] = field(default_factory=list)
    stream: list[tuple[int, str]] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    shown: list[int] | None = None
    rows: list[tuple[int, str]] | None = None


@dataclass
class PutsEnd:
    """How that ended which was put by hand into a queue; `given`: numbers below that were tried to be put."""

    queue: QueuePlan
    given: int = 0
    results: list[tuple[int, str]] = field(default_factory=list)
    """Numbers, and what is passed on of the values."""
    dead: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """Messages by state of the whole queue."""
    shown: list[int] | None = None
    passing: list[tuple[int, int]] = field(default_factory=list)
    """Numbers [lo, hi) that cells submitted, and no variable holds: their results go with the cell."""

    @property
    def source(self) -> str:
        """What stands in the keys of its messages."""
        return f"by-hand-{self.queue.name}"


@dataclass
class Left:
    """What was left behind when all queues were closed, and then all processes told to go."""

    processes: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    descriptors: int = 0
    logs: list[str] = field(default_factory=list)
    """Directories of towns with logs of transient queues."""
    findings: list[str] = field(default_factory=list)
    """What a check of the store's files finds."""


@dataclass(frozen=True)
class Refusal:
    """An error that answered an order; `typed`: one of dqlab's own, or what Dask promises; `at`: monotonic seconds."""

    what: str
    name: str
    text: str
    typed: bool
    at: float


@dataclass
class Unrest:
    """From when to when an act hurt something, monotonic seconds."""

    began: float
    ended: float = math.inf


@dataclass(frozen=True)
class CellEnd:
    """What a cell got that was interrupted, and then run again.

    Attributes
    ----------
    what : str
        One of `plan.CELLS`.
    source : str
        What stands in the keys of its messages.
    lo, hi : int
        Their numbers are [lo, hi).
    got : list of (int, str)
        Numbers, and what is passed on of the values.
    """

    what: str
    source: str
    kind: str
    lo: int
    hi: int
    got: list[tuple[int, str]]


@dataclass
class Closing:
    """From when to when a client closed a queue for everybody, until all had opened it again; monotonic seconds."""

    queue: str
    began: float
    ended: float = math.inf


@dataclass
class History:
    """One round."""

    runs: list[RunEnd] = field(default_factory=list)
    puts: list[PutsEnd] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    confirmed: list[Confirmed] = field(default_factory=list)
    takings: list[Taking] = field(default_factory=list)
    left: Left = field(default_factory=Left)
    refused: list[Refusal] = field(default_factory=list)
    unrest: list[Unrest] = field(default_factory=list)
    cells: list[CellEnd] = field(default_factory=list)
    closed: list[Closing] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What failed of the harness itself."""

    def queue(self, name: str) -> QueuePlan:
        """Return a queue by its name."""
        return next(puts.queue for puts in self.puts if puts.queue.name == name)
