"""Rounds of load and violence, each from a seed: whatever was confirmed ends once, and nothing is left behind."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.plan import make_plan
from tests.chaos.scenario import play

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ONE = os.environ.get("DQLAB_CHAOS_SEED")
FIRST = int(os.environ.get("DQLAB_CHAOS_FIRST", "100"))
SEEDS = [int(ONE)] if ONE else range(FIRST, FIRST + int(os.environ.get("DQLAB_CHAOS_SEEDS", "200")))
ONLY = [kind for kind in os.environ.get("DQLAB_CHAOS_ONLY", "").split(",") if kind]
"""Kinds of acts, to look at what one of them does."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10, 55])
def test_a_few_acts_of_violence_cost_nothing_that_was_confirmed(
    seed: int, tmp_path: Path, tally: Counter[str], request: pytest.FixtureRequest
) -> None:
    """Killed and terminated workers of queues and consumers, killed clients, and a killed town."""
    play(make_plan(seed, acts=4, documents=300), tmp_path, tally, request.node.nodeid)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_violence_costs_nothing_that_was_confirmed(
    seed: int, tmp_path: Path, tally: Counter[str], request: pytest.FixtureRequest
) -> None:
    play(make_plan(seed, only=ONLY), tmp_path, tally, request.node.nodeid)
