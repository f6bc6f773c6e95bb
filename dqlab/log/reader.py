"""Records by position: the newest in memory, not yet synced or likely to be read soon; others from their segment."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from dqlab.log.errors import RecordCorrupt, refusal
from dqlab.log.files import Directory, Files
from dqlab.log.manifest import Catalog
from dqlab.log.records import Position, body_of, read_fully

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


_AHEAD = 1 << 20  # one read from the disk fetches the records behind it too
_OPEN_FILES = 16


class _File:
    """A segment open for reading, until nobody holds it: a read in progress does, though it left the table."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self.descriptor = files.open(path)

    def read(self, size: int, offset: int) -> bytes:
        """Return bytes at an offset, fewer only at the end of the file."""
        try:
            return read_fully(self._files, self.descriptor, size, offset)
        finally:
            del self  # who keeps an error keeps this frame, and the file would stay open

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):  # of a file that could not be opened
            self._files.close(self.descriptor)


def unreadable(file: Path, position: Position, reason: str) -> RecordCorrupt:
    """Return the error for a record of a file that cannot be read."""
    _, offset, size = position
    return RecordCorrupt(file=str(file), offset=offset, size=size, reason=reason, position=position)


class Reader:
    """Reads records by position, from any thread."""

    def __init__(self, directory: Directory, catalog: Catalog, tail: Tail) -> None:
        self._directory = directory
        self._catalog = catalog
        self._tail = tail
        self._lock = threading.Lock()
        self._files: OrderedDict[int, _File] = OrderedDict()  # the last read one at the end
        # One tuple, replaced as a whole: a thread that reads it without the lock sees one window, old or new.
        self._window: tuple[int, int, bytes] = (0, 0, b"")

    def cached(self, position: Position) -> bytes | None:
        """Return a record's body if that needs no I/O."""
        body = self._tail.body(position)
        if body is not None:
            return body
        record = self._from_window(*position)
        found = None if record is None else body_of(record, self._catalog.seed(position.segment))
        return None if found is None else found[1]

    def read(self, position: Position) -> bytes:
        """Return a record's body, and raise what `Log.read` raises."""
        body = self.cached(position)
        if body is not None:
            return body
        segment, offset, _ = position
        try:
            window = self._opened(segment).read(max(_AHEAD, position.size), offset)
        except FileNotFoundError as error:
            raise self.corrupt(position, f"{type(error).__name__}: {error}") from error
        except OSError as error:
            self.retire(segment)  # opened again for the next read: a handle that is stale stays stale
            raise refusal(error, self._directory) from error
        if len(window) < position.size:
            raise self.corrupt(position, "the file ends before it does")
        self._window = (segment, offset, window)
        found = body_of(window[: position.size], self._catalog.seed(segment))
        if found is None:
            raise self.corrupt(position, "its checksum is wrong")
        return found[1]

    def retire(self, segment: int) -> None:
        """Forget a deleted segment."""
        with self._lock:
            self._files.pop(segment, None)

    def close(self) -> None:
        """Close all files that no read uses."""
        with self._lock:
            self._files.clear()

    def _from_window(self, segment: int, offset: int, size: int) -> bytes | None:
        of, start, window = self._window
        at = offset - start
        return window[at : at + size] if of == segment and at >= 0 and at + size <= len(window) else None

    def corrupt(self, position: Position, reason: str) -> RecordCorrupt:
        """Return the error for a record that cannot be read."""
        entry = self._catalog.manifest.listed().get(position.segment)
        name = entry.name if entry is not None else f"segment {position.segment}"
        return unreadable(self._directory / name, position, reason)

    def _opened(self, segment: int) -> _File:
        with self._lock:
            file = self._files.get(segment)
            if file is None:
                entry = self._catalog.manifest.listed().get(segment)
                if entry is None:
                    raise FileNotFoundError(f"segment {segment} was collected")
                file = self._files[segment] = _File(self._directory.files, self._directory / entry.name)
                if len(self._files) > _OPEN_FILES:
                    self._files.popitem(last=False)
            self._files.move_to_end(segment)
            return file
