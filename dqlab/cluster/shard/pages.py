"""Cuts pages of results out of the settlements that hold them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from dqlab.frame import Piece, Settlement
from dqlab.rules.result_index import ResultIndex, Stretch

__all__ = ["PAGE_BYTES", "PAGE_VALUES", "page", "page_behind"]

PAGE_VALUES = 1000
PAGE_BYTES = 4 << 20
KEEP_OPEN = 8

Read: TypeAlias = Callable[[Stretch], Awaitable[bytes | memoryview]]
"""Returns the settlement that contains a stretch of results."""


async def page(results: ResultIndex, read: Read, lo: int, hi: int) -> list[bytes | memoryview]:
    """Return at most one page of results with ordinals in [lo, hi), from `lo` on, as settlements."""
    parts: list[bytes | memoryview] = []
    size, opened = 0, _Opened(read)
    # A copy: the index may change during each await.
    for stretch, piece, at in list(results.between(lo, hi)):
        parts.append(await opened.cut(stretch, piece, at))
        size += len(parts[-1])
        if size >= PAGE_BYTES:
            break
    return parts


async def page_behind(
    results: ResultIndex, read: Read, cursor: int, end: int, most: int = PAGE_VALUES
) -> tuple[list[bytes | memoryview], int]:
    """Return the next page in the order of completion, from `cursor` to before `end`, and the cursor behind it."""
    parts: list[bytes | memoryview] = []
    size, opened, values = 0, _Opened(read), 0
    for stretch in results.behind(cursor):
        if stretch.number >= end:
            break
        parts.append(await opened.cut(stretch, stretch.piece, stretch.at))
        size, values, cursor = size + len(parts[-1]), values + stretch.piece.n, stretch.number + 1
        if values >= most or size >= PAGE_BYTES:
            break
    return parts, cursor if parts else max(cursor, end)


class _Opened:
    """Caches the settlements read last, because failures and retries cut few settlements into many pieces."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._settlements: dict[int, Settlement] = {}

    async def cut(self, stretch: Stretch, piece: Piece, at: int) -> bytes | memoryview:
        """Return a piece of a settlement as a settlement of its own."""
        place = stretch.place
        settlement = self._settlements.pop(place, None)
        if settlement is None:
            settlement = Settlement.decode(await self._read(stretch))
        self._settlements[place] = settlement
        if len(self._settlements) > KEEP_OPEN:
            del self._settlements[next(iter(self._settlements))]
        whole = piece.n == settlement.count and not settlement.riders  # who reads results does not ask for riders
        return settlement.blob if whole else settlement.cut(piece, at)
