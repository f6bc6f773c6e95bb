"""Runs whose opening came to some of their shards before the client or the cluster died."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed import Client

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.orders import Drop, Open, Order
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.errors import RunNotFound
from dqlab.runs.run_book import RunBook

DOCUMENTS = 3000


class Killed(BaseException):
    """Ends the client at this point, as a kill would."""


def double(x: int) -> int:
    return 2 * x


@pytest.fixture(params=list(dq.Durability), ids=lambda each: each.name.lower())
def queue(client: Client, queue_name: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[dq.QueuePool]:
    durable = {"durability": request.param, "dirpath": tmp_path} if request.param is dq.Durability.DURABLE else {}
    pool = dq.QueuePool(client, n_queues=3, name=queue_name, **durable)
    yield pool
    pool.close(force=True)


@pytest.fixture
def other(client: Client, queue: dq.QueuePool) -> Iterator[dq.Lab]:
    """A lab of another client, which has the queue open too."""
    with dq.connect(client.scheduler.address, name="other") as lab:
        lab.queue(queue.name)
        yield lab


@pytest.fixture
def name(queue_name: str) -> str:
    return f"run-{queue_name}"


@contextmanager
def dying() -> Iterator[None]:
    """Within it, the client dies when some shards have an order to open or to drop a run, and others do not."""
    give = Handle.order

    async def order(self: Handle, order: Order, *, shard: int | None = None) -> int:
        if type(order) not in (Open, Drop):
            return await give(self, order, shard=shard)
        for at in order.waves(range(self.shards))[0]:
            await give(self, order, shard=at)
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Handle, "order", order)
        patched.setattr(RunBook, "_let_go", lambda *_: None)
        with pytest.raises(Killed):
            yield


def test_one_that_is_opened_in_part_is_refused_until_it_is_dropped(
    queue: dq.QueuePool, other: dq.Lab, name: str
) -> None:
    """A kernel was killed during `map`, before it had put anything."""
    with dying():
        queue.map(double, range(DOCUMENTS), name=name)
    with pytest.raises(RunNotFound, match="drop it again"):
        other.queue(queue.name).map(double, range(DOCUMENTS), name=name)

    other.attach(name).drop()
    results = other.queue(queue.name).map(double, range(DOCUMENTS), name=name).results(timeout=30)

    assert dict(results.items()) == {x: 2 * x for x in range(DOCUMENTS)}


@pytest.fixture
def half_dropped(queue: dq.QueuePool, name: str) -> str:
    """A run that is done, and that the first shard alone still has."""
    run = queue.map(double, in_each_shard(queue, name), name=name)
    run.wait(timeout=30)
    with dying():
        run.drop()
    return name


def in_each_shard(queue: dq.QueuePool, name: str) -> Iterator[int]:
    """Yield documents until each shard has some."""
    for number in itertools.count():
        yield number
        if number % 1000 == 999:
            reports = queue.handle.link.sync(queue.handle.ask_all(calls.StatsCall()))
            if all(any(sum(lane.counts) for lane in report.lanes) for report in reports):
                return


def test_one_that_is_dropped_in_part_is_refused_until_it_is_dropped_again(
    queue: dq.QueuePool, other: dq.Lab, half_dropped: str
) -> None:
    """Not a part of its results as if they were all, and nothing that stays unseen."""
    found = other.attach(half_dropped)
    for ask in (found.results, found.wait, lambda: found.counts):
        with pytest.raises(RunNotFound, match="drop it again"):
            ask()
    with pytest.raises(RunNotFound, match="drop it again"):
        other.queue(queue.name).map(double, range(DOCUMENTS), name=half_dropped)

    found.drop()

    assert sum(queue.counts().values()) == 0
    with pytest.raises(RunNotFound):
        found.drop()
    results = other.queue(queue.name).map(double, range(DOCUMENTS), name=half_dropped).results(timeout=30)
    assert dict(results.items()) == {x: 2 * x for x in range(DOCUMENTS)}


def test_one_that_is_dropped_in_part_is_started_over_where_that_is_asked_for(
    queue: dq.QueuePool, other: dq.Lab, half_dropped: str
) -> None:
    """As if the drop had come to its end."""
    run = other.queue(queue.name).map(double, range(DOCUMENTS), name=half_dropped, on_existing="new")

    assert dict(run.results(timeout=30).items()) == {x: 2 * x for x in range(DOCUMENTS)}
    assert queue.counts()["acked"] == DOCUMENTS
