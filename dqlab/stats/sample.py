"""Draws a few documents of many in one pass, and estimates sums and shares over all of them from what these few show.

Documents are cut by weight into strata that need about the same effort, and each stratum gives as many. Within a
stratum a sum is estimated by the ratio of values and weights (Cochran, *Sampling Techniques*, 1977, ch. 6), or by the
number of documents where weights do not explain the values. Documents that are read together, as rows of a row group,
are drawn together too: the variance is then that between groups (ch. 9).

The interval of a share is Wilson's, for as many documents as tell as much as the sample: strata and documents that are
read together change that number (Kish, *Survey Sampling*, 1965, ch. 8). Nothing found gives the exact upper bound.

The order in which documents are taken does not depend on their number: a larger sample contains a smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappush, heappushpop
from itertools import chain, islice, zip_longest
from random import Random
from statistics import NormalDist
from typing import Any

FEW = 10
"""Below so many documents, an interval is only the range of what was seen."""
LEVEL = 0.9
"""Probability with which an interval is to contain the true value."""
GROUPS, TOGETHER = 20, 3
"""Documents are drawn by groups where there are at least so many of these, so many of each."""
_STEPS = 4
"""Classes of weight for each doubling."""
_NAMES = ("",), ("small", "large"), ("small", "middle", "large")
BETTER = 2.0
"""Numbers of documents replace weights when the spread around weights is more than so many times larger."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A document that was drawn."""

    at: int
    """Its ordinal."""
    weight: int
    element: Any
    group: Hashable
    """Documents of one group are no independent observations."""
    mark: str = ""
    """Digest of the input up to this document."""
    stratum: int = 0


@dataclass(frozen=True, slots=True)
class Stratum:
    """All documents of the input whose weights are in one range."""

    count: int
    weight: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """The drawn documents, in the order of the input, and the strata that they stand for."""

    picks: tuple[Pick, ...]
    strata: tuple[Stratum, ...]
    total: int | None
    """Documents of the input, None where only its beginning was read."""
    groups: int = 0
    """Groups of the input, where documents were drawn by groups."""


class _Kept:
    """The candidates with the lowest numbers among those offered."""

    __slots__ = ("_heap", "_most", "count", "weight")

    def __init__(self, most: int) -> None:
        self.count = self.weight = 0
        self._heap: list[tuple[float, int, Any]] = []
        self._most = most

    def offer(self, number: float, weight: int) -> bool:
        """Count a document, and return whether it is a candidate."""
        self.count += 1
        self.weight += weight
        return len(self._heap) < self._most or -number > self._heap[0][0]

    def keep(self, number: float, at: int, candidate: Any) -> None:
        """Keep a candidate in place of the one with the highest number."""
        (heappush if len(self._heap) < self._most else heappushpop)(self._heap, (-number, at, candidate))

    def ordered(self) -> list[tuple[float, int, Any]]:
        """Return (number, position, candidate) by number."""
        return sorted((-number, at, candidate) for number, at, candidate in self._heap)


class Draw:
    """One pass over an input: `offer` each document, and `keep` it if asked to."""

    def __init__(self, n: int) -> None:
        # The same numbers each time: who maps the same input again, draws the same documents.
        self._random = Random(0).random
        self._n = n
        self._classes: dict[int, _Kept] = {}
        self._groups = _Kept(max(n, 1))
        self._group: tuple[Hashable, float, int, _Kept] | None = None
        self.count = 0
        """Documents offered so far."""
        self._number = 0.0
        self._weight = 0
        self._in: tuple[_Kept, bool, bool] | None = None

    def offer(self, weight: int, group: Hashable = None) -> bool:
        """Count the next document, and return whether it may be drawn."""
        number = self._random()
        at = int(_STEPS * math.log2(weight)) if weight > 1 else 0
        kept = self._classes.get(at)
        if kept is None:
            kept = self._classes[at] = _Kept(self._n)
        alone = kept.offer(number, weight)
        together = group is not None and self._in_group(group).offer(number, weight)
        self._number, self._weight, self._in = number, weight, (kept, alone, together)
        self.count += 1
        return alone or together

    def keep(self, element: Any, mark: str, group: Hashable = None) -> None:
        """Keep the document that was offered last."""
        assert self._in is not None, "after an offer"
        kept, alone, together = self._in
        at = self.count - 1
        pick = Pick(at, self._weight, element, at if group is None else group, mark)
        if alone:
            kept.keep(self._number, at, pick)
        if together and self._group is not None:
            self._group[3].keep(self._number, at, pick)

    def _in_group(self, group: Hashable) -> _Kept:
        """Return the candidates of the group that is read now."""
        if self._group is None or self._group[0] != group:
            self._end_group()
            most = max(TOGETHER, math.ceil(self._n / GROUPS))
            self._group = group, self._random(), self._groups.count, _Kept(most)
        return self._group[3]

    def _end_group(self) -> None:
        if self._group is not None:
            _, number, at, kept = self._group
            if self._groups.offer(number, kept.weight):
                self._groups.keep(number, at, kept)

    def sample(self, total: int | None) -> Sample:
        """Return what was drawn from the documents offered so far, once they are all of the input."""
        self._end_group()
        self._group = None
        if self._groups.count >= GROUPS:
            return self._by_groups(total)
        strata, cut = _cut([(at, kept.count, kept.weight) for at, kept in sorted(self._classes.items())])
        lists: list[list[Pick]] = []
        for stratum, classes in enumerate(cut):
            found = sorted(chain.from_iterable(self._classes[at].ordered() for at in classes))
            lists.append([replace(pick, stratum=stratum, group=pick.at) for _, _, pick in found])
        return self._of(_in_turn(lists), strata, total)

    def _by_groups(self, total: int | None) -> Sample:
        """Take some documents of each drawn group, and more of them only when there is no other group."""
        groups = [[pick for _, _, pick in kept.ordered()] for _, _, kept in self._groups.ordered()]
        first = chain.from_iterable(group[:TOGETHER] for group in groups)
        more = _in_turn([group[TOGETHER:] for group in groups])
        strata = (Stratum(self.count, sum(kept.weight for kept in self._classes.values())),)
        return self._of(chain(first, more), strata, total, self._groups.count)

    def _of(self, picks: Iterable[Pick], strata: Sequence[Stratum], total: int | None, groups: int = 0) -> Sample:
        ordered = tuple(sorted(islice(picks, self._n), key=lambda pick: pick.at))
        return Sample(ordered, tuple(strata), total, groups)


def _in_turn(lists: Sequence[Sequence[Pick]]) -> Iterator[Pick]:
    """Yield the first of each list, then the second ones, and so on."""
    return (pick for row in zip_longest(*lists) for pick in row if pick is not None)


def _cut(classes: Sequence[tuple[int, int, int]]) -> tuple[list[Stratum], list[list[int]]]:
    """Cut (class, documents, weight), sorted, into at most three strata of about the same effort."""
    # Between equal numbers of documents, which leaves the few that take most of the time to chance, and equal weights.
    efforts = [count**0.25 * weight**0.75 for _, count, weight in classes]
    whole, so_far = sum(efforts) or 1.0, 0.0
    cut: dict[int, list[tuple[int, int, int]]] = {}
    for effort, each in zip(efforts, classes, strict=True):
        cut.setdefault(min(2, int(3 * (so_far + effort / 2) / whole)), []).append(each)
        so_far += effort
    parts = list(cut.values())
    names = _NAMES[max(0, len(parts) - 1)]
    strata = [
        Stratum(sum(count for _, count, _ in part), sum(weight for *_, weight in part), name)
        for part, name in zip(parts, names, strict=False)
    ]
    return strata, [[at for at, _, _ in part] for part in parts]


# --- estimates ---


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate, and the range that contains the true value in nine of ten cases."""

    low: float
    likely: float
    high: float
    n: int
    """Documents that it comes from. Below `FEW`, the range is only that of what was seen."""

    def times(self, factor: float) -> Interval:
        """Return the interval of a multiple."""
        return Interval(self.low * factor, self.likely * factor, self.high * factor, self.n)


@dataclass(frozen=True, slots=True)
class Measured:
    """A value of a drawn document."""

    value: float
    weight: float
    stratum: int
    group: Hashable


def sum_over(measured: Sequence[Measured], strata: Sequence[Stratum]) -> Interval | None:
    """Estimate the sum of a value over all documents, or return None when nothing was measured."""
    if not measured or not sum(stratum.count for stratum in strata):
        return None
    counted = [replace(each, weight=1.0) for each in measured]
    if BETTER * _spread(counted) < _spread(measured):
        measured, strata = counted, [replace(stratum, weight=stratum.count) for stratum in strata]
    whole = sum(stratum.weight for stratum in strata)
    n = len(measured)
    if n < FEW:
        costs = [each.value / each.weight for each in measured]
        middle = whole * sum(each.value for each in measured) / sum(each.weight for each in measured)
        return Interval(min(middle, whole * min(costs)), middle, max(middle, whole * max(costs)), n)
    parts = [_part(measured, strata, at) for at in range(len(strata))]
    likely = sum(estimate for estimate, *_ in parts)
    variance = sum(variance for _, variance, _ in parts)
    if likely <= 0:
        return Interval(0.0, 0.0, 0.0, n)
    # Welch and Satterthwaite: strata that vary most decide how well the variance is known.
    known = sum(variance * variance / free for _, variance, free in parts if free)
    free = variance * variance / known if known else n - 1.0
    # The largest of many are seldom among the few, so the variance of heavy tails is seen too small.
    deviation = math.sqrt(math.log1p(variance * (1 + UNSEEN / math.sqrt(n)) / (likely * likely)))
    reach = math.exp(_quantile(free) * deviation)
    return Interval(likely / reach, likely, likely * reach, n)


UNSEEN = 4.0
"""How much is added to the variance seen in a sample of `n` documents, by ``1 / sqrt(n)``."""


def _spread(measured: Sequence[Measured]) -> float:
    """Return the sum of squares around the common ratio, as a share of the values."""
    weights, values = sum(each.weight for each in measured), sum(each.value for each in measured)
    cost = values / weights if weights else 0.0
    return sum((each.value - cost * each.weight) ** 2 for each in measured)


def _part(measured: Sequence[Measured], strata: Sequence[Stratum], at: int) -> tuple[float, float, float]:
    """Return estimate, variance and degrees of freedom of one stratum."""
    mine = [each for each in measured if each.stratum == at]
    if len({each.group for each in mine}) < 2:  # too few: it costs what all documents cost
        mine = list(measured)
    groups: dict[Hashable, list[float]] = {}
    for each in mine:
        sums = groups.setdefault(each.group, [0.0, 0.0])
        sums[0] += each.value
        sums[1] += each.weight
    values, weights = sum(value for value, _ in groups.values()), sum(weight for _, weight in groups.values())
    if not weights or len(groups) < 2:
        return (values / weights * strata[at].weight if weights else 0.0), 0.0, 0.0
    cost, n = values / weights, len(groups)
    around = sum((value - cost * weight) ** 2 for value, weight in groups.values()) / (n - 1)
    left = max(0.0, 1 - len(mine) / strata[at].count) if strata[at].count else 0.0
    return cost * strata[at].weight, left * n * around * (strata[at].weight / weights) ** 2, n - 1.0


def _quantile(free: float) -> float:
    """Return the quantile of Student's distribution for `LEVEL`, by its expansion (Abramowitz and Stegun, 26.7.5)."""
    z, v = NormalDist().inv_cdf((1 + LEVEL) / 2), max(free, 2.0)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


SHARE_LEVEL = 0.95
"""Probability with which an interval of a share is to contain the true one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sample of one stratum showed."""

    of: int
    """Documents of the stratum."""
    groups: tuple[tuple[int, int], ...]
    """Documents drawn together and how many of them count; (1, 0) and (1, 1) where each was drawn by itself."""

    @property
    def n(self) -> int:
        """Documents of the sample."""
        return sum(n for n, _ in self.groups)

    @property
    def hits(self) -> int:
        """How many of them count."""
        return sum(hits for _, hits in self.groups)

    @property
    def design(self) -> float:
        """How many documents tell as much as one that was drawn by itself."""
        if len(self.groups) in (self.n, 0):
            return 1.0
        together, mean = self.n / len(self.groups), self.hits / self.n
        if mean in (0.0, 1.0):  # whether those of a group agree has not been seen
            return together
        between = sum((hits - mean * n) ** 2 for n, hits in self.groups) / max(1, len(self.groups) - 1)
        return min(together, max(1.0, between / (together * mean * (1 - mean))))

    @property
    def tells(self) -> float:
        """As how many documents of an endless stratum, each drawn by itself, the sample tells; 0 for all of it."""
        left = max(0.0, 1 - self.n / self.of)
        return self.n / self.design / left if left else 0.0


def share_of(strata: Sequence[Seen]) -> Interval:
    """Estimate the share of all documents that count, at `SHARE_LEVEL`, from a sample of each stratum."""
    strata = [stratum for stratum in strata if stratum.n]
    whole, n = sum(stratum.of for stratum in strata), sum(stratum.n for stratum in strata)
    hits = sum(stratum.hits for stratum in strata)
    if not whole:
        return Interval(0.0, 0.0, 0.0, 0)
    likely = variance = guess = 0.0
    for stratum in strata:
        weight = stratum.of / whole
        # Half of one on either side: a stratum where nothing was found has not shown that there is nothing.
        share = (stratum.hits + 0.5) / (stratum.n + 1)
        likely += weight * stratum.hits / stratum.n
        guess += weight * share
        variance += weight**2 * share * (1 - share) / stratum.tells if stratum.tells else 0.0
    if not variance:  # all of them were looked at
        return Interval(likely, likely, likely, n)
    if not hits:  # the most that one stratum may hide
        hidden = (stratum.of / whole * wilson(0.0, stratum.tells)[1] for stratum in strata if stratum.tells)
        return Interval(0.0, 0.0, max(hidden), n)
    low, high = wilson(likely, guess * (1 - guess) / variance)
    return Interval(max(low, hits / whole), likely, min(high, 1 - (n - hits) / whole), n)


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the interval of a share that was seen in a sample of `n`, exact where that is none or all of it."""
    if share in (0.0, 1.0):
        far = 1 - ((1 - SHARE_LEVEL) / 2) ** (1 / n)
        return (0.0, far) if share == 0.0 else (1 - far, 1.0)
    z = NormalDist().inv_cdf((1 + SHARE_LEVEL) / 2)
    middle, reach = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - reach) / (1 + z * z / n), (middle + reach) / (1 + z * z / n)


def chance(hits: int, n: int, others: int, of: int) -> float:
    """Return how probable `hits` of `n` or more are if they are as frequent as `others` of `of` (Fisher's test)."""
    both = hits + others

    def ways(k: int) -> float:
        return _log_choose(n, k) + _log_choose(of, both - k)

    whole = _log_choose(n + of, both)
    return min(1.0, sum(math.exp(ways(k) - whole) for k in range(hits, min(n, both) + 1)))


def _log_choose(n: int, k: int) -> float:
    return -math.inf if k > n else math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
