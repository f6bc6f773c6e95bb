"""Keeps the results of a transient shard, and cuts pages of results for any shard.

A `Vault` has unchanged settle frames: new ones in memory, the oldest in unlinked temporary files. Reading never frees
them. Files are accessed in an executor, never on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, TypeAlias, TypeVar

from dqlab.frame import Piece, Settlement
from dqlab.frame.buffers import LARGE, buffer
from dqlab.rules.result_index import ResultIndex, Stretch

logger = logging.getLogger("dqlab.queue")

__all__ = ["PAGE_BYTES", "PAGE_VALUES", "Vault", "page", "page_behind"]

PAGE_VALUES = 1000
PAGE_BYTES = 4 << 20
KEEP_OPEN = 8
FILE_BYTES = 64 << 20
"""Size of a file above which a new file is begun."""
MOSTLY = 0.5
"""Share of a file below which the records still needed move to another file."""
RETRY_S = 5.0
"""Seconds after which a failed write is retried."""

T = TypeVar("T")
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
        return settlement.blob if piece.n == settlement.count else settlement.cut(piece, at)


class _SpillFile:
    """An unlinked temporary file with records of results."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.end = self.live = 0
        self.records: dict[int, None] = {}
        self._users = 0
        self._closing = False

    @property
    def sparse(self) -> bool:
        """Whether most of it is no longer needed."""
        return self.live < self.end * MOSTLY

    async def read(self, offset: int, size: int) -> bytes | memoryview:
        """Return some of its bytes."""
        return await self._in_thread(_read_all, size, offset)

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function of the descriptor in a thread, and keep the descriptor open until the thread ends."""
        # Even if the caller is cancelled: the system would give a closed descriptor to the next file that is opened,
        # and the thread would read or write there. So count users by the thread's end, not with try/finally here.
        self._users += 1
        running = asyncio.get_running_loop().run_in_executor(None, work, self.file.fileno(), *args)
        running.add_done_callback(self._let_go)
        return await asyncio.shield(running)

    def _let_go(self, _: object) -> None:
        self._users -= 1
        if self._closing:
            self.close()

    async def append(self, number: int, data: bytes | memoryview) -> _Spilled:
        """Append a record, one at a time, or raise OSError."""
        # `end` changes only after the await, so that a partly written record takes no room. A second writer would
        # overwrite this record meanwhile: only `_spill` may call it.
        offset = self.end
        await self._in_thread(_write_all, data, offset)
        self.end = offset + len(data)
        self.live += len(data)
        self.records[number] = None
        return _Spilled(self, offset, len(data))

    def forget(self, number: int, size: int) -> None:
        """Count a record as no longer needed."""
        del self.records[number]
        self.live -= size

    def close(self) -> None:
        """Close the file as soon as no thread reads or writes it."""
        self._closing = True
        if not self._users:
            self.file.close()


@dataclass(frozen=True, slots=True)
class _Spilled:
    file: _SpillFile
    offset: int
    size: int


class Vault:
    """Results of one shard, in memory up to a budget in bytes, then in unlinked temporary files."""

    # A file is closed once no record in it is needed. When most of its records are not needed, the others move to
    # another file, so that files take little more space than the records kept. A record that cannot be written stays in
    # memory and is retried. Once such records take a second budget, the vault is full.

    def __init__(self, memory_bytes: int, maxsize: int, *, file_bytes: int = FILE_BYTES) -> None:
        self.memory_bytes, self.maxsize = memory_bytes, maxsize
        self.nbytes = 0
        self.trouble = ""
        """Why results cannot be written to a file now."""
        self._file_bytes = file_bytes
        self._in_memory = 0
        self._records: dict[int, bytes | memoryview | _Spilled] = {}
        self._order: deque[int] = deque()
        self._next = 0
        self._files: list[_SpillFile] = []
        self._spilling: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether no more results should be accepted."""
        return self.nbytes >= self.maxsize or (bool(self.trouble) and self._in_memory >= 2 * self.memory_bytes)

    @property
    def file_bytes(self) -> int:
        """Total bytes of its files."""
        return sum(file.end for file in self._files)

    def add(self, blob: bytes | memoryview) -> int:
        """Keep a record and return its number."""
        number, self._next = self._next, self._next + 1
        self._records[number] = blob
        self._order.append(number)
        self.nbytes += len(blob)
        self._in_memory += len(blob)
        if self._in_memory > self.memory_bytes:
            self._wake()
        return number

    async def read(self, number: int) -> bytes | memoryview:
        """Return a record's bytes."""
        # No await before the file counts this reader: else it could be closed in between.
        record = self._records[number]
        return await record.file.read(record.offset, record.size) if isinstance(record, _Spilled) else record

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget records, and free the space of files that keep few of them."""
        for number in numbers:
            record = self._records.pop(number)
            if isinstance(record, _Spilled):
                self.nbytes -= record.size
                record.file.forget(number, record.size)
            else:
                self.nbytes -= len(record)
                self._in_memory -= len(record)
        # Else `_order` would keep the number of every record that was forgotten in memory.
        if len(self._order) > 2 * len(self._records) + 1000:
            self._order = deque(number for number in self._order if self._is_in_memory(number))
        self._close_empty()
        if any(file.sparse for file in self._files[:-1]):  # not the last one: it is still being written
            self._wake()

    def close(self) -> None:
        """Forget all records and close all files."""
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        if self._spilling is not None:
            self._spilling.cancel()
        self._records.clear()
        for file in self._files:
            file.close()
        self._files.clear()

    def _wake(self) -> None:
        """Begin to write pending records, unless that is under way or failed a moment ago."""
        if self._spilling is None and self._again is None and not self._closed:
            self._spilling = asyncio.get_running_loop().create_task(self._spill(), name="dqlab-spill")

    def _try_again(self) -> None:
        self._again = None
        self._wake()

    async def _spill(self) -> None:
        try:
            while (number := self._next_to_write()) is not None:
                await self._write(number)
                self._close_empty()
            self.trouble = ""
        except OSError as error:
            place = tempfile.gettempdir()
            if not self.trouble:
                logger.warning("event=spill_failed directory=%s in_memory=%d %s", place, self._in_memory, error)
            self.trouble = f"results cannot be written to {place}: {error.strerror or error}"
            if not self._closed:
                self._again = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)
        finally:
            self._spilling = None

    def _is_in_memory(self, number: int) -> bool:
        return isinstance(self._records.get(number), bytes | memoryview)

    def _next_to_write(self) -> int | None:
        """Return the oldest record while memory is above its budget, else a record of a sparse file."""
        if self._in_memory > self.memory_bytes:
            while self._order:
                if self._is_in_memory(self._order[0]):
                    return self._order[0]
                self._order.popleft()
        return next((next(iter(file.records)) for file in self._files[:-1] if file.sparse and file.records), None)

    async def _write(self, number: int) -> None:
        data = await self.read(number)
        if not self._files or self._files[-1].end >= self._file_bytes:
            opened = await asyncio.get_running_loop().run_in_executor(None, tempfile.TemporaryFile)
            self._files.append(_SpillFile(opened))
        file = self._files[-1]
        spilled = await file.append(number, data)
        before = self._records.get(number)
        if before is None:  # forgotten during the write
            file.forget(number, spilled.size)
            return
        self._records[number] = spilled
        if isinstance(before, _Spilled):
            before.file.forget(number, before.size)
        else:
            self._in_memory -= len(before)

    def _close_empty(self) -> None:
        writing = self._files[-1:] if self._spilling is not None else []
        for file in [file for file in self._files if not file.records and file not in writing]:
            self._files.remove(file)
            file.close()


def _read_all(descriptor: int, size: int, offset: int) -> bytes | memoryview:
    if size < LARGE or not hasattr(os, "preadv"):
        return os.pread(descriptor, size, offset)
    whole, at = buffer(size), 0
    while at < size and (read := os.preadv(descriptor, [whole[at:]], offset + at)):
        at += read
    return whole[:at]


def _write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    view, at = memoryview(data), offset
    try:
        while view:
            written = os.pwrite(descriptor, view, at)
            view, at = view[written:], at + written
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, offset)  # gives the room of a partly written record back to a full disk
        raise
