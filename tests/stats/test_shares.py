"""A share of all documents from a sample: its interval holds the truth, and noise is not taken for a change."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from dqlab.stats.sample import SHARE_LEVEL, Seen, chance, share_of

TRIALS = 100


def alone(random: Random, of: int, n: int, share: float) -> tuple[Seen, float]:
    """Draw documents of which each counts by itself; return what was seen, and the true share."""
    counts = [random.random() < share for _ in range(of)]
    return Seen(of, tuple((1, int(hit)) for hit in random.sample(counts, n))), sum(counts) / of


def together(random: Random, share: float) -> tuple[Seen, float]:
    """Draw three rows of each of a hundred row groups, all of whose rows count or do not, in nine cases of ten."""
    groups = []
    for _ in range(1000):
        group = random.random() < share
        groups.append([group if random.random() < 0.9 else random.random() < share for _ in range(50)])
    drawn = tuple((3, sum(random.sample(group, 3))) for group in random.sample(groups, 100))
    return Seen(50_000, drawn), sum(map(sum, groups)) / 50_000


def strata(random: Random) -> tuple[list[Seen], float]:
    """Draw from what has a result, and from the few dead documents, most of which come alive."""
    done, changed = alone(random, 20_000, 270, 0.02)
    dead, alive = alone(random, 400, 30, 0.7)
    return [done, dead], (20_000 * changed + 400 * alive) / 20_400


CORPORA: dict[str, Callable[[Random], tuple[list[Seen], float]]] = {
    "one in twenty": lambda random: _one(alone(random, 20_000, 300, 0.057)),
    "few": lambda random: _one(alone(random, 20_000, 300, 0.004)),
    "most of the run": lambda random: _one(alone(random, 1000, 300, 0.05)),
    "half": lambda random: _one(alone(random, 20_000, 100, 0.5)),
    "row groups": lambda random: _one(together(random, 0.1)),
    "dead ones apart": strata,
}


def _one(found: tuple[Seen, float]) -> tuple[list[Seen], float]:
    return [found[0]], found[1]


@pytest.mark.parametrize("corpus", CORPORA)
def test_interval_holds_the_true_share(corpus: str) -> None:
    """In nine of ten seeded trials at least, of which each has documents of its own."""
    held = 0
    for seed in range(TRIALS):
        seen, truth = CORPORA[corpus](Random(f"{corpus} {seed}"))
        share = share_of(seen)
        held += share.low <= truth <= share.high
    assert held >= 90, f"{held} of {TRIALS}"


def test_same_share_is_called_more_than_noise_in_at_most_one_of_ten_trials() -> None:
    """A function compared with itself changes 3 % of 300 documents, and as many of the 30 that are repeated."""
    alarms = sum(
        chance(sum(random.random() < 0.03 for _ in range(300)), 300, sum(random.random() < 0.03 for _ in range(30)), 30)
        <= 1 - SHARE_LEVEL
        for random in map(Random, range(TRIALS))
    )
    assert alarms <= 10
    assert chance(60, 300, 0, 30) <= 1 - SHARE_LEVEL  # and a real change is found


def test_nothing_found_gives_an_upper_bound() -> None:
    """Zero of 300 is not none."""
    share = share_of([Seen(2_000_000, ((1, 0),) * 300)])
    assert (share.low, share.likely) == (0.0, 0.0)
    assert share.high == pytest.approx(0.0122, abs=1e-4)
    assert share_of([Seen(300, ((1, 0),) * 300)]).high == 0.0  # all of them were looked at
    assert share_of([Seen(4, ((1, 1), (1, 0), (1, 1), (1, 1)))]).high == 0.75
    assert share_of([]).n == 0


def test_interval_never_denies_what_was_seen() -> None:
    """Five of ten changed: at least half and no more than all but five."""
    share = share_of([Seen(12, tuple((1, int(at < 5)) for at in range(10)))])
    assert 5 / 12 <= share.low <= share.likely <= share.high <= 7 / 12
