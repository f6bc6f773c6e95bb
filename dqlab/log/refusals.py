"""Turns what the system refuses into the errors of a log."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dqlab.log.directory import Directory
from dqlab.log.errors import DiskFailed, DiskFull, LogError, NoDescriptors

__all__ = ["NO_DESCRIPTORS", "NO_SPACE", "disk_full", "refusal", "typed"]

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def refusal(error: OSError, directory: Directory) -> LogError:
    """Return `DiskFull`, `NoDescriptors` or `DiskFailed` for what the system refused."""
    if error.errno in NO_SPACE:
        return disk_full(directory, 0)
    if error.errno in NO_DESCRIPTORS:
        return NoDescriptors(directory=str(directory), reason=str(error))
    return DiskFailed(directory=str(directory), reason=f"{type(error).__name__}: {error}")


def disk_full(directory: Directory, needed: int) -> DiskFull:
    """Return the error for a full disk, with the free bytes if they can be read."""
    free = 0
    with suppress(OSError):
        free = directory.files.free_bytes(directory.path)
    return DiskFull(directory=str(directory), needed=needed, free=free)


@contextmanager
def typed(directory: Directory) -> Iterator[None]:
    """Turn an OSError of the block into the `refusal`."""
    try:
        yield
    except OSError as error:
        raise refusal(error, directory) from error
