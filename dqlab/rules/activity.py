"""Which lanes of a shard are at work, so that those that ended long ago cost nothing but memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from dqlab.rules.lane import Lane

__all__ = ["Activity"]


class Activity:
    """Lanes that hold something alive, and lanes that have changed.

    A lane notes itself with everything that moves in it. Who looks at the living ones forgets those that have ended
    since, so that nothing has to be noted when the last message of a lane is settled.

    Attributes
    ----------
    changed : dict of bytes to None
        Runs in which something has changed since `take_changed`.
    """

    __slots__ = ("_alive", "_lanes", "changed")

    def __init__(self) -> None:
        self._alive: dict[bytes, Lane] = {}
        self._lanes = 0
        self.changed: dict[bytes, None] = {}

    def number(self) -> int:
        """Return a new lane's number: they take turns in the order in which they were opened."""
        self._lanes += 1
        return self._lanes

    def note(self, lane: Lane) -> None:
        """Note that something moved in a lane."""
        self._alive[lane.run] = lane
        self.changed[lane.run] = None

    def touch(self, run: bytes) -> None:
        """Note that something else is new in a run."""
        self.changed[run] = None

    def forget(self, run: bytes) -> None:
        """Forget a lane that was dropped."""
        self._alive.pop(run, None)
        self.changed.pop(run, None)

    def alive(self) -> Collection[Lane]:
        """Return the lanes that hold ready, delayed or leased messages."""
        for run in [run for run, lane in self._alive.items() if not lane.alive]:
            del self._alive[run]
        return self._alive.values()

    def take_changed(self) -> list[bytes]:
        """Return the runs in which something has changed since the last call."""
        changed, self.changed = list(self.changed), {}
        return changed
