"""The only place that reads a clock, so that tests can move time by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The time source of the rules."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary instant, which never go back, for deadlines and durations."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970-01-01 UTC, to show to people and never to subtract, since clocks are set."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Return `time.monotonic()`, seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Return `time.time()`, seconds."""
        return time.time()
