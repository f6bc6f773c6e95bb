"""What blocks for long shows what it waits for: nothing below two seconds, then a view that lives as long as the wait.

The block runs in its caller's thread, as it would without this; a thread looks at it from beside, and is joined before
the caller goes on. There is one at a time, for the main thread of a notebook or of a terminal; elsewhere nothing is
started at all. How a wait is drawn is the business of `dqlab.live.outputs.waits`, imported when a wait has lasted.
"""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

from dqlab.clock import Clock, SystemClock
from dqlab.notebook import in_jupyter

__all__ = ["AFTER", "Picture", "Wait", "shown", "step"]

AFTER = 2.0
"""Seconds in which nothing is shown."""
PERIOD = 0.25
"""Seconds between two looks at a wait."""
RESTS = 1.0
"""Seconds of the caller's own work after which the thread ends; the next wait starts another."""
LAST = 5.0
"""Seconds that the last drawing may take."""
NAME = "dqlab-wait"

_log = logging.getLogger(__name__)
_current: Wait | None = None
"""The wait of the main thread."""


class Picture(Protocol):
    """How a wait is drawn."""

    def draw(self, step: str, waited: float) -> None:
        """Draw it: what is waited for now, and for how many seconds."""
        ...

    def clear(self) -> None:
        """Make room for what the caller prints; `draw` may follow."""
        ...

    def end(self) -> None:
        """Replace it by what stays, or by nothing."""
        ...


class Wait:
    """One wait, as the watching thread sees it.

    Parameters
    ----------
    what : object
        What is waited for: something that can be watched, as a `Run`, or a sentence.
    draws : callable
        Returns a `Picture` of it, or None where nothing is to be drawn.
    clock : Clock, optional
        Moved by hand in tests.
    """

    def __init__(self, what: Any, draws: Callable[[Any], Picture | None], clock: Clock | None = None) -> None:
        self._what, self._draws, self._clock = what, draws, clock or SystemClock()
        self._lock = threading.Lock()
        self._since, self._step = self._clock.monotonic(), ""
        self._callers = False
        self._picture: Picture | None = None
        self._mute = False

    def step(self, text: str) -> None:
        """Name what is waited for now."""
        self._step = text

    @property
    def idle(self) -> bool:
        """Whether the caller has been at work for so long that no view is needed."""
        return self._callers and self._clock.monotonic() - self._since >= RESTS

    def look(self) -> None:
        """Draw the wait if it lasts."""
        with self._lock:
            waited = self._clock.monotonic() - self._since
            if self._callers or self._mute or waited < AFTER:
                return
            if self._picture is None:
                self._picture = self._draws(self._what)
                self._mute = self._picture is None
            if self._picture is not None:
                self._picture.draw(self._step, waited)

    def give(self) -> None:
        """Note that the caller has something to work on, and is not kept waiting."""
        with self._lock:
            if self._picture is not None:
                self._picture.clear()
            self._callers, self._since = True, self._clock.monotonic()

    def take(self) -> None:
        """Note that the caller waits again."""
        with self._lock:
            self._callers, self._since = False, self._clock.monotonic()

    def end(self) -> None:
        """Draw how it ended, if it was drawn."""
        with self._lock:
            self._mute, picture = True, self._picture
            self._picture = None
        if picture is not None:
            picture.end()


class _Watched(Wait):
    """A wait of the main thread, with the thread that looks at it."""

    def __init__(self, what: Any) -> None:
        # Views lie above all this: they are imported by name, and only when a wait has lasted.
        super().__init__(what, lambda of: import_module("dqlab.live.outputs.waits").picture_of(of))
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look at it from now on."""
        global _current
        _current = self
        if self._thread is None or not self._thread.is_alive():
            context = contextvars.copy_context()  # a notebook finds the running cell in it
            self._thread = threading.Thread(target=context.run, args=(self._run,), name=NAME, daemon=True)
            self._thread.start()

    def give(self) -> None:
        """Note that the caller has something to work on; what it waits for at the same time is shown by itself."""
        self._leave()
        super().give()

    def take(self) -> None:
        """Note that the caller waits again."""
        super().take()
        if _current is None:
            self.start()

    def stop(self) -> None:
        """End the thread, after the last drawing."""
        self._leave()
        self._over.set()
        if self._thread is not None:
            self._thread.join(LAST)

    def _leave(self) -> None:
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
        except Exception:  # noqa: BLE001 - a view that fails must not end the wait
            _log.exception("event=wait_not_shown what=%r", self._what)


@contextmanager
def shown(what: Any) -> Iterator[Wait]:
    """Show what the block waits for, once it has waited for 2 s; inside another one, that one is shown.

    Parameters
    ----------
    what : object
        Something that can be watched, as a `Run`, or a sentence without its period.
    """
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
    """Name what the wait that is shown waits for now; from any thread."""
    wait = _current
    if wait is not None:
        wait.step(text)


def _can_be_seen() -> bool:
    """Return whether a view can be seen: in the main thread of a notebook, or of a process with a terminal."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if in_jupyter():
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
