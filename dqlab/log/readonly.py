"""A log that is only read: nothing in its directory is locked, created, truncated, copied or removed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dqlab.log.checkpoints import Checkpoint, read_checkpoint
from dqlab.log.directory import MANIFEST, QUARANTINE, RESERVE, SEGMENT, Directory, is_ours, manifest_name, shown
from dqlab.log.errors import ChangedMeanwhile, NotALog, RecordCorrupt, typed
from dqlab.log.files import Files
from dqlab.log.manifest import Manifest, SegmentEntry, resolve
from dqlab.log.records import Position, Record, body_of
from dqlab.log.recovery import LogReplay, find, header_intact, is_leftover, newest_manifest
from dqlab.log.segment import SEGMENT_BYTES, Gap, read_fully
from dqlab.log.space import Usage

__all__ = ["ReadOnlyLog", "SegmentCheck"]


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
    late: int
    """Bytes behind the length that counts, which are never read."""


class ReadOnlyLog:
    """The files of a log, whether or not a process has it open."""

    def __init__(self, path: Path, manifest: Manifest | None = None) -> None:
        self.directory = path
        self._directory = directory = Directory(path, _ReadingFiles())
        with typed(directory):
            names = directory.names()
            if not any(map(is_ours, names)):
                raise NotALog(directory=str(path), names=shown(names) or "nothing")
            # In force, or the given one in place of one that cannot be read; without segments when the first open did
            # not finish.
            self.manifest = manifest or newest_manifest(directory) or Manifest("0" * 32, 0)
            found = find(directory, self.manifest)
        # Those that can be read, newest last, and those that cannot.
        self.checkpoints, self.damaged = tuple(found.checkpoints), found.damaged + found.refused
        # The manifest with the length of the last segment, as an open would find it.
        self.sealed, self.clean, self.torn_bytes = found.manifest, found.clean, found.torn_bytes
        listed = {entry.name for entry in self.manifest.segments}
        # Listed segments that are missing; below, `extra` are files that no manifest lists.
        self.missing = tuple(sorted(listed - set(names)))
        known = listed | set(self.manifest.checkpoints)
        epoch = self.manifest.epoch
        self.extra = tuple(name for name in names if name not in known and is_leftover(name, epoch))
        self._continued = self.manifest.continued()
        self._entries = self.manifest.listed()

    @property
    def format(self) -> str:
        """The format stated in the manifest in force, "" when there is none."""
        with self.typed():
            epochs = self._directory.numbered(MANIFEST)
            if not epochs:
                return ""
            text = self._directory.read(manifest_name(epochs[-1])).rpartition(b"crc32")[0]
        return ".".join(map(str, json.loads(text)["format"]))

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
        """Return the journal's records behind a checkpoint (None = all that are left), and copy no damage."""
        return LogReplay(self._directory, self.sealed, checkpoint, keep=lambda *_: "")

    def record(self, position: Position) -> Record:
        """Return the record at a position, or raise `RecordCorrupt`."""
        segment, offset = resolve(self._continued, position.segment, position.offset)
        entry = self._entries.get(segment)
        if entry is None:
            raise self._corrupt(f"segment {segment}", offset, position, "its segment is not listed")
        if entry.name in self.missing:
            raise self._corrupt(entry.name, offset, position, "its segment is missing")
        found = body_of(self.read(entry.name, offset, position.size), self.manifest.seed(segment))
        if found is None:
            raise self._corrupt(entry.name, offset, position, "its checksum is wrong")
        header, body = found
        return Record(header.type, header.flags, header.count, header.base, header.aux, body, position)

    def check(self, entry: SegmentEntry) -> SegmentCheck:
        """Read a segment from its first byte to its last."""
        with self.typed(), self._directory.opened(entry.name) as descriptor:
            size = self._directory.files.size(descriptor)
            header = header_intact(self._directory, descriptor, self.manifest, entry)
            limit = size if entry.length is None else entry.length
            scan = self.manifest.scan(self._directory.files, descriptor, entry, start=SEGMENT_BYTES, limit=limit)
            records = sum(1 for _ in scan)
            return SegmentCheck(entry, size, header, scan.end, tuple(scan.gaps), records, max(0, size - limit))

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Return bytes of a segment, fewer at its end and none when it is missing."""
        with self.typed(), self._directory.opened(name) as descriptor:
            return read_fully(self._directory.files, descriptor, size, offset)

    def usage(self, needed: int) -> Usage:
        """Return what the directory holds, given how many of its bytes are needed."""
        sizes = self.sizes()
        segments = sum(size for name, size in sizes.items() if SEGMENT.fullmatch(name))
        checkpoints = sum(sizes.get(name, 0) for name in self.manifest.checkpoints)
        quarantined = self.quarantined()
        with self.typed():
            kept_aside = sum((self.directory / name).stat().st_size for name in quarantined)
        return Usage(
            segments=segments,
            needed=needed,
            checkpoints=checkpoints,
            quarantine=kept_aside,
            reserve=sizes.get(RESERVE, 0),
            files=len(sizes) + len(quarantined),
        )

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file."""
        with self.typed():
            return {file.name: file.stat().st_size for file in sorted(self.directory.iterdir()) if file.is_file()}

    def quarantined(self) -> list[str]:
        """Return the files in quarantine, relative to the log's directory."""
        with self.typed():
            try:
                return [f"{QUARANTINE}/{name}" for name in self._directory.files.names(self.directory / QUARANTINE)]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def whole(self, name: str) -> bytes:
        """Return a file's bytes."""
        with self.typed():
            return self._directory.read(name)

    def _corrupt(self, name: str, offset: int, position: Position, reason: str) -> RecordCorrupt:
        file = str(self.directory / name)
        return RecordCorrupt(file=file, offset=offset, size=position.size, reason=reason, position=position)

    @contextmanager
    def typed(self) -> Iterator[None]:
        """Turn an OSError into a `refusal`, and the loss of a file that was there into `ChangedMeanwhile`."""
        with typed(self._directory):
            try:
                yield
            except FileNotFoundError as error:
                raise ChangedMeanwhile(directory=str(self.directory)) from error


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
