"""Takes away what only Linux has: every Python process that finds this file on its path runs without.

Found by its name, so that processes that are started by processes run without as well.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import pathlib
import select
import signal
import sys

TAKEN = {
    os: (
        "fdatasync posix_fallocate posix_fadvise pidfd_open memfd_create eventfd preadv pwritev fork forkpty waitid "
        "sched_getaffinity sched_setaffinity sched_getscheduler copy_file_range splice sendfile"
    ),
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    select: "epoll EPOLLIN",
    fcntl: "F_SETPIPE_SZ F_GETPIPE_SZ F_OFD_SETLK F_ADD_SEALS F_SETLEASE",
}
"""What macOS does not have, in Python 3.11 or in builds for older releases of it; `fork` is there and not safe."""


def _take_away() -> None:
    for module, names in TAKEN.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    if hasattr(os, "process_cpu_count"):  # Python 3.13: asks for the affinity where there is one
        os.process_cpu_count = os.cpu_count
    find = ctypes.CDLL.__getattr__

    def without_prctl(library: ctypes.CDLL, name: str) -> object:
        if name == "prctl":
            raise AttributeError(name)
        return find(library, name)

    ctypes.CDLL.__getattr__ = without_prctl  # type: ignore[method-assign]
    opened = pathlib.Path.open

    def without_proc(path: pathlib.Path, *args: object, **given: object) -> object:
        if path.parts[:2] == ("/", "proc"):
            raise FileNotFoundError(errno.ENOENT, "taken away", str(path))
        return opened(path, *args, **given)  # type: ignore[arg-type]

    pathlib.Path.open = without_proc  # type: ignore[method-assign, assignment]


if sys.platform == "linux":
    _take_away()
