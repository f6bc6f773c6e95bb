"""Every name of `distributed` that is not documented, in one place.

`tests/cluster/test_internals.py` fails when one of them is gone or changed its meaning.
Versions that were tried: distributed 2025.9 (by `make test-lowest`) and 2026.8; where they differ, the difference is
bridged here. An older one is refused here, before a module asks for a name that it lacks; see `protocol`.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import socket
import traceback
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, TypeVar

import dask
import distributed
from dask.utils import parse_timedelta
from distributed import Client, Nanny, Scheduler, SpecCluster, Worker, WorkerPlugin
from distributed.comm.core import Comm
from distributed.core import ConnectionPool, Server, Status, rpc, send_recv
from distributed.deploy.cluster import Cluster
from distributed.protocol.pickle import dumps
from distributed.protocol.serialize import Serialized, deserialize, to_serialize
from distributed.scheduler import WorkerState
from distributed.threadpoolexecutor import ThreadPoolExecutor
from distributed.utils import LoopRunner
from tornado.ioloop import PeriodicCallback

from dqlab.cluster.transport.protocol import check_dask
from dqlab.cluster.transport.undisturbed import ClosesUndisturbed
from dqlab.cluster.transport.wire import LARGE_PART, Apart, Packed
from dqlab.texts import said_by, shown

__all__ = [
    "CALL",
    "KEEPER",
    "ActorFailed",
    "NoSuchActor",
    "OwnClient",
    "PatientClient",
    "Unreachable",
    "actors_here",
    "answer_call",
    "answers",
    "ask_handler",
    "call_actor",
    "call_actor_proxied",
    "daemon_thread",
    "dask_version_of",
    "dask_version_through",
    "dask_versions",
    "event_loop",
    "has_tasks",
    "in_event_loop",
    "install",
    "install_plugin",
    "is_leaving",
    "is_shut",
    "keep_replaced_workers",
    "kill_worker",
    "loop_lag",
    "memory_at_its_kill",
    "memory_limit",
    "opened_bytes",
    "outlast_pauses",
    "pin",
    "pin_remotely",
    "replace_lost_workers",
    "report",
    "scheduler_rpc",
    "security_of",
    "start_actor",
    "take_over_adapting",
    "take_over_retiring",
    "tend",
    "unpin",
    "with_event_loop",
]

T = TypeVar("T")

check_dask("this process", distributed.__version__)  # type: ignore[attr-defined]

KEEPER = "dqlab-keeper"
"""The pseudo-client that wants our actors, so that they outlive the notebook that made them."""

CALL = "dq_call"
"""The worker's handler that calls an actor."""

KILL_AT_ONCE = 0.3
"""Seconds that a nanny waits for a worker to end by itself, and then for the system to end it."""

ABSENT_LOOKS = 2
"""Checks in a row that find neither a worker nor a nanny that starts it, after which it is made again."""
ABSENT_S = 10.0
"""Seconds after which a worker is given up that has no process though its nanny runs; it notices a death sooner."""
LEAST_DELAY_S = 0.1
"""Fewest seconds between two such looks."""

CONNECT_TIMEOUT = 3.0
"""Seconds to try to connect to a worker."""

LOOP_STARTS = 3
"""Times that the thread of an event loop is started; Dask waits 10 s for each."""
HANDSHAKES = 3
"""Times that a client greets a scheduler that is restarting its workers."""


class NoSuchActor(Exception):
    """The worker answers, but does not hold the actor."""


class Unreachable(Exception):
    """The worker does not answer."""


class NotConnected(Unreachable):
    """There is no connection to the worker, so nothing was sent."""


class ActorFailed(Exception):
    """The method raised; the scheduler passes on what without opening it.

    Attributes
    ----------
    kind, said : str
        Class and text of what it raised; empty when its worker does not report them.
    """

    def __init__(self, kind: str = "", said: str = "") -> None:
        super().__init__(f"{kind}: {said}" if kind else "see the log of its worker")
        self.kind, self.said = kind, said


class PatientClient(Client):
    """A client that connects even while its cluster is restarted.

    The scheduler reports a restart to every client it knows. One in the middle of its handshake receives that report
    together with the greeting, where Dask asserts that the greeting comes alone.
    """

    async def _ensure_connected(self, timeout: float | None = None) -> None:
        for _ in range(HANDSHAKES):
            try:
                await super()._ensure_connected(timeout=timeout)  # type: ignore[no-untyped-call]
            except AssertionError as error:
                _abort_comms(error)
                # The scheduler notes the end of the failed connection at some later time; under the same id, it would
                # remove the new one then.
                self.id = f"{self.id}-again"
            else:
                return
        raise OSError(f"the cluster was restarted during each of {HANDSHAKES} handshakes")


def _abort_comms(error: BaseException) -> None:
    """Close the connection on which a handshake failed: Dask does it when it is collected, and logs a warning then."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        comm = frame.f_locals.get("comm")
        if isinstance(comm, Comm):
            comm.abort()


def with_event_loop(make: Callable[[], T]) -> T:
    """Return the client or cluster that `make` returns, which starts the thread of its event loop.

    Dask gives that thread 10 s to begin, and asserts then. On a machine that has just woken up, or is swapping, it may
    take longer, and nothing else has been started yet.

    Raises
    ------
    TimeoutError
        It did not begin in three tries.
    """
    for _ in range(LOOP_STARTS):
        try:
            return make()
        except AssertionError as error:
            runner = _late_runner(error)
            if runner is None:
                raise
            runner._stop_event.set()  # its thread, once it begins, ends
    raise TimeoutError(f"the thread of its event loop did not begin, in {LOOP_STARTS} tries of 10 s")


def _late_runner(error: BaseException) -> LoopRunner | None:
    """Return the runner that gave its thread up, None if the error is another one."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    runner = frame.f_locals.get("self")
    return runner if isinstance(runner, LoopRunner) and not runner.is_started() else None


class OwnClient(ClosesUndisturbed, PatientClient):
    """A client that dqlab made, not the default one; it leaves nothing behind when it ends, however it does.

    Closed while it tries to reach its scheduler again, Dask's logs that as an error, with a traceback that a notebook
    shows in the cell that runs then. When a client could not start, or has given its scheduler up, its thread remained.
    """

    def __init__(self, address: Any, **given: Any) -> None:
        super().__init__(address, set_as_default=False, **given)  # type: ignore[no-untyped-call]

    def start(self, **given: Any) -> None:
        """Connect."""
        try:
            super().start(**given)  # type: ignore[no-untyped-call]
        except BaseException:
            self._loop_runner.stop()
            raise

    def close(self, timeout: float | None = None) -> Any:
        """Close the connection, and end the thread."""
        closing = super().close(timeout)
        if self.status == "closed" and not self._is_finalizing():
            self._loop_runner.stop()
        return closing

    async def _reconnect(self) -> None:
        log, only = logging.getLogger("distributed.client"), _WhileOpen(self)
        log.addFilter(only)
        try:
            await _RECONNECT(self)
        finally:
            log.removeFilter(only)

    async def _close(self, *args: Any, **given: Any) -> None:
        await _CLOSE(self, *args, **given)


class _WhileOpen(logging.Filter):
    """Drops that reconnecting failed, once the client is being closed: that is why it failed."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    def filter(self, record: logging.LogRecord) -> bool:
        return self._client.status == "connecting" or not str(record.msg).startswith("Failed to reconnect")


_RECONNECT: Any = inspect.unwrap(Client._reconnect)
"""What Dask's decorator would log is that close; what matters is logged inside."""
_CLOSE: Any = inspect.unwrap(Client._close)
"""The same: one that is called while another one runs is cancelled."""


async def answer_call(worker: Worker, comm: Comm, actor: str, call: str, body: Packed) -> dict[str, Any]:
    """Call one async method of an actor this worker holds; the handler behind `call_actor`.

    The worker's own handler wraps each answer for Dask's serialisation, which costs 60 µs for any size;
    a short one travels as it is. Nor is it weighed, object by object, to see whether a thread should pack it.
    """
    held: Any = worker.state.actors.get(actor)
    if held is None or held.closed:
        return {"status": "missing"}
    try:
        answer: Packed = await getattr(held, call)(body)
        comm.allow_offload = False
        asyncio.get_running_loop().call_soon(_let_offload, comm)  # the answer is packed before that
    except NoSuchActor:  # it left while the call waited
        return {"status": "missing"}
    except Exception as error:  # noqa: BLE001 - it is the caller's to judge
        return {
            "status": "error",
            "exception": to_serialize(error),
            "said": [type(error).__name__, shown(said_by(error))],
        }
    return {"status": "OK", **_beside("result", answer)}


def _beside(name: str, packed: Packed) -> dict[str, Any]:
    """Return a message's fields for arguments or an answer; what is large is sent from where it is."""
    if isinstance(packed, Apart):
        parts = {number: to_serialize(memoryview(part)) for number, part in packed.parts.items()}
        return {**_beside(name, packed.head), "parts": parts}
    return {name: packed if len(packed) < LARGE_PART else to_serialize(memoryview(packed))}


def _let_offload(comm: Comm) -> None:
    """Let Dask pack its own messages as before: connections are shared with it."""
    comm.allow_offload = True


async def call_actor(
    pool: ConnectionPool,
    address: str,
    key: str,
    call: str,
    body: Packed | Callable[[], Packed],
    *,
    connecting: float = CONNECT_TIMEOUT,
) -> Packed:
    """Call one async method of an actor over a pooled connection, past the Actor proxy.

    The proxy never answers when the key is gone (the KeyError is raised outside of its try).

    Parameters
    ----------
    body : bytes, Apart or callable
        The arguments, or what packs them once there is a connection.
    connecting : float, default 3
        Seconds to try to connect; left to itself the pool tries for 30 s to reach a worker that is dead.

    Raises
    ------
    NoSuchActor, NotConnected, Unreachable
        The actor is gone, or its worker does not answer.
    Exception
        What the method raised.
    """
    try:
        comm = await pool.connect(address, timeout=connecting)
    except OSError as error:
        raise NotConnected(str(error)) from error
    try:
        comm.allow_offload = False  # see `answer_call`
        try:
            given = _beside("body", body() if callable(body) else body)
            answer = await send_recv(comm, op=CALL, actor=key, call=call, **given)
        finally:
            _let_offload(comm)
            pool.reuse(address, comm)
    except TimeoutError:
        raise
    except OSError as error:
        raise Unreachable(str(error)) from error
    return _opened(answer, key)


async def call_actor_proxied(scheduler: Any, address: str, key: str, call: str, body: Packed) -> Packed:
    """Do the same through the scheduler, for clients that cannot reach the workers."""
    message = {"op": CALL, "actor": key, "call": call, **_beside("body", body)}
    try:
        answer = await scheduler.proxy(worker=address, msg=message)
    except TimeoutError:
        raise
    except OSError as error:
        raise Unreachable(str(error)) from error
    return _opened(answer, key)


def _opened(answer: dict[str, Any] | None, key: str) -> Packed:
    if answer is None or answer["status"] == "missing":  # None: a worker without our handler
        raise NoSuchActor(key)
    if answer["status"] == "OK":
        result: bytes | memoryview = answer["result"]
        return Apart(result, answer["parts"]) if "parts" in answer else result
    raised = answer["exception"]
    raise raised if isinstance(raised, BaseException) else ActorFailed(*answer.get("said", ()))


def opened_bytes(answer: Any) -> Packed:
    """Return an actor's answer on a scheduler, where a long one has come as its frames; they are not unpickled."""
    if isinstance(answer, Apart):
        return Apart(_bytes_of(answer.head), {number: _bytes_of(part) for number, part in answer.parts.items()})
    return _bytes_of(answer)


def _bytes_of(answer: Any) -> bytes:
    if isinstance(answer, Serialized):
        opened = deserialize(answer.header, answer.frames, deserializers=("dask",))
        return bytes(opened)
    return bytes(answer)


def actors_here(worker: Worker, kind: str) -> dict[str, Any]:
    """Return our actors that live on a worker, by key; `kind` is "queue" or "consumer"."""
    return {str(key): held for key, held in worker.state.actors.items() if str(key).startswith(f"dq-{kind}/")}


async def start_actor(worker: Worker, key: str) -> None:
    """Start an actor where it lives, in the context in which `get_worker` finds its worker.

    Raises
    ------
    NoSuchActor
        It was taken away before it could begin.
    """
    if key not in worker.state.actors:
        raise NoSuchActor(key)
    answer = await worker.actor_execute(actor=key, function="start", args=(b"",), kwargs={})
    if answer["status"] != "OK":
        raise answer["exception"].data


def security_of(worker: Worker) -> Any:
    """Return what a client on a worker connects with: the worker's own key, where it was given no other."""
    security: Any = copy.copy(worker.security)
    if security is not None and security.tls_client_key is None:
        security.tls_client_cert, security.tls_client_key = security.tls_worker_cert, security.tls_worker_key
    return security


def scheduler_rpc(owner: Any) -> rpc:
    """Return the pooled RPC of a client or worker to its scheduler."""
    scheduler: rpc = owner.scheduler
    return scheduler


async def dask_version_of(call: Callable[..., Awaitable[Any]]) -> str | None:
    """Return a scheduler's version of `distributed`; those of every version answer this.

    Parameters
    ----------
    call : callable
        Calls a handler of the scheduler by name, in a limited time.
    """
    versions = await call("versions")
    found: str | None = dict(versions["packages"]).get("distributed")
    return found


async def dask_version_through(comm: Comm) -> str | None:
    """Do so over a connection, before there is a client."""

    async def call(op: str) -> Any:
        return await send_recv(comm, op=op)

    return await dask_version_of(call)


def dask_versions(scheduler: Scheduler) -> dict[str, str | None]:
    """Return each worker's version of `distributed`, as it gave it when it joined."""
    known = scheduler.workers.items()
    return {address: dict(state.versions.get("packages", {})).get("distributed") for address, state in known}


async def install_plugin(call: Callable[..., Awaitable[Any]], plugin: Any) -> None:
    """Give a scheduler a plugin; `Client.register_plugin` does so without a limit of time.

    Parameters
    ----------
    call : callable
        Calls a handler of the scheduler by name, in a limited time.
    plugin : SchedulerPlugin
        With a name, and idempotent or not.
    """
    await call("register_scheduler_plugin", plugin=dumps(plugin), name=plugin.name, idempotent=plugin.idempotent)


def is_shut(owner: Client | Worker) -> bool:
    """Return whether a client's or worker's connections are closed for good: its process is going."""
    return owner.rpc.status is not Status.running


def is_leaving(worker: Worker | WorkerState) -> bool:
    """Return whether a worker closes, or is about to."""
    return worker.status in (Status.closing, Status.closing_gracefully, Status.closed, Status.failed)


def event_loop(client: Client) -> asyncio.AbstractEventLoop:
    """Return the asyncio loop that a client's thread runs."""
    loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop  # type: ignore[union-attr]
    return loop


def in_event_loop(client: Client) -> bool:
    """Return whether the caller runs in the client's own loop thread, where waiting is a deadlock."""
    try:
        return asyncio.get_running_loop() is event_loop(client)
    except RuntimeError:  # no loop runs in this thread
        return False


def pin(scheduler: Scheduler, keys: Collection[str]) -> None:
    """Keep actors alive without a client, as published datasets are kept."""
    scheduler.client_desires_keys(keys=list(keys), client=KEEPER)


async def pin_remotely(worker: Worker, key: str) -> bool:
    """Ask the scheduler, through the registry's handler, to pin a key; return whether that still wants it."""
    wanted: bool = await worker.scheduler.dq_pin(key=key)
    return wanted


def unpin(scheduler: Scheduler, keys: Collection[str]) -> None:
    """Release actors."""
    if KEEPER in scheduler.clients:
        known = [key for key in keys if key in scheduler.tasks]
        scheduler.client_releases_keys(keys=known, client=KEEPER)


def outlast_pauses(worker: Worker) -> None:
    """Let a worker keep its connection to a scheduler of the same machine that reads nothing for minutes.

    A kernel that is stopped lets reports pile up until its buffer is full; 30 s later the system would end the
    connection by Dask's order, and the worker itself, which no nanny replaces. A process of this machine that has
    died ends its connections, so that limit finds nothing here.
    """
    comm = worker.batched_stream.comm
    connection = getattr(getattr(comm, "stream", None), "socket", None)  # one of TCP or TLS has it
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux
    if connection is None or option is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):  # it has just been closed
        if connection.getpeername()[0] == connection.getsockname()[0]:
            connection.setsockopt(socket.IPPROTO_TCP, option, 0)


def report(worker: Worker, op: str, **message: float | bytes) -> None:
    """Send something to the scheduler's plugin over the worker's open stream: 22 µs, no answer.

    Numbers and bytes alone: what Dask cannot encode, or what the plugin cannot take, closes that stream for good, and
    the worker with all it holds is thrown out.
    """
    stream = worker.batched_stream
    if stream.comm is not None and not stream.comm.closed():
        stream.send({"op": op, **message})


async def install(scheduler: Scheduler, plugin: WorkerPlugin, name: str, timeout: float) -> None:
    """Install a worker plugin, once, on all workers that there are and will be; one that hangs has it when it wakes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await scheduler.register_worker_plugin(None, plugin=dumps(plugin), name=name, idempotent=True)


async def answers(scheduler: Scheduler, op: str, timeout: float) -> dict[str, dict[str, Any]]:
    """Return the answers of the workers that answer in time."""

    async def ask(address: str) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(timeout):
                said: dict[str, Any] = await getattr(scheduler.rpc(address), op)()
                return said
        except Exception:  # noqa: BLE001 - it is gone, hangs, or does not know the question
            return None

    asked = list(scheduler.workers)
    said = zip(asked, await asyncio.gather(*map(ask, asked)), strict=True)
    return {address: answer for address, answer in said if isinstance(answer, dict)}


def take_over_retiring(scheduler: Scheduler, retire: Callable[..., Awaitable[Any]]) -> None:
    """Make `retire` handle all requests of clients, clusters and workers to retire workers."""
    scheduler.handlers["retire_workers"] = retire


def take_over_adapting(scheduler: Scheduler, target: Callable[..., Awaitable[int]]) -> None:
    """Make `target` answer Dask's adaptive scaling."""
    scheduler.handlers["adaptive_target"] = target


def has_tasks(scheduler: Scheduler) -> bool:
    """Return whether there are tasks or data of Dask's own; for actors alone it keeps workers that are not needed."""
    return any(not task.actor for task in scheduler.tasks.values())


def keep_replaced_workers(cluster: SpecCluster) -> None:
    """Keep Dask from giving up workers whose nannies replace them at that moment.

    15 s after each death it looks whether a worker of that name is there, and ends its nanny for good when there is
    none: also when it is just being replaced again. One that dies every 15 s, by its documents, would be lost.
    Here one that is being replaced is looked at again; one that was retired is given up, so that `scale` makes another.
    """
    if hasattr(cluster._update_worker_status, "keeps_replaced_workers"):
        return
    give_up = cluster._update_worker_status

    def look(name: Any, nanny: Nanny, since: float) -> None:
        """Give up what has had no process since then, and for long."""
        there = any(known["name"] == name for known in cluster.scheduler_info["workers"].values())
        if there or cluster.status is not Status.running or cluster.workers.get(name) is not nanny:
            return
        now = asyncio.get_running_loop().time()
        since = now if _comes(nanny) else since
        if nanny.status is Status.running and now - since < ABSENT_S:
            look_later(name, nanny, since)
            return
        cluster._futures.add(asyncio.ensure_future(nanny.close()))
        del cluster.workers[name]

    def look_later(name: Any, nanny: Nanny, since: float) -> None:
        delay = parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout"))
        asyncio.get_running_loop().call_later(max(delay, LEAST_DELAY_S), look, name, nanny, since)

    def update(op: str, message: Any) -> None:
        known = cluster.scheduler_info["workers"].get(message) if op == "remove" else None
        nanny = cluster.workers.get(known["name"]) if known is not None else None
        if known is not None and isinstance(nanny, Nanny) and nanny.status is Status.running:
            Cluster._update_worker_status(cluster, op, message)
            look_later(known["name"], nanny, asyncio.get_running_loop().time())
        else:
            give_up(op, message)  # type: ignore[no-untyped-call]

    update.keeps_replaced_workers = True  # type: ignore[attr-defined]
    cluster._update_worker_status = update  # type: ignore[method-assign]


def _comes(nanny: Any) -> bool:
    """Return whether a nanny has a worker, or makes one: what it is forked from may need seconds to import."""
    process = nanny.process
    return process is not None and (process.is_alive() or process.status is Status.starting)


async def replace_lost_workers(cluster: SpecCluster, kept_away: Collection[str], absent: dict[Any, int]) -> list[Any]:
    """Make workers of a cluster again that no nanny replaces any more; return their names.

    A worker that loses its scheduler for half a minute (its process was stopped, the laptop slept) ends for good, and
    so does its nanny. A nanny whose new worker is refused, while the scheduler does not know that the last one is gone,
    tries no more.

    Parameters
    ----------
    kept_away : collection of str
        Names of workers that were retired: they are to stay away.
    absent : dict
        How often a worker was found to be gone, by name; the caller keeps it and passes it again.
    """
    scheduler: Any = cluster.scheduler
    lost = []
    for name in cluster.worker_spec if cluster.status is Status.running else ():
        nanny: Any = cluster.workers.get(name)
        ended = nanny is None or nanny.status in (Status.closed, Status.failed)
        stuck = not ended and not _comes(nanny)
        if name in scheduler.aliases or str(name) in kept_away or not (ended or stuck):
            absent.pop(name, None)
            continue
        absent[name] = absent.get(name, 0) + 1
        if absent[name] >= ABSENT_LOOKS:
            lost.append(name)
    for name in lost:
        del absent[name]
        nanny = cluster.workers.pop(name, None)
        if nanny is not None:
            await nanny.close(reason="dqlab-replaced")
    if lost:
        await cluster._correct_state()
    return lost


def tend(cluster: SpecCluster, every: float, look: Callable[[], Awaitable[object]]) -> None:
    """Run `look` every so many seconds in a cluster's event loop, one at a time, until the cluster closes."""
    ticking = PeriodicCallback(look, every * 1000)
    cluster.periodic_callbacks["dqlab-tend"] = ticking
    loop: Any = cluster.loop
    loop.add_callback(ticking.start)


async def ask_handler(pool: ConnectionPool, address: str, op: str, **arguments: Any) -> Any:
    """Call a worker's handler; left to itself the pool tries for 30 s to connect to a worker that is dead.

    Raises
    ------
    OSError
        It cannot be connected to within 3 s, or has died.
    """
    comm = await pool.connect(address, timeout=CONNECT_TIMEOUT)
    try:
        return await send_recv(comm, op=op, **arguments)
    finally:
        pool.reuse(address, comm)


async def kill_worker(scheduler: Scheduler, state: WorkerState) -> None:
    """Make a worker's nanny kill it at once; return when it is dead, or if it has no nanny."""
    if state.nanny:
        await scheduler.rpc(state.nanny).kill(timeout=KILL_AT_ONCE, reason="dqlab-hung")


def memory_at_its_kill(scheduler: Scheduler, worker: str) -> int | None:
    """Return the bytes that a worker had when its nanny killed it for them; None when that is not what it died of."""
    for _, event in reversed(tuple(scheduler.get_events("worker-restart-memory"))):
        if event.get("worker") == worker:
            return int(event["rss"])
    return None


def daemon_thread(name: str) -> ThreadPoolExecutor:
    """Return an executor of one daemon thread, so that a function that never ends blocks no shutdown."""
    return ThreadPoolExecutor(1, thread_name_prefix=name)


def loop_lag(server: Server) -> float:
    """Return by how much a server's event loop comes late to a tick that is due every 20 ms; mean over a second."""
    return max(0.0, float(server._tick_interval_observed - server._tick_interval))


def memory_limit(worker: Worker) -> int | None:
    """Return the bytes that a worker's process may take; None: as many as there are."""
    limit = worker.memory_manager.memory_limit
    return int(limit) if limit else None
