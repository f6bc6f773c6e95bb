"""What can be done with a store's directory from this process: seen, written to, locked. Leaves nothing behind.

A `Marker` is a file that one process makes and locks, so that others can tell whether they see the same directory
under the same path, and its locks. A store that is not made yet is judged by the directory that it will be made in.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from dqlab.log import Files
from dqlab.log.ownership import seen_elsewhere

__all__ = ["Marker", "Probe", "Seen", "probe"]

Seen: TypeAlias = Literal["", "missing", "locked", "unlocked"]
"""Of a marker: there was none to look for; it is not there; its lock is seen; its lock is not seen."""

_NAME = ".dqlab-doctor-"


@dataclass(frozen=True, slots=True)
class Probe:
    """A directory, as one process sees it.

    Attributes
    ----------
    error : str
        Why nothing more is known; "" when it could be looked at.
    made : bool
        It is there; else all that follows is about the nearest directory above it that is.
    filesystem : str
        Its type, such as "ext4" or "nfs4"; "" when unknown.
    shared : bool
        Other machines may see it too.
    device, inode : int
        Equal for two processes of one machine that see the same directory.
    writable : bool
        A file could be made in it.
    lock : {"held", "unsupported", "ignored", ""}
        What flock said to a file made there; ignored: it gave the same lock twice; "": it could not be tried.
    marker : Seen
        What another process's marker looks like from here.
    free, size : int
        Bytes that may still be written, and of the whole file system.
    """

    directory: str
    error: str = ""
    made: bool = True
    filesystem: str = ""
    shared: bool = False
    device: int = 0
    inode: int = 0
    writable: bool = False
    lock: str = ""
    marker: Seen = ""
    free: int = 0
    size: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


class Marker:
    """A locked file in a directory, as long as the block runs.

    Attributes
    ----------
    path : str
        Nobody else's; "" when it could not be made.
    """

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._files = files or Files()
        self._directory = directory
        self._descriptor = -1
        self.path = ""

    def __enter__(self) -> Self:
        with suppress(OSError):
            path = _nearest(self._directory) / _new_name()
            self._descriptor = self._files.open_lock(path)
            self.path = str(path)
            self._files.lock(self._descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            _remove(self._files, self._descriptor, Path(self.path))


def probe(directory: Path, marker: str = "", files: Files | None = None) -> Probe:
    """Look at a directory; blocks, on a file system that hangs for ever.

    Parameters
    ----------
    marker : str
        Path of another process's marker, to look for; "" for none.
    """
    files = files or Files()
    try:
        place = _nearest(directory)
        found = place.stat()
        if not place.is_dir():
            return Probe(str(directory), error="it is not a directory")
        space = os.statvfs(place)
    except OSError as error:
        return Probe(str(directory), error=_reason(error))
    kind = files.filesystem(place)
    writable, lock = _try_lock(place, files)
    return Probe(
        str(directory),
        made=place == directory,
        filesystem=kind,
        shared=seen_elsewhere(kind),
        device=found.st_dev,
        inode=found.st_ino,
        writable=writable,
        lock=lock,
        marker=_look_for(Path(marker), files) if marker else "",
        free=space.f_bavail * space.f_frsize,
        size=space.f_blocks * space.f_frsize,
    )


def _nearest(directory: Path) -> Path:
    """Return the directory, or the nearest one above it that is there."""
    for place in (directory, *directory.parents):
        with suppress(FileNotFoundError):
            place.stat()
            return place
    return directory


def _try_lock(directory: Path, files: Files) -> tuple[bool, str]:
    """Return whether a file can be made, and what becomes of two locks on it."""
    path = directory / _new_name()
    try:
        descriptor = files.create(path)
    except OSError:
        return False, ""
    try:
        first = files.lock(descriptor)
        if first != "held":
            return True, first
        second = files.open(path, write=True)
        try:
            return True, "held" if files.lock(second) == "refused" else "ignored"
        finally:
            files.close(second)
    except OSError:
        return True, ""
    finally:
        _remove(files, descriptor, path)


def _look_for(path: Path, files: Files) -> Seen:
    try:
        descriptor = files.open(path, write=True)
    except OSError:
        return "missing"
    try:
        return "locked" if files.lock(descriptor) == "refused" else "unlocked"
    except OSError:
        return "unlocked"
    finally:
        files.close(descriptor)


def _remove(files: Files, descriptor: int, path: Path) -> None:
    with suppress(OSError):
        files.unlink(path)
    with suppress(OSError):
        files.close(descriptor)


def _new_name() -> str:
    return f"{_NAME}{secrets.token_hex(8)}"


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
