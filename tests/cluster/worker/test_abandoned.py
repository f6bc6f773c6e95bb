"""Actors that are made after their caller gave up: they release what they hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from distributed.client import FutureCancelledError
from distributed.core import Status

import dqlab as dq
from dqlab.cluster.scheduler import actors as actors_module
from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.state import ClusterState, Entry
from dqlab.cluster.statistics.collector import Collector
from dqlab.cluster.transport.internals import NoSuchActor, WorkerLost, answer_call
from dqlab.cluster.transport.sealed import seal_value
from dqlab.cluster.worker.plugin import DqlabWorkerPlugin
from dqlab.errors import CallTimeout
from dqlab.log.errors import DiskFull, OwnerStillAlive

pytestmark = pytest.mark.lowest

KEY = "dq-queue/q/0-abc"


class Held:
    """An actor that notes how it is ended."""

    def __init__(self) -> None:
        self.closed, self.ended = False, list[str]()

    async def hand_over(self, body: bytes) -> bytes:
        self.ended.append("handed over")
        self.closed = True
        return b""

    async def close(self, body: bytes) -> bytes:
        self.ended.append("closed")
        self.closed = True
        return b""


class Making:
    """A client that makes an actor on a worker, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[Making]:
        yield self

    def submit(self, *_: Any, **__: Any) -> Self:
        return self

    def __await__(self) -> Generator[Any, None, None]:
        if self.error is not None:
            raise self.error
        return asyncio.sleep(0).__await__()

    def release(self) -> None: ...


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> DqlabWorkerPlugin:
    async def wanted(worker: object, key: str) -> bool:
        return True

    monkeypatch.setattr("dqlab.cluster.worker.plugin.pin_remotely", wanted)
    made = DqlabWorkerPlugin("", "")
    made._shared = Making()  # type: ignore[assignment]
    made._worker = SimpleNamespace(  # type: ignore[assignment]
        address="tcp://there", status=Status.running, state=SimpleNamespace(), batched_stream=SimpleNamespace(comm=None)
    )
    made._worker.state.actors = {}
    return made


def test_a_shard_that_was_given_up_while_it_read_its_log_lets_go_of_it(
    plugin: DqlabWorkerPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock would be held until the process ends, and every later attempt be refused by every worker."""
    held = Held()

    async def starts(worker: Any, key: str) -> None:
        del worker.state.actors[key]

    monkeypatch.setattr("dqlab.cluster.worker.plugin.start_actor", starts)
    plugin._worker.state.actors[KEY] = held
    with pytest.raises(NoSuchActor):
        asyncio.run(plugin._make(plugin._worker, KEY, seal_value((object, ()))))
    assert held.ended == ["handed over"]


@pytest.mark.parametrize("error", [None, FutureCancelledError("dq-queue/q/0", "scheduler-restart")])
def test_what_a_restart_takes_away_while_or_after_it_is_made_is_a_worker_that_is_lost(
    plugin: DqlabWorkerPlugin, error: Exception | None
) -> None:
    """The caller tries again elsewhere; any other error would reach the user as it is."""
    plugin._shared = Making(error)  # type: ignore[assignment]
    with pytest.raises(WorkerLost, match=r"tcp://there.*dq_spawn.*restart"):
        asyncio.run(plugin.spawn(KEY, seal_value((object, ()))))


@pytest.mark.parametrize("kind", ["queue", "consumer"])
def test_an_actor_that_could_not_start_is_missing_for_every_call(
    plugin: DqlabWorkerPlugin, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Until Dask has released it, a call would meet an object without a ledger: an AttributeError in a cell."""
    held, key = Held(), f"dq-{kind}/q/0-abc"

    async def fails(worker: Any, key: str) -> None:
        raise DiskFull(directory="/full", needed=1, free=0)

    async def scenario() -> dict[str, Any]:
        plugin._worker.state.actors[key] = held
        with pytest.raises(DiskFull):
            await plugin._make(plugin._worker, key, seal_value((object, ())))
        return await answer_call(plugin._worker, SimpleNamespace(), key, "close", b"")  # type: ignore[arg-type]

    monkeypatch.setattr("dqlab.cluster.worker.plugin.start_actor", fails)
    assert asyncio.run(scenario()) == {"status": "missing"}
    assert held.ended == []


@pytest.mark.parametrize(("kind", "ended"), [("queue", "handed over"), ("consumer", "closed")])
def test_an_actor_that_dask_lets_go_is_ended(
    plugin: DqlabWorkerPlugin, monkeypatch: pytest.MonkeyPatch, kind: str, ended: str
) -> None:
    """The answer that it was made may come too late: no client can reach it then, and it leases, or holds a lock."""
    held, key = Held(), f"dq-{kind}/q/0-abc"

    async def starts(worker: Any, key: str) -> None: ...

    async def scenario() -> None:
        plugin._worker.state.actors[key] = held
        await plugin._make(plugin._worker, key, seal_value((object, ())))
        plugin.transition(key, "executing", "memory")
        assert held.ended == []
        del plugin._worker.state.actors[key]
        plugin.transition(key, "memory", "released")
        plugin.transition(key, "released", "forgotten")
        await asyncio.gather(*plugin._ending)

    monkeypatch.setattr("dqlab.cluster.worker.plugin.start_actor", starts)
    asyncio.run(scenario())
    assert held.ended == [ended]


def actors_of(scheduler: Any) -> tuple[Actors, ClusterState]:
    """Return the actors of a scheduler that has as much as a test needs."""
    scheduler.id = "s"
    state = ClusterState(scheduler, Collector())
    return Actors(state), state


def test_a_shard_whose_worker_cannot_hand_it_over_is_recreated_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts as not made from then on, and nothing else would ever make it again."""

    async def broken(*_: Any) -> None:
        raise RuntimeError("a frame that nobody can read")

    async def scenario() -> None:
        actors, _ = actors_of(SimpleNamespace(workers={}, clients={}, tasks={}, rpc=None))
        await actors.hand_over(Entry("queue/q/0", "q", "tcp://a", "key", 1))

    monkeypatch.setattr(actors_module, "call_actor", broken)
    asyncio.run(scenario())
    assert "event=hand_over_failed name=queue/q/0" in caplog.text


def test_what_the_registry_does_not_want_any_more_is_not_kept() -> None:
    """Kept after it was given up, it would be there for as long as the scheduler."""

    async def scenario() -> tuple[bool, bool]:
        kept: list[str] = []
        actors, state = actors_of(
            SimpleNamespace(workers={}, client_desires_keys=lambda keys, client: kept.extend(keys))
        )
        state.entries["queue/q/0"] = Entry("queue/q/0", "q", "tcp://a", "wanted", 1)
        answers = await actors.pin("wanted"), await actors.pin("given up")
        assert kept == ["wanted"]
        return answers

    assert asyncio.run(scenario()) == (True, False)


def slow_opening(seconds: float) -> None:
    """Have this process take its time for the next shard that it opens."""
    from dqlab.store.durable_shard import DurableShard

    opens = DurableShard.open

    def late(*arguments: Any, **options: Any) -> Any:
        DurableShard.open = opens  # type: ignore[method-assign]
        time.sleep(seconds)
        return opens(*arguments, **options)

    DurableShard.open = late  # type: ignore[method-assign]


def test_a_durable_queue_whose_opening_was_given_up_can_be_opened_soon(
    lab: dq.Lab, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be refused by every worker until the process ended that had begun too slowly."""
    host = next(address for address, at in lab.client.scheduler_info()["workers"].items() if str(at["name"]) == "0")
    lab.client.run(slow_opening, 1.0, workers=[host])
    with monkeypatch.context() as patch:
        patch.setattr(actors_module, "OPEN_TIMEOUT", 0.3)
        with pytest.raises(CallTimeout):
            dq.QueuePool(lab.client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path)
    deadline = time.monotonic() + 20
    while True:
        try:
            pool = dq.QueuePool(lab.client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path)
            break
        except (OwnerStillAlive, WorkerLost):  # it is still being opened there
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert len(pool.put_many(range(3)).ids) == 3
    pool.close()
