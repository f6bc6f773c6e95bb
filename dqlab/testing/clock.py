"""Time that moves by hand."""

from __future__ import annotations


class FakeClock:
    """A `Clock` that stands still until `advance` moves it.

    Parameters
    ----------
    monotonic : float, default 1000
        Where the monotonic clock starts, seconds.
    wall : float, default 1,700,000,000
        Where the wall clock starts, seconds since 1970-01-01 UTC.
    """

    def __init__(self, monotonic: float = 1000.0, wall: float = 1.7e9) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def monotonic(self) -> float:
        """Return seconds since an arbitrary instant."""
        return self._monotonic

    def wall(self) -> float:
        """Return seconds since 1970-01-01 UTC."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        if seconds < 0:
            raise ValueError(f"time does not go back ({seconds} s)")
        self._monotonic += seconds
        self._wall += seconds

    def set_wall(self, seconds: float) -> None:
        """Set only the wall clock, in either direction, as people and NTP do."""
        self._wall = seconds
