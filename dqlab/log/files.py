"""Every call to the operating system that the log makes.

Tests put other layers in its place: one that records, one that fails at the n-th call.
"""

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

__all__ = ["Buffer", "Files", "Lock", "mounted"]

Buffer: TypeAlias = bytes | bytearray | memoryview
Lock: TypeAlias = Literal["held", "refused", "unsupported"]

_ESCAPED = re.compile(rb"\\([0-7]{3})")
"""Blanks, tabs, line ends and backslashes of a mount point, as the kernel writes them; all other bytes are left."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


class Files:
    """A thin wrapper around `os`; nothing else in this room touches a file.

    Descriptors are close-on-exec; directories are made with mode 0700, files with mode 0600.
    """

    def create(self, path: Path) -> int:
        """Make a file that must not exist; return a descriptor to read and write it."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: Path, *, write: bool = False) -> int:
        """Open a file that exists."""
        return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC)

    def open_lock(self, path: Path) -> int:
        """Open a lock file, made if there is none."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def lock(self, descriptor: int) -> Lock:
        """Lock a file for this descriptor alone, without waiting; see flock(2)."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "refused"
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return "unsupported"
            raise
        return "held"

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write buffers at an offset; return how many bytes were written, which may be fewer."""
        return platforms.write_at(descriptor, buffers, offset)

    def read(self, descriptor: int, n: int, offset: int) -> bytes:
        """Read up to `n` bytes at an offset."""
        return os.pread(descriptor, n, offset)

    def size(self, descriptor: int) -> int:
        """Return a file's size, bytes."""
        return os.fstat(descriptor).st_size

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file."""
        os.ftruncate(descriptor, size)

    def allocate(self, descriptor: int, size: int) -> None:
        """Allocate a file's first `size` bytes on the device."""
        platforms.allocate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Bring a file's data to the device."""
        platforms.sync_data(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Bring a directory's names to the device."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_directory(self, path: Path) -> None:
        """Make a directory, with its parents; one that exists is fine."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, in place of a file that has it."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        path.unlink()

    def exists(self, path: Path) -> bool:
        """Return whether a name exists. Opens it: network file systems cache attributes for seconds.

        Raises
        ------
        OSError
            That cannot be told: no descriptor is left, the disk or its server failed. `os.access` says "no" there.
        """
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def refresh(self, directory: Path) -> None:
        """Have a file server asked for a directory's names: what is not there is cached too, until it is opened."""
        os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(directory))  # noqa: PTH208 - a fifth of what `iterdir` takes

    def free_bytes(self, directory: Path) -> int:
        """Return the bytes a user may still write to the directory's file system."""
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize

    def filesystem(self, directory: Path) -> str:
        """Return the type of a directory's file system, such as "ext4" or "nfs4"; "" when unknown."""
        return mounted(platforms.mount_table(), os.fsencode(directory.resolve()))

    def pause(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def mounted(mounts: bytes, place: bytes) -> str:
    """Return the type of the file system that holds an absolute path; "" when none does.

    Parameters
    ----------
    mounts : bytes
        As `platforms.mount_table` returns it: of two mounts on one point the later one is seen.
    """
    best, kind = -1, b""
    for line in mounts.split(b"\n"):
        fields = line.split(b" ")
        if len(fields) < 3:
            continue
        point = _ESCAPED.sub(lambda found: bytes((int(found[1], 8),)), fields[1])
        if (place + b"/").startswith(point.rstrip(b"/") + b"/") and len(point) >= best:
            best, kind = len(point), fields[2]
    return kind.decode(errors="replace")
