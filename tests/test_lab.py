"""Where everything begins: connecting, attaching, detaching, closing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import distributed
import pytest
from distributed import Client, LocalCluster, Scheduler
from distributed.core import Server

import dqlab as dq
from dqlab.cluster.transport.protocol import OLDEST_DASK, check_dask
from dqlab.errors import (
    BadOption,
    CallTimeout,
    DqlabWarning,
    LabClosed,
    UsageError,
    VersionMismatch,
)
from dqlab.lab import left_undone
from dqlab.stats import Snapshot
from tests.kit.sampled import mostly_slow

pytestmark = pytest.mark.lowest


def same(x: int) -> int:
    return x


def address_of(lab: dq.Lab) -> str:
    return str(lab.client.scheduler.address)


def scheduler_of(lab: dq.Lab) -> Scheduler:
    """It runs in this process."""
    return lab.client.cluster.scheduler


def test_connecting_again_with_the_same_arguments_gives_the_same_lab(lab: dq.Lab) -> None:
    """The first cell is run many times; each time another cluster would be a memory leak."""
    assert dq.connect(n=2, name="tests") is lab


def test_two_clients_in_one_process_simply_work(lab: dq.Lab, queue_name: str) -> None:
    """A notebook often has a Dask client of its own."""
    with Client(address_of(lab), set_as_default=False) as one, Client(address_of(lab), set_as_default=False) as two:
        first, second = dq.QueuePool(one, name=queue_name), dq.QueuePool(two, name=queue_name)
        run = first.map(same, range(100), name=f"run-{queue_name}")
        other = second.map(same, range(100, 200))

        assert list(run.results(timeout=20)) == list(range(100))
        assert list(other.results(timeout=20)) == list(range(100, 200))
        with pytest.raises(UsageError, match=r"in 1 other client; .*force=True"):
            second.close()
        assert repr(second) == f"<QueuePool {queue_name!r}: 1 shard, maxsize None>"
        second.close(force=True)


def test_a_lab_that_does_not_answer_names_the_line_that_connects_to_its_cluster(
    lab: dq.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dq.connect()` starts a cluster of its own, where the lab was one of `dqlab up`."""

    def silent(lab: dq.Lab) -> str:
        raise CallTimeout(name="x", call="dq_snapshot", seconds=2)

    with dq.connect(address_of(lab)) as other:
        monkeypatch.setattr(dq.Lab, "_workers", silent)

        assert f"dq.connect({address_of(lab)!r}) tries again" in repr(other)
        assert "dq.connect() tries again" in repr(lab)
        monkeypatch.undo()


def test_workers_of_another_dqlab_are_refused_before_anything_is_sent(
    lab: dq.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler of this lab is in this process, and speaks what this process speaks; its workers do not."""
    monkeypatch.setattr("dqlab.cluster.transport.protocol.PROTOCOL", 99)
    with (
        Client(address_of(lab), set_as_default=False) as client,
        pytest.raises(VersionMismatch, match=r"uses dqlab protocol 99 .*, worker unix://\S+ uses \d+ .*pip"),
    ):
        dq.connect(client)


def test_scheduler_of_an_old_dask_is_refused_before_anything_is_installed(
    lab: dq.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's cluster is older than the notebook; what it cannot import would be named by a page of tracebacks."""
    scheduler = scheduler_of(lab)
    versions = scheduler.versions() | {"packages": {"distributed": "2024.5.0"}}
    monkeypatch.setitem(scheduler.handlers, "versions", lambda packages=None: versions)
    monkeypatch.setitem(scheduler.handlers, "register_scheduler_plugin", lambda **_: pytest.fail("was installed"))
    said = rf"the scheduler at unix://\S+ runs Dask 2024\.5\.0, and dqlab needs {re.escape(OLDEST_DASK)} or newer.*pip"

    with Client(address_of(lab), set_as_default=False) as client, pytest.raises(VersionMismatch, match=said):
        dq.connect(client)


def test_scheduler_that_no_client_of_today_can_talk_to_is_named(lab: dq.Lab) -> None:
    """With Dask 2025.1 it answers a client with a TypeError, and the process of that client ends a minute late."""
    made = []

    async def start() -> Server:
        versions = {"packages": {"distributed": "2025.1.0"}}
        server = Server({"identity": lambda **_: made.append("a client"), "versions": lambda: versions})
        await server.listen("tcp://127.0.0.1:0")
        return server

    server = lab.client.sync(start)
    said = rf"the scheduler at {server.address} runs Dask 2025\.1\.0, and dqlab needs"
    try:
        with pytest.raises(VersionMismatch, match=said):
            dq.connect(server.address)
    finally:
        lab.client.sync(server.close)
    assert not made


def test_worker_of_an_old_dask_is_refused_before_it_has_to_load_anything(
    lab: dq.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition of a batch system has an image of last year, which the error names by a worker's address."""
    scheduler = scheduler_of(lab)
    address, worker = next(iter(scheduler.workers.items()))
    versions = worker.versions | {"packages": worker.versions["packages"] | {"distributed": "2025.7.0"}}
    said = rf"worker {re.escape(address)} runs Dask 2025\.7\.0, and dqlab needs {re.escape(OLDEST_DASK)} or newer.*pip"

    with Client(address_of(lab), set_as_default=False) as client:  # Dask warns of versions that differ, with a table
        monkeypatch.setattr(worker, "versions", versions)
        with pytest.raises(VersionMismatch, match=said) as refused:
            dq.connect(client)
    assert isinstance(refused.value, VersionMismatch)


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        ("2023.12.1", True),
        ("2025.9.0", True),
        ("2025.7.0+12.gabcdef", True),
        (OLDEST_DASK, False),
        ("2025.10.0", False),
        ("2031.1.0rc1", False),
        ("0+unknown", False),
        (None, False),
    ],
)
def test_releases_of_dask_are_compared_as_numbers(version: str | None, refused: bool) -> None:
    """2025.10 comes after 2025.9; a checkout of Dask without a version is its owner's business."""
    with pytest.raises(VersionMismatch) if refused else nullcontext():
        check_dask("a process", version)


@pytest.mark.cluster
@pytest.mark.parametrize("name", mostly_slow(["connect", "QueuePool", "ConsumerPool"], "connect"))
def test_old_dask_beside_dqlab_is_named_instead_of_what_it_lacks(tmp_path: Path, name: str) -> None:
    """conda, or pip with `--no-deps`, puts any Dask beside dqlab; a name that it lacks says nothing to its user."""
    package = tmp_path / "distributed"
    package.mkdir()
    real = Path(distributed.__file__).parent
    (package / "__init__.py").write_text(
        f"__path__ = [{str(real)!r}]\nexec(open({str(real / '__init__.py')!r}).read())\n__version__ = '2024.1.0'\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(dq.__file__).parents[1])])}
    script = f"import dqlab; dqlab.{name}"

    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=50)

    assert ended.returncode == 1
    assert re.search(r"VersionMismatch: this process runs Dask 2024\.1\.0, and dqlab needs .*pip", ended.stderr)


def test_run_is_found_from_another_client(lab: dq.Lab, queue: dq.QueuePool, queue_name: str) -> None:
    """Another notebook attaches by name to what this one started."""
    name = f"run-{queue_name}"
    run = queue.map(same, range(50), name=name).wait(timeout=20)

    with dq.connect(address_of(lab)) as other:
        other.queue(queue_name)
        found = other.attach(name)

        assert found.id == run.id
        assert list(found.results(timeout=20)) == list(range(50))
    assert list(run.results(timeout=20)) == list(range(50))


def test_queue_outlives_the_client_that_made_it(lab: dq.Lab, queue_name: str) -> None:
    """Queues belong to the cluster: a notebook that closes takes nothing with it."""
    with Client(address_of(lab), set_as_default=False) as first:
        pool = dq.QueuePool(first, name=queue_name)
        pool.map(same, range(20), name=f"run-{queue_name}").wait(timeout=20)
        ids = pool.put_many([1, 2, 3]).ids

    with Client(address_of(lab), set_as_default=False) as second:
        pool = dq.QueuePool(second, name=queue_name)
        found = pool.session.runs.attach(f"run-{queue_name}")

        assert list(found.results(timeout=20)) == list(range(20))
        assert pool.counts()["acked"] == 20
        assert pool.put(4).ids[0] > ids[-1]
        assert list(pool.map(same, range(5)).results(timeout=20)) == list(range(5))
        pool.close()


def test_closing_a_lab_that_did_not_make_the_cluster_only_detaches(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """`close()` in one notebook must not end the other's night of work."""
    other = dq.connect(address_of(lab))
    other.close()
    other.close()

    assert "closed" in repr(other)
    with pytest.raises(LabClosed):
        other.queue("default")
    assert list(queue.map(same, range(3)).results(timeout=20)) == [0, 1, 2]


def test_closed_lab_is_not_given_out_again(lab: dq.Lab) -> None:
    """Connecting after a close connects."""
    first = dq.connect(address_of(lab))
    first.close()

    second = dq.connect(address_of(lab))

    assert second is not first
    assert not second.closed
    second.close()


def test_options_that_contradict_each_other_are_refused(lab: dq.Lab) -> None:
    """Before anything is started."""
    with pytest.raises(BadOption, match="n="):
        dq.connect(address_of(lab), n=2)
    with pytest.raises(BadOption, match="n="):
        dq.connect(n=0)
    with pytest.raises(BadOption, match=r"target=42.* For 42 processes on this machine: dq\.connect\(n=42\)"):
        dq.connect(42)
    with pytest.raises(BadOption, match="timeout"):
        dq.connect(address_of(lab), timeout="soon")


def test_asynchronous_client_is_refused_with_the_way_out(lab: dq.Lab) -> None:
    """It would deadlock later, in the middle of something."""

    async def connect() -> None:
        async with Client(address_of(lab), asynchronous=True, set_as_default=False) as client:
            with pytest.raises(UsageError, match="asynchronous=True"):
                dq.QueuePool(client)

    lab.client.sync(connect)


def test_default_queue_serves_lab_map(lab: dq.Lab) -> None:
    """Two lines are enough to begin."""
    run = lab.map(same, range(10))

    assert list(run.results(timeout=20)) == list(range(10))
    assert run.queue == "default"
    assert run in lab.runs
    assert "default" in [pool.name for pool in lab.queues]
    lab.queue().close()


def test_open_queue_keeps_its_options(lab: dq.Lab, queue: dq.QueuePool, queue_name: str) -> None:
    """A second opener does not change the bounds under the first one's feet."""
    with pytest.warns(DqlabWarning, match="maxsize is 100,000, not 1"):
        again = lab.queue(queue_name, maxsize=1)

    assert again is queue
    assert again.options["maxsize"] != 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_queues": 4}, "n_queues is 1, not 4"),
        ({"max_bytes": "3 MB"}, "max_bytes is 1,073,741,824, not 3,000,000"),
        ({"visibility_timeout": "5s"}, "visibility_timeout is 60.0, not 5.0"),
        ({"served": False}, "served is True, not False"),
        ({"early_ack": True}, "early_ack is False, not True"),
        ({"concurrency": 7}, "concurrency is 100, not 7"),
        ({"retry": dq.Retry(9)}, "retry is Retry(retries=3, "),
        ({"maxsize": None}, "maxsize is 100,000, not None"),
    ],
)
def test_an_option_that_an_open_queue_does_not_take_is_named_with_the_way(
    lab: dq.Lab, queue: dq.QueuePool, queue_name: str, given: dict[str, Any], said: str
) -> None:
    """The queue came back as it was, in silence: a limit that was given did not hold."""
    with pytest.warns(DqlabWarning) as caught:
        assert lab.queue(queue_name, **given) is queue

    assert said in str(caught[0].message)
    assert f"lab.queue({queue_name!r}).close(), which drops what it holds" in str(caught[0].message)


@pytest.mark.parametrize(
    ("has", "given", "said"),
    [
        ({"concurrency": 7}, {"concurrency": 100}, "concurrency is 7, not 100"),
        ({"n_queues": 2}, {"n_queues": 1}, "n_queues is 2, not 1"),
        ({"served": False}, {"served": True}, "served is False, not True"),
    ],
)
def test_a_default_that_is_given_to_an_open_queue_is_an_option_that_was_given(
    lab: dq.Lab, queue_name: str, has: dict[str, Any], given: dict[str, Any], said: str
) -> None:
    pool = lab.queue(queue_name, **has)

    with pytest.warns(DqlabWarning, match=said):
        assert lab.queue(queue_name, **given) is pool
    assert lab.queue(queue_name) is pool
    pool.close()


@pytest.mark.parametrize("name", ["timeout", "name", "counts", "retry", "closed", "maxsize"])
def test_no_attribute_of_a_run_a_queue_or_a_lab_can_be_set(lab: dq.Lab, queue: dq.QueuePool, name: str) -> None:
    """`run.timeout = 5` was taken in silence, and changed nothing."""
    for held in (queue.map(same, [1]), queue, lab):
        with pytest.raises(AttributeError, match=rf"\.{name} cannot be set"):
            setattr(held, name, 3)


def test_snapshot_follows_what_happens(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """Views wait for the next number and draw it."""
    before = lab.stats()
    run = queue.map(same, range(10), name=f"run-{queue.name}").wait(timeout=20)

    snapshot = before
    deadline = time.monotonic() + 10
    while snapshot.run(run.name) is None:
        snapshot = lab.wait_for_change(snapshot.seq, timeout=1)
        assert time.monotonic() < deadline

    assert snapshot.seq > before.seq
    assert isinstance(snapshot, Snapshot)
    assert snapshot.queue(queue.name) is not None
    assert queue.stats().name == queue.name


def test_lab_on_a_cluster_of_ones_own(lab: dq.Lab) -> None:
    """Any Dask cluster will do, also one with a single worker; it is then said that queues share it."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        pytest.warns(UserWarning, match="too few workers"),
        dq.connect(cluster) as own,
    ):
        assert list(own.map(same, range(100)).results(timeout=20)) == list(range(100))


def test_panel_that_is_not_there_names_those_that_are(lab: dq.Lab) -> None:
    assert lab.panel("depth").endswith("/individual-dq-depth")
    with pytest.raises(BadOption, match="throughput"):
        lab.panel("deepth")


def test_a_lab_that_cannot_ask_whether_its_runs_are_done_says_so_when_it_closes(
    lab: dq.Lab, queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that was busy it closed without a word; a run that was waited for is known to be done."""
    run = queue.map(abs, range(3), name=f"run-{queue.name}")

    def unanswered(run: dq.Run, *, timeout: float) -> str:
        raise CallTimeout(name="queue/q/0", call="watch", seconds=timeout)

    monkeypatch.setattr(dq.Run, "left", unanswered)
    assert left_undone(run, time.monotonic()) == ""

    run.wait(timeout=30)
    assert left_undone(run, time.monotonic()) is None
