"""The bytes of one record: a header of 48 bytes and an opaque body, each with a checksum of its own.

The header's checksum starts from the log's uuid and the segment's number, so that neither stale bytes nor a
record of another file ever validates.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from dqlab.log.files import Buffer

__all__ = [
    "FIELDS",
    "FIRST_OPAQUE",
    "HEADER_BYTES",
    "MAGIC",
    "MAX_BODY",
    "Header",
    "NewRecord",
    "Position",
    "Record",
    "RecordType",
    "pack_header",
    "parse_header",
    "seed_of",
]

MAGIC = 0x5251_44D9  # D9 'D' 'Q' 'R' on disk
HEADER_BYTES = 48
MAX_BODY = 64 << 20
FIRST_OPAQUE = 16

FIELDS = Struct("<IBBHIIQQIIII")
_CHECKED = Struct("<IBBHIIQQIII")
_CRC = Struct("<I")


class RecordType(IntEnum):
    """What a record is. Those below `FIRST_OPAQUE` are the log's own; the others mean nothing to it."""

    SYNCED = 1
    OPEN = 2
    CLOSE = 3
    SEAL = 4
    PUT = 16
    SETTLE = 17
    STATE = 18
    RUN = 19
    FUNCTION = 20
    LEASE = 21
    SPARSE = 22


class Position(NamedTuple):
    """Where a record is, for ever: its segment's number, its offset there and its size with header, bytes."""

    segment: int
    offset: int
    size: int


class Record(NamedTuple):
    """A record as it is read."""

    type: int
    flags: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody misses
    base: int
    aux: int
    body: bytes | memoryview
    position: Position


class NewRecord(NamedTuple):
    """A record that compaction shall write.

    Attributes
    ----------
    type, parts, count, base, aux, flags, needed
        As in `Log.append`.
    key : object
        Comes back beside the new position, for the journal to know what moved.
    """

    type: int
    parts: Sequence[Buffer]
    count: int = 0  # type: ignore[assignment]
    base: int = 0
    aux: int = 0
    flags: int = 0
    needed: int = 0
    key: Any = None


class Header(NamedTuple):
    """A record's header whose checksum is right."""

    type: int
    flags: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody misses
    length: int
    base: int
    aux: int
    number: int
    epoch: int
    body_crc: int


def seed_of(uuid: bytes, segment: int) -> int:
    """Return what the checksums of a segment's record headers start from."""
    return crc32(uuid[:8] + segment.to_bytes(8, "little"))


def pack_header(header: Header, seed: int) -> bytes:
    """Return a header's 48 bytes."""
    type, flags, count, length, base, aux, number, epoch, body_crc = header
    checked = _CHECKED.pack(MAGIC, type, flags, HEADER_BYTES, count, length, base, aux, number, epoch, body_crc)
    return checked + _CRC.pack(crc32(checked, seed))


def parse_header(buffer: bytes, offset: int, seed: int) -> Header | None:
    """Return the header at an offset, or None when there is none of this segment."""
    if offset + HEADER_BYTES > len(buffer):
        return None
    magic, type, flags, size, count, length, base, aux, number, epoch, body_crc, crc = FIELDS.unpack_from(
        buffer, offset
    )
    if magic != MAGIC or size != HEADER_BYTES or length > MAX_BODY:
        return None
    if crc32(buffer[offset : offset + HEADER_BYTES - 4], seed) != crc:
        return None
    return Header(type, flags, count, length, base, aux, number, epoch, body_crc)
