"""The process that workers of a cluster on this machine are forked from: ``python -m dqlab.cluster.embedded.nursery``.

It imports the modules of all workers once, so that a worker starts in a tenth of a second, and it never imports the
script or notebook that started it. Each worker gets its orders, and reports its end, over its own socket. All of them
end with the process that started the nursery, however that ends.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle
import dask
from distributed import Worker
from distributed.compatibility import asyncio_run
from distributed.config import get_loop_factory

from dqlab import platforms
from dqlab.cluster.embedded import sockets
from dqlab.cluster.transport.internals import NoSuchActor, WorkerLost
from dqlab.cluster.transport.link import silence_own_lines

logger = logging.getLogger("dqlab.nursery")

START, CLOSE = "start", "close"
"""Messages to a worker: become this worker, and end."""
STARTED, FAILED, EXIT = "started", "failed", "exit"
"""Messages about a worker: its process runs, and later listens; it cannot start; it has ended."""
SPAWNED = "spawned"
"""The first argument of a worker that is not forked."""
LOOK_EVERY = 1.0
"""Seconds between two checks that the parent lives, where the system does not report its end."""
_HEAD = struct.Struct("!Q")


def packed(*message: Any) -> bytes:
    """Return the bytes of a message over a worker's socket."""
    body = cloudpickle.dumps(message)
    return bytes(_HEAD.pack(len(body)) + body)


def _taken(receive: Callable[[int], bytes]) -> tuple[Any, ...]:
    """Return the next message from `receive`, which returns exactly that many bytes or raises EOFError."""
    (size,) = _HEAD.unpack(receive(_HEAD.size))
    return tuple(pickle.loads(receive(size)))


async def taken_from(reader: asyncio.StreamReader) -> tuple[Any, ...]:
    """Return the next message from a stream."""
    (size,) = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return tuple(pickle.loads(await reader.readexactly(size)))


def _receiver(connection: socket.socket) -> Callable[[int], bytes]:
    def receive(size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = connection.recv(min(1 << 16, size - len(parts)))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    return receive


class ForkServer:
    """Forks a worker for each socket that it receives over `control`, and reports how each one ended."""

    # `parent` is the id of the process that started this one. When it or `control` ends, all workers end.
    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control, self._parent = control, parent
        self._workers: dict[int, socket.socket] = {}
        self._wake, waker = os.pipe()
        for end in (self._wake, waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without any handler Python writes nothing to the descriptor
        self._own = [self._wake, waker]

    def live(self) -> int | None:
        """Fork until the parent ends, and return None then or, in a worker, the descriptor of its socket."""
        watched = select.poll()
        watched.register(self._control, select.POLLIN)
        watched.register(self._wake, select.POLLIN)
        parent = platforms.pin_process(self._parent)
        if parent is not None:
            self._own.append(parent)
            watched.register(parent, select.POLLIN)
        while os.getppid() == self._parent:
            ready = {descriptor for descriptor, _ in watched.poll(LOOK_EVERY * 1000)}
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
                self._reap()
            if self._control.fileno() in ready:
                asked, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
                if not asked:
                    break
                try:
                    if not platforms.forks():
                        self._spawn(descriptors[0])
                    elif self._fork(descriptors[0]):
                        return descriptors[0]
                except OSError as error:  # no more processes are possible; the others stay alive
                    self._refuse(descriptors[0], error)
        self._end()
        return None

    def _fork(self, descriptor: int) -> bool:
        """Fork, and return whether this is the worker."""
        nursery = os.getpid()
        pid = os.fork()
        if pid:
            self._hold(pid, descriptor)
            return False
        platforms.die_with(nursery)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Close all that belongs to the nursery: a socket that a worker holds open would hide the end of the other side.
        for end in self._own:
            os.close(end)
        self._control.close()
        for other in self._workers.values():
            other.close()
        return True

    def _spawn(self, descriptor: int) -> None:
        """Start a worker that imports everything itself."""
        command = [sys.executable, "-m", "dqlab.cluster.embedded.nursery", SPAWNED, str(os.getpid()), str(descriptor)]
        # Not a `Popen`, which waits for its process: `_reap` waits for every process, and only one wait gets a status.
        os.set_inheritable(descriptor, True)
        pid = os.posix_spawn(sys.executable, command, os.environ)
        self._hold(pid, descriptor)

    def _refuse(self, descriptor: int, error: OSError) -> None:
        logger.warning("event=worker_not_forked %s", error)
        with socket.socket(fileno=descriptor) as pipe, suppress(OSError):
            pipe.sendall(_failure(error))

    def _hold(self, pid: int, descriptor: int) -> None:
        self._workers[pid] = pipe = socket.socket(fileno=descriptor)
        with suppress(OSError):
            pipe.sendall(packed(STARTED, pid))

    def _reap(self) -> None:
        while self._workers:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            pipe = self._workers.pop(pid, None)
            if pipe is not None:
                with suppress(OSError):
                    pipe.sendall(packed(EXIT, os.waitstatus_to_exitcode(status)))
                pipe.close()

    def _end(self) -> None:
        for pid in self._workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._workers:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


# --- in a worker ----------------------------------------------------------------------------


def _be_worker(connection: socket.socket) -> None:
    """Receive the options of a worker, and run as that worker until its end."""
    receive = _receiver(connection)
    kind, given = _taken(receive)
    assert kind == START, kind
    os.chdir(given["cwd"])
    sys.path[:] = given["path"]
    sys.argv[:] = given["argv"]
    os.environ.clear()
    os.environ.update(given["environ"])
    sys.modules["__main__"] = types.ModuleType("__main__")  # empty: functions carry what they need of the user's own
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # otherwise all forks draw the same numbers
    dask.config.refresh()  # after the environment is set, which may hold options of Dask
    dask.config.set(given["config"])
    if given["silence_logs"]:
        logging.getLogger("distributed.nanny").setLevel(given["silence_logs"])
    quieted()
    asyncio_run(_work(connection, receive, given), loop_factory=get_loop_factory())


async def _work(connection: socket.socket, receive: Callable[[int], bytes], given: dict[str, Any]) -> None:
    try:
        worker: Worker = given["worker"](**given["options"])
        threading.Thread(
            target=_obey, args=(receive, worker, asyncio.get_running_loop()), name="dqlab-nanny", daemon=True
        ).start()
        async with worker:
            connection.sendall(packed(STARTED, worker.address, worker.local_directory))
            await worker.finished()
    except Exception as error:
        logger.exception("event=worker_not_started")
        connection.sendall(_failure(error))
        raise SystemExit(1) from None


def _failure(error: Exception) -> bytes:
    with suppress(Exception):  # send the text of an exception that cannot be pickled or opened again
        sent = packed(FAILED, error)
        pickle.loads(sent[_HEAD.size :])
        return sent
    return packed(FAILED, RuntimeError(f"{type(error).__name__}: {error}"))


def _obey(receive: Callable[[int], bytes], worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
    """Close the worker when its nanny orders it, and end the process when the connection is lost."""
    try:
        kind, options = _taken(receive)
    except (EOFError, OSError):
        os._exit(platforms.LOST_PARENT)
    assert kind == CLOSE, kind
    loop.call_soon_threadsafe(lambda: loop.create_task(worker.close(nanny=False, **options)))


# --- the process ----------------------------------------------------------------------------


def main(parent: int, directory: str, *modules: str) -> None:
    """Import `modules`, then fork workers for the socket that is standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for module in modules:
        importlib.import_module(module)
    sockets.register()
    gc.collect()
    gc.freeze()  # a collection in a worker would write to the imported objects, and copy their pages
    descriptor = ForkServer(control, parent).live()
    if descriptor is not None:
        _be_worker(socket.socket(fileno=descriptor))
    elif directory:  # remove it here, since its maker may have been killed
        sockets.remove_directory(Path(directory))


def spawned(parent: int, descriptor: int) -> None:
    """Run as a worker, where processes are not forked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)
    platforms.die_with(parent)
    sockets.register()
    _be_worker(socket.socket(fileno=descriptor))


# --- log lines of no use to a user ------------------------------------------------------------

# Their events are reported elsewhere: a message of a consumer that dies returns to its queue, a failure has its reason,
# and an embedded cluster replaces lost processes by itself.


def _of_nannies(record: logging.LogRecord) -> bool:
    """Return whether to write a line of a nanny."""
    # The restart of a worker is noted at level INFO instead.
    if not str(record.msg).startswith("Restarting worker"):
        return True
    logging.getLogger("dqlab.registry").info("event=worker_restarted")
    return False


def _of_workers(record: logging.LogRecord) -> bool:
    """Return whether to write a line of a worker."""
    # One that closes ends the connection of its own heartbeat, and logs with a traceback that it failed.
    return "during heartbeat" not in str(record.msg)


def _of_directories(record: logging.LogRecord) -> bool:
    """Return whether to write a line about directories of workers."""
    # Several processes remove the directory of a dead worker at once, and all but one find it missing.
    return not (str(record.msg).startswith("Failed to remove") and "[Errno 2]" in record.getMessage())


def _of_consumers(record: logging.LogRecord) -> bool:
    """Return whether to write a line about an actor."""
    # An actor whose worker has just died or leaves is made again elsewhere.
    text, error = record.getMessage(), record.args[-1] if isinstance(record.args, tuple) and record.args else None
    if text.startswith("event=spawn_failed"):
        return not (isinstance(error, WorkerLost) and error.leaving)
    return not (text.startswith("event=close_failed") and isinstance(error, NoSuchActor))


_FILTERS = {
    "distributed.nanny": _of_nannies,
    "distributed.worker": _of_workers,
    "distributed.diskutils": _of_directories,
    "dqlab.registry": _of_consumers,
}


def quieted(*, quiet: bool = True) -> None:
    """Filter these lines in this process from now on, or with `quiet=False` no longer."""
    silence_own_lines()
    for name, chosen in _FILTERS.items():
        change = logging.getLogger(name).addFilter if quiet else logging.getLogger(name).removeFilter
        change(chosen)


if __name__ == "__main__" and sys.argv[1] == SPAWNED:
    spawned(*map(int, sys.argv[2:]))
elif __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
