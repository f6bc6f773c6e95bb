"""Following a run, a lab or a queue in the foreground: a screen redrawn in place, or lines into a pipe.

Returns when the run rests, the lab is closed, or the user interrupts; interrupting only stops watching.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TextIO

from dqlab.clock import Clock, SystemClock
from dqlab.live.feeds import LabSource, PoolSource, RunSource
from dqlab.live.follow import following
from dqlab.live.outputs.notebook import View, screen
from dqlab.live.style import TextStyle, columns
from dqlab.texts import one_line

__all__ = ["LineCanvas", "ScreenCanvas", "follow_here"]

SCREEN_PERIOD, LINE_PERIOD = 0.5, 30.0
"""Seconds between two screens, and between two lines."""


class ScreenCanvas:
    """A screen redrawn in place: the cursor goes up, new lines are padded over the old ones."""

    gone = keeps = awaits = False

    def __init__(self, stream: TextIO, style: TextStyle) -> None:
        self._stream, self._style = stream, style
        self._plain = replace(style, colour=False)
        self._widths: list[int] = []

    def draw(self, view: View, answered: int = 0) -> bool:
        """Draw over the screen before."""
        lines = screen(view, self._style).split("\n")
        widths = [columns(line) for line in screen(view, self._plain).split("\n")]
        missing = len(self._widths) - len(lines)
        lines, widths = lines + [""] * missing, widths + [0] * missing
        old = self._widths + [0] * len(lines)
        padded = [line + " " * (was - now) for line, was, now in zip(lines, old, widths, strict=False)]
        up = f"\x1b[{len(self._widths)}A\r" if self._widths else ""
        self._stream.write(up + "\n".join(padded) + "\n")
        self._stream.flush()
        self._widths = widths
        return True

    def beat(self) -> None:
        """Do nothing: a terminal has no front end."""

    def finish(self, view: View) -> None:
        """Draw the last screen; the cursor stays below it."""
        self.draw(view)

    def clear(self) -> None:
        """Remove the screen; the next one is drawn where the cursor is then."""
        if self._widths:
            self._stream.write(f"\x1b[{len(self._widths)}A\r\x1b[J")
            self._stream.flush()
        self._widths = []


class LineCanvas:
    """A line every 30 s and one at the end, for logs."""

    gone = keeps = awaits = False

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

    def beat(self) -> None:
        """Do nothing: a terminal has no front end."""

    def finish(self, view: View) -> None:
        """Write the line now."""
        self._stream.write(view.log + "\n")
        self._stream.flush()


def follow_here(
    source: RunSource | LabSource | PoolSource,
    stream: TextIO,
    style: TextStyle,
    *,
    clock: Clock | None = None,
    pause: Callable[[float], object] | None = None,
) -> None:
    """Follow a run until it rests, a lab or queue until it is closed; Ctrl-C stops watching and leaves it running.

    Parameters
    ----------
    source : RunSource, LabSource or PoolSource
        The run, lab or queue.
    stream : file
        Where it is drawn.
    style : TextStyle
        What the stream can show; without a moving cursor it gets plain lines.
    clock, pause : optional
        Time, and how to pass it; given by tests.
    """
    clock = clock or SystemClock()
    pause = pause or threading.Event().wait
    canvas = ScreenCanvas(stream, style) if style.moves else LineCanvas(stream, clock)
    live = following(source, canvas, clock=clock)
    try:
        while live.tick():
            pause(SCREEN_PERIOD)
    except KeyboardInterrupt:
        stream.write(f"\nno longer watching {one_line(source.name)}; it goes on\n")
        stream.flush()
