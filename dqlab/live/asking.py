"""When a source of statistics is polled, and for how long it has not answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dqlab.clock import Clock
from dqlab.errors import ActorGone, CallTimeout, DqlabError, SchedulerGone
from dqlab.live.run_picture import Silence

__all__ = ["CALL_TIMEOUT", "GIVE_UP_AFTER", "Asking"]

CALL_TIMEOUT = 1.0
"""Timeout of one poll for statistics, in seconds."""
STALE_AFTER = 3.0
"""Seconds without an answer after which a view marks its numbers as old."""
FIRST_RETRY, LONGEST_RETRY = 1.0, 30.0
"""Seconds between polls while there is no answer; doubled each time."""
GIVE_UP_AFTER = 600.0
"""Seconds without an answer after which a view stops polling."""
_SLACK = 0.05
"""Seconds by which a step may come early."""

UNREACHABLE: tuple[type[DqlabError], ...] = (SchedulerGone, ActorGone, CallTimeout)
"""Errors that may pass: a later poll may be answered."""

T = TypeVar("T")


class Asking:
    """One poll, repeated; less often while there is no answer.

    Parameters
    ----------
    clock : Clock
        Moved by hand in tests.
    period : float, default 0
        Least seconds between two polls.
    silences : tuple of DqlabError classes
        What counts as no answer.

    Attributes
    ----------
    heard : bool
        The last poll was answered.
    """

    def __init__(self, clock: Clock, period: float = 0.0, silences: tuple[type[DqlabError], ...] = UNREACHABLE) -> None:
        self._clock, self.period, self._silences = clock, period, silences
        self._answered = clock.monotonic()
        self._retry, self._due = FIRST_RETRY, self._answered
        self.heard = False

    @property
    def due(self) -> bool:
        """Whether it is time to poll."""
        return self._clock.monotonic() >= self._due - _SLACK * (self.period > 0)

    @property
    def quiet(self) -> float:
        """Seconds since the last answer."""
        return self._clock.monotonic() - self._answered

    @property
    def silence(self) -> Silence | None:
        """How long there has been no answer, if that is long enough to be shown."""
        if self.quiet <= STALE_AFTER:
            return None
        return Silence(self.quiet, max(0.0, self._due - self._clock.monotonic()))

    def now(self) -> None:
        """Make the next poll due now."""
        self._due = self._clock.monotonic()

    def ask(self, question: Callable[[], T], before: T) -> T:
        """Return the answer, or `before` if there is none. Raises other errors."""
        self.heard = False
        try:
            answer = question()
        except self._silences:
            self._due = self._clock.monotonic() + self._retry
            self._retry = min(2 * self._retry, LONGEST_RETRY)
            return before
        self.heard = True
        self._answered = self._clock.monotonic()
        self._retry, self._due = FIRST_RETRY, self._answered + self.period
        return answer
