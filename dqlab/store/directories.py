"""The directory of a store: one directory a queue, in it what the queue is, and one log a shard.

::

    runs/
    └── pages-1f3a9c20/         the queue's name, and its hash where names differ by case alone
        ├── queue.json          format, name, shards, options
        ├── 000/                log of shard 0, see `dqlab.log`
        └── 001/
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dqlab.errors import DqlabError
from dqlab.log import Files, LogError, LogTooNew
from dqlab.log.directory import Directory

__all__ = [
    "NotAQueue",
    "StoredQueue",
    "keep_queue",
    "queue_directory",
    "read_queue",
    "shard_directory",
    "stored_directories",
    "stored_queues",
]

_FILE = "queue.json"
_FORMAT = 1


class NotAQueue(LogError):
    """The directory is not that of the queue that is to be opened."""

    text = "{directory} is not the directory of a durable queue: {reason}. Nothing was touched. {hint}"


@dataclass(frozen=True)
class StoredQueue:
    """What a queue is; stays as it was made.

    Attributes
    ----------
    name : str
    shards : int
    options : dict
        Plain data, as its shards get them.
    """

    name: str
    shards: int
    options: dict[str, Any]


def queue_directory(store: Path, name: str) -> Path:
    """Return the directory of a queue in a store."""
    return store / f"{name}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def shard_directory(queue: Path, index: int) -> Path:
    """Return the directory of a shard's log in that of its queue."""
    return queue / f"{index:03d}"


def keep_queue(path: Path, queue: StoredQueue, files: Files | None = None) -> StoredQueue:
    """Return what the queue in this directory is; if there is none, make it, durably. Blocks.

    Raises
    ------
    NotAQueue
        Other files are there, or another queue's.
    LogTooNew
        A later version of dqlab made it.
    LogError
        The disk failed, or does not let us.
    """
    directory = Directory(path, files or Files())
    try:
        found = read_queue(path, directory.files) if directory.files.exists(path) else None
        if found is None:
            _make(directory, queue)
            return queue
    except OSError as error:
        raise LogError(directory=str(path), reason=f"{type(error).__name__}: {error}") from error
    if found.name != queue.name:
        reason = f"queue {found.name!r} is there, and not {queue.name!r}"
        raise NotAQueue(directory=str(path), reason=reason, hint="Give another directory.")
    return found


def read_queue(path: Path, files: Files | None = None) -> StoredQueue | None:
    """Return what the queue in this directory is, None when the directory is empty. Raises as `keep_queue`."""
    directory = Directory(path, files or Files())
    names = [name for name in directory.names() if not name.endswith(".tmp")]
    if _FILE not in names:
        if not names:
            return None
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        reason = f"it holds {shown}, and no {_FILE}"
        raise NotAQueue(directory=str(path), reason=reason, hint=f"Give a new directory, or put {_FILE} back.")
    try:
        found = json.loads(directory.read(_FILE))
        version = found["format"]
        if version > _FORMAT:
            raise LogTooNew(file=str(path / _FILE), theirs=version, ours=_FORMAT)
        return StoredQueue(found["name"], found["shards"], found["options"])
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{_FILE} cannot be read ({type(error).__name__}: {error})"
        raise NotAQueue(directory=str(path), reason=reason, hint=f"Put {_FILE} back from a copy.") from error


def stored_queues(store: Path) -> list[str]:
    """Return the names of a store's queues, sorted; what is no queue is passed over."""
    queues = (read_queue(path) for path in stored_directories(store))
    return sorted(queue.name for queue in queues if queue is not None)


def stored_directories(path: Path) -> list[Path]:
    """Return the directories of the queues in a store, or the one of a queue itself, sorted."""
    found = []
    with suppress(OSError):
        for place in (path, *sorted(path.iterdir())):
            with suppress(OSError, DqlabError):
                if place.is_dir() and read_queue(place) is not None:
                    found.append(place)
    return found


def _make(directory: Directory, queue: StoredQueue) -> None:
    files, path = directory.files, directory.path
    new = [parent for parent in (path, *path.parents) if not files.exists(parent)]
    if new:
        files.make_directory(path)
    content = {"format": _FORMAT, "name": queue.name, "shards": queue.shards, "options": queue.options}
    directory.publish(_FILE, [json.dumps(content, indent=1).encode()])
    for made in new:
        files.sync_directory(made.parent)
