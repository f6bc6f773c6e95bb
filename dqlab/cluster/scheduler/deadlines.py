"""When workers in jobs of a batch system must begin to leave. Pure.

Workers report the end of their jobs (`dqlab.cluster.worker.walltime`); the scheduler makes them leave in time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b

from dqlab.cluster.worker.walltime import JobEnd

__all__ = ["Deadlines"]

STAGGER = 0.1
"""Workers begin to leave up to this share of their time earlier or later, so that not all go at once."""
MOST = 0.5
"""Share of its life that a worker may spend on leaving: functions that take longer than a job are not waited for."""
FINAL = 10.0
"""Seconds before the end of a job at which its worker closes, whatever still runs there."""


@dataclass(frozen=True, slots=True)
class _Life:
    ends: float
    drain: float
    had: float
    """Seconds that were left when they were reported."""
    stagger: float
    """From -STAGGER to STAGGER."""

    def leaves(self, longest: float) -> float:
        margin = (self.drain + longest) * (1 + self.stagger)
        return self.ends - min(max(margin, FINAL), MOST * self.had)


class Deadlines:
    """When the jobs of workers end; times are monotonic seconds of one clock.

    Attributes
    ----------
    longest : float
        Seconds in which 95 of 100 documents are done: one that is begun should be done in time.
    """

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self.longest = 0.0

    def __len__(self) -> int:
        return len(self._lives)

    def told(self, worker: str, name: str, end: JobEnd, now: float) -> None:
        """Record what a worker reports about its job."""
        number = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big")
        stagger = STAGGER * (2 * number / 0xFFFFFFFF - 1)
        self._lives[worker] = _Life(now + end.left, end.drain, max(0.0, end.left), stagger)

    def forget(self, worker: str) -> None:
        """Drop a worker that is gone."""
        self._lives.pop(worker, None)

    def due(self, now: float, leaving: Collection[str] = ()) -> list[str]:
        """Return the workers that have to begin to leave, except those that already do."""
        return [
            worker for worker, life in self._lives.items() if worker not in leaving and now >= life.leaves(self.longest)
        ]

    def patience(self, worker: str, now: float) -> float:
        """Return the seconds that what runs on a worker may still take."""
        life = self._lives.get(worker)
        return 0.0 if life is None else max(0.0, life.ends - FINAL - now)

    def soon(self, now: float, within: float) -> tuple[int, float]:
        """Return how many workers are leaving or begin to within `within` seconds, and when the first one does."""
        times = [life.leaves(self.longest) - now for life in self._lives.values()]
        near = [seconds for seconds in times if seconds <= within]
        return len(near), max(0.0, min(near, default=0.0))
