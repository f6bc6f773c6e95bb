"""Memory for large parts, in pages as large as the system has."""

from __future__ import annotations

import sys
from collections.abc import Sequence

LARGE = 4 << 20
"""Bytes from which numpy asks for large pages."""


def buffer(size: int) -> memoryview:
    """Return memory of this size with arbitrary contents."""
    # The system clears a new page of 4 KiB at its first write, which takes three times as long as the write. Numpy,
    # where it is loaded already, asks for pages of 2 MiB.
    # A thread that imports it may not have come to `empty` yet.
    empty = getattr(sys.modules.get("numpy"), "empty", None) if size >= LARGE else None
    return memoryview(bytearray(size)) if empty is None else empty(size, "u1").data


def joined(parts: Sequence[bytes | memoryview]) -> bytes | memoryview:
    """Return parts as one."""
    size = sum(map(len, parts))
    if size < LARGE or "numpy" not in sys.modules:
        return b"".join(parts)
    whole, at = buffer(size), 0
    for part in parts:
        stop = at + len(part)
        whole[at:stop] = part
        at = stop
    return whole
