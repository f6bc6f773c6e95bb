"""People share the consumers' time equally, and the runs of each by weight; priorities come first."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dqlab.errors import BadOption
from dqlab.frame import Outcome
from dqlab.rules.flow import Adaptive, FlowTerms, Share
from dqlab.rules.picking import QUANTUM_S, Fairness

FIRST, SECOND, THIRD = b"first-run-of-six", b"second-run-of-it", b"third-run-of-six"


def serve(fairness: Fairness, cost: dict[bytes, float], leases: int) -> dict[bytes, float]:
    """Let one consumer work on lanes that never end; return the seconds each got."""
    used = dict.fromkeys(cost, 0.0)
    for _ in range(leases):
        run = fairness.choose(list(cost))
        fairness.charge(run, cost[run])
        used[run] += cost[run]
    return used


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([0.5, 1, 2, 5]), st.floats(0.001, 2.0)),
        min_size=2,
        max_size=7,
    )
)
def test_time_is_shared_by_people_and_then_by_weights(runs: list[tuple[str, float, float]]) -> None:
    """Over any mix of people, weights and costs, nobody gets less than a turn or two below his share."""
    fairness, cost, weights, people = Fairness(), {}, {}, {}
    for number, (person, weight, seconds) in enumerate(runs):
        run = bytes([number]) * 16
        fairness.belongs(run, person)
        fairness.share(run, Share(weight=weight))
        cost[run], weights[run], people[run] = seconds, weight, person

    used = serve(fairness, cost, 4000)

    whole, persons = sum(used.values()), sorted(set(people.values()))
    slack = 2 * max(cost.values()) + 2 * QUANTUM_S * 5 * len(runs)
    for person in persons:
        mine = [run for run in cost if people[run] == person]
        had = sum(used[run] for run in mine)
        assert had == pytest.approx(whole / len(persons), abs=slack)
        for run in mine:
            due = had * weights[run] / sum(weights[other] for other in mine)
            assert used[run] == pytest.approx(due, abs=slack)


def test_a_person_who_comes_late_is_served_at_once_however_long_another_has_worked(desk: Any) -> None:
    """The second person's first message is among the next two leases."""
    for run, person in ((FIRST, "ana"), (SECOND, "bea")):
        desk.shard.open_lane(run, maxsize=None)
        desk.shard.fairness.belongs(run, person)
    for _ in range(1000):
        desk.put(1000, run=FIRST)
    for _ in range(500):
        lease = desk.lease(100)
        desk.shard.settle(desk.settlement(lease, [Outcome.ACK] * 100, busy_s=3.0))
    desk.put(1, run=SECOND)

    assert SECOND in [desk.lease(100, f"c{n}").run for n in range(2)]


def test_a_higher_priority_goes_first_among_the_runs_of_one_person_only() -> None:
    """Whoever writes priority=10 passes nobody else."""
    fairness, cost = Fairness(), {FIRST: 0.1, SECOND: 0.1, THIRD: 0.1}
    for run, person in ((FIRST, "ana"), (SECOND, "ana"), (THIRD, "bea")):
        fairness.belongs(run, person)
    fairness.share(SECOND, Share(priority=5))

    used = serve(fairness, cost, 200)

    assert used[FIRST] == 0.0
    assert used[SECOND] == pytest.approx(used[THIRD], abs=0.3)
    assert fairness.choose([FIRST]) == FIRST, "what the higher one leaves, the lower one gets"


def test_nothing_is_leased_before_a_run_starts_and_the_shard_wakes_then(desk: Any) -> None:
    desk.shard.open_lane(FIRST)
    desk.put(3, run=FIRST)
    desk.shard.set_flow(FIRST, FlowTerms(share=Share(starts=desk.clock.wall() + 60)))

    assert desk.shard.lane(FIRST).waits.startswith("starts at ")
    assert desk.shard.lease("c", 3) is None
    assert desk.shard.next_deadline() == pytest.approx(desk.clock.monotonic() + 60)
    desk.clock.advance(61)
    assert len(desk.ids(desk.lease(3))) == 3
    assert desk.shard.lane(FIRST).waits == ""


def test_another_share_keeps_what_a_flow_has_learnt(desk: Any) -> None:
    desk.shard.open_lane(FIRST)
    desk.shard.set_flow(FIRST, FlowTerms(Adaptive()))
    flow = desk.shard.lane(FIRST).flow
    desk.shard.set_flow(FIRST, FlowTerms(Adaptive(), share=Share(weight=3, priority=-2)))

    assert desk.shard.lane(FIRST).flow is flow
    assert desk.shard.lane(FIRST).share.words == "priority -2, weight 3"


@pytest.mark.parametrize(
    "given",
    [
        *({"weight": value} for value in (0, float("nan"), 101, "3", True)),
        *({"priority": value} for value in (11, -11, 1.5, True)),
    ],
)
def test_a_share_out_of_range_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match=next(iter(given))):
        Share(**given)
