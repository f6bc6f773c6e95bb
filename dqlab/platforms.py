"""Calls that not every system has, each with a fallback.

Linux has them all. A call that is missing on macOS, in an old kernel or in a container that forbids it is noticed when
it is used, and replaced by portable means. Nothing else in dqlab checks which system it runs on. Imports only the
standard library.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

LOOK_EVERY = 0.5
"""Seconds between two checks that the parent lives, where the system does not report its end."""
LIST_WITHIN = 5.0
"""Seconds that the command `mount` may take; it hangs on a network file system that is gone."""
LOST_PARENT = 255
"""Exit status of a process whose parent ended first."""

_PUNCH_HOLE = 3
"""`FALLOC_FL_PUNCH_HOLE` of Linux, with `FALLOC_FL_KEEP_SIZE`."""
_UNBUFFERED = 2
"""`_IONBF` of C."""
_PR_SET_PDEATHSIG = 1
_MOUNTS = (
    re.compile(rb".+? on (/.*) type ([^ ]+) \([^()]*\)"),  # Linux
    re.compile(rb".+? on (/.*) \(([\w.]+)[^()]*\)"),  # macOS
)
_BLANK = re.compile(rb"[ \t\n\\]")
_UNKNOWN_CALL = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP})
"""Errors of a kernel for a call that it does not have, or that a container forbids."""


# --- files ----------------------------------------------------------------------------------


def _syncing() -> Callable[[int], None]:
    data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
    full: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        return data
    command = full

    def sync(descriptor: int) -> None:
        try:
            fcntl.fcntl(descriptor, command)
        except OSError as error:  # not every file system has it, network ones for instance
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(descriptor)

    return sync


sync_data = _syncing()
"""Write a file's data to the device; on macOS `fsync` leaves it in the drive's cache, and `F_FULLFSYNC` does not."""


def _writing() -> Callable[[int, Sequence[Buffer], int], int]:
    def joined(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        return os.pwrite(descriptor, b"".join(buffers), offset)

    return getattr(os, "pwritev", joined)


write_at = _writing()
"""Write buffers at an offset of a file; return how many bytes were written, which may be fewer."""


def unnamed_file(name: str) -> int:
    """Return the descriptor of a file that no other process can open, in memory or a temporary one without a name."""
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create(name)
        except OSError as error:
            if error.errno not in _UNKNOWN_CALL:
                raise
    descriptor, path = tempfile.mkstemp(prefix=f"{name}-")
    Path(path).unlink()
    return descriptor


def free_until(descriptor: int, position: int) -> None:
    """Free the memory of the beginning of a file where the system can, and leave all positions in it as they are."""
    with suppress(AttributeError):
        size = ctypes.c_int64
        ctypes.CDLL(None).fallocate64(descriptor, _PUNCH_HOLE, size(0), size(position))


def read_descriptors() -> list[str] | None:
    """Return the numbers of this process's open descriptors, or None where the system does not list them."""
    with suppress(OSError):
        return [path.name for path in Path("/dev/fd").iterdir()]
    return None


def open_descriptors() -> int | None:
    """Return how many descriptors this process has open, or None where the system does not list them."""
    listed = read_descriptors()
    return None if listed is None else len(listed)


_AT_CWD = -100
_SWAP = 2
"""Flag of `renameat2` on Linux and of `renamex_np` on macOS."""


def exchange(one: Path, other: Path) -> bool:
    """Exchange two files or folders in one step, or return False where the system or their file system cannot."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            failed = library.renamex_np(os.fsencode(one), os.fsencode(other), ctypes.c_uint(_SWAP))
        else:
            failed = library.renameat2(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), ctypes.c_uint(_SWAP))
    except (AttributeError, OSError, TypeError):  # a C library without the call
        return False
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN_CALL:
        return False
    raise OSError(number, os.strerror(number), str(other))


# --- facts about the system ------------------------------------------------------------------


@cache
def boot_id() -> str:
    """Return an id of this boot of this machine, or "" where the system has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return _sysctl("kern.bootsessionuuid")


def _sysctl(name: str) -> str:
    """Return a text that macOS keeps under a name, or "" where there is none."""
    try:
        ask: Any = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError, TypeError):
        return ""
    room = ctypes.create_string_buffer(256)
    size = ctypes.c_size_t(len(room))
    if ask(name.encode(), room, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return ""
    return room.value.decode("ascii", "replace")


def mount_table() -> bytes:
    """Return all mounts, a line each with device, place and type, or nothing where the system does not list them."""
    try:
        return Path("/proc/self/mounts").read_bytes()
    except OSError:
        pass
    command = shutil.which("mount", path=os.pathsep.join((os.environ.get("PATH", ""), "/sbin", "/bin")))
    try:
        listed = subprocess.run(
            [command or "mount"], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIST_WITHIN
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return mounts_of(listed.stdout)


def mounts_of(listed: bytes) -> bytes:
    """Return a mount table from the output of the command `mount`, on macOS or on Linux."""
    lines = []
    for line in listed.splitlines():
        found = _MOUNTS[0].match(line) or _MOUNTS[1].match(line)
        if found:
            # Octal escapes for blanks and backslashes, as Linux writes them into /proc/self/mounts.
            place = _BLANK.sub(lambda blank: b"\\%03o" % blank[0][0], found[1])
            lines.append(b"- %s %s" % (place, found[2]))
    return b"\n".join(lines)


def is_locked(path: Path) -> bool:
    """Return whether a process on this machine, this one included, holds a lock on a file."""
    try:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return _refuses_a_shared_lock(path)
    inodes = {line[-3].rpartition(":")[2] for line in lines if "FLOCK" in line and len(line) > 3}
    return str(path.stat().st_ino) in inodes


def _refuses_a_shared_lock(path: Path) -> bool:
    # Without a list of locks, only trying tells. A process that locks the file at this very moment is refused, and has
    # to try again.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# --- processes ------------------------------------------------------------------------------


def problem_with(directory: str) -> str:
    """Return why a directory cannot be trusted, "" if only this user can enter it."""
    try:
        about = Path(directory).lstat()
    except OSError as error:
        return f"{directory} cannot be read ({error.strerror}): its cluster has ended"
    if not stat.S_ISDIR(about.st_mode):
        return f"{directory} is not a directory"
    if about.st_uid != os.geteuid():
        return f"{directory} belongs to user {about.st_uid}, and this process runs as user {os.geteuid()}"
    if about.st_mode & 0o077:
        return f"{directory} can be entered by other users (mode {stat.S_IMODE(about.st_mode):o})"
    return ""


def forks() -> bool:
    """Return whether a process that has imported what others need may be forked to continue in the fork."""
    # macOS's own libraries, which NumPy uses, end a forked process that calls them.
    return hasattr(os, "fork") and sys.platform != "darwin"


def pin_process(pid: int) -> int | None:
    """Return a descriptor that becomes readable once a process has ended, or None where there is no such call."""
    try:
        return os.pidfd_open(pid)
    except AttributeError:
        return None
    except OSError as error:
        if error.errno in _UNKNOWN_CALL:
            return None
        raise


def watch_end(process: subprocess.Popen[bytes]) -> int:
    """Return a descriptor, for the caller to close, that becomes readable once a process started here has ended."""
    pinned = pin_process(process.pid)
    if pinned is not None:
        return pinned
    ended, tell = socket.socketpair()  # not a pipe: writing after the caller has closed its end raises, without SIGPIPE

    def watch() -> None:
        with tell:
            process.wait()  # reaps it, which `pidfd_open` leaves to the caller
            with suppress(OSError):
                tell.send(b"!")

    threading.Thread(target=watch, name="dqlab-watch", daemon=True).start()
    return ended.detach()


def die_with(parent: int) -> None:
    """End this process when the one that started it ends for any reason."""
    killed = False
    if sys.platform == "linux":
        # Linux sends the signal when the *thread* that started this process ends: start it from one that lives on.
        with suppress(AttributeError, OSError):
            killed = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0
    if os.getppid() != parent:  # it ended before the call above took effect
        os._exit(LOST_PARENT)
    if not killed:  # a thread cannot interrupt native code that holds the GIL, so this is second best
        threading.Thread(target=_end_with_parent, args=(parent,), name="dqlab-watch", daemon=True).start()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os._exit(LOST_PARENT)


def die_first() -> None:
    """Make this process the first to be killed when memory runs out, where that can be set."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def unbuffer_c() -> None:
    """Have what native code prints reach its descriptor at once, where the C library is found."""
    library = ctypes.CDLL(None)
    with suppress(AttributeError, ValueError):  # ValueError: no symbol of that name
        standard = ctypes.c_void_p.in_dll(library, "__stdoutp" if sys.platform == "darwin" else "stdout")
        library.setvbuf(standard, None, _UNBUFFERED, ctypes.c_size_t(0))


def kill_group(pid: int) -> None:
    """Kill a process that leads its group and all processes of the group, or nothing if they have ended."""
    # macOS refuses what Linux does not find: a group whose processes have all ended and were not waited for.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
