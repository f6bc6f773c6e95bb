"""The folder of a sink, on this machine or behind fsspec, whose files are whole under their names.

Knows neither formats nor runs. A secret is looked up where the folder is opened (see `documents.storage`).
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dqlab.documents.storage import local_path, redacted, remote, storage_of

WRITING = ".part.writing-"
"""Prefix of files that are being written, and of those that a killed process left."""
_OF_NAMES = {
    errno.EEXIST,
    errno.EILSEQ,
    errno.EINVAL,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
}
"""Errors of a file system that accepts other files, but none under this name."""


class NameRefused(OSError):
    """A file was written, but cannot have its name."""


class Target:
    """A folder that one run writes into."""

    def __init__(self, where: str) -> None:
        self.where = where  # an absolute path or a URL; a `StoredAt` carries the options to open it
        self._local = None if storage_of(where) else local_path(where)
        self._remote: tuple[Any, str] | None = None

    def __repr__(self) -> str:
        return f"<Target {str(self.where)!r}>"

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine, or one that is mounted here."""
        return self._local is not None

    def path(self, name: str) -> str:
        """Return the path or URL of a file, for messages."""
        return str(Path(self._local) / name) if self._local is not None else f"{str(self.where).rstrip('/')}/{name}"

    def make(self) -> None:
        """Create the folder, if its storage has folders."""
        if self._local is not None:
            Path(self._local).mkdir(parents=True, exist_ok=True)
        else:
            with self._system() as (system, root):
                system.makedirs(root, exist_ok=True)

    def write(self, name: str, data: bytes | memoryview, *, lasting: bool = True, flushed: bool = True) -> None:
        """Write a file whole, in place of an existing one, or raise `NameRefused` if only its name is the problem."""
        # Without `lasting`, the name is on the disk only after the next `sync`. Without `flushed`, the system writes
        # the bytes later: a power failure may lose them, the death of a process does not. If this raises, there is no
        # new file under the name.
        if self._local is None:
            with self._system() as (system, root):
                system.pipe_file(f"{root}/{name}", bytes(data))
            return
        final = Path(self._local) / name
        made = self._written(data, flushed=flushed)
        try:
            made.replace(final)
        except OSError as error:
            made.unlink(missing_ok=True)
            if error.errno in _OF_NAMES:
                raise NameRefused(error.errno, error.strerror, str(final)) from error
            raise
        if lasting and flushed:
            self.sync()

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists, and return whether it was written."""
        if self._local is None:
            with self._system() as (system, root):
                path = f"{root}/{name}"
                if system.exists(path):
                    return False
                try:
                    system.pipe_file(path, data, mode="create")
                except FileExistsError:
                    return False
                except (TypeError, ValueError, NotImplementedError):  # this file system, or its version, lacks the mode
                    system.pipe_file(path, data)
                # Read back: without that mode, another process may have written at the same time, and the last wins.
                return bool(system.cat_file(path) == data)
        try:
            with (Path(self._local) / name).open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            return False
        self.sync()
        return True

    def read(self, name: str) -> bytes:
        """Return the bytes of a file, or raise `FileNotFoundError`."""
        if self._local is not None:
            return (Path(self._local) / name).read_bytes()
        with self._system() as (system, root):
            data: bytes = system.cat_file(f"{root}/{name}")
            return data

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        if self._local is not None:
            (Path(self._local) / name).unlink(missing_ok=True)
            return
        with self._system() as (system, root), suppress(FileNotFoundError):
            system.rm_file(f"{root}/{name}")

    def names(self) -> list[str]:
        """Return the names in the folder, sorted, or nothing if there is no folder."""
        if self._local is not None:
            with suppress(FileNotFoundError):
                return sorted(each.name for each in Path(self._local).iterdir())
            return []
        return sorted(_named(self._listed(detail=False)))

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file in the folder, by name."""
        if self._local is not None:
            sizes = {}
            with suppress(FileNotFoundError):
                for each in os.scandir(self._local):
                    with suppress(FileNotFoundError):  # it was merged meanwhile
                        sizes[each.name] = each.stat().st_size
            return sizes
        listed = self._listed(detail=True)
        return dict(zip(_named(each["name"] for each in listed), (each["size"] or 0 for each in listed), strict=True))

    def _listed(self, *, detail: bool) -> list[Any]:
        """Return the folder's entries as its file system lists them."""
        with self._system() as (system, root):
            system.invalidate_cache()
            try:
                found: list[Any] = system.ls(root, detail=detail)
            except FileNotFoundError:
                return []
            return [each for each in found if str(each["name"] if detail else each).rstrip("/").rpartition("/")[2]]

    def remove(self) -> None:
        """Remove the folder itself if it is local and empty."""
        if self._local is not None:
            with suppress(OSError):
                Path(self._local).rmdir()

    def _written(self, data: bytes | memoryview, *, flushed: bool = True) -> Path:
        """Return a file under a temporary name with these bytes, synced to the disk if `flushed`."""
        assert self._local is not None
        made = Path(self._local) / f"{WRITING}{uuid.uuid4().hex}"
        try:
            with made.open("xb") as file:
                file.write(data)
                file.flush()
                if flushed:
                    os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                made.unlink(missing_ok=True)
            raise
        return made

    def sync(self) -> None:
        """Sync the names of all files to the disk."""
        if self._local is None:
            return
        descriptor = os.open(self._local, os.O_RDONLY)
        try:
            with suppress(OSError):  # not every file system syncs folders
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _system(self) -> Iterator[tuple[Any, str]]:
        with redacted():
            if self._remote is None:
                system, root = remote(self.where)
                self._remote = system, root.rstrip("/")
            yield self._remote


def _named(paths: Iterable[object]) -> list[str]:
    return [str(path).rstrip("/").rpartition("/")[2] for path in paths]
