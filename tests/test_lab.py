"""Where everything begins: connecting, attaching, detaching, closing."""

from __future__ import annotations

import time

import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.errors import BadOption, LabClosed, QueueInUse, QueueNotFound, UsageError, VersionMismatch
from dqlab.stats import Snapshot


def same(x: int) -> int:
    return x


def address_of(lab: dq.Lab) -> str:
    return str(lab.client.scheduler.address)


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
        with pytest.raises(QueueInUse, match="force=True"):
            second.close()
        second.close(force=True)


def test_workers_of_another_dqlab_are_refused_before_anything_is_sent(
    lab: dq.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler of this lab is in this process, and speaks what this process speaks; its workers do not."""
    monkeypatch.setattr("dqlab.cluster.protocol.PROTOCOL", 99)
    with (
        Client(address_of(lab), set_as_default=False) as client,
        pytest.raises(VersionMismatch, match=r"speaks dqlab protocol 99 .*, worker unix://\S+ speaks \d+ .*pip"),
    ):
        dq.connect(client)


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
    with pytest.raises(BadOption, match="target"):
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


def test_something_that_is_no_client_is_refused() -> None:
    """Passing an address where a client belongs is a frequent slip."""
    with pytest.raises(BadOption, match="client"):
        dq.QueuePool("tcp://127.0.0.1:8786")  # type: ignore[arg-type]


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
    again = lab.queue(queue_name, maxsize=1)

    assert again is queue
    assert again.options["maxsize"] != 1


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


def test_waiting_for_a_change_is_no_busy_loop(lab: dq.Lab) -> None:
    """Else whoever watches keeps the scheduler from its work."""
    snapshot, looks, deadline = lab.stats(), 0, time.monotonic() + 1
    while time.monotonic() < deadline:
        later = lab.wait_for_change(snapshot.seq, timeout=0.25)
        looks += later.seq == snapshot.seq
        snapshot = later
    assert looks <= 4


def test_lab_on_a_cluster_of_ones_own(lab: dq.Lab) -> None:
    """Any Dask cluster will do, also one with a single worker; it is then said that queues share it."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        pytest.warns(UserWarning, match="too few workers"),
        dq.connect(cluster) as own,
    ):
        assert list(own.map(same, range(100)).results(timeout=20)) == list(range(100))


def test_controls_of_a_queue_that_is_not_there_name_the_nearest(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """A view acts on queues by name, also on those of other clients."""
    assert lab.controls(queue.name) is queue
    with pytest.raises(QueueNotFound, match=f"Did you mean '{queue.name}'"):
        lab.controls(queue.name + "x")


def test_panel_that_is_not_there_names_those_that_are(lab: dq.Lab) -> None:
    assert lab.panel("depth").endswith("/individual-dq-depth")
    with pytest.raises(BadOption, match="throughput"):
        lab.panel("deepth")
