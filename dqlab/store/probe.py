"""Finds out whether this process can see, write and lock a store's directory. Leaves nothing behind.

A `Marker` is a file that one process creates and locks; others look for it, and so learn whether they see the same
directory, and its locks. For a store that does not exist yet, the directory above it is examined.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from dqlab.log.files import Files
from dqlab.log.ownership import seen_elsewhere

Seen: TypeAlias = Literal["", "missing", "locked", "unlocked"]
"""Of a marker: none to look for; not found; found locked; found without its lock."""

_NAME = ".dqlab-doctor-"


@dataclass(frozen=True, slots=True)
class Probe:
    """A directory, as one process sees it."""

    directory: str
    error: str = ""
    """Why nothing more is known; "" when it could be examined."""
    made: bool = True
    """It exists. If not, all that follows is about the nearest directory above it that does."""
    filesystem: str = ""
    """Its type, such as "ext4" or "nfs4"; "" when unknown."""
    shared: bool = False
    """Other machines may see it too."""
    writable: bool = False
    """A file could be created in it."""
    lock: str = ""
    """Result of flock on a file there. held, unsupported; ignored = it gave the same lock twice; "" = it could not be
    tried."""
    marker: Seen = ""
    """What this process sees of another one's marker."""
    free: int = 0
    """Bytes that may still be written."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


class Marker:
    """A locked file in a directory while the block runs."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._files = files or Files()
        self._directory = directory
        self._descriptor = -1
        self.path = ""  # stays empty when it could not be created

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
    """Examine a directory, and look for another process's marker."""
    files = files or Files()
    try:
        place = _nearest(directory)
        # Blocks, and for ever where the file system hangs: never call this on an event loop.
        place.stat()
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
        writable=writable,
        lock=lock,
        marker=_look_for(Path(marker), files) if marker else "",
        free=space.f_bavail * space.f_frsize,
    )


def _nearest(directory: Path) -> Path:
    """Return the directory, or the nearest one above it that exists."""
    for place in (directory, *directory.parents):
        with suppress(FileNotFoundError):
            place.stat()
            return place
    return directory


def _try_lock(directory: Path, files: Files) -> tuple[bool, str]:
    """Return whether a file can be created, and the result of locking it twice."""
    path = directory / _new_name()
    try:
        descriptor = files.create(path)
    except OSError:
        return False, ""
    try:
        first = files.lock(descriptor)
        if first != "held":
            return True, first
        # Through a second descriptor, as another process would. Some network file systems grant every lock.
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
