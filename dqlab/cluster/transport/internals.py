"""Wraps every undocumented name of `distributed` that dqlab uses.

Tests of the cluster fail when one of them is gone or has another meaning. Tried versions of distributed are 2025.9 (by
`make test-lowest`) and 2026.8; code here hides their differences. An older version is refused here, before any module
imports a name that it lacks: see `protocol`.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from functools import wraps
from typing import Any, Generic, TypeVar, cast
from weakref import WeakSet

import distributed
from distributed import Client, Scheduler, SpecCluster, Worker, WorkerPlugin
from distributed.comm.core import Comm
from distributed.core import ConnectionPool, Server, Status, rpc, send_recv
from distributed.deploy.cluster import Cluster
from distributed.protocol.pickle import dumps
from distributed.protocol.serialize import Serialized, deserialize, to_serialize
from distributed.scheduler import WorkerState
from distributed.threadpoolexecutor import ThreadPoolExecutor
from tornado.util import TimeoutError as TornadoTimeout

from dqlab.cluster.transport.protocol import check_dask
from dqlab.cluster.transport.sealed import open_here, seal_value
from dqlab.cluster.transport.wire import LARGE_PART, Apart, Packed
from dqlab.errors import DqlabError
from dqlab.texts import said_by, shown

T = TypeVar("T")
Made = TypeVar("Made", bound=Client | Cluster)

check_dask("this process", distributed.__version__)  # type: ignore[attr-defined]

KEEPER = "dqlab-keeper"
"""A pseudo-client that wants our actors, so that they outlive the notebook that made them."""

HANDSHAKES = 3
"""Tries to greet a scheduler that is restarting its workers."""

CALL = "dq_call"
"""The worker's handler that calls an actor."""

KILL_AT_ONCE = 0.3
"""Seconds that a nanny waits for a worker to end by itself, and then for the system to kill it."""

ABSENT_LOOKS = 2
"""Checks in a row that find neither a worker nor a nanny that starts it, before it is made again."""

CONNECT_TIMEOUT = 3.0
"""Seconds to try to connect to a worker."""


class NoSuchActor(Exception):
    """The worker answers, but does not hold the actor."""


class Unreachable(Exception):
    """The worker does not answer."""


class NotConnected(Unreachable):
    """There is no connection to the worker, so nothing was sent."""


class ActorFailed(Exception):
    """The method raised an error, which the scheduler does not unpickle."""

    # `kind` and `said` are the error's class and text, empty where the worker does not report them.

    def __init__(self, kind: str = "", said: str = "") -> None:
        super().__init__(f"{kind}: {said}" if kind else "see the log of its worker")
        self.kind, self.said = kind, said


def with_event_loop(make: Callable[[], Made]) -> Made:
    """Make a client or cluster whose event loop reports no errors of timers."""
    made = make()
    cast(Any, made.loop).asyncio_loop.set_exception_handler(_report)
    return made


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error that nobody caught, as asyncio does, unless it is a timer's."""
    # Of a sender that Dask leaves open: where its timer fires while the loop ends, and cancels what waits for it,
    # nobody can catch its error, which stood beside the sentence about a Ctrl-C. A task's error is another matter.
    if not isinstance(context.get("exception"), TornadoTimeout) or isinstance(context.get("future"), asyncio.Task):
        loop.default_exception_handler(context)


class PatientClient(Client):
    """A client that connects even while its cluster is restarted."""

    # The scheduler reports a restart to every client it knows. A client in the middle of its handshake receives that
    # report together with the greeting, and Dask asserts that the greeting comes alone.

    async def _ensure_connected(self, timeout: float | None = None) -> None:
        for _ in range(HANDSHAKES):
            try:
                await super()._ensure_connected(timeout=timeout)  # type: ignore[no-untyped-call]
            except AssertionError as error:
                _abort_comms(error)
                # The scheduler notes the end of the failed connection some time later. Under the same id, it would then
                # remove the new client.
                self.id = f"{self.id}-again"
            else:
                return
        raise OSError(f"the cluster was restarted during each of {HANDSHAKES} handshakes")


def _abort_comms(error: BaseException) -> None:
    """Close the connection on which a handshake failed."""
    # Dask closes it only when it is garbage-collected, and logs a warning then.
    for frame, _ in traceback.walk_tb(error.__traceback__):
        comm = frame.f_locals.get("comm")
        if isinstance(comm, Comm):
            comm.abort()


# --- work that Ctrl-C does not reach: an interrupt ends only the wait for it -----------------------------------------


class Undisturbed(threading.Thread, Generic[T]):
    """A daemon thread whose `outcome` is the result or error of its work."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.outcome: Future[T] = Future()
        self._work = work

    def run(self) -> None:
        """Do the work and set the outcome."""
        try:
            found = self._work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(found)


def undisturbed(work: Callable[[], T], name: str) -> T:
    """Return the result of `work`, done in a thread that continues after an interrupt of the wait."""
    thread = Undisturbed(work, name)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down, and starts no more threads
        return work()
    return thread.outcome.result()


_starting = threading.RLock()
"""Guards `_closing` of all objects. Reentrant, since a signal handler of this thread may close an object too."""


class ClosesUndisturbed:
    """A Dask client or cluster whose `close` continues after an interrupt, and is waited for by the next `close`."""

    # An interrupt cancels Dask's own close in the middle, and the next close waits forever for the cancelled one.

    _closing: Undisturbed[Any] | None = None

    def close(self, timeout: float | None = None) -> Any:
        """Close it, or raise TimeoutError after `timeout` seconds while closing continues."""
        parent: Any = super()
        this: Any = self
        if this.status in (Status.closed, "closed", "newly-created") or this.asynchronous:
            return parent.close()
        with _starting:
            if self._closing is None or self._closing.outcome.done():
                self._closing = Undisturbed(parent.close, "dqlab-close")
            closing = self._closing
            if closing.ident is None:  # not started: it is new, or an interrupt hit the earlier call just here
                try:
                    closing.start()
                except RuntimeError:  # the interpreter is shutting down, and starts no more threads
                    self._closing = None
                    return parent.close(**({} if timeout is None else {"timeout": timeout}))
        return closing.outcome.result(timeout)


class ClusterClosesUndisturbed(ClosesUndisturbed):
    """A Dask cluster that can be closed again after an error in the middle."""

    async def _close(self) -> None:
        this: Any = self
        try:
            await super()._close()  # type: ignore[misc]
        except BaseException:
            if this.status is Status.closing:  # else the next close waits forever for this one
                this.status = Status.failed
            raise


# --- clients of our own ---------------------------------------------------------------------------


_REPORTED: WeakSet[Client] = WeakSet()
"""Clients of labs: the next use of a lab raises an error about a lost scheduler, which explains more than a line."""


def leave_reports_to_us(client: Client | None = None) -> None:
    """Have Dask log nothing of what a close cancels, nor that this client's scheduler is gone."""
    if client is not None:
        _REPORTED.add(client)
    logging.getLogger("distributed.client").addFilter(_is_news)  # adding the same filter twice is harmless


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether to write a line of a Dask client."""
    if record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError):
        return False
    of_ours = any(in_event_loop(client) for client in list(_REPORTED))
    return not (of_ours and str(record.msg).startswith("Failed to reconnect"))


class OwnClient(ClosesUndisturbed, PatientClient):
    """A client made by dqlab, which is not the default client and leaves no thread or log line behind."""

    # Dask's client leaves its thread when it cannot start or has given its scheduler up.

    def __init__(self, address: Any, **given: Any) -> None:
        leave_reports_to_us()
        super().__init__(address, set_as_default=False, **given)  # type: ignore[no-untyped-call]

    def start(self, **given: Any) -> None:
        """Connect, or stop the thread if that fails."""
        try:
            super().start(**given)  # type: ignore[no-untyped-call]
        except BaseException:
            self._loop_runner.stop()
            raise

    def close(self, timeout: float | None = None) -> Any:
        """Close the connection and stop the thread."""
        closing = super().close(timeout)
        if self.status == "closed" and not self._is_finalizing():
            self._loop_runner.stop()
        return closing


# --- calls to actors ------------------------------------------------------------------------------


async def answer_call(worker: Worker, comm: Comm, actor: str, call: str, body: Packed) -> dict[str, Any]:
    """Call one async method of an actor of this worker, as the handler behind `call_actor`."""
    # Not the worker's own handler: it wraps each answer for Dask's serialisation, which costs 60 µs whatever the size.
    held: Any = worker.state.actors.get(actor)
    if held is None or held.closed:
        return {"status": "missing"}
    try:
        answer: Packed = await getattr(held, call)(body)
        comm.allow_offload = False  # else Dask measures each answer to decide whether a thread should pack it
        asyncio.get_running_loop().call_soon(_allow_offload, comm)  # runs after the answer is packed
    except NoSuchActor:  # the actor left while the call waited
        return {"status": "missing"}
    except Exception as error:  # noqa: BLE001 - the caller decides about any error
        return {
            "status": "error",
            "exception": to_serialize(error),
            "said": [type(error).__name__, shown(said_by(error))],
        }
    return {"status": "OK", **_beside("result", answer)}


def _beside(name: str, packed: Packed) -> dict[str, Any]:
    """Return the fields of a message for arguments or an answer, with large parts sent without a copy."""
    if isinstance(packed, Apart):
        parts = {number: to_serialize(memoryview(part)) for number, part in packed.parts.items()}
        return {**_beside(name, packed.head), "parts": parts}
    return {name: packed if len(packed) < LARGE_PART else to_serialize(memoryview(packed))}


def _allow_offload(comm: Comm) -> None:
    """Let Dask use threads to pack messages again."""
    # Connections are pooled, and Dask sends its own messages over them too.
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
    """Call one async method of an actor over a pooled connection, or raise NoSuchActor, NotConnected, Unreachable."""
    # Not over Dask's Actor proxy: it never answers for a key that is gone, since the KeyError is raised outside its
    # try.
    try:
        # With its own timeout: by default the pool tries for 30 s to reach a dead worker.
        comm = await pool.connect(address, timeout=connecting)
    except OSError as error:
        raise NotConnected(str(error)) from error
    try:
        comm.allow_offload = False  # see `answer_call`
        try:
            # A callable packs only now, once there is a connection, so that its arguments are current.
            given = _beside("body", body() if callable(body) else body)
            answer = await send_recv(comm, op=CALL, actor=key, call=call, **given)
        finally:
            _allow_offload(comm)
            pool.reuse(address, comm)
    except TimeoutError:  # an OSError too, but the caller's own limit
        raise
    except OSError as error:
        raise Unreachable(str(error)) from error
    return _opened(answer, key)


async def call_actor_proxied(scheduler: Any, address: str, key: str, call: str, body: Packed) -> Packed:
    """Call one async method of an actor through the scheduler, for clients that cannot reach the workers."""
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
    """Return an actor's answer as bytes on a scheduler, without unpickling anything."""
    # The scheduler's connections leave a large part serialised, as frames.
    if isinstance(answer, Apart):
        return Apart(_bytes_of(answer.head), {number: _bytes_of(part) for number, part in answer.parts.items()})
    return _bytes_of(answer)


def _bytes_of(answer: Any) -> bytes:
    if isinstance(answer, Serialized):
        opened = deserialize(answer.header, answer.frames, deserializers=("dask",))
        return bytes(opened)
    return bytes(answer)


def actors_here(worker: Worker, kind: str) -> dict[str, Any]:
    """Return the actors of a kind, "queue" or "consumer", on a worker by key."""
    return {str(key): held for key, held in worker.state.actors.items() if str(key).startswith(f"dq-{kind}/")}


async def start_actor(worker: Worker, key: str) -> None:
    """Start an actor on its worker, or raise NoSuchActor if it was released already."""
    if key not in worker.state.actors:
        raise NoSuchActor(key)
    # Not called directly: `get_worker` finds the worker only inside `actor_execute`.
    answer = await worker.actor_execute(actor=key, function="start", args=(b"",), kwargs={})
    if answer["status"] != "OK":
        raise answer["exception"].data


def security_of(worker: Worker) -> Any:
    """Return the TLS settings of a client on a worker, with the worker's key where it has no client key."""
    security: Any = copy.copy(worker.security)
    if security is not None and security.tls_client_key is None:
        security.tls_client_cert, security.tls_client_key = security.tls_worker_cert, security.tls_worker_key
    return security


def scheduler_rpc(owner: Any) -> rpc:
    """Return the pooled RPC of a client or worker to its scheduler."""
    scheduler: rpc = owner.scheduler
    return scheduler


async def dask_version_of(call: Callable[..., Awaitable[Any]]) -> str | None:
    """Return a scheduler's version of `distributed`, using `call` for its handlers."""
    # Schedulers of every version have this handler.
    versions = await call("versions")
    found: str | None = dict(versions["packages"]).get("distributed")
    return found


async def dask_version_through(comm: Comm) -> str | None:
    """Return a scheduler's version of `distributed` over a connection, before there is a client."""

    async def call(op: str) -> Any:
        return await send_recv(comm, op=op)

    return await dask_version_of(call)


def dask_versions(scheduler: Scheduler) -> dict[str, str | None]:
    """Return the version of `distributed` that each worker reported when it joined."""
    known = scheduler.workers.items()
    return {address: dict(state.versions.get("packages", {})).get("distributed") for address, state in known}


async def install_plugin(call: Callable[..., Awaitable[Any]], plugin: Any) -> None:
    """Install a plugin on a scheduler, using `call` for its handlers."""
    # `Client.register_plugin` does the same without a time limit.
    await call("register_scheduler_plugin", plugin=dumps(plugin), name=plugin.name, idempotent=plugin.idempotent)


def is_shut(owner: Client | Worker) -> bool:
    """Return whether the connections of a client or worker are closed for good."""
    return owner.rpc.status is not Status.running


def is_leaving(worker: Worker | WorkerState) -> bool:
    """Return whether a worker is closed, closing or about to close."""
    return worker.status in (Status.closing, Status.closing_gracefully, Status.closed, Status.failed)


def event_loop(client: Client) -> asyncio.AbstractEventLoop:
    """Return the asyncio loop of a client's thread."""
    loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop  # type: ignore[union-attr]
    return loop


def in_event_loop(client: Client) -> bool:
    """Return whether the caller runs in the client's loop thread, where waiting would be a deadlock."""
    try:
        return asyncio.get_running_loop() is event_loop(client)
    except RuntimeError:  # no loop runs in this thread
        return False


def pin(scheduler: Scheduler, keys: Collection[str]) -> None:
    """Keep actors alive without a client, as Dask keeps published datasets."""
    scheduler.client_desires_keys(keys=list(keys), client=KEEPER)


async def pin_remotely(worker: Worker, key: str) -> bool:
    """Ask the scheduler's registry to pin a key, and return whether it did."""
    wanted: bool = await worker.scheduler.dq_pin(key=key)
    return wanted


def unpin(scheduler: Scheduler, keys: Collection[str]) -> None:
    """Release actors."""
    if KEEPER in scheduler.clients:
        known = [key for key in keys if key in scheduler.tasks]
        scheduler.client_releases_keys(keys=known, client=KEEPER)


def report(worker: Worker, op: str, **message: float | bytes) -> None:
    """Send a message without an answer to the scheduler's plugin, in 22 µs."""
    # Only numbers and bytes: a message that Dask cannot encode, or the plugin cannot handle, closes the stream for
    # good, and the scheduler drops the worker with all its actors.
    stream = worker.batched_stream
    if stream.comm is not None and not stream.comm.closed():
        stream.send({"op": op, **message})


async def install(scheduler: Scheduler, plugin: WorkerPlugin, name: str, timeout: float) -> None:
    """Install a worker plugin once on all current and future workers, waiting at most `timeout` seconds."""
    # A worker that hangs installs it when it wakes up.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await scheduler.register_worker_plugin(None, plugin=dumps(plugin), name=name, idempotent=True)


async def answers(scheduler: Scheduler, op: str, timeout: float) -> dict[str, dict[str, Any]]:
    """Return the answers of the workers that answer a handler in time."""

    async def ask(address: str) -> dict[str, Any] | None:
        with suppress(Exception):  # it is gone, hangs, or has no such handler
            async with asyncio.timeout(timeout):
                said: dict[str, Any] = await getattr(scheduler.rpc(address), op)()
                return said
        return None

    asked = list(scheduler.workers)
    said = zip(asked, await asyncio.gather(*map(ask, asked)), strict=True)
    return {address: answer for address, answer in said if isinstance(answer, dict)}


def take_over(scheduler: Scheduler, handler: str, by: Callable[..., Awaitable[Any]]) -> None:
    """Handle all requests of clients, clusters and workers to retire workers, or of Dask's adaptive scaling."""
    scheduler.handlers[handler] = by


def has_tasks(scheduler: Scheduler) -> bool:
    """Return whether a scheduler has tasks or data besides actors."""
    # For actors alone, Dask's adaptive target would keep workers that nobody needs.
    return any(not task.actor for task in scheduler.tasks.values())


def _has_or_starts_worker(nanny: Any) -> bool:
    """Return whether a nanny has a worker or is starting one."""
    # Starting may take seconds: the process that workers are forked from imports first.
    process = nanny.process
    return process is not None and (process.is_alive() or process.status is Status.starting)


async def replace_lost_workers(cluster: SpecCluster, kept_away: Collection[str], absent: dict[Any, int]) -> list[Any]:
    """Remake workers that no nanny replaces any more, except retired ones (`kept_away`), and return their names."""
    # Three cases: a worker that loses its scheduler for half a minute (a stopped process, a sleeping laptop) ends for
    # good with its nanny; a nanny gives up if the scheduler refuses its new worker, because it still knows the last
    # one; and Dask closes a nanny whose worker has died again 15 s after a death. `absent` counts the checks at which
    # a worker was gone: the caller keeps it between calls.
    scheduler: Any = cluster.scheduler
    lost = []
    for name in cluster.worker_spec if cluster.status is Status.running else ():
        nanny: Any = cluster.workers.get(name)
        ended = nanny is None or nanny.status in (Status.closed, Status.failed)
        stuck = not ended and not _has_or_starts_worker(nanny)
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


async def ask_handler(pool: ConnectionPool, address: str, op: str, **arguments: Any) -> Any:
    """Call a worker's handler, or raise OSError if the worker does not accept a connection or dies."""
    # With a timeout: by default the pool tries for 30 s to reach a dead worker.
    comm = await pool.connect(address, timeout=CONNECT_TIMEOUT)
    try:
        return await send_recv(comm, op=op, **arguments)
    finally:
        pool.reuse(address, comm)


async def kill_worker(scheduler: Scheduler, state: WorkerState) -> None:
    """Make a worker's nanny kill it and wait until it is dead, or do nothing without a nanny."""
    if state.nanny:
        await scheduler.rpc(state.nanny).kill(timeout=KILL_AT_ONCE, reason="dqlab-hung")


def memory_at_its_kill(scheduler: Scheduler, worker: str) -> int | None:
    """Return the bytes of memory for which a nanny killed a worker, or None if it did not die of that."""
    return _last_event(scheduler, "worker-restart-memory", worker).get("rss")


EXITS = "dqlab-worker-exit"
"""Topic of the events by which nannies of ours report how processes of workers ended, and first that they will."""


async def exit_status(scheduler: Scheduler, worker: str) -> int | None:
    """Return the exit status of a dead worker's process, or None if no nanny reports it within half a second."""
    # Its connection breaks some milliseconds before its nanny knows.
    for _ in range(50 if scheduler.get_events(EXITS) else 0):
        if event := _last_event(scheduler, EXITS, worker):
            return int(event["status"])
        await asyncio.sleep(0.01)
    return None


def _last_event(scheduler: Scheduler, topic: str, worker: str) -> dict[str, Any]:
    events = (event for _, event in reversed(tuple(scheduler.get_events(topic))))
    return next((event for event in events if event.get("worker") == worker), {})


def is_paused(worker: WorkerState) -> bool:
    """Return whether a worker begins no task, since its process has taken most of its memory."""
    return worker.status is Status.paused


def daemon_thread(name: str) -> ThreadPoolExecutor:
    """Return an executor of one daemon thread, so that a function that never ends blocks no shutdown."""
    return ThreadPoolExecutor(1, thread_name_prefix=name)


def loop_lag(server: Server) -> float:
    """Return the mean seconds by which a server's event loop is late to its 20 ms tick, over the last second."""
    return max(0.0, float(server._tick_interval_observed - server._tick_interval))


def memory_limit(worker: Worker) -> int | None:
    """Return the memory limit of a worker's process in bytes, or None without a limit."""
    limit = worker.memory_manager.memory_limit
    return int(limit) if limit else None


# --- handlers whose errors reach the caller: they travel as answers, since Dask does not unpickle errors on a
#     scheduler, and logs them with their whole traceback


_RAISED = "dq_raised"


class WorkerLost(DqlabError):
    """A worker died, was about to leave, or had no plugin yet, during a call."""

    text = (
        "worker {worker} could not carry out {call}: {reason}. It created nothing, and nothing is lost. Call again: "
        "another worker is used then."
    )

    def __init__(self, *, worker: str, call: str, reason: str, leaving: bool = False) -> None:
        # leaving: it leaves, or its cluster was restarted, so an actor is made again elsewhere.
        super().__init__(worker=worker, call=call, reason=reason, leaving=leaving)


def answering(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap a handler so that it returns dqlab's errors, which `opened` raises at the caller."""

    @wraps(handler)
    async def answer(**arguments: Any) -> Any:
        try:
            return await handler(**arguments)
        except DqlabError as error:
            return {_RAISED: seal_value(error)}

    return answer


async def ask_worker(scheduler: Scheduler, address: str, call: str, **arguments: Any) -> Any:
    """Call one of our handlers on a worker, and raise the handler's error, or WorkerLost for a worker that is gone."""
    try:
        answer = await ask_handler(scheduler.rpc, address, call, **arguments)
    except OSError as error:  # not passed on: Dask would take the worker's closed connection for the caller's
        raise WorkerLost(worker=address, call=call, reason=str(error) or "no answer") from error
    if answer is None:  # Dask's answer for an unknown handler; none of ours returns None
        raise WorkerLost(worker=address, call=call, reason="it has no dqlab plugin: it is leaving, or has just joined")
    return opened(answer)


def opened(answer: Any) -> Any:
    """Return the answer of an `answering` handler, or raise its error."""
    if isinstance(answer, dict) and _RAISED in answer:
        raise open_here(answer[_RAISED])
    return answer
