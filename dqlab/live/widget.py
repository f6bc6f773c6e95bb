"""Define the live widget of a run, a lab or a queue, for front ends that support anywidget.

Python sends the parts of a picture that changed, in one message; the module in `static/`, which is built from
`extension/`, draws them and sends back which button was pressed. A press only calls `on_press`: it may arrive in a
thread of its own while a cell is busy, so nothing of the user's is touched here.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from dqlab.clock import Clock, SystemClock
from dqlab.live.canvases import script, styles
from dqlab.live.views import Command, Press, QueuesView, RunView

_SLACK = 0.05
"""Seconds by which a step may be early."""
_AT_ONCE = ("head", "examples")


BEAT = 3.0
"""Seconds without a message after which a widget shows its front end that the kernel lives, also with a run at rest."""
_COMMANDS = {command.value: command for command in Command}
_FRAMES = {"run": 0.5, "queue": 1.0, "lab": 1.0}
"""Least seconds between two messages, by kind of widget."""
_LONGEST = 300
_MOST_CONSUMERS = 100_000
_KEEP = "keep"
KEPT_FOR = 300.0
"""Seconds that a widget is kept after a front end asked for it; a front end asks every minute while it shows it."""


def _part() -> Any:
    """Return a trait for one part of a picture, plain data that is sent when it differs."""
    return traitlets.Any().tag(sync=True)


class LiveWidget(anywidget.AnyWidget):
    """A live view of a run, a lab or a queue."""

    _esm = script()
    _css = styles()
    kind = traitlets.Unicode().tag(sync=True)
    """"run", "lab" or "queue"."""
    answered = traitlets.Int(0).tag(sync=True)
    """How many presses were obeyed or refused."""
    beats = traitlets.Int(1).tag(sync=True)
    """How many signs of life were sent; 0 means that no others follow, because the view is final."""
    head = _part()
    bars = _part()
    numbers = _part()
    failures = _part()
    chart = _part()
    needs = _part()
    consumers = _part()
    leases = _part()
    code = _part()
    examples = _part()
    rows = _part()
    sparks = _part()
    runs = _part()
    offers = _part()
    twin = traitlets.Dict().tag(sync=True)
    """The last picture by MIME type, which a front end that keeps the widget saves for a reader without its kernel."""
    over = traitlets.Bool(default_value=False).tag(sync=True)
    """The twin is final: it is saved in place of the widget, and no longer beside it."""

    def __init__(
        self, view: RunView | QueuesView, *, on_press: Callable[[Press], None], clock: Clock | None = None
    ) -> None:
        kind = "run" if isinstance(view, RunView) else "queue" if view.single else "lab"
        self._clock = clock or SystemClock()
        self._sent = view.parts()
        self._sent_at = self._beat = self._clock.monotonic()
        self._kept: float | None = None
        super().__init__(kind=kind, **self._sent)
        # `on_press` is called from any thread, and must return at once.
        self._on_press = on_press
        self.on_msg(self._receive)
        self._answer_beside_a_busy_cell()

    @property
    def closed(self) -> bool:
        """The widget was closed in the front end or by code."""
        return self.comm is None

    @property
    def kept(self) -> bool:
        """A front end shows the widget, and can save its twin instead of it."""
        return self._kept is not None and self._clock.monotonic() - self._kept < KEPT_FOR

    def show(self, view: RunView | QueuesView, answered: int = 0) -> bool:
        """Send what changed in one message per frame, or return False when it is held back."""
        now, parts = self._clock.monotonic(), view.parts()
        changed = {name: part for name, part in parts.items() if name not in self._sent or self._sent[name] != part}
        # Parts repeat numbers of one instant, so they are sent together. A new head, such as another state, waits for
        # nothing.
        early = now - self._sent_at < _FRAMES[self.kind] - _SLACK and not any(name in changed for name in _AT_ONCE)
        with self.hold_sync():
            for name, part in () if early else changed.items():
                setattr(self, name, part)
            self.answered = answered
        if changed and not early:
            self._sent, self._sent_at = self._sent | changed, now
        return not (changed and early)

    def beat(self) -> None:
        """Send a sign of life, if it is time."""
        now = self._clock.monotonic()
        if now - self._beat >= BEAT - _SLACK:
            self.beats, self._beat = self.beats + 1, now

    def rest(self) -> None:
        """Make the front end expect no more signs of life."""
        self.beats = 0

    def close(self) -> None:
        """Close the widget, and the layout that belongs to it, in kernel and front end."""
        # A layout is a widget of its own, which would stay in kernel and front end after each view.
        layout = None if self.closed else self.layout
        super().close()
        if layout is not None:
            layout.close()

    def _receive(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if isinstance(content, dict) and content.get("command") == _KEEP:
            self._kept = self._clock.monotonic()
            return
        press = _press(content)
        if press is not None:
            self._on_press(press)

    def _answer_beside_a_busy_cell(self) -> None:
        # ipykernel 7 sends a front end's message to the subshell that last used this comm, which is the main
        # one: a press would wait for the running cell. Private, hence tested for; tests/live/test_widget.py.
        if hasattr(self.comm, "_reply_subshell_for"):
            self.comm._reply_subshell_for = _where_it_came_from


def _press(content: Any) -> Press | None:
    """Return the press in a message, or None for a message that the widget does not send."""
    command = _COMMANDS.get(str(content.get("command"))) if isinstance(content, dict) else None
    if command is None:
        return None
    queue, run, target = words = [content.get(name, "") for name in ("queue", "run", "target")]
    n = content.get("n", 0)
    # A front end may send anything: a command with a wrong argument must not reach a queue.
    if not all(isinstance(word, str) and len(word) <= _LONGEST for word in words):
        return None
    # A bool is an int in Python: `True` would be 1 consumer.
    if not isinstance(n, int) or isinstance(n, bool) or not 0 <= n <= _MOST_CONSUMERS:
        return None
    return Press(command, queue, run, target, n)


def _where_it_came_from(_data: Any, default: Any) -> Any:
    return default
