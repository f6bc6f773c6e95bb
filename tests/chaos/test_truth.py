"""What is kept outside of dqlab is read as it was noted."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from tests.chaos import truth
from tests.chaos.checks import violations
from tests.chaos.history import History, PutsEnd
from tests.chaos.plan import QueuePlan


@pytest.fixture(autouse=True)
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(truth.DIRECTORY, str(tmp_path))
    return tmp_path


def _in_a_thread(key: str, meanwhile: threading.Barrier, *, well: bool) -> threading.Thread:
    def call() -> None:
        truth.began(key)
        meanwhile.wait(10)  # both have begun
        truth.ended(key, well=well)
        meanwhile.wait(10)  # or the other may get the number of a thread that has ended

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_two_threads_of_one_process_with_the_same_message_are_two_calls_and_are_found(where: Path) -> None:
    key, both = "by-hand-main:1", threading.Barrier(2)
    threads = [_in_a_thread(key, both, well=True), _in_a_thread(key, both, well=False)]
    numbers = [thread.ident for thread in threads]
    for thread in threads:
        thread.join()
    first, second = truth.read_executions(where)
    assert first.pid == second.pid
    assert {first.thread: first.well, second.thread: second.well} == dict(zip(numbers, (True, False), strict=True))
    found = violations(History(puts=[PutsEnd(QueuePlan("main"), given=2)], executions=[first, second]))
    assert [one for one in found if one.startswith("no_message_runs_twice_at_a_time:")]


def test_two_coroutines_of_one_thread_with_the_same_message_are_two_calls_and_are_found(where: Path) -> None:
    for note in (truth.began, truth.began, partial(truth.ended, well=True), partial(truth.ended, well=False)):
        note("by-hand-main:1")
    first, second = truth.read_executions(where)
    assert (first.thread, first.well, second.well) == (second.thread, True, False)
    found = violations(History(puts=[PutsEnd(QueuePlan("main"), given=2)], executions=[first, second]))
    assert [one for one in found if one.startswith("no_message_runs_twice_at_a_time:")]


def test_calls_that_have_begun_are_counted_and_half_a_line_is_none(where: Path) -> None:
    begun = truth.Begun(where)
    assert begun.count() == 0
    truth.began("a:1")
    truth.began("begin:2")
    truth.ended("a:1", well=True)
    assert begun.count() == 2
    with (where / truth.EXECUTIONS).open("a") as file:
        file.write("begin 1.0 1")
        file.flush()
        assert begun.count() == 2
        file.write(" 1 1 a:3\n")
    assert begun.count() == 3


def test_what_was_taken_is_read_with_who_took_it(where: Path) -> None:
    truth.taken("shard", "main", 71, "kill")
    (taking,) = truth.read_takings(where)
    assert (taking.what, taking.queue, taking.pid, taking.by) == ("shard", "main", 71, "kill")


def test_a_fault_of_the_harness_is_read_in_one_piece(where: Path) -> None:
    truth.fault("the witness has failed:\nKeyError('x')")
    assert truth.read_faults(where) == ["the witness has failed: KeyError('x')"]
