"""Results of one lane, kept where they were settled, until the run is dropped.

Owns settle frames, verbatim, and an index from ordinals into them. Holds some in memory and
moves the rest, oldest first, to an unlinked temporary file; reading never frees. File access
goes to an executor, never to the event loop.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import IO

from sortedcontainers import SortedKeyList

from dqlab.frame import Piece, Settlement
from dqlab.queue.ranges import Ranges

__all__ = ["PAGE_BYTES", "PAGE_VALUES", "ResultLog", "Vault"]

PAGE_VALUES = 1000
PAGE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Entry:
    """One stretch of results: which ordinals, in which record, from which position on."""

    piece: Piece
    record: int
    at: int


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


class ResultLog:
    """The results of one lane: in the order of completion, and by ordinal."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._entries: list[_Entry] = []
        self._by_ordinal: SortedKeyList = SortedKeyList(key=lambda entry: entry.piece.ordinal)
        self.covered = Ranges()
        self.nbytes = 0

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self.covered)

    @property
    def end(self) -> int:
        """The cursor behind the newest result; see `after`."""
        return len(self._entries)

    def append(self, settlement: Settlement, stretches: Sequence[tuple[Piece, int]]) -> None:
        """Keep the accepted acks of a settlement, recorded once."""
        blob = bytes(settlement.blob)
        accepted = sum(piece.n for piece, _ in stretches)
        if accepted < settlement.count:
            blobs = [(settlement.cut(piece, at), piece) for piece, at in stretches]
            for cut, piece in blobs:
                self._index(piece, self._vault.add(cut), 0)
                self.nbytes += len(cut)
            return
        record = self._vault.add(blob)
        self.nbytes += len(blob)
        for piece, at in stretches:
            self._index(piece, record, at)

    def _index(self, piece: Piece, record: int, at: int) -> None:
        entry = _Entry(piece, record, at)
        self._entries.append(entry)
        self._by_ordinal.add(entry)
        self.covered.add(piece.ordinal, piece.ordinal + piece.n)

    async def page(self, lo: int, hi: int) -> list[bytes]:
        """Return results with ordinals in [lo, hi), from `lo` on, one page at most, as settlements."""
        parts: list[bytes] = []
        size = 0
        start = max(0, self._by_ordinal.bisect_key_right(lo) - 1)
        entries = takewhile(lambda entry: entry.piece.ordinal < hi, self._by_ordinal.islice(start))
        for entry in list(entries):
            first, last = max(lo, entry.piece.ordinal), min(hi, entry.piece.ordinal + entry.piece.n)
            if first < last and size < PAGE_BYTES:
                parts.append(await self._cut(entry, first - entry.piece.ordinal, last - first))
                size += len(parts[-1])
        return parts

    async def after(self, cursor: int) -> tuple[list[bytes], int]:
        """Return the next page in the order of completion, and the cursor behind it."""
        parts: list[bytes] = []
        size = values = 0
        while cursor < len(self._entries) and values < PAGE_VALUES and size < PAGE_BYTES:
            entry = self._entries[cursor]
            parts.append(await self._cut(entry, 0, entry.piece.n))
            size, values, cursor = size + len(parts[-1]), values + entry.piece.n, cursor + 1
        return parts, cursor

    async def _cut(self, entry: _Entry, offset: int, n: int) -> bytes:
        blob = await self._vault.read(entry.record)
        settlement = Settlement.decode(blob)
        if n == settlement.count:
            return blob
        piece = Piece(entry.piece.first + offset, entry.piece.ordinal + offset, n)
        return settlement.cut(piece, entry.at + offset)

    def drop(self) -> None:
        """Forget every result and give its space back."""
        self._vault.forget({entry.record for entry in self._entries})
        self._entries.clear()
        self._by_ordinal.clear()
        self.covered = Ranges()
        self.nbytes = 0
