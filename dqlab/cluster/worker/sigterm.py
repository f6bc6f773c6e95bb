"""How a worker's process obeys SIGTERM, and how the children that users' functions fork do not inherit that."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["on_sigterm"]

DEFAULTS: dict[signal.Signals, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
"""What the children of a worker's process do on a signal."""
_OF_DASK = "distributed._signals"
"""Module of the handlers that the command ``dask worker`` sets in its own process."""

_own: dict[signal.Signals, Any] = {}
"""Handlers that act in this process alone."""
_masks = threading.local()


def on_sigterm(leave: Callable[[], object]) -> bool:
    """Call `leave` in the running event loop on SIGTERM; return whether this process obeys us from now on.

    It does not where another handler is set, nor in a thread other than the main one: it is a user's process then.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGTERM)
    ours = handler is signal.SIG_DFL or (isinstance(handler, _Obey) and handler.loop.is_closed())
    if ours:
        signal.signal(signal.SIGTERM, _Obey(asyncio.get_running_loop(), leave))
    _keep_from_children()
    return ours


class _Obey:
    """A handler of SIGTERM.

    Not `loop.add_signal_handler`: that has every process that inherits it write the signal into the loop's socket,
    which they share, and a child that is terminated would terminate its parent.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, leave: Callable[[], object]) -> None:
        self.loop, self._leave = loop, leave

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self.loop.call_soon_threadsafe(self._leave)
        except RuntimeError:  # the loop is closed
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def _keep_from_children() -> None:
    """Give children of this process the defaults, instead of handlers of ours or of ``dask worker``."""
    if not hasattr(os, "register_at_fork"):
        return
    if not _own:
        os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_reset)
    for number in DEFAULTS:
        handler: Any = signal.getsignal(number)
        if isinstance(handler, _Obey) or getattr(handler, "__module__", "") == _OF_DASK:
            _own[number] = handler


def _block() -> None:
    """Have signals wait for the child to be itself: Python forgets those that arrive before."""
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
