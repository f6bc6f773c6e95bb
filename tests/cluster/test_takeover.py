"""Durable queues outlive their worker: another one opens their log, and nobody has to do anything."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.connecting import RESERVED
from dqlab.testing import Gate, Tally

pytestmark = pytest.mark.lowest


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dq.Lab]:
    """A cluster that may be hurt, with a store."""
    with dq.connect(n=2, name="to-be-hurt", store=tmp_path_factory.mktemp("takeover") / "store") as lab:
        yield lab


def host_of(lab: dq.Lab, pool: dq.QueuePool, shard: int = 0) -> int:
    """Return the process that holds a shard."""
    held = lab.client.run(lambda dask_worker: ([str(key) for key in dask_worker.state.actors], os.getpid()))
    prefix = f"dq-queue/{pool.name}/{shard}-"
    return next(pid for keys, pid in held.values() if any(key.startswith(prefix) for key in keys))


def name_of_host(prefix: str, dask_worker: Any) -> str | None:
    """Return the name of a worker that holds such an actor."""
    return str(dask_worker.name) if any(str(key).startswith(prefix) for key in dask_worker.state.actors) else None


def slow_double(x: int) -> int:
    time.sleep(0.001)  # the work it does
    return 2 * x


def test_queue_whose_worker_is_killed_goes_on_with_all_it_had_confirmed(own_lab: dq.Lab, tmp_path: Path) -> None:
    gate, tally = Gate(tmp_path), Tally(tmp_path)
    pool = own_lab.queue("killed")

    def work(x: int) -> int:
        if x >= 500:
            gate.wait(os.getpid())
        tally.add(x)
        return -x

    run = pool.map(work, range(1000))
    gate.until_arrived(2)
    confirmed = pool.put_many([1, 2, 3])
    ids = confirmed.ids
    os.kill(host_of(own_lab, pool), signal.SIGKILL)
    gate.open()

    assert list(run.results(timeout=30)) == [-x for x in range(1000)]
    assert run.counts["acked"] == sum(run.counts.values()) == 1000
    assert len(pool.put_many([4]).ids) == 1
    assert min(pool.put_many([5]).ids) > max(ids)
    seen = [int(x) for x in tally.seen()]
    assert sorted(set(seen)) == list(range(1000))


def test_queue_that_had_to_go_to_a_worker_of_consumers_comes_back(
    own_lab: dq.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it would wait for users' functions."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.REPLACEMENT_WAIT", 0.0)
    pool = own_lab.queue("homesick")
    ids = pool.put_many([1, 2]).ids
    before = host_of(own_lab, pool)
    os.kill(before, signal.SIGKILL)
    ids += pool.put_many([3]).ids
    while RESERVED not in own_lab.client.run(name_of_host, f"dq-queue/{pool.name}/", on_error="ignore").values():
        own_lab.wait_for_change(own_lab.stats().seq, timeout=0.5)

    assert len(set(ids)) == pool.counts()["ready"] == 3


def test_submission_goes_on_when_the_worker_of_its_queue_is_killed(own_lab: dq.Lab) -> None:
    """Frames that were on their way are sent again, and counted once."""
    pool = own_lab.queue("filling", n_queues=2)

    def documents() -> Iterator[int]:
        for x in range(24_000):
            if x == 8_000:
                os.kill(host_of(own_lab, pool), signal.SIGKILL)
            yield x

    run = pool.map(abs, documents(), name="filling")

    assert list(run.results(timeout=50)) == list(range(24_000))
    assert run.counts["acked"] == sum(run.counts.values()) == 24_000


@pytest.mark.slow
def test_queue_is_killed_again_and_again(own_lab: dq.Lab) -> None:
    pool = own_lab.queue("unlucky")
    run = pool.map(slow_double, range(6000), name="unlucky")
    for _ in range(3):
        before = run.counts["acked"]
        os.kill(host_of(own_lab, pool), signal.SIGKILL)
        while run.counts["acked"] < min(6000, before + 500):
            time.sleep(0.005)

    assert list(run.results(timeout=50)) == [2 * x for x in range(6000)]
    assert sum(run.counts.values()) == 6000


def ends_late(dask_worker: Any) -> None:
    """Have a worker take three seconds to close: as when its functions do not end, or its machine is busy."""
    close = dask_worker.close

    async def late(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(3)
        return await close(*args, **kwargs)

    dask_worker.close = late


@pytest.mark.slow
def test_calls_wait_while_workers_that_are_restarted_take_long_to_end(
    own_lab: dq.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask releases every actor first: for seconds, workers that are still there no longer had the shards."""
    monkeypatch.setattr("dqlab.cluster.transport.ref.NEWS_WAIT", 0.5)
    pool = own_lab.queue("slowly")
    run = pool.map(abs, range(100), name="slowly")
    run.wait(timeout=30)
    own_lab.client.run(ends_late)

    restart = threading.Thread(target=own_lab.client.restart)
    restart.start()
    counted = []
    while restart.is_alive():
        counted.append(run.counts["acked"])
    restart.join()

    assert set(counted) == {100}


def test_all_workers_restarted_at_once(own_lab: dq.Lab) -> None:
    """What a user does whose cluster misbehaves."""
    pool = own_lab.queue("restarted")
    run = pool.map(slow_double, range(1500), name="restarted")
    own_lab.client.restart()

    assert list(run.results(timeout=50)) == [2 * x for x in range(1500)]
    assert sum(run.counts.values()) == 1500
