"""Reads the files that earlier sessions left; both opening a log and the offline tools use it.

A bad record below what is known to be durable, or before a valid one, is corruption, and is reported. Behind the last
valid record it is a torn tail, which was never confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from dqlab.log.checkpoints import Checkpoint, read_checkpoint
from dqlab.log.directory import (
    CHECKPOINT,
    MANIFEST,
    RESERVE,
    SEGMENT,
    TEMPORARY,
    Directory,
    is_ours,
    manifest_name,
)
from dqlab.log.errors import ManifestCorrupt
from dqlab.log.manifest import Manifest, SegmentEntry
from dqlab.log.ownership import LockState
from dqlab.log.records import HEADER_BYTES, Record, RecordType
from dqlab.log.segment import SEGMENT_BYTES, Gap, check_segment_header, read_fully

_EMPTY_BYTES = SEGMENT_BYTES + HEADER_BYTES  # a segment with nothing but its OPEN record


@dataclass(frozen=True)
class Corruption:
    """Bytes that were durable and have changed since."""

    file: str
    """Name of the segment."""
    offset: int
    nbytes: int
    type: int | None = None
    """With `count` and `base`, of the record whose header is intact; None = it is not known which records these
    were."""
    count: int | None = None
    base: int | None = None


@dataclass(frozen=True)
class Recovery:
    """What opening a log found."""

    epoch: int
    """The epoch that began."""
    clean: bool
    """The last session closed the log, or there was none."""
    checkpoint: bytes | None
    """The journal's newest readable state."""
    checkpoint_lost: bool
    """There was a checkpoint and none can be read: replay starts at the oldest record left."""
    torn_bytes: int
    """Bytes behind the last valid record, which were never confirmed."""
    corrupt: tuple[Corruption, ...]
    """Complete once the replay is over."""
    leftovers: tuple[str, ...]
    """Files of unfinished steps and damaged checkpoints, removed."""
    lock: LockState
    """What keeps other processes out; see `Ownership`."""
    filesystem: str
    """Its type, "" when unknown."""


class FoundLog(NamedTuple):
    """What the files of earlier sessions hold."""

    manifest: Manifest
    """With the length of the last segment, as if it had been sealed."""
    checkpoints: list[Checkpoint]
    """Those that can be read, newest last."""
    body: bytes | None
    """The journal's state in the newest one."""
    damaged: tuple[str, ...]
    """Checkpoints that are missing or hold other bytes than were written."""
    refused: tuple[str, ...]
    """Checkpoints that the disk refused to read; another one was read, and these stay listed."""
    clean: bool
    torn_bytes: int


def find(directory: Directory, manifest: Manifest) -> FoundLog:
    """Read the checkpoints and the end of the last segment, and write nothing."""
    listed = manifest.listed()
    checkpoints: list[Checkpoint] = []
    damaged: list[str] = []
    refused: dict[str, OSError] = {}
    body: bytes | None = None
    for name in manifest.checkpoints:
        try:
            found = read_checkpoint(directory, name, manifest.uuid)
        except OSError as error:
            refused[name] = error
            continue
        if found is None or found[0].segment not in listed:
            damaged.append(name)
        else:
            checkpoints.append(found[0])
            body = found[1]
    if refused and not checkpoints:
        # Not opened without: what only a checkpoint knows would be gone for good, and the disk may work in a moment.
        raise next(iter(refused.values()))
    sealed, clean, torn_bytes = _seal(directory, manifest, checkpoints)
    return FoundLog(sealed, checkpoints, body, tuple(damaged), tuple(refused), clean, torn_bytes)


def newest_manifest(directory: Directory) -> Manifest | None:
    """Return the manifest in force, or None when the log is new."""
    epochs = directory.numbered(MANIFEST)
    if epochs:
        name = manifest_name(epochs[-1])
        try:
            return Manifest.decode(directory.read(name), str(directory / name))
        except FileNotFoundError as error:
            raise ManifestCorrupt(file=str(directory / name), reason=str(error)) from error
    for name in directory.names():
        # The very first segment is created before the first manifest, and holds nothing until that exists.
        if CHECKPOINT.fullmatch(name) or (SEGMENT.fullmatch(name) and len(directory.read(name)) > _EMPTY_BYTES):
            raise ManifestCorrupt(file=str(directory / manifest_name(1)), reason=f"it is missing, and {name} is there")
    return None


# --- the last segment -----------------------------------------------------------------------


def _seal(directory: Directory, manifest: Manifest, checkpoints: list[Checkpoint]) -> tuple[Manifest, bool, int]:
    """Return the manifest with the last segment's length, whether the log was closed, and the bytes behind its end."""
    last = manifest.segments[-1] if manifest.segments else None
    if last is None or last.length is not None:
        return manifest, True, 0
    marks = [checkpoint.offset for checkpoint in checkpoints if checkpoint.segment == last.seq]
    with directory.opened(last.name) as descriptor:
        size = directory.files.size(descriptor)
        intact = header_intact(directory, descriptor, manifest, last)
        # From the newest mark on: the log was whole up to there when that checkpoint was taken, and reading all of the
        # segment would delay every open.
        start = max(marks, default=SEGMENT_BYTES)
        scan = manifest.scan(directory.files, descriptor, last, start=start, limit=size)
        records = sum(1 for _ in scan)
    torn = max(0, size - scan.end)
    damaged = any(gap.start < scan.end for gap in scan.gaps)
    if not marks and not records and not damaged and (torn == 0 or not intact):
        sealed = manifest.without({last.seq})  # a session in which nothing happened
    else:
        sealed = manifest.sealed(last.seq, scan.end)
    return sealed, scan.last == RecordType.CLOSE and torn == 0, torn


def header_intact(directory: Directory, descriptor: int, manifest: Manifest, entry: SegmentEntry) -> bool:
    """Return whether a segment's own header is valid."""
    header = read_fully(directory.files, descriptor, SEGMENT_BYTES, 0)
    file = str(directory / entry.name)
    return check_segment_header(header, bytes.fromhex(manifest.uuid), entry.seq, entry.epoch, file)


# --- replay ---------------------------------------------------------------------------------


class LogReplay:
    """Iterates once over the journal's records behind a checkpoint (None = all that are left)."""

    def __init__(self, directory: Directory, manifest: Manifest, checkpoint: Checkpoint | None) -> None:
        self._directory = directory
        self._manifest = manifest
        self._checkpoint = checkpoint
        self.corrupt: list[Corruption] = []  # damage skipped so far
        self.done = not manifest.segments

    def __iter__(self) -> Iterator[Record]:
        """Yield the records in the order of replay."""
        after = self._checkpoint
        for entry in self._manifest.replayed(after.segment if after is not None else None):
            start = after.offset if after is not None and after.segment == entry.seq else SEGMENT_BYTES
            with self._directory.opened(entry.name) as descriptor:
                yield from self._segment(descriptor, entry, start)
        # Only here, not in a `finally`: until every record was yielded, nobody knows which segments are needed.
        self.done = True

    def _segment(self, descriptor: int, entry: SegmentEntry, start: int) -> Iterator[Record]:
        # Not the file's size: behind the length may lie what a fenced owner still wrote, which nobody confirmed.
        limit = entry.length or SEGMENT_BYTES
        size = self._directory.files.size(descriptor)
        if not header_intact(self._directory, descriptor, self._manifest, entry):
            self._report(entry, Gap(0, SEGMENT_BYTES, None))
        if size < start:
            self._report(entry, Gap(size, start, None))
        scan = self._manifest.scan(self._directory.files, descriptor, entry, start=start, limit=limit)
        yield from scan
        # After the records, because `scan` finds gaps while it is iterated.
        for gap in scan.gaps:
            self._report(entry, gap)

    def _report(self, entry: SegmentEntry, gap: Gap) -> None:
        found = Corruption(entry.name, gap.start, gap.stop - gap.start)
        if gap.header is not None:
            found = replace(found, type=gap.header.type, count=gap.header.count, base=gap.header.base)
        self.corrupt.append(found)


def is_leftover(name: str, epoch: int) -> bool:
    """Return whether an unlisted file was left by an unfinished step of this or an earlier epoch."""
    # Not of a later one: that owner took over from this process, and its manifest lists the file.
    if name.endswith(TEMPORARY):
        return is_ours(name)
    if name == RESERVE:  # which earlier versions kept for a full disk
        return True
    if match := SEGMENT.fullmatch(name):
        return int(match[2]) <= epoch
    if match := CHECKPOINT.fullmatch(name):
        return int(match[1]) <= epoch
    return False
