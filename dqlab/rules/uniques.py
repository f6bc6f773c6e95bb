"""Which message a key stands for, so that what is queued, or was lately, is not queued again."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab.rules.lane import Lane
from dqlab.rules.states import STATES, State

FEW = 1000
"""Keys that are kept without a look at whether they still hold."""


class Uniques:
    """Keys of plain puts."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, float]] = {}
        self._look_at = FEW

    def note(self, key: bytes, id: int, until: float) -> None:
        """Let a key stand for a message while that waits or runs, and until a time, seconds since 1970."""
        self._known[key] = id, until

    def find(self, key: bytes, lane: Lane, now: float) -> int | None:
        """Return the message that a key stands for at `now`, seconds since 1970, or None if it is free."""
        if len(self._known) > self._look_at:
            self._known = {key: (id, until) for key, id, until in self.holding(lane, now)}
            self._look_at = max(FEW, 2 * len(self._known))
        known = self._known.get(key)
        return None if known is None or not _holds(*known, lane, now) else known[0]

    def holding(self, lane: Lane, now: float) -> Iterator[tuple[bytes, int, float]]:
        """Yield key, id and end of those that still hold."""
        return ((key, id, until) for key, (id, until) in self._known.items() if _holds(id, until, lane, now))


def _holds(id: int, until: float, lane: Lane, now: float) -> bool:
    found = lane.batches.at(id)
    if found is None:  # settled
        return now < until
    state = STATES[found[0].states[found[1]]]
    return state.alive or (now < until and state is not State.DEAD)
