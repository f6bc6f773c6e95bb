"""Keeps a shard's bytes in a log of its own, and knows what is as safe as the store promises.

One thread commits, and an executor reads.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from dqlab.clock import Clock
from dqlab.errors import DqlabError
from dqlab.frame import Frame
from dqlab.log.errors import DiskFailed, DiskFull, LogClosed, LogError, LogGone, NoDescriptors, RecordCorrupt
from dqlab.log.files import Files, UnsyncedFiles, is_ours
from dqlab.log.log import GroupCommit, Log
from dqlab.log.writer import LogOptions
from dqlab.rules.batches import Batch
from dqlab.rules.book import Book
from dqlab.rules.result_index import ResultIndex, Stretch
from dqlab.rules.retry import QueueOptions
from dqlab.store.directories import StoredQueue, keep_queue, stored_queues
from dqlab.store.durable_shard import DurableShard
from dqlab.store.journal import LogJournal, open_settle, position_of

DISK_PATIENCE = 20.0
"""Seconds that a confirmation waits for room on the disk or for descriptors, and that a read waits for its disk."""
_READ_AGAIN = 0.1
_HERE = 256 << 10
"""Most bytes of a transient log that are written on the event loop: a hop to the thread costs half a millisecond, and
a system that lacks memory blocks large writes."""


class LogStore(LogJournal):
    """A journal as a queue actor needs it, once `begin` has started it on the event loop."""

    # One thread commits for all waiting calls, and a confirmation waits for a commit that begins after its request.
    # Once the log has failed, every call fails with that error: only the state on disk is true then, not the one in
    # memory.

    def __init__(self, log: Log, clock: Clock) -> None:
        super().__init__(log, clock)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._asked = log.end
        self.short: LogError | None = None
        """Why nothing can be confirmed until there is room again."""
        self.maxsize: int | None = None
        """Bytes of results above which no more should be accepted; None: as many as the disk takes."""
        self._written_here = False
        self._wanted: Callable[[], None] = lambda: None  # records made while opening are committed by `begin`
        self.recorded: Callable[[], None] = lambda: None
        """Called after a record was appended."""
        self.turned: Callable[[], None] = lambda: None
        """Called after `failure` or `short` changed."""

    def begin(self, *, synced: bool) -> None:
        """Start committing, on the event loop where nothing is synced and there is little to write."""
        self._loop = asyncio.get_running_loop()
        self._commit = GroupCommit(self.log, self._wake, on_durable=self._committed, on_short=self._is_short)
        self._wanted = self._commit.wanted if synced else self._want_here
        # Not only failures of commits: compactions and checkpoints fail in other threads.
        self.log.call_on_refusal(partial(self._wake, self._refused))
        self._wanted()

    @property
    def full(self) -> bool:
        """Whether no more results should be accepted."""
        return self.maxsize is not None and self.stored >= self.maxsize

    @property
    def failure(self) -> DqlabError | None:
        """Why nothing can be confirmed any more."""
        refusal = self.log.refusal
        return None if isinstance(refusal, LogClosed) else refusal

    def room(self, nbytes: int) -> bool:
        """Return whether a frame of `nbytes` can be kept."""
        room = super().room(nbytes)
        if not room:  # the next commit checks the disk again
            self._commit.wanted()
        return room

    def no_room(self, nbytes: int) -> DqlabError | None:
        """Return the error for a frame of `nbytes` that cannot be kept, or None if it can."""
        return None if self.room(nbytes) else self.log.disk_full(nbytes)

    def noted(self) -> None:
        """Append all other changes, and request a commit."""
        super().noted()
        if self.log.end != self._asked:
            self._asked = self.log.end
            self._wanted()
            self.recorded()

    async def durable(self, number: int | None = None) -> None:
        """Wait until the records up to a number, or all so far, are as safe as the option `sync` promises.

        Raise DiskFull or NoDescriptors if they may still become durable, LogFailed or Fenced if they never will.
        """
        if self.failure is not None:
            raise self.failure
        end = self.log.end if number is None else number
        if self.log.durable >= end:
            return
        confirmed: asyncio.Future[None] = self._loop.create_future()
        insort(self._waiting, (end, confirmed), key=itemgetter(0))
        self._wanted()
        patience = self._loop.call_later(DISK_PATIENCE, self._impatient, confirmed)
        try:
            await confirmed
        finally:
            patience.cancel()

    async def frame(self, batch: Batch) -> Frame:
        """Return a batch's frame, or raise RecordCorrupt or NoDescriptors."""
        return Frame.decode(await self._body(batch))

    async def read(self, stretch: Stretch) -> bytes | memoryview:
        """Return the settlement that contains a stretch of results."""
        return open_settle(await self._body(stretch))[1]

    async def close(self) -> None:
        """Commit the last records, and release the log to its next owner."""
        await self._loop.run_in_executor(None, self._close)

    # --- inside -----------------------------------------------------------------------------

    async def _body(self, kept: Batch | Stretch) -> bytes:
        # Wait for a disk that fails for a moment: callers give up a frame that cannot be read for good.
        patience = self._loop.time() + DISK_PATIENCE
        while True:
            place = kept.place  # read it in each round: a compaction may move the frame meanwhile
            body = self.cached(place)
            if body is not None:
                return body
            try:
                return await self._loop.run_in_executor(None, self.body, place)
            except RecordCorrupt:
                if kept.place == place:  # else a compaction moved the frame, and we read the wrong place
                    raise
            except (DiskFailed, DiskFull, NoDescriptors) as error:
                if self._loop.time() > patience:
                    if isinstance(error, DiskFailed):
                        raise self.log.unreadable(position_of(place), str(error.reason)) from error
                    raise  # this error is not about the bytes: the frame is not lost
                await asyncio.sleep(_READ_AGAIN)

    def _want_here(self) -> None:
        if not self._written_here:
            self._written_here = True
            self._loop.call_soon(self._commit_here)

    def _commit_here(self) -> None:
        self._written_here = False
        if self.log.pending_bytes <= _HERE and self.log.refusal is None:
            with suppress(LogError):  # the thread tries again, and reports what it meets
                self._committed(self.log.commit())
                return
        self._commit.wanted()

    def _close(self) -> None:
        self._commit.close()
        self.log.close(clean=self.failure is None)

    def _wake(self, callback: Callable[[], None]) -> None:
        # Called in the committing thread, while futures and callbacks belong to the event loop.
        with suppress(RuntimeError):  # the loop is closed, so nothing waits
            self._loop.call_soon_threadsafe(callback)

    def _committed(self, durable: int) -> None:
        short, self.short = self.short, None
        while self._waiting and self._waiting[0][0] <= durable:
            _, confirmed = self._waiting.popleft()
            if not confirmed.done():
                confirmed.set_result(None)
        if short is not None:
            self.turned()

    def _is_short(self, error: DiskFull | NoDescriptors) -> None:
        known, self.short = self.short, error
        if known is None:
            self.turned()

    def _refused(self) -> None:
        refusal = self.log.refusal
        assert refusal is not None  # the log has just called
        for _, confirmed in self._waiting:
            if not confirmed.done():
                confirmed.set_exception(refusal)
        self._waiting.clear()
        if self.failure is not None:  # else the log is closed
            self.turned()

    def _impatient(self, confirmed: asyncio.Future[None]) -> None:
        """End the wait for a confirmation if the log is short of room or descriptors, else check again later."""
        if confirmed.done():
            return
        if self.short is not None:
            confirmed.set_exception(self.short)
        else:  # a disk that hangs now may turn out to be full later, and nothing else would end the wait
            self._loop.call_later(DISK_PATIENCE, self._impatient, confirmed)


async def open_log_of(
    name: str,
    index: int,
    options: QueueOptions,
    directory: Path,
    settings: dict[str, Any] | None,
    clock: Clock,
    *,
    takeover: bool,
    patience: float = 0.0,
) -> tuple[DurableShard, LogStore]:
    """Open or make the log of one shard in an executor, or raise LogGone or another LogError of `Log.open`."""
    # `settings` are fields of `LogOptions`, or None for a log that ends with its queue.
    synced = settings is not None
    log_options = LogOptions(**settings) if settings is not None else LogOptions(sync="os")

    def open_shard() -> DurableShard:
        if takeover and not _is_there(directory):  # a new, empty log would silently lose the messages
            raise LogGone(directory=str(directory))
        return DurableShard.open(
            directory,
            name,
            index,
            options,
            log_options=log_options,
            files=Files() if synced else UnsyncedFiles(),
            clock=clock,
            owner=name,
            takeover=takeover,
            patience=patience,
            journal=LogStore,
        )

    durable = await asyncio.get_running_loop().run_in_executor(None, open_shard)
    journal = durable.journal
    assert isinstance(journal, LogStore)
    journal.begin(synced=synced)
    return durable, journal


def _is_there(directory: Path) -> bool:
    """Return whether a directory has a log, or may have one because it cannot be listed."""
    try:
        return any(is_ours(path.name) for path in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # opening it raises the right error


async def keep(directory: str, name: str, shards: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return {shards, options} of the queue in a directory, made by `keep_queue` if it is new."""
    asked = StoredQueue(name, shards, options)
    kept = await asyncio.get_running_loop().run_in_executor(None, keep_queue, Path(directory), asked)
    return {"shards": kept.shards, "options": kept.options}


async def list_stored(store: str) -> list[str]:
    """Return the names of the queues in a store."""
    return await asyncio.get_running_loop().run_in_executor(None, stored_queues, Path(store))


@dataclass(slots=True)  # one is kept for each run, also for those that ended long ago
class _Known:
    state: Any
    """What readers of the run get, apart from its results. They do not wait for an order that leaves it unchanged."""
    number: int
    """The store's newest record when the state or the results changed last."""
    safe: int
    """Results before this cursor are safe."""
    later: deque[tuple[int, int]] | None = None
    """Record and cursor of each later group of results; None: there is none, and an empty deque would cost memory."""


class Confirmed:
    """Compares the records of each run with those that its store has confirmed."""

    # A run that ended before the disk became full stays done, and can be read. Other runs wait for room. The runs given
    # first are those that the store recovered: they are safe.

    def __init__(self, store: LogStore, books: Iterable[tuple[bytes, Book]]) -> None:
        self._store = store
        self._known = {run: _Known(_state(book), 0, book.results.end) for run, book in books}

    def note(self, run: bytes, book: Book | None) -> None:
        """Note that a run may have changed, or with None that it was dropped."""
        # Call it after all changes are recorded: `log.end` must not be smaller than the number of the last change.
        if book is None:
            self._known.pop(run, None)
            return
        state, end, number = _state(book), book.results.end, self._store.log.end
        known = self._known.get(run)
        if known is None:
            self._known[run] = known = _Known(None, number, 0)
        came = known.later[-1][1] if known.later else known.safe
        if state == known.state and end == came:
            return
        known.state, known.number = state, number
        if end != came:
            self.end(run)
            if known.later is None:
                known.later = deque()
            known.later.append((number, end))

    def number(self, run: bytes) -> int:
        """Return the record that must be confirmed before all of a run is safe."""
        known = self._known.get(run)
        return self._store.log.end if known is None else known.number

    def all_of(self, run: bytes) -> bool:
        """Return whether all of a run is safe."""
        return self.number(run) <= self._store.log.durable

    def end(self, run: bytes) -> int:
        """Return the cursor before which a run's results are safe."""
        known = self._known.get(run)
        if known is None:
            return 0
        later, confirmed = known.later, self._store.log.durable
        while later and later[0][0] <= confirmed:
            known.safe = later.popleft()[1]
        if not later:
            known.later = None
        return known.safe

    def results(self, run: bytes, results: ResultIndex, lo: int, hi: int) -> tuple[int, bool]:
        """Return the number of results with ordinals in [lo, hi), and whether all of them are safe."""
        end, found = self.end(run), list(results.between(lo, hi))
        return sum(piece.n for _, piece, _ in found), all(stretch.number < end for stretch, _, _ in found)


def _state(book: Book) -> tuple[Any, ...]:
    return *book.lane.counts, book.lane.sealed, None if book.record is None else book.record.incomplete
