"""Draw a view in a notebook: as a live widget, or as HTML refreshed in the cell's output.

The last view replaces the live one as static HTML and text, because a saved notebook cannot restore a widget: reopened,
it would show "model not found". A front end that can save a twin in place of a widget asks to keep the widget, whose
buttons are useful after the end too. It asks once it has drawn the widget, which takes a moment: the view of a run with
failures that has ended by then waits for that.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.live.follow import Canvas
from dqlab.live.html import render_html
from dqlab.live.layout import parts_of
from dqlab.live.style import PLAIN, TextStyle
from dqlab.live.text import render_text
from dqlab.live.views import Press, QueuesView, RunView

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
        self._show, self._read = show, read
        self._handle: Any = None
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
        if self._handle is None:
            self._made = self._clock.monotonic()
            shown = self.widget._repr_mimebundle_()
            data = shown[0] if isinstance(shown, tuple) else shown
            # HTML and text go along: a reader without the kernel, or without widgets, sees these.
            self._handle = self._show({**data, **bundle(view)})
        return drawn

    def finish(self, view: View) -> None:
        """Replace the widget by static HTML and text, and close it."""
        if self._handle is None:
            self._show({**bundle(view)})
            return
        # The picture first: a closed widget leaves its output empty until then.
        self._handle.update(bundle(view), raw=True)
        self.widget.close()


class HtmlCanvas(Canvas[View]):
    """HTML in a cell's output, refreshed at most once a second."""

    def __init__(self, show: Callable[[dict[str, Any]], Any], *, clock: Clock | None = None) -> None:
        self._show, self._clock = show, clock or SystemClock()
        self._handle: Any = None
        self._due = 0.0

    def draw(self, view: View, answered: int = 0) -> bool:
        """Show or refresh the fragment, or return False if it was refreshed within the last second."""
        if self._handle is not None and self._clock.monotonic() < self._due:
            return False
        self.finish(view)
        self._due = self._clock.monotonic() + HTML_PERIOD
        return True

    def finish(self, view: View) -> None:
        """Show the last view, however recent the one before."""
        if self._handle is None:
            self._handle = self._show({**bundle(view)})
        else:
            self._handle.update(bundle(view), raw=True)
