"""A cluster on this machine that lives in this process: its scheduler, its nannies, and workers forked from a nursery.

It differs from Dask's own `LocalCluster` in four ways:

- Workers do not import the script that starts them, so that a script needs no ``if __name__ == "__main__"``.
- One process imports what all workers need, which takes half the time.
- All processes listen on sockets that only this user can reach, unless a TCP port is asked for.
- The dashboard is made when its page is first opened.
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

from dqlab.cluster.embedded import sockets
from dqlab.cluster.embedded.dashboard import LateDashboard
from dqlab.cluster.embedded.nursery import CLOSE, EXIT, FAILED, START, STARTED, packed, taken_from
from dqlab.cluster.embedded.quiet import quieted
from dqlab.cluster.embedded.worker import Worker
from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.transport.internals import keep_replaced_workers, replace_lost_workers, tend
from dqlab.cluster.transport.undisturbed import ClusterClosesUndisturbed

if TYPE_CHECKING:
    from distributed import SpecCluster

__all__ = ["EmbeddedCluster", "ForkedNanny", "Nursery"]

logger = logging.getLogger("dqlab.registry")

END_WITHIN = 2.0
"""Seconds in which a nursery that is no longer needed must end; its workers have ended before."""
LOOK_EVERY = 2.0
"""Seconds between two checks for missing workers."""
UNKNOWN = 255
"""Exit code assumed for a worker whose nursery is gone."""


class _Quiet:
    """Keeps Dask's INFO lines out of notebooks as long as any cluster of this process is open, and a few others.

    Dask does so for each cluster, and the first one that closes brings the lines back for all.
    """

    _open = 0
    _restore = ExitStack()
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._ended = False
        with self._lock:
            if not _Quiet._open:
                _Quiet._restore = ExitStack()
                for name in ("distributed", "bokeh"):
                    _Quiet._restore.enter_context(silence_logging_cmgr(logging.WARNING, root=name))
                quieted()
                _Quiet._restore.callback(quieted, quiet=False)
            _Quiet._open += 1

    def end(self) -> None:
        """Count one cluster less; may be called again."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            _Quiet._open -= 1
            if not _Quiet._open:
                _Quiet._restore.close()


class Abandoned(ChildProcessError):
    """The start of a cluster was given up."""


class Nursery:
    """The process that this cluster's workers are forked from; started again when it has died.

    `start` and `fork` are for the thread that starts the cluster, and for its event loop; `abandon` for any other.

    Attributes
    ----------
    abandoned : bool
        The start was given up, and no worker is forked any more.
    """

    def __init__(self) -> None:
        self.abandoned = False
        self._process: subprocess.Popen[bytes] | None = None
        self._starting: set[Forked] = set()
        self._forks = self._settled = False
        self._lock = threading.Lock()
        self._patience = threading.Timer(END_WITHIN, self._kill_starting)
        self._patience.daemon = True

    def start(self, directory: Path | None, modules: Sequence[str] = ()) -> None:
        """Start the process.

        Parameters
        ----------
        directory : Path or None
            Directory of the cluster's sockets, which it removes at its end.
        modules : sequence of str
            Modules that it imports before it forks.

        Raises
        ------
        Abandoned
            The start was given up.
        """
        self._given = ["" if directory is None else str(directory), *modules]
        self._start()

    def abandon(self) -> None:
        """Have the start fail soon; once the cluster has started, do nothing.

        No more workers are forked. Those that are just being started may finish, since one that is killed leaves its
        directory behind, and their nannies close them; what takes longer is killed.
        """
        with self._lock:
            if self._settled or self.abandoned:
                return
            self.abandoned = True
            if self._process is not None and not self._forks:  # it still imports, for seconds
                self._process.kill()
            self._patience.start()

    def _kill_starting(self) -> None:
        with self._lock:
            for forked in self._starting:
                forked.end(signal.SIGKILL)

    def settle(self) -> None:
        """Note that the cluster has started.

        Raises
        ------
        Abandoned
            The start was given up before that.
        """
        with self._lock:
            self._check()
            self._settled = True

    def _check(self) -> None:
        if self.abandoned:
            raise Abandoned("the start of the cluster was given up")

    def _start(self) -> None:
        with self._lock:
            self._check()
            self._open()

    def _open(self) -> None:
        environ = {**os.environ, **_get_env_variables("distributed.nanny.pre-spawn-environ")}
        environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # until it has found dqlab
        self._control, theirs = socket.socketpair()
        with theirs:
            try:
                # A process group of its own: Ctrl-C in a terminal is meant for the process that waits, not for workers.
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "dqlab.cluster.embedded.nursery", str(os.getpid()), *self._given],
                    stdin=theirs.fileno(),
                    env=environ,
                    process_group=0,
                )
            except BaseException:
                self._control.close()
                raise

    async def fork(self, on_exit: Callable[[Forked], None]) -> Forked:
        """Return a new process, which waits for its orders.

        Raises
        ------
        OSError
            No process could be made.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                if self._process is None or self._process.poll() is not None:
                    raise BrokenPipeError
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            except OSError:  # it has died, and its workers with it
                self._forks = False
                self.close()
                self._start()
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            kind, said = await taken_from(reader)
        except (EOFError, asyncio.IncompleteReadError):
            writer.close()
            raise ChildProcessError("the process that workers are forked from ended as it began") from None
        if kind == FAILED:
            writer.close()
            raise said
        assert kind == STARTED, kind
        forked = Forked(said, reader, writer, on_exit)
        with self._lock:
            self._forks = True
            self._starting.add(forked)
        forked.listening.add_done_callback(lambda _: self._started(forked))
        return forked

    def _started(self, forked: Forked) -> None:
        with self._lock:
            self._starting.discard(forked)

    def close(self) -> None:
        """End it, and all that it has forked."""
        self._patience.cancel()
        if self._process is None:
            return
        self._control.close()
        if not self._forks:  # it has nothing to end, and may still import
            self._process.kill()
        try:
            self._process.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_WITHIN)


class Forked:
    """One worker's process, as a nanny holds it: the part of `AsyncProcess` that is used.

    Attributes
    ----------
    exitcode : int or None
        None while it runs.
    listening : Future
        Its worker's address and directory; None if it ended before that; raises what kept it from starting.
    """

    def __init__(
        self,
        pid: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_exit: Callable[[Forked], None],
    ) -> None:
        self.pid, self.exitcode = pid, None
        self._reader, self._writer, self._on_exit = reader, writer, on_exit
        self._ended = asyncio.Event()
        self.listening: asyncio.Future[tuple[str, str] | None] = asyncio.get_running_loop().create_future()
        self._follower = asyncio.get_running_loop().create_task(self._follow(), name=f"dqlab-worker-{pid}")

    exitcode: int | None

    def tell(self, *message: Any) -> None:
        """Send a message; do nothing if it has ended."""
        self._writer.write(packed(*message))

    async def _follow(self) -> None:
        code = UNKNOWN
        try:
            while True:
                kind, *said = await taken_from(self._reader)
                if kind == EXIT:
                    code = said[0]
                    break
                if not self.listening.done():
                    if kind == FAILED:
                        self.listening.set_exception(said[0])
                    else:
                        self.listening.set_result((said[0], said[1]))
        except (EOFError, OSError, asyncio.IncompleteReadError):
            pass  # its nursery is gone
        except Exception as error:  # noqa: BLE001 - what kept it from starting is of a class that this process has not
            if not self.listening.done():
                self.listening.set_exception(error)
            self.kill()
        self.exitcode = code
        self._writer.close()
        self._on_exit(self)
        if not self.listening.done():
            self.listening.set_result(None)
        self._ended.set()

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self.exitcode is None

    async def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        await asyncio.wait_for(self._ended.wait(), timeout)

    def terminate(self) -> asyncio.Future[None]:
        """Send SIGTERM."""
        return self._signal(signal.SIGTERM)

    def kill(self) -> asyncio.Future[None]:
        """Send SIGKILL."""
        return self._signal(signal.SIGKILL)

    def end(self, number: int) -> None:
        """Send a signal, from any thread."""
        if self.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _signal(self, number: int) -> asyncio.Future[None]:
        self.end(number)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def close(self) -> None:
        """Do nothing: nothing is held once it has ended."""


class _Orders:
    """What Dask puts into the queue that a worker's process reads."""

    def __init__(self, forked: Forked) -> None:
        self._forked = forked

    def put(self, order: Mapping[str, Any]) -> None:
        self._forked.tell(CLOSE, {name: value for name, value in order.items() if name != "op"})

    def close(self) -> None:
        """Do nothing: nothing is held."""


class _ForkedWorker(WorkerProcess):
    """Dask's account of a worker's process, with another way to start it."""

    def __init__(self, nursery: Nursery, **given: Any) -> None:
        super().__init__(**given)  # type: ignore[no-untyped-call]
        self._nursery = nursery

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
            forked.tell(START, self._given())
            listening = await forked.listening
        except BaseException as error:
            if self.process is not None:
                self.process.terminate()
            if self.status == Status.starting:
                self.status = Status.failed
            if not (isinstance(error, Exception) and self._nursery.abandoned):  # a nanny would log what is expected
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
            "cwd": os.getcwd(),  # noqa: PTH109 - as a string, for the process that changes to it
            "path": sys.path,
            "argv": sys.argv,
        }

    async def kill(self, *args: Any, **given: Any) -> None:
        if self.process is None and self.status == Status.failed:
            return  # there never was one
        await super().kill(*args, **given)


class ForkedNanny(Nanny):
    """A nanny whose worker is forked from a nursery."""

    def __init__(self, *args: Any, nursery: Nursery, **given: Any) -> None:
        super().__init__(*args, **{"worker_class": Worker, **given})
        self._nursery = nursery

    async def instantiate(self) -> Status:
        """Start the worker's process; return when it listens."""
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
    """A cluster on this machine, in the process that connects.

    Parameters
    ----------
    n : int
        Worker processes, of one thread each.
    port : int, optional
        Of a scheduler on TCP, at 127.0.0.1, which every user of this machine can reach; 0: any that is free. Default:
        sockets of this user's own.
    preload : sequence of str
        Modules that workers load, as Dask's option has it.
    modules : sequence of str
        Modules that workers need, imported in advance.
    nursery : Nursery, optional
        One that was not started yet; another thread can abandon the start by it.

    Raises
    ------
    Abandoned, RuntimeError
        The start was given up, or failed; nothing is left of it.
    """

    def __init__(
        self,
        n: int,
        *,
        port: int | None = None,
        preload: Sequence[str] = (),
        modules: Sequence[str] = (),
        nursery: Nursery | None = None,
    ) -> None:
        sockets.register()
        self._nursery = Nursery() if nursery is None else nursery
        directory = sockets.make_directory() if port is None else None
        quiet = _Quiet()
        try:
            self._nursery.start(directory, [*preload, *modules, Worker.__module__])
            host = {"host": "127.0.0.1", "scheduler_port": port}
            if directory is not None:
                host = {"host": f"{sockets.PREFIX}{directory}", "protocol": sockets.PREFIX}
            self._leave = weakref.finalize(self, functools.partial(_leave, self._nursery, directory, quiet))
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
            keep_replaced_workers(self)
            tend_workers(self)
        except BaseException:  # Ctrl-C too
            with suppress(Exception):
                self.close()
            _leave(self._nursery, directory, quiet)
            raise

    async def _close(self) -> None:
        try:
            await super()._close()
        finally:
            self._leave()

    @property
    def dashboard_link(self) -> str:
        """URL of the dashboard: it listens on this machine, wherever the scheduler does."""
        port = getattr(getattr(self.scheduler, "http_server", None), "port", None)
        return f"http://127.0.0.1:{port}/status" if port else ""


def _leave(nursery: Nursery, directory: Any, quiet: _Quiet) -> None:
    quiet.end()
    nursery.close()
    if directory is not None:
        sockets.remove_directory(directory)


def tend_workers(cluster: SpecCluster) -> None:
    """Replace lost workers that no nanny replaces, until the cluster closes; retired ones stay away."""
    absent: dict[Any, int] = {}

    async def look() -> None:
        scheduler: Any = cluster.scheduler
        registry = scheduler.plugins.get(Registry.name)
        retired = registry.departures.retired if isinstance(registry, Registry) else ()
        try:
            for name in await replace_lost_workers(cluster, retired, absent):
                logger.warning("event=worker_made_again name=%s", name)
        except Exception as error:  # noqa: BLE001 - the next look may fare better
            logger.warning("event=tending_failed %r", error)

    tend(cluster, LOOK_EVERY, look)
