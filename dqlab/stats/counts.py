"""Count messages by state, and judge the state of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class RunState(StrEnum):
    """What a run is doing, in one word."""

    SUBMITTING = "submitting"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"
    """Work waits: no consumer exists, or the store can confirm nothing."""
    DONE = "done"
    FOLLOWING = "following"
    """Done, and a client looks for what is new every so often."""
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"
    """The input ended early; what was submitted continues."""
    STOPPED = "stopped"
    """Paused itself: no room for results, refused documents, or its first ones all failed; see `StopReason`."""


class QueueState(StrEnum):
    """What a queue is doing, in one word or two."""

    RUNNING = "running"
    KEEPING_UP = "keeping up"
    """Messages arrive, and none waits for long."""
    EMPTY = "empty"
    WAITING = "waiting"
    """Work waits: no consumer answers, its store can confirm nothing, or its runs are paused."""
    PAUSED = "paused"
    DRAINING = "draining"
    """It refuses puts."""
    TOTAL = ""
    """The sum over queues, which has no state."""


class StopReason(StrEnum):
    """Why a run paused itself."""

    ALL_FAILED = "all-failed"
    """Its first documents all failed."""
    REFUSED = "refused"
    """A storage refuses documents that it gave before."""
    CALLS_REFUSED = "calls-refused"
    """A service refuses calls until a user does something: a wrong key, or a quota that is used up."""
    BUDGET = "budget"
    """Its budget is spent."""
    UNMADE = "unmade"
    """Its class, or what `setup` names, could not be made on a consumer."""
    RESULTS_FULL = "results-full"
    """Its queue keeps as many bytes of results as it may."""

    @classmethod
    def _missing_(cls, value: object) -> StopReason:
        """Return the first reason for one of a newer version: the words beside it say more."""
        return cls.ALL_FAILED


class Blocked(StrEnum):
    """What a run that waits cannot get done."""

    RESULTS = "results"
    """To keep results: its sink refuses rows."""
    ANSWER = "answer"
    """To hear of its consumers: all are on workers that have been silent for too long."""
    NEEDS = "needs"
    """To be run: no consumer has the devices or resources that it needs."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages, pages or bytes, by state."""

    ready: int = 0
    delayed: int = 0
    leased: int = 0
    acked: int = 0
    dead: int = 0
    cancelled: int = 0
    lost: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.ready + other.ready,
            self.delayed + other.delayed,
            self.leased + other.leased,
            self.acked + other.acked,
            self.dead + other.dead,
            self.cancelled + other.cancelled,
            self.lost + other.lost,
        )

    @property
    def settled(self) -> int:
        """Acked, dead, cancelled or lost, so that nothing more will happen to them by itself."""
        return self.acked + self.dead + self.cancelled + self.lost

    @property
    def worked(self) -> int:
        """Acked or dead, which is what consumers have done."""
        return self.acked + self.dead

    @property
    def left(self) -> int:
        """Ready, delayed or leased."""
        return self.ready + self.delayed + self.leased

    @property
    def waiting(self) -> int:
        """Ready or delayed, also called the depth."""
        return self.ready + self.delayed

    @property
    def all(self) -> int:
        """Every message there is or was."""
        return self.settled + self.left

    @property
    def shares(self) -> dict[str, float]:
        """Each state's share of all, 0 to 1, by field name, or 0 for all when there is nothing."""
        total = self.all
        return {state: amount / total if total else 0.0 for state, amount in asdict(self).items()}


def run_state(
    counts: Counts,
    *,
    sealed: bool,
    incomplete: bool = False,
    cancelled: bool = False,
    paused: bool = False,
    stopped: bool = False,
    # `served`: a consumer of its queue answers. `blocked`: its store confirms nothing, or it is held up.
    served: bool = False,
    blocked: bool = False,
) -> RunState:
    """Judge what a run is doing from what its shards and consumers report."""
    if sealed and counts.left == 0:
        # `cancelled` matters where nothing was submitted yet: then no count shows the cancellation.
        if counts.cancelled or cancelled:
            return RunState.CANCELLED
        return RunState.INCOMPLETE if incomplete else RunState.DONE
    if stopped:
        return RunState.STOPPED
    if paused:
        return RunState.PAUSED
    if (counts.left and (blocked or not served)) or (blocked and not sealed):
        return RunState.WAITING
    return RunState.RUNNING if sealed else RunState.SUBMITTING


def sums(parts: Sequence[Any], *fields: str) -> dict[str, Any]:
    """Return the sums of some fields over parts, by name."""
    return {field: sum(getattr(part, field) for part in parts) for field in fields}


def total_counts(parts: Iterable[Counts]) -> Counts:
    """Sum counts over shards, lanes or queues."""
    return sum(parts, Counts())
