"""The speed of a run is that of the time in which it worked: a pause makes nothing slower."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dqlab.stats.meter import STALL, Speed


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
