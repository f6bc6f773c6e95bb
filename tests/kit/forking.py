"""Python processes that are forked from one that has imported dqlab: each costs a tenth of a start, or less.

A start imports Dask and dqlab, for about a second of a processor, and `make test` would pay for some hundred. One
process, a mother, imports them once for each tester. What it forks has the given directory, environment, arguments
and standard streams, and is a child of the tester as any other. Where something is asked for that a fork cannot give,
and where there is no Linux, a process is started. A test of the start itself takes `subprocess`.

Workers are forked from a nursery, and that is forked from a mother which has imported what workers need, and no more.
A script is forked from another, which has imported what clients need; it has its own spare process, which becomes
the nursery of its first cluster.
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
import warnings
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

__all__ = ["Popen", "run", "share"]

ROOT = Path(__file__).parents[2]
WORKERS = (
    "dqlab.checkup.examine",
    "dqlab.cluster.consumer.actor",
    "dqlab.cluster.shard.actor",
    "dqlab.cluster.worker.plugin",
    "dqlab.preload",
)
"""What the workers of a cluster on this machine need."""
CLIENTS = (
    *WORKERS,
    "dqlab.cluster.embedded.cluster",
    "dqlab.connecting",
    "dqlab.lab",
    "dqlab.live.panels",
    "dqlab.runs.run",
)
"""What a script needs that connects."""
TESTS = ("pytest",)
"""What comes with a function of a test's module, which a worker imports by its name."""
ONLY_AT_START = ("PYTHON", "LD_", "LANG", "LC_")
"""Beginnings of variables that are read once, when a process starts: where one differs, a fork is of no use."""
ADDS_A_PATH, WARNS = "PYTHONPATH", "PYTHONWARNINGS"
NO_FORK = ("preexec_fn", "pass_fds", "shell", "gid", "gids", "uid")
"""Options of `subprocess.Popen` for which a process is started."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_HEAD = struct.Struct("!Q")
_OURS = b"+"
"""Says that a fork has become a child of the tester."""

_one_at_a_time = threading.RLock()
"""Held while this process is the one to which children of others fall; a mother may be forked from another."""
_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)


class Forks(Protocol):
    """What a process can be forked from."""

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int | None:
        """Return the process id of a new child of this process; None if there can be none."""


class _Mother:
    """A process that others are forked from, as the tester holds it; started when the first one is asked for."""

    def __init__(self, starts: type[subprocess.Popen[Any]], modules: tuple[str, ...]) -> None:
        self._starts, self._modules = starts, modules
        self._control: socket.socket | None = None

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int | None:
        if _prctl is None:
            return None
        with _one_at_a_time:
            if self._control is None:
                self._control = self._started()
                self._control.settimeout(60)  # what does not answer is left, and another one is started
            if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:  # the child of a child that has ended becomes ours
                return None
            try:
                _ask(self._control, request, descriptors)
                (pid,) = _HEAD.unpack(_received(self._control, _HEAD.size))
                _received(self._control, len(_OURS))
            except (OSError, EOFError):  # as at the limit of processes; the next one finds another mother
                self._control.close()
                self._control = None
                return None
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
            return int(pid)

    def _started(self) -> socket.socket:
        from distributed.nanny import _get_env_variables

        ours, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join(path for path in sys.path if path)
            environ = {
                **os.environ,
                **_get_env_variables("distributed.nanny.pre-spawn-environ"),
                ADDS_A_PATH: path,
                "JPY_PARENT_PID": str(os.getpid()),  # ipykernel reads it when it is imported
            }
            made = self._starts(
                [sys.executable, "-m", __name__, *self._modules],
                cwd=ROOT,
                stdin=theirs.fileno(),
                env=environ,
                process_group=0,
            )
        atexit.register(_end, made, ours)
        return ours


class _Spare:
    """A child of a script that waits to become its nursery."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        script = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            assert _prctl is not None
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            self._control.close()
            asked = _asked(theirs) if os.getppid() == script else None
            theirs.close()
            if asked is None:
                os._exit(0)
            _prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
            _group(asked[0])
            _become(*asked)
            raise SystemExit  # the rest is for the script
        theirs.close()

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int | None:
        if self._control.fileno() == -1:  # it is one already
            return None
        with self._control:
            try:
                _ask(self._control, request, descriptors)
            except OSError:
                return None
        return self._pid


def _end(made: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    made.kill()
    made.wait(10)


def _ask(control: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    body = json.dumps(request).encode()
    socket.send_fds(control, [_HEAD.pack(len(body))], descriptors)
    control.sendall(body)


def _at_start(environ: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(ONLY_AT_START) and name not in (ADDS_A_PATH, WARNS)
    }


def _received(control: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = control.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


_signature = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]


class _Forked(subprocess.Popen[Any]):
    """`subprocess.Popen` for ``[sys.executable, "-c" or "-m" or a file, ...]``; any other command is started."""

    mother: Forks
    connects = False
    """Whether it may need a nursery."""

    def _execute_child(self, *given: Any) -> None:
        asked = _signature.bind(self, *given).arguments
        environ = dict(os.environ if asked["env"] is None else asked["env"])
        args = [os.fsdecode(each) for each in asked["args"]] if isinstance(asked["args"], (list, tuple)) else []
        if (
            len(args) < 2
            or args[0] != sys.executable
            or (args[1].startswith("-") and args[1] not in ("-c", "-m"))
            or any(asked.get(option) not in (None, (), False, -1) for option in NO_FORK)
            or _at_start(environ) != _at_start(dict(os.environ))
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
            "group": None if asked.get("process_group") in (None, -1) else asked["process_group"],
            "session": bool(asked["start_new_session"]),
            "connects": self.connects and args[1:3] != ["-m", __name__],
            "parent": [os.getpid(), os.getpgid(0)],
        }
        pid = self.mother.fork(request, sent)
        if pid is None:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        self.pid, self._child_created = pid, True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[end] for end in ends))  # type: ignore[attr-defined]


class NurseryPopen(_Forked):
    """For processes that have what workers need."""

    mother: Forks = _Mother(subprocess.Popen, (*WORKERS, *TESTS))


class Popen(_Forked):
    """For scripts."""

    mother: Forks = _Mother(NurseryPopen, CLIENTS)
    connects = True


def share(starts: type[_Forked] = NurseryPopen) -> None:
    """Have `dq.connect()` in this process fork its nursery."""
    from dqlab.cluster.embedded import cluster

    cluster.subprocess = SimpleNamespace(Popen=starts, TimeoutExpired=subprocess.TimeoutExpired)  # type: ignore[attr-defined]


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


# --- in a mother, and in what it forks ---------------------------------------------------------


def _asked(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    head, descriptors, _, _ = socket.recv_fds(control, _HEAD.size, 3)
    if not head:
        return None
    head += _received(control, _HEAD.size - len(head))
    return json.loads(_received(control, *_HEAD.unpack(head))), descriptors


def _serve(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request until the tester ends; return None then, and in a fork what it was asked to be."""
    while (asked := _asked(control)) is not None:
        between = os.fork()
        if not between:
            middle, (grouped, groups) = os.getpid(), os.pipe()
            try:
                pid = os.fork()
            except OSError:
                os._exit(1)
            if pid:
                os.close(groups)
                os.read(grouped, 1)  # it has its session or group, as behind `subprocess.Popen`
                control.sendall(_HEAD.pack(pid))
                os._exit(0)
            os.close(grouped)
            _group(asked[0])
            os.close(groups)
            while os.getppid() == middle:  # until it is a child of the tester
                time.sleep(0.0005)
            return asked
        for each in asked[1]:
            os.close(each)
        os.waitpid(between, 0)
        control.sendall(_OURS)
    return None


def _group(request: dict[str, Any]) -> None:
    """Begin the session of a request, or join its group."""
    if request["session"]:
        os.setsid()
    else:
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(0, request["parent"][1] if request["group"] is None else request["group"])


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Be the process of a request, to its end."""
    if os.getppid() != request["parent"][0]:
        os._exit(255)
    for stream, each in enumerate(descriptors):
        os.dup2(each, stream)
    for each in descriptors:
        os.close(each)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    sys.warnoptions[:] = [each for each in os.environ.get(WARNS, "").split(",") if each]
    warnings._processoptions(sys.warnoptions)  # type: ignore[attr-defined]
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()

    import dask

    dask.config.refresh()
    if request["connects"]:
        share(type("OwnPopen", (NurseryPopen,), {"mother": _Spare()}))
    _play(request["args"])


def _play(args: list[str]) -> None:
    """Run what ``python ARGS`` would."""
    added = [each for each in os.environ.get(ADDS_A_PATH, "").split(os.pathsep) if each]
    sys.path[:] = [*dict.fromkeys([*added, *sys.path[1:]])]  # without the directory that `-m` puts before all
    kind, *rest = args
    if kind == "-m":
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
        sys.argv[:] = ["-m", *rest[1:]]
        sys.modules.pop(rest[0], None)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if kind == "-c":
        sys.path.insert(0, "")
        sys.argv[:] = ["-c", *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
    else:
        file = os.path.abspath(kind)  # noqa: PTH100 - as Python does it
        sys.path.insert(0, os.path.dirname(file))  # noqa: PTH120
        sys.argv[:] = args
        main.__dict__["__file__"] = file
        code = compile(Path(file).read_bytes(), file, "exec")
    try:
        exec(code, main.__dict__)
    except Exception:
        _hide_frames()
        raise
    except KeyboardInterrupt:
        _hide_frames()
        raise


def _hide_frames() -> None:
    """Show of an error that ends a script the frames that it would have had."""
    hook = sys.excepthook

    def shown(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_code is not _play.__code__:
            trace = trace.tb_next
        trace = None if trace is None else trace.tb_next
        hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = shown


def _hold_group(control: socket.socket) -> None:
    """Keep a process in the tester's group whose parent is outside of it, for as long as this one lives."""
    # Forks come into that group from a parent outside, which ends at once. Where no shell holds the group (setsid, a
    # container), Linux finds it orphaned at each fork, and wakes what a test has stopped there: SIGHUP, SIGCONT.
    if _prctl is None or os.fork():
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    control.close()
    with suppress(OSError):
        os.setpgid(0, os.getpgid(int(os.environ["JPY_PARENT_PID"])))  # the tester, see `_Mother`
        while True:
            signal.pause()
    os._exit(0)


def main(modules: list[str]) -> None:
    """Import, and fork for the tester until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for module in modules:
        importlib.import_module(module)
    _hold_group(control)
    gc.collect()
    gc.freeze()  # what was imported stays shared
    asked = _serve(control)
    control.close()
    if asked is not None:
        _become(*asked)


if __name__ == "__main__":
    importlib.import_module("tests.kit.forking").main(sys.argv[1:])
