"""Disks that fail for a while: at the seam between a log and its files, on a cluster, or below all of this process."""

from __future__ import annotations

import builtins
import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client

from dqlab.log.files import Files

__all__ = ["ERRNOS", "FlakyFiles", "FlakySystem", "asked", "break_disk", "fill_disk", "make_room", "no", "unplugged"]

ERRNOS = ("EIO", "ESTALE", "EMFILE", "ENOSPC", "EDQUOT", "EACCES")
"""What a disk, a server, a quota and the limits of a process answer for a moment."""


def no(name: str, path: object = None) -> OSError:
    """Return the error that the system raises for the name of an errno."""
    number = getattr(errno, name)
    return OSError(number, os.strerror(number)) if path is None else OSError(number, os.strerror(number), str(path))


class FlakyFiles(Files):
    """Refuses so many times to open files whose names contain `bad`; `looked` counts the refusals."""

    def __init__(self, bad: str = "", number: str = "EIO", *, times: int = 1 << 30) -> None:
        self.bad, self.number, self.times, self.looked = bad, number, times, 0

    def open(self, path: Path, *, write: bool = False) -> int:
        if self.bad and self.bad in path.name and self.looked < self.times:
            self.looked += 1
            raise no(self.number, path)
        return super().open(path, write=write)


def asked(client: Client, name: str, question: Callable[[Any], Any]) -> Any:
    """Return what is answered by the worker that holds a queue's shard."""

    def ask(dask_worker: Any) -> Any:
        found = [held for key, held in dask_worker.state.actors.items() if str(key).startswith(f"dq-queue/{name}/0-")]
        return question(found[0]) if found else None

    return next(answer for answer in client.run(ask).values() if answer is not None)


def break_disk(actor: Any) -> bool:
    """Let nothing be written to a shard's log any more."""

    def refuse(*_: Any) -> Any:
        raise OSError(errno.EIO, "the cable")

    files = actor._store.log._writer._files
    files.write = files.sync = refuse
    return True


def fill_disk(actor: Any) -> bool:
    """Let a shard's log have no room for a byte more, until `make_room`."""

    def refuse(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "full")

    actor._store.log._writer._files.write = refuse
    return True


def make_room(actor: Any) -> bool:
    """Let a shard's log be written again."""
    vars(actor._store.log._writer._files).pop("write", None)
    return True


@contextmanager
def unplugged(client: Client, store: Path) -> Iterator[None]:
    """Let no log below a directory be opened, on any worker, until the end of the block."""

    def unplug(store: str) -> None:
        plain = Files.sync_directory

        def sync_directory(files: Files, path: Path) -> None:
            if str(path).startswith(store):
                raise OSError(errno.EIO, "the cable")
            plain(files, path)

        Files.sync_directory = sync_directory  # type: ignore[assignment, method-assign]
        Files.plugged = plain  # type: ignore[attr-defined]

    def plug() -> None:
        Files.sync_directory = Files.plugged  # type: ignore[attr-defined, method-assign]

    client.run(unplug, str(store))
    try:
        yield
    finally:
        client.run(plug)


class FlakySystem:
    """Lets system calls of this thread on files below a directory fail, and counts them.

    Calls `first` to `first + n - 1` fail with the errno of this name, counted from `begin` on.
    """

    BY_PATH = ("open", "listdir", "scandir", "stat", "lstat", "statvfs", "mkdir", "unlink", "rename", "replace")
    BY_DESCRIPTOR = ("pread", "fstat", "fsync", "fdatasync", "ftruncate", "pwrite", "pwritev", "posix_fallocate")

    def __init__(self, below: Path) -> None:
        self.below = str(below)
        self.made: list[str] = []
        self._failing: Callable[[int], bool] = lambda n: False
        self.number = "EIO"
        self._thread = threading.get_ident()
        self._ours: set[int] = set()

    def begin(self, number: str = "EIO", first: int = 1 << 30, n: int = 0) -> None:
        """Count from 0 again."""
        self.made, self.number = [], number
        self._failing = lambda at: first <= at < first + n

    def end(self) -> None:
        """Be well again."""
        self._failing = lambda at: False

    def _call(self, name: str, where: object) -> None:
        self.made.append(name)
        if self._failing(len(self.made) - 1):
            raise no(self.number, where if isinstance(where, str) else None)

    def _is_below(self, path: object) -> bool:
        if threading.get_ident() != self._thread or not isinstance(path, str | os.PathLike):
            return False
        return str(os.fspath(path)).startswith(self.below)

    @contextmanager
    def installed(self) -> Iterator[FlakySystem]:  # noqa: C901 - one replacement per way to name a file
        """Replace the calls of `os` and `open` during the block."""
        plain = {name: getattr(os, name) for name in (*self.BY_PATH, *self.BY_DESCRIPTOR) if hasattr(os, name)}

        def by_path(name: str) -> Callable[..., Any]:
            def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
                if not self._is_below(path):
                    return plain[name](path, *arguments, **options)
                self._call(name, str(path))
                answer = plain[name](path, *arguments, **options)
                if name == "open":
                    self._ours.add(answer)
                return answer

            return call

        def by_descriptor(name: str) -> Callable[..., Any]:
            def call(descriptor: int, *arguments: Any, **options: Any) -> Any:
                if descriptor in self._ours and threading.get_ident() == self._thread:
                    self._call(name, None)
                return plain[name](descriptor, *arguments, **options)

            return call

        def closed(descriptor: int) -> None:
            self._ours.discard(descriptor)
            close(descriptor)

        def opened(path: Any, *arguments: Any, **options: Any) -> Any:
            if self._is_below(path):
                self._call("open", str(path))
            return open_(path, *arguments, **options)

        close, open_ = os.close, builtins.open
        try:
            for name in plain:
                setattr(os, name, (by_path if name in self.BY_PATH else by_descriptor)(name))
            os.close = closed
            builtins.open = io.open = opened
            yield self
        finally:
            for name, call in plain.items():
                setattr(os, name, call)
            os.close = close
            builtins.open = io.open = open_
