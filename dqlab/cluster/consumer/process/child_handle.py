"""The slot's handle of a process that runs messages: it starts, feeds, watches and kills the process.

Owns the process and its pipes, and does not know chunks; `slot_process` decides which messages it gets.
"""

from __future__ import annotations

import math
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path

import psutil

from dqlab import platforms
from dqlab.cluster.consumer.devices import MASK
from dqlab.cluster.consumer.process.pipes import TURN, LastWords, Record, Records, Say, record
from dqlab.cluster.consumer.running.execution import Origin
from dqlab.cluster.transport.wire import pack
from dqlab.errors import DqlabError
from dqlab.failures.failure import Failure
from dqlab.frame import Kind
from dqlab.printed import Ring
from dqlab.texts import kept
from dqlab.user_frames import is_own, is_users

LEAVE_S = 0.5
"""Seconds that a process may take to end by itself and run its exit handlers."""
DESCRIBE_S = 0.2
"""Seconds that a process may take to write its stack before it is killed."""
IDLE_S = 60.0
"""Seconds without a message after which a process that holds devices ends, and frees their memory."""
_READ = 1 << 18
_FREED = 4 << 20
"""Bytes that were read and are still in memory, above which they are freed."""


class Child:
    """A running process of the module `child`."""

    # The thread that makes one must live as long as the process: Linux kills the process when that thread ends, by
    # `platforms.die_with`.

    def __init__(self, origin: Origin, mask: str | None = None) -> None:
        self.ready = self.opening = self.gone = False
        """It has started; it opens the last function that it was given; it has ended or closed its pipe."""
        self.given = 0
        """Messages that it was given and that were not taken back."""
        self.function: tuple[bytes, Kind, bool] | None = None
        """The hash of the function that it runs, the kind of its messages, and whether the run has a sink."""
        self.reads_of: bytes | None = None
        """The run whose documents it reads ahead."""
        self.started = time.monotonic()
        self.words, self.printed = LastWords.make(), PrintedFile()
        # The slot keeps the reading end of this pipe too: it takes turns back by reading them before the process does.
        theirs, self._turns = os.pipe()
        self._taking_back = theirs
        for end in (theirs, self._turns):
            os.set_blocking(end, False)
        try:
            self._process = self._start(theirs, {} if mask is None else {MASK: mask})
        except OSError:
            for end in (theirs, self._turns, self.words.fd, self.printed.fd):
                os.close(end)
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._outcomes = self._process.stdin.fileno(), self._process.stdout.fileno()
        for end in (self._orders, self._outcomes):
            os.set_blocking(end, False)
        self._memory = psutil.Process(self.pid)  # first: `watch_end` may reap the process, and its id is free then
        self._end = platforms.watch_end(self._process)
        self._poll = select.poll()
        for end in (self._outcomes, self._end):
            self._poll.register(end, select.POLLIN)
        self._writing = False
        self._pending = bytearray()
        self._records = Records()
        idle = None if mask is None else IDLE_S
        hello = {"pythonpath": os.environ.get("PYTHONPATH"), "origin": asdict(origin), "idle": idle}
        self._pending += record(Say.HELLO, body=pack(hello))

    def _start(self, turns: int, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        arguments = [str(number) for number in (turns, self.words.fd, self.printed.fd, os.getpid())]
        return subprocess.Popen(
            # -P: no file in the current directory may shadow a module. -u: a print is in the file when it returns.
            [sys.executable, "-u", "-P", "-m", "dqlab.cluster.consumer.process.child", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=(turns, self.words.fd, self.printed.fd),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(_path())} | environ,
            start_new_session=True,  # Ctrl-C is for the worker; and `kill_group` ends what the process starts
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._lives(0.0)

    @property
    def pending(self) -> int:
        """How many bytes are not in its pipe yet."""
        return len(self._pending)

    def run(self, hash: bytes, kind: Kind, blob: bytes, *, rows: bool = False) -> None:
        """Give it the function of the next messages unless it has that one, with `rows` for a run with a sink."""
        if self.function != (hash, kind, rows):
            self.function, self.opening = (hash, kind, rows), True
            meta = {"hash": hash, "kind": int(kind), "path": _path(), "rows": rows}
            self._pending += record(Say.FUNCTION, body=pack(meta, blob))

    def announce(self, run: bytes, coming: Sequence[bytes] | None) -> None:
        """Announce the messages after the next one, or with None that it has to ask for announcements."""
        # No right to begin them: others may still take them.
        meta = {"run": run, "asks": coming is None}
        self._pending += record(Say.COMING, body=pack(meta, *(coming or ())))

    def give(self, turn: int, message: bytes, answers: Mapping[bytes, bytes] | None) -> None:
        """Add a message to those that `flush` sends, and the answers that it keeps."""
        if answers:
            self._pending += record(Say.BESIDE, turn, pickle.dumps(answers))
        self._pending += record(Say.MESSAGE, turn, message)
        self.given += 1

    def flush(self, turns: list[int]) -> None:
        """Send some turns, and of the messages given as much as the pipes take now."""
        # One write, small enough for a pipe to take whole: the process and `take_back` must read whole turns.
        with suppress(BrokenPipeError):  # `receive` notices the end
            os.write(self._turns, b"".join(map(TURN.pack, turns)))
        self._write()

    def take_back(self) -> set[int]:
        """Take back and return the turns that the process has not taken."""
        try:
            left = os.read(self._taking_back, 1 << 16)
        except BlockingIOError:
            return set()
        turns: set[int] = {turn for (turn,) in TURN.iter_unpack(left)}
        self.given -= len(turns)
        return turns

    def receive(self, timeout: float) -> list[Record]:
        """Wait for records of the process, and write what is pending."""
        if self._pending:
            self._poll.register(self._orders, select.POLLOUT)
        elif self._writing:
            self._poll.unregister(self._orders)
        self._writing = bool(self._pending)
        # Rounded up: a wait of less than a millisecond would become none, and the slot's thread would spin.
        events = dict(self._poll.poll(max(0, math.ceil(timeout * 1000))))
        if self._orders in events:
            self._write()
        if self._outcomes in events:
            self.gone = not self._read()
        elif self._end in events:  # dead, though a process that it started holds its end of the pipe open
            self.gone = True
        return self._records.take()

    def rest(self) -> list[Record]:
        """Return the last records of a dead process."""
        while self._read():
            pass
        return self._records.take()

    def memory(self) -> int:
        """Return its resident bytes, 0 when it has ended."""
        try:
            rss: int = self._memory.memory_info().rss
        except psutil.Error:
            return 0
        return rss

    def kill(self, *, describe: bool) -> int:
        """Kill the process and all that it started, and return its exit status, negative for a signal."""
        # `faulthandler` writes the stack on SIGABRT, even while native code holds the GIL.
        if describe and self.alive:
            with suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, signal.SIGABRT)
            self._lives(DESCRIBE_S)
        platforms.kill_group(self.pid)
        return self._process.wait()

    def close(self) -> None:
        """Let an idle process end by itself, kill another one, and release all pipes."""
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()
        for fd in (self._turns, self._taking_back):
            os.close(fd)
        self._lives(LEAVE_S)
        self.kill(describe=False)
        os.close(self._end)
        self.words.close()
        self.printed.close()

    def _lives(self, wait: float) -> bool:
        """Wait at most `wait` seconds for its end, and return whether it still lives."""
        ended = select.poll()
        ended.register(self._end, select.POLLIN)
        return not ended.poll(wait * 1000)

    def _write(self) -> None:
        try:
            while self._pending:
                del self._pending[: os.write(self._orders, self._pending[:_READ])]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._pending.clear()

    def _read(self) -> bool:
        """Read from its pipe, and return False if that is closed or empty."""
        try:
            data = os.read(self._outcomes, _READ)
        except BlockingIOError:
            return False
        self._records.feed(data)
        return bool(data)


class PrintedFile:
    """A file in place of a process's standard output and error, which its slot reads."""

    # Not a pipe: the process could not say which bytes belong to which message without a call for each, and native code
    # that holds the GIL would hang in a full one. All who write share one position, which the process reports with each
    # outcome.
    def __init__(self) -> None:
        self.fd = platforms.unnamed_file("dqlab-printed")
        self.passed = self._freed = 0
        """Bytes that were passed on, and that are no longer in memory."""

    def read(self, ring: Ring | None, upto: int | None = None) -> None:
        """Pass on what was printed, up to a position or the end, to this process's standard error and into a ring."""
        while upto is None or self.passed < upto:
            most = _READ if upto is None else min(_READ, upto - self.passed)
            data = os.pread(self.fd, most, self.passed)
            if not data:
                break
            self.passed += len(data)
            _write_all(data)
            if ring is not None:
                ring.write(data)
        if self.passed - self._freed > _FREED:
            platforms.free_until(self.fd, self.passed)
            self._freed = self.passed

    @property
    def size(self) -> int:
        """The position behind all that was printed."""
        return os.fstat(self.fd).st_size

    def close(self) -> None:
        """Pass on the rest and close the file."""
        self.read(None)
        os.close(self.fd)


def _write_all(data: bytes) -> None:
    left = memoryview(data)
    with suppress(OSError):  # nobody reads the log any more
        while left:
            left = left[os.write(2, left) :]


def _path() -> list[str]:
    """Return where this process finds modules."""
    return [entry or str(Path.cwd()) for entry in sys.path]


_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


def how_it_ended(status: int) -> str:
    """Describe an exit status in words, as "died of signal 11 (SIGSEGV)"."""
    if status >= 0:
        return f"ended itself with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    by = ", sent by another process, or by the kernel when memory ran out" if -status == signal.SIGKILL else ""
    return f"died of signal {-status} ({name}){by}"


def obituary(error: DqlabError, stack: str, origin: Origin, *, key: str | None, code: str, seconds: float) -> Failure:
    """Return the record of a failure that could not be raised in the process, with the frames of its last stack."""
    # `faulthandler` writes the stack; it is "" where the process had no time to.
    failure = Failure.from_exception(
        error, key=key, code=code, consumer=origin.consumer, worker=origin.worker, when=time.time(), seconds=seconds
    )
    frames = _users_part(stack)
    if not frames:
        return failure
    last = next((frame for frame in reversed(frames) if is_users(frame.filename)), frames[-1])
    told = "".join(traceback.format_list(frames))
    kind = [failure.error, *dict.fromkeys(frame.name for frame in frames)]
    return replace(
        failure,
        traceback=f"Traceback (most recent call last):\n{told}{failure.traceback}",
        at=f"{last.name}:{last.lineno}",
        fingerprint=blake2b(kept("\n".join(kind)), digest_size=4).hexdigest(),
    )


def _users_part(stack: str) -> list[traceback.FrameSummary]:
    """Return the frames of the first thread in a stack of `faulthandler`, outermost first, without ours."""
    described = stack.partition("most recent call first):")[2].partition("\n\n")[0]
    frames = []
    for file, line, name in _FRAME.findall(described):
        if is_own(file):
            break
        frames.append(traceback.FrameSummary(file, int(line), name))
    return frames[::-1]
