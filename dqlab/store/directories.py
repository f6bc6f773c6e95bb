"""Where queues are: one directory for each, with its description and one log per shard.

::

    runs/                          a store
    └── pages-1f3a9c20/            the queue's name, and its hash for names that differ by case only
        ├── queue.json             format, name, shards, options
        ├── 000/                   log of shard 0, see `dqlab.log`
        └── 001/

    /tmp/dqlab-1000/               for transient queues of one user, in Dask's `temporary-directory` or shared
    └── Scheduler-9d0c…/           one cluster, locked by each of its processes on this machine; deleted with it
        ├── scheduler              there if the scheduler is one of them
        └── pages-2/               the second queue that was opened under any name
            └── 000/               log of shard 0
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dqlab.config import entry
from dqlab.errors import BadOption
from dqlab.log.errors import CannotOpen, too_new, typed
from dqlab.log.files import Directory, Files, shown
from dqlab.platforms import problem_with
from dqlab.rules.retry import QueueOptions, Retry

_FILE = "queue.json"
_FORMAT = 1


def not_a_queue(directory: Path, reason: str, hint: str) -> CannotOpen:
    """Return the error for a directory that does not belong to the queue."""
    return CannotOpen(reason=f"{directory} is not the directory of a durable queue: {reason}", hint=hint)


@dataclass(frozen=True)
class StoredQueue:
    """The description of a queue, which never changes."""

    name: str
    shards: int
    options: dict[str, Any]
    """Plain data, as its shards get them."""

    @property
    def rules(self) -> QueueOptions:
        """The options for its shards' rules, with defaults for those that are missing."""
        kept = dict(self.options)
        if isinstance(kept.get("retry"), dict):
            kept["retry"] = Retry(**_known(Retry, kept["retry"]))
        return QueueOptions(**_known(QueueOptions, kept))


def _known(kind: type[QueueOptions | Retry], kept: dict[str, Any]) -> dict[str, Any]:
    """Return the options that this version knows."""
    # A later dqlab may have added options; its queue must still open here.
    return {field.name: kept[field.name] for field in fields(kind) if field.name in kept}


def queue_directory(store: Path, name: str) -> Path:
    """Return the directory of a queue in a store."""
    # The hash keeps names apart that differ by case only, where the file system does not.
    return store / f"{name}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def shard_directory(queue: Path, index: int) -> Path:
    """Return the directory of a shard's log in its queue's directory."""
    return queue / f"{index:03d}"


def keep_queue(path: Path, queue: StoredQueue) -> StoredQueue:
    """Return what the queue in this directory is, and create it durably if the directory is new or empty."""
    directory = Directory(path, Files())
    with typed(directory):
        found = read_queue(path, directory.files) if directory.files.exists(path) else None
        if found is None:
            _make(directory, queue)
            return queue
    if found.name != queue.name:
        reason = f"it holds queue {found.name!r}, not {queue.name!r}"
        raise not_a_queue(path, reason, "Give another directory.")
    return found


def read_queue(path: Path, files: Files | None = None) -> StoredQueue | None:
    """Return what the queue in this directory is, or None when it is empty."""
    directory = Directory(path, files or Files())
    with typed(directory):
        # A crash may have left the temporary file of the very first `queue.json`: such a directory counts as empty.
        names = [name for name in directory.names() if not name.endswith(".tmp")]
        data = directory.read(_FILE) if _FILE in names else b""
    if _FILE not in names:
        if not names:
            return None
        reason = f"it holds {shown(names)}, but no {_FILE}"
        raise not_a_queue(path, reason, f"Give a new directory, or put {_FILE} back.")
    try:
        found = json.loads(data)
        version = found["format"]
        if version > _FORMAT:
            raise too_new(path / _FILE, version, _FORMAT)
        shards = found["shards"]
        if shards < 1 or any(name.isdecimal() and int(name) >= shards for name in names):
            raise ValueError(f"it says {shards} shards, and beside it are {shown(names)}")
        return StoredQueue(found["name"], shards, found["options"])
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{_FILE} cannot be read ({type(error).__name__}: {error})"
        raise not_a_queue(path, reason, f"Put {_FILE} back from a copy.") from error


def stored_queues(store: Path) -> list[str]:
    """Return the names of a store's queues, sorted, or of the directory's own queue."""
    found: list[str] = []
    for place in (store, *(store / name for name in _names(store))):
        with suppress(CannotOpen):
            queue = read_queue(place) if _FILE in _names(place, hidden=place != store) else None
            found += [] if queue is None else [queue.name]
    return sorted(found)


def _names(path: Path, *, hidden: bool = False) -> list[str]:
    """Return the names in a directory, none if it is no directory, or one that may be `hidden` from this user."""
    files = Files()
    with typed(Directory(path, files)):
        try:
            return files.names(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError:  # a store may lie in the root of a disk, beside ``lost+found``
            if hidden:
                return []
            raise


def _make(directory: Directory, queue: StoredQueue) -> None:
    files, path = directory.files, directory.path
    new = [parent for parent in (path, *path.parents) if not files.exists(parent)]
    if new:
        files.make_directory(path)
    content = {"format": _FORMAT, "name": queue.name, "shards": queue.shards, "options": queue.options}
    directory.publish(_FILE, [json.dumps(content, indent=1).encode()])
    for made in new:
        files.sync_directory(made.parent)


logger = logging.getLogger(__name__)

_SCHEDULER = "scheduler"
_DAY = 86_400.0
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def private_directory(within: str = "") -> Path:
    """Return this user's directory for transient logs, made if it is missing, or raise BadOption."""
    base = within or entry("temporary-directory") or tempfile.gettempdir()
    place = Path(base).absolute() / f"dqlab-{os.getuid()}"
    with suppress(FileExistsError):
        place.mkdir(mode=0o700, parents=True)
    problem = problem_with(str(place))
    if problem:
        advice = "Messages are kept there. Set another directory, or remove this one"
        raise BadOption(option="temporary-directory", value=base, problem=f"{problem}. {advice}.")
    return place


def log_directory(scratch: str, index: int) -> Path:
    """Return where the log of a transient shard is, given its queue's place relative to `private_directory`."""
    return private_directory() / scratch / f"{index:03}"


async def delete_logs(scratch: str) -> bool:
    """Delete the logs of a transient queue that is closed, given its place as `log_directory` gets it."""
    await asyncio.to_thread(shutil.rmtree, private_directory() / scratch, ignore_errors=True)
    return True


class ClusterDirectory:
    """The directory of one cluster on this machine, held by this process until `close`."""

    def __init__(self, cluster: str, *, within: str = "", scheduler: bool = False) -> None:
        self.path: Path | None = None
        self._descriptor = -1
        self._several_machines = bool(within)
        try:
            self._hold(private_directory(within), cluster, scheduler=scheduler)
        except (BadOption, OSError) as error:  # durable queues need none, and opening a transient one fails with it
            logger.warning("event=no_directory_for_transient_queues error=%r", error)

    def _hold(self, root: Path, cluster: str, *, scheduler: bool) -> None:
        place = root / cluster
        place.mkdir(mode=0o700, exist_ok=True)
        # The directory, not a file in it: systemd-tmpfiles deletes nothing old below a directory that is locked.
        self._descriptor = os.open(place, _DIRECTORY)
        self.path = place
        with suppress(OSError):  # without locks, nobody sweeps this directory either
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        if scheduler:
            (place / _SCHEDULER).touch(mode=0o600)

    def begin_sweep(self) -> None:
        """Sweep in a thread of its own: large logs take seconds, and the caller may be an event loop."""
        threading.Thread(target=self.sweep, name="dqlab-sweep", daemon=True).start()

    def sweep(self) -> None:
        """Delete what clusters left here that were killed with all their processes."""
        # On a file system of several machines, a lock may be seen on its own machine alone.
        if self.path is None or self._several_machines:
            return
        with suppress(OSError):  # somebody deletes the same at this moment
            for place in self.path.parent.iterdir():
                if place != self.path and _is_over(place):
                    shutil.rmtree(place, ignore_errors=True)

    def touch(self) -> None:
        """Keep the directory for another day, though all workers here may end and be replaced."""
        if self.path is not None:
            with suppress(OSError):  # somebody has deleted it
                os.utime(self.path)

    def close(self, *, delete: bool) -> None:
        """Let the directory go, and delete it at the end of its cluster."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if delete and self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)


def _is_over(place: Path) -> bool:
    try:
        descriptor = os.open(place, _DIRECTORY)
    except OSError:
        return False  # it is none of ours, or was deleted a moment ago
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Where only workers of a cluster are, all may be restarting at this moment.
        return (place / _SCHEDULER).exists() or time.time() - place.stat().st_mtime > _DAY
    except OSError:
        return False  # it is held, or the file system has no locks
    finally:
        os.close(descriptor)
