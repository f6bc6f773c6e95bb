"""Holds tests to their marks: one that starts a process or a scheduler has `cluster`, `browser`, `slow` or `slurm`.

`make test-fast` leaves out what is marked. One test without its mark costs every save seconds.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import wraps
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from distributed import Scheduler

MARKS = {"browser", "cluster", "slow", "slurm"}
EVENTS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn", "subprocess.Popen"})
LIGHT = frozenset({"fc-list", "git", "mount"})
"""What takes milliseconds.

Asked for the fonts of a machine where matplotlib was never used, for the files of the repository, and for file systems
where there is no /proc.
"""

_started: list[str] = []


def _note(what: str) -> None:
    """Only the tests' own thread counts: nannies of a cluster that was started before may replace a worker now."""
    if threading.current_thread() is threading.main_thread():
        _started.append(what)


def _audit(event: str, args: tuple[Any, ...], events: frozenset[str] = EVENTS, light: frozenset[str] = LIGHT) -> None:
    """Events also come while Python ends, when this module's names are gone: those that are needed stand above."""
    if event in events and not (event == "subprocess.Popen" and str(args[0]).rpartition("/")[2] in light):
        _note(event)


def watch() -> None:
    """Note from now on what is started, for as long as this process lives."""
    sys.addaudithook(_audit)
    start, init = BaseProcess.start, Scheduler.__init__

    @wraps(start)
    def start_noted(self: BaseProcess) -> None:
        _note("multiprocessing")  # a fork server forks: no event here
        start(self)

    @wraps(init)
    def init_noted(self: Scheduler, *args: Any, **kwargs: Any) -> None:
        _started.append("a Dask scheduler")  # on any thread: none is made by itself
        init(self, *args, **kwargs)

    BaseProcess.start = start_noted  # type: ignore[method-assign]
    Scheduler.__init__ = init_noted


def marked(item: pytest.Item) -> Iterator[None]:
    """Wrap a phase of a test: fail when it starts something and has no mark for that."""
    before = len(_started)
    result = yield
    if len(_started) > before and not MARKS & {mark.name for mark in item.iter_markers()}:
        pytest.fail(f"starts a process ({_started[-1]}): mark it `cluster`, so that `make test-fast` leaves it out")
    return result
