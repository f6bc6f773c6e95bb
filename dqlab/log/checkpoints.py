"""The bytes of a checkpoint: where replay starts, and the journal's state."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from dqlab.log.directory import Directory
from dqlab.log.errors import LogTooNew

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
        raise LogTooNew(file=str(directory / name), theirs=f"{version} (checkpoint)", ours=str(_VERSION))
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
