"""An estimate is a promise about an interval: it is held to it on simulated runs with heavy tails."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from random import Random

import pytest

from dqlab.numbers import ahead
from dqlab.stats.eta import MIN_DOCUMENTS, Effort, Steady, estimate
from dqlab.stats.runs import Eta
from tests.kit.sampled import mostly_slow

CHECKPOINTS = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
SECONDS_A_PAGE = 0.05


def simulate(seed: int, n: int, slots: int, sigma: float, *, known: bool) -> Iterator[tuple[Eta, float, float]]:
    """Run log-normal documents on slots, in settlements of about 75 ms; yield (estimate, now, true end)."""
    random = Random(seed)
    pages = [max(1, round(random.lognormvariate(1.0, sigma))) for _ in range(n)]
    seconds = [SECONDS_A_PAGE * count * random.lognormvariate(-0.02, 0.2) for count in pages]
    batch = max(1, int(0.075 * n / sum(seconds)))
    free, settlements = [0.0] * slots, []
    for lo in range(0, n, batch):
        hi = min(n, lo + batch)
        end = heapq.heappop(free) + sum(seconds[lo:hi])
        heapq.heappush(free, end)
        settlements.append((end, lo, hi))
    finish, effort = max(free), Effort()
    units = left = sum(pages) if known else n
    documents, checkpoints = n, iter(CHECKPOINTS)
    due = next(checkpoints)
    for now, lo, hi in sorted(settlements):
        of_these = sum(pages[lo:hi]) if known else hi - lo
        effort.add(sum(seconds[lo:hi]), of_these, hi - lo)
        left, documents = left - of_these, documents - (hi - lo)
        if 1 - left / units >= due:
            eta = estimate(effort, units=left, documents=documents, slots=float(slots), at=now)
            if eta is not None:
                yield eta, now, finish
            due = next((point for point in checkpoints if point > 1 - left / units), 2.0)


@pytest.mark.long
@pytest.mark.parametrize("known", [True, False], ids=["pages", "documents"])
@pytest.mark.parametrize(
    ("n", "slots", "sigma"),
    mostly_slow([(200, 2, 1.5), (1000, 4, 1.5), (1000, 4, 0.5), (3000, 16, 1.5)], (200, 2, 1.5), (1000, 4, 0.5)),
)
def test_the_true_end_lies_in_the_band_in_three_of_four_runs(n: int, slots: int, sigma: float, known: bool) -> None:
    """From a fifth on, with pages known or not, and where the longest document alone takes a quarter of the time."""
    seen = [each for seed in range(24) for each in simulate(seed, n, slots, sigma, known=known)]

    inside = sum(eta.p10 <= end <= eta.p90 for eta, _, end in seen) / len(seen)

    assert len(seen) >= 24 * 4
    assert inside >= 0.75


def test_the_band_gets_narrower_as_more_is_known() -> None:
    """A band that is always wide is never wrong, and of no use."""
    early, late = [], []
    for seed in range(20):
        widths = [(eta.p90 - eta.p10) / end for eta, _, end in simulate(seed, 3000, 2, 1.0, known=True)]
        early.append(widths[0])
        late.append(widths[-1])

    assert sorted(late)[10] < sorted(early)[10] < 0.2


@pytest.mark.parametrize("order", ["largest first", "as they come", "smallest first"])
def test_files_that_take_as_long_whatever_their_size_are_counted(order: str) -> None:
    """One of 4 GB and 599 empty ones read "Done in 0 s, 80 % sure: 0 to 0 s" from the first estimate to the end."""
    random = Random(1)
    sizes = [max(1, int(random.lognormvariate(10, 2.5))) for _ in range(599)] + [4 * 10**9]
    sizes = sizes if order == "as they come" else sorted(sizes, reverse=order == "largest first")
    effort = Effort()
    for at, size in enumerate(sizes[:150], start=1):
        effort.add(0.03 * random.lognormvariate(0, 0.1), size, 1)
        eta = estimate(effort, units=sum(sizes[at:]), documents=600 - at, slots=2.0, at=0.0)
        if at >= 40:
            assert eta is not None
            assert eta.p10 < 0.03 * (600 - at) / 2 < eta.p90
            assert 0.5 < eta.p50 / (0.03 * (600 - at) / 2) < 2


def test_an_estimate_of_which_nothing_is_certain_is_wide() -> None:
    """Seconds that neither sizes nor numbers explain: the band approached nothing, its end as well as its middle."""
    random, effort = Random(2), Effort()
    for _ in range(300):
        effort.add(random.lognormvariate(0, 2.5), int(random.lognormvariate(10, 2.5)) + 1, 1)
    eta = estimate(effort, units=1e9, documents=300, slots=2.0, at=0.0)

    assert eta is not None
    assert 0.05 * effort.seconds / 2 < eta.p50 < eta.p90
    assert eta.p90 > 2 * eta.p10


def test_there_is_no_estimate_before_five_documents() -> None:
    effort = Effort()
    for _ in range(MIN_DOCUMENTS - 1):
        effort.add(1.0, 1, 1)
    assert estimate(effort, units=100, documents=100, slots=1.0, at=0.0) is None

    effort.add(1.0, 1, 1)

    eta = estimate(effort, units=100, documents=100, slots=1.0, at=0.0)
    assert eta is not None
    assert eta.p50 == pytest.approx(100, rel=0.05)


def test_efforts_of_shards_add_up_and_travel_as_lists() -> None:
    one, other, both = Effort(), Effort(), Effort()
    for at in range(50):
        (one if at % 2 else other).add(at, at + 1, 2)
        both.add(at, at + 1, 2)

    assert (Effort.of(one.to_list()) + other).to_list() == pytest.approx(both.to_list())


def test_an_estimate_stays_until_it_moved_by_a_twentieth_of_what_is_left() -> None:
    """A clock that jumps with every answer is not read twice."""
    steady = Steady()
    first = Eta(900, 1000, 1100)

    assert steady.show(first, at=0) == first
    assert steady.show(Eta(930, 1030, 1130), at=10) == first
    assert steady.show(Eta(960, 1060, 1160), at=20) == Eta(960, 1060, 1160)
    assert steady.show(None, at=21) is None
    assert steady.show(first, at=22) == first


def test_an_estimate_is_wide_from_second_two_and_gets_sharper() -> None:
    """A run of 20 s gets an estimate while there is something to wait for."""
    spelled = []
    for seconds in (2, 4, 10, 30):
        effort = Effort()
        for _ in range(10 * seconds):
            effort.add(0.2, 1, 1)
        eta = estimate(effort, units=200, documents=200, slots=2.0, at=0.0)
        assert eta is not None
        assert eta.p10 <= 20 <= eta.p90 + 1
        spelled.append(ahead(eta.p10, eta.p50, eta.p90))

    assert spelled == ["10 to 35 s", "10 to 30 s", "15 to 25 s", "20 s"]


def test_an_estimate_that_got_sharper_is_shown() -> None:
    """Its middle may be right from the beginning, and the band would stay as wide as it began."""
    steady = Steady()
    steady.show(Eta(50, 100, 200), at=0)

    assert steady.show(Eta(95, 101, 110), at=6) == Eta(95, 101, 110)


def test_an_estimate_is_looked_at_again_after_five_seconds() -> None:
    steady = Steady()
    steady.show(Eta(90, 100, 110), at=0)

    assert steady.show(Eta(190, 200, 210), at=4) == Eta(90, 100, 110)
    assert steady.show(Eta(190, 200, 210), at=5) == Eta(190, 200, 210)


def test_documents_that_weigh_nothing_do_not_end_the_estimate_of_all_runs() -> None:
    """So stores of earlier versions have them, beside others with pages: the division by zero ended each Snapshot."""
    effort = Effort()
    for _ in range(10):
        effort.add(0.5, 20, 1)

    eta = estimate(effort, units=0, documents=3, slots=1.0, at=100.0)

    assert eta is not None
    assert 100.0 <= eta.p10 <= eta.p50 <= eta.p90
