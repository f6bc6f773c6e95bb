"""What the scheduler asks of workers: errors come through, and a dead worker is not a dead scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from distributed import Client
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError
from distributed.core import ConnectionPool, Server, Status

import dqlab as dq
from dqlab.cluster.transport.internals import WorkerLost, answering, ask_worker
from dqlab.cluster.transport.sealed import seal_value
from dqlab.cluster.worker.plugin import DqlabWorkerPlugin
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


class ClientMeanwhile:
    """What a worker makes actors with, while the cluster is restarted: `made` says whether that came first."""

    def __init__(self, made: bool) -> None:
        self.made = made

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[Self]:
        yield self

    def submit(self, *_: Any, **__: Any) -> Self:
        return self

    def __await__(self) -> Generator[Any, None, None]:
        if not self.made:
            raise FutureCancelledError("dq-queue/q/0", "scheduler-restart")
        return asyncio.sleep(0).__await__()

    def release(self) -> None: ...


@pytest.mark.parametrize("made", [True, False], ids=["once it was made", "before it was made"])
def test_what_a_restart_takes_away_while_it_is_made_is_a_worker_that_is_lost(
    made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller tries again elsewhere; any other error would reach the user as it is."""

    async def pinned(worker: object, key: str) -> bool:
        return True

    monkeypatch.setattr("dqlab.cluster.worker.plugin.pin_remotely", pinned)
    scheduler = SimpleNamespace(address="tcp://scheduler")
    plugin = DqlabWorkerPlugin("", "")
    plugin._shared = ClientMeanwhile(made)  # type: ignore[assignment]
    plugin._worker = SimpleNamespace(  # type: ignore[assignment]
        status=Status.running,
        address="tcp://there",
        security=None,
        batched_stream=SimpleNamespace(comm=None),
        scheduler=scheduler,
        state=SimpleNamespace(actors={}),
    )
    with pytest.raises(WorkerLost, match=r"tcp://there.*dq_spawn.*restart"):
        asyncio.run(plugin.spawn("dq-queue/q/0", seal_value((object, ()))))
