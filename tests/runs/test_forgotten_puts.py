"""Single calls leave nothing behind: a result is kept until no client can ask for it."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.errors import ResultsMissing
from dqlab.frame import NO_ID


def kept(pool: dq.QueuePool) -> int:
    """Results of single calls that the queue keeps."""
    progress = pool.handle.link.sync(pool.handle.ask_all(calls.WatchCall(NO_ID, covered=True)))
    return sum(hi - lo for shard in progress for lo, hi in shard.covered)


def settles_at(pool: dq.QueuePool, n: int) -> bool:
    """Whether so many results are kept before long."""
    deadline = time.monotonic() + 20.0
    while kept(pool) != n and time.monotonic() < deadline:
        time.sleep(0.05)
    return kept(pool) == n


def double(x: int) -> int:
    return 2 * x


def test_results_of_calls_are_kept_while_they_can_be_asked_for(lab: dq.Lab, queue_name: str) -> None:
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


def test_a_call_whose_result_is_not_wanted_leaves_none(lab: dq.Lab, queue_name: str) -> None:
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
    """What a process left that is gone can be read by no other."""
    pool = lab.queue(queue_name)
    results: list[Any] = [pool.submit(double, number) for number in range(5)]
    assert [each.results(timeout=30) for each in results] == [[0], [2], [4], [6], [8]]

    assert pool.forget() == 5
    assert kept(pool) == 0
    pool.close()


@pytest.mark.parametrize("errors", ["raise", "return"])
def test_result_that_was_freed_is_not_reported_as_failed(lab: dq.Lab, queue_name: str, errors: Any) -> None:
    """The advice was to put again what failed, and nothing had."""
    pool = lab.queue(queue_name)
    read, unread = pool.submit(double, 1), pool.batch_submit([(double, number) for number in range(3)])
    assert read.results(timeout=30) == [2]
    deadline = time.monotonic() + 20.0
    while pool.counts()["acked"] < 4:
        assert time.monotonic() < deadline
        time.sleep(0.005)

    assert pool.forget() == 4
    with pytest.raises(ResultsMissing, match="3 of 3 results"):
        unread.results(timeout=30, errors=errors)
    pool.close()


def test_a_call_whose_result_is_not_wanted_costs_no_other_of_its_settlement(lab: dq.Lab, queue_name: str) -> None:
    """Two calls that came one after the other are settled together, and what one of them returned was thrown away."""
    pool = lab.queue(queue_name)
    pool.submit(double, 0).results(timeout=30)
    pool.pause()
    unwanted = pool.submit(double, 1)
    ids = unwanted.ids  # confirmed, so the next one comes in a frame of its own
    wanted = [pool.submit(double, number) for number in (2, 3) if pool.flush() is None]
    order = {"op": "forget", "run": NO_ID, "ids": [(ids[0], ids[0] + 1)], "coming": True}
    pool.handle.link.sync(pool.handle.ask(0, calls.ControlCall(order)))
    pool.resume()

    assert [each.results(timeout=20) for each in wanted] == [[4], [6]]
    del wanted, unwanted
    assert settles_at(pool, 0)
    pool.close()


@contextmanager
def opened_again(lab: dq.Lab, name: str) -> Iterator[dq.QueuePool]:
    """Yield the queue as another client has closed it and opened it again."""
    with Client(lab.client.scheduler.address, set_as_default=False) as client:
        dq.QueuePool(client, name=name).close(force=True)
        yield dq.QueuePool(client, name=name, served=True)


def test_results_of_a_queue_that_was_closed_are_forgotten_without_those_of_others(
    lab: dq.Lab, queue: dq.QueuePool
) -> None:
    """They have the same ids, and another client still wants them."""
    mine = [queue.submit(double, number) for number in range(5)]
    assert [each.results(timeout=30) for each in mine] == [[2 * number] for number in range(5)]
    ids = [each.ids for each in mine]
    with opened_again(lab, queue.name) as theirs:
        others = [theirs.submit(double, number + 10) for number in range(5)]
        assert [each.results(timeout=30) for each in others] == [[2 * number + 20] for number in range(5)]
        assert [each.ids for each in others] == ids

        del mine
        gc.collect()
        forgetting = queue._puts._forgetting
        assert forgetting is not None
        deadline = time.monotonic() + 20.0
        while forgetting._awake and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not forgetting._awake

        assert kept(theirs) == 5
        assert [each.results(timeout=30) for each in others] == [[2 * number + 20] for number in range(5)]
