"""Who has a log open, as far as that can be seen without touching its lock."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqlab import platforms
from dqlab.log.directory import LOCK

__all__ = ["Holder", "look_at_lock"]


@dataclass(frozen=True)
class Holder:
    """Who opened a log last.

    Attributes
    ----------
    host : str
    pid : int
    owner : str
        What it said of itself.
    held : bool or None
        Whether it still has the log open; None when that cannot be known here: it is another machine's.
    """

    host: str
    pid: int
    owner: str
    held: bool | None


def look_at_lock(directory: Path) -> Holder | None:
    """Return who opened a log last; None when nobody signed its lock file."""
    try:
        said: dict[str, Any] = json.loads((directory / LOCK).read_bytes())
        inode = (directory / LOCK).stat().st_ino
        host, pid, owner = str(said["host"]), int(said["pid"]), str(said["owner"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Holder(host, pid, owner, _held(inode, pid) if _is_here(host, str(said.get("boot"))) else None)


def _is_here(host: str, boot: str) -> bool:
    """Return whether a host's name, and the boot of its kernel, are this machine's."""
    here = platforms.boot_id()
    return boot == here if here else host == socket.gethostname()


def _held(inode: int, pid: int) -> bool:
    """Return whether the kernel lists a lock on that file; where it lists none, whether the process lives."""
    locked = platforms.locked_inodes()
    if locked is not None:
        return inode in locked
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
