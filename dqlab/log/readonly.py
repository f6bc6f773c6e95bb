"""A log that is only read: nothing in its directory is locked, created, truncated, copied or removed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dqlab.log.errors import ChangedMeanwhile, not_a_log, typed
from dqlab.log.files import CHECKPOINT, SEGMENT, Directory, Files, is_ours
from dqlab.log.manifest import Manifest, SegmentEntry
from dqlab.log.reader import unreadable
from dqlab.log.records import SEGMENT_BYTES, Gap, Position, Record, body_of, read_fully
from dqlab.log.recovery import UUID, Checkpoint, LogReplay, find, header_intact, newest_manifest, read_checkpoint

_PREFIX = slice(52, 60)
"""Where a segment's header has the first bytes of the log's uuid."""


@dataclass(frozen=True)
class SegmentCheck:
    """What a complete reading of one segment found."""

    entry: SegmentEntry
    """As it is listed."""
    size: int
    """Bytes of its file, 0 when it is missing."""
    header: bool
    """Its own header is valid."""
    end: int
    """Behind the last valid record."""
    gaps: tuple[Gap, ...]
    """Bytes that hold no valid record; those at `end` of an open segment are its torn tail."""
    records: int
    """Valid records of the journal."""


class ReadOnlyLog:
    """The files of a log, whether or not a process has it open."""

    def __init__(self, path: Path, manifest: Manifest | None = None) -> None:
        self.directory = path
        self._directory = directory = Directory(path, _ReadingFiles())
        with typed(directory):
            names = directory.names()
            if not any(map(is_ours, names)):
                raise not_a_log(path, names)
            # In force, or the given one in place of one that cannot be read; without segments when the first open did
            # not finish.
            self.manifest = manifest or newest_manifest(directory) or Manifest("0" * 32, 0)
            found = find(directory, self.manifest)
        # Those that can be read, newest last, and those that cannot.
        self.checkpoints, self.damaged = tuple(found.checkpoints), found.damaged + found.refused
        # The manifest with the length of the last segment, as an open would find it.
        self.sealed, self.clean = found.manifest, found.clean
        listed = {entry.name for entry in self.manifest.segments}
        self.missing = tuple(sorted(listed - set(names)))
        self._entries = self.manifest.listed()

    @property
    def changed(self) -> bool:
        """True when another manifest is in force by now, because a process is writing to the log."""
        with self.typed():
            return (newest_manifest(self._directory) or Manifest("0" * 32, 0)) != self.manifest

    def body(self, checkpoint: Checkpoint) -> bytes:
        """Return the journal's state in a checkpoint."""
        with self.typed():
            found = read_checkpoint(self._directory, checkpoint.name, self.manifest.uuid)
        if found is None:
            raise ChangedMeanwhile(directory=str(self.directory))
        return found[1]

    def replay(self, checkpoint: Checkpoint | None) -> LogReplay:
        """Return the journal's records behind a checkpoint (None = all that are left)."""
        return LogReplay(self._directory, self.sealed, checkpoint)

    def record(self, position: Position) -> Record:
        """Return the record at a position, or raise `RecordCorrupt`."""
        segment, offset, _ = position
        entry = self._entries.get(segment)
        if entry is None:
            raise unreadable(self.directory / f"segment {segment}", position, "its segment is not listed")
        if entry.name in self.missing:
            raise unreadable(self.directory / entry.name, position, "its segment is missing")
        found = body_of(self.read(entry.name, offset, position.size), self.manifest.seed(segment))
        if found is None:
            raise unreadable(self.directory / entry.name, position, "its checksum is wrong")
        header, body = found
        return Record(header.type, header.flags, header.messages, header.base, header.aux, body, position)

    def check(self, entry: SegmentEntry) -> SegmentCheck:
        """Read a segment from its first byte to its last."""
        with self.typed(), self._directory.opened(entry.name) as descriptor:
            size = self._directory.files.size(descriptor)
            header = header_intact(self._directory, descriptor, self.manifest, entry)
            limit = size if entry.length is None else entry.length
            scan = self.manifest.scan(self._directory.files, descriptor, entry, start=SEGMENT_BYTES, limit=limit)
            records = sum(1 for _ in scan)
            return SegmentCheck(entry, size, header, scan.end, tuple(scan.gaps), records)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return bytes of a segment, fewer at its end and none when it is missing."""
        with self.typed(), self._directory.opened(name) as descriptor:
            return read_fully(self._directory.files, descriptor, size, offset)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file."""
        with self.typed():
            return {file.name: file.stat().st_size for file in sorted(self.directory.iterdir()) if file.is_file()}

    @contextmanager
    def typed(self) -> Iterator[None]:
        """Turn an OSError into a `refusal`, and the loss of a file that was there into `ChangedMeanwhile`."""
        with typed(self._directory):
            try:
                yield
            except FileNotFoundError as error:
                raise ChangedMeanwhile(directory=str(self.directory)) from error


def listed_by_name(path: Path) -> Manifest:
    """Return a manifest of the files that are there, in place of one that cannot be read."""
    directory = Directory(path, Files())
    with typed(directory):
        names = directory.names()
        segments = {name: directory.read(name) for name in names if SEGMENT.fullmatch(name)}
        checkpoints = {name: directory.read(name)[UUID] for name in names if CHECKPOINT.fullmatch(name)}
    # A record proves by the first half of the uuid that it belongs to the log, a checkpoint by all of it.
    prefixes = Counter(data[_PREFIX] for data in segments.values()).most_common(1)
    prefix = prefixes[0][0] if prefixes else b""
    uuid = next((uuid for uuid in checkpoints.values() if uuid.startswith(prefix)), prefix).ljust(16, b"\0")
    entries = tuple(SegmentEntry(int(name[:10]), int(name[11:21]), length=len(data)) for name, data in segments.items())
    return Manifest(uuid.hex(), entries[-1].epoch if entries else 0, segments=entries, checkpoints=tuple(checkpoints))


class _ReadingFiles(Files):
    """Opens a missing segment as an empty one."""

    def open(self, path: Path, *, write: bool = False) -> int:
        try:
            return super().open(path, write=write)
        except FileNotFoundError:
            if SEGMENT.fullmatch(path.name) is None:
                raise
            # One missing segment must not end a check of the others; `ReadOnlyLog.missing` names it.
            return super().open(Path(os.devnull))
