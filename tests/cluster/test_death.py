"""What dies is noticed: messages of dead consumers return at once, and nothing waits for the dead."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.cluster.transport import link
from dqlab.errors import DqlabError, SchedulerGone
from dqlab.testing import Gate, Tally
from tests.kit import forking
from tests.kit.waiting import until

pytestmark = pytest.mark.cluster


def same(x: int) -> int:
    return x


@pytest.fixture(scope="module")
def cluster() -> Iterator[dq.Lab]:
    """A cluster that may be hurt."""
    with dq.connect(n=2, name="to-be-hurt") as lab:
        yield lab


def consumers(lab: dq.Lab, pool: dq.QueuePool) -> list[str]:
    """Addresses of the workers that hold a consumer of the queue."""
    held = lab.client.run(lambda dask_worker: [str(key) for key in dask_worker.state.actors])
    return [at for at, keys in held.items() if any(key.startswith(f"dq-consumer/{pool.name}/") for key in keys)]


def consumer_keys(dask_scheduler: Any) -> list[str]:
    """Keys of consumers that the scheduler keeps, alive or not."""
    return [str(key) for key in dask_scheduler.tasks if str(key).startswith("dq-consumer/")]


def process_of(lab: dq.Lab, address: str) -> int:
    return int(lab.client.run(os.getpid, workers=[address])[address])


def test_workers_that_die_while_dask_looks_for_them_are_made_again(own_lab: dq.Lab) -> None:
    """Dask looks 15 s after each death; who died once more at that moment was lost, and after some time all were."""
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1 ms"}):
        for worker, process in own_lab.client.run(os.getpid).items():
            os.kill(process, signal.SIGKILL)
            while worker in own_lab.client.scheduler_info(n_workers=-1)["workers"]:
                own_lab.client.sync(asyncio.sleep, 0.01)
        own_lab.client.wait_for_workers(3, timeout=30)

    assert own_lab.queue("still-there").submit(same, 1).results(timeout=30) == [1]


def test_workers_of_a_local_cluster_that_die_while_dask_looks_for_them_are_made_again() -> None:
    """A document that kills its process again and again left a `LocalCluster` without workers, and its run stood."""
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 ms"}),
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
        dq.connect(cluster) as lab,
        dq.connect(cluster, name="again"),
    ):
        for worker, process in lab.client.run(os.getpid).items():
            os.kill(process, signal.SIGKILL)
            while worker in lab.client.scheduler_info(n_workers=-1)["workers"]:
                lab.client.sync(asyncio.sleep, 0.01)
        lab.client.wait_for_workers(3, timeout=30)


def test_worker_of_a_cluster_that_was_passed_is_replaced_by_scaling_after_it_was_retired() -> None:
    """It stayed among the cluster's workers for good, so that `scale` had nothing to do."""
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 ms"}),
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
        dq.connect(cluster) as lab,
    ):
        retired = lab.client.retire_workers(list(lab.client.scheduler_info(n_workers=-1)["workers"]))
        assert len(retired) == 3
        until(lambda: not cluster.workers)
        cluster.scale(3)
        lab.client.wait_for_workers(3, timeout=30)


def test_killed_consumer_costs_no_document(own_lab: dq.Lab, tmp_path: Path) -> None:
    """Its messages return at once, not after their lease of 60 s; finished results stay; a new consumer joins."""
    gate, tally = Gate(tmp_path), Tally(tmp_path)
    pool = own_lab.queue("killed")

    def work(x: int) -> int:
        if x >= 100:
            gate.wait(os.getpid())
        tally.add(x)
        return x

    run = pool.map(work, range(300))
    holders = {int(pid) for pid in gate.until_arrived(2)}
    deadline = time.monotonic() + 20
    while run.counts["acked"] < 100:  # what was done in the last 100 ms would be done again
        assert time.monotonic() < deadline
        time.sleep(0.005)
    victim = process_of(own_lab, consumers(own_lab, pool)[0])
    assert victim in holders

    began = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    gate.open()

    assert list(run.results(timeout=25)) == list(range(300))
    assert time.monotonic() - began < 20
    assert run.counts["acked"] == 300
    seen = [int(x) for x in tally.seen()]
    assert sorted(set(seen)) == list(range(300))
    assert len(seen) <= 300 + 64
    while len(consumers(own_lab, pool)) < 2:
        assert time.monotonic() - began < 25
        time.sleep(0.005)
    assert len(own_lab.client.run_on_scheduler(consumer_keys)) == 2


def test_document_that_always_kills_its_worker_is_the_only_one_lost(own_lab: dq.Lab) -> None:
    """One broken file among many: one dead letter that names the signal, and all other results."""
    pool = own_lab.queue("crashing")

    def work(x: int) -> int:
        if x == 123:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    run = pool.map(work, range(500)).wait(timeout=50)

    [letter] = run.failures()
    assert (letter.ordinal, letter.error) == (123, "ProcessDied")
    assert "died of signal 9 (SIGKILL)" in letter.message
    assert list(run.results(errors="skip")) == [x for x in range(500) if x != 123]


SCHEDULER = "from distributed.cli.dask_scheduler import main; main()"
WORKER = "from distributed.cli.dask_worker import main; main()"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A scheduler and two workers as processes of their own, found by a scheduler file."""
    file = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": Path.cwd()}
    head = [sys.executable, "-c"]
    scheduler = forking.Popen(
        [*head, SCHEDULER, "--port", "0", "--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)],
        **quiet,
    )
    deadline = time.monotonic() + 30
    while not (file.exists() and file.read_text().endswith("}")):  # workers give up soon when there is no scheduler
        assert time.monotonic() < deadline
        time.sleep(0.02)
    options = [
        "--nthreads",
        "1",
        "--no-dashboard",
        "--no-nanny",
        "--death-timeout",
        "10",
        "--scheduler-file",
        str(file),
    ]
    workers = [forking.Popen([*head, WORKER, *options], **quiet) for _ in range(2)]
    yield {"file": file, "scheduler": scheduler, "workers": workers}
    for process in (scheduler, *workers):
        if psutil.pid_exists(process.pid):
            process.kill()
        process.wait(10)


@pytest.mark.filterwarnings("ignore:this cluster has too few workers")
def test_scheduler_that_dies_ends_every_wait(
    processes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook that waits for ever for what is gone is the worst answer; ten seconds are allowed."""
    assert link.GONE_AFTER <= 8
    monkeypatch.setattr(link, "GONE_AFTER", 1.0)
    gate = Gate(tmp_path)
    lab = dq.connect(scheduler_file=processes["file"], timeout=20)
    lab.client.wait_for_workers(2, timeout=40)
    pool = lab.queue("orphan")
    run = pool.map(lambda _: gate.wait(), range(10))
    gate.until_arrived(1)

    processes["scheduler"].kill()
    began = time.monotonic()

    with pytest.raises(SchedulerGone, match=r"dq.connect\(\)"):
        run.wait()
    assert time.monotonic() - began < 3
    for worker in processes["workers"]:  # they answer for as long as they wait for another scheduler
        worker.wait(20)
    with pytest.raises(DqlabError):
        _ = run.counts
    with pytest.raises(DqlabError):
        pool.submit(same, 1).results(timeout=3)
    assert time.monotonic() - began < 18
    gate.open()
    lab.close()


def be_impatient() -> float:
    """Have the scheduler wait for 1 s where a worker does not answer; return how long it does otherwise."""
    from dqlab.cluster.scheduler import registry

    before, registry.HELLO_TIMEOUT = registry.HELLO_TIMEOUT, 1.0
    return before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:this cluster has too few workers")
def test_cluster_with_a_worker_that_hangs_is_connected_to(processes: dict[str, Any]) -> None:
    """The others are there to work."""
    with Client(scheduler_file=processes["file"], timeout=20, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=20)
        assert client.run_on_scheduler(be_impatient) <= 3
        stopped = processes["workers"][0].pid
        os.kill(stopped, signal.SIGSTOP)
        began = time.monotonic()
        with dq.connect(client) as lab:
            assert lab.stats().workers == 2
        assert time.monotonic() - began < 16
        os.kill(stopped, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:this cluster has too few workers")
def test_notebook_whose_scheduler_died_goes_on_where_it_stopped(
    processes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a store: connect again, and run the same cell again."""
    monkeypatch.setattr("dqlab.cluster.transport.link.GONE_AFTER", 1.0)
    gate, tally, store = Gate(tmp_path), Tally(tmp_path), tmp_path / "store"

    def work(x: int) -> int:
        if x >= 100:
            gate.wait()
        tally.add(x)
        return -x

    lab = dq.connect(scheduler_file=processes["file"], timeout=20, store=store)
    lab.client.wait_for_workers(2, timeout=20)
    run = lab.map(work, range(300), name="pages")
    gate.until_arrived(1)
    done = run.counts["acked"]
    processes["scheduler"].kill()
    with pytest.raises(SchedulerGone, match="store="):
        run.wait()
    lab.close()
    gate.open()

    with dq.connect(n=1, store=store) as again:
        run = again.map(work, range(300), name="pages")
        assert list(run.results(timeout=40)) == [-x for x in range(300)]
        assert run.counts["acked"] == sum(run.counts.values()) == 300
    seen = [int(x) for x in tally.seen()]
    assert sorted(set(seen)) == list(range(300))
    assert done > 0
