"""The bytes of a segment: a header of 64 bytes and records, each a header of 48 bytes and an opaque body.

Each has its own checksum. `Scan` reads the records in order and skips damaged ones.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from dqlab.log.errors import too_new
from dqlab.log.files import Files

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
    messages: int
    base: int
    aux: int
    body: bytes | memoryview
    position: Position


class Header(NamedTuple):
    """A record's header with a valid checksum."""

    type: int
    flags: int
    messages: int
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


FORMAT = (1, 0)
FORMAT_TEXT = "1.0"
SEGMENT_BYTES = 64

_MAGIC = b"DQLABSEG"
_CRC32 = 0  # the only checksum so far; others would get other numbers
_FIELDS = Struct("<8sHHIB3xQQQQ8s")
_WINDOW = 256 << 10
_ANY = 1 << 32
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")


def pack_segment_header(uuid: bytes, seq: int, epoch: int, wall: float) -> bytes:
    """Return the header of a new segment, created at `wall` seconds since 1970."""
    fields = _FIELDS.pack(_MAGIC, *FORMAT, 0, _CRC32, seq, epoch, 0, int(wall * 1e9), uuid[:8])
    return fields + crc32(fields).to_bytes(4, "little")


def check_segment_header(header: bytes, uuid: bytes, seq: int, epoch: int, file: str) -> bool:
    """Return whether bytes are the header of a segment, or raise `CannotOpen` for a later format."""
    if len(header) < SEGMENT_BYTES or crc32(header[:60]) != int.from_bytes(header[60:64], "little"):
        return False
    magic, major, minor, incompatible, algorithm, *where, _base, _wall, prefix = _FIELDS.unpack_from(header)
    if magic != _MAGIC or where != [seq, epoch] or prefix != uuid[:8]:
        return False
    if major != FORMAT[0] or incompatible or algorithm != _CRC32:
        raise too_new(file, f"{major}.{minor} (features {incompatible:#x})", FORMAT_TEXT)
    return True


class Gap(NamedTuple):
    """Bytes of a segment without a valid record."""

    start: int
    stop: int
    header: Header | None
    """Intact header of the damaged record; None = it is not known which records were here."""


class Scan:
    """Reads the valid records of one segment from `start` to `limit`, each once."""

    def __init__(
        self, files: Files, descriptor: int, *, segment: int, epoch: int, seed: int, start: int, limit: int
    ) -> None:
        self._files = files
        self._descriptor = descriptor
        self._segment = segment
        self._epoch = epoch
        self._seed = seed
        self._limit = limit
        self._number = -1  # of the last record whose header was intact
        self._follows = False  # the next record must carry the next number
        # Where the last valid record so far ends, its type (0 = none yet), and the bytes between valid records and
        # behind them. `end` and `last` are exact after the iteration; while it runs, they lag by up to a window.
        self.end = start
        self.last = 0
        self.gaps: list[Gap] = []

    def __iter__(self) -> Iterator[Record]:
        """Yield the journal's records, without the log's own."""
        offset, need = self.end, HEADER_BYTES
        while offset < self._limit:
            window = self._read(offset, max(need, _WINDOW))
            if len(window) >= need:
                offset, need = yield from self._records(window, offset)
            else:
                need = 0
            if need == 0:
                offset, need = self._pass_gap(offset), HEADER_BYTES

    def _records(self, window: bytes, start: int) -> Generator[Record, None, tuple[int, int]]:
        """Yield a window's records, and return the offset behind them and the bytes needed there (0 = damage)."""
        unpack, segment, seed, epoch = FIELDS.unpack_from, self._segment, self._seed, self._epoch
        new: Any = tuple.__new__  # twice as fast as the constructors of named tuples
        at, size, least, last, need = 0, len(window), self._number + 1, self.last, HEADER_BYTES
        most = least if self._follows else _ANY
        while (body_at := at + HEADER_BYTES) <= size:
            _, type, flags, _, count, length, base, aux, number, owner, body_crc, crc = unpack(window, at)
            # The header's checksum covers magic and size, so they need no test of their own here.
            if crc32(window[at : body_at - 4], seed) != crc or owner != epoch or not least <= number <= most:
                need = 0
                break
            stop = body_at + length
            if stop > size:
                need = HEADER_BYTES + length if length <= MAX_BODY else 0
                break
            body = window[body_at:stop]
            if crc32(body) != body_crc:
                need = 0
                break
            least = most = number + 1
            last = type
            if type >= FIRST_OPAQUE:
                yield new(
                    Record, (type, flags, count, base, aux, body, new(Position, (segment, start + at, stop - at)))
                )
            at = stop
        if at:
            self._number, self._follows, self.end, self.last = least - 1, True, start + at, last
        return start + at, need

    def _pass_gap(self, offset: int) -> int:
        """Note the damage at an offset, and return the offset to go on from."""
        # Three cases: an unreadable header, so search for the next one; an intact header with a number too high, so
        # records before it are gone; an intact header with a damaged body, so skip this one record. Numbers must
        # ascend: bytes of an older record that a truncation left behind are valid, but not part of the log.
        header = parse_header(self._read(offset, HEADER_BYTES), 0, self._seed)
        if header is None or header.epoch != self._epoch or header.number <= self._number:
            stop, header = self._find(offset + 1), None
            self._follows = False
        elif self._follows and header.number != self._number + 1:
            stop, header = offset, None
            self._follows = False
        else:
            stop = min(offset + HEADER_BYTES + header.length, self._limit)
            self._number, self._follows = header.number, True
        self.gaps.append(Gap(offset, stop, header))
        return stop

    def _find(self, offset: int) -> int:
        """Return the offset of the next header of this segment, or the limit when there is none."""
        while window := self._read(offset, _WINDOW):
            at = window.find(_MAGIC_BYTES)
            while at >= 0:
                header = parse_header(window, at, self._seed)
                if header is not None and header.epoch == self._epoch and header.number > self._number:
                    return offset + at
                at = window.find(_MAGIC_BYTES, at + 1)
            if len(window) < HEADER_BYTES:
                break
            # Windows overlap, so that a header across the end of one is whole in the next.
            offset += len(window) - HEADER_BYTES + 1
        return self._limit

    def _read(self, offset: int, size: int) -> bytes:
        return read_fully(self._files, self._descriptor, min(size, self._limit - offset), offset)


def read_fully(files: Files, descriptor: int, size: int, offset: int) -> bytes:
    """Return `size` bytes at an offset, fewer only at the end of the file."""
    data = files.read(descriptor, size, offset)
    while len(data) < size and (more := files.read(descriptor, size - len(data), offset + len(data))):
        data += more
    return data
