"""Side columns of a settlement, by name: some bytes for each of its messages, or for a few of them.

Whatever a consumer has to say about a message besides its outcome rides here, and who does not ask for it by name never
opens it.

::

    u32 columns | (u32 bytes of the name | u32 entries | name | u32 positions[entries]? | u32 lengths[entries] | data)*

The positions are left out where every message has an entry.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from dqlab.frame.columns import numbers, u32
from dqlab.texts import kept, restored

_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<II")


class Rider:
    """One side column, found by position."""

    __slots__ = ("_data", "_ends", "positions")

    def __init__(self, positions: Sequence[int], lengths: Sequence[int], data: memoryview) -> None:
        self.positions = positions
        """The messages that have an entry, in ascending order."""
        self._ends, self._data = list(accumulate(lengths, initial=0)), data

    def get(self, position: int) -> memoryview | None:
        """Return the entry of the message at a position of the settlement, or None if it has none."""
        at = bisect_left(self.positions, position)
        if at == len(self.positions) or self.positions[at] != position:
            return None
        return self._data[self._ends[at] : self._ends[at + 1]]


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
    at, found = 0, dict[str, Rider]()

    def take(n: int) -> memoryview:
        nonlocal at
        start, at = at, at + n
        if at > len(view):
            raise ValueError("cut off in its side columns")
        return view[start:at]

    (columns,) = _COUNT.unpack(take(_COUNT.size))
    for _ in range(columns):
        named, entries = _HEAD.unpack(take(_HEAD.size))
        if entries > count:
            raise ValueError(f"a side column of {entries:,} entries for {count:,} messages")
        name = restored(bytes(take(named)))
        positions: Sequence[int] = range(count) if entries == count else numbers(take(4 * entries))
        if any(b <= a for a, b in pairwise(positions)) or (entries and positions[-1] >= count):
            raise ValueError("positions of a side column that do not ascend within it")
        lengths = numbers(take(4 * entries))
        found[name] = Rider(positions, lengths, take(sum(lengths)))
    if at != len(view):
        raise ValueError("lengths do not add up to its side columns")
    return found
