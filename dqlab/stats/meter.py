"""Measure the rates of totals that grow."""

from __future__ import annotations

import math
from collections import deque

RATE_WINDOW = 60.0
"""Seconds over which rates are measured."""
POINTS = 60
"""Points in a window."""
STALL = 5.0
"""Seconds without work that still count as part of a slow flow of work."""

SEEN_WITHIN = 1.0
"""Seconds within which a restart of work is noticed."""


class Meter:
    """Rate of a growing total over a window of seconds."""

    # Sixty points and no more: the size must not depend on how often it is fed.
    __slots__ = ("_points", "window")

    def __init__(self, window: float = RATE_WINDOW) -> None:
        self.window = window
        self._points: deque[tuple[float, float]] = deque()

    def feed(self, at: float, total: float) -> None:
        """Note a total at an instant, where a smaller total than before starts over."""
        points = self._points
        if points and total < points[-1][1]:
            points.clear()
        # Compare with the last point but one: the newest point moves until a sixtieth of the window has passed.
        if len(points) >= 2 and at - points[-2][0] < self.window / POINTS:
            points[-1] = (at, total)
        else:
            points.append((at, total))
        while len(points) > 2 and at - points[1][0] >= self.window:
            points.popleft()

    def had(self, total: float) -> None:
        """Correct the total without a rate, because its parts became more or fewer."""
        if self._points:
            more = total - self._points[-1][1]
            self._points = deque((at, then + more) for at, then in self._points)

    @property
    def total(self) -> float:
        """The newest total, 0 before the first."""
        return self._points[-1][1] if self._points else 0.0

    def growth(self, at: float) -> float:
        """Return how much the total grew within the window."""
        points = self._points
        return (self.rate(at) or 0.0) * min(self.window, at - points[0][0]) if points else 0.0

    def rate(self, at: float, *, over: float = 0.0) -> float | None:
        """Return the mean rate per second over the window, or since the first point, or None if unknown."""
        points = self._points
        if not points:
            return None
        start, end = points[0], points[-1]
        for point in points:
            if at - point[0] <= self.window:
                break
            start = point
        # The total is still at `end` now: a window without feeds lowers the rate. `over` covers time before the first
        # point, in which the total stood still.
        span = max(at - max(start[0], at - self.window), min(over, self.window))
        return (end[1] - start[1]) / span if span > 0 else None

    def span(self, at: float) -> float:
        """Return the seconds of the window since the first point."""
        return min(self.window, at - self._points[0][0]) if self._points else 0.0


class Speed(Meter):
    """Rate of a growing total over the last minute in which there was work."""

    # Time without work is cut out together with its growth: older points move towards now, so the rate from before the
    # gap stays known. Until the next feed, a running gap counts for `rate` (what happens now), not for `lasting`.
    __slots__ = ("_lasts", "gaps")

    def __init__(self) -> None:
        super().__init__()
        self._lasts = math.inf
        self.gaps = 0
        """How often time was left out."""

    def feed(self, at: float, total: float, *, lasts: float = math.inf) -> None:
        """Note a total at an instant, and for how many seconds at most the time until the next feed counts as work."""
        points = self._points
        if points and total >= points[-1][1]:
            last, stood = points[-1]
            # At rest since the last feed. A new point here would restart the allowance, and the gap would never be cut.
            if total == stood and self._lasts < math.inf and lasts < math.inf:
                self._lasts = min(self._lasts, lasts)
                return
            if at - last > self._lasts:
                self.gaps += 1
                later, more = at - last, total - stood
                for place, (before, then) in enumerate(points):
                    # Rounding must not carry a point past the newest: times and totals never go back.
                    points[place] = (min(at, before + later), min(total, then + more))
                points[-1] = (at, total)
        super().feed(at, total)
        self._lasts = lasts

    def interrupt(self) -> None:
        """Leave out the time from the last feed to the next."""
        self._lasts = 0.0

    def start_over(self, at: float) -> None:
        """Forget the time before a rest that has just ended, so that the rate is measured from that end."""
        if self._points:
            last, total = self._points[-1]
            # The end of the rest is noticed a moment late: what was done up to now took up to a second.
            self._points = deque([(max(last, at - SEEN_WITHIN), total)])
            self._lasts = math.inf
            self.gaps += 1

    def leave_out(self, since: float, until: float) -> None:
        """Leave out the time between two instants and the growth in it, where nothing was fed after the second."""
        points, kept = self._points, deque[tuple[float, float]]()
        if not points or until <= max(since, points[0][0]):
            return
        start = max(since, points[0][0])
        stood, end = next(total for at, total in reversed(points) if at <= start), points[-1][1]
        for at, total in points:
            if at <= start:
                kept.append((at + until - start, total + end - stood))
        if kept[-1][0] < until:
            kept.append((until, end))
        self._points = kept

    def lasting(self, at: float) -> float | None:
        """Return the rate as it was while there was work, or None if unknown."""
        # Nothing after the work stopped counts: this is the rate at which work would continue.
        return self.rate(self._until(at))

    def span(self, at: float) -> float:
        """Return the seconds of the window in which there was work."""
        return min(self.window, self._until(at) - self._points[0][0]) if self._points else 0.0

    def _until(self, at: float) -> float:
        return min(at, self._points[-1][0] + self._lasts) if self._points else at
