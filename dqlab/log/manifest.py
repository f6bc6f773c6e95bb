"""Which files make up the log, in the order in which they are replayed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias
from zlib import crc32

from dqlab.log.directory import CHECKPOINT, segment_name
from dqlab.log.errors import LogTooNew, ManifestCorrupt
from dqlab.log.segment import FORMAT, FORMAT_TEXT, SEGMENT_BYTES

__all__ = ["Kind", "Manifest", "SegmentEntry", "resolve"]

Kind: TypeAlias = Literal["log", "compacted"]

_KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class SegmentEntry:
    """One segment.

    Attributes
    ----------
    seq, epoch : int
        Its number, which is never used again, and the epoch that wrote it.
    kind : {"log", "compacted"}
        Written by appends, or by compaction.
    covers : tuple of int
        Segments whose needed records a compacted one holds. While one of them is listed, it is replayed instead.
    length : int or None
        Bytes that count, all of them durable; None = open, up to its last valid record.
    continues : tuple of int, empty or (segment, offset)
        It holds what was to be in that segment from that offset on, when the disk failed there.
    """

    seq: int
    epoch: int
    kind: Kind = "log"
    covers: tuple[int, ...] = ()
    length: int | None = None
    continues: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Its file's name."""
        return segment_name(self.seq, self.epoch)


def resolve(continued: Mapping[int, tuple[int, int]], segment: int, offset: int) -> tuple[int, int]:
    """Return where a record is that was to be in that place.

    Parameters
    ----------
    continued : mapping of int to (int, int)
        By segment: the offset from which on its records are in another one, and which.
    """
    while (successor := continued.get(segment)) is not None and offset >= successor[0]:
        segment, offset = successor[1], offset - successor[0] + SEGMENT_BYTES
    return segment, offset


@dataclass(frozen=True)
class Manifest:
    """The list of a log's files; a new one for every change.

    Attributes
    ----------
    uuid : str
        The log's, 32 hex digits.
    epoch : int
        Who wrote it.
    next_seq : int
        Above the number of every segment.
    segments : tuple of SegmentEntry
        In the order of replay; an open one is the last.
    checkpoints : tuple of str
        Names, newest last.
    """

    uuid: str
    epoch: int
    next_seq: int = 1
    segments: tuple[SegmentEntry, ...] = ()
    checkpoints: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the file's bytes: JSON and a line with its checksum."""
        fields = {"format": FORMAT, "incompatible": 0, "compatible": 0, **asdict(self)}
        text = json.dumps(fields, indent=1).encode() + b"\n"
        return text + b"crc32 %08x\n" % crc32(text)

    @classmethod
    def decode(cls, data: bytes, file: str) -> Manifest:
        """Return what `encode` wrote.

        Raises
        ------
        ManifestCorrupt
            Not such bytes.
        LogTooNew
            A format that this version cannot read.
        """
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

    def listed(self) -> dict[int, SegmentEntry]:
        """Return the segments by number, in the order of replay."""
        return {entry.seq: entry for entry in self.segments}

    def place(self, seq: int) -> int:
        """Return a segment's place in the order of replay; that of the first one when it is not listed."""
        return next((place for place, entry in enumerate(self.segments) if entry.seq == seq), 0)

    def replayed(self, seq: int | None) -> list[SegmentEntry]:
        """Return the segments to replay from one on (None: all), each message's bytes in one of them."""
        listed = self.listed()
        entries = self.segments[self.place(seq) if seq is not None else 0 :]
        return [entry for entry in entries if not any(covered in listed for covered in entry.covers)]

    def continued(self) -> dict[int, tuple[int, int]]:
        """Return, by segment that a disk failed in, from which offset on its records are in which other one."""
        return {entry.continues[0]: (entry.continues[1], entry.seq) for entry in self.segments if entry.continues}

    # --- changing --------------------------------------------------------------------------

    def sealed(self, seq: int, length: int) -> Manifest:
        """Return it with a segment's length, which is final."""
        return replace(
            self,
            segments=tuple(
                replace(entry, length=length) if entry.seq == seq and entry.length is None else entry
                for entry in self.segments
            ),
        )

    def having(self, new: SegmentEntry, *, before: int | None = None) -> Manifest:
        """Return it with one more segment: the last, or the one before another."""
        place = len(self.segments) if before is None else self.place(before)
        segments = (*self.segments[:place], new, *self.segments[place:])
        return replace(self, segments=segments, next_seq=max(self.next_seq, new.seq + 1))

    def without(self, seqs: Collection[int]) -> Manifest:
        """Return it without some segments."""
        return replace(self, segments=tuple(entry for entry in self.segments if entry.seq not in seqs))

    def having_checkpoint(self, name: str) -> Manifest:
        """Return it with a newer checkpoint; the two newest stay."""
        return replace(self, checkpoints=(*self.checkpoints, name)[-_KEPT_CHECKPOINTS:])

    def next_checkpoint(self) -> int:
        """Return a number that no listed checkpoint has."""
        numbers = [int(match[2]) for name in self.checkpoints if (match := CHECKPOINT.fullmatch(name))]
        return max(numbers, default=0) + 1
