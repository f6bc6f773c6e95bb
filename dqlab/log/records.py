"""The bytes of one record: a header of 48 bytes and an opaque body, each with its own checksum."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

MAGIC = 0x5251_44D9  # D9 'D' 'Q' 'R' on disk
HEADER_BYTES = 48
MAX_BODY = 64 << 20
FIRST_OPAQUE = 16
COPIED = 1
"""Flag of a record that a compaction appended again. The log does not interpret it."""

FIELDS = Struct("<IBBHIIQQIIII")
_CHECKED = Struct("<IBBHIIQQIII")
_CRC = Struct("<I")


class RecordType(IntEnum):
    """Names what a record holds."""

    SYNCED = 1
    OPEN = 2
    CLOSE = 3
    SEAL = 4
    # From here on the numbers belong to the journal; the log does not interpret them. Numbers are on disk: never give
    # one a second meaning.
    PUT = 16
    SETTLE = 17
    STATE = 18
    RUN = 19
    FUNCTION = 20
    LEASE = 21
    SPARSE = 22


class Position(NamedTuple):
    """The permanent place of a record."""

    segment: int
    """Number of its segment."""
    offset: int
    """Where its header begins there."""
    size: int
    """Bytes of header and body."""


class Record(NamedTuple):
    """A record that was read and checked."""

    type: int
    flags: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    base: int
    aux: int
    body: bytes | memoryview
    position: Position


class Header(NamedTuple):
    """A record's header with a valid checksum."""

    type: int
    flags: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    length: int
    base: int
    aux: int
    number: int
    epoch: int
    body_crc: int


def seed_of(uuid: bytes, segment: int) -> int:
    """Return the seed of the checksums of a segment's record headers."""
    # The seed makes a record valid only in its own log and segment: not stale bytes of a reused block, and not a record
    # of a file that was copied over this one.
    return crc32(uuid[:8] + segment.to_bytes(8, "little"))


def pack_header(header: Header, seed: int) -> bytes:
    """Return a header's 48 bytes."""
    type, flags, count, length, base, aux, number, epoch, body_crc = header
    checked = _CHECKED.pack(MAGIC, type, flags, HEADER_BYTES, count, length, base, aux, number, epoch, body_crc)
    return checked + _CRC.pack(crc32(checked, seed))


def parse_header(buffer: bytes, offset: int, seed: int) -> Header | None:
    """Return the header at an offset, or None when there is no valid header of this segment."""
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


def body_of(record: bytes, seed: int) -> tuple[Header, bytes] | None:
    """Return the header and the body of one whole record, None when either checksum is wrong."""
    header = parse_header(record, 0, seed)
    body = record[HEADER_BYTES:]
    if header is None or header.length != len(body) or crc32(body) != header.body_crc:
        return None
    return header, body
