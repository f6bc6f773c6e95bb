"""Parts of both frames: flags, columns of numbers, and the check of a header."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from dqlab.errors import FrameCorrupt

VERSION = 1
_MAX_COUNT = 1 << 24


class Flag:
    """Columns that a frame may have, in the high bits of the byte whose low three bits are its `Kind`."""

    # Plain integers: the operators of `enum.IntFlag` would take a tenth of the time to open a frame. The bits are in
    # logs; some have one meaning in a frame and another in a settlement.
    COLUMN: Final = 0x08
    """Numbered messages of a frame differ in a column, too."""
    WEIGHTED: Final = 0x10
    """A frame of messages has their weights."""
    MADE: Final = 0x10
    """A settlement records how its results were made."""
    NUMBERED: Final = 0x20
    """Messages of a frame differ in one number, and one of them stands for all."""
    KEYED: Final = 0x20
    """A settlement has the keys of its documents."""
    EQUAL: Final = 0x40
    """All lengths are equal: one number replaces their column."""
    OPENS: Final = 0x80
    """A frame of messages begins a group of neighbours, such as the rows of a row group."""
    ACKED: Final = 0x80
    """All outcomes of a settlement are ACK, and their column is left out."""
    RIDERS: Final = 0x01
    """A settlement has side columns. It has no `Kind`, so that the low bits are free."""
    OF_SETTLEMENTS: Final = 0xF1


def u32(values: Iterable[int]) -> bytes:
    """Return numbers as a column of little-endian u32."""
    column = array("I", values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def numbers(view: memoryview) -> Sequence[int]:
    """Return a column of little-endian u32 as integers, without a copy where the machine allows it."""
    if sys.byteorder == "little":
        return view.cast("I")
    column = array("I", bytes(view))
    column.byteswap()
    return column


def lengths_column(lengths: Iterable[int]) -> tuple[int, bytes]:
    """Return the column of some lengths, and its flag."""
    column = array("I", lengths)
    if column and column.count(column[0]) == len(column):
        return Flag.EQUAL, u32(column[:1])
    return 0, u32(column)


def read_lengths(view: memoryview, at: int, count: int, flags: int) -> tuple[Sequence[int], int]:
    """Return the lengths that `lengths_column` wrote at a position, and where they end, or raise `ValueError`."""
    if not flags & Flag.EQUAL:
        stop = at + 4 * count
        if stop > len(view):  # a slice would silently be shorter
            raise ValueError(f"cut off before its {count} lengths end")
        return numbers(view[at:stop]), stop
    if at + 4 > len(view):
        raise ValueError("cut off before its length")
    return array("I", [numbers(view[at : at + 4])[0]]) * count, at + 4


def check_head(kind: str, *, magic_fits: bool, version: int, count: int, size: int) -> None:
    """Raise `FrameCorrupt` for a header that cannot belong to a frame of this version."""
    if not magic_fits:
        raise FrameCorrupt(kind=kind, reason="wrong first two bytes", size=size)
    if version != VERSION:
        raise FrameCorrupt(kind=kind, reason=f"version {version}, this dqlab reads {VERSION}", size=size)
    if count > _MAX_COUNT:  # before anything of that size is allocated
        raise FrameCorrupt(kind=kind, reason=f"claims {count:,} messages", size=size)
