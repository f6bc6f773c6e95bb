"""Single calls leave nothing behind: a result is kept until nobody can ask for it."""

from __future__ import annotations

import gc
import time
from typing import Any

import dqlab as dq
from dqlab.frame import NO_ID


def kept(pool: dq.QueuePool) -> int:
    """Results of single calls that the queue keeps."""
    progress = pool.handle.link.sync(pool.handle.ask_all("watch", {"run": NO_ID, "wait": 0.0, "covered": True}))
    return sum(hi - lo for shard in progress for lo, hi in shard["covered"])


def settles_at(pool: dq.QueuePool, n: int) -> bool:
    """Whether so many results are kept before long."""
    deadline = time.monotonic() + 20.0
    while kept(pool) != n and time.monotonic() < deadline:
        time.sleep(0.05)
    return kept(pool) == n


def double(x: int) -> int:
    return 2 * x


def test_results_of_calls_are_kept_while_somebody_can_ask_for_them(lab: dq.Lab, queue_name: str) -> None:
    """They may be read twice; a service that makes calls for weeks fills no disk."""
    pool = lab.queue(queue_name)
    held = pool.submit(double, 4)
    for number in range(20):
        assert pool.submit(double, number).results(timeout=30) == [2 * number]
    gc.collect()

    assert settles_at(pool, 1)
    assert held.results(timeout=30) == held.results(timeout=30) == [8]
    del held
    assert settles_at(pool, 0)
    pool.close()


def test_a_call_that_nobody_waits_for_leaves_no_result(lab: dq.Lab, queue_name: str) -> None:
    pool = lab.queue(queue_name)
    for number in range(20):
        pool.submit(double, number)
    pool.flush()
    gc.collect()

    assert settles_at(pool, 0)
    deadline = time.monotonic() + 20.0
    while pool.stats().counts.left and time.monotonic() < deadline:
        time.sleep(0.05)
    assert settles_at(pool, 0)
    pool.close()


def test_forget_frees_what_clients_before_left(lab: dq.Lab, queue_name: str) -> None:
    """What a process left that is gone can be read by nobody."""
    pool = lab.queue(queue_name)
    results: list[Any] = [pool.submit(double, number) for number in range(5)]
    assert [each.results(timeout=30) for each in results] == [[0], [2], [4], [6], [8]]

    assert pool.forget() == 5
    assert kept(pool) == 0
    pool.close()


def test_a_function_that_was_forgotten_comes_along_with_the_next_call(lab: dq.Lab, queue_name: str) -> None:
    """The client believes that the queue has it; ten other functions later that is no longer so."""
    pool = lab.queue(queue_name)
    functions = [eval(f"lambda x: x + {number}") for number in range(12)]
    for _ in range(2):
        for number, function in enumerate(functions):
            assert pool.submit(function, 1).results(timeout=30) == [1 + number]
    pool.close()
