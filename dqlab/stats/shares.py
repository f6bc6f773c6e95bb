"""Estimates the share of all documents that a sample shows, and judges whether two shares differ by chance.

The interval is Wilson's, for as many documents as tell as much as the sample: strata and documents that are read
together change that number (Kish, *Survey Sampling*, 1965, ch. 8). Nothing found gives the exact upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from dqlab.stats.sample import Interval

LEVEL = 0.95
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
    """Estimate the share of all documents that count, with its interval at `LEVEL`, from a sample of each stratum."""
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
        far = 1 - ((1 - LEVEL) / 2) ** (1 / n)
        return (0.0, far) if share == 0.0 else (1 - far, 1.0)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
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
