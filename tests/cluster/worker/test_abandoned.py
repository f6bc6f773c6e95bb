"""Actors that are made after their caller gave up: they release what they hold."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.scheduler import actors as actors_module
from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.state import ClusterState, Entry
from dqlab.cluster.statistics.collector import Collector
from dqlab.cluster.transport.errands import WorkerLost
from dqlab.cluster.transport.internals import NoSuchActor, answer_call
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.sealed import seal_value
from dqlab.cluster.worker.plugin import DqlabWorkerPlugin
from dqlab.errors import CallTimeout
from dqlab.log.errors import DiskFull, OwnerStillAlive

pytestmark = pytest.mark.lowest


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


@pytest.fixture
def plugin() -> DqlabWorkerPlugin:
    made = DqlabWorkerPlugin("", "")
    made._worker = SimpleNamespace(  # type: ignore[assignment]
        address="tcp://there", scheduler=SimpleNamespace(), state=SimpleNamespace(actors={})
    )
    return made


def making(plugin: DqlabWorkerPlugin, key: str, starts: Any, *, wanted: bool = True) -> None:
    """Make an actor that `starts` so, in a registry that wants it or not."""

    async def wants(key: str) -> bool:
        return wanted

    async def execute(actor: str, function: str, **_: Any) -> dict[str, Any]:
        starts()
        return {"status": "OK"}

    plugin._worker.scheduler.dq_wanted, plugin._worker.actor_execute = wants, execute  # type: ignore[attr-defined, method-assign, assignment]
    asyncio.run(plugin._make(plugin._worker, key, seal_value((Held, ()))))


KINDS = pytest.mark.parametrize(("kind", "ended"), [("queue", "handed over"), ("consumer", "closed")])


@KINDS
def test_an_actor_that_was_given_up_while_it_began_lets_go_of_what_it_holds(
    plugin: DqlabWorkerPlugin, kind: str, ended: str
) -> None:
    """Its lock would be held until the process ends, and every later attempt be refused by every worker."""
    key, made = f"dq-{kind}/q/0-abc", list[Held]()
    with pytest.raises(NoSuchActor):
        making(plugin, key, lambda: made.append(plugin._worker.state.actors[key]), wanted=False)  # type: ignore[arg-type]
    assert made[0].ended == [ended]
    assert plugin._worker.state.actors == {}


@pytest.mark.parametrize("kind", ["queue", "consumer"])
def test_an_actor_that_could_not_start_is_missing_for_every_call(plugin: DqlabWorkerPlugin, kind: str) -> None:
    """A call would meet an object without a ledger: an AttributeError in a cell."""
    key = f"dq-{kind}/q/0-abc"

    def fails() -> None:
        raise DiskFull(directory="/full", needed=1, free=0)

    with pytest.raises(DiskFull):
        making(plugin, key, fails)
    answer = asyncio.run(answer_call(plugin._worker, SimpleNamespace(), key, "close", b""))  # type: ignore[arg-type]
    assert answer == {"status": "missing"}


@KINDS
def test_an_actor_that_the_registry_lets_go_is_ended_once(plugin: DqlabWorkerPlugin, kind: str, ended: str) -> None:
    """The answer that it was made may come too late: no client can reach it then, and it leases, or holds a lock."""
    key = f"dq-{kind}/q/0-abc"
    making(plugin, key, lambda: None)
    held: Any = plugin._worker.state.actors[key]
    for _ in range(2):
        asyncio.run(plugin.end(key))
    assert held.ended == [ended]
    assert plugin._worker.state.actors == {}


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


def test_a_client_waits_for_a_long_log_until_the_scheduler_gives_up(
    lab: dq.Lab, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave up after 40 s, whatever the scheduler waited for, and the queue was opened for no client."""
    limits, asks = dict[str, float](), Link.scheduler

    def noted(link: Link, op: str, *, timeout: float = 40.0, **arguments: Any) -> Any:
        limits[op] = timeout
        return asks(link, op, timeout=timeout, **arguments)

    monkeypatch.setattr(Link, "scheduler", noted)
    pool = dq.QueuePool(lab.client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path)
    assert limits["dq_open"] > actors_module.OPEN_TIMEOUT
    pool.close()


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
