"""Move all live views of a process in one thread.

The thread starts with the first view, ends with the last, and is joined by `close`. A view that raises is dropped with
a log line and never stops the others. Nothing here prints: in a notebook, the output of a thread lands under whichever
cell ran last.

"""

from __future__ import annotations

import atexit
import logging
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dqlab.live.follow import Live

PERIOD = 0.25
"""Seconds between two steps."""
NAME = "dqlab-live"

logger = logging.getLogger(__name__)


class Ticker:
    """Call `tick` of each view, every `period` seconds, until no view is left."""

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._views: list[Live[Any]] = []
        self._thread: threading.Thread | None = None

    def add(self, view: Live[Any]) -> None:
        """Update a view from now on, and start the thread if there is none."""
        with self._lock:
            self._views.append(view)
            if self._thread is None:
                # A new event for a new thread: an old thread that still ends must not take its wake-up.
                self._wake = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(self._wake,), name=NAME, daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Take the next step now, from any thread."""
        self._wake.set()

    @property
    def views(self) -> tuple[Live[Any], ...]:
        """The views that are updated, the oldest first."""
        with self._lock:
            return tuple(self._views)

    def close(self, timeout: float = 5.0) -> bool:
        """Drop all views, and return whether the thread ended within `timeout` seconds."""
        with self._lock:
            self._views.clear()
            thread = self._thread
        self._wake.set()
        # A view may close the ticker in its own step: a thread cannot join itself.
        if thread is None or thread is threading.current_thread():
            return thread is None
        thread.join(timeout)
        return not thread.is_alive()

    def _run(self, wake: threading.Event) -> None:
        while True:
            # Before the list is copied: a wake-up during the step must lead to another step.
            wake.clear()
            with self._lock:
                views = list(self._views)
            for view in views:
                if not self._step(view):
                    self._drop(view)
            # While the thread waits, this list must not keep a dropped view alive.
            del views[:]
            with self._lock:
                # Under the same lock as `add`: a view added after this look starts a new thread.
                if not self._views:
                    self._thread = None
                    return
            wake.wait(self._period)

    def _step(self, view: Live[Any]) -> bool:
        try:
            return view.tick()
        except Exception:  # a view that fails must not stop the others
            logger.exception("event=live_view_failed view=%r", view)
            return False

    def _drop(self, view: Live[Any]) -> None:
        with self._lock:
            if view in self._views:
                self._views.remove(view)


_shared: Ticker | None = None
_guard = threading.Lock()


def shared() -> Ticker:
    """Return the process's ticker, which is closed when the interpreter exits."""
    global _shared
    with _guard:
        if _shared is None:
            _shared = Ticker()
            atexit.register(_shared.close)
        return _shared
