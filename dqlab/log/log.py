"""The log of one queue shard: bytes in, bytes out, and only durable records are confirmed.

`GroupCommit` commits for all callers in one thread: the next commit takes everything that was appended during this one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from dqlab.clock import Clock, SystemClock
from dqlab.errors import UsageError
from dqlab.log.errors import DiskFull, Fenced, LogError, LogFailed, NoDescriptors, RecordCorrupt, tried_twice, typed
from dqlab.log.files import Files, checkpoint_name
from dqlab.log.manifest import Manifest, SegmentEntry
from dqlab.log.reader import Reader
from dqlab.log.records import FIRST_OPAQUE, HEADER_BYTES, Position, Record, RecordType
from dqlab.log.recovery import Checkpoint, Corruption, LogMark, LogReplay, Opened, open_log
from dqlab.log.writer import LogOptions, Writer
from dqlab.platforms import Buffer

_LOOK_EVERY_S = 1.0
_LOOK_EVERY_BYTES = 1 << 20


@dataclass(frozen=True)
class Usage:
    """What a log's directory holds, in bytes."""

    segments: int
    """All segments, with records appended and not yet written."""
    needed: int
    """The part of the segments that the journal needs."""
    checkpoints: int

    @property
    def total(self) -> int:
        """Everything together."""
        return self.segments + self.checkpoints


class Needed:
    """Bytes that the journal still needs, by segment."""

    def __init__(self) -> None:
        self._table: dict[int, int] = {}
        self._lock = threading.Lock()

    def __getitem__(self, segment: int) -> int:
        return self._table.get(segment, 0)

    def add(self, segment: int, nbytes: int) -> None:
        """Count bytes as needed."""
        with self._lock:
            self._table[segment] = self._table.get(segment, 0) + nbytes

    def take(self, segment: int, nbytes: int) -> None:
        """Count bytes as no longer needed, or raise ValueError if fewer were."""
        # Fewer means that the journal's books are wrong. Stopping here keeps the files: at a count of 0 they would be
        # deleted, with messages that are still needed.
        with self._lock:
            left = self._table.get(segment, 0) - nbytes
            if left < 0:
                raise ValueError(f"{nbytes} bytes of segment {segment} freed, {left + nbytes} were needed")
            self._table[segment] = left

    def forget(self, segment: int) -> None:
        """Drop a deleted segment."""
        with self._lock:
            self._table.pop(segment, None)

    def table(self) -> dict[int, int]:
        """Return bytes by segment, without zeros."""
        with self._lock:
            return {segment: nbytes for segment, nbytes in self._table.items() if nbytes}


def removable(manifest: Manifest, checkpoints: list[Checkpoint], needed: Needed) -> list[SegmentEntry]:
    """Return the segments that neither the journal nor a recovery from either checkpoint needs."""
    # Either checkpoint may turn out to be damaged, so a recovery from the older one must work too. Its replay reads the
    # segments from its own mark on, whether or not anything in them is needed: they hold the settlements of messages in
    # earlier segments. So a segment may go only if it lies before both marks.
    if len(checkpoints) < 2:
        return []
    end = min(manifest.place(checkpoint.segment) for checkpoint in checkpoints)
    return [entry for entry in manifest.segments[:end] if not needed[entry.seq]]


class Log:
    """An append-only log in its own directory, open in one place at a time."""

    # `append`, `mark`, `free` and `cached` do no I/O: the shard calls them on its event loop. `commit`, `read`,
    # `checkpoint` and `collect` block, and each may run in its own thread beside the others.

    def __init__(self, opened: Opened, options: LogOptions, clock: Clock) -> None:
        self.options = options
        self.recovery = opened.found  # what earlier sessions left
        self.corrupt: Sequence[Corruption] = ()  # bytes that were durable and have changed, known after the replay
        self.lock = opened.owner.lock  # what keeps other processes out; see `Ownership`
        self.epoch = opened.owner.epoch  # counts the openings
        self.uuid = opened.catalog.manifest.uuid
        self.directory = opened.directory.path
        self._directory = opened.directory
        self._owner = opened.owner
        self._catalog = opened.catalog
        self._needed = Needed()
        self._checkpoints = list(opened.found.checkpoints)  # the two newest, newest last
        self._replay = LogReplay(
            opened.directory, opened.found.manifest, self._checkpoints[-1] if self._checkpoints else None
        )
        self._replay_begun = False
        self._counted = self._replay.done  # a log without records needs none
        parts = (opened.directory, opened.catalog)
        self._writer = Writer(*parts, opened.owner, opened.segment, options, clock)
        self._reader = Reader(*parts, self._writer.tail)
        # Held by one checkpoint or collection. Reentrant, because a checkpoint ends with a collection.
        self._upkeep = threading.RLock()
        self._marked_bytes = 0
        self._clock = clock
        self._looked_at, self._written_then, self._free_then = float("-inf"), 0, 0
        self._look_at_disk()

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        options: LogOptions | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        owner: str = "",
        takeover: bool = False,
    ) -> Self:
        """Take ownership of a log, create it if it is new, and recover what the last session left."""
        options, clock = options or LogOptions(), clock or SystemClock()
        # With `takeover` it waits a second for the lock. On a local file system it then goes on without the lock: the
        # epoch of the process that holds it ends, and that process confirms nothing more.
        opened = open_log(Path(directory), options, files or Files(), clock, owner=owner, takeover=takeover)
        return cls(opened, options, clock)

    def replay(self) -> Iterator[Record]:
        """Yield the journal's records behind the checkpoint (all, when there is none), oldest first."""
        if self._replay_begun:
            raise UsageError(reason="a log is replayed once, right after it was opened. Open it again.")
        # Callers replay before the first append: every record builds on the state that the ones before it left.
        self._replay_begun = True
        with self._typed():
            yield from self._replay
        self.corrupt = self._replay.corrupt

    # --- writing ---------------------------------------------------------------------------

    @property
    def refusal(self) -> LogError | None:
        """Why nothing can be appended or committed any more."""
        return self._writer.refusal

    def call_on_refusal(self, callback: Callable[[], None]) -> None:
        """Have a callback called once there is a refusal, in the thread that meets it."""
        self._writer.on_refusal = callback

    def admit(self, nbytes: int = 0) -> None:
        """Raise what `append` would raise for a body of this size."""
        # Called before the rules change anything: they cannot undo a change, so a record that is appended as `admitted`
        # is taken in any case. If the log fails in between, it stays in memory unconfirmed, and is never durable.
        self._writer.admit(nbytes)

    def append(
        self,
        type: int,
        parts: Sequence[Buffer],
        *,
        count: int = 0,
        base: int = 0,
        aux: int = 0,
        flags: int = 0,
        needed: int = 0,
        admitted: bool = False,
    ) -> Position:
        """Add a record to memory for the next `commit`, and return its permanent place."""
        # The header has 32 bits for `count`, 64 for `base` and `aux`, 8 for `flags`. `needed` are the bytes of this
        # record that the journal needs until it calls `free`; `admitted` = `admit` passed and the rules have made the
        # change.
        if type < FIRST_OPAQUE:
            raise ValueError(f"record type {type} is the log's own")
        if (type | flags) >> 8 or count >> 32 or (base | aux) >> 64:
            raise ValueError(f"out of range: type {type}, flags {flags}, count {count}, base {base} or aux {aux}")
        position = self._writer.append(type, parts, count, base, aux, flags, admitted=admitted)
        if needed:
            self._needed.add(position.segment, needed)
        return position

    @property
    def end(self) -> int:
        """Number of the last appended record, counted from 1 since the log was opened."""
        return self._writer.end

    @property
    def durable(self) -> int:
        """Number of the last confirmed record, which is synced, or written in the modes "interval" and "os"."""
        return self._writer.durable

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not yet confirmed."""
        return self._writer.pending_bytes

    def commit(self) -> int:
        """Write the appended records, sync them as the mode requires, and return the last confirmed number."""
        # After DiskFull and NoDescriptors the records stay in memory for another commit. After Fenced, LogFailed and
        # LogClosed nothing will be confirmed any more.
        return self._commit(sync=False)

    def sync(self) -> None:
        """Commit and sync in every mode, and raise what `commit` raises."""
        self._commit(sync=True)

    def _commit(self, *, sync: bool) -> int:
        try:
            return self._writer.commit(sync=sync)
        finally:  # also after a full disk: this look finds the room
            self._look_at_disk()

    def give_up(self, error: Exception) -> LogError:
        """Refuse all further records after an unexpected error, and return the error that calls raise now."""
        return self._writer.refuse(LogFailed(directory=str(self.directory), reason=f"{type(error).__name__}: {error}"))

    def note_synced(self) -> None:
        """Write a record which states that everything before it is durable."""
        # Called when the log becomes idle. By this record the next open distinguishes a torn tail from damage to the
        # records before it.
        self._writer.note(RecordType.SYNCED)
        self._writer.commit(sync=False)

    # --- reading ---------------------------------------------------------------------------

    def read(self, position: Position) -> bytes:
        """Return a record's body from memory or disk, or raise RecordCorrupt if its bytes are gone or have changed."""
        # DiskFailed, NoDescriptors and DiskFull mean that the bytes could not be read: the same read may work a moment
        # later. So callers must not treat them as a lost record.
        return self._reader.read(position)

    def unreadable(self, position: Position, reason: str) -> RecordCorrupt:
        """Return the error for a record that is given up."""
        return self._reader.corrupt(position, reason)

    def cached(self, position: Position) -> bytes | None:
        """Return a record's body if this needs no I/O, else None."""
        return self._reader.cached(position)

    # --- the end ---------------------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """Close the log and release its lock."""
        try:
            # Without `clean`, uncommitted records are dropped, and the next open recovers as after a kill.
            if clean and self._writer.refusal is None:
                self.sync()
                # In two syncs: a power cut must not leave a CLOSE record behind records that never reached the disk,
                # since the next open would sync none of them.
                self._writer.note(RecordType.CLOSE)
                self.sync()
        finally:
            # Whatever failed above: unconfirmed records are not durable then, and the lock must be released.
            self._writer.close()
            self._reader.close()
            self._owner.release()  # last: from here on another process may write to these files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what is needed --------------------------------------------------------------------

    def needs(self, table: Mapping[int, int]) -> None:
        """State, once after the replay, how many bytes of each segment are needed."""
        listed = self._catalog.manifest.listed()
        for segment, nbytes in table.items():
            if segment in listed:  # else its bytes are lost, and nothing can free them
                self._needed.add(segment, nbytes)
        self._counted = self._replay.done

    def need(self, segment: int, nbytes: int) -> None:
        """Count bytes of a record as needed that was appended a moment ago."""
        self._needed.add(segment, nbytes)

    def free(self, segment: int, nbytes: int) -> None:
        """Count bytes of a segment as no longer needed, or raise ValueError if fewer were needed."""
        self._needed.take(segment, nbytes)

    def mark(self) -> LogMark:
        """Return the current end of the log, for a checkpoint of the journal's state at the same instant."""
        # No await and no other append between this and the copy of that state: replay starts here, so a record counted
        # in both would be applied twice, and one counted in neither would be lost.
        self._check_replayed()
        self._writer.check()
        with self._writer.memory:
            segment, offset = self._writer.place()
            self._marked_bytes = self._writer.appended_bytes
            return LogMark(segment, offset)

    @property
    def checkpoint_due(self) -> bool:
        """True when `checkpoint_bytes` were appended since the last mark."""
        return self._writer.appended_bytes - self._marked_bytes >= self.options.checkpoint_bytes

    def checkpoint(self, mark: LogMark, body: bytes) -> None:
        """Make the journal's state at a mark durable, which comes back as `recovery.checkpoint`, then `collect`."""
        # After an error an earlier checkpoint, or this one, is in force, so callers just take the next one when it is
        # due.
        with self._typed(), self._upkeep:
            # First the records up to the mark, then the checkpoint that replaces them: a power cut in between must not
            # leave a checkpoint which knows of records that never reached the disk.
            self._writer.commit(sync=True)
            catalog, directory = self._catalog, self._directory
            name = checkpoint_name(catalog.manifest.epoch, catalog.manifest.next_checkpoint())
            data = Checkpoint.encode(catalog.manifest.uuid, *mark, body)
            tried_twice(directory, lambda: directory.publish(name, [data]))
            with catalog.lock:
                # One that the disk refused to read goes before one that was read.
                unread = set(catalog.manifest.checkpoints) - {known.name for known in self._checkpoints}
                catalog.publish(catalog.manifest.having_checkpoint(name, unread))
            # Old checkpoints are unlinked only now that no manifest in force lists them.
            kept = catalog.manifest.checkpoints
            known = [*self._checkpoints, Checkpoint(name, *mark, len(data))]
            self._checkpoints = [checkpoint for checkpoint in known if checkpoint.name in kept]
            for old in unread | {checkpoint.name for checkpoint in known if checkpoint.name not in kept}:
                with suppress(OSError):
                    directory.files.unlink(directory / old)
            self.collect()

    def collect(self) -> int:
        """Delete sealed segments that nothing needs and that lie before both kept checkpoints; return how many."""
        self._check_replayed()
        catalog, directory = self._catalog, self._directory
        with self._typed(), self._upkeep:
            doomed = self._removable()
            if doomed:
                # The settlements of their messages may only be in memory. If the files were deleted first, a power cut
                # would leave messages that are neither settled nor there.
                self._writer.commit(sync=True)
                with catalog.lock:  # asked again: a commit may have changed the manifest
                    doomed = [entry for entry in self._removable() if entry in doomed]
                    catalog.publish(catalog.manifest.without({entry.seq for entry in doomed}))
            # After the manifest without them is on disk: a listed segment that is missing stops every open.
            for entry in doomed:
                self._reader.retire(entry.seq)
                self._needed.forget(entry.seq)
                with suppress(OSError):  # the next open removes what this cannot
                    directory.files.unlink(directory / entry.name)
            if doomed:
                directory.files.sync_directory(directory.path)
            return len(doomed)

    def _removable(self) -> list[SegmentEntry]:
        return removable(self._catalog.manifest, self._checkpoints, self._needed)

    def roll(self) -> None:
        """Seal the open segment, so that it can be collected or compacted."""
        self._check_replayed()
        self._writer.roll()
        self._writer.commit(sync=True)

    def victims(self, below: float | None = None) -> list[int]:
        """Return the sealed segments that hold too few needed bytes to stay."""
        share = self.options.compact_below if below is None else below
        sealed = [entry for entry in self._catalog.manifest.segments if entry.length]
        return [entry.seq for entry in sealed if 0 < self._needed[entry.seq] < share * (entry.length or 0)]

    # --- space -----------------------------------------------------------------------------

    def room(self, nbytes: int) -> bool:
        """Return whether the disk has room for a number of bytes, beside what stays free for settlements."""
        # No I/O, because every put asks: the figures come from the last commit that looked at the disk, at most a
        # second or a MiB ago.
        return not self._writer.is_short and self._free() >= self._with_spare(nbytes)

    def disk_full(self, nbytes: int) -> DiskFull:
        """Return the error for bytes that are refused because there is no `room`."""
        return DiskFull(directory=str(self.directory), needed=self._with_spare(nbytes), free=max(0, self._free()))

    def _with_spare(self, nbytes: int) -> int:
        return nbytes + HEADER_BYTES + self.options.reserve_bytes

    def _free(self) -> int:
        """Return the free bytes of the disk, as of the last look, without what was appended since."""
        since = self._writer.appended_bytes - self._written_then
        return self._free_then - since - self._writer.pending_bytes

    def _look_at_disk(self) -> None:
        """Read the free space again if the last look is a second or a MiB ago; the next commit repeats what fails."""
        now, written = self._clock.monotonic(), self._writer.appended_bytes
        if now - self._looked_at < _LOOK_EVERY_S and written - self._written_then < _LOOK_EVERY_BYTES:
            return
        # In this order: `_free` reads both in another thread without a lock. In between, what was written since the
        # last look is subtracted twice, which is too little room for a moment and never too much.
        with suppress(OSError):
            self._free_then = self._directory.files.free_bytes(self.directory)
            self._looked_at, self._written_then = now, written

    def usage(self) -> Usage:
        """Return what the directory holds, by kind."""
        manifest, checkpoints = self._catalog.manifest, self._checkpoints
        with self._writer.memory:
            segments = self._writer.open_bytes + sum(entry.length or 0 for entry in manifest.segments)
        return Usage(
            segments=segments,
            needed=sum(self._needed.table().values()),
            checkpoints=sum(checkpoint.size for checkpoint in checkpoints),
        )

    def figures(self) -> dict[str, Any]:
        """Return the figures that views show, in bytes and seconds."""
        # `free` is of the disk; `written` counts since the log was opened; `sync_p99` is the 99th
        # percentile of the last syncs, None without any; above the garbage share `compact_above` the log is compacted.
        usage, syncs = self.usage(), sorted(self._writer.sync_seconds)
        return {
            "total": usage.total,
            "live": usage.needed,
            "garbage": max(0, usage.segments - usage.needed),
            "free": max(0, self._free()),
            "written": self._writer.appended_bytes,
            "sync_p99": syncs[len(syncs) * 99 // 100] if syncs else None,
            "compact_above": 1 - self.options.compact_below,
        }

    def garbage(self) -> float:
        """Return the share of the sealed segments' bytes that are not needed, 0 to 1."""
        sealed = [entry for entry in self._catalog.manifest.segments if entry.length is not None]
        total = sum(entry.length or 0 for entry in sealed)
        needed = sum(self._needed[entry.seq] for entry in sealed)
        return max(0.0, 1 - needed / total) if total else 0.0

    def _check_replayed(self) -> None:
        if not self._counted:
            raise UsageError(reason="replay the log and call `needs` first: until then it is not known what is needed.")

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Turn OSErrors into LogErrors, and refuse all further records once fenced."""
        self._writer.check()
        try:
            with typed(self._directory):
                yield
        except Fenced as error:
            raise self._writer.refuse(error) from None


_RETRY_S = 1.0
_IDLE_S = 1.0  # before a SYNCED record marks for the next open what was durable
_HANDLING_S = 0.01
"""Most seconds that a commit waits until callers have handled the last one. The first caller to handle it puts again;
if that were committed at once, all others would wait for a second sync."""


class GroupCommit:
    """Commits a log from a daemon thread, so that no other thread has to."""

    def __init__(
        self,
        log: Log,
        wake: Callable[[Callable[[], None]], None],
        *,
        on_durable: Callable[[int], None],
        on_short: Callable[[DiskFull | NoDescriptors], None],
    ) -> None:
        # `wake` calls its argument in the thread of the callbacks, as `loop.call_soon_threadsafe` does. `on_durable` is
        # called so with the number of the last confirmed record, and `on_short` with the error of a commit that is
        # repeated a second later, or when `wanted` is called. After any other error the log refuses all records, which
        # its own callback reports, and the thread ends.
        self._log, self._wake, self._on_durable, self._on_short = log, wake, on_durable, on_short
        self._condition = threading.Condition()
        self._wanted = self._closing = False
        self._announced = 0
        self._handled = threading.Event()
        self._handled.set()
        self._thread = threading.Thread(target=self._run, name="dqlab-commit", daemon=True)
        self._thread.start()

    def wanted(self) -> None:
        """Request a commit, from any thread."""
        with self._condition:
            self._wanted = True
            self._condition.notify()

    def close(self) -> None:
        """Commit what is left and end the thread, but leave the log open."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        # A callback may close it where `wake` calls at once, and a thread cannot join itself.
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        patience: float | None = None
        then: _Step | None = None
        closing = False
        while not closing:
            with self._condition:
                if not self._wanted and not self._closing:
                    self._condition.wait(patience)
                step = self._commit if self._wanted or self._closing else then
                # Taken before the step: what is wanted during it needs another one.
                self._wanted, closing = False, self._closing
            if step is None:
                continue
            try:
                patience, then = step()
            except (DiskFull, NoDescriptors) as error:
                self._wake(partial(self._on_short, error))
                patience, then = _RETRY_S, self._commit
            except Exception as error:  # noqa: BLE001 - no other thread confirms, so callers would wait forever
                self._log.give_up(error)
                return

    def _commit(self) -> _Then:
        self._handled.wait(_HANDLING_S)
        durable = self._log.commit()
        if durable > self._announced:
            self._announced = durable
            # Before `wake`: the callback sets it, perhaps before this thread goes on.
            self._handled.clear()
            self._wake(partial(self._announce, durable))
        if self._log.options.sync == "interval":
            return self._log.options.interval, self._sync
        return (_IDLE_S, self._note_synced) if self._log.options.sync == "always" else (None, None)

    def _announce(self, durable: int) -> None:
        self._on_durable(durable)
        self._wake(self._handled.set)  # queued behind what callers do first in answer

    def _sync(self) -> _Then:
        self._log.sync()
        return _IDLE_S, self._note_synced

    def _note_synced(self) -> _Then:
        self._log.note_synced()
        return None, None


_Then = tuple[float | None, "_Step | None"]
_Step = Callable[[], _Then]
