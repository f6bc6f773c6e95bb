"""Opens what a shard has stored: pages of results out of settlements, and the keys of messages that a cap wants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from heapq import nlargest
from sys import intern
from typing import TypeAlias
from urllib.parse import urlsplit

from dqlab.documents import Document
from dqlab.documents.document import sealed_plainly
from dqlab.documents.parts import Inline
from dqlab.frame import Frame, Piece, Settlement
from dqlab.rules.result_index import ResultIndex, Stretch

PAGE_VALUES = 1000
PAGE_BYTES = 4 << 20
KEEP_OPEN = 8
SEARCHED = 1000
"""Settlements in which one call searches."""

Read: TypeAlias = Callable[[Stretch], Awaitable[bytes | memoryview]]
"""Returns the settlement that contains a stretch of results."""


async def page(results: ResultIndex, read: Read, lo: int, hi: int, *, bare: bool = False) -> list[bytes | memoryview]:
    """Return at most one page of results with ordinals in [lo, hi), from `lo` on, as settlements."""
    parts: list[bytes | memoryview] = []
    size, opened = 0, _Opened(read)
    # A copy: the index may change during each await.
    for stretch, piece, at in list(results.between(lo, hi)):
        parts.append(await opened.cut(stretch, piece, at, bare=bare))
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
        # A stretch that lost results in the middle has several parts with one number: a page ends between numbers.
        if stretch.number >= end or (stretch.number >= cursor and (values >= most or size >= PAGE_BYTES)):
            break
        parts.append(await opened.cut(stretch, stretch.piece, stretch.at))
        size, values, cursor = size + len(parts[-1]), values + stretch.piece.n, stretch.number + 1
    return parts, cursor if parts else max(cursor, end)


async def rider_of(results: ResultIndex, read: Read, name: str, ordinal: int) -> tuple[bool, bytes]:
    """Return whether there is a result with an ordinal, and its entry in a side column, b"" for none."""
    for stretch, _, at in list(results.between(ordinal, ordinal + 1)):
        return True, _entry(Settlement.decode(await read(stretch)), name, at)
    return False, b""


async def rider_behind(
    results: ResultIndex, read: Read, name: str, key: str, cursor: int
) -> tuple[bool, bytes, int | None]:
    """Search results behind a cursor for a key; return as `rider_of` does, and where to go on, None at the end."""
    opened, searched = _Opened(read), 0
    for stretch in results.behind(cursor):
        if searched >= SEARCHED and stretch.number >= cursor:
            return False, b"", cursor
        settlement = await opened.settlement_of(stretch)
        place, cursor, searched = settlement.place_of(key), stretch.number + 1, searched + 1
        if place is not None and stretch.at <= place < stretch.at + stretch.piece.n:
            return True, _entry(settlement, name, place), None
    return False, b"", None


async def slowest_behind(
    results: ResultIndex, read: Read, n: int, cursor: int
) -> tuple[list[tuple[float, int, str | None, str]], int | None]:
    """Return (seconds, ordinal, key, consumer) of the slowest results behind a cursor, and where to go on or None."""
    opened, searched, found = _Opened(read), 0, list[tuple[float, int, str | None, str]]()
    for stretch in results.behind(cursor):
        settlement, (_, ordinal, count) = await opened.settlement_of(stretch), stretch.piece
        cursor, searched = stretch.number + 1, searched + 1
        if settlement.made is not None:
            seconds = settlement.made.seconds(stretch.at, stretch.at + count)
            consumer, keys = settlement.made.consumer, settlement.keys()
            most = nlargest(n, ((took, at) for at, took in enumerate(seconds) if took == took))
            found += [(took, ordinal + at, keys[stretch.at + at] if keys else None, consumer) for took, at in most]
            found = nlargest(n, found)
        if searched == SEARCHED:
            return found, cursor
    return found, None


def _entry(settlement: Settlement, name: str, place: int) -> bytes:
    rider = settlement.riders.get(name)
    return b"" if rider is None else bytes(rider.get(place) or b"")


class _Opened:
    """Caches the settlements read last, because failures and retries cut few settlements into many pieces."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._settlements: dict[int, Settlement] = {}

    async def cut(self, stretch: Stretch, piece: Piece, at: int, *, bare: bool = False) -> bytes | memoryview:
        """Return a piece of a settlement as a settlement of its own."""
        settlement = await self.settlement_of(stretch)
        if bare:
            return settlement.cut(piece, at, bare=True)
        whole = piece.n == settlement.count and not settlement.riders  # who reads results does not ask for riders
        return settlement.blob if whole else settlement.cut(piece, at)

    async def settlement_of(self, stretch: Stretch) -> Settlement:
        """Return the settlement that contains a stretch."""
        place = stretch.place
        settlement = self._settlements.pop(place, None)
        if settlement is None:
            settlement = Settlement.decode(await self._read(stretch))
        self._settlements[place] = settlement
        if len(self._settlements) > KEEP_OPEN:
            del self._settlements[next(iter(self._settlements))]
        return settlement


def keys_of(frame: Frame, by: str) -> list[str]:
    """Return the key of each message of a frame, "" where it has none."""
    return [intern(_key(sealed_plainly(message), by)) for message in frame.messages()]


def _key(value: object, by: str) -> str:
    where, found = value if isinstance(value, str) else "", None
    if type(value) is Document:
        where, part = value.where, value.part
        if type(part) is Inline and isinstance(part.values, tuple):
            value = dict(zip(part.names, part.values, strict=False))
    if isinstance(value, Mapping):
        found, where = value.get(by), str(value.get("url", where))
    if found is None and by == "host":
        try:
            found = urlsplit(where).hostname
        except ValueError:  # no URL
            return ""
    return "" if found is None else str(found)
