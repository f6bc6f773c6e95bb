"""Disks that fail for a while: at the seam between a log and its files, on a cluster, or below all of this process."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client

from dqlab.log import Files

__all__ = ["ERRNOS", "FlakyFiles", "asked", "break_disk", "no", "unplugged"]

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
