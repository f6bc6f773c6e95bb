"""What earlier sessions left: checkpoints, the end of the last segment, the replay; and how a log is opened over it.

A bad record below what is known to be durable, or before a valid one, is corruption, and is reported. Behind the last
valid record it is a torn tail, which was never confirmed. The offline tools read the same way, and write nothing.

Opening takes these steps: lock, epoch, recovery, a new segment, a new manifest, removal of leftovers. Nothing is
deleted before the new manifest is on disk: until then the old files are the log.
"""

from __future__ import annotations

import struct
import uuid as uuids
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from dqlab.clock import Clock
from dqlab.log.errors import ManifestCorrupt, missing_segment, not_a_log, too_new, tried_twice, typed
from dqlab.log.files import (
    CHECKPOINT,
    EPOCH,
    MANIFEST,
    RESERVE,
    SEGMENT,
    TEMPORARY,
    Directory,
    Files,
    is_ours,
    manifest_name,
    segment_name,
)
from dqlab.log.manifest import Catalog, Manifest, SegmentEntry
from dqlab.log.ownership import Ownership
from dqlab.log.records import (
    HEADER_BYTES,
    SEGMENT_BYTES,
    Gap,
    Header,
    Record,
    RecordType,
    check_segment_header,
    pack_header,
    pack_segment_header,
    read_fully,
)
from dqlab.log.writer import LogOptions, OpenSegment

_MAGIC = b"DQLABCKP"
_VERSION = 1
_HEADER = struct.Struct("<8sI16sQQIQ")
UUID = slice(12, 28)
"""Where it has the log's uuid."""
_ENTRY_BYTES = 16
"""Of the table of needed bytes that earlier versions wrote."""

_LARGE, _RATIO = 256 << 20, 100


class LogMark(NamedTuple):
    """The end of the log at one instant, for a checkpoint."""

    segment: int
    offset: int
    """With `segment`, the position of the next record."""


class Checkpoint(NamedTuple):
    """A checkpoint without the journal's state."""

    name: str
    """Name of its file."""
    segment: int
    offset: int
    """With `segment`, where replay starts."""
    size: int
    """Bytes of its file."""

    @staticmethod
    def encode(uuid: str, segment: int, offset: int, body: bytes) -> bytes:
        """Return a file's bytes."""
        packed = zlib.compress(body, 1)
        if len(body) > _most(len(packed)):
            packed = zlib.compress(body, 0)  # stored as it is, or the limit would refuse to read it
        data = _HEADER.pack(_MAGIC, _VERSION, bytes.fromhex(uuid), segment, offset, 0, len(packed)) + packed
        return data + zlib.crc32(data).to_bytes(4, "little")


def read_checkpoint(directory: Directory, name: str, uuid: str) -> tuple[Checkpoint, bytes] | None:
    """Return a checkpoint and the journal's state, or None when it is missing or damaged."""
    try:
        # Any other OSError passes: a disk that refuses to read has not lost the checkpoint, and `find` must not treat
        # it as damaged.
        data = directory.read(name)
        if zlib.crc32(data[:-4]).to_bytes(4, "little") != data[-4:]:
            return None
        fields = _HEADER.unpack_from(data)
        magic, version, owner, segment, offset, count, length = fields
    except (FileNotFoundError, struct.error):
        return None
    if magic != _MAGIC or owner != bytes.fromhex(uuid):
        return None
    if version != _VERSION:
        # Not None: opening removes checkpoints that count as damaged, and this one is whole.
        raise too_new(directory / name, f"{version} (checkpoint)", _VERSION)
    at = _HEADER.size + count * _ENTRY_BYTES
    if at + length + 4 != len(data):
        return None
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(data[at:-4], _most(length))
    except zlib.error:
        return None
    if not unpacking.eof:
        return None
    return Checkpoint(name, segment, offset, len(data)), body


def _most(packed: int) -> int:
    """Return the most bytes that a packed state may unpack to."""
    # Opening and the offline tools read files of unknown origin: a few bytes of one must not fill the memory.
    return max(_LARGE, _RATIO * packed)


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


class FoundLog(NamedTuple):
    """What the files of earlier sessions hold."""

    manifest: Manifest
    """With the length of the last segment, as if it had been sealed."""
    checkpoints: list[Checkpoint]
    """Those that can be read, newest last."""
    checkpoint: bytes | None
    """The journal's state in the newest one."""
    damaged: tuple[str, ...]
    """Checkpoints that are missing or hold other bytes than were written."""
    refused: tuple[str, ...]
    """Checkpoints that the disk refused to read; another one was read, and these stay listed."""
    clean: bool
    """The last session closed the log, or there was none."""
    torn_bytes: int
    """Bytes behind the last valid record, which were never confirmed."""

    @property
    def checkpoint_lost(self) -> bool:
        """There was a checkpoint and none can be read: replay starts at the oldest record left."""
        return bool(self.damaged) and not self.checkpoints


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
        self.corrupt: list[Corruption] = []  # damage skipped so far, complete once it is done
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
            found = replace(found, type=gap.header.type, count=gap.header.messages, base=gap.header.base)
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


class Opened(NamedTuple):
    """The parts of a log that was just opened."""

    directory: Directory
    owner: Ownership
    catalog: Catalog
    segment: OpenSegment
    found: FoundLog


def open_log(path: Path, options: LogOptions, files: Files, clock: Clock, *, owner: str, takeover: bool) -> Opened:
    """Take ownership of a log and recover it, as `Log.open` promises."""
    directory = Directory(path, files)
    with typed(directory):
        _make(directory)
        # Before the lock, to refuse a later format while nothing is changed. Another process may be opening the log at
        # this moment, so a damaged manifest counts only when the owner of the lock reads it again.
        with suppress(ManifestCorrupt):
            newest_manifest(directory)
        ownership = Ownership(directory, owner=owner, takeover=takeover, unsafe_no_lock=options.unsafe_no_lock)
        try:
            found = _find(directory, ownership.epoch)
            if not found.clean:
                _sync(directory, found)
            return _begin(directory, ownership, found, clock)
        except BaseException:
            ownership.release()
            raise


def _make(directory: Directory) -> None:
    """Create the directory durably, or refuse one that holds only other files."""
    files, path = directory.files, directory.path
    if files.exists(path):
        names = directory.names()
        if names and not any(map(is_ours, names)):
            raise not_a_log(path, names)
        return
    # Found before they are made, because each new name has to be synced in its parent: a power cut could take the log
    # away with the last folder above it.
    new = [parent for parent in (path, *path.parents) if not files.exists(parent)]
    files.make_directory(path)
    for made in new:
        files.sync_directory(made.parent)


def _find(directory: Directory, epoch: int) -> FoundLog:
    """Return what earlier sessions left, with the manifest of the new epoch, and write nothing."""
    manifest = newest_manifest(directory)
    if manifest is None:
        return FoundLog(Manifest(uuids.uuid4().hex, epoch), [], None, (), (), clean=True, torn_bytes=0)
    names = set(directory.names())
    for entry in manifest.segments:
        if entry.name not in names:
            raise missing_segment(directory, entry.name)
    found = find(directory, manifest)
    kept = tuple(name for name in manifest.checkpoints if name not in found.damaged)
    return found._replace(manifest=replace(found.manifest, epoch=epoch, checkpoints=kept))


def _sync(directory: Directory, found: FoundLog) -> None:
    """Sync the segments of a session that was killed."""
    # It may have written records and not synced them. Replay takes them as durable, and new records build on them: a
    # power cut must not take them back afterwards.
    manifest, checkpoints = found.manifest, found.checkpoints
    start = manifest.place(checkpoints[-1].segment) if checkpoints else 0
    for entry in manifest.segments[start:]:
        with directory.opened(entry.name) as descriptor:
            directory.files.sync(descriptor)


def _begin(directory: Directory, owner: Ownership, found: FoundLog, clock: Clock) -> Opened:
    """Create the epoch's first segment and publish the manifest that lists it."""
    catalog = Catalog(directory, owner, found.manifest)
    segment = _first_segment(directory, owner, catalog, clock)
    try:
        # First the manifest: until it is on disk, the old files are the log, and none may be moved or removed.
        catalog.publish(found.manifest.having(SegmentEntry(segment.seq, owner.epoch)))
        _remove_leftovers(directory, catalog.manifest)
    except BaseException:
        directory.files.close(segment.descriptor)
        raise
    return Opened(directory, owner, catalog, segment, found)


def _first_segment(directory: Directory, owner: Ownership, catalog: Catalog, clock: Clock) -> OpenSegment:
    seq, epoch = catalog.allocate(), owner.epoch
    header = pack_segment_header(catalog.uuid, seq, epoch, clock.wall())
    opening = pack_header(Header(RecordType.OPEN, 0, 0, 0, 0, 0, 0, epoch, 0), catalog.seed(seq))
    name = segment_name(seq, epoch)
    descriptor = tried_twice(directory, lambda: directory.create(name, [header, opening]))
    return OpenSegment(seq, descriptor, SEGMENT_BYTES + HEADER_BYTES)


# --- leftovers ------------------------------------------------------------------------------


def _remove_leftovers(directory: Directory, manifest: Manifest) -> None:
    """Remove files that the manifest does not list: of old epochs, and of unfinished steps."""
    # In ascending order of names, so old epochs go lowest first: a fenced owner of epoch e, which looks for the file of
    # e + 1, then finds its own gone once that one is removed too. See `Ownership.check`.
    listed = {entry.name for entry in manifest.segments} | set(manifest.checkpoints)
    for name in directory.names():
        match = EPOCH.fullmatch(name) or MANIFEST.fullmatch(name)
        old = int(match[1]) < manifest.epoch if match else name not in listed and is_leftover(name, manifest.epoch)
        if old:
            with suppress(OSError):
                directory.files.unlink(directory / name)
    directory.files.sync_directory(directory.path)
