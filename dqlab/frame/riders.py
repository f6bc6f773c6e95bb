"""Side columns of a settlement, by name: some bytes for each of its messages, or for a few of them.

Whatever a consumer has to say about a message besides its outcome rides here, and who does not ask for it by name never
opens it.

::

    u32 columns | (u32 bytes of the name | u32 entries | name | u32 positions[entries]? | u32 lengths[entries] | data)*

The positions are left out where every message has an entry.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

from dqlab.frame.columns import numbers, u32
from dqlab.texts import kept, restored

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
        name = restored(bytes(take(named)))
        positions: Sequence[int] = range(count) if entries == count else numbers(take(4 * entries))
        if any(b <= a for a, b in pairwise(positions)) or (entries and positions[-1] >= count):
            raise ValueError("positions of a side column that do not ascend within it")
        ends = list(accumulate(numbers(take(4 * entries)), initial=0))
        data = take(ends[-1])
        found[name] = {position: data[a:b] for position, (a, b) in zip(positions, pairwise(ends), strict=True)}
    if at != len(view):
        raise ValueError("lengths do not add up to its side columns")
    return found
