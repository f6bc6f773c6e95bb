"""How long a caller has said that something may take."""

from __future__ import annotations

import time

__all__ = ["GRACE", "Deadline"]

GRACE = 0.5
"""Seconds beyond a caller's limit that the last answer is waited for."""


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
        """Seconds that are left, not below 0; None = any number."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.left == 0.0

    @property
    def patience(self) -> float | None:
        """Seconds to wait for an answer that is asked for now."""
        left = self.left
        return None if left is None else left + GRACE

    def within(self, seconds: float) -> float:
        """Return so many seconds, or those that are left."""
        left = self.left
        return seconds if left is None else min(seconds, left)
