"""An estimate from a few documents is a promise about an interval: it is held to it, and noise is no change."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.stats.sample import (
    FEW,
    SHARE_LEVEL,
    Draw,
    Interval,
    Measured,
    Sample,
    Seen,
    Stratum,
    chance,
    share_of,
    sum_over,
)


def drawn(weights: list[int], n: int, groups: list[int] | None = None) -> Sample:
    draw = Draw(n)
    for at, weight in enumerate(weights):
        group = None if groups is None else groups[at]
        if draw.offer(weight, group):
            draw.keep(at, str(at + 1), group)
    return draw.sample(len(weights))


def estimated(sample: Sample, seconds: list[float]) -> Interval:
    measured = [Measured(seconds[pick.at], pick.weight, pick.stratum, pick.group) for pick in sample.picks]
    interval = sum_over(measured, sample.strata)
    assert interval is not None
    return interval


def corpus(seed: int, *, pages: float, noise: float, size: int = 1200) -> tuple[list[int], list[float]]:
    """Return weights and seconds of documents, both with heavy tails."""
    random = Random(seed)
    weights = [max(1, round(10 * random.lognormvariate(0, pages))) for _ in range(size)]
    return weights, [0.1 * weight * random.lognormvariate(0, noise) for weight in weights]


@pytest.mark.parametrize(("pages", "noise"), [(1.0, 0.3), (1.2, 0.6), (1.5, 0.6)])
def test_interval_from_thirty_documents_holds_the_true_sum(pages: float, noise: float) -> None:
    """Ninety of a hundred are aimed at; with a width that is still of use."""
    held, widths = 0, 0.0
    for seed in range(100):
        weights, seconds = corpus(seed, pages=pages, noise=noise)
        interval = estimated(drawn(weights, 30), seconds)
        held += interval.low <= sum(seconds) <= interval.high
        widths += interval.high / interval.low

    assert held >= 85
    assert widths / 100 < 2


def test_interval_holds_the_true_sum_where_lengths_are_unknown() -> None:
    """Without weights the largest documents are seldom seen, and the interval must be wider for it."""
    held = 0
    for seed in range(100):
        _, seconds = corpus(seed, pages=1.0, noise=0.3)
        interval = estimated(drawn([1] * len(seconds), 30), seconds)
        held += interval.low <= sum(seconds) <= interval.high

    assert held >= 80


def test_variance_of_rows_is_that_between_their_groups() -> None:
    """Rows of a row group are alike: taken as independent, thirty of them promise too much."""
    random, held = Random(1), 0
    for _ in range(100):
        cost = [random.lognormvariate(0, 0.5) for _ in range(100)]
        groups = [at // 50 for at in range(5000)]
        seconds = [cost[group] * random.lognormvariate(0, 0.1) for group in groups]
        sample = drawn([1] * 5000, 30, groups)
        assert sample.groups == 100
        assert len({pick.group for pick in sample.picks}) == 10
        interval = estimated(sample, seconds)
        held += interval.low <= sum(seconds) <= interval.high

    assert held >= 80


@given(
    weights=st.lists(st.integers(1, 1 << 32), min_size=1, max_size=200),
    n=st.integers(1, 60),
    more=st.integers(0, 60),
    together=st.integers(0, 4),
)
def test_a_larger_sample_contains_a_smaller_one(weights: list[int], n: int, more: int, together: int) -> None:
    """So that "rehearse 100" runs seventy documents after thirty, and none twice."""
    groups = [at // together for at in range(len(weights))] if together else None
    small, large = drawn(weights, n, groups), drawn(weights, n + more, groups)

    assert {pick.at for pick in small.picks} <= {pick.at for pick in large.picks}
    assert len(small.picks) == min(n, len(weights))
    assert [pick.mark for pick in small.picks] == [str(pick.at + 1) for pick in small.picks]
    assert sum(stratum.count for stratum in small.strata) == len(weights)
    assert sum(stratum.weight for stratum in small.strata) == sum(weights)


def test_strata_of_a_corpus_are_drawn_equally() -> None:
    """The few large documents take a good part of the time: left to chance, a sample has one or none of them."""
    weights, _ = corpus(0, pages=1.2, noise=0.3)
    sample = drawn(weights, 30)

    assert [stratum.name for stratum in sample.strata] == ["small", "middle", "large"]
    assert [sum(pick.stratum == at for pick in sample.picks) for at in range(3)] == [10, 10, 10]


def test_fewer_than_ten_give_the_range_of_what_was_seen() -> None:
    """A deviation of a few numbers is no knowledge."""
    strata = [Stratum(100, 100)]
    few = [Measured(seconds, 1, 0, seconds) for seconds in (1.0, 2.0, 6.0)]

    assert sum_over(few, strata) == Interval(100, pytest.approx(300), 600, 3)
    assert len(few) < FEW


def test_nothing_measured_is_no_estimate_and_no_time_is_none() -> None:
    """A sample of which all failed says nothing; documents of no time take none."""
    strata = [Stratum(1000, 1000)]

    assert sum_over([], strata) is None
    assert sum_over([Measured(0.0, 1, 0, at) for at in range(20)], strata) == Interval(0, 0, 0, 20)
    interval = sum_over([Measured(2.0, 1, 0, at) for at in range(20)], strata)
    assert interval is not None
    assert math.isclose(interval.low, 2000)
    assert math.isclose(interval.high, 2000)


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
