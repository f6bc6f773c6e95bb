"""Where every process of a round stands: on SIGUSR1 each writes its stacks to a file, when something hangs."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import psutil

from tests.chaos import truth

__all__ = ["dask_setup", "gather", "listen"]

PATIENCE = 3.0
"""Seconds that processes have to write."""


@cache
def listen() -> None:
    """Write stacks on SIGUSR1 from now on: of all threads, and in a main thread of all coroutines too."""
    file = (truth.directory() / f"stacks-{os.getpid()}").open("a")

    def write(_: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback(file)
        _write_coroutines(file)
        file.flush()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, write)
    elif signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        faulthandler.register(signal.SIGUSR1, file, all_threads=True)


def _write_coroutines(file: TextIO) -> None:
    known: Any = getattr(asyncio.tasks, "_all_tasks", None) or getattr(asyncio.tasks, "_scheduled_tasks", ())
    for one in list(known):
        if not one.done():
            one.print_stack(limit=6, file=file)


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
