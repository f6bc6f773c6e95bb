"""What a slot's process prints, whatever writes it: Python, C, or a process that it starts."""

from __future__ import annotations

import os
from contextlib import suppress

from dqlab import platforms
from dqlab.printed import Ring

_READ = 1 << 18
_FREED = 4 << 20
"""Bytes that were read and are still in memory, above which they are freed."""


class PrintedFile:
    """A file in place of a process's standard output and error, which its slot reads."""

    # Not a pipe: the process could not say which bytes belong to which message without a call for each, and native code
    # that holds the GIL would hang in a full one. All who write share one position, which the process reports with each
    # outcome.
    def __init__(self) -> None:
        self.fd = platforms.unnamed_file("dqlab-printed")
        self._read = self._freed = 0

    def read(self, ring: Ring | None, upto: int | None = None) -> None:
        """Pass on what was printed, up to a position or the end, to this process's standard error and into a ring."""
        while upto is None or self._read < upto:
            most = _READ if upto is None else min(_READ, upto - self._read)
            data = os.pread(self.fd, most, self._read)
            if not data:
                break
            self._read += len(data)
            _write_all(data)
            if ring is not None:
                ring.write(data)
        if self._read - self._freed > _FREED:
            platforms.free_until(self.fd, self._read)
            self._freed = self._read

    def more(self, upto: int) -> bool:
        """Return whether something was printed up to a position that was not read."""
        return upto > self._read

    @property
    def size(self) -> int:
        """The position behind all that was printed."""
        return os.fstat(self.fd).st_size

    def close(self) -> None:
        """Pass on the rest and close the file."""
        self.read(None)
        os.close(self.fd)


def _write_all(data: bytes) -> None:
    left = memoryview(data)
    with suppress(OSError):  # nobody reads the log any more
        while left:
            left = left[os.write(2, left) :]
