"""What a slot has been running for long: looked at now and then, so that short messages cost nothing."""

from __future__ import annotations

from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.texts import brief

__all__ = ["Begun"]

MOST = 300
"""Characters of a document's key in a report."""
SAY_AFTER, SAY_EVERY = 1.0, 5.0
"""Seconds after which a running message is worth a report, and between two reports of it."""


class Begun:
    """The message that a slot was found running, and since when."""

    def __init__(self) -> None:
        self._chunk: Chunk | None = None
        self._index: int | None = None
        self._since = self._said = 0.0

    def look(self, chunk: Chunk, now: float) -> bool:
        """Note what runs; return whether that is worth a report. `now` is seconds on a steady clock."""
        index = chunk.running
        if chunk is not self._chunk or index != self._index:
            self._chunk, self._index = chunk, index
            self._since, self._said = now, now + SAY_AFTER - SAY_EVERY
        if index is None or now - self._said < SAY_EVERY:
            return False
        self._said = now
        return True

    def forget(self) -> None:
        """Note that nothing runs."""
        self._chunk = self._index = None

    def oldest(self, now: float) -> tuple[str, float] | None:
        """Return the name of the message that runs, and for how many seconds it was seen to."""
        chunk, index = self._chunk, self._index
        if chunk is None or index is None or chunk.running != index:
            return None
        return brief(chunk.name_of(index), MOST), now - self._since
