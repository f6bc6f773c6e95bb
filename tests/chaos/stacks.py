"""Where every process of a round stands: on SIGUSR1 each writes its stacks to a file, when something hangs."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import psutil

from tests.chaos import truth

__all__ = ["dask_setup", "gather", "listen"]

PATIENCE = 3.0
"""Seconds that processes have to write."""


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
    for one in processes:
        path = where / f"stacks-{one.pid}"
        try:
            one.send_signal(signal.SIGCONT)
            if path.exists():  # else it does not listen, and the signal would end it
                one.send_signal(signal.SIGUSR1)
        except psutil.NoSuchProcess:
            continue
    threading.Event().wait(PATIENCE)
    return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(where.glob("stacks-*")))
