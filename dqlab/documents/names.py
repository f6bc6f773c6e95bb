"""The names in a large folder, in order, in little memory: sorted in runs, which are packed and merged.

Owns how many names are held as texts. Knows nothing of files.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable, Iterator

from dqlab.texts import kept, restored

__all__ = ["in_order"]

RUN = 16_384
"""Names that are sorted together; a folder of fewer is not packed at all."""
BLOCK = 256
"""Names of a run that are unpacked together."""


def in_order(names: Iterable[str]) -> Iterator[str]:
    r"""Yield names sorted; all have been taken when this returns.

    A million names cost some megabytes: about six bytes each, where they look alike.

    Parameters
    ----------
    names : iterable of str
        None of them has "\0" in it.

    Examples
    --------
    >>> list(in_order(["b", "a/", "c"]))
    ['a/', 'b', 'c']
    """
    runs: list[list[bytes]] = []
    held: list[str] = []
    for name in names:
        held.append(name)
        if len(held) == RUN:
            runs.append(_packed(held))
            held = []
    held.sort()
    if not runs:
        return iter(held)
    if held:
        runs.append(_packed(held))
    return heapq.merge(*map(_unpacked, runs))


def _packed(names: list[str]) -> list[bytes]:
    names.sort()
    cuts = range(0, len(names), BLOCK)
    return [zlib.compress(kept("\0".join(names[cut : cut + BLOCK])), 1) for cut in cuts]


def _unpacked(run: list[bytes]) -> Iterator[str]:
    run.reverse()
    while run:  # what was read is let go
        yield from restored(zlib.decompress(run.pop())).split("\0")
