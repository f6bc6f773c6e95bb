"""Waiting for what another thread or process is about to do, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil

import dqlab as dq

__all__ = ["is_alive", "until", "until_in"]


def is_alive(process: int | psutil.Process) -> bool:
    """Return whether a process still runs; a zombie does not.

    If a process loses its parent while the tester forks, the tester adopts it and never reaps it: its number remains.
    """
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait until a condition holds; fail after so many seconds."""
    began = time.monotonic()
    asked = began
    while not condition():
        now = time.monotonic()
        assert now < began + seconds, f"it has not come within {seconds:g} s"
        time.sleep(max(0.005, min(now - asked, 0.05)))  # a condition that asks a cluster leaves it time to work
        asked = time.monotonic()


def until_in(lab: dq.Lab, condition: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait until a condition holds, and look again whenever something has changed on the cluster."""
    deadline, since = time.monotonic() + seconds, -1
    while not condition():
        assert time.monotonic() < deadline, f"it has not come within {seconds:g} s"
        since = lab.wait_for_change(since, timeout=0.2).seq
