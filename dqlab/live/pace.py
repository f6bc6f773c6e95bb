"""When parts of a picture are sent: what changed in one message, twice a second for a run and once for queues.

Parts that repeat a number are of one instant, so they are sent together. A change of the head, such as another state,
waits for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dqlab.clock import Clock, SystemClock

__all__ = ["Pace"]

_SLACK = 0.05
"""Seconds by which a step may come early."""
_AT_ONCE = ("head", "examples")


class Pace:
    """Holds changes back until they are due.

    Parameters
    ----------
    period : float
        Least seconds between two messages.
    clock : Clock, optional
        Moved by hand in tests.
    """

    def __init__(self, period: float, clock: Clock | None = None) -> None:
        self._period, self._clock = period, clock or SystemClock()
        self._sent: dict[str, Any] = {}
        self._at: float | None = None
        self.behind = False

    def due(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parts that changed, if they may be sent now; `behind` tells whether they wait."""
        now = self._clock.monotonic()
        changed = {name: part for name, part in parts.items() if name not in self._sent or self._sent[name] != part}
        early = self._at is not None and now - self._at < self._period - _SLACK
        self.behind = early and bool(changed) and not any(name in changed for name in _AT_ONCE)
        if self.behind or not changed:
            return {}
        self._sent |= changed
        self._at = now
        return changed
