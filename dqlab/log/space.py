"""Counts needed bytes and free space, and keeps a reserve for a full disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from dqlab.clock import Clock
from dqlab.log.directory import RESERVE, TEMPORARY, Directory
from dqlab.log.errors import NO_SPACE, DiskFull, disk_full

_LOOK_EVERY_S = 1.0
_LOOK_EVERY_BYTES = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True)
class Usage:
    """What a log's directory holds, in bytes."""

    segments: int
    """All segments, with records appended and not yet written."""
    needed: int
    """The part of the segments that the journal needs."""
    checkpoints: int
    reserve: int

    @property
    def total(self) -> int:
        """Everything together."""
        return self.segments + self.checkpoints + self.reserve


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


class Reserve:
    """A file that only takes up room, deleted when the disk is full."""

    def __init__(self, directory: Directory, size: int) -> None:
        self._directory = directory
        self.size = size
        # While it is deleted, no new messages should be accepted: its room is for settlements and checkpoints.
        self.present = size == 0 or RESERVE in directory.names()

    @property
    def nbytes(self) -> int:
        """Bytes it takes up now."""
        return self.size if self.present else 0

    def release(self) -> bool:
        """Delete it, and return False when that freed nothing."""
        if not self.present or self.size == 0:
            return False
        self.present = False  # first: from here on `Log.room`, in another thread, accepts nothing
        try:
            self._directory.files.unlink(self._directory / RESERVE)
        except OSError:
            return False
        return True

    def restore(self) -> None:
        """Create it again if the disk has twice its size."""
        if self.present:
            return
        directory, files = self._directory, self._directory.files
        try:
            # Twice, so that restoring it does not make the disk full again.
            if files.free_bytes(directory.path) < 2 * self.size:
                return
            descriptor = directory.create_temporary(RESERVE + TEMPORARY)
        except OSError:
            return
        try:
            # Without syncs: a reserve that a power cut takes is made again.
            files.allocate(descriptor, self.size)
            files.rename(directory / (RESERVE + TEMPORARY), directory / RESERVE)
        except OSError:
            directory.abandon(descriptor, RESERVE + TEMPORARY)
            return
        with suppress(OSError):
            files.close(descriptor)
        self.present = True

    def try_twice(self, step: Callable[[], T]) -> T:
        """Return the result of a step, repeated once if it fails, without the reserve if the disk is full."""
        # Any error is tried once more, not only a full disk: most errors of a file server are gone then. So a step must
        # be repeatable from its start.
        try:
            return step()
        except OSError as error:
            if error.errno in NO_SPACE and not self.release():
                raise self.full(0) from error
        try:
            return step()
        except OSError as error:
            if error.errno in NO_SPACE:
                raise self.full(0) from error
            raise

    def full(self, needed: int) -> DiskFull:
        """Return the error for a full disk."""
        return disk_full(self._directory, needed)


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

    def look(self, written: int) -> bool:
        """Look again if the last look is a second or a MiB ago, and return whether this looked."""
        now = self._clock.monotonic()
        if now - self._looked_at < _LOOK_EVERY_S and written - self._written < _LOOK_EVERY_BYTES:
            return False
        # In this order: `left` reads both in another thread without a lock. In between, what was written since the last
        # look is subtracted twice, which is too little room for a moment and never too much.
        self._free = self._directory.files.free_bytes(self._directory.path)
        self._looked_at, self._written = now, written
        return True
