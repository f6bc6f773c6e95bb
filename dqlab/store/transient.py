"""Where the logs of transient queues are: in a directory of their cluster, which is deleted with it.

::

    /tmp/dqlab-1000/               of one user, in Dask's `temporary-directory`, or on a file system that workers share
    └── Scheduler-9d0c…/           one cluster, locked by each of its processes on this machine
        ├── scheduler              there if the scheduler is one of them
        └── pages-2/               the second queue that was opened under any name
            └── 000/               log of shard 0
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from dqlab.config import entry
from dqlab.errors import BadOption
from dqlab.platforms import problem_with

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
