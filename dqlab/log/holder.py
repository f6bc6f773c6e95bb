"""Who has a log open, as far as that can be seen without touching its lock."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqlab.log.directory import LOCK

__all__ = ["Holder", "look_at_lock"]

_LOCKS = Path("/proc/locks")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


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
    with suppress(OSError):
        return boot == _BOOT.read_text().strip()
    return host == socket.gethostname()


def _held(inode: int, pid: int) -> bool:
    """Return whether the kernel lists a lock on that file; where it lists none, whether the process lives."""
    with suppress(OSError):
        fields = [line.split() for line in _LOCKS.read_text().splitlines()]
        return any("FLOCK" in line and line[-3].rpartition(":")[2] == str(inode) for line in fields if len(line) > 3)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
