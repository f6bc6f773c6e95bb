"""Numbers as they are reported: several runs, a target, peers, and what follows from them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Better", "Figure", "Peer", "Series", "Target", "Verdict", "ratios"]


class Better(Enum):
    """Which way a figure should go."""

    HIGHER = "higher"
    LOWER = "lower"


class Verdict(Enum):
    """How a figure stands to its target."""

    AIM = "aim reached"
    FLOOR = "floor held"
    MISSED = "MISSED"
    NONE = ""


@dataclass(frozen=True)
class Series:
    """One value of each run, in the order of the runs."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Series:
        """Return the series of these values; at least one."""
        if not values:
            raise ValueError("a series has at least one value")
        return cls(tuple(values))

    @property
    def median(self) -> float:
        """What is reported and judged."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The smallest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest value."""
        return max(self.values)


@dataclass(frozen=True)
class Target:
    """Where a figure has to get.

    Attributes
    ----------
    floor : float
        The least that is accepted; missing it fails a full run.
    aim : float or None
        What is hoped for.
    """

    floor: float
    aim: float | None = None


@dataclass(frozen=True)
class Peer:
    """Somebody else's values of the same figure, from the same rounds."""

    name: str
    series: Series


@dataclass(frozen=True)
class Figure:
    """One line of the report, with its peers below it.

    Attributes
    ----------
    name : str
        What was measured, with the size it was measured at.
    unit : str
        "msg/s", "ms", "x", ...
    target : Target or None
        None: for information.
    """

    name: str
    unit: str
    better: Better
    ours: Series
    target: Target | None = None
    peers: tuple[Peer, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """How the median stands to the target."""
        if self.target is None:
            return Verdict.NONE
        if self.target.aim is not None and self._reaches(self.target.aim):
            return Verdict.AIM
        return Verdict.FLOOR if self._reaches(self.target.floor) else Verdict.MISSED

    def times_better(self, peer: Peer) -> float:
        """Return how many times better our median is than the peer's; below 1: it is worse."""
        ours, theirs = self.ours.median, peer.series.median
        over, under = (ours, theirs) if self.better is Better.HIGHER else (theirs, ours)
        return over / under if under else float("inf")

    def _reaches(self, limit: float) -> bool:
        median = self.ours.median
        return median >= limit if self.better is Better.HIGHER else median <= limit


def ratios(over: Series, under: Series) -> Series:
    """Return the ratio of each round's two values; a series that ended earlier sets the number of rounds."""
    return Series.of([a / b for a, b in zip(over.values, under.values, strict=False)])
