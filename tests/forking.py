"""Python processes that are forked from one that has imported dqlab: each costs a hundredth of a start.

A start imports Dask and dqlab, for about a second of a processor, and `make test` would pay for some hundred. One
process, the mother, imports them once for each tester. What it forks has the given directory, environment, arguments,
and standard streams, is a child of the tester as any other, and is replaced by an ordinary start wherever something
is asked for that a fork cannot give. What tests the start itself takes `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

from distributed.nanny import _get_env_variables

__all__ = ["Popen", "run"]

ROOT = Path(__file__).parents[1]
MODULES = (
    "dqlab.checkup.gathering",
    "dqlab.cluster.consumer.actor",
    "dqlab.cluster.embedded.worker",
    "dqlab.cluster.shard.actor",
    "dqlab.cluster.worker.plugin",
    "dqlab.preload",
)
"""What the workers of a cluster on this machine need."""
ONLY_AT_START = ("PYTHON", "LD_", "LANG", "LC_")
"""Beginnings of variables that are read once, when a process starts: where one differs, a fork is of no use."""
ADDS_A_PATH = "PYTHONPATH"
NO_FORK = ("preexec_fn", "pass_fds", "shell", "gid", "gids", "uid")
"""Options of `subprocess.Popen` for which a process is started."""
_PR_SET_CHILD_SUBREAPER = 36
_HEAD = struct.Struct("!Q")
_OURS = b"+"
"""Says that a fork has become a child of the tester."""


class _Mother:
    """The process that others are forked from, as the tester holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._set = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    def usable(self, environ: dict[str, str]) -> bool:
        """Return whether a fork is what a start with this environment would be."""
        return self._set is not None and _at_start(environ) == _at_start(dict(os.environ))

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int | None:
        """Return the process id of a new child of this process; None if there can be none."""
        with self._lock:
            if self._control is None:
                self._start()
            assert self._control is not None
            assert self._set is not None
            body = json.dumps(request).encode()
            self._set(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the child of a child that has ended becomes ours
            try:
                socket.send_fds(self._control, [_HEAD.pack(len(body))], descriptors)
                self._control.sendall(body)
                (pid,) = _HEAD.unpack(_received(self._control, _HEAD.size))
                _received(self._control, len(_OURS))
            except (OSError, EOFError):  # as at the limit of processes; the next one finds another mother
                self._control.close()
                self._control = None
                return None
            finally:
                self._set(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
            return int(pid)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join(path for path in sys.path if path)
            environ = {**os.environ, **_get_env_variables("distributed.nanny.pre-spawn-environ"), ADDS_A_PATH: path}
            made = subprocess.Popen(
                [sys.executable, "-m", __name__], cwd=ROOT, stdin=theirs.fileno(), env=environ, process_group=0
            )
        atexit.register(_end, made, ours)
        self._control = ours


def _end(made: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    made.kill()
    made.wait(10)


def _at_start(environ: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(ONLY_AT_START) and name != ADDS_A_PATH}


def _received(control: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = control.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


_mother = _Mother()
_signature = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` for ``[sys.executable, "-c" or "-m" or a file, ...]``; any other command is started."""

    def _execute_child(self, *given: Any) -> None:
        asked = _signature.bind(self, *given).arguments
        environ = dict(os.environ if asked["env"] is None else asked["env"])
        args = [os.fsdecode(each) for each in asked["args"]] if isinstance(asked["args"], (list, tuple)) else []
        if (
            len(args) < 2
            or args[0] != sys.executable
            or (args[1].startswith("-") and args[1] not in ("-c", "-m"))
            or any(asked.get(option) not in (None, (), False, -1) for option in NO_FORK)
            or not _mother.usable(environ)
        ):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        sys.audit("subprocess.Popen", args[0], args, asked["cwd"], asked["env"])
        sent = [
            theirs if theirs != -1 else own
            for own, theirs in enumerate((asked["p2cread"], asked["c2pwrite"], asked["errwrite"]))
        ]
        request = {
            "args": args[1:],
            "cwd": os.path.abspath(os.fsdecode(asked["cwd"] or os.getcwd())),  # noqa: PTH100, PTH109 - as `chdir` has it
            "environ": environ,
            "group": asked.get("process_group", -1) if asked.get("process_group") is not None else -1,
            "session": bool(asked["start_new_session"]),
            "parent": [os.getpid(), os.getpgid(0)],
        }
        pid = _mother.fork(request, sent)
        if pid is None:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        self.pid, self._child_created = pid, True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[end] for end in ends))  # type: ignore[attr-defined]


def run(
    command: list[Any],
    *,
    input: str | None = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Do what `subprocess.run` does, with a process that is forked."""
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


# --- in the mother, and in what it forks -----------------------------------------------------


def _serve(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request until the tester ends; return None then, and in a fork what it was asked to be."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(control, _HEAD.size, 3)
        if not head:
            return None
        size = head + _received(control, _HEAD.size - len(head)) if len(head) < _HEAD.size else head
        request = json.loads(_received(control, *_HEAD.unpack(size)))
        between = os.fork()
        if not between:
            middle = os.getpid()
            pid = os.fork()
            if pid:
                control.sendall(_HEAD.pack(pid))
                os._exit(0)
            while os.getppid() == middle:  # until it is a child of the tester
                time.sleep(0.0005)
            return request, descriptors
        for each in descriptors:
            os.close(each)
        os.waitpid(between, 0)
        control.sendall(_OURS)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Be the process of a request: its streams, group, directory and environment."""
    parent, group = request["parent"]
    if os.getppid() != parent:
        os._exit(255)
    if request["session"]:
        os.setsid()
    else:
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(0, group if request["group"] == -1 else request["group"])
    for stream, each in enumerate(descriptors):
        os.dup2(each, stream)
    for each in descriptors:
        os.close(each)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()

    import dask

    dask.config.refresh()


def _play(args: list[str], environ: dict[str, str], path: list[str]) -> None:
    """Run what ``python ARGS`` would."""
    added = [each for each in environ.get(ADDS_A_PATH, "").split(os.pathsep) if each]
    sys.path[:] = [*dict.fromkeys([*added, *path])]
    kind, *rest = args
    if kind == "-m":
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
        sys.argv[:] = ["-m", *rest[1:]]
        sys.modules.pop(rest[0], None)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if kind == "-c":
        sys.path.insert(0, "")
        sys.argv[:] = ["-c", *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))  # noqa: PTH100, PTH120 - as Python does it
        sys.argv[:] = args
        main.__dict__["__file__"] = kind
        with open(kind, "rb") as file:  # noqa: PTH123
            code = compile(file.read(), kind, "exec")
    exec(code, main.__dict__)


def main() -> None:
    """Import, and fork for the tester until it ends."""
    path = list(sys.path)[1:]  # without the directory that `-m` puts before all
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what was imported stays shared
    asked = _serve(control)
    control.close()
    if asked is not None:
        request, descriptors = asked
        _become(request, descriptors)
        _play(request["args"], request["environ"], path)


if __name__ == "__main__":
    main()
