"""Which parts of a picture are sent when: bars four times a second, numbers twice, the rest once, nothing unchanged.

A change of the head, such as another state, sends all parts, so that they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dqlab.clock import Clock, SystemClock

__all__ = ["PARTS", "Pace"]

PARTS: dict[str, float] = {
    "head": 0.0,
    "bars": 0.25,
    "numbers": 0.5,
    "failures": 1.0,
    "offers": 1.0,
    "chart": 1.0,
    "needs": 1.0,
    "consumers": 1.0,
    "leases": 1.0,
    "code": 1.0,
    "examples": 0.0,
    "rows": 1.0,
    "sparks": 1.0,
    "runs": 1.0,
}
"""Least seconds between two sends of a part."""
_SLACK = 0.05
"""Seconds by which a step may come early."""


class Pace:
    """Holds parts back until they are due.

    Parameters
    ----------
    clock : Clock, optional
        Moved by hand in tests.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._sent: dict[str, Any] = {}
        self._at: dict[str, float] = {}
        self.behind = False

    def due(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parts that changed and may be sent now; `behind` tells whether others wait."""
        now = self._clock.monotonic()
        changed = {name: part for name, part in parts.items() if name not in self._sent or self._sent[name] != part}
        ready = {
            name: part
            for name, part in changed.items()
            if "head" in changed or name not in self._at or now - self._at[name] >= PARTS[name] - _SLACK
        }
        self._sent |= ready
        self._at |= dict.fromkeys(ready, now)
        self.behind = len(ready) < len(changed)
        return ready
