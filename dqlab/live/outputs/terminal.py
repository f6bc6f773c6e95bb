"""Follow a run, a lab or a queue in the foreground: a screen redrawn in place, or lines into a pipe.

Following ends when the run rests, the lab is closed, or the user interrupts, which stops nothing else.

"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from dqlab.clock import Clock, SystemClock
from dqlab.live.feeds import LabSource
from dqlab.live.follow import Canvas, following
from dqlab.live.layout import log_line
from dqlab.live.outputs.notebook import View, screen
from dqlab.live.style import TextStyle
from dqlab.texts import one_line

if TYPE_CHECKING:
    from dqlab.runs.pool import QueuePool
    from dqlab.runs.run import Run

SCREEN_PERIOD, LINE_PERIOD = 0.5, 30.0
"""Seconds between two screens, and between two lines."""


class ScreenCanvas(Canvas[View]):
    """A screen redrawn in place."""

    def __init__(self, stream: TextIO, style: TextStyle) -> None:
        self._stream, self._style = stream, style
        self._height = 0

    def draw(self, view: View, answered: int = 0) -> bool:
        """Draw over the screen before."""
        lines = screen(view, self._style).split("\n")
        up = f"\x1b[{self._height}A\r" if self._height else ""
        # Each line clears what is left of the old one: clearing all of them first would flicker.
        self._stream.write(up + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._stream.flush()
        self._height = len(lines)
        return True

    def clear(self) -> None:
        """Remove the screen, so that the next one is drawn at the cursor."""
        if self._height:
            self._stream.write(f"\x1b[{self._height}A\r\x1b[J")
            self._stream.flush()
        self._height = 0


class LineCanvas(Canvas[View]):
    """A line every 30 s and one at the end, for logs."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream, self._clock = stream, clock
        self._due = clock.monotonic()

    def draw(self, view: View, answered: int = 0) -> bool:
        """Write a line, unless one was written within the last 30 s."""
        if self._clock.monotonic() < self._due:
            return False
        self._due = self._clock.monotonic() + LINE_PERIOD
        self.finish(view)
        return True

    def finish(self, view: View) -> None:
        """Write the line now."""
        self._stream.write(log_line(view) + "\n")
        self._stream.flush()


def follow_here(
    source: Run | LabSource | QueuePool,
    stream: TextIO,
    style: TextStyle,
    *,
    clock: Clock | None = None,
    pause: Callable[[float], object] | None = None,
) -> None:
    """Follow a run until it rests, or a lab or queue until it is closed, or until Ctrl-C."""
    clock = clock or SystemClock()
    pause = pause or threading.Event().wait
    # A stream whose cursor cannot move up gets plain lines.
    canvas = ScreenCanvas(stream, style) if style.moves else LineCanvas(stream, clock)
    live = following(source, canvas, clock=clock)
    try:
        while live.tick():
            pause(SCREEN_PERIOD)
    except KeyboardInterrupt:
        stream.write(f"\nno longer watching {one_line(source.name)}; it goes on\n")
        stream.flush()
