"""Which files make up the log, in the order of replay: `Manifest` is the list, `Catalog` the one in force.

A file counts only while the manifest lists it. Each change is a new manifest, durable before it takes effect.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any
from zlib import crc32

from dqlab.log.errors import ManifestCorrupt, too_new, tried_twice
from dqlab.log.files import CHECKPOINT, Directory, Files, manifest_name, segment_name
from dqlab.log.ownership import Ownership
from dqlab.log.records import FORMAT, FORMAT_TEXT, Scan, seed_of

_KEPT_CHECKPOINTS = 2
_APPENDED_COPIES = 1
"""Feature bit: a record may be a copy of an earlier one, which earlier versions would pass over."""


@dataclass(frozen=True)
class SegmentEntry:
    """One segment, as the manifest lists it."""

    seq: int
    """Its number, which is never used again."""
    epoch: int
    """The epoch that wrote it."""
    length: int | None = None
    """Bytes that count, all of them durable; None = open, up to its last valid record."""

    @property
    def name(self) -> str:
        """Its file's name."""
        return segment_name(self.seq, self.epoch)


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
        fields = {"format": FORMAT, "incompatible": _APPENDED_COPIES, "compatible": 0, **asdict(self)}
        text = json.dumps(fields, indent=1).encode() + b"\n"
        return text + b"crc32 %08x\n" % crc32(text)

    @classmethod
    def decode(cls, data: bytes, file: str) -> Manifest:
        """Return what `encode` wrote, or raise `ManifestCorrupt` or `CannotOpen` if this version cannot read it."""
        text, _, crc = data[:-1].rpartition(b"\n")
        text += b"\n"
        if data[-1:] != b"\n" or crc != b"crc32 %08x" % crc32(text):
            raise ManifestCorrupt(file=file, reason="its checksum is wrong")
        try:
            fields = json.loads(text)
            major, minor = fields["format"]
            incompatible = fields["incompatible"]
            if major == FORMAT[0] and incompatible in (0, _APPENDED_COPIES):
                return cls._from(fields)
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestCorrupt(file=file, reason=f"{type(error).__name__}: {error}") from error
        raise too_new(file, f"{major}.{minor} (features {incompatible:#x})", FORMAT_TEXT)

    @classmethod
    def _from(cls, fields: dict[str, Any]) -> Manifest:
        segments = tuple(
            SegmentEntry(
                # Field by field, not `**entry`: a later minor version may add fields, and this one must still open its
                # logs.
                seq=entry["seq"],
                epoch=entry["epoch"],
                length=entry["length"],
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

    def replayed(self, seq: int | None) -> tuple[SegmentEntry, ...]:
        """Return the segments to replay from one on (None = all)."""
        return self.segments[self.place(seq) if seq is not None else 0 :]

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

    def having(self, new: SegmentEntry) -> Manifest:
        """Return a copy with one more segment, or itself if it lists the segment already."""
        # A publication whose last check of the epoch was refused is in force anyway, and is repeated. Listed
        # twice, the segment would be replayed twice.
        if any(entry.seq == new.seq for entry in self.segments):
            return self
        return replace(self, segments=(*self.segments, new), next_seq=max(self.next_seq, new.seq + 1))

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

    def __init__(self, directory: Directory, owner: Ownership, manifest: Manifest) -> None:
        self._directory = directory
        self._owner = owner
        self._seqs = manifest.next_seq
        self._seqs_lock = threading.Lock()
        # Held from reading the manifest to publishing a changed one, and by each commit; `writer.py` has the order of
        # locks.
        self.lock = threading.RLock()
        self.manifest = manifest
        self.uuid = bytes.fromhex(manifest.uuid)

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
        tried_twice(self._directory, lambda: self._directory.publish(name, [data]))
        self.manifest = manifest
        self._owner.check()
