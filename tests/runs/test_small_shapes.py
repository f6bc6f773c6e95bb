"""Short forms that people expect of `map` and `retry`."""

from __future__ import annotations

import inspect

import pytest

import dqlab as dq

pytestmark = pytest.mark.lowest


def test_a_number_of_retries_and_classes_of_exceptions_say_what_is_retried(queue: dq.QueuePool) -> None:
    """Also classes of the notebook, which consumers know by value."""
    busy = type("Busy", (OSError,), {"__module__": "__main__"})
    now = dq.Retry(2, backoff=0.0, on=(TimeoutError, busy))

    def fails(x: int) -> None:
        raise (TimeoutError, busy, ValueError)[x]("not now")

    runs = queue.map(fails, range(3), retry=now).wait(timeout=30), queue.map(fails, [2], retry=0).wait(timeout=30)

    assert [letter.deliveries for letter in runs[0].failures()] == [3, 3, 1]
    assert [letter.deliveries for letter in runs[1].failures()] == [1]


def test_map_without_a_lab_completes_to_the_options_of_a_labs_map() -> None:
    """Its help begins with them."""
    assert list(inspect.signature(dq.map).parameters) == list(inspect.signature(dq.Lab.map).parameters)[1:]


def test_a_retry_has_limits_of_its_own_and_a_note_that_stands_beside_its_version(queue: dq.QueuePool) -> None:
    """Large documents get more, later retries keep it, and the code is the same."""

    def nap(x: int) -> int:
        import os
        import time

        time.sleep(1.5 * (x == 1))
        return os.getpid() if x != 2 else int("no number")

    run = queue.map(nap, range(3), timeout=1, retry=0).wait(timeout=60)
    assert {letter.error for letter in run.failures()} == {"MessageTimeout", "ValueError"}

    assert run.retry(where="error == 'MessageTimeout'", timeout="30s", note="slow ones") == 1
    run.wait(timeout=60)
    assert run.counts["acked"] == 2
    run.retry(fn=lambda x: 0, memory="1GB")
    first, slow, last = run.wait(timeout=60).versions

    assert [each.note for each in (first, slow, last)] == ["", "slow ones", "memory=1GB"]
    assert first.short == slow.short != last.short
    assert run.record()["codes"][-1]["process"] == {**run.record()["process"], "timeout": 30.0, "memory": 10**9}
    assert run.stats().code.did == (1, 1, 1)
    assert len({*run.results(timeout=30)} - {0}) == 2, "both ran in processes"


def test_a_retry_takes_what_failed_in_threads_into_a_process_and_back(queue: dq.QueuePool) -> None:
    """A parser that may crash is tried apart from the others."""

    def fails(x: int) -> None:
        import multiprocessing
        import os

        assert multiprocessing
        raise OSError(os.getpid())

    run = queue.map(fails, [1], retry=0).wait(timeout=30)
    seen = [run.failures()[0].message]
    for executor in ("process", "thread"):
        run.retry(executor=executor)
        run.wait(timeout=60)
        seen.append(run.failures()[0].message)

    assert len(set(seen)) >= 2
    assert seen[1] not in (seen[0], seen[2])
    assert [each.note for each in run.versions] == ["", "executor=process", "executor=thread"]
