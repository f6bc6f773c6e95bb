"""Rates and values over time say what happened, however old, in a fixed amount of memory; a pause slows no run."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dqlab.stats.meter import STALL, Ring, Speed
from tests.kit.sampled import examples

T0 = 1_795_270_000.0


def test_a_gauge_holds_until_the_next_value() -> None:
    ring = Ring(1)
    ring.note(T0, [5])
    ring.note(T0 + 10, [7])

    assert ring.gauges(T0 - 5, 5, 5) == [[None, 5, 5, 7, 7]]


def test_a_rate_is_not_known_before_the_first_value_and_zero_after_the_last() -> None:
    ring = Ring(0, 1)
    ring.note(T0 + 20, flows=[10])

    (rate,) = ring.rates(T0, 10, 6)

    assert rate[:2] == [None, None]
    assert rate[2:] == pytest.approx([0.0, 1.0, 0.0, 0.0])


def test_what_is_older_than_the_fine_slots_is_known_by_the_minute() -> None:
    ring = Ring(1, 1)
    for second in range(0, 3600, 5):
        ring.note(T0 + second, [second], [5])

    (gauge,), (rate,) = ring.gauges(T0 + 60, 60, 60), ring.rates(T0 + 60, 60, 60)

    assert all(abs((value or 0) - 60 * (at + 1)) <= 65 for at, value in enumerate(gauge))
    assert sum(amount or 0 for amount in rate) * 60 == pytest.approx(3600, rel=0.02)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.floats(0, 200), st.integers(0, 50)), min_size=1, max_size=60), st.sampled_from([1, 7, 60]))
def test_nothing_that_came_in_the_span_is_forgotten_or_counted_twice(steps: list[tuple[float, int]], step: int) -> None:
    """Whatever the rhythm, and whether read by seconds or minutes, the amounts add up."""
    ring, at, total = Ring(0, 1), T0, 0
    for seconds, amount in steps:
        at, total = at + seconds, total + amount
        ring.note(at, flows=[amount])
    points = int((at - T0 + 180) / step) + 2

    (rate,) = ring.rates(T0 - 120, step, points)

    assert sum(value or 0 for value in rate) * step == pytest.approx(total, abs=1e-3 * max(total, 1))


def test_a_new_lap_overwrites_what_the_slot_held_a_lap_ago() -> None:
    ring = Ring(1, 1, bands=((1.0, 4),))
    for second in range(10):
        ring.note(T0 + second, [second], [1])

    assert ring.gauges(T0 + 4, 1, 6) == [[None, None, 6, 7, 8, 9]]
    assert ring.amounts(0, now=T0 + 9, slots=4) == [1, 1, 1, 1]


def test_amounts_of_slots_in_which_nothing_came_are_zero() -> None:
    ring = Ring(0, 1, bands=((60.0, 120),))
    start = T0 - T0 % 60
    ring.note(start, flows=[2])
    ring.note(start + 130, flows=[5])

    assert ring.amounts(0, now=start + 190, slots=5) == [0, 2, 0, 5, 0]


def test_a_ring_takes_the_same_memory_after_a_day_as_at_first() -> None:
    ring = Ring(7, 3)
    size = ring.nbytes
    for minute in range(2 * 24 * 60):
        ring.note(T0 + 60 * minute, [1] * 7, [1] * 3)

    assert ring.nbytes == size < 120_000


def test_time_in_which_work_is_kept_from_going_on_counts_in_no_speed() -> None:
    """After a pause of a minute nothing is slower than before it, and what it seemed meanwhile is forgotten."""
    speed = Speed()
    for second in range(23):
        speed.feed(second, 20 * second, lasts=0.0 if second == 22 else math.inf)

    assert speed.rate(52) == pytest.approx(20 * 22 / 52)
    assert speed.lasting(52) == pytest.approx(20)

    speed.feed(82, 440)
    speed.feed(84, 480)

    assert speed.rate(84) == speed.lasting(84) == pytest.approx(20)
    assert speed.span(84) == pytest.approx(24)


def test_a_pause_in_a_stall_is_a_pause() -> None:
    """Work that had nothing to do, was paused for a moment, and had nothing to do again did not work meanwhile."""
    speed = Speed()
    speed.feed(0, 0)
    speed.feed(10, 100, lasts=STALL)
    speed.feed(11, 100, lasts=0.0)
    speed.feed(12, 100, lasts=STALL)
    speed.feed(13, 100)
    speed.feed(23, 200)

    assert speed.rate(23) == pytest.approx(10)


def test_a_slow_flow_has_the_speed_at_which_it_comes() -> None:
    """One document every two seconds, each done at once, is half a document per second, and not many."""
    speed = Speed()
    for second in range(41):
        speed.feed(second, second // 2, lasts=STALL)

    assert speed.rate(40) == pytest.approx(0.5)


@pytest.mark.long
@given(st.lists(st.tuples(st.floats(0, 90), st.floats(0, 9), st.sampled_from([0.0, STALL, math.inf])), max_size=60))
@example([(1.2745608625573865, 0.0, 0.0), (0.0, 1.0, 0.0), (33.0, 0.0, 0.0), (31.617826178282503, 1.0, 0.0)])
def test_a_speed_is_never_negative_and_its_points_keep_their_order(steps: list[tuple[float, float, float]]) -> None:
    """Points that are moved go neither beyond the newest nor, for rounding, start the meter over."""
    speed, at, total = Speed(), 0.0, 0.1
    for seconds, more, lasts in steps:
        at, total = at + seconds, total + more
        speed.feed(at, total, lasts=lasts)
        points = list(speed._points)
        assert points == sorted(points)
        assert points[-1][1] == total
        assert (speed.rate(at) or 0.0) >= 0
        assert 0 <= speed.span(at) <= speed.window
