"""Where documents are stored: the local file system, or one behind fsspec.

Owns the difference between the two: how a file is opened, what tells its versions apart, and
what a folder holds. Knows nothing of patterns or keys. Only a URL makes it import fsspec.
"""

from __future__ import annotations

import errno
import os
import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from dqlab.documents.names import in_order
from dqlab.documents.storage import check_url, located, redacted, resolved, storage_of

__all__ = [
    "UNKNOWN",
    "Folder",
    "FolderEntry",
    "LocalFolder",
    "RemoteFolder",
    "Stamp",
    "local_path",
    "local_stamp",
    "open_binary",
    "remote",
    "stamp_of",
    "stamp_of_open",
]

_URL = re.compile(r"(?:[a-z][a-z0-9+._-]*::)*[a-z][a-z0-9+._-]*://", re.ASCII | re.IGNORECASE)
_LOCAL_URL = re.compile(r"(?:file|local)://", re.IGNORECASE)
_ETAGS = ("ETag", "etag", "md5Hash", "CRC")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


class Stamp(NamedTuple):
    """What tells one version of a file from another; `size` in bytes, None when unknown."""

    version: str
    size: int | None


UNKNOWN = Stamp("", None)
"""For a file that cannot be examined from this process."""


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One name in a folder. `stamp` examines the file and raises OSError when it is gone."""

    name: str
    is_folder: bool
    stamp: Callable[[], Stamp]


class Folder(Protocol):
    """A folder to list, and the folders below it."""

    @property
    def where(self) -> str:
        """Absolute path or URL."""
        ...

    def exists(self) -> bool:
        """Whether it exists and is a folder."""
        ...

    def entries(self) -> Iterator[FolderEntry]:
        """Return the files and folders in it, in the order of the paths below; links count as their targets.

        A folder of many has been read to its end by then: this raises what reading it raises.
        """
        ...

    def below(self, name: str) -> Folder | None:
        """Return the folder of that name; None when entering it would form a cycle."""
        ...

    def at(self, path: str) -> str:
        """Return where the file with this relative path (with "/") is."""
        ...


def local_path(place: str) -> str | None:
    """Return the absolute path of a path or file:// URL; None for any other URL.

    Raises
    ------
    PasswordInURL
        Another URL, with a password in it.
    """
    if (local := _LOCAL_URL.match(place)) and "::" not in place:
        return str(Path(place[local.end() :]).absolute())
    if _URL.match(place) is None:
        return str(Path(place).absolute())
    check_url(place)
    return None


def open_binary(where: str) -> BinaryIO:
    """Open a path or URL for reading.

    Raises
    ------
    OSError
        The file is gone, or not readable here.
    ImportError
        The file system behind the URL is not installed; the message names what to install.
    """
    path = local_path(where)
    if path is not None:
        return Path(path).open("rb")
    with redacted(where):
        system, path = remote(where)
        stream = cast(BinaryIO, system.open(path, "rb"))
    if not system.cachable:
        # An archive closes itself, and its members, when it is no longer referenced: the stream keeps a reference.
        weakref.finalize(stream, _let_go, system)
    return stream


def stamp_of_open(where: str, stream: BinaryIO) -> Stamp:
    """Return the stamp of what `open_binary` has opened; UNKNOWN where it has none.

    Files of S3 asked for it when they were opened; those of other systems may ask once more.
    """
    if local_path(where) is not None:
        return local_stamp(os.fstat(stream.fileno()))
    # Files of a cache, `simplecache::`, have the stamp of the copy; files of a bucket know what gave them their size.
    details = getattr(stream, "details", None)
    return _remote_stamp(details) if isinstance(details, Mapping) else UNKNOWN


def stamp_of(where: str) -> Stamp:
    """Examine a file without opening it; one request when it is remote. Raises as `open_binary` does."""
    path = local_path(where)
    if path is not None:
        return local_stamp(Path(path).stat())
    with redacted(where):
        system, path = remote(where)
        return _remote_stamp(system.info(path))


class LocalFolder:
    """A folder of this machine. Links to folders are followed, but never into one that is being listed."""

    def __init__(self, path: str, above: frozenset[tuple[int, int]] = frozenset()) -> None:
        self.where = str(Path(path).absolute())
        self._above = above

    def exists(self) -> bool:
        """Whether it exists and is a folder."""
        return Path(self.where).is_dir()

    def entries(self) -> Iterator[FolderEntry]:
        """Return files and folders; sockets, pipes, devices and dangling links are neither."""
        # With its slash a folder sorts as the paths below it do, so that whole paths come out sorted.
        with os.scandir(self.where) as scan:
            names = in_order(
                f"{entry.name}/" if is_folder else entry.name
                for entry in scan
                if (is_folder := _is_folder(entry)) is not None
            )
        return (FolderEntry(name.rstrip("/"), name.endswith("/"), partial(self._stamp, name)) for name in names)

    def _stamp(self, name: str) -> Stamp:
        return local_stamp(os.stat(os.path.join(self.where, name)))

    def below(self, name: str) -> LocalFolder | None:
        """Return the folder of that name; None when a link leads back to a folder that contains it."""
        above = self._above | {_identity(self.where)}
        folder = str(Path(self.where, name))
        return None if _identity(folder) in above else LocalFolder(folder, above)

    def at(self, path: str) -> str:
        """Return the absolute path of a file below."""
        return self.where.rstrip(os.sep) + os.sep + path.replace("/", os.sep)


class RemoteFolder:
    """A folder behind fsspec.

    Parameters
    ----------
    url : str
        Its URL, up to the first "::" that follows the path.
    rest : str
        What follows the path in a chained URL, from its "::" on.
    storage : str
        The name of the options that its file system is opened with.
    """

    def __init__(self, url: str, rest: str = "", storage: str = "") -> None:
        self._url, self._rest, self._storage = url, rest, storage
        with redacted(self.where):
            self._system, self._path = remote(self.where)

    @property
    def where(self) -> str:
        """The whole URL."""
        return located(self._url + self._rest, self._storage)

    def exists(self) -> bool:
        """Whether it exists and is a folder; asks the store, not a cache."""
        with redacted(self.where):
            self._system.invalidate_cache()
            return bool(self._system.isdir(self._path))

    def entries(self) -> Iterator[FolderEntry]:
        """Return files and folders, with one listing of the store."""
        found = []
        with redacted(self.where):
            listed = self._system.ls(self._path, detail=True)
        for info in listed:
            path = info["name"].rstrip("/")
            # Object stores list the empty object that marks a folder inside the folder itself.
            if path != self._path.rstrip("/"):
                is_folder = info["type"] == "directory"
                found.append(FolderEntry(path.rpartition("/")[2], is_folder, partial(_remote_stamp, info)))
        return iter(sorted(found, key=lambda entry: f"{entry.name}/" if entry.is_folder else entry.name))

    def below(self, name: str) -> RemoteFolder:
        """Return the folder of that name; stores have no links that could form a cycle."""
        # Not recreated from its URL: that would open an archive again for each folder in it.
        inner = copy(self)
        inner._url = _join(self._url, name)
        inner._path = _join(self._path, name) if self._path else name
        return inner

    def at(self, path: str) -> str:
        """Return the URL of a file below."""
        return located(_join(self._url, path) + self._rest, self._storage)


def _join(url: str, path: str) -> str:
    return url + path if url.endswith("/") else f"{url}/{path}"


def _identity(path: str) -> tuple[int, int]:
    status = Path(path).stat()
    return status.st_dev, status.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool | None:
    """Whether it is or links to a folder rather than a file; None when neither."""
    try:
        return entry.is_dir() or (False if entry.is_file() else None)
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link that leads to itself
            return None
        raise


def local_stamp(status: os.stat_result) -> Stamp:
    """Return what tells a version of a local file from others."""
    return Stamp(f"{status.st_size}-{status.st_mtime_ns}", status.st_size)


def _remote_stamp(info: Mapping[str, Any]) -> Stamp:
    size = info.get("size")
    for name in _ETAGS:
        if info.get(name):
            return Stamp(str(info[name]).strip('"'), size)
    for name in _TIMES:
        if info.get(name):
            return Stamp(f"{size}-{_instant(info[name])}", size)
    return Stamp("" if size is None else str(size), size)


def _instant(when: Any) -> str:
    # The same store may give seconds in a listing and a datetime for one file: both must read the same.
    if isinstance(when, int | float):
        when = datetime.fromtimestamp(when, UTC)
    return when.isoformat() if isinstance(when, datetime) else str(when)


def _let_go(system: object) -> None:
    """Do nothing: the finalizer exists to keep the file system alive until now."""


def remote(url: str) -> tuple[Any, str]:
    """Return the file system behind a URL, and the path there."""
    import fsspec.core  # only here: local documents do not need it

    storage = storage_of(url)
    if not storage:
        system, path = fsspec.core.url_to_fs(url)
        return system, path
    # A string of its own class would be asked for its options again, and compiled code does not take it for text.
    system, path = fsspec.core.url_to_fs(str(url), **resolved(storage))
    return system, path
