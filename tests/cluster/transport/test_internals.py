"""The names of `distributed` that are not documented: they exist, and mean what we think they mean."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import distributed
import pytest
from distributed import Client, Scheduler, SchedulerPlugin, SpecCluster, Worker
from distributed.core import ConnectionPool
from distributed.deploy.cluster import Cluster
from tornado.util import TimeoutError as TornadoTimeout

import dqlab as dq
from dqlab.cluster.transport import internals
from dqlab.cluster.transport.internals import with_event_loop
from dqlab.cluster.transport.wire import pack

pytestmark = pytest.mark.lowest


def test_version_is_one_that_was_tried() -> None:
    """A newer distributed may change what has no documentation; run these tests, then name it there."""
    assert distributed.__version__.rsplit(".", 1)[0] in (internals.__doc__ or "")


def test_worker_executes_actors_by_key_function_and_arguments() -> None:
    """`actor_execute` is the handler behind every call."""
    parameters = inspect.signature(Worker.actor_execute).parameters

    assert inspect.iscoroutinefunction(Worker.actor_execute)
    assert {"actor", "function", "args", "kwargs"} <= set(parameters)


def test_scaling_a_cluster_asks_the_scheduler(lab: dq.Lab) -> None:
    """`Adaptive.target` calls the handler, with a duration."""

    def answering(dask_scheduler: Any) -> tuple[str, list[bool]]:
        target = dask_scheduler.handlers["adaptive_target"]
        return type(target.__self__).__name__, [task.actor for task in dask_scheduler.tasks.values()]

    assert "adaptive_target" in inspect.getsource(distributed.Adaptive.target)
    assert "target_duration" in inspect.signature(Scheduler.adaptive_target).parameters
    name, actors = lab.client.run_on_scheduler(answering)
    assert name == "Elasticity"
    assert {type(actor) for actor in actors} <= {bool}


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


def test_pooled_rpc_is_called_by_address() -> None:
    """`pool(address)` gives the connections that are kept open."""
    assert "addr" in inspect.signature(ConnectionPool.__call__).parameters


def test_scheduler_pins_keys_for_clients() -> None:
    """As published datasets are kept; the names of both arguments matter."""
    for method in (Scheduler.client_desires_keys, Scheduler.client_releases_keys):
        assert {"keys", "client"} <= set(inspect.signature(method).parameters)


def test_clusters_hear_of_workers_that_leave() -> None:
    """By an address that is still among what they know then, and by the same name in both classes."""
    for cluster in (Cluster, SpecCluster):
        assert list(inspect.signature(cluster._update_worker_status).parameters) == ["self", "op", "msg"]


def test_pinned_key_is_wanted_by_the_keeper_until_the_queue_is_closed(lab: dq.Lab, queue_name: str) -> None:
    """It keeps the actor when its client goes; a pin that stays would keep it for ever."""

    def wanted(dask_scheduler: Any) -> list[str]:
        keeper = dask_scheduler.clients.get("dqlab-keeper")
        return [str(task.key) for task in keeper.wants_what] if keeper is not None else []

    pool = lab.queue(queue_name)
    during = [key for key in lab.client.run_on_scheduler(wanted) if queue_name in key]
    pool.close()
    after = [key for key in lab.client.run_on_scheduler(wanted) if queue_name in key]

    assert len(during) == 1
    assert after == []


def test_event_loop_of_a_client_runs_in_its_own_thread(client: Client) -> None:
    """Coroutines are handed to it from users' threads."""
    loop = internals.event_loop(client)

    assert loop.is_running()
    assert not internals.in_event_loop(client)

    async def inside() -> bool:
        return internals.in_event_loop(client)

    assert client.sync(inside) is True


def test_worker_streams_reports_to_the_scheduler(client: Client) -> None:
    """Counters travel over a stream that is open anyway."""

    def look(dask_worker: Any) -> tuple[bool, bool]:
        stream = dask_worker.batched_stream
        return hasattr(stream, "send"), stream.comm is None or not stream.comm.closed()

    assert set(client.run(look).values()) == {(True, True)}


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


def test_workers_say_how_late_their_loop_is_and_what_they_may_take(lab: dq.Lab) -> None:
    """An examination tells a machine that is overloaded from one that is fine."""

    def look(dask_worker: Worker) -> tuple[bool, bool, int]:
        limit = internals.memory_limit(dask_worker)
        here = internals.actors_here(dask_worker, "queue")
        return internals.loop_lag(dask_worker) >= 0, limit is None or limit > 0, len(here)

    assert all(lag and limit and actors >= 0 for lag, limit, actors in lab.client.run(look).values())


@pytest.mark.cluster
def test_workers_are_retired_through_a_handler_that_can_be_taken_over() -> None:
    """Clients, clusters and workers ask by this name; `retire_workers` itself stays what it was."""
    scheduler = inspect.signature(Scheduler.retire_workers).parameters
    assert {"workers", "names", "close_workers", "remove"} <= set(scheduler)
    assert '"retire_workers": self.retire_workers' in inspect.getsource(Scheduler.__init__)
    assert "retire_workers" in inspect.getsource(Worker.close_gracefully)


def test_nannies_kill_and_workers_know_theirs(lab: dq.Lab) -> None:
    parameters = inspect.signature(distributed.Nanny.kill).parameters
    assert {"timeout", "reason"} <= set(parameters)

    def nannies(dask_scheduler: Scheduler) -> list[str]:
        return [state.nanny for state in dask_scheduler.workers.values()]

    assert all(lab.client.run_on_scheduler(nannies))


def test_worker_plugins_are_installed_by_the_scheduler_once() -> None:
    parameters = inspect.signature(Scheduler.register_worker_plugin).parameters
    assert {"plugin", "name", "idempotent"} <= set(parameters)


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
