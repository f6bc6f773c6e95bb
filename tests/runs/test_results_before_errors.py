"""Whatever ends the reading of a run: the results that are there come first, then the error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.config
import pytest

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.errors import (
    DqlabError,
    PutError,
    ResultsFull,
    SubmissionIncomplete,
    WaitTimeout,
)
from dqlab.testing import Gate

MANY = 5_000
"""Documents whose results come in several pages."""


def same(x: int) -> int:
    return x


def broken(n: int) -> Iterator[int]:
    yield from range(n)
    raise OSError("the share is gone")


def acked(run: dq.Run, count: int) -> dq.Run:
    """Return the run when so many of its documents have results."""
    deadline = time.monotonic() + 60
    while run.counts["acked"] < count:
        assert time.monotonic() < deadline, run.counts
        time.sleep(0.005)
    return run


def read(stream: Iterator[tuple[Any, Any]]) -> tuple[list[Any], DqlabError | None]:
    """Return the keys that came, and the error after them."""
    keys = []
    try:
        for key, _ in stream:
            keys.append(key)
    except DqlabError as error:
        return sorted(keys), error
    return sorted(keys), None


@pytest.fixture
def wide(lab: dq.Lab, queue_name: str) -> Iterator[dq.QueuePool]:
    """A queue with several shards."""
    pool = dq.QueuePool(lab.client, n_queues=3, name=queue_name, served=True)
    yield pool
    pool.close()


@pytest.mark.parametrize("submits", [True, False], ids=["here", "elsewhere"])
def test_all_results_come_before_the_input_that_broke(wide: dq.QueuePool, submits: bool) -> None:
    """Of the hour before the share failed, not one result is left out."""
    run = acked(wide.map(same, broken(MANY)), MANY)
    assert run.submitter is not None
    assert run.submitter.join(30)
    if not submits:
        object.__setattr__(run, "submitter", None)

    keys, error = read(run.as_completed(timeout=20))

    assert keys == list(range(MANY))
    assert isinstance(error, SubmissionIncomplete)


def test_an_input_that_broke_is_reported_while_the_run_is_paused(queue: dq.QueuePool) -> None:
    """Nothing more comes by itself then."""
    queue.pause()
    run = queue.map(same, broken(10))
    assert run.submitter is not None
    assert run.submitter.join(30)

    keys, error = read(run.as_completed(timeout=20))

    assert keys == []
    assert isinstance(error, SubmissionIncomplete)


def test_all_results_come_before_the_refusal_of_a_draining_queue(queue: dq.QueuePool, tmp_path: Path) -> None:
    """It goes on with what it took."""
    drains = Gate(tmp_path)

    def documents() -> Iterator[int]:
        yield from range(MANY)
        drains.wait()
        yield from range(MANY, 2 * MANY)

    run = acked(queue.map(same, documents()), MANY // 2)
    queue.drain()
    drains.open()
    assert run.submitter is not None
    assert run.submitter.join(30)

    keys, error = read(run.as_completed(timeout=20))

    assert len(keys) == run.counts["acked"] >= MANY // 2
    assert isinstance(error, PutError)


def test_all_results_come_before_the_time_is_over(wide: dq.QueuePool, tmp_path: Path) -> None:
    """`timeout` is for the next result: those that are there take no time, whichever shards have them."""
    gate = Gate(tmp_path)

    def held(x: int) -> int:
        if x == MANY:
            gate.wait()
        return x

    run = acked(wide.map(held, range(MANY + 1)), MANY - 1000)
    there = run.counts["acked"]

    keys, error = read(run.as_completed(timeout=0))

    gate.open()
    assert len(keys) >= there
    assert isinstance(error, WaitTimeout)


def test_all_results_come_before_a_run_is_out_of_room(
    lab: dq.Lab, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that come between the last page and the answer that the run has paused itself."""
    with dask.config.set({"dqlab.results.maxsize": 20_000}):
        pool = lab.queue(queue_name)
    run = pool.map(bytes, [1_000] * 20_000)
    with pytest.raises(ResultsFull):
        run.wait(timeout=30)
    there, real, watched = run.counts["acked"], Handle.ask, [False]

    async def ask(self: Handle, shard: int, call: calls.Call[Any], *parts: bytes, **how: Any) -> Any:
        answer, found = await real(self, shard, call, *parts, **how)
        watched[0] = watched[0] or isinstance(call, calls.WatchCall)
        early = isinstance(call, calls.StreamCall) and not watched[0]
        return (replace(answer, cursor=call.cursor), []) if early else (answer, found)

    monkeypatch.setattr(Handle, "ask", ask)

    keys, error = read(run.as_completed(timeout=20))

    assert len(keys) >= there > 0
    assert isinstance(error, ResultsFull)
    pool.close(force=True)


def test_consumers_wait_for_results_that_are_not_on_disk_yet(
    lab: dq.Lab, queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk must not make a part of the results look like all of them."""
    queue.batch_submit([(same, x) for x in range(100)]).results(timeout=20)
    real, refused = Handle.ask, [3]

    async def ask(self: Handle, shard: int, call: calls.Call[Any], *parts: bytes, **how: Any) -> Any:
        answer, found = await real(self, shard, call, *parts, **how)
        if not isinstance(call, calls.StreamCall) or not refused[0]:
            return answer, found
        refused[0] -= 1
        return replace(answer, cursor=call.cursor, more=True, done=False), []

    monkeypatch.setattr(Handle, "ask", ask)

    assert sorted(dq.ConsumerPool(lab.client, queue).results().values()) == list(range(100))
