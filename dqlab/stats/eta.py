"""Estimate when a run will end: pages left over the speed by pages, and a band around it.

A document of `p` pages takes about ``v p`` seconds of a slot. The speed ``1 / v`` is the ratio of all pages and all
seconds so far; the spread is the variance that pages do not explain. Both come from sums that settlements bring. Where
documents take about as long whatever pages, or bytes, they have, each document counts as one page instead.

Two things make the end uncertain. First the work that is left: the spread of its documents, and the error of the speed
(the ratio estimator: Cochran, *Sampling Techniques*, 1977, ch. 6). Second the last documents: when nothing waits any
more, each slot still runs one, and the run ends with the longest of them. Their durations are taken as log-normal, with
the mean and variance seen so far; the number of documents that outlast an instant is about Poisson distributed.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import add, attrgetter
from statistics import NormalDist
from typing import Self

from dqlab.stats.runs import Eta

MIN_DOCUMENTS, MIN_SECONDS = 5, 2.0
"""Documents settled and seconds passed before an estimate is shown."""
START = 1.0
"""Error of a young run's estimate, in seconds of work: its start may have cost or spared as much."""
UNREST = 60.0, 0.05
"""An estimate moves when its middle moved by more than so many seconds, or by this share of the time left."""
SHARPER = 0.7
"""It also moves when its band has become narrower than this share of what it was."""
REVISE_AFTER, REVISE_NEAR = 5.0, 0.1
"""Seconds between two revisions, or this share of the time left where that is less, but at least 1 s."""


BETTER = 2.0
"""Documents replace pages when the spread around pages is more than so many times the spread around documents."""
WIDEST = 1.5
"""Largest deviation of the logarithm of the work left: above, its median would approach zero, and views would show
"Done in 0 s" where nothing is known."""
TAIL, RUNNING = 2.0, 0.7
"""How much larger than seen the variance of the last documents is taken to be, and the share of it that is assumed for
documents that run now. With these values the end lay in the band in 84 % of simulated runs, with 1 and 1 in 78 %."""


@dataclass(slots=True)
class Effort:
    """Sums over the settlements of a run; a settlement has `n` documents, `p` pages and `t` seconds in functions."""

    batches: int = 0
    """Settlements."""
    documents: int = 0
    seconds: float = 0.0
    """Sum of `t`."""
    units: float = 0.0
    """Sum of `p`."""
    tt: float = 0.0
    """Sum of ``t * t / n``."""
    tp: float = 0.0
    """Sum of ``t * p / n``."""
    pp: float = 0.0
    """Sum of ``p * p / n``."""

    def add(self, seconds: float, units: float, documents: int) -> None:
        """Add one settlement of at least one document."""
        self.batches += 1
        self.documents += documents
        self.seconds += seconds
        self.units += units
        self.tt += seconds * seconds / documents
        self.tp += seconds * units / documents
        self.pp += units * units / documents

    def __add__(self, other: Effort) -> Effort:
        return Effort(*map(add, _SUMS(self), _SUMS(other)))

    @classmethod
    def of(cls, sums: list[float]) -> Self:
        """Rebuild an effort from the list of its sums."""
        batches, documents, *rest = sums
        return cls(int(batches), int(documents), *rest)

    def to_list(self) -> list[float]:
        """Return its sums."""
        return list(_SUMS(self))

    @property
    def mean(self) -> float | None:
        """Seconds of a slot per document, None before the first one ends."""
        return self.seconds / self.documents if self.documents else None

    @property
    def cost(self) -> float:
        """Seconds of a slot per page."""
        return self.seconds / self.units if self.units else 0.0

    @property
    def spread(self) -> float:
        """Variance of a document's seconds around the cost of its pages."""
        return self._variance(self.cost, self.tp, self.pp)

    @property
    def by_documents(self) -> Effort:
        """The same effort as if each document had one page."""
        documents = float(self.documents)
        return replace(self, units=documents, tp=self.seconds, pp=documents)

    @property
    def variation(self) -> float:
        """Squared coefficient of variation of a document's seconds, for any number of pages."""
        mean = self.mean or 0.0
        return self._variance(mean, self.seconds, float(self.documents)) / (mean * mean) if mean else 0.0

    def _variance(self, cost: float, cross: float, square: float) -> float:
        if self.batches < 2:
            return 0.0
        # The sum of ``(t - cost * p) ** 2 / n``, expanded: only the sums of all settlements are kept.
        return max(0.0, self.tt - 2 * cost * cross + cost * cost * square) / (self.batches - 1)


# In the order of the fields, which `of` and `to_list` have.
_SUMS = attrgetter("batches", "documents", "seconds", "units", "tt", "tp", "pp")


# `units` and `documents`: what is left, running ones included. `slots`: seconds in functions per second, now.
def estimate(effort: Effort, *, units: float, documents: int, slots: float, at: float) -> Eta | None:
    """Estimate when a run will end, or return None when too little is known or no consumer works."""
    if effort.documents < MIN_DOCUMENTS or effort.units <= 0 or effort.seconds <= 0 or slots <= 0.01 or documents < 1:
        return None
    if BETTER * effort.by_documents.spread < effort.spread:
        effort, units = effort.by_documents, documents
    # In stores of earlier versions a document may weigh nothing.
    units = max(units, 1.0)
    work = effort.cost * units
    of_rest = documents * effort.spread
    of_speed = units * units * effort.documents * effort.spread / (effort.units * effort.units)
    # The largest of many is seldom among the first few, so the variance of heavy tails is seen too small at first.
    unseen = 1 + 4 / math.sqrt(effort.batches)
    of_start = (START * slots / max(effort.seconds, START * slots)) ** 2 / 2
    deviation = min(WIDEST, math.sqrt(math.log1p((of_rest + of_speed) * unseen / (work * work) + of_start)))
    last = _Last(work / documents, effort.variation * unseen)
    ends = [
        # Less half of the variance, so that the mean of the log-normal distribution is `work`.
        last.ends(work * math.exp(deviation * z - deviation * deviation / 2) / slots, min(slots, documents))
        for z in _NODES
    ]
    # An upper end for the search: far beyond the last document even with a heavy tail.
    latest = 2 * max(empty for empty, _ in ends) + 100 * last.mean * (1 + last.bias)
    p10, p50, p90 = (_inverse(lambda x: sum(end(x) for _, end in ends) / len(ends), p, latest) for p in (0.1, 0.5, 0.9))
    return Eta(at + p10, at + p50, at + p90)


def with_stuck(eta: Eta | None, ages: Sequence[float], *, at: float) -> Eta | None:
    """Return an estimate that allows for documents held for `ages` seconds, unlike all others."""
    if eta is None or not ages:
        return eta
    # Only the age of a stuck document is known. By it alone, the rest takes as long again in half of the cases, at most
    # a ninth in one of ten, and at most nine times as long in nine of ten.
    age = max(ages)
    return Eta(max(eta.p10, at + age / 9), max(eta.p50, at + age), max(eta.p90, at + 9 * age))


_NODES = tuple(NormalDist().inv_cdf((2 * node + 1) / 18) for node in range(9))
"""Values of a normal distribution that each stand for a ninth of it."""


class _Last:
    """Durations of documents as a log-normal distribution with a mean and a squared coefficient of variation."""

    def __init__(self, mean: float, variation: float) -> None:
        self.mean, self.bias = mean, RUNNING * variation
        self._sigma = math.sqrt(math.log1p(TAIL * variation))

    def excess(self, seconds: float) -> float:
        """Return the mean time that documents take beyond some seconds, as a share of their mean time."""
        if seconds <= 0 or self._sigma < 1e-6:
            return max(0.0, 1 - max(0.0, seconds) / self.mean)
        d = math.log(self.mean / seconds) / self._sigma + self._sigma / 2
        return _normal(d) - seconds / self.mean * _normal(d - self._sigma)

    # `busy`: seconds of work left for each slot, with all that it runs now. `running`: documents that run together.
    def ends(self, busy: float, running: float) -> tuple[float, Callable[[float], float]]:
        """Return when nothing waits any more, and the probability of the end by an instant, both from now."""
        # Documents that run at an instant are longer than the mean: a long document is likelier to be running.
        empty = max(0.0, busy - self.mean * (1 + self.bias))
        return empty, lambda x: 0.0 if x < empty else math.exp(-running * self.excess(x - empty))


def _normal(value: float) -> float:
    return 0.5 * math.erfc(-value / math.sqrt(2))


def _inverse(probability: Callable[[float], float], wanted: float, latest: float) -> float:
    """Return where a growing probability reaches `wanted`, searching from 0 to `latest`."""
    low, high = 0.0, latest
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle) < wanted else (low, middle)
    return high


class Steady:
    """Keep an estimate where it is until it is clearly wrong, so that people can read it."""

    def __init__(self) -> None:
        self._shown: Eta | None = None
        self._looked = -math.inf

    def show(self, new: Eta | None, *, at: float) -> Eta | None:
        """Return the estimate to show, and none where there is no new one."""
        if new is None or self._shown is None:
            self._shown, self._looked = new, at
            return new
        if at - self._looked >= min(REVISE_AFTER, max(1.0, REVISE_NEAR * (new.p50 - at))):
            self._looked = at
            seconds, share = UNREST
            sharper = new.p90 - new.p10 < SHARPER * (self._shown.p90 - self._shown.p10)
            moved = abs(new.p50 - self._shown.p50) > min(seconds, share * max(0.0, new.p50 - at))
            if moved or sharper or self._shown.p50 <= at:
                self._shown = new
        return self._shown


def typical(effort: Effort) -> float:
    """Return the seconds in which 95 of 100 documents are done, if their durations are log-normal."""
    if not effort.documents or not effort.seconds:
        return 0.0
    sigma = math.sqrt(math.log1p(effort.variation))
    return effort.seconds / effort.documents * math.exp(1.645 * sigma - sigma * sigma / 2)
