"""Counts needed bytes and free space."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from dqlab.clock import Clock
from dqlab.log.directory import Directory

_LOOK_EVERY_S = 1.0
_LOOK_EVERY_BYTES = 1 << 20


@dataclass(frozen=True)
class Usage:
    """What a log's directory holds, in bytes."""

    segments: int
    """All segments, with records appended and not yet written."""
    needed: int
    """The part of the segments that the journal needs."""
    checkpoints: int

    @property
    def total(self) -> int:
        """Everything together."""
        return self.segments + self.checkpoints


class Needed:
    """Bytes that the journal still needs, by segment."""

    def __init__(self) -> None:
        self._table: dict[int, int] = {}
        self._lock = threading.Lock()

    def __getitem__(self, segment: int) -> int:
        return self._table.get(segment, 0)

    def add(self, segment: int, nbytes: int) -> None:
        """Count bytes as needed."""
        with self._lock:
            self._table[segment] = self._table.get(segment, 0) + nbytes

    def take(self, segment: int, nbytes: int) -> None:
        """Count bytes as no longer needed, or raise ValueError if fewer were."""
        # Fewer means that the journal's books are wrong. Stopping here keeps the files: at a count of 0 they would be
        # deleted, with messages that are still needed.
        with self._lock:
            left = self._table.get(segment, 0) - nbytes
            if left < 0:
                raise ValueError(f"{nbytes} bytes of segment {segment} freed, {left + nbytes} were needed")
            self._table[segment] = left

    def forget(self, segment: int) -> None:
        """Drop a deleted segment."""
        with self._lock:
            self._table.pop(segment, None)

    def table(self) -> dict[int, int]:
        """Return bytes by segment, without zeros."""
        with self._lock:
            return {segment: nbytes for segment, nbytes in self._table.items() if nbytes}


class FreeSpace:
    """The disk's free bytes, as of the last look."""

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._looked_at = float("-inf")
        self._free = 0
        self._written = 0

    def left(self, written: int) -> int:
        """Return the free bytes, given the total of bytes appended since the log was opened."""
        return self._free - (written - self._written)

    def look(self, written: int) -> None:
        """Look again if the last look is a second or a MiB ago."""
        now = self._clock.monotonic()
        if now - self._looked_at < _LOOK_EVERY_S and written - self._written < _LOOK_EVERY_BYTES:
            return
        # In this order: `left` reads both in another thread without a lock. In between, what was written since the last
        # look is subtracted twice, which is too little room for a moment and never too much.
        self._free = self._directory.files.free_bytes(self._directory.path)
        self._looked_at, self._written = now, written
