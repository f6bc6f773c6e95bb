"""Where every process of a round stands: on SIGUSR1 each writes its stacks to a file, when something hangs."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import psutil

from tests.chaos import truth

__all__ = ["dask_setup", "gather", "listen"]

PATIENCE = 3.0
"""Seconds that processes have to write, at most."""
LOOK_EVERY = 0.05
STILL = 4
"""Looks at which no file has grown, after all have begun to: coroutines are written behind the threads."""


@cache
def listen() -> None:
    """Write stacks on SIGUSR1 from now on: of all threads, and where the main thread gets the signal of coroutines."""
    file = (truth.directory() / f"stacks-{os.getpid()}").open("a")
    main = threading.current_thread() is threading.main_thread()
    if main:
        signal.signal(signal.SIGUSR1, lambda number, frame: _write_coroutines(file))
    faulthandler.register(signal.SIGUSR1, file, all_threads=True, chain=main)


def _write_coroutines(file: TextIO) -> None:
    known: Any = getattr(asyncio.tasks, "_all_tasks", None) or getattr(asyncio.tasks, "_scheduled_tasks", ())
    for one in list(known):
        if not one.done():
            one.print_stack(limit=6, file=file)
    file.flush()


def dask_setup(worker: object) -> None:
    """Listen in a worker, which preloads this module."""
    listen()


def gather(where: Path, processes: list[psutil.Process]) -> str:
    """Have processes write their stacks; return what they wrote. One that is stopped goes on for that."""
    before: dict[Path, int] = {}
    for one in processes:
        path = where / f"stacks-{one.pid}"
        try:
            one.send_signal(signal.SIGCONT)
            if path.exists():  # else it does not listen, and the signal would end it
                before[path] = path.stat().st_size
                one.send_signal(signal.SIGUSR1)
        except psutil.NoSuchProcess:
            continue
    _await_growth(before)
    return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(where.glob("stacks-*")))


def _await_growth(before: dict[Path, int]) -> None:
    """Wait until each file has grown and then no more, or its time is over."""
    deadline, sizes, still = time.monotonic() + PATIENCE, before, 0
    while still < STILL and time.monotonic() < deadline:
        threading.Event().wait(LOOK_EVERY)
        now = {path: path.stat().st_size for path in before}
        done = now == sizes and all(now[path] > size for path, size in before.items())
        sizes, still = now, still + 1 if done else 0
