"""Lanes share the consumers' time, whatever their messages cost."""

from __future__ import annotations

from typing import Any

import pytest

from dqlab.frame import Outcome
from dqlab.rules.picking import QUANTUM_S, Fairness
from tests.rules.conftest import RUN

SLOW, FAST = b"slow-run-of-many", b"fast-run-of-many"


def serve(desk: Any, cost: dict[bytes, float], leases: int, n: int = 10) -> dict[bytes, float]:
    """Let one consumer work; return the seconds each run got."""
    used = dict.fromkeys(cost, 0.0)
    for _ in range(leases):
        lease = desk.lease(n)
        outcomes = [Outcome.ACK] * len(desk.ids(lease))
        busy_s = cost[lease.run] * len(outcomes)
        desk.shard.settle(desk.settlement(lease, outcomes, busy_s=busy_s))
        used[lease.run] += busy_s
    return used


def fill(desk: Any, *runs: bytes) -> None:
    for run in runs:
        desk.shard.open_lane(run, maxsize=None)
        for _ in range(10):
            desk.put(1000, run=run)


def test_two_runs_get_equal_time_however_slow_their_messages(desk: Any) -> None:
    """A colleague's slow PDFs must not crowd out quick ones, nor the reverse."""
    fill(desk, SLOW, FAST)

    used = serve(desk, {SLOW: 0.05, FAST: 0.001}, leases=800)

    assert used[SLOW] == pytest.approx(used[FAST], rel=0.2)


def test_a_run_that_comes_late_neither_waits_nor_takes_over(desk: Any) -> None:
    """No run is punished for having worked while alone, and none saves up by being idle."""
    fill(desk, SLOW)
    desk.shard.open_lane(FAST, maxsize=None)
    serve(desk, {SLOW: 0.01, FAST: 0.01}, leases=200)
    fill(desk, FAST)

    used = serve(desk, {SLOW: 0.01, FAST: 0.01}, leases=40)

    assert used[SLOW] == pytest.approx(used[FAST], abs=2 * QUANTUM_S)


def test_runs_without_a_known_cost_take_turns(desk: Any) -> None:
    """Before the first settlement it is not known what a message costs; one run must not get every slot."""
    fill(desk, SLOW, FAST)

    order = [desk.lease(10, f"c{i}").run for i in range(4)]
    assert order in ([SLOW, FAST] * 2, [FAST, SLOW] * 2)


def test_an_absurd_cost_is_worked_off_at_once() -> None:
    """Rounds are computed, not counted: one settlement of a year must not stop the queue."""
    fairness = Fairness()
    fairness.charge(SLOW, 1e18)
    fairness.charge(FAST, 3e13)

    assert fairness.choose([SLOW, FAST]) == FAST
    assert fairness.choose([SLOW]) == SLOW


def test_a_returned_message_costs_its_run_nothing(desk: Any) -> None:
    """It used no time."""
    fill(desk, SLOW, FAST)
    serve(desk, {SLOW: 0.01, FAST: 0.01}, leases=20)
    order = []
    for _ in range(20):
        lease = desk.lease(10)
        order.append(lease.run)
        desk.settle(lease, *[Outcome.RETURN] * 10)

    assert len(set(order)) == 1


def test_few_messages_of_unknown_cost_do_not_all_go_to_the_consumer_that_is_first(desk: Any) -> None:
    """Sorted by length, the sixteen longest of forty PDFs stood in line at one process."""
    desk.put(40, weights=range(40, 0, -1))
    first = [len(desk.ids(desk.lease(consumer=f"{slot}#0", budget=0.075))) for slot in "abab"]

    assert first == [1, 1, 1, 1]


def test_messages_that_weigh_bytes_are_leased_as_those_without_weights(desk: Any) -> None:
    """Texts behind a URL are read ahead within a lease: with two in each, every second one was waited for."""
    desk.put(40, weights=range(40, 0, -1))
    desk.shard.fairness.weighs_bytes(RUN)

    assert len(desk.ids(desk.lease(budget=0.075))) == 16


def test_many_messages_of_unknown_cost_are_leased_a_few_at_a_time(desk: Any) -> None:
    """A lease for each would cost more than short functions do."""
    desk.put(1000)

    assert len(desk.ids(desk.lease(budget=0.075))) == 16
