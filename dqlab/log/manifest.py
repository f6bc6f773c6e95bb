"""Which files make up the log, in the order of replay: `Manifest` is the list, `Catalog` the one in force.

A file counts only while the manifest lists it. Each change is a new manifest, durable before it takes effect.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias
from zlib import crc32

from dqlab.log.directory import CHECKPOINT, Directory, manifest_name, segment_name
from dqlab.log.errors import LogTooNew, ManifestCorrupt
from dqlab.log.files import Files
from dqlab.log.ownership import Ownership
from dqlab.log.records import seed_of
from dqlab.log.segment import FORMAT, FORMAT_TEXT, SEGMENT_BYTES, Scan
from dqlab.log.space import Reserve

__all__ = ["Catalog", "Kind", "Manifest", "SegmentEntry", "resolve"]

Kind: TypeAlias = Literal["log", "compacted"]

_KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class SegmentEntry:
    """One segment, as the manifest lists it."""

    seq: int
    """Its number, which is never used again."""
    epoch: int
    """The epoch that wrote it."""
    kind: Kind = "log"
    """log = written by appends; compacted = by compaction."""
    covers: tuple[int, ...] = ()
    """Segments whose needed records a compacted one holds. While one of them is listed, it is replayed instead."""
    length: int | None = None
    """Bytes that count, all of them durable; None = open, up to its last valid record."""
    continues: tuple[int, ...] = ()
    """Empty, or (segment, offset): it holds the records meant for that segment from that offset on, because the disk
    failed there."""

    @property
    def name(self) -> str:
        """Its file's name."""
        return segment_name(self.seq, self.epoch)


def resolve(continued: Mapping[int, tuple[int, int]], segment: int, offset: int) -> tuple[int, int]:
    """Return where a record with this position lies, given the result of `Manifest.continued`."""
    # A loop: the disk may fail in a successor, too.
    while (successor := continued.get(segment)) is not None and offset >= successor[0]:
        segment, offset = successor[1], offset - successor[0] + SEGMENT_BYTES
    return segment, offset


@dataclass(frozen=True)
class Manifest:
    """The list of a log's files."""

    uuid: str
    epoch: int
    """The epoch that wrote it."""
    next_seq: int = 1
    """Above the number of every segment, also of deleted ones."""
    segments: tuple[SegmentEntry, ...] = ()
    """In the order of replay; an open one is the last."""
    checkpoints: tuple[str, ...] = ()
    """Names, newest last."""

    def encode(self) -> bytes:
        """Return the file's bytes, which are JSON and a line with its checksum."""
        fields = {"format": FORMAT, "incompatible": 0, "compatible": 0, **asdict(self)}
        text = json.dumps(fields, indent=1).encode() + b"\n"
        return text + b"crc32 %08x\n" % crc32(text)

    @classmethod
    def decode(cls, data: bytes, file: str) -> Manifest:
        """Return what `encode` wrote, or raise `ManifestCorrupt` or `LogTooNew` if this version cannot read it."""
        text, _, crc = data[:-1].rpartition(b"\n")
        text += b"\n"
        if data[-1:] != b"\n" or crc != b"crc32 %08x" % crc32(text):
            raise ManifestCorrupt(file=file, reason="its checksum is wrong")
        try:
            fields = json.loads(text)
            major, minor = fields["format"]
            incompatible = fields["incompatible"]
            if major == FORMAT[0] and not incompatible:
                return cls._from(fields)
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestCorrupt(file=file, reason=f"{type(error).__name__}: {error}") from error
        theirs = f"{major}.{minor} (features {incompatible:#x})"
        raise LogTooNew(file=file, theirs=theirs, ours=FORMAT_TEXT)

    @classmethod
    def _from(cls, fields: dict[str, Any]) -> Manifest:
        segments = tuple(
            SegmentEntry(
                # Field by field, not `**entry`: a later minor version may add fields, and this one must still open its
                # logs.
                seq=entry["seq"],
                epoch=entry["epoch"],
                kind=entry["kind"],
                covers=tuple(entry["covers"]),
                length=entry["length"],
                continues=tuple(entry["continues"]),
            )
            for entry in fields["segments"]
        )
        return cls(fields["uuid"], fields["epoch"], fields["next_seq"], segments, tuple(fields["checkpoints"]))

    # --- asking ----------------------------------------------------------------------------

    def seed(self, seq: int) -> int:
        """Return the seed of the checksums of a segment's record headers."""
        return seed_of(bytes.fromhex(self.uuid), seq)

    def scan(self, files: Files, descriptor: int, entry: SegmentEntry, *, start: int, limit: int) -> Scan:
        """Return a scan of a part of a segment."""
        seed = self.seed(entry.seq)
        return Scan(files, descriptor, segment=entry.seq, epoch=entry.epoch, seed=seed, start=start, limit=limit)

    def listed(self) -> dict[int, SegmentEntry]:
        """Return the segments by number, in the order of replay."""
        return {entry.seq: entry for entry in self.segments}

    def place(self, seq: int) -> int:
        """Return a segment's index in the order of replay, 0 when it is not listed."""
        return next((place for place, entry in enumerate(self.segments) if entry.seq == seq), 0)

    def replayed(self, seq: int | None) -> list[SegmentEntry]:
        """Return the segments to replay from one on (None = all), without compacted ones whose originals are listed."""
        listed = self.listed()
        entries = self.segments[self.place(seq) if seq is not None else 0 :]
        return [entry for entry in entries if not any(covered in listed for covered in entry.covers)]

    def continued(self) -> dict[int, tuple[int, int]]:
        """Return, for each segment that a disk failed in, the offset and the segment where its records continue."""
        return {entry.continues[0]: (entry.continues[1], entry.seq) for entry in self.segments if entry.continues}

    # --- changing --------------------------------------------------------------------------

    def sealed(self, seq: int, length: int) -> Manifest:
        """Return a copy with the final length of an open segment."""
        return replace(
            self,
            segments=tuple(
                replace(entry, length=length) if entry.seq == seq and entry.length is None else entry
                for entry in self.segments
            ),
        )

    def having(self, new: SegmentEntry, *, before: int | None = None) -> Manifest:
        """Return a copy with one more segment, last or before another, or itself if it lists the segment already."""
        # A publication whose last check of the epoch was refused is in force anyway, and is repeated. Listed
        # twice, the segment would be replayed twice.
        if any(entry.seq == new.seq for entry in self.segments):
            return self
        place = len(self.segments) if before is None else self.place(before)
        segments = (*self.segments[:place], new, *self.segments[place:])
        return replace(self, segments=segments, next_seq=max(self.next_seq, new.seq + 1))

    def without(self, seqs: Collection[int]) -> Manifest:
        """Return a copy without some segments."""
        return replace(self, segments=tuple(entry for entry in self.segments if entry.seq not in seqs))

    def having_checkpoint(self, name: str, unread: Collection[str] = ()) -> Manifest:
        """Return a copy with a newer checkpoint and the last readable one."""
        readable = [known for known in self.checkpoints if known not in unread]
        return replace(self, checkpoints=(*readable, name)[-_KEPT_CHECKPOINTS:])

    def next_checkpoint(self) -> int:
        """Return a number that no listed checkpoint has."""
        numbers = [int(match[2]) for name in self.checkpoints if (match := CHECKPOINT.fullmatch(name))]
        return max(numbers, default=0) + 1


class Catalog:
    """The manifest in force, and the changes to it."""

    def __init__(self, directory: Directory, owner: Ownership, reserve: Reserve, manifest: Manifest) -> None:
        self._directory = directory
        self._owner = owner
        self._reserve = reserve
        self._seqs = manifest.next_seq
        self._seqs_lock = threading.Lock()
        # Held from reading the manifest to publishing a changed one, and by each commit; `writer.py` has the order of
        # locks.
        self.lock = threading.RLock()
        self.manifest = manifest
        self.uuid = bytes.fromhex(manifest.uuid)
        self._continued = manifest.continued()

    def allocate(self) -> int:
        """Return a number that no segment ever had."""
        # A lock of its own: `append` allocates while it holds the memory lock, and must not wait for a commit's I/O.
        with self._seqs_lock:
            seq = self._seqs
            self._seqs += 1
            return seq

    def seed(self, seq: int) -> int:
        """Return the seed of the checksums of a segment's record headers."""
        return seed_of(self.uuid, seq)

    def publish(self, manifest: Manifest) -> None:
        """Put a manifest in force, or raise and leave the old one."""
        # Checked twice: before, so that a fenced owner writes nothing; after, so that it does not act on a manifest
        # that a new owner may not have read. Each epoch has a manifest file of its own, so none overwrites another's.
        self._owner.check()
        name = manifest_name(self._owner.epoch)
        data = manifest.encode()
        self._reserve.try_twice(lambda: self._directory.publish(name, [data]))
        self.manifest = manifest
        self._owner.check()

    def continue_in(self, segment: int, offset: int, successor: int) -> None:
        """Note that a segment's records from an offset on are written to another segment, from its start."""
        self._continued[segment] = (offset, successor)

    def continues(self, seq: int) -> tuple[int, ...]:
        """Return the (segment, offset) that a segment continues, or an empty tuple."""
        return next(((old, offset) for old, (offset, new) in self._continued.items() if new == seq), ())

    def resolve(self, segment: int, offset: int) -> tuple[int, int]:
        """Return where a record with this position lies."""
        return resolve(self._continued, segment, offset)

    def entry(self, segment: int) -> SegmentEntry | None:
        """Return a listed segment."""
        return self.manifest.listed().get(segment)
