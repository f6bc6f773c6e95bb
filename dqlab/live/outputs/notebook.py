"""Where a view is drawn in a notebook: a live widget, or HTML refreshed in the cell's output.

Either way the last view replaces the live one as static HTML and text, because a saved notebook
cannot bring a widget back: reopened, it would say "model not found". A front end that
can save a twin in place of a widget asks to keep the widget: its buttons are useful after the end too.
It asks once it has drawn the widget, which takes a moment: a run with failures that was over by then waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.live.html import queues_html, run_html
from dqlab.live.style import PLAIN, TextStyle
from dqlab.live.text import queues_screen, run_screen
from dqlab.live.views import Press, QueuesView, RunView

__all__ = ["HtmlCanvas", "LooseCanvas", "View", "WidgetCanvas", "bundle", "screen"]

AWAITED = 15.0
"""Seconds in which a front end draws a widget, and asks to keep it."""
HTML_PERIOD = 1.0
"""Seconds between two refreshes of HTML."""
TWIN_PERIOD = 10.0
"""Seconds between two twins of a view that goes on: each is sent, and few are saved."""

View = RunView | QueuesView


def screen(view: View, style: TextStyle = PLAIN) -> str:
    """Return a run, a lab or a queue as text."""
    return run_screen(view, style) if isinstance(view, RunView) else queues_screen(view, style)


def bundle(view: View, style: TextStyle = PLAIN) -> dict[str, str]:
    """Return a run, a lab or a queue as text/html and text/plain, to be kept."""
    view = view.as_saved()
    html = run_html(view) if isinstance(view, RunView) else queues_html(view)
    return {"text/plain": screen(view, style), "text/html": html}


class _Twins:
    """The twins of one widget: what is saved beside it while it is live, and in its place in the end.

    Parameters
    ----------
    clock : Clock
    alone : bool
        The widget is all that its output shows.
    """

    def __init__(self, clock: Clock, *, alone: bool) -> None:
        self._clock, self._alone = clock, alone
        self._at = -TWIN_PERIOD

    def renew(self, widget: Any, view: View) -> None:
        """Give a widget that a front end keeps its twin, if that is due."""
        ended = isinstance(view, RunView) and bool(view.ended)
        now = self._clock.monotonic()
        if not widget.kept:
            twin: dict[str, str] = {}
        elif ended or not widget.twin or now - self._at >= TWIN_PERIOD:
            twin, self._at = bundle(view), now
        else:
            return
        with widget.hold_sync():
            widget.over, widget.twin = ended and self._alone and bool(twin), twin


class WidgetCanvas:
    """A live widget in a cell's output.

    Parameters
    ----------
    show : callable
        Displays a MIME bundle and returns its handle, with ``update(bundle, raw=True)``.
    press : callable
        Takes what was pressed.
    read : bool, default False
        A user sees the output, and can press a button.
    clock : Clock, optional
        Moved by hand in tests.
    """

    def __init__(
        self,
        show: Callable[[dict[str, Any]], Any],
        press: Callable[[Press], None],
        *,
        read: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._show, self._press, self._read, self._clock = show, press, read, clock or SystemClock()
        self._twins = _Twins(self._clock, alone=True)
        self._widget: Any = None
        self._handle: Any = None
        self._made: float | None = None

    @property
    def gone(self) -> bool:
        """The widget was closed."""
        return self._widget is not None and self._widget.closed

    @property
    def keeps(self) -> bool:
        """Whether a front end shows the widget, and saves its twin instead of it."""
        return self._widget is not None and self._widget.kept

    @property
    def awaits(self) -> bool:
        """Whether a front end may yet ask to keep the widget."""
        if not self._read or self.keeps:
            return False
        return self._made is None or self._clock.monotonic() - self._made < AWAITED

    def draw(self, view: View, answered: int = 0) -> bool:
        """Make the widget on the first call, change it on the others."""
        if self._widget is not None:
            self._twins.renew(self._widget, view)
            drawn: bool = self._widget.show(view, answered)
            return drawn
        from dqlab.live.outputs.widget import LiveWidget

        self._widget, self._made = LiveWidget(view, on_press=self._press, clock=self._clock), self._clock.monotonic()
        shown = self._widget._repr_mimebundle_()
        data = shown[0] if isinstance(shown, tuple) else shown
        self._handle = self._show({**data, **bundle(view)})
        return True

    def beat(self) -> None:
        """Send a sign of life, if it is time."""
        if self._widget is not None:
            self._widget.beat()

    def finish(self, view: View) -> None:
        """Replace the widget by static HTML and text, and close it."""
        if self._handle is None:
            self._show({**bundle(view)})
            return
        self._handle.update(bundle(view), raw=True)
        self._widget.close()


class LooseCanvas:
    """A live widget that the user places: as a part of a layout, more than once, or nowhere yet.

    Parameters
    ----------
    press : callable
        Takes what was pressed.
    clock : Clock, optional
        Moved by hand in tests.
    """

    keeps = awaits = False

    def __init__(self, press: Callable[[Press], None], *, clock: Clock | None = None) -> None:
        self._press, self._clock = press, clock or SystemClock()
        self._twins = _Twins(self._clock, alone=False)
        self.widget: Any = None

    @property
    def gone(self) -> bool:
        """The widget was closed."""
        return self.widget is not None and self.widget.closed

    def draw(self, view: View, answered: int = 0) -> bool:
        """Make the widget on the first call, change it on the others."""
        if self.widget is not None:
            self._twins.renew(self.widget, view)
            drawn: bool = self.widget.show(view, answered)
            return drawn
        from dqlab.live.outputs.widget import LiveWidget

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


class HtmlCanvas:
    """HTML in a cell's output, refreshed at most once a second; for front ends that cannot draw the widget."""

    keeps = awaits = False

    def __init__(self, show: Callable[[dict[str, Any]], Any], *, clock: Clock | None = None) -> None:
        self._show, self._clock = show, clock or SystemClock()
        self._handle: Any = None
        self._due = 0.0

    @property
    def gone(self) -> bool:
        """Always False: an output does not report that it was cleared."""
        return False

    def draw(self, view: View, answered: int = 0) -> bool:
        """Show or refresh the fragment; return False if it was refreshed within the last second."""
        now = self._clock.monotonic()
        if self._handle is None:
            self._handle = self._show({**bundle(view)})
        elif now >= self._due:
            self._handle.update(bundle(view), raw=True)
        else:
            return False
        self._due = now + HTML_PERIOD
        return True

    def beat(self) -> None:
        """Do nothing: HTML expects no signs of life."""

    def finish(self, view: View) -> None:
        """Show the last view, however recent the one before."""
        if self._handle is None:
            self._show({**bundle(view)})
        else:
            self._handle.update(bundle(view), raw=True)
