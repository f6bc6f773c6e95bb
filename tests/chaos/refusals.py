"""A disk that refuses what is written, for a while, in the process where that is called."""

from __future__ import annotations

import errno
import threading
import time
from typing import Any

from dqlab.log.files import Files

__all__ = ["refuse"]

ERRORS = {"refuse": errno.ENOSPC, "fail": errno.EIO}
"""No room, after which a log goes on by itself; and an error, after which it must be opened again."""

_lock = threading.Lock()
_until = {"refuse": 0.0, "fail": 0.0}


def refuse(kind: str, seconds: float) -> None:
    """Have every write and every sync of this process's logs fail from now on, for so many seconds."""
    with _lock:
        _until[kind] = time.monotonic() + seconds
        if not getattr(Files, "refusing", False):
            Files.refusing = True  # type: ignore[attr-defined]
            for name in ("write", "sync", "create"):
                setattr(Files, name, _refusing(getattr(Files, name)))


def _refusing(do: Any) -> Any:
    def call(files: Files, *arguments: Any) -> Any:
        for kind, until in _until.items():
            if time.monotonic() < until:
                raise OSError(ERRORS[kind], f"the round has the disk {kind}")
        return do(files, *arguments)

    return call
