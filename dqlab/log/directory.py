"""The names of a log's files, and how a new file comes to its name: complete and durable, or not at all."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dqlab.log.files import Buffer, Files

__all__ = [
    "CHECKPOINT",
    "EPOCH",
    "MANIFEST",
    "SEGMENT",
    "Directory",
    "checkpoint_name",
    "epoch_name",
    "is_ours",
    "manifest_name",
    "segment_name",
]

LOCK = "LOCK"
RESERVE = "reserve"
QUARANTINE = "quarantine"
TEMPORARY = ".tmp"

EPOCH = re.compile(r"EPOCH-(\d{10})")
MANIFEST = re.compile(r"MANIFEST-(\d{10})")
SEGMENT = re.compile(r"(\d{10})-(\d{10})\.seg")
CHECKPOINT = re.compile(r"ckpt-(\d{10})-(\d{10})")


def epoch_name(epoch: int) -> str:
    """Return the name of the file whose existence means that an epoch began."""
    return f"EPOCH-{epoch:010d}"


def manifest_name(epoch: int) -> str:
    """Return the name of an epoch's manifest."""
    return f"MANIFEST-{epoch:010d}"


def segment_name(seq: int, epoch: int) -> str:
    """Return the name of a segment."""
    return f"{seq:010d}-{epoch:010d}.seg"


def checkpoint_name(epoch: int, number: int) -> str:
    """Return the name of an epoch's n-th checkpoint."""
    return f"ckpt-{epoch:010d}-{number:010d}"


def is_ours(name: str) -> bool:
    """Return whether a file of this name is a log's."""
    name = name.removesuffix(TEMPORARY)
    return name == LOCK or any(pattern.fullmatch(name) for pattern in (EPOCH, MANIFEST, SEGMENT, CHECKPOINT))


class Directory:
    """One log's directory.

    Attributes
    ----------
    path : Path
        Where it is.
    files : Files
        What touches it.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self.files = files

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def names(self) -> list[str]:
        """Return the names in it, sorted."""
        return self.files.names(self.path)

    def numbered(self, pattern: re.Pattern[str]) -> list[int]:
        """Return the first number of each name of a kind, ascending."""
        return sorted(int(match[1]) for name in self.names() if (match := pattern.fullmatch(name)))

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises
        ------
        OSError
            It is not there, or cannot be read.
        """
        descriptor = self.files.open(self / name)
        try:
            size = self.files.size(descriptor)
            data = bytearray()
            while len(data) < size and (piece := self.files.read(descriptor, size - len(data), len(data))):
                data += piece
            return bytes(data)
        finally:
            self.files.close(descriptor)

    def publish(self, name: str, buffers: Sequence[Buffer]) -> None:
        """Give a name new contents, durably and at once; whatever fails, the old ones stay."""
        self.files.close(self.create(name, buffers))

    def create(self, name: str, buffers: Sequence[Buffer]) -> int:
        """As `publish`; return the file's open descriptor."""
        temporary = name + TEMPORARY
        descriptor = self.create_temporary(temporary)
        try:
            write_all(self.files, descriptor, buffers, 0)
            self.settle(descriptor, temporary, name)
        except BaseException:
            self.abandon(descriptor, temporary)
            raise
        return descriptor

    def create_temporary(self, temporary: str) -> int:
        """Make an empty file in place of what an earlier attempt may have left."""
        try:
            return self.files.create(self / temporary)
        except FileExistsError:
            self.files.unlink(self / temporary)
            return self.files.create(self / temporary)

    def settle(self, descriptor: int, temporary: str, name: str) -> None:
        """Make a temporary file durable and give it its name, durably too."""
        self.files.sync(descriptor)
        try:
            self.files.rename(self / temporary, self / name)
        except OSError:
            # Over a network a rename may be reported as failed because its own retry found it done.
            if self.files.exists(self / temporary) or not self.files.exists(self / name):
                raise
        self.files.sync_directory(self.path)

    def abandon(self, descriptor: int, temporary: str) -> None:
        """Close and remove a temporary file that is of no use; the next open removes what this cannot."""
        with suppress(OSError):
            self.files.close(descriptor)
        with suppress(OSError):
            self.files.unlink(self / temporary)


def write_all(files: Files, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
    """Write buffers to a file that has no name yet, in as many calls as it takes; return the end's offset."""
    data: Buffer = memoryview(b"".join(buffers))
    while data:
        written = files.write(descriptor, [data], offset)
        if written == 0:
            raise OSError(errno.ENOSPC, "nothing was written")
        data, offset = data[written:], offset + written
    return offset
