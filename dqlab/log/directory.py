"""The names of a log's files, and how a new file gets its name: complete and durable, or not at all."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dqlab.log.files import Files
from dqlab.platforms import Buffer

LOCK = "LOCK"
RESERVE = "reserve"
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


def shown(names: Sequence[str]) -> str:
    """Return the first three names, and how many others there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class Directory:
    """One log's directory, on which `files` makes every system call."""

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
        """Return a file's bytes."""
        try:
            with self.opened(name) as descriptor:
                size = self.files.size(descriptor)
                data = bytearray()
                while len(data) < size and (piece := self.files.read(descriptor, size - len(data), len(data))):
                    data += piece
                return bytes(data)
        except OSError as error:
            error.filename = error.filename or str(self / name)  # reading a descriptor names no file
            raise

    @contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """Open a file for reading while the block runs, and yield its descriptor."""
        descriptor = self.files.open(self / name)
        try:
            yield descriptor
        finally:
            self.files.close(descriptor)

    def publish(self, name: str, buffers: Sequence[Buffer]) -> None:
        """Replace a file's contents durably and atomically, or leave the old contents if anything fails."""
        self.files.close(self.create(name, buffers))

    def create(self, name: str, buffers: Sequence[Buffer]) -> int:
        """Publish a file, and return its open descriptor."""
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
        """Create an empty file, replacing what an earlier attempt may have left."""
        try:
            return self.files.create(self / temporary)
        except FileExistsError:
            self.files.unlink(self / temporary)
            return self.files.create(self / temporary)

    def settle(self, descriptor: int, temporary: str, name: str) -> None:
        """Sync a temporary file, rename it and sync the directory."""
        # In this order. Renamed first, a power cut may leave the name with an empty or half-written file, in place of
        # a whole old one. Without the directory's sync the rename itself may be undone, after it was acted upon.
        self.files.sync(descriptor)
        try:
            self.files.rename(self / temporary, self / name)
        except OSError:
            # On NFS a rename that succeeded is reported as failed when the client repeats it.
            if self.files.exists(self / temporary) or not self.files.exists(self / name):
                raise
        self.files.sync_directory(self.path)

    def abandon(self, descriptor: int, temporary: str) -> None:
        """Close and remove a temporary file."""
        # Nothing depends on it: the next open removes what remains.
        with suppress(OSError):
            self.files.close(descriptor)
        with suppress(OSError):
            self.files.unlink(self / temporary)


def write_all(files: Files, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
    """Write buffers to a temporary file in as many calls as needed, and return the offset of the end."""
    data: Buffer = memoryview(b"".join(buffers))
    while data:
        written = files.write(descriptor, [data], offset)
        # A system that reports no error and writes nothing would keep this loop running for ever.
        if written == 0:
            raise OSError(errno.ENOSPC, "nothing was written")
        data, offset = data[written:], offset + written
    return offset
