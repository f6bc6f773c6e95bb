"""Parts of both frames: flags, columns of numbers, the check of a header, memory for large parts, and riders.

Riders are side columns of a settlement by name: some bytes for each of its messages, or for a few. Whatever a consumer
has to say about a message besides its outcome rides here, and who does not ask for it by name never opens it.

::

    u32 columns | (u32 bytes of the name | u32 entries | name | u32 positions[entries]? | u32 lengths[entries] | data)*

The positions are left out where every message has an entry.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

from dqlab.errors import FrameCorrupt
from dqlab.texts import kept, restored

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


class Cursor:
    """Takes one part of some bytes after another, and raises `ValueError` where they end."""

    def __init__(self, view: memoryview, what: str, at: int = 0) -> None:
        self.view, self.what, self.at = view, what, at

    def take(self, n: int) -> memoryview:
        """Return the next bytes, without a copy."""
        start, self.at = self.at, self.at + n
        if self.at > len(self.view):
            raise ValueError(f"cut off in {self.what}")
        return self.view[start : self.at]


def check_head(kind: str, *, magic_fits: bool, version: int, count: int, size: int) -> None:
    """Raise `FrameCorrupt` for a header that cannot belong to a frame of this version."""
    if not magic_fits:
        raise FrameCorrupt(kind=kind, reason="wrong first two bytes", size=size)
    if version != VERSION:
        raise FrameCorrupt(kind=kind, reason=f"version {version}, this dqlab reads {VERSION}", size=size)
    if count > _MAX_COUNT:  # before anything of that size is allocated
        raise FrameCorrupt(kind=kind, reason=f"claims {count:,} messages", size=size)


LARGE = 4 << 20
"""Bytes from which numpy asks for large pages."""


def joined(parts: Sequence[bytes | memoryview]) -> bytes | memoryview:
    """Return parts as one."""
    # The system clears a new page of 4 KiB at its first write, which takes three times as long as the write. Numpy,
    # where it is loaded already, asks for pages of 2 MiB; a thread that imports it may not have come to `empty` yet.
    size, empty = sum(map(len, parts)), getattr(sys.modules.get("numpy"), "empty", None)
    if size < LARGE or empty is None:
        return b"".join(parts)
    whole: memoryview = empty(size, "u1").data
    at = 0
    for part in parts:
        stop = at + len(part)
        whole[at:stop] = part
        at = stop
    return whole


_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<II")
Rider: TypeAlias = dict[int, memoryview]
"""One side column: an entry, by its message's position in the settlement, for each that has one."""


def encode_riders(riders: Mapping[str, Mapping[int, bytes]], count: int) -> bytes:
    """Return side columns of `count` messages, each from positions to entries, as bytes."""
    parts = [_COUNT.pack(len(riders))]
    for name, entries in riders.items():
        ordered = sorted(entries.items())
        named = kept(name)
        parts += [_HEAD.pack(len(named), len(ordered)), named]
        if len(ordered) != count:
            parts.append(u32(position for position, _ in ordered))
        parts += [u32(len(entry) for _, entry in ordered), *(entry for _, entry in ordered)]
    return b"".join(parts)


def decode_riders(view: memoryview, count: int) -> dict[str, Rider]:
    """Open the side columns of `count` messages without a copy of their data, or raise `ValueError`."""
    cursor, found = Cursor(view, "its side columns"), dict[str, Rider]()
    take = cursor.take
    (columns,) = _COUNT.unpack(take(_COUNT.size))
    for _ in range(columns):
        named, entries = _HEAD.unpack(take(_HEAD.size))
        name = restored(bytes(take(named)))
        positions: Sequence[int] = range(count) if entries == count else numbers(take(4 * entries))
        if any(b <= a for a, b in pairwise(positions)) or (entries and positions[-1] >= count):
            raise ValueError("positions of a side column that do not ascend within it")
        ends = list(accumulate(numbers(take(4 * entries)), initial=0))
        data = take(ends[-1])
        found[name] = {position: data[a:b] for position, (a, b) in zip(positions, pairwise(ends), strict=True)}
    if cursor.at != len(view):
        raise ValueError("lengths do not add up to its side columns")
    return found
