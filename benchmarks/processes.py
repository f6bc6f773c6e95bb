"""CPU and memory of process trees, and child processes that answer questions line by line."""

from __future__ import annotations

import contextlib
import json
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Child", "ChildFailed", "cpu_s", "cpu_share", "machine_busy_s", "peak_bytes", "resident_bytes", "tree_cpu_s"]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds a living process has used, to the nanosecond where the system tells."""
    if sys.platform == "linux":
        # A process's CPU clock has this number (clock_getcpuclockid(3)); /proc counts in steps of 10 ms.
        with contextlib.suppress(OSError):
            return time.clock_gettime((~pid << 3) | 2)
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def cpu_share(pid: int, seconds: float) -> float:
    """Wait for some seconds; return the share of a core that a process used, percent."""
    start, before = time.perf_counter(), cpu_s(pid)
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before) / (time.perf_counter() - start)


def tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, its living descendants, and its children that have ended."""
    root = psutil.Process(pid)
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            times = process.cpu_times()
            total += cpu_s(process.pid) + times.children_user + times.children_system
    return total


def machine_busy_s() -> float:
    """Return the CPU seconds that all processes of this machine have used since it started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def peak_bytes() -> int:
    """Return the most memory that this process has held since it began to run its program."""
    if sys.platform == "linux":
        # The peak of getrusage(2) outlives exec(2): that of a child begins at its parent's.
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return 1024 * int(status["VmHWM"].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_bytes(pid: int) -> int:
    """Return the memory a process holds."""
    return int(psutil.Process(pid).memory_info().rss)


class ChildFailed(RuntimeError):
    """A child process ended or kept silent; says what it wrote last."""


class Child:
    """A process that answers each line of JSON with one line of JSON, and ends when its input ends.

    Parameters
    ----------
    command : sequence of str
        What to run; its first line says that it is ready.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, text=True
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait_until_ready(self, *, timeout: float = 60.0) -> None:
        """Wait for its first line.

        Raises
        ------
        ChildFailed
            It ended, or is not ready within `timeout` seconds.
        """
        self._answer(timeout)

    def ask(self, question: Any, *, timeout: float = 120.0) -> Any:
        """Send a question; return the answer.

        Raises
        ------
        ChildFailed
            There is none within `timeout` seconds.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChildFailed(f"it ended: {self._last_words()}") from None
        return self._answer(timeout)

    def end_input(self) -> None:
        """Let it end by itself."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def close(self) -> None:
        """End its input and wait for it; after 10 s end the process and its children."""
        self.end_input()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._end_tree()
        self._complaints.close()

    def _end_tree(self) -> None:
        root = psutil.Process(self.pid)
        for process in [*root.children(recursive=True), root]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(10)

    def _answer(self, timeout: float) -> Any:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            what = "it ended" if ready else f"no answer within {timeout:g} s"
            raise ChildFailed(f"{what}: {self._last_words()}")
        return json.loads(line)

    def _last_words(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().strip().splitlines()
        return lines[-1] if lines else "it said nothing"
