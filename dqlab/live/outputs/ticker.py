"""The one thread that moves all live views of a process.

It starts with the first view, ends with the last, and is joined by `close`. A view that raises
is dropped with a log line and never stops the others. Nothing here prints: in a notebook, output
of a thread lands under whichever cell ran last.
"""

from __future__ import annotations

import atexit
import logging
import threading
from typing import Protocol

__all__ = ["Moving", "Ticker", "shared"]

PERIOD = 0.25
"""Seconds between two steps."""
NAME = "dqlab-live"

_log = logging.getLogger(__name__)


class Moving(Protocol):
    """What a ticker updates."""

    def tick(self) -> bool:
        """Do one step; return False when it was the last."""
        ...


class Ticker:
    """Calls `tick` of each of its views, at most four times a second, until none is left.

    Parameters
    ----------
    period : float, default 0.25
        Seconds between two steps.
    """

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._views: list[Moving] = []
        self._thread: threading.Thread | None = None

    def add(self, view: Moving) -> None:
        """Update a view from now on; starts the thread if there is none."""
        with self._lock:
            self._views.append(view)
            if self._thread is None:
                self._wake = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(self._wake,), name=NAME, daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Take the next step now; safe from any thread."""
        self._wake.set()

    @property
    def views(self) -> tuple[Moving, ...]:
        """The views that are updated, the oldest first."""
        with self._lock:
            return tuple(self._views)

    def close(self, timeout: float = 5.0) -> bool:
        """Drop all views and wait for the thread.

        Parameters
        ----------
        timeout : float, default 5
            Seconds to wait.

        Returns
        -------
        bool
            True when the thread has ended.
        """
        with self._lock:
            self._views.clear()
            thread = self._thread
        self._wake.set()
        if thread is None or thread is threading.current_thread():
            return thread is None
        thread.join(timeout)
        return not thread.is_alive()

    def _run(self, wake: threading.Event) -> None:
        while True:
            wake.clear()
            with self._lock:
                views = list(self._views)
            for view in views:
                if not self._step(view):
                    self._drop(view)
            del views[:]
            with self._lock:
                if not self._views:
                    self._thread = None
                    return
            wake.wait(self._period)

    def _step(self, view: Moving) -> bool:
        try:
            return view.tick()
        except Exception:  # noqa: BLE001 - a view that fails must not stop the others
            _log.exception("event=live_view_failed view=%r", view)
            return False

    def _drop(self, view: Moving) -> None:
        with self._lock:
            if view in self._views:
                self._views.remove(view)


_shared: Ticker | None = None
_guard = threading.Lock()


def shared() -> Ticker:
    """Return the process's ticker; it is closed when the interpreter exits."""
    global _shared
    with _guard:
        if _shared is None:
            _shared = Ticker()
            atexit.register(_shared.close)
        return _shared
