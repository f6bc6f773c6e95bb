"""Opening: what the last session left is read, judged and sealed; nothing of it is written to again.

A bad record below what is known to be durable, or before a valid one, is corruption: it is kept aside and
reported. Behind the last valid record it is a torn tail: it was never confirmed.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from dqlab.log.checkpoints import Checkpoint, read_checkpoint
from dqlab.log.directory import (
    CHECKPOINT,
    EPOCH,
    MANIFEST,
    QUARANTINE,
    RESERVE,
    SEGMENT,
    TEMPORARY,
    Directory,
    is_ours,
    manifest_name,
)
from dqlab.log.errors import ManifestCorrupt, SegmentMissing
from dqlab.log.manifest import Manifest, SegmentEntry
from dqlab.log.ownership import LockState
from dqlab.log.records import HEADER_BYTES, Record, RecordType, seed_of
from dqlab.log.segment import SEGMENT_BYTES, Gap, Scan, check_segment_header, read_fully

__all__ = [
    "Corruption",
    "Found",
    "Recovery",
    "Replay",
    "find",
    "header_intact",
    "is_leftover",
    "move_damaged",
    "newest_manifest",
    "read_checkpoints",
    "reading",
    "remove_leftovers",
    "scan_of",
    "seal",
]

_EMPTY_BYTES = SEGMENT_BYTES + HEADER_BYTES  # a segment in which nothing happened but its opening


@dataclass(frozen=True)
class Corruption:
    """Bytes that were durable and are no longer what was written.

    Attributes
    ----------
    file : str
        Name of the segment.
    offset, nbytes : int
        Which bytes.
    type, count, base : int or None
        Of the record, when at least its header is intact; None = it is not known which records these were.
    quarantined : str
        Where they were copied to, a name below the log's directory; "" when there was nothing to copy.
    """

    file: str
    offset: int
    nbytes: int
    type: int | None = None
    count: int | None = None
    base: int | None = None
    quarantined: str = ""


@dataclass(frozen=True)
class Recovery:
    """What opening a log found.

    Attributes
    ----------
    epoch : int
        The one that began.
    clean : bool
        The last session closed the log, or there was none.
    checkpoint : bytes or None
        The journal's newest readable state.
    checkpoint_lost : bool
        There was one and none can be read: replay starts at the oldest record that is left.
    torn_bytes : int
        Bytes behind the last valid record, which nobody was told were there.
    corrupt : tuple of Corruption
        Complete once the replay is over.
    quarantined : tuple of str
        Files that were copied or moved to ``quarantine/``.
    leftovers : tuple of str
        Files of unfinished steps, removed.
    lock : {"held", "unsupported", "bypassed"}
        What keeps other processes out; see `Ownership`.
    filesystem : str
        Its type, "" when unknown.
    seconds : float
        Time that opening took, without the replay.
    """

    epoch: int
    clean: bool
    checkpoint: bytes | None
    checkpoint_lost: bool
    torn_bytes: int
    corrupt: tuple[Corruption, ...]
    quarantined: tuple[str, ...]
    leftovers: tuple[str, ...]
    lock: LockState
    filesystem: str
    seconds: float


class Found(NamedTuple):
    """What the files of earlier epochs say.

    Attributes
    ----------
    manifest : Manifest
        All of it sealed, under the new epoch.
    checkpoints : list of Checkpoint
        Those that can be read, newest last.
    body : bytes or None
        The newest one's.
    damaged : tuple of str
        Checkpoints that cannot be read.
    clean, torn_bytes
        As in `Recovery`.
    """

    manifest: Manifest
    checkpoints: list[Checkpoint]
    body: bytes | None
    damaged: tuple[str, ...]
    clean: bool
    torn_bytes: int


def find(directory: Directory, epoch: int) -> Found:
    """Read what is there, for an epoch that begins; changes nothing.

    Raises
    ------
    ManifestCorrupt, SegmentMissing, LogTooNew
        It cannot be opened as it is.
    """
    manifest = newest_manifest(directory)
    if manifest is None:
        return Found(Manifest(uuids.uuid4().hex, epoch), [], None, (), clean=True, torn_bytes=0)
    names = set(directory.names())
    for entry in manifest.segments:
        if entry.name not in names:
            raise SegmentMissing(directory=str(directory), file=entry.name)
    checkpoints, body, damaged = read_checkpoints(directory, manifest)
    names_kept = tuple(checkpoint.name for checkpoint in checkpoints)
    manifest = replace(manifest, epoch=epoch, checkpoints=names_kept)
    manifest, clean, torn_bytes = seal(directory, manifest, checkpoints)
    return Found(manifest, checkpoints, body, damaged, clean, torn_bytes)


def newest_manifest(directory: Directory) -> Manifest | None:
    """Return the manifest in force, None when this is a new log."""
    epochs = directory.numbered(MANIFEST)
    if epochs:
        name = manifest_name(epochs[-1])
        try:
            return Manifest.decode(directory.read(name), str(directory / name))
        except OSError as error:
            raise ManifestCorrupt(file=str(directory / name), reason=str(error)) from error
    for name in directory.names():
        # The first segment of all is made before the first manifest, and holds nothing until that is there.
        if CHECKPOINT.fullmatch(name) or (SEGMENT.fullmatch(name) and len(directory.read(name)) > _EMPTY_BYTES):
            raise ManifestCorrupt(file=str(directory / manifest_name(1)), reason=f"it is missing, and {name} is there")
    return None


def read_checkpoints(
    directory: Directory, manifest: Manifest
) -> tuple[list[Checkpoint], bytes | None, tuple[str, ...]]:
    """Return the checkpoints that can be read, newest last, the newest one's body, and those that cannot."""
    listed = manifest.listed()
    checkpoints: list[Checkpoint] = []
    damaged: list[str] = []
    newest: bytes | None = None
    for name in manifest.checkpoints:
        found = read_checkpoint(directory, name, manifest.uuid)
        if found is None or found[0].segment not in listed:
            damaged.append(name)
        else:
            checkpoints.append(found[0])
            newest = found[1]
    return checkpoints, newest, tuple(damaged)


# --- the last segment -----------------------------------------------------------------------


def seal(directory: Directory, manifest: Manifest, checkpoints: list[Checkpoint]) -> tuple[Manifest, bool, int]:
    """Return the manifest with the last segment's length, whether it was closed, and the bytes behind its end."""
    last = manifest.segments[-1] if manifest.segments else None
    if last is None or last.length is not None:
        return manifest, True, 0
    marks = [checkpoint.offset for checkpoint in checkpoints if checkpoint.segment == last.seq]
    with reading(directory, last) as descriptor:
        size = directory.files.size(descriptor)
        intact = header_intact(directory, descriptor, manifest, last)
        scan = scan_of(directory, descriptor, manifest, last, max(marks, default=SEGMENT_BYTES), size)
        records = sum(1 for _ in scan)
    torn = max(0, size - scan.end)
    damaged = any(gap.start < scan.end for gap in scan.gaps)
    if not marks and not records and not damaged and (torn == 0 or not intact):
        sealed = manifest.without({last.seq})  # a session in which nothing happened
    else:
        sealed = manifest.sealed(last.seq, scan.end)
    return sealed, scan.last == RecordType.CLOSE and torn == 0, torn


@contextmanager
def reading(directory: Directory, entry: SegmentEntry) -> Iterator[int]:
    """Open a segment for a while."""
    descriptor = directory.files.open(directory / entry.name)
    try:
        yield descriptor
    finally:
        directory.files.close(descriptor)


def header_intact(directory: Directory, descriptor: int, manifest: Manifest, entry: SegmentEntry) -> bool:
    """Return whether a segment begins as it should."""
    header = read_fully(directory.files, descriptor, SEGMENT_BYTES, 0)
    file = str(directory / entry.name)
    return check_segment_header(header, bytes.fromhex(manifest.uuid), entry.seq, entry.epoch, file)


def scan_of(
    directory: Directory, descriptor: int, manifest: Manifest, entry: SegmentEntry, start: int, limit: int
) -> Scan:
    """Return the scan of a part of a segment."""
    seed = seed_of(bytes.fromhex(manifest.uuid), entry.seq)
    return Scan(directory.files, descriptor, segment=entry.seq, epoch=entry.epoch, seed=seed, start=start, limit=limit)


# --- replay ---------------------------------------------------------------------------------

Keep: TypeAlias = Callable[[Directory, int, str, Gap], str]


class Replay:
    """The journal's records behind a checkpoint (None: all that are left), once.

    Parameters
    ----------
    keep : callable, optional
        Keeps a copy of damaged bytes aside; by default `quarantine`.

    Attributes
    ----------
    corrupt : list of Corruption
        What was passed over so far.
    done : bool
        Everything was yielded.
    """

    def __init__(
        self, directory: Directory, manifest: Manifest, checkpoint: Checkpoint | None, keep: Keep | None = None
    ) -> None:
        self._directory = directory
        self._manifest = manifest
        self._checkpoint = checkpoint
        self._keep = keep if keep is not None else quarantine
        self.corrupt: list[Corruption] = []
        self.done = not manifest.segments

    def __iter__(self) -> Iterator[Record]:
        """Yield the records in the order of replay."""
        after = self._checkpoint
        for entry in self._manifest.replayed(after.segment if after is not None else None):
            start = after.offset if after is not None and after.segment == entry.seq else SEGMENT_BYTES
            with reading(self._directory, entry) as descriptor:
                yield from self._segment(descriptor, entry, start)
        self.done = True

    def _segment(self, descriptor: int, entry: SegmentEntry, start: int) -> Iterator[Record]:
        limit = entry.length or SEGMENT_BYTES
        size = self._directory.files.size(descriptor)
        if not header_intact(self._directory, descriptor, self._manifest, entry):
            self._report(descriptor, entry, Gap(0, SEGMENT_BYTES, None))
        if size < start:
            self._report(descriptor, entry, Gap(size, start, None))
        scan = scan_of(self._directory, descriptor, self._manifest, entry, start, limit)
        yield from scan
        for gap in scan.gaps:
            self._report(descriptor, entry, gap)

    def _report(self, descriptor: int, entry: SegmentEntry, gap: Gap) -> None:
        quarantined = self._keep(self._directory, descriptor, entry.name, gap)
        found = Corruption(entry.name, gap.start, gap.stop - gap.start, quarantined=quarantined)
        if gap.header is not None:
            found = replace(found, type=gap.header.type, count=gap.header.count, base=gap.header.base)
        self.corrupt.append(found)


def quarantine(directory: Directory, descriptor: int, name: str, gap: Gap) -> str:
    """Keep a copy of damaged bytes; return its name, "" when there are none or no room for it."""
    files = directory.files
    copy = f"{QUARANTINE}/{name}-{gap.start}"
    try:
        data = read_fully(files, descriptor, gap.stop - gap.start, gap.start)
        if not data:
            return ""
        files.make_directory(directory / QUARANTINE)
        if not files.exists(directory / copy):
            directory.publish(copy, [data])
    except OSError:
        return ""
    return copy


# --- tidying --------------------------------------------------------------------------------


def move_damaged(directory: Directory, names: tuple[str, ...]) -> tuple[str, ...]:
    """Move files that cannot be read out of the way; return their new names."""
    moved: list[str] = []
    for name in names:
        with suppress(OSError):
            directory.files.make_directory(directory / QUARANTINE)
            directory.files.rename(directory / name, directory / f"{QUARANTINE}/{name}")
            moved.append(f"{QUARANTINE}/{name}")
    return tuple(moved)


def remove_leftovers(directory: Directory, manifest: Manifest) -> tuple[str, ...]:
    """Remove what no manifest lists any more; return the files of unfinished steps among it.

    Oldest epochs first: a process of epoch e may rely on seeing either the file of e + 1, or its own gone.
    """
    listed = {entry.name for entry in manifest.segments} | set(manifest.checkpoints)
    removed: list[str] = []
    for name in directory.names():
        match = EPOCH.fullmatch(name) or MANIFEST.fullmatch(name)
        if match is not None:
            if int(match[1]) < manifest.epoch:
                with suppress(OSError):
                    directory.files.unlink(directory / name)
        elif name not in listed and is_leftover(name, manifest.epoch):
            with suppress(OSError):
                directory.files.unlink(directory / name)
                removed.append(name)
    directory.files.sync_directory(directory.path)
    return tuple(removed)


def is_leftover(name: str, epoch: int) -> bool:
    """Return whether an unlisted file is one that a step of this or an earlier epoch left behind."""
    if name.endswith(TEMPORARY):
        return is_ours(name) or name == RESERVE + TEMPORARY
    if match := SEGMENT.fullmatch(name):
        return int(match[2]) <= epoch
    if match := CHECKPOINT.fullmatch(name):
        return int(match[1]) <= epoch
    return False
