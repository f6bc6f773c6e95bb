"""Measure what grows, and keep how it was, in a fixed amount of memory.

A meter has the rate of a total. A ring has values over time, fine for the last minutes and coarse for the last day:
gauges, which hold until the next value, and flows, whose amounts are added up. Values are float32; a slot is written
when something happens, and costs nothing while nothing does.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from math import ceil, floor

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

    def lasting(self, at: float) -> float | None:
        """Return the rate as it was while there was work, or None if unknown."""
        # Nothing after the work stopped counts: this is the rate at which work would continue.
        return self.rate(self._until(at))

    def span(self, at: float) -> float:
        """Return the seconds of the window in which there was work."""
        return min(self.window, self._until(at) - self._points[0][0]) if self._points else 0.0

    def _until(self, at: float) -> float:
        return min(at, self._points[-1][0] + self._lasts) if self._points else at


BANDS = ((1.0, 900), (60.0, 1440))
"""Seconds in a slot, and slots: a quarter of an hour by seconds, a day by minutes."""


class _Band:
    """Slots of one length, in seconds, that are overwritten in turn."""

    __slots__ = ("newest", "seconds", "stamps", "values", "width")

    def __init__(self, seconds: float, slots: int, width: int) -> None:
        self.seconds, self.width, self.newest = seconds, width, -1
        # Each place has the number of its slot since 1970, -1 for none: a place with an older number is stale.
        self.stamps = array("q", [-1]) * slots
        self.values = array("f", bytes(4 * slots * width))

    def note(self, at: float, gauges: Sequence[float], flows: Sequence[float]) -> None:
        slot = floor(at / self.seconds)
        place = slot % len(self.stamps)
        start = place * self.width
        middle = start + len(gauges)
        if self.stamps[place] != slot:
            self.stamps[place] = slot
            self.newest = max(self.newest, slot)
            # Only flows start at zero: the gauges of the new slot are written below.
            self.values[middle : start + self.width] = array("f", bytes(4 * len(flows)))
        self.values[start:middle] = array("f", gauges)
        for offset, amount in enumerate(flows):
            if amount:
                self.values[middle + offset] += amount

    def forget_after(self, at: float) -> None:
        last = floor(at / self.seconds)
        self.newest = -1
        for place, slot in enumerate(self.stamps):
            if slot > last:
                self.stamps[place] = -1
            else:
                self.newest = max(self.newest, slot)

    @property
    def oldest(self) -> float:
        """Start of the oldest slot that fits, seconds since 1970 UTC."""
        return (self.newest - len(self.stamps) + 1) * self.seconds

    def slots(self, since: float) -> Iterator[tuple[float, array[float]]]:
        """Yield the start and the values of each slot written since an instant, oldest first."""
        size, width = len(self.stamps), self.width
        first = max(self.newest - size + 1, 0 if since < 0 else floor(since / self.seconds))
        for slot in range(first, self.newest + 1):
            place = slot % size
            if self.stamps[place] == slot:
                yield slot * self.seconds, self.values[place * width : (place + 1) * width]


class Ring:
    """Gauges and flows over time, in bands of slots, the finest band first."""

    def __init__(self, gauges: int, flows: int = 0, *, bands: Sequence[tuple[float, int]] = BANDS) -> None:
        self._gauges, self._flows = gauges, flows
        self._bands = [_Band(seconds, slots, gauges + flows) for seconds, slots in bands]
        self.born: float | None = None
        """Seconds since 1970 UTC of the first value."""

    @property
    def nbytes(self) -> int:
        """Bytes of its slots."""
        return sum(8 * len(band.stamps) + 4 * len(band.values) for band in self._bands)

    def note(self, at: float, gauges: Sequence[float] = (), flows: Sequence[float] = ()) -> None:
        """Set the gauges and add to the flows in the slot of an instant, seconds since 1970 UTC."""
        if self.born is None:
            self.born = at
        for band in self._bands:
            band.note(at, gauges, flows)

    def forget_after(self, at: float) -> None:
        """Drop values noted for later than an instant, because the clock was ahead and is right now."""
        if self.born is not None and self.born > at:
            self.born = at
        for band in self._bands:
            # A newest slot in the future would make all later values too old to be shown.
            if band.newest * band.seconds > at:
                band.forget_after(at)

    def gauges(self, t0: float, step: float, points: int) -> list[list[float | None]]:
        """Return each gauge at ``t0 + i * step``, None before the first value still known."""
        rows: list[tuple[float | None, ...]] = []
        last: tuple[float | None, ...] = (None,) * self._gauges
        for at, _, values in self._slots(float("-inf")):
            while len(rows) < points and t0 + len(rows) * step < at:
                rows.append(last)
            last = tuple(values[: self._gauges])
        rows += [last] * (points - len(rows))
        return [list(series) for series in zip(*rows, strict=True)]

    def finest(self, since: float) -> Iterator[tuple[float, ...]]:
        """Yield the gauges and flows of each slot of the finest band written since an instant."""
        return (tuple(values) for _, values in self._bands[0].slots(since))

    def rates(self, t0: float, step: float, points: int) -> list[list[float | None]]:
        """Return each flow per second over the `step` seconds up to ``t0 + i * step``, None before the first value."""
        start, born = t0 - step, self.born
        if born is None:
            return [[None] * points for _ in range(self._flows)]
        amounts = [[0.0] * points for _ in range(self._flows)]
        for at, seconds, values in self._slots(start):
            # The first coarse slot began before the first value: its amount belongs to the time since then.
            begin, end = max(at, floor(born)), at + seconds
            for series, amount in zip(amounts, values[self._gauges :], strict=True):
                _share_out(series, (begin - start) / step, (end - begin) / step, amount)
        unknown = min(points, max(0, ceil((floor(born) - t0) / step)))
        return [[None] * unknown + [amount / step for amount in series[unknown:]] for series in amounts]

    def amounts(self, index: int, *, now: float, slots: int) -> list[int]:
        """Return the sum of a flow in each of the last slots of the finest band, the present slot last."""
        band = self._bands[0]
        present = floor(now / band.seconds)
        found = dict.fromkeys(range(present - slots + 1, present + 1), 0)
        for at, values in band.slots((present - slots + 1) * band.seconds):
            slot = round(at / band.seconds)
            if slot in found:
                found[slot] = round(values[self._gauges + index])
        return list(found.values())

    def _slots(self, since: float) -> Iterator[tuple[float, float, array[float]]]:
        """Yield start, seconds and values of the slots written since an instant, oldest first."""
        # Each coarse band ends where the finer one begins, at a border of its own slots: no instant counts twice.
        *coarse, fine = reversed(self._bands)
        border = since
        for band in coarse:
            end = ceil(fine.oldest / band.seconds) * band.seconds
            for at, values in band.slots(border):
                if at < end:
                    yield at, band.seconds, values
            border = max(border, end)
        for at, values in fine.slots(border):
            if at >= border:
                yield at, fine.seconds, values


def _share_out(amounts: list[float], start: float, length: float, amount: float) -> None:
    """Spread an amount evenly over the cells from `start` on, where cell i lasts from i to i + 1."""
    if not amount:
        return
    end = start + length
    cell = max(0, floor(start))
    while cell < len(amounts) and cell < end:
        overlap = min(end, cell + 1) - max(start, cell)
        if overlap > 0:
            amounts[cell] += amount * overlap / length
        cell += 1
