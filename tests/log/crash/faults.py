"""A `Files` whose n-th call goes wrong, in each way the operating system lets it go wrong."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dqlab.log.files import Buffer, Files, Lock

__all__ = ["FAULTS", "CountingFiles", "FaultyFiles", "NoLocks"]

CALLS = (
    "create",
    "open",
    "open_lock",
    "write",
    "read",
    "truncate",
    "sync",
    "sync_directory",
    "make_directory",
    "rename",
    "unlink",
    "exists",
    "names",
    "refresh",
    "free_bytes",
    "size",
)
"""What can fail. A close is not among them: its errors come too late to mean anything."""

FAULTS: dict[str, tuple[str, ...]] = {
    "create": ("ENOSPC", "EDQUOT", "EIO", "ESTALE", "EMFILE"),
    "open": ("EIO", "ESTALE", "EMFILE"),
    "open_lock": ("EIO", "ENOSPC"),
    "write": ("1 byte", "half", "ENOSPC", "EDQUOT", "EIO", "EINTR", "ESTALE", "half then ENOSPC", "1 byte then EIO"),
    "read": ("EIO", "ESTALE"),
    "truncate": ("EIO",),
    "sync": ("EIO", "ENOSPC", "EDQUOT", "ESTALE"),
    "sync_directory": ("EIO",),
    "make_directory": ("ENOSPC", "EIO"),
    "rename": ("EIO", "done, ENOENT", "done, EIO", "ENOSPC", "ESTALE"),
    "unlink": ("EIO", "done, ENOENT", "ESTALE"),
    "exists": ("EIO", "ESTALE", "EMFILE"),
    "names": ("EIO",),
    "refresh": ("EIO", "ESTALE", "EMFILE"),
    "free_bytes": ("EIO",),
    "size": ("EIO", "ESTALE"),
}
"""Call → what may happen. "done, X" = it was done and reported as failed; "half then X" = the next write fails too."""


class CountingFiles(Files):
    """Numbers the calls from 0 and shows each to `before` first."""

    def __init__(self, before: Callable[[int, str, tuple[Any, ...]], None] = lambda n, call, arguments: None) -> None:
        self.calls: list[str] = []
        self.before = before
        self.begun = 0

    def filesystem(self, directory: Path) -> str:
        """Say that it is a file server's, wherever tests run: there the most calls are made."""
        return "nfs4"

    def begin(self) -> None:
        """Count from here: how many calls opening makes depends on what else the directory and the machine do."""
        self.begun = len(self.calls)

    def _count(self, call: str, arguments: tuple[Any, ...]) -> int:
        n = len(self.calls)
        self.calls.append(call)
        self.before(n, call, arguments)
        return n


def _counted(name: str) -> Callable[..., Any]:
    plain = getattr(Files, name)

    def call(self: CountingFiles, *arguments: Any, **options: Any) -> Any:
        self._count(name, arguments)
        return plain(self, *arguments, **options)

    return call


for _name in CALLS:
    setattr(CountingFiles, _name, _counted(_name))


class FaultyFiles(CountingFiles):
    """The n-th call fails; with `lasting`, every later call of that name as well.

    Parameters
    ----------
    n : int
        Number of the call, from 0; after `begin`, counted from there, and none before it.
    fault : str
        One of `FAULTS`.
    lasting : bool
        The fault stays, as with a full disk or a dead device.
    """

    def __init__(self, n: int, fault: str, *, lasting: bool = False) -> None:
        super().__init__()
        self.n, self.fault, self.lasting = n, fault, lasting
        self.struck: str | None = None
        self._next_write: str | None = None

    def strikes(self, call: str) -> str | None:
        """The fault of this call, which is the next one."""
        number = len(self.calls) - 1 - self.begun
        if call == "write" and self._next_write is not None:
            fault, self._next_write = self._next_write, None
            return fault
        if number == self.n:
            self.struck = call
        elif not (self.lasting and self.struck == call):
            return None
        fault, _, later = self.fault.partition(" then ")
        self._next_write = later or None
        return fault


def _faulty(name: str) -> Callable[..., Any]:
    plain = getattr(Files, name)

    def call(self: FaultyFiles, *arguments: Any, **options: Any) -> Any:
        self._count(name, arguments)
        fault = self.strikes(name)
        if fault is None:
            return plain(self, *arguments, **options)
        if fault in ("1 byte", "half"):
            return _short(self, fault, *arguments)
        if fault.startswith("done, "):
            plain(self, *arguments, **options)
            fault = fault.removeprefix("done, ")
        number = getattr(errno, fault)
        raise OSError(number, os.strerror(number))

    return call


def _short(files: FaultyFiles, fault: str, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
    data = b"".join(buffers)
    n = 1 if fault == "1 byte" else len(data) // 2
    return Files.write(files, descriptor, [data[: max(1, n)]], offset)


for _name in CALLS:
    setattr(FaultyFiles, _name, _faulty(_name))


class NoLocks(Files):
    """A file system without a lock service."""

    def lock(self, descriptor: int) -> Lock:
        return "unsupported"


class FullDisk(Files):
    """Only so many more bytes fit."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(buffers)
        new = max(0, offset + len(data) - self.size(descriptor))
        fits = len(data) - max(0, new - self.room)
        if new and fits <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= min(new, self.room)
        return super().write(descriptor, [data[:fits]], offset)

    def unlink(self, path: Path) -> None:
        size = path.stat().st_size
        super().unlink(path)
        self.room += size

    def free_bytes(self, directory: Path) -> int:
        return self.room
