"""Workers hang, are told to go, scaled away and retired; queues on disk and their runs go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.errors import BadOption
from dqlab.testing import Gate, Tally
from tests.kit.waiting import is_alive, until_in

WORKERS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster that may be hurt, and is whole again for each test."""
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "5s"}),  # then a retired one can be replaced
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
    ):
        yield cluster


def hurry() -> None:
    """Wait less, on a worker, for messages that will not end."""
    from dqlab.cluster.consumer import slot

    slot.LAST_MESSAGE_S = 0.5


def running(dask_scheduler: Any) -> int:
    """Workers that neither start nor leave."""
    return len(dask_scheduler.running)


@pytest.fixture
def lab(cluster: LocalCluster, tmp_path: Path) -> Iterator[dq.Lab]:
    with Client(cluster, set_as_default=False) as client:
        while client.run_on_scheduler(running) != WORKERS:  # those that leave are replaced first
            cluster.scale(WORKERS)
            time.sleep(0.005)
        client.run(hurry, on_error="ignore")  # one more may be on its way out
        with dq.connect(client, store=tmp_path / "store") as lab:
            yield lab


def hosts(lab: dq.Lab, kind: str, pool: dq.QueuePool) -> dict[str, int]:
    """Address and process of each worker that hosts a queue's shards, or its consumers."""

    def here(dask_worker: Any) -> tuple[list[str], int]:
        held = [str(key) for key, actor in dask_worker.state.actors.items() if not actor.closed]
        return held, os.getpid()

    prefix = f"dq-{kind}/{pool.name}/"
    answers = lab.client.run(here, on_error="ignore")
    return {at: pid for at, (keys, pid) in answers.items() if any(key.startswith(prefix) for key in keys)}


class Held:
    """A run that stands still in the middle, at a gate, while the test does something to the cluster."""

    def __init__(self, lab: dq.Lab, directory: Path, name: str, **options: Any) -> None:
        self.lab, self.gate, self.tally = lab, Gate(directory), Tally(directory)
        gate, tally = self.gate, self.tally

        def work(x: int) -> int:
            if x >= 200:
                gate.wait(os.getpid())
            tally.add(x)
            return -x

        self.pool = lab.queue(name, **options)
        self.run = self.pool.map(work, range(600), name=name)
        self.gate.until_arrived(1)

    def ends_well(self) -> None:
        self.gate.open()
        assert list(self.run.results(timeout=40)) == [-x for x in range(600)]
        assert self.run.counts["acked"] == sum(self.run.counts.values()) == 600
        assert sorted({int(x) for x in self.tally.seen()}) == list(range(600))


def test_queue_whose_worker_hangs_goes_on_elsewhere(
    lab: dq.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dqlab.cluster.scheduler.departures.NEW_SILENCE", 2.0)
    held = Held(lab, tmp_path, "hanging")
    ids = held.pool.put_many([1, 2, 3]).ids
    ((address, process),) = hosts(lab, "queue", held.pool).items()
    os.kill(process, signal.SIGSTOP)

    assert min(held.pool.put_many([4]).ids) > max(ids)
    assert address not in hosts(lab, "queue", held.pool)
    held.ends_well()


@pytest.mark.parametrize("kind", ["queue", "consumer"])
def test_worker_that_is_asked_to_terminate_hands_over_what_it_holds(lab: dq.Lab, tmp_path: Path, kind: str) -> None:
    held = Held(lab, tmp_path, f"terminated-{kind}")
    gone = hosts(lab, kind, held.pool)
    for process in gone.values():
        os.kill(process, signal.SIGTERM)
    held.gate.open()
    held.ends_well()
    until_in(lab, lambda: not any(map(is_alive, gone.values())))
    assert not gone.keys() & hosts(lab, kind, held.pool).keys()


def begin_to_close(dask_worker: Any) -> int:
    """Leave a worker as Dask does when its nanny is gone in the middle of its close."""
    from distributed.core import Status

    dask_worker.status = Status.closing
    return os.getpid()


@pytest.mark.cluster
def test_worker_that_closes_already_is_gone_soon_after_it_is_asked_to_terminate() -> None:
    """Else jobs stay on their nodes for nine seconds after their cluster was closed."""
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as alone,
        Client(alone, set_as_default=False) as client,
        dq.connect(client),
    ):
        address = next(iter(client.scheduler_info()["workers"]))
        process = psutil.Process(client.run(begin_to_close, workers=[address])[address])
        process.terminate()
        process.wait(timeout=6)


def test_worker_that_hosts_a_durable_queue_can_be_retired(lab: dq.Lab, cluster: LocalCluster, tmp_path: Path) -> None:
    """Dask alone refuses: it cannot move actors."""
    held = Held(lab, tmp_path, "retired")
    (address,) = hosts(lab, "queue", held.pool)

    assert list(lab.client.retire_workers([address])) == [address]
    assert address not in hosts(lab, "queue", held.pool)
    held.ends_well()
    cluster.scale(0)  # it does not know yet that one of its workers is gone


@pytest.mark.slow
def test_worker_is_retired_also_when_no_other_can_host_its_queue_yet(
    lab: dq.Lab, cluster: LocalCluster, tmp_path: Path
) -> None:
    """The log is closed in good order, and the queue goes on as soon as there is a worker."""
    held = Held(lab, tmp_path, "last")
    addresses = list(lab.client.scheduler_info(n_workers=-1)["workers"])

    assert sorted(lab.client.retire_workers(addresses)) == sorted(addresses)
    while lab.client.run_on_scheduler(running) != WORKERS:
        cluster.scale(WORKERS)
        time.sleep(0.005)
    held.ends_well()


def test_transient_queue_moves_to_another_worker_of_its_machine_when_its_own_is_retired(lab: dq.Lab) -> None:
    pool = lab.queue("kept", durable=False)
    ids = pool.put_many([1, 2, 3]).ids
    (address,) = hosts(lab, "queue", pool)

    assert list(lab.client.retire_workers([address])) == [address]
    assert len(ids) == pool.counts()["ready"] == 3
    assert address not in hosts(lab, "queue", pool)
    pool.close()


def test_run_goes_on_when_the_cluster_is_scaled_down_to_nothing_and_up_again(
    lab: dq.Lab, cluster: LocalCluster, tmp_path: Path
) -> None:
    held = Held(lab, tmp_path, "scaled")
    cluster.scale(0)
    until_in(lab, lambda: lab.stats().workers == 0)
    held.gate.open()
    cluster.scale(2)
    held.ends_well()
    assert len(hosts(lab, "consumer", held.pool)) == 2


def test_workers_with_queues_are_spared_when_a_cluster_shrinks_by_itself(lab: dq.Lab) -> None:
    pool = lab.queue("spared", n_queues=2)

    def chosen(dask_scheduler: Any) -> list[str]:
        return list(dask_scheduler.workers_to_close(n=WORKERS))

    spared = hosts(lab, "queue", pool).keys()
    assert spared
    assert not spared & set(lab.client.run_on_scheduler(chosen))


def test_consumers_are_scaled_while_a_run_goes_on(lab: dq.Lab, tmp_path: Path) -> None:
    held = Held(lab, tmp_path, "by-hand")

    def number() -> int:
        return held.pool.stats().consumers

    for n in (1, 5):
        held.pool.scale(n)
        until_in(lab, lambda n=n: number() == n)
    held.pool.scale("auto")
    held.ends_well()
    with pytest.raises(BadOption, match="1 or more"):
        held.pool.scale(0)


def test_consumer_of_a_pool_is_replaced_when_its_worker_dies(lab: dq.Lab) -> None:
    pool = dq.QueuePool(lab.client, name="replaced")
    consumers = dq.ConsumerPool(lab.client, pool, n_consumers=2)
    consumers.start()
    before = {consumer.name for consumer in consumers}
    for process in hosts(lab, "consumer", pool).values():
        os.kill(process, signal.SIGKILL)
    until_in(lab, lambda: len(list(consumers)) == 2 and not before & {one.name for one in consumers})

    result = pool.submit(abs, -3)
    assert result.results(timeout=20) == [3]
    consumers.scale(3)
    assert len(consumers) == len(list(consumers)) == 3
    consumers.cancel()
    pool.close()


@pytest.mark.slow
def test_document_that_takes_all_memory_says_how_much_that_was(tmp_path: Path) -> None:
    """The nanny kills its worker at 95 % of the limit; then its own process took all that the machine has."""

    def work(x: int) -> int:
        held = []
        while x == 7:
            held.append(b"x" * (20 << 20))
            time.sleep(0.01)
        return x

    with dask.config.set({"distributed.worker.memory.pause": False, "distributed.worker.memory.spill": False}):
        cluster = LocalCluster(n_workers=3, threads_per_worker=1, memory_limit="600 MB", dashboard_address=":0")
        with cluster, Client(cluster) as client, dq.connect(client) as lab:
            run = lab.queue("greedy", max_deliveries=1).map(work, range(20)).wait(timeout=60)
            [letter] = run.failures()
            assert letter.ordinal == 7
            assert (letter.error, "used more than 600 MB" in letter.message) == ("MemoryLimit", True)
