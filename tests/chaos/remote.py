"""Processes of a round as seen from here: each is told what to do in JSON lines, and has a deadline for all it does."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.chaos import truth

__all__ = ["Call", "Died", "Hung", "Refused", "Remote"]

ROOT = Path(__file__).parents[2]


class Hung(AssertionError):
    """Something has not answered within its deadline, which is ten times what it takes at least."""


class Died(Exception):
    """The process that was to answer has died, or was killed."""


class Refused(Exception):
    """It answered with an error. `name` is the error's class; `typed`: one of dqlab's own, or what Dask promises."""

    def __init__(self, name: str, text: str, *, typed: bool) -> None:
        super().__init__(f"{name}: {text}")
        self.name, self.text, self.typed = name, text, typed


class Call:
    """Something a process was told to do; `at` is when it was answered, monotonic seconds."""

    def __init__(self, what: str, deadline: float) -> None:
        self.what, self.deadline = what, deadline
        self.answered: Future[Any] = Future()
        self.at = math.inf

    def answer(self) -> Any:
        """Wait for the answer, until the deadline."""
        if not wait([self.answered], self.deadline).done:
            raise Hung(f"{self.what} has not answered for {self.deadline:g} s")
        return self.answered.result()


class Remote:
    """One process.

    Parameters
    ----------
    module : str
        What it runs; see `serving`.
    name : str
        By which it goes in what is printed; its output is in the file NAME.log.
    """

    def __init__(self, module: str, name: str, where: Path) -> None:
        self.name = name
        with (where / f"{name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=ROOT,
                env=os.environ | {truth.DIRECTORY: str(where), "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._calls: dict[int, Call] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._ended = False
        self._reader = threading.Thread(target=self._read, name=f"chaos-{name}", daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        return f"{self.name} (process {self.process.pid})"

    def start(self, op: str, *, deadline: float = 60.0, **arguments: Any) -> Call:
        """Tell it something; returns at once."""
        call = Call(f"{op} {arguments} of {self!r}", deadline)
        with self._lock:
            if self._ended:
                call.answered.set_exception(Died(repr(self)))
                return call
            self._number += 1
            self._calls[self._number] = call
            line = json.dumps({"call": self._number, "op": op, **arguments})
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            self._end()
        return call

    def ask(self, op: str, *, deadline: float = 60.0, **arguments: Any) -> Any:
        """Tell it something and wait for the answer."""
        return self.start(op, deadline=deadline, **arguments).answer()

    def kill(self) -> None:
        """Kill it, and all that it started in its session, with SIGKILL."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.release()

    def release(self, deadline: float = 60.0) -> None:
        """Let it end: nothing more will be said."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise Hung(f"{self!r} does not end") from None
        self._reader.join()
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            with self._lock:
                call = self._calls.pop(said["call"])
            call.at = time.monotonic()
            if "error" in said:
                call.answered.set_exception(Refused(said["error"], said["text"], typed=said["typed"]))
            else:
                call.answered.set_result(said["answer"])
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            if not call.answered.done():
                call.answered.set_exception(Died(repr(self)))
