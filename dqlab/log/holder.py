"""Who has a log open, as far as that can be seen without taking its lock."""

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
        host, pid, owner = str(said["host"]), int(said["pid"]), str(said["owner"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Holder(host, pid, owner, _held(directory / LOCK, pid) if _is_here(host, str(said.get("boot"))) else None)


def _is_here(host: str, boot: str) -> bool:
    """Return whether a host's name, and the boot of its kernel, are this machine's."""
    here = platforms.boot_id()
    return boot == here if here else host == socket.gethostname()


def _held(lock: Path, pid: int) -> bool:
    """Return whether a lock file is locked; where that cannot be told, whether the process lives that signed it."""
    try:
        return platforms.is_locked(lock)
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
