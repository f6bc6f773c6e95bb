"""The plugin of every worker: it makes actors when the registry requests them, sends heartbeats, and ends in order.

The registry installs it, and Dask installs it on workers that join later. It also answers the doctor.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

import psutil
from distributed import Worker, WorkerPlugin
from distributed.comm.core import Comm
from distributed.core import Status

from dqlab.clock import SystemClock
from dqlab.cluster.shard.durable import keep, list_stored
from dqlab.cluster.transport.internals import (
    CALL,
    NoSuchActor,
    PatientClient,
    WorkerLost,
    actors_here,
    answer_call,
    answering,
    daemon_thread,
    is_leaving,
    loop_lag,
    memory_limit,
    pin_remotely,
    report,
    security_of,
    start_actor,
)
from dqlab.cluster.transport.protocol import batch_system, greeting, process_vitals, read_end
from dqlab.cluster.transport.sealed import open_value
from dqlab.cluster.transport.wire import Apart
from dqlab.store.directories import ClusterDirectory, delete_logs
from dqlab.store.probe import Probe, probe
from dqlab.texts import valid

T = TypeVar("T")


# --- vitals for the doctor ------------------------------------------------------------------------


class WorkerVitals:
    """The handler ``dq_vitals`` of a worker, which changes nothing; its answers are small and plain."""

    # Checks that take time or touch the disk run in threads, so that one that hangs delays neither another answer nor
    # the heartbeats of the event loop.

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._looking: dict[str, asyncio.Future[Any]] = {}
        """Checks that run in threads, by subject."""

    async def look(self, stores: Sequence[Sequence[str]] = (), limit: float = 5.0) -> dict[str, Any]:
        """Return the state of this worker after at most about `limit` seconds."""
        # `stores` are directories to probe, each with the path of a marker or "".
        worker = self._worker
        probes = await self.look_at_disk(stores, limit)
        end = read_end(os.environ, SystemClock().wall())
        found = {
            **process_vitals(),
            "lag": loop_lag(worker),
            "memory_limit": memory_limit(worker),
            "lifetime_left": _lifetime_left(worker),
            "batch": batch_system(os.environ),
            "job_left": None if end is None else end.left,
            "stores": probes,
        }
        return cast("dict[str, Any]", valid(found))

    async def look_at_disk(self, stores: Sequence[Sequence[str]], limit: float) -> list[dict[str, Any]]:
        """Return a probe of each store from this worker, or of one that hangs an error."""
        probes = (
            self._in_time(f"store {directory}", partial(probe, Path(directory), marker), limit)
            for directory, marker in stores
        )
        error = f"it did not answer within {limit:g} s"
        return [
            (found or Probe(directory, error=error)).to_dict()
            for (directory, _), found in zip(stores, await asyncio.gather(*probes), strict=True)
        ]

    async def _in_time(self, what: str, look: Callable[[], T], limit: float) -> T | None:
        """Return the result of a check in its own thread, or None if it takes longer than `limit`."""
        # A check that hangs is not started again: each try would leave another thread behind.
        before = self._looking.get(what)
        if before is not None:
            await asyncio.wait((before,), timeout=limit)
            if not before.done():
                return None
        thread = daemon_thread("dqlab-vitals")
        looking = self._looking[what] = asyncio.get_running_loop().run_in_executor(thread, look)
        thread.shutdown(wait=False)
        await asyncio.wait((looking,), timeout=limit)
        return looking.result() if looking.done() else None


def _lifetime_left(worker: Worker) -> float | None:
    """Return the seconds until a worker with a lifetime ends itself, else None."""
    # Counted from the start of its process, just before the worker's own.
    if not worker.lifetime or worker.address.startswith("inproc://"):
        return None
    return float(psutil.Process().create_time() + worker.lifetime - SystemClock().wall())


logger = logging.getLogger("dqlab.worker")

# --- one client for all actors that are made within seconds: opening one costs more than making an actor ---


LINGER_S = 5.0
"""Seconds that the client stays open for the next actor. Not for ever: each open client polls the scheduler."""
CLOSE_S = 1.0
"""Seconds that closing it may take; a worker that leaves has few."""


class SharedClient:
    """Opens a client when an actor is made, and closes it when none was made for some seconds.

    It is not the worker's own: that one would become asynchronous, and users' functions that call `get_client()` would
    get it.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._opening: asyncio.Task[PatientClient] | None = None
        """The client that callers share, or that is being opened for them."""
        self._users = self._borrowed = 0
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def borrowed(self) -> AsyncIterator[PatientClient]:
        """Yield the client, which others may use at the same time; raise OSError where none can be opened."""
        self._users += 1
        self._borrowed += 1
        try:
            yield await self._shared()
        finally:
            self._users -= 1
            asyncio.get_running_loop().call_later(LINGER_S, self._end_unused, self._borrowed)

    async def _shared(self) -> PatientClient:
        if self._closed:
            raise NoSuchActor("its worker closes")
        opening = self._opening
        if opening is not None and opening.done() and not _serves(opening):
            self._end_later()
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open(), name="dqlab-open-client")
        # Shielded: a caller that gives up must not end the opening that others wait for.
        client = await asyncio.shield(self._opening)
        if self._closed:
            raise NoSuchActor("its worker closes")
        return client

    async def _open(self) -> PatientClient:
        client = PatientClient(  # type: ignore[no-untyped-call]
            self._worker.scheduler.address,
            asynchronous=True,
            set_as_default=False,
            security=security_of(self._worker),
            name="dqlab-spawn",
        )
        try:
            await client
        except BaseException:
            await self._end(client)  # Dask leaves one that could not connect half open
            raise
        return client

    def _end_unused(self, borrowed: int) -> None:
        """Close the client if nobody has it, or has borrowed it since."""
        if not self._users and self._borrowed == borrowed:
            self._end_later()

    def _end_later(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            ending = asyncio.get_running_loop().create_task(self._end_opened(opening), name="dqlab-close-client")
            self._ending.add(ending)  # the event loop holds only a weak reference
            ending.add_done_callback(self._ending.discard)

    async def _end_opened(self, opening: asyncio.Task[PatientClient]) -> None:
        if not opening.done():
            opening.cancel()
        with suppress(asyncio.CancelledError, Exception):  # its callers have got the error
            await self._end(await opening)

    async def _end(self, client: PatientClient) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await client.close()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - nothing waits for it, and its process ends it in any case
            logger.warning("event=client_not_closed %r", error)

    async def close(self) -> None:
        """Close the client for good, also one that is being opened, and wait for that."""
        self._closed = True
        self._end_later()
        if self._ending:
            await asyncio.wait(list(self._ending))


def _serves(opening: asyncio.Task[PatientClient]) -> bool:
    """Return whether a client could be opened, and has not lost the scheduler since."""
    return not opening.cancelled() and opening.exception() is None and opening.result().status == "running"


# --- the plugin -----------------------------------------------------------------------------------


_ENDS = {"consumer": "close", "queue": "hand_over"}
"""The method that ends an actor of each kind with its worker. Consumers first: they give back what they hold, and
settle with shards that may live here."""

BEAT_EVERY = 0.4
"""Seconds between two heartbeats; `dqlab.cluster.scheduler.departures` waits for more than two of them."""

LEAVE_S = 4.0
"""Seconds that consumers have to settle and give messages back, and then shards to close their logs, when a worker
closes."""
TERMINATE_S = 9.0
"""Seconds until a terminated worker has left; nannies and batch systems kill it after 10 or more."""
CLOSING_S = 1.0
"""The same for a worker that is closing and holds nothing: if its nanny has left, Dask's close never returns."""

EXIT_S = 1.0
"""Seconds that the process of a closed worker may take to end by itself."""


KEPT_FREE, LARGEST_KEPT = 64 << 20, 32 << 20
"""Free bytes that a process keeps at the end of its heap, and the size of the largest allocation made there."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt, from malloc.h."""


class DqlabWorkerPlugin(WorkerPlugin):
    """Adds handlers that make actors here, call them, and answer for this worker."""

    name = "dqlab"
    idempotent = True

    def __init__(self, cluster: str, shared: str) -> None:
        self._cluster, self._shared_directory = cluster, shared
        self._beating: asyncio.Task[None] | None = None
        self._terminating: asyncio.Task[None] | None = None
        self._exiting: asyncio.Task[None] | None = None
        self._living: dict[str, Any] = {}
        """Our actors that have started, by key."""
        self._ending: set[asyncio.Task[None]] = set()
        self._begins = 0
        """How many actors are being made."""

    def setup(self, worker: Worker) -> None:
        """Add our handlers, and one for SIGTERM that ends the worker in order."""
        self._worker, self._shared = worker, SharedClient(worker)
        self._directory = ClusterDirectory(self._cluster, within=self._shared_directory)
        self._directory.begin_sweep()
        if on_sigterm(self._terminate) and worker.nanny is not None:
            self._exiting = asyncio.create_task(_exit_when_closed(worker), name="dqlab-exit")
        if worker.nanny is not None:  # in its own process: these settings are not for a user's
            _spare_the_collector(worker)
            _keep_freed_memory()
        self._handlers = {
            "dq_spawn": answering(self.spawn),
            "dq_greet": self.greet,
            "dq_report": self.report_due,
            "dq_keep": answering(keep),
            "dq_stored": answering(list_stored),
            "dq_delete": answering(delete_logs),
            "dq_vitals": WorkerVitals(worker).look,
        }
        worker.handlers.update({**self._handlers, CALL: self.call})
        end = read_end(os.environ, SystemClock().wall())
        if end is not None:
            report(worker, "dq-deadline", left=end.left, drain=end.drain)

    async def teardown(self, worker: Worker) -> None:
        """End our actors, so that nothing waits for their leases and logs, and remove our handlers."""
        closing = asyncio.create_task(self._shared.close(), name="dqlab-close-client")  # beside what takes longer
        for kind, end in _ENDS.items():
            here = [held for held in actors_here(worker, kind).values() if not held.closed]
            ending = [asyncio.create_task(getattr(held, end)(b"")) for held in here]
            if ending:
                done, late = await asyncio.wait(ending, timeout=LEAVE_S)
                for failed in (task for task in done if task.exception() is not None):
                    logger.warning("event=%s_not_closed %r", kind, failed.exception())
                for task in late:
                    task.cancel()
        if self._beating is not None:
            self._beating.cancel()
        await closing
        self._directory.close(delete=False)  # other workers of this machine may go on with its logs
        # Not `CALL`: actors that still live here may be called.
        for handler in self._handlers:
            worker.handlers.pop(handler, None)

    async def greet(self) -> dict[str, object]:
        """Return the protocol of this worker."""
        return greeting()

    async def report_due(self, number: int) -> dict[str, object]:
        """Have our actors report their changes, then report `number`."""
        for kind in _ENDS:
            for actor in actors_here(self._worker, kind).values():
                await actor.report_due(b"")
        # On the same stream as the reports: when the number arrives, they have arrived too.
        report(self._worker, "dq-reported", number=number)
        return {}

    async def call(
        self, comm: Comm, actor: str, call: str, body: bytes | memoryview, parts: dict[int, memoryview] | None = None
    ) -> dict[str, Any]:
        """Call an actor that lives here."""
        return await answer_call(self._worker, comm, actor, call, Apart(body, parts) if parts else body)

    async def spawn(self, key: str, sealed: bytes) -> dict[str, Any]:
        """Make, pin and start the actor of a Dask key from its sealed class and arguments, or raise WorkerLost."""
        worker = self._worker
        if is_leaving(worker):
            raise WorkerLost(worker=worker.address, call="dq_spawn", reason="it is about to leave")
        self._begins += 1
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="dqlab-beat")
        try:
            await self._make(worker, key, sealed)
        except (NoSuchActor, CancelledError) as error:  # a restart of the cluster cancels what was made
            reason = f"it leaves, or the cluster was restarted ({error})"
            raise WorkerLost(worker=worker.address, call="dq_spawn", reason=reason, leaving=True) from error
        finally:
            self._begins -= 1
        return {"address": worker.address, **greeting()}

    async def _make(self, worker: Worker, key: str, sealed: bytes) -> None:
        kind, args = open_value(sealed)
        async with self._shared.borrowed() as client:
            future = client.submit(
                kind, *args, key=key, actor=True, workers=[worker.address], allow_other_workers=False, pure=False
            )
            try:
                await future
                if not await pin_remotely(worker, key):
                    raise NoSuchActor(key)
            finally:  # from here on the registry wants it, or nothing does
                future.release()
        held: Any = worker.state.actors.get(key)
        try:
            await start_actor(worker, key)
        except Exception:
            if held is not None:
                held.closed = True  # until Dask has released it, calls would reach what never began
            raise
        if worker.state.actors.get(key) is not held:  # its caller has given it up, and no one else would end it
            await self._end(key, held)
            raise NoSuchActor(key)
        self._living[key] = held

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """End an actor that Dask has released."""
        # It still leases or holds a log, and no call can reach it any more.
        held = self._living.get(key)
        if held is not None and self._worker.state.actors.get(key) is not held:
            del self._living[key]
            ending = asyncio.get_running_loop().create_task(self._end(key, held), name="dqlab-end")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    @staticmethod
    async def _end(key: str, held: Any) -> None:
        if held.closed:
            return
        logger.warning("event=actor_abandoned key=%s", key)
        try:
            await getattr(held, _ENDS[key.removeprefix("dq-").split("/")[0]])(b"")
        except Exception as error:  # noqa: BLE001 - no caller waits for the error
            logger.warning("event=actor_not_ended key=%s %r", key, error)

    async def _beat(self) -> None:
        """Send heartbeats from the event loop while shards live here or an actor is being made."""
        while self._begins or actors_here(self._worker, "queue"):
            report(self._worker, "dq-beat")
            self._directory.touch()
            await asyncio.sleep(BEAT_EVERY)
        self._beating = None

    def _terminate(self) -> None:
        if self._terminating is None:
            self._terminating = asyncio.create_task(self._leave(), name="dqlab-terminate")

    def _patience(self) -> float:
        held = (*actors_here(self._worker, "queue").values(), *actors_here(self._worker, "consumer").values())
        closing = self._worker.status not in (Status.running, Status.paused, Status.closing_gracefully)
        return CLOSING_S if closing and all(actor.closed for actor in held) else TERMINATE_S

    async def _leave(self) -> None:
        """Retire the worker and close it, so that its nanny, unless terminated too, starts another one."""
        logger.warning("event=worker_terminates worker=%s", self._worker.address)
        try:
            async with asyncio.timeout(self._patience()):
                await self._worker.close_gracefully(restart=True, reason="sigterm")
        except Exception as error:  # noqa: BLE001 - the process must end in time, whatever the error
            logger.warning("event=worker_killed worker=%s %r", self._worker.address, error)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


async def _exit_when_closed(worker: Worker) -> None:
    """End a worker's own process soon after the worker has closed."""
    # Python waits at its end, for ever, for threads and processes that users' functions have left. The nanny replaces
    # the worker only when its process has ended.
    try:
        await worker.finished()
    finally:  # the event loop may also end before that
        timer = threading.Timer(EXIT_S, os._exit, [0])
        timer.daemon = True
        timer.start()


def _spare_the_collector(worker: Worker) -> None:
    """Make the garbage collector skip the objects of imported modules."""
    # It would scan these 90,000 objects again and again while many small messages come and go. Only in a process that
    # has run nothing: frozen objects of users would never be collected.
    if not worker.state.tasks and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def _keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next chunk of results."""
    # By itself it returns all but a few MB to the system at once. Each page that it requests again costs a fault: 2,100
    # faults for 8,192 results of a kilobyte.
    with suppress(AttributeError, OSError):  # another system, or another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, KEPT_FREE)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT)


# --- SIGTERM in the process of a worker, but not in the children that functions of users fork -----


DEFAULTS: dict[signal.Signals, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
"""Handlers for the children of a worker's process."""
_OF_DASK = "distributed._signals"
"""The module of the handlers that the command ``dask worker`` sets in its process."""

_own: dict[signal.Signals, Any] = {}
"""Handlers that children of this process must not inherit."""
_masks = threading.local()


def on_sigterm(leave: Callable[[], object]) -> bool:
    """Call `leave` in the running event loop on SIGTERM, and return False in a process that is a user's."""
    # A user's process has its own handler, or the worker runs outside the main thread, where no handler can be set.
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGTERM)
    # A handler of an earlier worker in this process, whose loop is closed, may be replaced.
    ours = handler is signal.SIG_DFL or (isinstance(handler, _Obey) and handler.loop.is_closed())
    if ours:
        signal.signal(signal.SIGTERM, _Obey(asyncio.get_running_loop(), leave))
    _keep_from_children()
    return ours


class _Obey:
    """The handler of SIGTERM."""

    # Not `loop.add_signal_handler`: a forked child that inherits it writes the signal into the loop's socket, which it
    # shares with its parent, and a terminated child would terminate the parent.
    def __init__(self, loop: asyncio.AbstractEventLoop, leave: Callable[[], object]) -> None:
        self.loop, self._leave = loop, leave

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self.loop.call_soon_threadsafe(self._leave)
        except RuntimeError:  # the loop is closed
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _keep_from_children() -> None:
    """Reset our handlers and those of ``dask worker`` in forked children."""
    if not hasattr(os, "register_at_fork"):
        return
    _watch_forks()
    for number in DEFAULTS:
        handler: Any = signal.getsignal(number)
        if isinstance(handler, _Obey) or getattr(handler, "__module__", "") == _OF_DASK:
            _own[number] = handler


@cache
def _watch_forks() -> None:
    """Register our hooks of forks, once in a process and its children."""
    # A second `_block` of the same fork would note the blocked signals as those of before, and they would stay blocked.
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_reset)


def _block() -> None:
    """Block signals around a fork until the child has its own handlers."""
    # Python drops signals that reach the child before.
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _own)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _reset() -> None:
    try:
        for number, handler in _own.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, DEFAULTS[number])
        _own.clear()
        signal.set_wakeup_fd(-1)
    finally:
        _unblock()
