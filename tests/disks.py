"""A disk that fails under the log of a queue on a cluster: faults at the seam between the log and its files."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client

from dqlab.log import Files

__all__ = ["asked", "break_disk", "unplugged"]


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
