"""What we use of Dask without documentation means what we think, and errors of handlers reach the caller."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import pytest
from distributed import Client, Scheduler, SchedulerPlugin
from distributed.comm import CommClosedError
from distributed.core import ConnectionPool, Server
from tornado.util import TimeoutError as TornadoTimeout

import dqlab as dq
from dqlab.cluster.transport import internals
from dqlab.cluster.transport.internals import WorkerLost, answering, ask_worker, with_event_loop
from dqlab.cluster.transport.wire import pack
from dqlab.errors import QueueClosed
from dqlab.log.errors import OwnerStillAlive
from dqlab.log.log import Log
from dqlab.store.directories import queue_directory, shard_directory

pytestmark = pytest.mark.lowest


def test_version_is_one_that_was_tried() -> None:
    """A newer distributed may change what has no documentation; run these tests, then name it there."""
    assert distributed.__version__.rsplit(".", 1)[0] in (internals.__doc__ or "")


def _in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 30))

    return run


class _RestartsDuringHandshake(SchedulerPlugin):
    """Reports a restart between the arrival of a client and the scheduler's greeting."""

    def add_client(self, scheduler: Scheduler, client: str) -> None:
        asyncio.get_running_loop().call_soon(scheduler.report, {"op": "restart"})


@pytest.mark.cluster
@_in_a_loop
async def test_client_says_that_the_cluster_was_restarted_while_it_connected() -> None:
    """An `AssertionError` without a word reached the person before."""
    # Dask tries port 8787 first; of that try, where another cluster has it, old versions leave a socket unclosed.
    async with Scheduler(dashboard=False, dashboard_address="127.0.0.1:0", host="127.0.0.1", port=0) as scheduler:
        scheduler.add_plugin(_RestartsDuringHandshake(), name="restarts")
        client = internals.OwnClient(scheduler.address, asynchronous=True)
        with pytest.raises(OSError, match="restarted"):
            await client
        await client.close()


def test_raw_call_to_a_missing_actor_raises(queue: dq.QueuePool) -> None:
    """The Actor proxy waits for ever here; the raw call must not."""
    link, [ref] = queue.handle.link, queue.handle.refs
    place = link.sync(ref.place())
    call = internals.call_actor(link.client.rpc, place.address, "dq-no-such-key", "stats", pack({}))

    with pytest.raises(internals.NoSuchActor):
        link.sync(call, timeout=10)


def test_executor_thread_blocks_no_shutdown() -> None:
    """A function that never ends must not keep its process alive."""
    executor = internals.daemon_thread("dq-test")
    thread = executor.submit(threading.current_thread).result(5)
    executor.shutdown(wait=True)

    assert thread.daemon


def test_open_client_is_not_taken_for_a_closed_one(client: Client) -> None:
    """A pool that is closed never opens again, and who waits for it waits for ever."""
    from dqlab.cluster.transport.internals import is_shut

    assert not is_shut(client)
    with Client(client.scheduler.address, set_as_default=False) as other:
        assert not is_shut(other)
    assert is_shut(other)


@pytest.mark.parametrize("error", [TornadoTimeout("Timeout"), ValueError("Timeout")], ids=["a timer's", "another"])
def test_an_error_that_nobody_caught_is_printed_unless_it_is_a_timers(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """After Ctrl-C in a script, "Future exception was never retrieved ... TimeoutError: Timeout" was printed."""
    loop = asyncio.new_event_loop()
    made: Any = SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop))
    with_event_loop(lambda: made)
    future = loop.create_future()
    future.set_exception(error)
    del future
    gc.collect()
    loop.close()

    assert bool(caplog.records) is isinstance(error, ValueError)


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
