"""What the stamps of a run's calls say of a consumer that died in the middle of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import WrongAnswer

__all__ = ["Stamps"]

WINDOW_S = 0.1
"""Seconds from the beginning of one window to that of the next; each is half a second long."""
GOES_ON = 0.7
"""Share of the throughput before at which work goes on: three of four consumers have three quarters."""


@dataclass(frozen=True)
class Stamps:
    """When each call ended, and in which process; `died` is when one of `consumers` was killed."""

    calls: Sequence[tuple[float, int]]
    died: float
    consumers: int

    def goes_on(self) -> float:
        """Return the seconds from the death until work goes on as fast as without the one that died.

        Raises
        ------
        WrongAnswer
            It never did before the run was over.
        """
        before = sum(self.died - 1.0 <= at < self.died for at, _ in self.calls)
        left = max(at for at, _ in self.calls) - self.died - 0.5  # a window that the end of the run cuts says nothing
        for window in range(int(left / WINDOW_S) + 1):
            after = window * WINDOW_S
            if self._rate(self.died + after) >= GOES_ON * before:
                return after
        raise WrongAnswer(f"{GOES_ON:.0%} of {before} calls a second were not reached in {left:.1f} s after the death")

    def replaced(self) -> float:
        """Return the seconds from the death to the first answer of a process that gave none before.

        Raises
        ------
        WrongAnswer
            There is none, or not all consumers had answered before the death.
        """
        known = {process for at, process in self.calls if at < self.died}
        if len(known) < self.consumers:
            raise WrongAnswer(f"{len(known)} of {self.consumers} consumers had answered before one was killed")
        new = [at for at, process in self.calls if process not in known]
        if not new:
            last = max(at for at, _ in self.calls) - self.died
            raise WrongAnswer(f"the consumer that died was not replaced in the {last:.1f} s until the run was over")
        return min(new) - self.died

    def _rate(self, start: float) -> float:
        """Return the messages per second that end in the half second from `start` on."""
        return 2 * sum(start <= at < start + 0.5 for at, _ in self.calls)
