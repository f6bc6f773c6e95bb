"""The benchmark of a consumer's death notices when work does not go on, and when no other consumer takes its place."""

from __future__ import annotations

import pytest

from benchmarks.harness import WrongAnswer
from benchmarks.recovery_stamps import Stamps

DIED = 100.0


def _calls(process: int, start: float, end: float) -> list[tuple[float, int]]:
    """Return one call each ten milliseconds."""
    return [(start + n / 100, process) for n in range(round((end - start) * 100))]


def _others(end: float) -> list[tuple[float, int]]:
    return [call for process in (2, 3, 4) for call in _calls(process, DIED - 2, end)]


def test_survivors_go_on_at_once_and_the_replacement_has_its_own_time() -> None:
    calls = [*_calls(1, DIED - 2, DIED), *_others(DIED + 5), *_calls(5, DIED + 2.5, DIED + 5)]
    stamps = Stamps(calls, DIED, consumers=4)
    assert stamps.goes_on() == 0.0
    assert stamps.replaced() == pytest.approx(2.5)


def test_a_consumer_that_is_never_replaced_is_noticed() -> None:
    stamps = Stamps([*_calls(1, DIED - 2, DIED), *_others(DIED + 5)], DIED, consumers=4)
    with pytest.raises(WrongAnswer, match=r"not replaced in the 5\.0 s"):
        stamps.replaced()


def test_work_that_never_goes_on_is_noticed() -> None:
    stamps = Stamps([*_calls(1, DIED - 2, DIED), *_others(DIED), *_calls(2, DIED, DIED + 5)], DIED, consumers=4)
    with pytest.raises(WrongAnswer, match=r"were not reached in 4\.5 s"):
        stamps.goes_on()


def test_a_consumer_that_only_begins_after_the_death_is_not_its_replacement() -> None:
    calls = [*_calls(1, DIED - 2, DIED), *_calls(2, DIED - 2, DIED + 5), *_calls(3, DIED + 1, DIED + 5)]
    with pytest.raises(WrongAnswer, match="2 of 4 consumers had answered"):
        Stamps(calls, DIED, consumers=4).replaced()
