"""Every system call of the log in one class, which tests replace by one that records calls or fails at the n-th."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Sequence
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
