"""What the scheduler asks of workers: errors come through, and a dead worker is not a dead scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client
from distributed.comm import CommClosedError
from distributed.core import ConnectionPool, Server

import dqlab as dq
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.state import OpenQueue
from dqlab.cluster.transport.errands import WorkerLost, answering, ask_worker
from dqlab.errors import QueueClosed
from dqlab.log.errors import OwnerStillAlive
from dqlab.log.log import Log
from dqlab.store.directories import queue_directory, shard_directory


def asked(handler: Any) -> Any:
    """Ask a worker that has this one handler."""

    async def scenario() -> Any:
        async with Server(handlers={"dq_do": handler}) as worker, ConnectionPool() as pool:
            await worker.listen("tcp://127.0.0.1:0")
            scheduler: Any = SimpleNamespace(rpc=pool)
            return await ask_worker(scheduler, worker.address, "dq_do", x=2)

    return asyncio.run(scenario())


def test_what_a_worker_answers_comes_back() -> None:
    async def double(x: int) -> int:
        return 2 * x

    assert asked(answering(double)) == 4


def test_what_a_worker_raises_of_ours_is_raised_here() -> None:
    async def refuse(x: int) -> int:
        raise QueueClosed(queue=f"q{x}")

    with pytest.raises(QueueClosed, match="q2"):
        asked(answering(refuse))


def test_a_worker_that_ends_meanwhile_does_not_end_the_connection_of_who_waits() -> None:
    """Dask closes it when a handler raises CommClosedError; the client would hear that the scheduler is gone."""

    async def dies(x: int) -> int:
        raise CommClosedError("stream is closed")

    with pytest.raises(WorkerLost, match=r"tcp://127.*could not carry out dq_do.*Stream is closed.*Call again"):
        asked(dies)


def test_a_worker_without_the_handler_is_lost_and_nothing_counts_as_done() -> None:
    """Its plugin goes before it does, and comes after it has joined; Dask answers such a call with nothing."""

    async def scenario() -> None:
        async with Server(handlers={}) as worker, ConnectionPool() as pool:
            await worker.listen("tcp://127.0.0.1:0")
            await ask_worker(SimpleNamespace(rpc=pool), worker.address, "dq_spawn")  # type: ignore[arg-type]

    with pytest.raises(WorkerLost, match=r"could not carry out dq_spawn.*no dqlab plugin.*Call again"):
        asyncio.run(scenario())


def test_opening_a_queue_that_another_process_holds_says_so(client: Client, queue_name: str, tmp_path: Path) -> None:
    def open_queue() -> dq.QueuePool:
        return dq.QueuePool(client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path)

    open_queue().close()
    log = Log.open(shard_directory(queue_directory(tmp_path, queue_name), 0))
    try:
        with pytest.raises(OwnerStillAlive, match="is open in process"):
            open_queue()
    finally:
        log.close()


class Spawning:
    """A registry of one consumer worker, on which spawning fails so many times."""

    def __init__(self, failures: int) -> None:
        self.failures, self.entries = failures, dict[str, Any]()
        self.queues = {"q": OpenQueue(1)}
        self.tasks: list[asyncio.Task[None]] = []

    def plan(self) -> Any:
        return SimpleNamespace(queues=(), consumers=("a",))

    async def spawn(self, name: str, queue: str, address: str, *_: Any) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise WorkerLost(worker=address, call="dq_spawn", reason="it is about to leave")
        self.entries[name] = SimpleNamespace(address=address)

    def turn(self, queue: str) -> asyncio.Lock:
        return asyncio.Lock()

    async def retire(self, names: list[str]) -> None:
        """No client is too many."""

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))


def test_consumers_whose_worker_dies_while_they_are_made_are_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """`map` goes on: nothing is wrong with the run."""
    monkeypatch.setattr("dqlab.cluster.scheduler.consumer_sets.REPLACEMENT_WAIT", 0.0)

    async def scenario() -> tuple[list[str], list[str]]:
        registry = Spawning(failures=2)
        services = ConsumerSets(registry, registry)  # type: ignore[arg-type]
        first = list(await services.serve("q", b"", {}))
        while registry.tasks:
            await registry.tasks.pop()
        return first, await services.consumers("q")

    first, later = asyncio.run(scenario())
    assert first == []
    assert len(later) == 1
