"""One run being watched: asks for statistics, judges silence, obeys buttons, draws on a canvas.

`LiveRun.tick` does one step and never waits longer than one call may take; whoever owns the time
(the ticker's thread, or a loop in a terminal) calls it again and again. Buttons are pressed in
other threads: they only enqueue a `Command`, and the run is touched in `tick` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

from dqlab.clock import Clock, SystemClock
from dqlab.errors import ActorGone, CallTimeout, DqlabError, SchedulerGone
from dqlab.live.rows import Silence, absent_view, connecting_view, moved_view, run_view
from dqlab.live.source import RunSource
from dqlab.live.view import Command, RunView
from dqlab.stats import RunStats

__all__ = ["Canvas", "LiveRun"]

CALL_TIMEOUT = 1.0
"""Seconds one question for statistics may take."""
STALE_AFTER = 3.0
"""Seconds without an answer after which a view says so."""
FIRST_RETRY, LONGEST_RETRY = 1.0, 30.0
"""Seconds between questions while nobody answers; doubled each time."""
GIVE_UP_AFTER = 600.0
"""Seconds without an answer after which the view is left as it is."""


class Canvas(Protocol):
    """Where a run is drawn."""

    @property
    def gone(self) -> bool:
        """Nobody looks any more: the widget was closed or collected."""
        ...

    def draw(self, view: RunView) -> None:
        """Show a view that differs from the one before."""
        ...

    def finish(self, view: RunView) -> None:
        """Show the last view, for good; called once."""
        ...


class LiveRun:
    """A run, the canvas it is drawn on, and the commands that wait.

    Parameters
    ----------
    source : RunSource
        The run.
    canvas : Canvas
        Where it is drawn.
    commands : SimpleQueue of Command, optional
        Where buttons put what was pressed, from any thread.
    clock : Clock, optional
        Moved by hand in tests.
    on_end : callable, optional
        Called with the last statistics when the end of the run was drawn.
    """

    def __init__(
        self,
        source: RunSource,
        canvas: Canvas,
        *,
        commands: SimpleQueue[Command] | None = None,
        clock: Clock | None = None,
        on_end: Callable[[RunStats], object] = lambda stats: None,
    ) -> None:
        self.source = source
        self._canvas, self._clock = canvas, clock or SystemClock()
        self._commands = SimpleQueue[Command]() if commands is None else commands
        self._on_end = on_end
        self._left = self._over = False
        self._stats: RunStats | None = None
        self._drawn: RunView | None = None
        self._answered = self._clock.monotonic()
        self._retry, self._due = FIRST_RETRY, self._answered
        self._trouble = ""

    def leave(self) -> None:
        """Make the next step the last: the run is shown elsewhere. Safe from any thread."""
        self._left = True

    def tick(self) -> bool:
        """Do one step; return False when there will be nothing more to draw."""
        if self._canvas.gone:
            return False
        if self._left:
            self._canvas.finish(moved_view(self.source.name))
            return False
        self._obey()
        if self._clock.monotonic() >= self._due:
            self._ask()
        view = self._view()
        given_up = self._clock.monotonic() - self._answered > GIVE_UP_AFTER
        ended = self._stats is not None and self._stats.resting and not view.stale
        if ended or self._over or given_up:
            self._canvas.finish(view)
            if ended and self._stats is not None:
                self._on_end(self._stats)
            return False
        if view != self._drawn:
            self._canvas.draw(view)
            self._drawn = view
        return True

    def _obey(self) -> None:
        actions: dict[Command, Callable[[], object]] = {
            Command.PAUSE: self.source.pause,
            Command.RESUME: self.source.resume,
            Command.CANCEL: self.source.cancel,
            Command.RETRY: self._retry_now,
        }
        while True:
            try:
                command = self._commands.get_nowait()
            except Empty:
                return
            self._trouble = ""
            try:
                actions[command]()
            except DqlabError as error:
                self._trouble = f"{command.value.capitalize()} failed: {error}"

    def _retry_now(self) -> None:
        self._due = self._clock.monotonic()

    def _ask(self) -> None:
        try:
            self._stats = self.source.stats(timeout=CALL_TIMEOUT)
        except (SchedulerGone, ActorGone, CallTimeout):
            self._due = self._clock.monotonic() + self._retry
            self._retry = min(2 * self._retry, LONGEST_RETRY)
        except DqlabError as error:  # dropped, or never there: it will not answer later either
            self._trouble, self._over = str(error), True
        else:
            self._answered = self._clock.monotonic()
            self._retry = FIRST_RETRY

    def _view(self) -> RunView:
        now = self._clock.monotonic()
        quiet = now - self._answered
        silence = Silence(quiet, max(0.0, self._due - now)) if quiet > STALE_AFTER else None
        if self._stats is None and self._trouble:
            return absent_view(self.source.name, self._trouble)
        if self._stats is None:
            return connecting_view(self.source.name, silence)
        return run_view(self._stats, silence=silence, trouble=self._trouble)
