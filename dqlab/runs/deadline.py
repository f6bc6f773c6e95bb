"""Time limits of callers."""

from __future__ import annotations

import time

__all__ = ["GRACE", "Deadline"]

GRACE = 0.5
"""Seconds beyond a caller's limit to wait for the last answer."""


class Deadline:
    """The end of a wait that begins now.

    Parameters
    ----------
    limit : float or None
        Seconds; None = no end.
    """

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self._end = None if limit is None else time.monotonic() + limit

    @property
    def left(self) -> float | None:
        """Seconds left, not below 0; None = no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self.left == 0.0

    @property
    def patience(self) -> float | None:
        """Seconds to wait for the answer to a call made now."""
        left = self.left
        return None if left is None else left + GRACE

    def within(self, seconds: float) -> float:
        """Return `seconds`, or the seconds left if those are fewer."""
        left = self.left
        return seconds if left is None else min(seconds, left)
