"""Open descriptors of this process, without those that others of it open and close meanwhile."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["LISTED", "count_descriptors", "count_files"]

LISTED = Path("/proc/self/fd")


def _modes() -> list[int]:
    modes = []
    for descriptor in LISTED.iterdir() if LISTED.is_dir() else []:
        try:
            modes.append(os.fstat(int(descriptor.name)).st_mode)
        except OSError:  # the one that listed them, or one that another thread has closed
            continue
    return modes


def count_files(below: Path | None = None) -> int:
    """Return how many regular files are open, in a directory if it is given; 0 where that cannot be listed.

    Other threads of this process read files too: a cluster looks into /proc every half second.
    """
    if below is None:
        return sum(map(stat.S_ISREG, _modes()))
    count = 0
    for descriptor in LISTED.iterdir() if LISTED.is_dir() else []:
        try:
            count += descriptor.readlink().is_relative_to(below)
        except OSError:  # another thread has closed it
            continue
    return count


def count_descriptors() -> int:
    """Return how many descriptors are open but sockets: Dask's connections come and go; 0 if that cannot be listed."""
    return sum(not stat.S_ISSOCK(mode) for mode in _modes())
