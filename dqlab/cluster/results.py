"""Bytes of results of one shard that lives in memory, and pages of results wherever they are.

A `Vault` owns settle frames, verbatim: some in memory, the rest, oldest first, in an unlinked temporary
file; reading never frees. File access goes to an executor, never to the event loop.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import IO, TypeAlias

from dqlab.frame import Piece, Settlement
from dqlab.queue.results import ResultIndex, Stretch

__all__ = ["PAGE_BYTES", "PAGE_VALUES", "Vault", "page", "page_behind"]

PAGE_VALUES = 1000
PAGE_BYTES = 4 << 20
KEEP_OPEN = 8

Read: TypeAlias = Callable[[Stretch], Awaitable[bytes]]
"""Returns the settlement that brought some results."""


async def page(results: ResultIndex, read: Read, lo: int, hi: int) -> list[bytes]:
    """Return results with ordinals in [lo, hi), from `lo` on, one page at most, as settlements."""
    parts: list[bytes] = []
    size, opened = 0, _Opened(read)
    for stretch, piece, at in list(results.between(lo, hi)):
        parts.append(await opened.cut(stretch, piece, at))
        size += len(parts[-1])
        if size >= PAGE_BYTES:
            break
    return parts


async def page_behind(results: ResultIndex, read: Read, cursor: int) -> tuple[list[bytes], int]:
    """Return the next page in the order of completion, and the cursor behind it."""
    parts: list[bytes] = []
    size, opened, values = 0, _Opened(read), 0
    for stretch in results.behind(cursor):
        parts.append(await opened.cut(stretch, stretch.piece, stretch.at))
        size, values, cursor = size + len(parts[-1]), values + stretch.piece.n, cursor + 1
        if values >= PAGE_VALUES or size >= PAGE_BYTES:
            break
    return parts, cursor


class _Opened:
    """The settlements that were read last: failures and retries between results make many pieces of few."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._settlements: dict[int, Settlement] = {}

    async def cut(self, stretch: Stretch, piece: Piece, at: int) -> bytes:
        """Return a piece of the settlement that brought some results, as one of its own."""
        place = stretch.place
        settlement = self._settlements.pop(place, None)
        if settlement is None:
            settlement = Settlement.decode(await self._read(stretch))
        self._settlements[place] = settlement
        if len(self._settlements) > KEEP_OPEN:
            del self._settlements[next(iter(self._settlements))]
        return bytes(settlement.blob) if piece.n == settlement.count else settlement.cut(piece, at)


@dataclass(frozen=True, slots=True)
class _Spilled:
    offset: int
    size: int


class Vault:
    """Bytes of settled results of one shard: in memory up to a budget, then in an unlinked file.

    Parameters
    ----------
    memory_bytes, maxsize : int
        Budget in memory, and in all, bytes.
    """

    def __init__(self, memory_bytes: int, maxsize: int) -> None:
        self.memory_bytes, self.maxsize = memory_bytes, maxsize
        self.nbytes = 0
        self._in_memory = 0
        self._records: dict[int, bytes | _Spilled] = {}
        self._order: deque[int] = deque()
        self._next = 0
        self._file: IO[bytes] | None = None
        self._end = 0
        self._spilling: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """No more results should be taken in."""
        return self.nbytes >= self.maxsize

    def add(self, blob: bytes) -> int:
        """Keep a record; return its number."""
        number, self._next = self._next, self._next + 1
        self._records[number] = blob
        self._order.append(number)
        self.nbytes += len(blob)
        self._in_memory += len(blob)
        if self._in_memory > self.memory_bytes and (self._spilling is None or self._spilling.done()):
            self._spilling = asyncio.get_running_loop().create_task(self._spill(), name="dqlab-spill")
        return number

    async def read(self, number: int) -> bytes:
        """Return a record's bytes."""
        record = self._records[number]
        if isinstance(record, bytes):
            return record
        assert self._file is not None
        descriptor = self._file.fileno()
        return await asyncio.get_running_loop().run_in_executor(None, os.pread, descriptor, record.size, record.offset)

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop records; the file gives its space back when nothing is kept any more."""
        for number in numbers:
            record = self._records.pop(number)
            size = len(record) if isinstance(record, bytes) else record.size
            self.nbytes -= size
            self._in_memory -= size if isinstance(record, bytes) else 0
        if not self._records and self._file is not None and self._spilling is None:
            self._file.close()
            self._file, self._end = None, 0

    def close(self) -> None:
        """Drop everything."""
        if self._spilling is not None:
            self._spilling.cancel()
        self._records.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _spill(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._in_memory > self.memory_bytes and self._order:
                number = self._order.popleft()
                record = self._records.get(number)
                if not isinstance(record, bytes):
                    continue
                if self._file is None:
                    self._file = await loop.run_in_executor(None, tempfile.TemporaryFile)
                offset = self._end
                self._end += len(record)
                await loop.run_in_executor(None, _write_all, self._file.fileno(), record, offset)
                if number in self._records:
                    self._records[number] = _Spilled(offset, len(record))
                    self._in_memory -= len(record)
        finally:
            self._spilling = None


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
