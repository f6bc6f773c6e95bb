"""Memory that the code under test allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["allocated_below"]

FRAMES = 25
"""How many calls may lie between the test and what allocates."""


@contextmanager
def allocated_below(file: str) -> Iterator[Callable[[], int]]:
    """Give what returns the bytes that are held now, of those that calls from a file have allocated in this block.

    Threads that other tests left in this process, as those of a client, allocate meanwhile: they do not count.
    """
    below = [tracemalloc.Filter(True, file, all_frames=True)]
    tracemalloc.start(FRAMES)
    try:
        yield lambda: sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(below).traces)
    finally:
        tracemalloc.stop()
