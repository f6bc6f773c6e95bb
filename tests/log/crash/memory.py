"""A `Files` over a dictionary: opening a log in it takes half the time, and gives the same.

`exploration` opens some states on a real file system as well, and compares file by file.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from dqlab.log.files import Buffer, Files, Lock
from tests.log.crash.recording import RecordingFiles
from tests.log.crash.simulator import Image

__all__ = ["MemoryFiles", "RecordedMemory"]

ROOM = 1 << 40


class _File:
    """An inode; its bytes are shared with the image it came from until they change."""

    __slots__ = ("data", "locked_by")

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = data
        self.locked_by = -1

    def writable(self) -> bytearray:
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        return self.data


_Entries = dict[str, "_File | None"]


class MemoryFiles(Files):
    """A file system that begins as an image and ends with this object.

    Parameters
    ----------
    root : Path
        What the image's paths are relative to; need not exist.
    image : dict
        Relative path → bytes, None for a directory; parents before what is in them.
    """

    def __init__(self, root: Path, image: Image) -> None:
        self.root = root
        self._directories: dict[str, _Entries] = {str(root): {}}
        self._open: dict[int, _File] = {}
        self._descriptors = itertools.count(3)
        for path, data in image.items():
            self._enter(f"{root}/{path}", None if data is None else _File(data))

    def tree(self) -> Image:
        """All there is, as an image."""
        skipped = len(str(self.root)) + 1
        found: Image = {}
        for directory, entries in self._directories.items():
            for name, file in entries.items():
                found[f"{directory}/{name}"[skipped:]] = None if file is None else bytes(file.data)
        return dict(sorted(found.items()))

    # --- names --------------------------------------------------------------------------------

    def _entries(self, path: Path | str) -> tuple[_Entries, str]:
        directory, _, name = str(path).rpartition("/")
        try:
            return self._directories[directory], name
        except KeyError:
            raise _error(errno.ENOENT) from None

    def _enter(self, path: Path | str, file: _File | None) -> None:
        entries, name = self._entries(path)
        entries[name] = file
        if file is None:
            self._directories[str(path)] = {}

    def _found(self, path: Path) -> _File:
        entries, name = self._entries(path)
        file = entries.get(name)
        if file is None:
            raise _error(errno.EISDIR if name in entries else errno.ENOENT)
        return file

    def _opened(self, file: _File) -> int:
        descriptor = next(self._descriptors)
        self._open[descriptor] = file
        return descriptor

    def create(self, path: Path) -> int:
        entries, name = self._entries(path)
        if name in entries:
            raise _error(errno.EEXIST)
        return self._created(path)

    def _created(self, path: Path) -> int:
        file = _File()
        self._enter(path, file)
        return self._opened(file)

    def open(self, path: Path, *, write: bool = False) -> int:
        return self._opened(self._found(path))

    def open_lock(self, path: Path) -> int:
        entries, name = self._entries(path)
        return self._opened(self._found(path)) if name in entries else self._created(path)

    def close(self, descriptor: int) -> None:
        file = self._open.pop(descriptor)
        if file.locked_by == descriptor:
            file.locked_by = -1

    def lock(self, descriptor: int) -> Lock:
        file = self._open[descriptor]
        if file.locked_by not in (-1, descriptor):
            return "refused"
        file.locked_by = descriptor
        return "held"

    def make_directory(self, path: Path) -> None:
        for level in reversed((path, *path.parents)):
            if level.is_relative_to(self.root) and str(level) not in self._directories:
                self._enter(level, None)

    def rename(self, old: Path, new: Path) -> None:
        file = self._found(old)
        self._enter(new, file)
        self._leave(old)

    def unlink(self, path: Path) -> None:
        self._found(path)
        self._leave(path)

    def _leave(self, path: Path) -> None:
        entries, name = self._entries(path)
        del entries[name]

    def exists(self, path: Path) -> bool:
        directory, _, name = str(path).rpartition("/")
        return name in self._directories.get(directory, ())

    def refresh(self, directory: Path) -> None:
        """Nothing is cached."""

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(self._directories[str(directory)])
        except KeyError:
            raise _error(errno.ENOENT) from None

    # --- bytes --------------------------------------------------------------------------------

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        written, data = b"".join(buffers), self._open[descriptor].writable()
        data.extend(bytes(max(0, offset - len(data))))
        data[offset : offset + len(written)] = written
        return len(written)

    def read(self, descriptor: int, n: int, offset: int) -> bytes:
        return bytes(self._open[descriptor].data[offset : offset + n])

    def size(self, descriptor: int) -> int:
        return len(self._open[descriptor].data)

    def truncate(self, descriptor: int, size: int) -> None:
        data = self._open[descriptor].writable()
        del data[size:]
        data.extend(bytes(size - len(data)))

    def sync(self, descriptor: int) -> None:
        assert descriptor in self._open

    def sync_directory(self, path: Path) -> None:
        if str(path) not in self._directories:
            raise _error(errno.ENOENT)

    # --- the machine --------------------------------------------------------------------------

    def free_bytes(self, directory: Path) -> int:
        return ROOM

    def filesystem(self, directory: Path) -> str:
        return "tmpfs"

    def pause(self, seconds: float) -> None:
        pass


class RecordedMemory(RecordingFiles, MemoryFiles):
    """Begins as an image, all of it durable, and writes down what becomes of it."""

    def __init__(self, root: Path, image: Image) -> None:
        MemoryFiles.__init__(self, root, image)
        RecordingFiles.__init__(self, root, image)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
