"""The process of the collector was stopped: a notebook's kernel that computed, or was suspended."""

from __future__ import annotations

import itertools

import pytest

from tests.cluster.reports import lane_report
from tests.cluster.statistics.test_collector import Hall, counts


@pytest.fixture
def hall() -> Hall:
    return Hall()


@pytest.mark.parametrize("queue", ["a", ""])
def test_what_came_while_the_collector_was_stopped_is_drawn_straight(hall: Hall, queue: str) -> None:
    """3,000 documents were done in 50 s in which the kernel was stopped: a plateau, then a cliff, and "most 3,000"."""

    def report(acked: int) -> None:
        hall.collector.look()
        hall.shard("a", lane_report("r", counts=counts(ready=6000 - acked, acked=acked), total=6000))
        hall.consumer("a", 0, units=acked, done=acked, leased=1)

    for second in range(20):
        report(60 * second)
        hall.after(1)
    hall.after(50)
    report(1260)  # what was sent first, and waited to be read; then the newest
    hall.after(0.3)
    report(4200)
    hall.after(1)
    for second in range(10):
        report(4260 + 60 * second)
        hall.after(1)

    history = hall.collector.history(90, queue, "r" if queue else "", whole=True)

    known = [value for value in history.ready if value is not None]
    steps = [before - after for before, after in itertools.pairwise(known)]
    assert max(steps) <= 130
    assert min(steps[2:-2]) >= 30
    assert sum(rate or 0 for rate in history.out_rate) * history.step == pytest.approx(4800, abs=2)
    assert max(rate or 0 for rate in history.out_rate) <= 130
    assert history.most.out_rate is not None
    assert history.most.out_rate <= 130
    if queue:
        left = [value for value in history.units_left if value is not None]
        assert max(before - after for before, after in itertools.pairwise(left)) <= 130
        assert max(rate or 0 for rate in history.consumers["c0"]) <= 130
