"""A wait that lasts shows what it waits for: nothing below two seconds, then a view until the wait ends.

The block runs in its caller's thread, as it would without this; a second thread draws the view, and is joined before
the caller continues. There is one view at a time, for the main thread of a notebook or of a terminal; elsewhere
nothing is started.
"""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from dqlab.clock import Clock, SystemClock
from dqlab.notebook import in_jupyter, views

AFTER = 2.0
"""Seconds of a wait in which nothing is shown."""
PERIOD = 0.25
"""Seconds between two checks of a wait."""
RESTS = 1.0
"""Seconds of the caller's own work after which the drawing thread ends; the next wait starts another one."""
LAST = 5.0
"""Most seconds to wait for the last drawing."""
NAME = "dqlab-wait"

logger = logging.getLogger(__name__)
_current: Wait | None = None
"""The wait of the main thread."""


class Picture(Protocol):
    """How a wait is drawn."""

    def draw(self, step: str, waited: float) -> None:
        """Draw the wait for `step`, which has lasted `waited` seconds."""
        ...

    def clear(self) -> None:
        """Make room for what the caller prints, before a next `draw`."""
        ...

    def end(self) -> None:
        """Replace the drawing by what stays, or by nothing."""
        ...


class Wait:
    """One wait, as the watching thread sees it."""

    def __init__(self, what: Any, draws: Callable[[Any], Picture | None], clock: Clock | None = None) -> None:
        self._what, self._draws, self._clock = what, draws, clock or SystemClock()
        # Held while drawing: the caller must not print, or return, in the middle of a drawing.
        self._lock = threading.Lock()
        self._since, self._step = self._clock.monotonic(), ""
        self._caller_works = False
        """Whether the caller is at its own work, and not kept waiting."""
        self._picture: Picture | None = None
        self._mute = False
        """Whether nothing is drawn any more: the wait is over, or has no picture."""

    def step(self, text: str) -> None:
        """Name the step that is waited for now."""
        self._step = text

    @property
    def idle(self) -> bool:
        """Whether the caller has worked by itself for so long that the view is not needed."""
        return self._caller_works and self._clock.monotonic() - self._since >= RESTS

    def look(self) -> None:
        """Draw the wait if it lasts."""
        with self._lock:
            waited = self._clock.monotonic() - self._since
            if self._caller_works or self._mute or waited < AFTER:
                return
            if self._picture is None:
                self._picture = self._draws(self._what)
                self._mute = self._picture is None
            if self._picture is not None:
                self._picture.draw(self._step, waited)

    def give(self) -> None:
        """Note that the caller has something to work on and is not kept waiting."""
        with self._lock:
            if self._picture is not None:
                self._picture.clear()
            self._caller_works, self._since = True, self._clock.monotonic()

    def take(self) -> None:
        """Note that the caller waits again."""
        with self._lock:
            self._caller_works, self._since = False, self._clock.monotonic()

    def end(self) -> None:
        """Draw how it ended, if it was drawn."""
        with self._lock:
            self._mute, picture = True, self._picture
            self._picture = None
        if picture is not None:
            picture.end()


class _Watched(Wait):
    """A wait of the main thread, with the thread that draws it."""

    def __init__(self, what: Any) -> None:
        # Asked for once a wait has lasted: what draws is imported then.
        super().__init__(what, lambda of: views().picture_of(of))
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Draw this wait from now on."""
        global _current
        _current = self
        if self._thread is None or not self._thread.is_alive():
            context = contextvars.copy_context()  # IPython finds the cell to print into by a context variable
            self._thread = threading.Thread(target=context.run, args=(self._run,), name=NAME, daemon=True)
            self._thread.start()

    def give(self) -> None:
        """Note that the caller has something to work on, and let another wait of its work be shown."""
        self._unset_current()
        super().give()

    def take(self) -> None:
        """Note that the caller waits again."""
        super().take()
        if _current is None:
            self.start()

    def stop(self) -> None:
        """End the thread after the last drawing."""
        self._unset_current()
        self._over.set()
        if self._thread is not None:
            self._thread.join(LAST)  # bounded: a front end that does not answer must not keep the caller

    def _unset_current(self) -> None:
        global _current
        if _current is self:
            _current = None

    def _run(self) -> None:
        try:
            while not self._over.wait(PERIOD):
                if self.idle:
                    return
                self.look()
            self.end()
        except Exception:  # a view that fails must not end the wait
            logger.exception("event=wait_not_shown what=%r", self._what)


@contextmanager
def shown(what: Any) -> Iterator[Wait]:
    """Show what the block waits for once it has waited for 2 s, unless a wait around it is shown."""
    if _current is not None or not _can_be_seen():
        yield Wait(what, lambda _: None)
        return
    wait = _Watched(what)
    wait.start()
    try:
        yield wait
    finally:
        wait.stop()


def step(text: str) -> None:
    """Name, from any thread, the step that the shown wait waits for now."""
    wait = _current  # read once: the main thread may end it meanwhile
    if wait is not None:
        wait.step(text)


def _can_be_seen() -> bool:
    """Return whether a view can be seen, in the main thread of a notebook or of a process with a terminal."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if in_jupyter():
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
