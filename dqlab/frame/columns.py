"""What both frames are built of: flags, columns of numbers, and the check of a header."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from enum import IntFlag

from dqlab.errors import FrameCorrupt

__all__ = ["VERSION", "Flag", "check_head", "numbers", "u32"]

VERSION = 1
_MAX_COUNT = 1 << 24


class Flag(IntFlag):
    """Columns that a frame has or has not; the low four bits of a frame are its `Kind`."""

    WEIGHTED = 0x10
    KEYED = 0x20


def u32(values: Iterable[int]) -> bytes:
    """Return numbers as a column of little-endian u32."""
    column = array("I", values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def numbers(view: memoryview) -> Sequence[int]:
    """Return a column of little-endian u32 as integers, without copying where the machine allows it."""
    if sys.byteorder == "little":
        return view.cast("I")
    column = array("I", bytes(view))
    column.byteswap()
    return column


def check_head(kind: str, *, magic_fits: bool, version: int, count: int, size: int) -> None:
    """Raise `FrameCorrupt` when a header cannot belong to a frame of this version and size."""
    if not magic_fits:
        raise FrameCorrupt(kind=kind, reason="wrong first two bytes", size=size)
    if version != VERSION:
        raise FrameCorrupt(kind=kind, reason=f"version {version}, this dqlab reads {VERSION}", size=size)
    if count > _MAX_COUNT or count > size:
        raise FrameCorrupt(kind=kind, reason=f"claims {count:,} messages", size=size)
