"""Draw a wait: the view of what is waited for, or a sentence with the present step.

In a notebook it is HTML in the cell's output, because a kernel that waits obeys no button. In a terminal it is a
screen, or one line, on the standard error, so that the standard output has only what the script prints.

"""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

from dqlab import numbers
from dqlab.errors import DqlabError
from dqlab.live.canvases import HtmlCanvas, Output, ScreenCanvas
from dqlab.live.display import Mode, ended_in_view, is_on_view, mode, publish
from dqlab.live.follow import CALL_TIMEOUT, Canvas, following
from dqlab.live.layout import ended_line
from dqlab.live.parts import line
from dqlab.live.render import render_html
from dqlab.live.run_picture import run_view
from dqlab.live.style import PLAIN, TextStyle, cut
from dqlab.notebook import in_jupyter
from dqlab.texts import one_line
from dqlab.waits import Picture


def picture_of(what: Any) -> Picture | None:
    """Return how a wait is drawn here, or None where it is on view already, or nothing moves."""
    if mode() is not Mode.LIVE:
        return None
    stream, style = sys.stderr, TextStyle.detect(sys.stderr, os.environ)
    if not in_jupyter() and not style.moves:
        return None
    place: _Output | _Line = _Output(publish) if in_jupyter() else _Line(stream, style)
    if isinstance(what, str):
        return SentencePicture(what, place)
    return None if is_on_view(what) else ViewPicture(what, place)


class _Output(Output):
    """An output of the running cell."""

    style = PLAIN

    def canvas(self) -> Canvas[Any]:
        """Return the canvas of a view."""
        return HtmlCanvas(self.put)

    def write(self, text: str) -> None:
        """Show one line in place of the last picture."""
        if text or self.shown:
            html = render_html((line(text),)) if text else ""
            self.put({"text/plain": text, "text/html": html})

    stay = write

    def clear(self) -> None:
        """Leave the output, because the caller prints below it."""


class _Line:
    """The lines of a terminal above the cursor."""

    def __init__(self, stream: TextIO, style: TextStyle) -> None:
        self.style = style
        self._stream = stream
        self._screen = ScreenCanvas(stream, style)

    def canvas(self) -> Canvas[Any]:
        """Return the canvas of a view."""
        return self._screen

    def write(self, text: str) -> None:
        """Show one line in place of the last picture, with the cursor on it during the wait."""
        self._screen.clear()
        # One column less than the width: a full line would wrap, and `\r` would not reach its start.
        self._stream.write(f"\r\x1b[K{cut(text, self.style.width - 1)}")
        self._stream.flush()

    def stay(self, text: str) -> None:
        """Replace the last picture by a line of any width."""
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Remove the line."""
        self.write("")


class SentencePicture:
    """A sentence, the present step, and the time so far."""

    def __init__(self, what: str, place: _Output | _Line) -> None:
        self._what, self._place, self._drawn = one_line(what), place, ""

    def draw(self, step: str, waited: float) -> None:
        """Draw the sentence, once a second."""
        doing = f": {one_line(step)}" if step else ""
        text = f"{self._what}{doing}, {numbers.span(waited)}"
        # `draw` is called more often than the seconds change.
        if text != self._drawn:
            self._place.write(text)
            self._drawn = text

    def clear(self) -> None:
        """Remove the sentence."""
        self._place.clear()

    def end(self) -> None:
        """Remove the sentence, because the result or an error follows it."""
        self._place.write("")


class ViewPicture:
    """The view of a run, a queue or a lab, as `watch` shows it."""

    def __init__(self, what: Any, place: _Output | _Line) -> None:
        self._what, self._place = what, place
        self._live = following(what, place.canvas(), stays=True)
        self._goes_on = True

    def draw(self, step: str, waited: float) -> None:
        """Draw what changed."""
        self._goes_on = self._goes_on and self._live.tick()

    def clear(self) -> None:
        """Make room for what the caller prints."""
        self._place.clear()

    def end(self) -> None:
        """Replace the view by one line about the state of the run."""
        try:
            stats = self._what.snapshot(timeout=CALL_TIMEOUT).own_run
        except DqlabError:
            stats = None
        if stats is None:
            self._place.write("")
            return
        self._place.stay(ended_line(run_view(stats), self._place.style))
        ended_in_view.note(self._what)
