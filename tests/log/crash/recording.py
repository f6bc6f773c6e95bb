"""A `Files` that writes down what was asked of the operating system, for `simulator` to play again.

Paths are kept relative to a root; an inode is a number that stays with a file through its renames.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqlab.log.files import Buffer, Files

__all__ = [
    "DIRECTORY",
    "FailingSync",
    "NoDirectorySync",
    "NoSync",
    "Operation",
    "RecordingFiles",
    "RenameBeforeSync",
    "UnlinkBeforeManifest",
    "read_tree",
]

DIRECTORY = -1
"""The inode of every directory: it has no bytes, only a name."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of the disk, or a mark: what was promised up to here.

    `kind` is create, write, truncate, sync, forget (a sync that failed), sync_directory, rename,
    unlink or mark.
    """

    kind: str
    inode: int = DIRECTORY
    path: str = ""
    new: str = ""
    offset: int = 0
    data: bytes = b""
    mark: Any = None


def read_tree(root: Path) -> dict[str, bytes | None]:
    """Every file below a directory with its bytes; None for a directory."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))
    }


class RecordingFiles(Files):
    """Calls the operating system and remembers what succeeded.

    Parameters
    ----------
    root : Path
        What is recorded lies below it.
    image : dict, optional
        What lies there before, all of it durable; by default what the directory holds.
    """

    def __init__(self, root: Path, image: dict[str, bytes | None] | None = None) -> None:
        self.root = root
        self.image = read_tree(root) if image is None else image
        self.operations: list[Operation] = []
        self._numbers = itertools.count()
        self._names: dict[str, int] = {
            path: DIRECTORY if data is None else next(self._numbers) for path, data in self.image.items()
        }
        self.first_inodes = dict(self._names)
        self._inodes: dict[int, int] = {}
        self._lock = threading.RLock()

    def count(self, kind: str, suffix: str) -> int:
        """How many operations of a kind were made on files whose name ends so."""
        return sum(one.kind == kind and (one.new or one.path).endswith(suffix) for one in self.operations)

    def pause(self, seconds: float) -> None:
        """Nothing waits."""

    def mark(self, promise: Any) -> None:
        """From here on, this is what the log has promised."""
        with self._lock:
            if self.operations and self.operations[-1].kind == "mark":
                self.operations.pop()
            self._add(Operation("mark", mark=promise))

    def _add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    def _made(self, path: Path, descriptor: int) -> None:
        inode = next(self._numbers)
        self._names[self._relative(path)] = self._inodes[descriptor] = inode
        self._add(Operation("create", inode, self._relative(path)))

    def create(self, path: Path) -> int:
        with self._lock:
            descriptor = super().create(path)
            self._made(path, descriptor)
            return descriptor

    def open(self, path: Path, *, write: bool = False) -> int:
        with self._lock:
            descriptor = super().open(path, write=write)
            self._inodes[descriptor] = self._names[self._relative(path)]
            return descriptor

    def open_lock(self, path: Path) -> int:
        with self._lock:
            descriptor = super().open_lock(path)
            if self._relative(path) in self._names:
                self._inodes[descriptor] = self._names[self._relative(path)]
            else:
                self._made(path, descriptor)
            return descriptor

    def close(self, descriptor: int) -> None:
        with self._lock:
            super().close(descriptor)
            self._inodes.pop(descriptor, None)

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        with self._lock:
            written = super().write(descriptor, buffers, offset)
            data = b"".join(buffers)[:written]
            self._add(Operation("write", self._inodes[descriptor], offset=offset, data=data))
            return written

    def truncate(self, descriptor: int, size: int) -> None:
        with self._lock:
            super().truncate(descriptor, size)
            self._add(Operation("truncate", self._inodes[descriptor], offset=size))

    def sync(self, descriptor: int) -> None:
        with self._lock:
            super().sync(descriptor)
            self._add(Operation("sync", self._inodes[descriptor]))

    def sync_directory(self, path: Path) -> None:
        with self._lock:
            super().sync_directory(path)
            self._add(Operation("sync_directory", path=self._relative(path)))

    def make_directory(self, path: Path) -> None:
        with self._lock:
            super().make_directory(path)
            missing = [level for level in (path, *path.parents) if level.is_relative_to(self.root)]
            for level in reversed(missing):
                relative = self._relative(level)
                if relative != "." and relative not in self._names:
                    self._names[relative] = DIRECTORY
                    self._add(Operation("create", DIRECTORY, relative))

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            super().rename(old, new)
            inode = self._names.pop(self._relative(old))
            self._names[self._relative(new)] = inode
            self._add(Operation("rename", inode, self._relative(old), self._relative(new)))

    def unlink(self, path: Path) -> None:
        with self._lock:
            super().unlink(path)
            inode = self._names.pop(self._relative(path))
            self._add(Operation("unlink", inode, self._relative(path)))


class NoDirectorySync(RecordingFiles):
    """A planted fault: names are never brought to the device."""

    def sync_directory(self, path: Path) -> None:
        pass


class NoSync(RecordingFiles):
    """A planted fault: data are never brought to the device."""

    def sync(self, descriptor: int) -> None:
        pass


class FailingSync(RecordingFiles):
    """The n-th data sync fails, once. As on Linux: the pages count as clean from then on and never reach the device."""

    n: int = 1 << 60

    def sync(self, descriptor: int) -> None:
        self.n -= 1
        if self.n != 0:
            super().sync(descriptor)
            return
        with self._lock:
            self._add(Operation("forget", self._inodes[descriptor]))
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class RenameBeforeSync(RecordingFiles):
    """A planted fault: a temporary file gets its final name first and is synced afterwards."""

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            super().rename(old, new)
            renamed = self.operations.pop()
            last = max(
                (at for at, operation in enumerate(self.operations) if operation == Operation("sync", renamed.inode)),
                default=None,
            )
            synced = [] if last is None else [self.operations.pop(last)]
            self.operations += [renamed, *synced]


class UnlinkBeforeManifest(RecordingFiles):
    """A planted fault: a segment is deleted before the manifest is in force that does without it."""

    def unlink(self, path: Path) -> None:
        with self._lock:
            super().unlink(path)
            if path.suffix == ".seg":
                unlinked = self.operations.pop()
                published = [at for at, one in enumerate(self.operations) if "MANIFEST" in one.new]
                self.operations.insert(published[-1], unlinked)
