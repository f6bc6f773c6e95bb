"""Reads single records, from memory or from their segment, and checks each of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dqlab.log.directory import Directory
from dqlab.log.errors import RecordCorrupt, refusal
from dqlab.log.manifest import Catalog
from dqlab.log.records import Position, body_of
from dqlab.log.segment import read_fully
from dqlab.log.tail import Tail

_AHEAD = 1 << 20  # one read from the disk fetches the records behind it too
_OPEN_FILES = 16


class _File:
    """A segment open for reading."""

    __slots__ = ("descriptor", "readers")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.readers = 0


class Reader:
    """Reads records by position, from any thread."""

    def __init__(self, directory: Directory, catalog: Catalog, tail: Tail) -> None:
        self._directory = directory
        self._catalog = catalog
        self._tail = tail
        self._lock = threading.Lock()
        self._files: OrderedDict[int, _File] = OrderedDict()
        # One tuple, replaced as a whole: a thread that reads it without the lock sees one window, old or new.
        self._window: tuple[int, int, bytes] = (0, 0, b"")

    def cached(self, position: Position) -> bytes | None:
        """Return a record's body if that needs no I/O."""
        body = self._tail.body(position)
        if body is not None:
            return body
        segment, offset, _ = position
        record = self._from_window(segment, offset, position.size)
        found = None if record is None else body_of(record, self._catalog.seed(segment))
        return None if found is None else found[1]

    def read(self, position: Position) -> bytes:
        """Return a record's body, and raise what `Log.read` raises."""
        body = self.cached(position)
        if body is not None:
            return body
        segment, offset, _ = position
        try:
            with self._opened(segment) as descriptor:
                window = read_fully(self._directory.files, descriptor, max(_AHEAD, position.size), offset)
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
            # A read in progress finishes: its descriptor stays open until the last reader leaves.
            file = self._files.pop(segment, None)
            if file is not None:
                self._close(file)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            for file in self._files.values():
                self._close(file)
            self._files.clear()

    def _from_window(self, segment: int, offset: int, size: int) -> bytes | None:
        of, start, window = self._window
        at = offset - start
        return window[at : at + size] if of == segment and at >= 0 and at + size <= len(window) else None

    def corrupt(self, position: Position, reason: str) -> RecordCorrupt:
        """Return the error for a record that cannot be read."""
        segment, offset, _ = position
        entry = self._catalog.entry(segment)
        file = entry.name if entry is not None else f"segment {segment}"
        return RecordCorrupt(
            file=str(self._directory / file), offset=offset, size=position.size, reason=reason, position=position
        )

    @contextmanager
    def _opened(self, segment: int) -> Iterator[int]:
        with self._lock:
            file = self._files.get(segment)
            if file is None:
                file = self._files[segment] = _File(self._open(segment))
                if len(self._files) > _OPEN_FILES:
                    self._close(self._files.popitem(last=False)[1])
            self._files.move_to_end(segment)
            file.readers += 1
        try:
            yield file.descriptor
        finally:
            with self._lock:
                file.readers -= 1
                # `is`: the segment may have been opened again under the same number since.
                if self._files.get(segment) is not file:
                    self._close(file)

    def _open(self, segment: int) -> int:
        entry = self._catalog.entry(segment)
        if entry is None:
            raise FileNotFoundError(f"segment {segment} was collected")
        return self._directory.files.open(self._directory / entry.name)

    def _close(self, file: _File) -> None:
        """Close a file that left the table, unless a read is in progress."""
        # Else the last reader closes it.
        if file.readers == 0 and file.descriptor >= 0:
            with suppress(OSError):
                self._directory.files.close(file.descriptor)
            file.descriptor = -1
