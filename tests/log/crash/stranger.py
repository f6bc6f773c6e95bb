"""Another process: owns logs, loses them, and forks children that write until they are killed.

Started with ``python -m tests.log.crash.stranger``; reads one JSON command a line, answers each with one line.
"""

from __future__ import annotations

import json
import os
import posix  # has `fork` also where a test takes it away from `os`, so that dqlab does without
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from dqlab.errors import DqlabError
from dqlab.log.log import Log
from tests.log.crash.faults import CountingFiles, NoLocks
from tests.log.crash.invariants import Promise
from tests.log.crash.ledger import Entry, History, Ledger
from tests.log.crash.workload import Workload, small_options

__all__ = ["Stranger", "WrittenHistory", "read_written"]

ROOT = Path(__file__).parents[3]


class Stranger:
    """The other process, seen from here."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.log.crash.stranger"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def send(self, do: str, **arguments: Any) -> None:
        """Give a command and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to a command."""
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Give a command; return the answer: a dictionary, with ``error`` when it failed."""
        self.send(do, **arguments)
        return self.answer()

    def stop(self) -> None:
        """SIGSTOP, and wait until it has stopped."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


# --- what a child says before it dies ---------------------------------------------------------


class WrittenHistory(History):
    """A history that is in a file before the log hears of the record."""

    descriptor: int
    pulse: int | None = None
    """Gets one byte for each line of what is confirmed; None: they are not counted."""

    def add(self, entry: Entry) -> None:
        super().add(entry)
        self.say({"issued": [entry.serial, entry.type, entry.added, entry.settled]})

    def promised(self, promise: Promise) -> None:
        """Say what is confirmed."""
        self.confirm(promise.written)

    def confirm(self, written: int) -> None:
        """Say that all up to this serial number is confirmed."""
        self.say({"confirmed": written})
        if self.pulse is not None:
            os.write(self.pulse, b".")

    def say(self, what: dict[str, Any]) -> None:
        """One line, whole or not at all."""
        os.write(self.descriptor, json.dumps(what).encode() + b"\n")


def read_written(path: Path, live: set[int]) -> tuple[History, int]:
    """Return what a dead child had issued, after `live` ids to begin with, and how much was confirmed."""
    history: History | None = None
    confirmed = 0
    for line in path.read_text().splitlines():
        said = json.loads(line)
        if "issued" in said:
            serial, type, added, settled = said["issued"]
            if history is None:
                history = History.after(live, serial)
            history.add(Entry(serial, type, tuple(added), tuple(settled)))
        elif "confirmed" in said:
            confirmed = said["confirmed"]
    return History.after(live, 0) if history is None else history, confirmed


# --- inside the other process ------------------------------------------------------------------


class DyingFiles(CountingFiles):
    """Kills its process at the n-th call after `arm`."""

    def __init__(self) -> None:
        super().__init__(self._look)
        self._fatal: int | None = None

    def arm(self, n: int) -> None:
        """Die at the n-th call from now, counted from 0."""
        self._fatal = len(self.calls) + n

    def _look(self, n: int, call: str, arguments: tuple[Any, ...]) -> None:
        if n == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)


def write_until_killed(
    directory: Path,
    lines: Path,
    seed: int,
    options: dict[str, Any],
    *,
    pulse: int | None = None,
    die: str | None = None,
    at: int = 0,
) -> None:
    """Open a log and work on it for ever; `die` at the `at`-th call of its recovery or of a compaction."""
    files = DyingFiles()
    if die == "recovery":
        files.arm(at)
    log = Log.open(directory, options=small_options(**options), files=files)
    ledger = Ledger(log)
    history = WrittenHistory(ledger.history.first, added=ledger.history.added)
    history.descriptor = os.open(lines, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    history.pulse = pulse
    ledger.history = history
    load = Workload(ledger, Random(seed), history.promised)
    if die == "compaction":
        load.steps(150)
        files.arm(at)
        load.compact()
    while True:
        load.steps(20)


AHEAD = 100
"""Records that a thread appends before it waits for the one that confirms them."""


def write_with_threads_until_killed(
    directory: Path, lines: Path, seed: int, options: dict[str, Any], *, pulse: int | None = None
) -> None:
    """As a shard does it: one thread appends, one commits and confirms, one checkpoints and compacts."""
    ledger = Ledger(Log.open(directory, options=small_options(**options)))
    history = WrittenHistory(ledger.history.first, added=ledger.history.added)
    history.descriptor = os.open(lines, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    history.pulse = pulse
    ledger.history = history

    turn = threading.Condition(ledger.lock)
    confirmed = history.issued

    def commit() -> None:
        nonlocal confirmed
        while True:
            ledger.log.commit()
            with turn:
                confirmed = ledger.confirmed()
                history.confirm(confirmed)
                turn.notify_all()

    def tidy() -> None:
        while True:
            ledger.checkpoint()
            ledger.compact()

    for work in (commit, tidy):
        threading.Thread(target=_or_die, args=(work, lines), daemon=True).start()
    load = Workload(ledger, Random(seed))
    while True:
        with turn:
            turn.wait_for(lambda: history.issued - confirmed < AHEAD)
            load.steps(1, without=frozenset({"commit", "sync", "checkpoint", "collect", "compact"}))
        if load.wrong:
            raise AssertionError(load.wrong)


def _or_die(work: Callable[[], None], lines: Path) -> None:
    try:
        work()
    except BaseException:  # noqa: BLE001 - the parent must learn of it
        Path(f"{lines}.error").write_text(traceback.format_exc())
        os._exit(1)


class Server:
    """Carries out commands."""

    def __init__(self) -> None:
        self.ledger: Ledger | None = None
        self.pulses: list[int] = []

    def open(self, directory: str, options: dict[str, Any], *, takeover: bool = False, locks: bool = True) -> Any:
        files = None if locks else NoLocks()
        log = Log.open(Path(directory), options=small_options(**options), files=files, takeover=takeover)
        self.ledger = Ledger(log)
        return self._state()

    def _state(self) -> dict[str, Any]:
        assert self.ledger is not None
        log = self.ledger.log
        return {"epoch": log.epoch, "lock": log.lock, "live": sorted(self.ledger.live)}

    def put(self, count: int) -> Any:
        """Put, commit, and say which ids are confirmed."""
        assert self.ledger is not None
        ids = self.ledger.put(count).added
        self.ledger.log.commit()
        return {"confirmed": ids}

    def call(self, method: str) -> Any:
        """Call a method of the log, or ``checkpoint`` of the ledger."""
        assert self.ledger is not None
        if method == "checkpoint":
            self.ledger.checkpoint()
        else:
            getattr(self.ledger.log, method)()
        return {}

    def close(self, *, clean: bool = True) -> Any:
        if self.ledger is not None:
            self.ledger.log.close(clean=clean)
            self.ledger = None
        return {}

    def fork(self, *, confirmations: int = 0, **arguments: Any) -> Any:
        """Fork a child that writes until it is killed; answer when it has confirmed so often, or died."""
        hears, arguments["pulse"] = os.pipe()
        pid = posix.fork()
        if pid:
            os.close(arguments["pulse"])
            while confirmations > 0 and (pulses := os.read(hears, confirmations)):
                confirmations -= len(pulses)
            self.pulses.append(hears)
            return {"pid": pid}
        try:
            paths = {name: Path(arguments.pop(name)) for name in ("directory", "lines")}
            write = write_with_threads_until_killed if arguments.pop("threads", False) else write_until_killed
            _or_die(partial(write, **paths, **arguments), paths["lines"])
        finally:
            os._exit(1)

    def fork_idle(self) -> Any:
        """Fork a child that does nothing, with all that is open here."""
        pid = posix.fork()
        if not pid:
            signal.pause()
        return {"pid": pid}

    def reap(self, pid: int) -> Any:
        """Wait for a child's death; say by which signal."""
        status = os.waitpid(pid, 0)[1]
        while self.pulses:
            os.close(self.pulses.pop())
        return {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None}


def main() -> None:
    """Serve until stdin ends."""
    server = Server()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(server, command.pop("do"))(**command)
        except DqlabError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        except Exception as error:  # noqa: BLE001 - the other side decides what it means
            answer = {"error": type(error).__name__, "text": str(error), "foreign": True}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
