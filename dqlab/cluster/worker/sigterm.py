"""Handles SIGTERM in a worker's process, but not in the children that users' functions fork."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

DEFAULTS: dict[signal.Signals, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
"""Handlers for the children of a worker's process."""
_OF_DASK = "distributed._signals"
"""The module of the handlers that the command ``dask worker`` sets in its process."""

_own: dict[signal.Signals, Any] = {}
"""Handlers that children of this process must not inherit."""
_masks = threading.local()


def on_sigterm(leave: Callable[[], object]) -> bool:
    """Call `leave` in the running event loop on SIGTERM, and return False in a process that is a user's."""
    # A user's process has its own handler, or the worker runs outside the main thread, where no handler can be set.
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGTERM)
    # A handler of an earlier worker in this process, whose loop is closed, may be replaced.
    ours = handler is signal.SIG_DFL or (isinstance(handler, _Obey) and handler.loop.is_closed())
    if ours:
        signal.signal(signal.SIGTERM, _Obey(asyncio.get_running_loop(), leave))
    _keep_from_children()
    return ours


class _Obey:
    """The handler of SIGTERM."""

    # Not `loop.add_signal_handler`: a forked child that inherits it writes the signal into the loop's socket, which it
    # shares with its parent, and a terminated child would terminate the parent.
    def __init__(self, loop: asyncio.AbstractEventLoop, leave: Callable[[], object]) -> None:
        self.loop, self._leave = loop, leave

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self.loop.call_soon_threadsafe(self._leave)
        except RuntimeError:  # the loop is closed
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _keep_from_children() -> None:
    """Reset our handlers and those of ``dask worker`` in forked children."""
    if not hasattr(os, "register_at_fork"):
        return
    _watch_forks()
    for number in DEFAULTS:
        handler: Any = signal.getsignal(number)
        if isinstance(handler, _Obey) or getattr(handler, "__module__", "") == _OF_DASK:
            _own[number] = handler


@cache
def _watch_forks() -> None:
    """Register our hooks of forks, once in a process and its children."""
    # A second `_block` of the same fork would note the blocked signals as those of before, and they would stay blocked.
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_reset)


def _block() -> None:
    """Block signals around a fork until the child has its own handlers."""
    # Python drops signals that reach the child before.
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _own)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _reset() -> None:
    try:
        for number, handler in _own.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, DEFAULTS[number])
        _own.clear()
        signal.set_wakeup_fd(-1)
    finally:
        _unblock()
