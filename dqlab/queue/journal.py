"""What the rules tell whoever keeps their messages.

The rules own states; a journal owns bytes. It gives each frame a place, opaque to the rules, and hears of
every change of state, so that it can make the same changes again after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from dqlab.frame import Frame

if TYPE_CHECKING:
    from dqlab.queue.batches import Batch
    from dqlab.queue.lane import Lane
    from dqlab.queue.results import Stretch
    from dqlab.queue.states import State

__all__ = ["Journal", "MemoryJournal"]


class Journal(Protocol):
    """Keeps frames, and hears what becomes of them."""

    def room(self, nbytes: int) -> bool:
        """Return whether a frame of so many bytes can be kept."""

    def put(self, frame: Frame, first: int) -> int:
        """Keep a frame whose first message gets the id `first`; return its place."""

    def moved(
        self, lane: Lane, batch: Batch, a: int, b: int, old: State, new: State, *, suspect: bool, due: int
    ) -> None:
        """Hear that messages `a` to `b` of a batch went from one state to another; see `Lane.move`."""

    def freed(self, batch: Batch) -> None:
        """Hear that no message of a batch is needed any more, whatever its states say."""

    def forgot(self, results: Iterable[Stretch]) -> None:
        """Hear that results are needed no more."""


class MemoryJournal:
    """Keeps frames in memory, by their first id, and forgets them when they are freed."""

    def __init__(self) -> None:
        self.frames: dict[int, Frame] = {}

    def room(self, nbytes: int) -> bool:
        """Return True: the bounds of lanes are all there is."""
        return True

    def put(self, frame: Frame, first: int) -> int:
        """Keep a frame; its place is its first id."""
        self.frames[first] = frame
        return first

    def moved(
        self, lane: Lane, batch: Batch, a: int, b: int, old: State, new: State, *, suspect: bool, due: int
    ) -> None:
        """Do nothing: what is in memory ends with the process."""

    def freed(self, batch: Batch) -> None:
        """Forget a frame."""
        del self.frames[batch.first]

    def forgot(self, results: Iterable[Stretch]) -> None:
        """Do nothing: it keeps no results."""
