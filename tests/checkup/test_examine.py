"""Examining real clusters, and what hangs: what does not answer is named within the limit."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.checkup.examine import examine
from dqlab.checkup.facts import Checkup, Finding
from dqlab.cluster.transport.link import Link
from dqlab.cluster.worker.plugin import WorkerVitals
from dqlab.errors import BadOption, LabClosed, UsageError
from dqlab.stats import RunState, Severity, Snapshot
from dqlab.store.probe import Probe
from tests.kit.waiting import until

pytestmark = [pytest.mark.lowest, pytest.mark.cluster]


@pytest.fixture(scope="module")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dq.Lab]:
    """A cluster of one consumer and one worker for queues, with a store, that may be hurt."""
    with dq.connect(n=1, name="hurt", store=tmp_path_factory.mktemp("parent") / "store") as lab:
        yield lab


@contextmanager
def stopped(lab: dq.Lab, name: str) -> Iterator[str]:
    """Stop a worker's process meanwhile; give its address."""
    workers = lab.client.scheduler_info()["workers"]
    address = next(address for address, worker in workers.items() if str(worker["name"]) == name)
    pid = lab.client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield address
    finally:
        with suppress(ProcessLookupError):  # one with queues is ended as hung, after a second or more
            os.kill(pid, signal.SIGCONT)


def about(checkup: Checkup, queue: str) -> list[Finding]:
    """Problems that are not about other tests' queues."""
    return [finding for finding in checkup.problems if finding.values.get("queue", queue) == queue]


def reported(lab: dq.Lab, condition: Callable[[Snapshot], bool]) -> None:
    """Wait until shards have told the scheduler."""
    now = lab.stats()
    deadline = time.monotonic() + 20
    while not condition(now):
        assert time.monotonic() < deadline
        now = lab.wait_for_change(now.seq)


def of(checkup: Checkup, check: str) -> Finding:
    return next(finding for finding in checkup.findings if finding.check == check)


def test_healthy_cluster_has_no_problem(lab: dq.Lab, queue: dq.QueuePool) -> None:
    queue.map(abs, range(10)).wait(timeout=20)

    checkup = lab.doctor()

    assert about(checkup, queue.name) == []
    assert {"answers", "shards", "versions"}.isdisjoint(finding.check for finding in checkup.findings)
    assert {row["answers"] for row in checkup.processes} == {"directly"}
    assert [row["pid"] for row in checkup.processes if f"{queue.name}/0" in row["shards"]]
    assert sum(queue.name in row["consumers"] for row in checkup.processes) == 2
    assert checkup.took < 10


def _wrong(_: int) -> None:
    raise KeyError("total")


@pytest.mark.filterwarnings("ignore::dqlab.errors.DqlabWarning")
def test_what_a_run_has_left_dead_is_found_right_after_its_end(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """The last reports of its shard were on the way: the queue was said to have nothing wrong."""
    for number in range(1, 4):
        queue.map(_wrong, [number], retry=dq.Retry(0)).wait(timeout=30)

        (found,) = [each for each in lab.doctor().problems if each.values.get("queue") == queue.name]

        assert found.values["amount"] == number


def test_who_cannot_be_called_directly_is_asked_through_the_scheduler(
    lab: dq.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str) -> Any:
        raise OSError("no route to host")

    monkeypatch.setattr(lab.client, "rpc", refuse)
    checkup = lab.doctor()
    monkeypatch.undo()

    assert [row["answers"] for row in checkup.processes[2:]] == ["through the scheduler"] * 3


def test_store_is_seen_and_locked_by_all_and_left_as_it_was(own_lab: dq.Lab) -> None:
    before = own_lab.doctor()
    pool = own_lab.queue("kept")
    pool.map(abs, range(10)).wait(timeout=20)
    assert own_lab.store is not None
    assert before
    assert of(before, "store").what.startswith(f"{own_lab.store} (made with its first queue) on ")

    checkup = own_lab.doctor()

    assert of(checkup, "store").what.startswith(f"{own_lab.store} on ")
    assert of(checkup, "store").what.endswith(" free")
    assert [row["process"] for row in checkup.processes if "kept/0" in row["shards"]] == ["worker 0"]
    assert [path.name.partition("-")[0] for path in own_lab.store.iterdir()] == ["kept"]


def test_examining_runs_of_huge_functions_keeps_no_worker_from_saying_that_it_lives(own_lab: dq.Lab) -> None:
    """It was taken for one that hangs, and ended."""
    table = [os.urandom(8) for _ in range(300_000)]
    pool = own_lab.queue("huge")
    pool.pause()
    run = pool.map(lambda x: table[x], [1])
    reported(own_lab, lambda now: (mine := now.run(run.name)) is not None and mine.total == 1)
    for _ in range(3):
        own_lab.doctor()
    assert own_lab.stats().queue("huge").state == "paused"
    places = own_lab.session.link.sync(pool.handle.refs[0].place())
    pool.close(force=True)

    assert places.epoch == 1


def test_worker_that_is_stopped_is_named_within_the_limit(own_lab: dq.Lab) -> None:
    with stopped(own_lab, "1") as address:
        began = time.monotonic()
        checkup = own_lab.doctor(timeout="1.5s")
        took = time.monotonic() - began

    [found] = checkup.problems
    assert not checkup
    assert found.what.startswith(f"worker 1 ({address}) does not answer: nothing within 1.")
    assert found.command == f"lab.client.restart_workers(['{address}'])"
    assert took < 4


def test_run_on_a_worker_that_is_stopped_waits_for_it_and_says_so(
    own_lab: dq.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor alone knew: views said that it ran, and when it would be done."""
    monkeypatch.setattr("dqlab.cluster.statistics.collector.SILENT", 3.0)
    run = own_lab.queue("stands").map(time.sleep, [0.05] * 1200, name="stands")
    reported(own_lab, lambda seen: any(each.counts.acked for each in seen.runs if each.name == "stands"))
    with stopped(own_lab, "1"):
        until(lambda: own_lab.stats().run("stands").state is RunState.WAITING)
        stats, snapshot = run.stats(), run.snapshot()
    until(lambda: run.stats().state is RunState.RUNNING)
    run.cancel()

    assert (stats.state, stats.eta, stats.rate) == (RunState.WAITING, None, None)
    assert stats.why.startswith("no consumer answers since ")
    assert snapshot.consumers[0].silent > 3


def test_disk_that_hangs_here_is_named_within_the_limit(own_lab: dq.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hang(directory: Path) -> Probe:
        released.wait()
        return Probe(str(directory))

    monkeypatch.setattr("dqlab.checkup.examine.probe", hang)
    checkup = own_lab.doctor(timeout="1s")
    released.set()

    assert "cannot use store" in of(checkup, "store").what
    assert "it did not answer within 0." in of(checkup, "store").what
    assert own_lab.store is not None
    deadline = time.monotonic() + 20
    while list(own_lab.store.glob(".dqlab-doctor-*")):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_disk_that_hangs_there_does_not_keep_a_worker_from_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr("dqlab.cluster.worker.plugin.probe", lambda directory, marker: released.wait())
    vitals = WorkerVitals(None)  # type: ignore[arg-type]

    looked = asyncio.run(vitals.look_at_disk([["/data", ""]], 0.05))
    released.set()

    assert looked[0]["error"] == "it did not answer within 0.05 s"


def test_what_hangs_is_looked_at_in_one_thread_however_often_one_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    released, begun = threading.Event(), []

    def hang(directory: Path, marker: str) -> Probe:
        begun.append(directory)
        released.wait(60)
        return Probe(str(directory))

    monkeypatch.setattr("dqlab.cluster.worker.plugin.probe", hang)

    async def often() -> Any:
        vitals = WorkerVitals(None)  # type: ignore[arg-type]
        for _ in range(5):
            await vitals.look_at_disk([["/data", ""]], 0.02)
        released.set()
        return await vitals.look_at_disk([["/data", ""]], 20)

    [last] = asyncio.run(often())

    assert last["error"] is None or not last["error"]
    assert len(begun) == 2


def test_scheduler_that_is_gone_is_a_finding() -> None:
    cluster = LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0")
    client = Client(cluster, set_as_default=False)
    link = Link(client)
    cluster.close()
    checkup = examine(link, of="gone", timeout="1s")
    client.close()

    [found] = checkup.problems
    assert found.what == f"the scheduler at {link.address} does not answer: the connection to it is closed"


def test_scheduler_that_does_not_answer_is_a_finding(own_lab: dq.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("dqlab.checkup.examine.scheduler_rpc", lambda client: SimpleNamespace(dq_overview=never))
    checkup = own_lab.doctor(timeout="5s")  # a quarter of it is for the store, also on a busy machine

    assert "does not answer: nothing within 2.0 s" in of(checkup, "answers").what
    assert of(checkup, "store").severity is Severity.OK


def test_doctor_refuses_to_wait_for_itself(lab: dq.Lab) -> None:
    """On the client's own event loop nothing could answer."""

    async def ask() -> None:
        lab.doctor()

    with pytest.raises(UsageError, match="own event loop"):
        lab.client.sync(ask)


def test_closed_lab_and_a_timeout_of_nothing_are_refused(lab: dq.Lab) -> None:
    with pytest.raises(BadOption, match="timeout=0: must be above zero"):
        lab.doctor(timeout=0)
    closed = dq.Lab(lab.client, name="closed")
    closed.close()
    with pytest.raises(LabClosed):
        closed.doctor()
