"""Open descriptors of this process, without those that others of it open and close meanwhile."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["LISTED", "count_files", "none_left_open"]

LISTED = Path("/proc/self/fd")

SETTLE_S = 10.0


def _links() -> list[str]:
    """Return what is open, but sockets (Dask's connections come and go); nothing where that cannot be listed."""
    links = []
    for descriptor in LISTED.iterdir() if LISTED.is_dir() else []:
        try:
            if not stat.S_ISSOCK(os.fstat(int(descriptor.name)).st_mode):
                links.append(str(descriptor.readlink()))
        except OSError:  # the one that listed them, or one that another thread has closed
            continue
    return links


def count_files(below: Path) -> int:
    """Return how many files in a directory are open, also deleted ones; 0 where that cannot be listed."""
    return sum(Path(link).is_relative_to(below) for link in _links())


@contextmanager
def none_left_open(but: int = 0) -> Iterator[None]:
    """Fail if a block leaves more descriptors open than it found, but so many.

    Other threads of this process open files too (a cluster looks into /proc every half second), and a count of one
    instant sees them: what stays open for ten seconds was left.
    """
    before = _links()
    yield
    deadline = time.monotonic() + SETTLE_S
    while len(after := _links()) > len(before) + but:
        assert time.monotonic() < deadline, f"left open: {dict(Counter(after) - Counter(before))}"
        time.sleep(0.02)
