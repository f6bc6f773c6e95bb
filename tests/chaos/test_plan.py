"""Plans: the same for ever from the same seed, and none is empty."""

from __future__ import annotations

from tests.chaos.acts import ACTS
from tests.chaos.plan import KINDS, make_plan


def test_a_seed_gives_the_same_plan_each_time() -> None:
    assert [make_plan(seed) for seed in range(50)] == [make_plan(seed) for seed in range(50)]
    assert len({str(make_plan(seed)) for seed in range(50)}) == 50


def test_every_kind_of_act_can_be_done_and_comes_up() -> None:
    assert set(KINDS) == set(ACTS)
    assert {act.kind for seed in range(100, 300) for act in make_plan(seed).acts} == set(KINDS)


def test_what_dies_at_most_once_in_a_round_does_so() -> None:
    for seed in range(200):
        kinds = [act.kind for act in make_plan(seed, acts=30).acts]
        assert all(kinds.count(kind) <= most for kind, (_, most) in KINDS.items())
