"""The newest records, in memory: not yet written, not yet synced, and synced but likely to be read soon."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

from dqlab.log.records import Position

_CACHED_BYTES = 8 << 20
_ENTRY_BYTES = 400  # memory that Python takes for one record beside its body
_WRITE_RECORDS = 500  # two buffers each, of the 1,024 that one call may have
_WRITE_BYTES = 1 << 30


class AppendedRecord(NamedTuple):
    """One appended record."""

    position: Position
    """Its permanent place, as the journal knows it."""
    header: bytes
    body: bytes


class Tail:
    """Keeps appended records in order, guarded by the writer's memory lock."""

    def __init__(self) -> None:
        self._unwritten: deque[AppendedRecord] = deque()
        self._unsynced: deque[AppendedRecord] = deque()
        self._synced: deque[AppendedRecord] = deque()
        self._bodies: dict[Position, bytes] = {}
        self._synced_bytes = 0
        self.unwritten_bytes = self.unsynced_bytes = 0

    def __len__(self) -> int:
        """Return the number of records that are not yet written."""
        return len(self._unwritten)

    def body(self, position: Position) -> bytes | None:
        """Return a record's body if it is in memory."""
        # Without a lock, because it is one look into one dict: readers call it on the event loop, which must not wait
        # for a commit.
        return self._bodies.get(position)

    def append(self, entry: AppendedRecord) -> None:
        """Add a record."""
        self._unwritten.append(entry)
        self.unwritten_bytes += entry.position.size
        self._bodies[entry.position] = entry.body

    def next_write(self, limit: int) -> tuple[list[AppendedRecord], int]:
        """Return up to `limit` records that one call can write, neighbours in one segment, and their bytes."""
        entries: list[AppendedRecord] = []
        total = 0
        for entry in islice(self._unwritten, min(limit, _WRITE_RECORDS)):
            size = entry.position.size
            if entries and (entry.position.segment != entries[0].position.segment or total + size > _WRITE_BYTES):
                break
            entries.append(entry)
            total += size
        return entries, total

    def written(self, entries: list[AppendedRecord], nbytes: int) -> None:
        """Note that the records from `next_write` were written."""
        for _ in entries:
            self._unwritten.popleft()
        self._unsynced += entries
        self.unwritten_bytes -= nbytes
        self.unsynced_bytes += nbytes

    def synced(self) -> None:
        """Note that all written records were synced, and forget the oldest synced ones above 8 MiB."""
        self._synced += self._unsynced
        self._synced_bytes += self.unsynced_bytes + _ENTRY_BYTES * len(self._unsynced)
        self._unsynced.clear()
        self.unsynced_bytes = 0
        while self._synced_bytes > _CACHED_BYTES:
            entry = self._synced.popleft()
            self._synced_bytes -= entry.position.size + _ENTRY_BYTES
            self._bodies.pop(entry.position, None)
