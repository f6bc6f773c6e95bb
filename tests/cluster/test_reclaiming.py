"""A queue whose worker is gone opens elsewhere; consumers on other workers go on with what they have in hand."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.testing import Gate, Tally
from tests.cluster.test_takeover import host_of
from tests.kit.sampled import mostly_slow

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dq.Lab]:
    """A cluster that may be hurt, with a store."""
    with dq.connect(n=2, name="to-be-moved", store=tmp_path_factory.mktemp("reclaiming") / "store") as lab:
        yield lab


@pytest.fixture
def moves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue waits for the worker that replaces its host.

    On a busy machine it went to a worker of consumers first, and home soon after that. A message that was leased just
    then, and whose consumer had not heard of it, ran once more, as promised; these tests count.
    """
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.REPLACEMENT_WAIT", 30.0)


def lose_host(lab: dq.Lab, pool: dq.QueuePool, *others: int) -> None:
    """Kill the process that holds a queue, and others before; return when the queue answers again, from another one."""
    before = host_of(lab, pool)
    for process in (*others, before):
        os.kill(process, signal.SIGKILL)
    pool.counts()
    assert host_of(lab, pool) != before


@pytest.mark.usefixtures("moves_once")
def test_document_in_hand_runs_once_though_others_have_nothing_to_do(own_lab: dq.Lab, tmp_path: Path) -> None:
    """At the end of a run every idle consumer would like to have it."""
    gate, tally = Gate(tmp_path), Tally(tmp_path)
    pool = own_lab.queue("in-hand")

    def work(x: int) -> int:
        tally.add(x)
        if x < 2:
            gate.wait(x)
        return -x

    run = pool.map(work, [0])
    gate.until_arrived(1)
    lose_host(own_lab, pool)
    assert list(pool.map(work, range(2, 50)).results(timeout=30)) == [-x for x in range(2, 50)]
    assert run.counts["leased"] == 1
    gate.open()

    assert list(run.results(timeout=30)) == [0]
    assert sorted(int(x) for x in tally.seen()) == [0, *range(2, 50)]


@pytest.mark.usefixtures("moves_once")
@pytest.mark.parametrize("retries", [0, 2])
def test_failure_of_a_document_in_hand_counts_as_one(own_lab: dq.Lab, tmp_path: Path, retries: int) -> None:
    gate, tally = Gate(tmp_path), Tally(tmp_path)
    pool = own_lab.queue(f"fails-{retries}")

    def work(x: int) -> int:
        tally.add(x)
        gate.wait(x)
        raise ValueError(x)

    run = pool.map(work, [0], retry=dq.Retry(retries, backoff=0.01))
    gate.until_arrived(1)
    lose_host(own_lab, pool)
    gate.open()

    run.wait(timeout=30)
    assert run.counts["dead"] == 1
    assert len(list(tally.seen())) == 1 + retries


@pytest.mark.usefixtures("moves_once")
def test_lease_in_hand_is_renewed_where_its_queue_is_now(own_lab: dq.Lab, tmp_path: Path) -> None:
    """Longer than its visibility timeout: it would be delivered again."""
    gate, tally = Gate(tmp_path), Tally(tmp_path)
    pool = own_lab.queue("renewed", visibility_timeout=1.5)

    def work(x: int) -> int:
        tally.add(x)
        gate.wait(x)
        return -x

    run = pool.map(work, [0])
    gate.until_arrived(1)
    lose_host(own_lab, pool)
    since = -1
    while not any(held.renewals >= 4 for held in own_lab.stats().unacked.oldest):
        since = own_lab.wait_for_change(since, timeout=0.2).seq
    gate.open()

    assert list(run.results(timeout=30)) == [0]
    assert list(tally.seen()) == ["0"]


@pytest.mark.usefixtures("moves_once")
@pytest.mark.parametrize(
    "lives", mostly_slow([True, False], False), ids=["its consumer lives", "its consumer is dead too"]
)
def test_document_that_was_acked_early_is_dead_only_when_no_consumer_runs_it(
    own_lab: dq.Lab, tmp_path: Path, lives: bool
) -> None:
    """The log cannot tell: it knows that the document was begun, and nothing since."""
    gate, tally = Gate(tmp_path), Tally(tmp_path)
    pool = own_lab.queue(f"early-{lives}", early_ack=True)

    def work(x: int) -> int:
        tally.add(x)
        gate.wait(os.getpid())
        return -x

    run = pool.map(work, [0])
    (consumer,) = gate.until_arrived(1)
    lose_host(own_lab, pool, *([] if lives else [int(consumer)]))
    gate.open()

    assert list(run.results(errors="skip", timeout=30)) == ([0] if lives else [])
    assert run.counts["dead"] == (not lives)
    assert list(tally.seen()) == ["0"]


def wind_down(worker: str, dask_scheduler: Any) -> None:
    """Have a worker's consumers finish what they have begun, as if its job ended in 20 s."""
    registry = dask_scheduler.plugins["dqlab"]
    registry.state.in_background(registry.consumer_sets.wind_down(worker, 20.0))


@pytest.mark.usefixtures("moves_once")
def test_document_that_a_leaving_consumer_finishes_runs_once_though_its_queue_moves(
    own_lab: dq.Lab, tmp_path: Path
) -> None:
    """Jobs that began together end together."""
    gate, tally = Gate(tmp_path), Tally(tmp_path)
    pool = own_lab.queue("both")

    def work(x: int) -> int:
        tally.add(x)
        gate.wait(os.getpid())
        return -x

    run = pool.map(work, [0])
    (process,) = gate.until_arrived(1)
    worker = next(address for address, pid in own_lab.client.run(os.getpid).items() if str(pid) == process)
    own_lab.client.run_on_scheduler(partial(wind_down, worker))
    lose_host(own_lab, pool)
    gate.open()

    assert list(run.results(timeout=30)) == [0]
    assert list(tally.seen()) == ["0"]


@pytest.fixture
def threads(tmp_path: Path) -> Iterator[dq.Lab]:
    """Workers of three threads each."""
    with (
        LocalCluster(n_workers=3, threads_per_worker=3, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        dq.connect(client, store=tmp_path / "store") as lab,
    ):
        yield lab


@pytest.mark.parametrize("lasting", [0.0, pytest.param(7.0, marks=pytest.mark.slow)])
def test_idle_slots_leave_their_neighbours_what_they_run(threads: dq.Lab, tmp_path: Path, lasting: float) -> None:
    """Also on the worker that has to take the queue, which is then kept for queues: what runs there is run to its end.

    Longer than the five seconds that a consumer has which is closed.
    """
    gate, tally = Gate(tmp_path), Tally(tmp_path)
    pool = threads.queue("threads")

    def work(x: int) -> int:
        tally.add(x)
        if x < 4:
            gate.wait(x)
        return -x

    run = pool.map(work, range(4))
    gate.until_arrived(4)
    lose_host(threads, pool)
    assert list(pool.map(work, range(4, 60)).results(timeout=30)) == [-x for x in range(4, 60)]
    threading.Event().wait(lasting)
    gate.open()

    assert list(run.results(timeout=30)) == [-x for x in range(4)]
    assert sorted(int(x) for x in tally.seen()) == list(range(60))
