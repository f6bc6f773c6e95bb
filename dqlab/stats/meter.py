"""Rates of totals that grow."""

from __future__ import annotations

from collections import deque

__all__ = ["RATE_WINDOW", "Meter"]

RATE_WINDOW = 60.0
"""Seconds over which rates are measured."""
POINTS = 60
"""Points in a window."""


class Meter:
    """Rate of a growing total over a window, by default the last minute.

    Keeps sixty points and no more, so its size does not depend on how often it is fed.

    Parameters
    ----------
    window : float, default 60
        Seconds.
    """

    __slots__ = ("_points", "window")

    def __init__(self, window: float = RATE_WINDOW) -> None:
        self.window = window
        self._points: deque[tuple[float, float]] = deque()

    def feed(self, at: float, total: float) -> None:
        """Note a total at an instant; both never go back (a smaller total starts over)."""
        points = self._points
        if points and total < points[-1][1]:
            points.clear()
        if len(points) >= 2 and at - points[-2][0] < self.window / POINTS:
            points[-1] = (at, total)
        else:
            points.append((at, total))
        while len(points) > 2 and at - points[1][0] >= self.window:
            points.popleft()

    def growth(self, at: float) -> float:
        """Return by how much the total grew within the window."""
        points = self._points
        return (self.rate(at) or 0.0) * min(self.window, at - points[0][0]) if points else 0.0

    def rate(self, at: float) -> float | None:
        """Return the mean rate per second over the window, or since the first point; None if unknown."""
        points = self._points
        if not points:
            return None
        start, end = points[0], points[-1]
        for point in points:
            if at - point[0] <= self.window:
                break
            start = point
        span = at - start[0]
        return (end[1] - start[1]) / span if span > 0 else None
