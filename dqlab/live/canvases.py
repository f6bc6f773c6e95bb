"""Draw views in the output of a cell, as a live widget or as HTML, and in a terminal.

The last view replaces the live one as static HTML and text, because a saved notebook cannot restore a widget: reopened,
it would show "model not found". A front end that can save a twin in place of a widget asks to keep the widget, whose
buttons are useful after the end too. It asks once it has drawn the widget, which takes a moment: the view of a run with
failures that has ended by then waits for that.

A kernel does not know which front end reads its output, so this looks for the traces that front ends leave in it. The
widget's files are built from `extension/` into `static/`, and ignored by git.

"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from dqlab.clock import Clock, SystemClock
from dqlab.errors import UsageError
from dqlab.live.follow import Canvas, following
from dqlab.live.layout import log_line, parts_of
from dqlab.live.render import render_html, render_text
from dqlab.live.style import PLAIN, TextStyle
from dqlab.live.views import Press, QueuesView, RunView
from dqlab.texts import one_line

if TYPE_CHECKING:
    pass


def draws_widgets(shell: Any) -> bool:
    """Return whether a live widget is worth sending, instead of HTML refreshed in place."""
    # VS Code and Colab fetch foreign widgets from the network, if at all, and Colab drops changes made by a background
    # thread: a widget there would stand still, or be an error message.
    return importlib.util.find_spec("anywidget") is not None and not in_vscode(shell) and not in_colab()


def has_a_reader(shell: Any) -> bool:
    """Return whether a user can press a button."""
    # A front end that plays a notebook offers no answer to `input()`.
    # Private, hence tested for; tests/live/test_kernel.py.
    return bool(getattr(getattr(shell, "kernel", None), "_allow_stdin", False))


def in_vscode(shell: Any, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether VS Code started this kernel."""
    named = "__vsc_ipynb_file__" in getattr(shell, "user_ns", ())
    # A Jupyter server in a terminal of VS Code has the first variable, and also the second.
    return named or ("VSCODE_PID" in environ and "JPY_SESSION_NAME" not in environ)


def in_colab() -> bool:
    """Return whether this is a kernel of Google Colab."""
    return "google.colab" in sys.modules


STATIC = Path(__file__).parent / "static"
_SCRIPT, _STYLES = "widget.js", "widget.css"


def script() -> str:
    """Return the widget's ES module, which imports nothing."""
    return _read(_SCRIPT)


def styles() -> str:
    """Return the widget's style sheet."""
    return _read(_STYLES)


def missing() -> Path | None:
    """Return the first file that was not built, if any."""
    return next((path for path in (STATIC / _SCRIPT, STATIC / _STYLES) if not path.exists()), None)


def not_built(file: Path) -> str:
    """Return what to do about a file that is missing."""
    return (
        f"the live widget has not been built: {file} is missing. Queues and runs are not touched by this, and their "
        "tables are there without it. In a checkout run `make extension`; elsewhere install dqlab again, without "
        "SKIP_JUPYTER_BUILDER."
    )


def _read(name: str) -> str:
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(reason=not_built(STATIC / name)) from None


AWAITED = 15.0
"""Seconds in which a front end draws a widget, and asks to keep it."""
HTML_PERIOD = 1.0
"""Seconds between two refreshes of HTML."""
TWIN_PERIOD = 10.0
"""Seconds between two twins of a view that goes on: each is sent, and few are saved."""

View = RunView | QueuesView


def screen(view: View, style: TextStyle = PLAIN) -> str:
    """Return a run, a lab or a queue as text."""
    return render_text(parts_of(view), style)


def bundle(view: View, style: TextStyle = PLAIN) -> dict[str, str]:
    """Return a picture that is stored, as text/html and text/plain."""
    parts = parts_of(view.as_saved())
    return {"text/plain": render_text(parts, style), "text/html": render_html(parts)}


class LooseCanvas(Canvas[View]):
    """A live widget that the user places, in a layout, more than once, or nowhere yet."""

    _alone = False
    """Whether the output has nothing but the widget, which a twin can replace then."""

    def __init__(self, press: Callable[[Press], None], *, clock: Clock | None = None) -> None:
        self._press, self._clock = press, clock or SystemClock()
        self.widget: Any = None
        self._twin_at = -TWIN_PERIOD

    @property
    def gone(self) -> bool:
        """The widget was closed."""
        return self.widget is not None and self.widget.closed

    def draw(self, view: View, answered: int = 0) -> bool:
        """Make the widget in the first call, and update it in later ones."""
        if self.widget is not None:
            self._renew_twin(view)
            drawn: bool = self.widget.show(view, answered)
            return drawn
        # Only here: anywidget is optional.
        from dqlab.live.widget import LiveWidget

        self.widget = LiveWidget(view, on_press=self._press, clock=self._clock)
        return True

    def beat(self) -> None:
        """Send a sign of life, if it is time."""
        if self.widget is not None:
            self.widget.beat()

    def finish(self, view: View) -> None:
        """Show the last view, and leave the widget open: it is part of the user's layout."""
        self.draw(view)
        self.widget.rest()

    def _renew_twin(self, view: View) -> None:
        """Give a new twin to a widget that a front end keeps, if the twin is due."""
        widget, now = self.widget, self._clock.monotonic()
        ended = isinstance(view, RunView) and bool(view.ended)
        if not widget.kept:
            twin: dict[str, str] = {}
        elif ended or not widget.twin or now - self._twin_at >= TWIN_PERIOD:
            twin, self._twin_at = bundle(view), now
        else:
            return
        # In one message: a front end that sees `over` without the last twin would save the twin before.
        with widget.hold_sync():
            widget.over, widget.twin = ended and self._alone and bool(twin), twin


class Output:
    """An output of a cell, which is shown once and replaced from then on."""

    def __init__(self, show: Callable[[dict[str, Any]], Any]) -> None:
        self._show = show
        self._handle: Any = None

    @property
    def shown(self) -> bool:
        """Whether there is something in it."""
        return self._handle is not None

    def put(self, data: dict[str, Any]) -> Any:
        """Show data in place of what is shown, and return the handle."""
        if self._handle is None:
            self._handle = self._show(data)
        else:
            self._handle.update(data, raw=True)
        return self._handle


class WidgetCanvas(LooseCanvas):
    """A live widget in a cell's output."""

    _alone = True

    def __init__(
        self,
        show: Callable[[dict[str, Any]], Any],
        press: Callable[[Press], None],
        *,
        read: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(press, clock=clock)
        self._output, self._read = Output(show), read
        self._made: float | None = None

    @property
    def keeps(self) -> bool:
        """Whether a front end shows the widget, and saves its twin instead of it."""
        return self.widget is not None and self.widget.kept

    @property
    def is_read(self) -> bool:
        """Whether somebody can press its buttons."""
        return self._read

    @property
    def awaits(self) -> bool:
        """Whether a front end may yet ask to keep the widget."""
        if not self._read or self.keeps:
            return False
        return self._made is None or self._clock.monotonic() - self._made < AWAITED

    def draw(self, view: View, answered: int = 0) -> bool:
        """Show the widget in the first call, and update it in later ones."""
        drawn = super().draw(view, answered)
        if not self._output.shown:
            self._made = self._clock.monotonic()
            shown = self.widget._repr_mimebundle_()
            data = shown[0] if isinstance(shown, tuple) else shown
            # HTML and text go along: a reader without the kernel, or without widgets, sees these.
            self._output.put({**data, **bundle(view)})
        return drawn

    def finish(self, view: View) -> None:
        """Replace the widget by static HTML and text, and close it."""
        # The picture first: a closed widget leaves its output empty until then.
        self._output.put({**bundle(view)})
        if self.widget is not None:
            self.widget.close()


class HtmlCanvas(Canvas[View]):
    """HTML in a cell's output, refreshed at most once a second."""

    def __init__(self, show: Callable[[dict[str, Any]], Any], *, clock: Clock | None = None) -> None:
        self._output, self._clock = Output(show), clock or SystemClock()
        self._due = 0.0

    def draw(self, view: View, answered: int = 0) -> bool:
        """Show or refresh the fragment, or return False if it was refreshed within the last second."""
        if self._output.shown and self._clock.monotonic() < self._due:
            return False
        self.finish(view)
        self._due = self._clock.monotonic() + HTML_PERIOD
        return True

    def finish(self, view: View) -> None:
        """Show the last view, however recent the one before."""
        self._output.put({**bundle(view)})


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
    source: Any,
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
