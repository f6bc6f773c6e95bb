"""A cluster on this machine: scheduler and nannies in this process, and workers forked from a nursery.

It differs from Dask's own `LocalCluster` in four ways:

- Workers do not import the script that starts them, so the script needs no ``if __name__ == "__main__"``.
- One process imports the modules of all workers, which halves the time of the start.
- All processes listen on sockets that only this user can reach, unless the caller requests a TCP port.
- The dashboard is made when one of its pages is first opened.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import LocalCluster, Nanny
from distributed.core import Status
from distributed.nanny import WorkerProcess, _get_env_variables
from distributed.utils import silence_logging_cmgr
from tornado.ioloop import PeriodicCallback

from dqlab.cluster.embedded import sockets
from dqlab.cluster.embedded.dashboard import LateDashboard
from dqlab.cluster.embedded.nursery import CLOSE, EXIT, FAILED, START, STARTED, packed, quieted, taken_from
from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.transport.internals import EXITS, ClusterClosesUndisturbed, replace_lost_workers

if TYPE_CHECKING:
    from distributed import SpecCluster

logger = logging.getLogger("dqlab.registry")

END_WITHIN = 2.0
"""Seconds in which a nursery must end once its workers have ended."""
LOOK_EVERY = 2.0
"""Seconds between two checks for missing workers."""
UNKNOWN = 255
"""Exit code assumed for a worker whose nursery is gone."""


_open: set[object] = set()
"""Open clusters of this process. Dask silences its INFO lines for each, and the first to close would restore them."""
_silence, _silence_lock = ExitStack(), threading.Lock()


def _silenced(cluster: object) -> None:
    """Silence Dask's INFO lines, and a few others, while any cluster of this process is open."""
    with _silence_lock:
        if not _open:
            for name in ("distributed", "bokeh"):
                _silence.enter_context(silence_logging_cmgr(logging.WARNING, root=name))
            quieted()
            _silence.callback(quieted, quiet=False)
        _open.add(cluster)


def _restored(cluster: object) -> None:
    """Note that a cluster has closed, and restore the lines after the last one."""
    with _silence_lock:
        _open.discard(cluster)
        if not _open:
            _silence.close()


class Abandoned(ChildProcessError):
    """The start of a cluster was abandoned."""


class Nursery:
    """The process that a cluster's workers are forked from, which restarts when it has died."""

    # The thread that starts the cluster calls `start`, its event loop `fork`, and any other thread `abandon`. The lock
    # keeps `abandon` from coming between a check and the start of a process.

    def __init__(self) -> None:
        self.abandoned = False
        """The start was abandoned, and no more workers are forked."""
        self._process: subprocess.Popen[bytes] | None = None
        self._starting: set[Forked] = set()
        self._forks = self._settled = False
        self._lock = threading.Lock()
        self._patience = threading.Timer(END_WITHIN, self._kill_starting)
        self._patience.daemon = True

    def start(self, directory: Path | None, modules: Sequence[str] = ()) -> None:
        """Start the process with modules to import before it forks, or raise Abandoned."""
        # It removes the directory of the cluster's sockets at its end: this process may be killed before.
        self._given = ["" if directory is None else str(directory), *modules]
        self._start()

    def abandon(self) -> None:
        """Have the cluster's start fail soon, unless it has started."""
        # Workers that are just starting get END_WITHIN seconds to finish, and their nannies close them: a killed worker
        # leaves its directory behind.
        with self._lock:
            if self._settled or self.abandoned:
                return
            self.abandoned = True
            if self._process is not None and not self._forks:  # it still imports modules, which takes seconds
                self._process.kill()
            self._patience.start()

    def _kill_starting(self) -> None:
        with self._lock:
            for forked in self._starting:
                forked.end(signal.SIGKILL)

    def settle(self) -> None:
        """Note that the cluster has started, or raise Abandoned if its start was abandoned before."""
        with self._lock:
            self._check()
            self._settled = True

    def _check(self) -> None:
        if self.abandoned:
            raise Abandoned("the start of the cluster was cancelled")

    def _start(self) -> None:
        environ = {**os.environ, **_get_env_variables("distributed.nanny.pre-spawn-environ")}
        environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # to find dqlab; workers get ours
        # In its own process group: Ctrl-C in a terminal is for the process that waits, not for workers.
        command = [sys.executable, "-m", "dqlab.cluster.embedded.nursery", str(os.getpid()), *self._given]
        with self._lock:
            self._check()
            self._control, theirs = socket.socketpair()
            with theirs:
                try:
                    self._process = subprocess.Popen(command, stdin=theirs.fileno(), env=environ, process_group=0)
                except BaseException:
                    self._control.close()
                    raise

    async def fork(self, on_exit: Callable[[Forked], None]) -> Forked:
        """Return a new process that waits for its orders, or raise OSError if none can be made."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                if self._process is None or self._process.poll() is not None:
                    raise BrokenPipeError
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            except OSError:  # the nursery has died, and its workers with it: start another one
                self._forks = False
                self.close()
                self._start()
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            kind, value = await taken_from(reader)
        except (EOFError, asyncio.IncompleteReadError):
            writer.close()
            raise ChildProcessError("the process that forks workers ended while it started") from None
        if kind == FAILED:
            writer.close()
            raise value
        assert kind == STARTED, kind
        forked = Forked(value, reader, writer, on_exit)
        with self._lock:
            self._forks = True
            self._starting.add(forked)
        forked.listening.add_done_callback(lambda _: self._started(forked))
        return forked

    def _started(self, forked: Forked) -> None:
        with self._lock:
            self._starting.discard(forked)

    def close(self) -> None:
        """End the nursery and all that it has forked."""
        self._patience.cancel()
        if self._process is None:
            return
        self._control.close()  # at the end of this socket the nursery kills its workers and ends
        if not self._forks:  # it has no worker to kill, and may still import modules
            self._process.kill()
        try:
            self._process.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_WITHIN)


class Forked:
    """A nanny's handle of its worker's process, with the part of Dask's `AsyncProcess` that nannies use."""

    def __init__(
        self,
        pid: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_exit: Callable[[Forked], None],
    ) -> None:
        self.pid = pid
        self.exitcode: int | None = None
        """None while it runs."""
        self._reader, self._writer, self._on_exit = reader, writer, on_exit
        self._ended = asyncio.Event()
        self.listening: asyncio.Future[tuple[str, str] | None] = asyncio.get_running_loop().create_future()
        """Its worker's address and directory, None if it ended before it listened, or why it cannot start."""
        self._follower = asyncio.get_running_loop().create_task(self._follow(), name=f"dqlab-worker-{pid}")

    def send(self, *message: Any) -> None:
        """Send a message, or drop it if the process has ended."""
        self._writer.write(packed(*message))

    async def _follow(self) -> None:
        code = UNKNOWN
        try:
            while True:
                kind, *values = await taken_from(self._reader)
                if kind == EXIT:
                    code = values[0]
                    break
                if not self.listening.done():
                    if kind == FAILED:
                        self.listening.set_exception(values[0])
                    else:
                        self.listening.set_result((values[0], values[1]))
        except (EOFError, OSError, asyncio.IncompleteReadError):
            pass  # the nursery has ended, and the worker with it
        except Exception as error:  # noqa: BLE001 - the worker's own error may be of a class that this process lacks
            if not self.listening.done():
                self.listening.set_exception(error)
            self.end(signal.SIGKILL)
        self.exitcode = code
        self._writer.close()
        self._on_exit(self)
        if not self.listening.done():
            self.listening.set_result(None)
        self._ended.set()

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self.exitcode is None

    async def join(self, timeout: float | None = None) -> None:
        """Wait until the process has ended."""
        await asyncio.wait_for(self._ended.wait(), timeout)

    async def terminate(self) -> None:
        """Send SIGTERM."""
        self.end(signal.SIGTERM)

    async def kill(self) -> None:
        """Send SIGKILL."""
        self.end(signal.SIGKILL)

    def end(self, number: int) -> None:
        """Send a signal, from any thread."""
        if self.exitcode is None:
            with suppress(ProcessLookupError):  # it has ended, and its nursery has not reported that yet
                os.kill(self.pid, number)

    def close(self) -> None:
        """Do nothing, since an ended process holds nothing here."""


class _Orders:
    """Stands for the queue by which Dask's nanny gives orders to its worker's process."""

    def __init__(self, forked: Forked) -> None:
        self._forked = forked

    def put(self, order: Mapping[str, Any]) -> None:
        self._forked.send(CLOSE, {name: value for name, value in order.items() if name != "op"})

    def close(self) -> None:
        """Do nothing, since orders hold nothing."""


class _ForkedWorker(WorkerProcess):
    """Dask's record of a worker's process, which starts it by a nursery."""

    def __init__(self, nursery: Nursery, **given: Any) -> None:
        super().__init__(**given)  # type: ignore[no-untyped-call]
        self._nursery = nursery

    # Follows Dask's own `start` in what it does to `status`, `running` and `stopped`: nannies wait for these.
    async def start(self) -> Status:
        if self.status == Status.running:
            return self.status
        if self.status == Status.starting:
            await self.running.wait()
            return self.status
        self.running, self.stopped = asyncio.Event(), asyncio.Event()
        self.status = Status.starting
        listening = None
        try:
            forked: Any = await self._nursery.fork(self._on_exit)
            self.process = forked
            self.child_stop_q = _Orders(forked)
            forked.send(START, self._given())
            listening = await forked.listening
        except BaseException as error:
            if self.process is not None:
                await self.process.terminate()
            if self.status == Status.starting:
                self.status = Status.failed
            # After an abandoned start an error is expected, and a nanny would log it.
            if not (isinstance(error, Exception) and self._nursery.abandoned):
                raise
        finally:
            self.running.set()
        if listening is not None and self.status == Status.starting:
            self.worker_address, self.worker_dir = listening
            self.status = Status.running
        return self.status

    def _given(self) -> dict[str, Any]:
        return {
            "worker": self.Worker,
            "options": self.worker_kwargs,
            "config": self.config,
            "environ": {**os.environ, **self.env},
            "silence_logs": self.silence_logs,
            "cwd": str(Path.cwd()),
            "path": sys.path,
            "argv": sys.argv,
        }

    async def kill(self, *args: Any, **given: Any) -> None:
        if self.process is None and self.status == Status.failed:
            return  # there never was a process
        await super().kill(*args, **given)


class ForkedNanny(Nanny):
    """A nanny whose worker is forked from a nursery."""

    def __init__(self, *args: Any, nursery: Nursery, **given: Any) -> None:
        super().__init__(*args, **given)
        self._nursery = nursery

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        if self.status is Status.running:
            self._report(worker=self.worker_address, status=exitcode)
        super()._on_worker_exit_sync(exitcode)  # type: ignore[no-untyped-call]

    def _report(self, **event: Any) -> None:
        nanny: Any = self
        nanny.log_event(EXITS, event)

    async def _log_event(self, topic: str, msg: Any) -> None:
        # A task that nobody waits for: its error would be printed when a start is interrupted, and the scheduler gone.
        with suppress(OSError, RuntimeError):
            await self.scheduler.log_event(topic=topic, msg=msg)

    async def instantiate(self) -> Status:
        """Start the worker's process and wait until it listens."""
        self._report()
        if self.process is None:
            self.process = _ForkedWorker(
                self._nursery,
                worker_kwargs={
                    "scheduler_ip": self.scheduler_addr,
                    "nthreads": self.nthreads,
                    "local_directory": self._original_local_dir,
                    "services": self.services,
                    "nanny": self.address,
                    "name": self.name,
                    "memory_limit": self.memory_manager.memory_limit,
                    "resources": self.resources,
                    "validate": self.validate,
                    "silence_logs": self.silence_logs,
                    "death_timeout": self.death_timeout,
                    "preload": self.preload,
                    "preload_argv": self.preload_argv,
                    "security": self.security,
                    "contact_address": self.contact_address,
                    **self.worker_kwargs,
                },
                silence_logs=self.silence_logs,
                on_exit=self._on_worker_exit_sync,
                worker=self.Worker,
                env=self.env,
                pre_spawn_env=self.pre_spawn_env,
                config=self.config,
            )
        return await super().instantiate()


class EmbeddedCluster(ClusterClosesUndisturbed, LocalCluster):
    """A cluster on this machine, in the process that connects."""

    def __init__(
        self,
        n: int,  # worker processes, of one thread each
        *,
        port: int | None = None,  # TCP port on 127.0.0.1, which every user here can reach; 0: any; None: own sockets
        preload: Sequence[str] = (),  # modules that workers load, as Dask's option of this name
        modules: Sequence[str] = (),  # modules that workers need, imported before they are forked
        nursery: Nursery | None = None,  # not started yet; another thread can abandon the start by it
    ) -> None:
        sockets.register()
        self._nursery = Nursery() if nursery is None else nursery
        directory = sockets.make_directory() if port is None else None
        _silenced(self._nursery)
        try:
            self._nursery.start(directory, [*preload, *modules])
            host = {"host": "127.0.0.1", "scheduler_port": port}
            if directory is not None:
                host = {"host": f"{sockets.PREFIX}{directory}", "protocol": sockets.PREFIX}
            # Without a reference to `self`, which would keep the cluster alive.
            self._leave = weakref.finalize(self, functools.partial(_leave, self._nursery, directory))
            late = LateDashboard.can_be_had()
            super().__init__(  # type: ignore[no-untyped-call]
                n_workers=n,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                preload=list(preload),
                worker_class=ForkedNanny,
                nursery=self._nursery,
                scheduler_kwargs={"dashboard": not late},
                **host,
            )
            if late:
                LateDashboard(self.scheduler)
            self._nursery.settle()
            tend_workers(self)
        except BaseException:  # also Ctrl-C: nothing of a failed start may stay
            with suppress(Exception):
                self.close()
            _leave(self._nursery, directory)
            raise

    async def _close(self) -> None:
        try:
            await super()._close()
        finally:
            self._leave()  # after Dask has closed its workers: closing the nursery kills the rest

    @property
    def dashboard_link(self) -> str:
        """The URL of the dashboard."""
        # The dashboard listens on this machine, wherever the scheduler does.
        port = getattr(getattr(self.scheduler, "http_server", None), "port", None)
        return f"http://127.0.0.1:{port}/status" if port else ""


def _leave(nursery: Nursery, directory: Any) -> None:
    _restored(nursery)
    nursery.close()
    if directory is not None:
        sockets.remove_directory(directory)


def tend_workers(cluster: SpecCluster) -> None:
    """Replace lost workers that no nanny replaces, except retired ones, until the cluster closes."""
    if "dqlab-tend" in cluster.periodic_callbacks:
        return
    absent: dict[Any, int] = {}

    async def look() -> None:
        scheduler: Any = cluster.scheduler
        registry = scheduler.plugins.get(Registry.name)
        retired = registry.departures.retired if isinstance(registry, Registry) else ()
        try:
            for name in await replace_lost_workers(cluster, retired, absent):
                logger.warning("event=worker_made_again name=%s", name)
        except Exception:  # go on with the next look
            logger.exception("event=tending_failed")

    ticking = cluster.periodic_callbacks["dqlab-tend"] = PeriodicCallback(look, LOOK_EVERY * 1000)
    loop: Any = cluster.loop
    loop.add_callback(ticking.start)
