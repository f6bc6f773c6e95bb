"""Where the files of a sink are: a folder of this machine, or one behind fsspec. Files are whole under their name.

Knows neither formats nor runs; a secret is looked up where the folder is opened, see `documents.storage`.
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

__all__ = ["WRITING", "NameRefused", "Target"]

WRITING = ".part.writing-"
"""What the names of files begin with that are being written; what a killed process leaves has such a name."""
_OF_NAMES = {
    errno.EEXIST,
    errno.EILSEQ,
    errno.EINVAL,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
}
"""What a system answers that cannot have a file under a name, while it can have others."""


class NameRefused(OSError):
    """A file was written, and cannot have its name."""


class Target:
    """A folder that one run writes into.

    Parameters
    ----------
    where : str
        Absolute path, or URL; a `StoredAt` opens it with its options.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self._local = None if storage_of(where) else local_path(where)
        self._remote: tuple[Any, str] | None = None

    def __repr__(self) -> str:
        return f"<Target {str(self.where)!r}>"

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine, or one that is mounted here."""
        return self._local is not None

    def path(self, name: str) -> str:
        """Return where a file is, for people."""
        return str(Path(self._local) / name) if self._local is not None else f"{str(self.where).rstrip('/')}/{name}"

    def make(self) -> None:
        """Make the folder, where folders exist."""
        if self._local is not None:
            Path(self._local).mkdir(parents=True, exist_ok=True)
        else:
            with self._system() as (system, root):
                system.makedirs(root, exist_ok=True)

    def write(self, name: str, data: bytes | memoryview, *, lasting: bool = True, flushed: bool = True) -> None:
        """Have a file under its name, on the disk, in place of one that has it; not there at all if this raises.

        Without `lasting` its name is on the disk behind the next `sync`. Without `flushed` the system writes its bytes
        later, and a machine that loses its power may lose them; a process that dies does not.

        Raises
        ------
        NameRefused
            The folder can have files, and none of this name.
        OSError
        """
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
        """Write a file that is not there yet; return whether it was not."""
        if self._local is None:
            with self._system() as (system, root):
                path = f"{root}/{name}"
                if system.exists(path):
                    return False
                try:
                    system.pipe_file(path, data, mode="create")
                except FileExistsError:
                    return False
                except (TypeError, ValueError, NotImplementedError):  # this one, or this version, has no such mode
                    system.pipe_file(path, data)
                return bool(system.cat_file(path) == data)
        made = self._written(data)
        try:
            os.link(made, Path(self._local) / name)
        except FileExistsError:
            return False
        except OSError:  # no links on this file system
            try:
                with (Path(self._local) / name).open("xb") as file:
                    file.write(data)
            except FileExistsError:
                return False
        finally:
            made.unlink(missing_ok=True)
        self.sync()
        return True

    def read(self, name: str) -> bytes:
        """Return the bytes of a file; `FileNotFoundError` where there is none."""
        if self._local is not None:
            return (Path(self._local) / name).read_bytes()
        with self._system() as (system, root):
            data: bytes = system.cat_file(f"{root}/{name}")
            return data

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        if self._local is not None:
            (Path(self._local) / name).unlink(missing_ok=True)
            return
        with self._system() as (system, root), suppress(FileNotFoundError):
            system.rm_file(f"{root}/{name}")

    def names(self) -> list[str]:
        """Return the names in the folder, sorted; none where there is no folder."""
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
        """Return what is in the folder, as its file system has it."""
        with self._system() as (system, root):
            system.invalidate_cache()
            try:
                found: list[Any] = system.ls(root, detail=detail)
            except FileNotFoundError:
                return []
            return [each for each in found if str(each["name"] if detail else each).rstrip("/").rpartition("/")[2]]

    def remove(self) -> None:
        """Remove the folder itself, if it is empty."""
        if self._local is not None:
            with suppress(OSError):
                Path(self._local).rmdir()

    def _written(self, data: bytes | memoryview, *, flushed: bool = True) -> Path:
        """Return a file of another name with these bytes, on the disk where they are `flushed`."""
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
        """Have the names of all files on the disk."""
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
        with redacted(self.where):
            if self._remote is None:
                system, root = remote(self.where)
                self._remote = system, root.rstrip("/")
            yield self._remote


def _named(paths: Iterable[object]) -> list[str]:
    return [str(path).rstrip("/").rpartition("/")[2] for path in paths]
