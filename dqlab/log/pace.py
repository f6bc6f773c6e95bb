"""How fast a compaction goes: as fast as it may write, and beside traffic only a part of the time.

Whoever appends to the log shares one interpreter with it, and loses a fraction of a millisecond each time
both want it. The longest waits of appends are spread over more of them, and the same work is done.
"""

from __future__ import annotations

from collections.abc import Callable

from dqlab.clock import Clock
from dqlab.log.files import Files

__all__ = ["GIVE_WAY", "LONGEST_S", "STRETCH_S", "Pace"]

STRETCH_S = 0.0002
"""Seconds of work between two looks at whether there is traffic."""
GIVE_WAY = 8
"""Beside traffic it rests so many times as long as it worked."""
LONGEST_S = 0.01
"""Seconds of one rest at most; work that took longer than that waited for the disk."""


class Pace:
    """Rests of one compaction.

    Parameters
    ----------
    traffic : callable
        Returns a number that changes with every append.
    bytes_per_s : int
        Speed limit of writing.
    """

    def __init__(self, files: Files, clock: Clock, traffic: Callable[[], int], bytes_per_s: int) -> None:
        self._files = files
        self._clock = clock
        self._traffic = traffic
        self._bytes_per_s = bytes_per_s
        self._go_on()

    def worked(self) -> None:
        """Rest, if there was enough work since the last rest, and traffic beside it."""
        took = self._clock.monotonic() - self._since
        if took >= STRETCH_S:
            busy = self._traffic() != self._seen
            self._files.pause(min(GIVE_WAY * took, LONGEST_S) if busy else 0.0)
            self._go_on()

    def wrote(self, size: int) -> None:
        """Rest for as long as writing `size` bytes may take."""
        self._files.pause(size / self._bytes_per_s)
        self._go_on()

    def _go_on(self) -> None:
        self._since, self._seen = self._clock.monotonic(), self._traffic()
