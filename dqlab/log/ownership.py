"""Which process may write to a log: one object in one process, the one that began the newest epoch.

The lock keeps well-behaved processes apart. The epoch fences a process that was presumed dead and only slept.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dqlab import platforms
from dqlab.log.errors import CannotOpen, Fenced, OwnerStillAlive
from dqlab.log.files import EPOCH, LOCK, MANIFEST, Directory, epoch_name

LockState: TypeAlias = Literal["held", "unsupported", "bypassed"]

_PAUSE_S = 0.02
_UNNOTICED_S = 0.05  # by then a live owner has checked its epoch, in every sync mode; see `_LOOK_EVERY_S` of the writer
_PATIENCE = 50  # pauses, together 1 s
_LOOKS = 2  # pauses: `platforms.is_locked` holds the lock for a moment to find out whether it is free
LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "jfs", "nilfs2", "reiserfs", "ntfs", "ntfs3"}
    | {"vfat", "msdos", "exfat", "fuseblk", "udf", "ufs", "apfs", "hfs", "hfsplus"}
    | {"tmpfs", "ramfs", "rootfs", "overlay", "aufs"}
)
"""File systems of one machine only. Any other may be mounted elsewhere too: ``fuse.*``, as most cluster file systems
can be, directories that a host shares with its guests, and unknown types."""
_TRIES = 2
"""Attempts to check the epoch: most errors of a file server are gone at the second one."""

_registry: dict[Path, object] = {}
_registry_lock = threading.Lock()


def seen_elsewhere(filesystem: str) -> bool:
    """Return whether other machines may mount a file system of this type, and so may hold its locks."""
    return filesystem not in LOCAL


@dataclass(frozen=True)
class Holder:
    """The process that opened a log last, as its lock file names it."""

    host: str
    pid: int
    owner: str
    """The name it gave itself."""
    held: bool | None
    """Whether it still has the log open; None where this cannot be seen, as on another machine."""


def look_at_lock(directory: Path) -> Holder | None:
    """Return which process opened a log last, without taking its lock, or None when the lock file is not signed."""
    try:
        signed: dict[str, Any] = json.loads((directory / LOCK).read_bytes())
        host, pid, owner = str(signed["host"]), int(signed["pid"]), str(signed["owner"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    here = _is_here(host, str(signed.get("boot")))
    held = None
    with suppress(OSError):  # its file system shows no locks
        held = platforms.is_locked(directory / LOCK) if here else None
    return Holder(host, pid, owner, held)


def _is_here(host: str, boot: str) -> bool:
    """Return whether a host name and a boot id are those of this machine."""
    here = platforms.boot_id()
    return boot == here if here else host == socket.gethostname()


class Ownership:
    """The right to write to a log, until a newer epoch begins."""

    def __init__(self, directory: Directory, *, owner: str, takeover: bool, unsafe_no_lock: bool) -> None:
        self._directory = directory
        self._place = directory.path.resolve()
        # Its type, "" when unknown. Such a file system counts as shared: its cached names are read again before each
        # check.
        self.filesystem = directory.files.filesystem(self._place)
        self._cached = seen_elsewhere(self.filesystem)
        before = self._register(takeover=takeover)
        self._descriptor = -1
        try:
            self._descriptor = directory.files.open_lock(directory / LOCK)
            # The file system's answer, or "bypassed": another process holds the lock, and only the epoch protects the
            # log.
            self.lock = self._take_lock(takeover=takeover, unsafe_no_lock=unsafe_no_lock)
            if self.lock != "bypassed":
                self._sign(owner)
            # The epoch that this owner began.
            self.epoch = self._begin_epoch()
            # Without the lock the last owner may still run. It confirms nothing once it has seen this epoch; what it
            # confirms before that must be on disk before recovery reads, or a confirmed message would be missing.
            if self.lock != "held" or before is not None:
                directory.files.pause(_UNNOTICED_S)
        except BaseException:
            self.release()
            if before is not None:
                _registry[self._place] = before
            raise
        self._own = directory / epoch_name(self.epoch)
        self._next = directory / epoch_name(self.epoch + 1)

    def check(self) -> None:
        """Raise `Fenced` if another owner took over, or OSError if that could not be read, twice."""
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
        # Both files are needed: the epoch after ours may be gone already, because a later one removed it. As old epochs
        # are removed lowest first (`recovery._remove_leftovers`), our own file is gone by then.
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
        """Register that this process has the log open, and return the owner before it, if there is one."""
        # Over NFS, flock locks for the whole process: two logs in one process would both hold it.
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
                kind = self.filesystem or "type unknown"
                reason = f"the file system of {self._directory} ({kind}) supports no locks"
                hint = "Use another directory, or unsafe_no_lock=True if no other process can open this one."
                raise CannotOpen(reason=reason, hint=hint)
            return "unsupported"
        if takeover and not seen_elsewhere(self.filesystem):
            return "bypassed"
        raise self._still_alive()

    def _still_alive(self) -> OwnerStillAlive:
        holder = look_at_lock(self._directory.path)
        host, pid = ("an unknown host", "of unknown id") if holder is None else (holder.host, holder.pid)
        return OwnerStillAlive(directory=str(self._directory), host=host, pid=pid)

    def _sign(self, owner: str) -> None:
        """Write the holder's name into the lock file."""
        # Shown to people. The lock and the epoch decide who may write: a process may die between locking and signing.
        signature = {"host": socket.gethostname(), "pid": os.getpid(), "boot": platforms.boot_id(), "owner": owner}
        text = json.dumps(signature)
        files = self._directory.files
        with suppress(OSError):
            files.truncate(self._descriptor, 0)
            files.write(self._descriptor, [text.encode()], 0)

    def _begin_epoch(self) -> int:
        directory = self._directory
        known = directory.numbered(EPOCH) + directory.numbered(MANIFEST)
        epoch = max(known, default=0) + 1
        try:  # exclusive creation: of two processes that begin the same epoch, one fails here
            descriptor = directory.files.create(directory / epoch_name(epoch))
        except FileExistsError:
            raise self._still_alive() from None
        directory.files.close(descriptor)
        directory.files.sync_directory(directory.path)
        return epoch
