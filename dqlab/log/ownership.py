"""Who may write to a log: one object in one process, the one that began the newest epoch.

The lock keeps careful processes apart; the epoch stops a process that was presumed dead and only slept.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dqlab import platforms
from dqlab.log.directory import EPOCH, LOCK, MANIFEST, Directory, epoch_name
from dqlab.log.errors import Fenced, LockUnsupported, OwnerStillAlive

__all__ = ["LOCAL", "LockState", "Ownership", "seen_elsewhere"]

LockState: TypeAlias = Literal["held", "unsupported", "bypassed"]

_PAUSE_S = 0.02
_UNNOTICED_S = 0.05  # an owner that is alive has looked by then, whatever its mode; see `Writer`
_PATIENCE = 50  # pauses, together 1 s
_LOOKS = 2  # pauses, for who only looks whether it is locked and holds it for that moment; see `platforms.is_locked`
LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs", "nilfs2", "reiserfs", "ntfs", "ntfs3"}
    | {"vfat", "msdos", "exfat", "fuseblk", "udf", "ufs", "apfs", "hfs", "hfsplus"}
    | {"tmpfs", "ramfs", "rootfs", "overlay", "aufs"}
)
"""Types of file systems that belong to one machine. Other machines may see whatever else there is: what runs in
user space, as most cluster file systems can (``fuse.*``), what a host shares with its guests, and what is not known."""
_TRIES = 2
"""How often somebody looks whether a log was taken over; of a server's errors most are gone at the second look."""

_registry: dict[Path, object] = {}
_registry_lock = threading.Lock()


def seen_elsewhere(filesystem: str) -> bool:
    """Return whether other machines may see a file system of that type, so that a lock may be held by one of them."""
    return filesystem not in LOCAL


class Ownership:
    """The right to write, as long as nobody begins a newer epoch.

    Attributes
    ----------
    epoch : int
        The one that began with it.
    lock : {"held", "unsupported", "bypassed"}
        What the file system said; bypassed = somebody else holds it and the epoch alone protects.
    filesystem : str
        Type of the file system, "" when unknown.
    """

    def __init__(self, directory: Directory, *, owner: str, takeover: bool, unsafe_no_lock: bool) -> None:
        self._directory = directory
        self._place = directory.path.resolve()
        self.filesystem = directory.files.filesystem(self._place)
        self._cached = seen_elsewhere(self.filesystem)
        before = self._register(takeover=takeover)
        self._descriptor = -1
        try:
            self._descriptor = directory.files.open_lock(directory / LOCK)
            self.lock = self._take_lock(takeover=takeover, unsafe_no_lock=unsafe_no_lock)
            if self.lock != "bypassed":
                self._sign(owner)
            self.epoch = self._begin_epoch()
            if self.lock != "held" or before is not None:  # what the last owner still confirms must be here to be read
                directory.files.pause(_UNNOTICED_S)
        except BaseException:
            self.release()
            if before is not None:
                _registry[self._place] = before
            raise
        self._own = directory / epoch_name(self.epoch)
        self._next = directory / epoch_name(self.epoch + 1)

    def check(self) -> None:
        """Raise `Fenced` when somebody took over.

        The next epoch's file is removed once a later one exists, but never before this epoch's own.

        Raises
        ------
        OSError
            That cannot be told, twice.
        """
        for left in reversed(range(_TRIES)):
            try:
                taken = self._is_taken()
                break
            except OSError:
                if not left:
                    raise
        if taken:
            raise Fenced(directory=str(self._directory), epoch=self.epoch)

    def _is_taken(self) -> bool:
        files = self._directory.files
        if self._cached:
            files.refresh(self._directory.path)
        return files.exists(self._next) or not files.exists(self._own)

    def release(self) -> None:
        """Let the next owner in."""
        with _registry_lock:
            if _registry.get(self._place) is self:
                del _registry[self._place]
        if self._descriptor >= 0:
            with suppress(OSError):
                self._directory.files.close(self._descriptor)
            self._descriptor = -1

    def _register(self, *, takeover: bool) -> object | None:
        """Note that this process has the log open; return who had it before."""
        with _registry_lock:
            before = _registry.get(self._place)
            if before is not None and not takeover:
                raise OwnerStillAlive(directory=str(self._directory), pid=os.getpid(), host=socket.gethostname())
            _registry[self._place] = self
            return before

    def _take_lock(self, *, takeover: bool, unsafe_no_lock: bool) -> LockState:
        files = self._directory.files
        state = files.lock(self._descriptor)
        for _ in range(_PATIENCE if takeover else _LOOKS):
            if state != "refused":
                break
            files.pause(_PAUSE_S)
            state = files.lock(self._descriptor)
        if state == "held":
            return "held"
        if state == "unsupported":
            if not unsafe_no_lock:
                filesystem = self.filesystem or "type unknown"
                raise LockUnsupported(directory=str(self._directory), filesystem=filesystem)
            return "unsupported"
        if takeover and not seen_elsewhere(self.filesystem):
            return "bypassed"
        raise self._still_alive()

    def _still_alive(self) -> OwnerStillAlive:
        holder: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            holder = dict(json.loads(self._directory.read(LOCK)))
        host, pid = holder.get("host", "an unknown host"), holder.get("pid", "of unknown id")
        return OwnerStillAlive(directory=str(self._directory), host=host, pid=pid)

    def _sign(self, owner: str) -> None:
        """Say in the lock file who holds it; only for the error that the next one gets."""
        who = {"host": socket.gethostname(), "pid": os.getpid(), "boot": platforms.boot_id(), "owner": owner}
        text = json.dumps(who)
        files = self._directory.files
        with suppress(OSError):
            files.truncate(self._descriptor, 0)
            files.write(self._descriptor, [text.encode()], 0)

    def _begin_epoch(self) -> int:
        directory = self._directory
        known = directory.numbered(EPOCH) + directory.numbered(MANIFEST)
        epoch = max(known, default=0) + 1
        try:
            descriptor = directory.files.create(directory / epoch_name(epoch))
        except FileExistsError:
            raise self._still_alive() from None
        directory.files.close(descriptor)
        directory.files.sync_directory(directory.path)
        return epoch
