"""The workers of transient queues are killed: what was confirmed is in their logs, and goes on elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.errors import ActorGone, RunFailed, SubmissionIncomplete, WaitTimeout
from dqlab.runs.session import Session
from dqlab.store.directories import private_directory
from tests.kit import waiting
from tests.runs.submit.test_cut_off import double

pytestmark = pytest.mark.cluster


def wrong(x: int) -> int:
    raise LookupError(x)


@pytest.fixture(scope="module")
def hurt() -> Iterator[Client]:
    """A client of a cluster that may be hurt: two workers for queues, two for consumers."""
    with (
        # Dask gives a worker up for good that is being replaced at the moment when this is over.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        Session.of(client, reserved=("0", "1"))
        yield client


@pytest.fixture
def other(hurt: Client) -> Iterator[Client]:
    """The client of another process."""
    with Client(hurt.scheduler.address, set_as_default=False) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"q-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def two(hurt: Client, name: str) -> Iterator[dq.QueuePool]:
    """A queue of two shards, each on a worker of its own."""
    hurt.wait_for_workers(4, timeout=30)
    pool = dq.QueuePool(hurt, 2, name=name, served=True, maxsize=100_000, retry=dq.Retry(0))
    yield pool
    pool.close(force=True)


def host_of(pool: dq.QueuePool, shard: int = 0) -> tuple[str, int]:
    """Address and process of the worker that holds a shard."""
    link = pool.handle.link
    address = link.sync(pool.handle.refs[shard].place()).address
    return address, link.client.run(os.getpid, workers=[address])[address]


def kill(pool: dq.QueuePool, shard: int = 0) -> None:
    """Kill the worker that holds a shard, and wait until another one has it."""
    address, process = host_of(pool, shard)
    os.kill(process, signal.SIGKILL)
    pool[shard].stats()
    assert host_of(pool, shard)[0] != address


def logs_of(client: Client) -> list[str]:
    """Return the directories of transient queues that a cluster has here."""
    cluster = private_directory() / client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.id)
    return sorted(place.name for place in cluster.iterdir() if place.is_dir())


def test_a_queue_whose_workers_are_killed_keeps_its_runs_results_failures_orders_and_single_calls(
    two: dq.QueuePool, name: str
) -> None:
    """In the middle of a submission, while a run is paused, and after the end."""
    going = threading.Event()

    def documents() -> Iterator[int]:
        yield from range(3000)
        going.wait(60)
        yield from range(3000, 4000)

    ended = two.map(double, range(2000), name=f"{name}-ended").wait(timeout=30)
    failed = two.map(wrong, range(3), name=f"{name}-failed")
    with pytest.raises(RunFailed):
        failed.results(timeout=30)
    put = two.submit(double, 21)
    assert put.results(timeout=30) == [42]
    run = two.map(double, documents(), name=f"{name}-going")
    waiting.until(lambda: run.counts["acked"] > 0)
    paused = two.map(double, documents(), name=f"{name}-paused").pause()

    kill(two, 0)
    kill(two, 1)
    going.set()

    assert list(run.results(timeout=60)) == [2 * x for x in range(4000)]
    assert list(ended.results(timeout=30)) == [2 * x for x in range(2000)]
    assert put.results(timeout=30) == [42]
    assert sorted(letter.ordinal for letter in failed.failures()) == [0, 1, 2]
    assert failed.retry(fn=double) == 3
    assert list(failed.results(timeout=30)) == [0, 2, 4]
    assert paused.state == "paused"
    assert list(paused.resume().results(timeout=60)) == [2 * x for x in range(4000)]


def test_who_reads_results_as_they_come_gets_each_once_though_the_worker_of_the_queue_is_killed(
    two: dq.QueuePool, name: str
) -> None:
    run, seen = two.map(double, range(6000), name=f"{name}-read"), list[int]()
    for key, _ in run.as_completed(timeout=60):
        seen.append(key)
        if len(seen) == 500:
            kill(two, 0)
    assert sorted(seen) == [*range(6000)]


def test_a_worker_of_a_transient_queue_that_hangs_is_ended_and_loses_nothing(
    two: dq.QueuePool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dqlab.cluster.scheduler.departures.NEW_SILENCE", 1.0)
    run = two.map(double, range(100), name=f"{name}-hung").wait(timeout=30)
    _, process = host_of(two)
    os.kill(process, signal.SIGSTOP)
    waiting.until(lambda: psutil.Process(process).status() == psutil.STATUS_STOPPED)  # until then it may answer

    assert list(run.results(timeout=30)) == [2 * x for x in range(100)]


def test_a_queue_that_another_client_closed_is_gone_for_its_old_clients_and_begins_empty(
    two: dq.QueuePool, other: Client, name: str, hurt: Client
) -> None:
    """A put of the old client may not be taken for one of the new queue, nor ids of the old for those of the new."""
    put = two.submit(double, 1)
    assert put.results(timeout=30) == [2]
    more = threading.Event()

    def documents() -> Iterator[int]:
        yield 1
        more.wait(30)
        yield 2

    run = two.map(double, documents(), name=f"{name}-cut")
    waiting.until(lambda: run.counts["acked"] == 1)
    before = logs_of(hurt)

    dq.QueuePool(other, 2, name=name).close(force=True)
    again = dq.QueuePool(other, 2, name=name, served=True)

    assert sum(again.counts().values()) == 0
    assert len(logs_of(hurt)) == len(before)  # that of the closed queue is deleted
    with pytest.raises(ActorGone, match="was closed"):
        put.results(timeout=10)
    more.set()
    with pytest.raises((ActorGone, SubmissionIncomplete), match="was closed"):
        run.wait(timeout=10)
    assert again.submit(double, 2).results(timeout=30) == [4]
    again.close(force=True)


def test_a_queue_that_is_closed_while_its_worker_is_dead_leaves_no_log(hurt: Client, name: str) -> None:
    """Its actor, which nobody has made again yet, cannot delete it."""
    hurt.wait_for_workers(4, timeout=30)
    pool = dq.QueuePool(hurt, name=name, served=True)
    assert pool.submit(double, 1).results(timeout=30) == [2]
    before = logs_of(hurt)
    os.kill(host_of(pool)[1], signal.SIGKILL)
    pool.close(force=True)
    assert sorted(set(before) - set(logs_of(hurt))) == [next(log for log in before if log.startswith(name))]


def test_a_queue_whose_machine_is_lost_says_what_it_held_and_opens_empty_again(
    hurt: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one machine all workers see its log: here they count as being elsewhere."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.HOPELESS_AFTER", 0.2)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.RESOLVE_WAIT", 0.3)
    monkeypatch.setattr("dqlab.cluster.scheduler.state.ClusterState.addresses_of", lambda self, host: [])
    pool = dq.QueuePool(hurt, name=name, served=True)
    put = pool.submit(double, 1)
    assert put.results(timeout=30) == [2]
    pool.handle.link.sync(pool.handle.link.scheduler("dq_snapshot", fresh=5.0))

    def is_elsewhere(dask_scheduler: Any) -> None:
        dask_scheduler.plugins["dqlab"].state.entries[f"queue/{name}/0"].machine = "10.0.0.7"

    hurt.run_on_scheduler(is_elsewhere)
    os.kill(host_of(pool)[1], signal.SIGKILL)

    with pytest.raises(
        ActorGone, match=r"10\.0\.0\.7, where no worker has come back.*It held 1 acked.*opens an empty queue"
    ):
        put.results(timeout=30)
    assert sum(dq.QueuePool(hurt, name=name).counts().values()) == 0
    dq.QueuePool(hurt, name=name).close(force=True)


@pytest.mark.slow
def test_all_workers_restarted_at_once_lose_nothing() -> None:
    """What a user does whose cluster misbehaves, in the middle of a run."""
    with dq.connect(n=2, name="to-be-restarted") as lab:
        pool = lab.queue("restarted", n_queues=2)
        ended = pool.map(double, range(8000), name="ended").wait(timeout=30)
        run = pool.map(double, range(4000), name="going")
        waiting.until(lambda: run.counts["acked"] > 0)
        lab.client.restart()
        assert list(ended.results(timeout=60)) == [2 * x for x in range(8000)]
        assert list(run.results(timeout=60)) == [2 * x for x in range(4000)]


def test_a_shard_that_gives_no_answer_does_not_hide_the_results_of_others(
    two: dq.QueuePool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = two.map(double, range(6_000), name=f"{name}-half-silent").wait(timeout=30)
    real, theirs = Handle.ask, run._progress().by_shard[1].acked

    async def ask(self: Handle, shard: int, call: calls.Call[Any], *parts: bytes, **how: Any) -> Any:
        if shard == 0 and isinstance(call, calls.StreamCall):
            await asyncio.get_running_loop().create_future()
        return await real(self, shard, call, *parts, **how)

    monkeypatch.setattr(Handle, "ask", ask)
    seen: list[int] = []

    def look() -> None:
        for key, _ in run.as_completed(timeout=0.3):
            seen.append(key)

    with pytest.raises(WaitTimeout):
        look()
    assert len(seen) == theirs > 0


def test_the_logs_of_a_cluster_end_with_it_and_those_of_a_killed_one_when_the_next_begins(tmp_path: Path) -> None:
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        left = private_directory() / "Scheduler-killed"
        left.mkdir()
        (left / "scheduler").touch()
        with dq.connect(n=1, name="ends") as lab:
            assert list(lab.map(double, range(10)).results(timeout=30)) == [2 * x for x in range(10)]
            assert not left.exists()
            assert [place.name for place in private_directory().iterdir()] == [
                lab.client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.id)
            ]
        assert list(private_directory().iterdir()) == []
