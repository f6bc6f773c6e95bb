"""What excuses an error: the time in which a process is hurt."""

from __future__ import annotations

import pytest

from tests.chaos.acts import ACTS, HARMLESS, none_left
from tests.chaos.causes import LIMIT
from tests.chaos.checks import violations
from tests.chaos.history import Refusal
from tests.chaos.test_checks import good_history


@pytest.mark.parametrize(("wanted", "retired", "none"), [(4, 2, False), (4, 4, True), (1, 0, False), (1, 1, True)])
def test_a_town_whose_workers_were_all_retired_serves_no_client(wanted: int, retired: int, none: bool) -> None:
    """Scaled to one, it may keep the very one that is retired: seed 50089."""
    assert none_left(wanted, retired) is none


@pytest.mark.parametrize("at", [5.0, 5.4, 5.5 + LIMIT])
@pytest.mark.parametrize("name", ["CallTimeout", "PutTimeout", "RunStalled", "TimeoutError", "NoWorkers"])
def test_errors_are_fair_while_a_process_is_disturbed_and_a_while_after(name: str, at: float) -> None:
    history = good_history()
    history.refused.append(Refusal("put", name, "for a reason", True, at))
    assert violations(history) == []


def test_what_is_called_harmless_can_be_done() -> None:
    assert set(ACTS) > HARMLESS
