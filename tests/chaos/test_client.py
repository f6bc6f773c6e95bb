"""A client at the end: it goes on where errors say so, counts them, and passes on all others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.errors import ActorGone, CallTimeout, DqlabError, ResultsMissing, RunStalled, WaitTimeout
from tests.chaos import ends, truth
from tests.chaos.client import Customer
from tests.chaos.plan import Load
from tests.chaos.remote import Hung, Refused
from tests.chaos.scenario import what_broke

LOAD = Load("run", "main", "anna", 3, 0.0)
LOST = ResultsMissing(reason="1 of 3 documents is lost", ranges=((0, 1),))
CALL_TIMEOUT = CallTimeout(name="queue/main/0", call="progress", seconds=30)
STALLED = RunStalled(run="run", queue="main", waiting=1, seconds=5)
TIMEOUT = WaitTimeout(run="run", seconds=75, why="")
GONE = ActorGone(name="queue/main/0", reason="its worker died")


@pytest.fixture
def finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Finish a run whose waits answer with these errors, one after another, and then with its end."""
    monkeypatch.setenv(truth.DIRECTORY, str(tmp_path))
    monkeypatch.setattr(ends, "of_run", lambda run: {})

    def finish(*errors: DqlabError, submitter: Any = None) -> dict[str, Any]:
        left = list(errors)

        def wait(timeout: float) -> None:
            if left:
                raise left.pop(0)

        customer = Customer()
        run: Any = SimpleNamespace(wait=wait, submitter=submitter, queue="main")
        monkeypatch.setattr(customer, "map", lambda load, hurried: customer._runs.update(run=run))
        return customer.finish(asdict(LOAD), 60.0)

    return finish


@pytest.mark.parametrize("error", [TIMEOUT, GONE, LOST], ids=lambda error: type(error).__name__)
def test_an_error_that_does_not_say_map_it_again_is_no_end(
    finish: Callable[..., dict[str, Any]], error: DqlabError
) -> None:
    with pytest.raises(type(error)):
        finish(error)


def test_each_error_after_which_a_run_is_mapped_again_is_counted_with_its_time(
    finish: Callable[..., dict[str, Any]],
) -> None:
    before = time.monotonic()
    again = finish(CALL_TIMEOUT, STALLED)["again"]
    assert [(name, text) for name, text, _ in again] == [
        ("CallTimeout", str(CALL_TIMEOUT)),
        ("RunStalled", str(STALLED)),
    ]
    assert before <= again[0][2] <= again[1][2] <= time.monotonic()


def test_a_deadline_is_a_hang_and_other_errors_are_not() -> None:
    assert what_broke(Hung("x")) == "nothing_hangs"
    assert what_broke(Refused("RunNotFound", "x", typed=True)) == "the_round_ends"


def test_a_client_that_can_no_longer_note_what_is_confirmed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Confirmed messages that are not noted are missed by no check."""
    monkeypatch.setenv(truth.DIRECTORY, str(tmp_path))
    customer = object.__new__(Customer)
    customer._runs = {"run": SimpleNamespace(submitter=SimpleNamespace(sender=None))}  # type: ignore[dict-item]
    with pytest.raises(AttributeError, match="through"):
        customer._note_confirmed()
    (fault,) = truth.read_faults(tmp_path)
    assert "AttributeError" in fault
