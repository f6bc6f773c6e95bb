"""Memory that the code under test allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["allocated_in"]


@contextmanager
def allocated_in(*files: str, calls: int = 1) -> Iterator[Callable[[], int]]:
    """Give what returns the bytes that are held now, of those that these files have allocated in this block.

    Threads that other tests left in this process, as those of a client, allocate meanwhile: they do not count.

    Parameters
    ----------
    files : str
        Patterns of paths.
    calls : int, default 1
        How many of the calls that lead to what allocates may be the one in these files; each makes all slower.
    """
    chosen = [tracemalloc.Filter(True, file, all_frames=True) for file in files]
    tracemalloc.start(calls)
    try:
        yield lambda: sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(chosen).traces)
    finally:
        tracemalloc.stop()
