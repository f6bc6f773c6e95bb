"""A log's files: every system call in one class, their names, and how a new file gets its name: whole, or not at all.

Tests replace `Files` by a class that records calls, or fails at the n-th.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

from dqlab import platforms
from dqlab.platforms import Buffer

Lock: TypeAlias = Literal["held", "refused", "unsupported"]

_ESCAPED = re.compile(rb"\\([0-7]{3})")
"""Blanks, tabs, line ends and backslashes of a mount point, as the kernel escapes them."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


class Files:
    """Wraps `os` for the log, which touches no file in any other way."""

    # Descriptors are close-on-exec: a worker's child processes must not keep the lock of a log that its owner closed.
    # Modes 0700 and 0600 keep other users of a machine from reading messages.
    def create(self, path: Path) -> int:
        """Create a file that must not exist, and return a descriptor for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: Path, *, write: bool = False) -> int:
        """Open a file that exists."""
        return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)

    def open_lock(self, path: Path) -> int:
        """Open a lock file, and create it if it is missing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def lock(self, descriptor: int) -> Lock:
        """Lock a file for this descriptor alone, without waiting."""
        try:
            # Not `lockf`: a POSIX lock ends when this process closes any descriptor of the file, and `look_at_lock`
            # opens, reads and closes the same file.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "refused"
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return "unsupported"
            raise
        return "held"

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write buffers at an offset, and return how many bytes were written, possibly fewer."""
        return platforms.write_at(descriptor, buffers, offset)

    def read(self, descriptor: int, n: int, offset: int) -> bytes:
        """Read up to `n` bytes at an offset."""
        return os.pread(descriptor, n, offset)

    def size(self, descriptor: int) -> int:
        """Return a file's size, bytes."""
        return os.fstat(descriptor).st_size

    def truncate(self, descriptor: int, size: int) -> None:
        """Truncate a file."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Sync a file's data to the device."""
        platforms.sync_data(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Sync a directory's names to the device."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, if they are missing."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, replacing a file of that name."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        path.unlink()

    def exists(self, path: Path) -> bool:
        """Return whether a name exists, or raise OSError when this cannot be found out."""
        # Opened, because network file systems cache attributes for seconds. `os.access` would answer "no" when no
        # descriptor is left or a server fails, and an owner would take itself for fenced.
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def refresh(self, directory: Path) -> None:
        """Make a network file system read a directory again."""
        # Such file systems also cache which names are missing; opening the directory makes the client ask its server.
        os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        with os.scandir(directory) as entries:  # a fraction of what `iterdir` takes
            return sorted(entry.name for entry in entries)

    def free_bytes(self, directory: Path) -> int:
        """Return the bytes that a user may still write to the directory's file system."""
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize

    def filesystem(self, directory: Path) -> str:
        """Return the type of a directory's file system, such as "ext4" or "nfs4", or "" when it is unknown."""
        return mounted(platforms.mount_table(), os.fsencode(directory.resolve()))

    def pause(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class UnsyncedFiles(Files):
    """The same for a log that a power cut may take: nothing is ever synced."""

    def sync(self, descriptor: int) -> None:
        """Do nothing."""

    def sync_directory(self, path: Path) -> None:
        """Do nothing."""


def mounted(mounts: bytes, place: bytes) -> str:
    """Return the type of the file system that holds an absolute path, or "" when the mount table does not show it."""
    best, kind = -1, b""
    for line in mounts.split(b"\n"):
        fields = line.split(b" ")
        if len(fields) < 3:
            continue
        point = _ESCAPED.sub(lambda found: bytes((int(found[1], 8),)), fields[1])
        # `>=`: of two mounts on one point the later one hides the earlier one.
        if (place + b"/").startswith(point.rstrip(b"/") + b"/") and len(point) >= best:
            best, kind = len(point), fields[2]
    return kind.decode(errors="replace")


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
