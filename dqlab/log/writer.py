"""Appends to memory; writes, syncs and seals segments; and refuses all further records when the disk fails.

Order of every commit: write, sync, check the epoch, and only then confirm. See `Writer.commit` for why.

Order of the locks in this room, outermost first. Taking one while holding a later one deadlocks sooner or later, and
hardly any test runs long enough to notice:

1. `Log._upkeep`: one checkpoint or collection.
2. `Catalog.lock`: one commit, or one change of the manifest. It is held during I/O.
3. `Writer.memory`: the only lock that `append` waits for, on the event loop of a shard. Never held during I/O.
4. The locks of `Needed`, `Reader` and `Catalog.allocate`: nothing is locked while they are held.

`Writer.on_refusal` is mostly called with lock 2 held, so it must neither wait nor take a lock of this room.
"""

from __future__ import annotations

import errno
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from zlib import crc32

from dqlab.clock import Clock
from dqlab.errors import BadOption
from dqlab.log.errors import (
    NO_DESCRIPTORS,
    NO_SPACE,
    DiskFull,
    Fenced,
    LogClosed,
    LogError,
    LogFailed,
    NoDescriptors,
    RecordTooLarge,
    disk_full,
    tried_twice,
)
from dqlab.log.files import Directory, segment_name
from dqlab.log.manifest import Catalog, SegmentEntry
from dqlab.log.ownership import Ownership
from dqlab.log.reader import AppendedRecord, Tail
from dqlab.log.records import (
    HEADER_BYTES,
    MAX_BODY,
    SEGMENT_BYTES,
    Header,
    Position,
    RecordType,
    pack_header,
    pack_segment_header,
)
from dqlab.platforms import Buffer

SyncMode: TypeAlias = Literal["always", "interval", "os"]


@dataclass(frozen=True)
class LogOptions:
    """Options of a log, checked when they are made."""

    sync: SyncMode = "always"
    """What confirmed records survive. always = a power cut; interval = a power cut, but for the last `interval`
    seconds; os = only the death of this process."""
    interval: float = 0.05
    """Seconds between two syncs of the mode "interval"."""
    segment_bytes: int = 32 << 20
    """A segment of this size is sealed, and the next one begins."""
    reserve_bytes: int = 8 << 20
    """Bytes of the disk that new messages leave free, so that settlements and checkpoints still fit."""
    checkpoint_bytes: int = 64 << 20
    """Bytes of log after which `Log.checkpoint_due` is true."""
    compact_below: float = 0.5
    """A segment is worth compacting when the share of its bytes that is needed is smaller than this."""
    unsafe_no_lock: bool = False
    """Open the log even where the file system supports no locks."""

    def __post_init__(self) -> None:
        if self.sync not in ("always", "interval", "os"):
            raise BadOption(option="sync", value=self.sync, problem="one of 'always', 'interval', 'os'.")
        _check("interval", self.interval, 0.0, math.inf)
        _check("compact_below", self.compact_below, 0.0, 1.0)
        for option in ("segment_bytes", "checkpoint_bytes"):
            _check(option, getattr(self, option), 1, math.inf)
        _check("reserve_bytes", self.reserve_bytes, 0, math.inf)


def _check(option: str, value: Any, least: float, most: float) -> None:
    if not isinstance(value, int | float) or not least <= value <= most:
        raise BadOption(option=option, value=value, problem=f"a number from {least:g} to {most:g}.")


_FIRST = SEGMENT_BYTES + HEADER_BYTES  # a segment holds one record at least, however large
_WRITES = 3  # attempts to write before the disk counts as full
_UNSYNCED_BYTES = 8 << 20  # kept in memory before they are synced, or forgotten
_LOOK_EVERY_S = 0.01  # between two checks of the epoch in the mode "os"; below `_UNNOTICED_S` of ownership


# After a failed fsync the kernel may mark the lost pages as clean: the next fsync of that file succeeds, and the
# records are gone anyway.
class _Broken(Exception):
    """The open file failed, and must not be written to or synced again."""


class OpenSegment:
    """The segment that is written to."""

    __slots__ = ("descriptor", "end", "seq", "synced")

    def __init__(self, seq: int, descriptor: int, end: int) -> None:
        self.seq = seq
        self.descriptor = descriptor
        # Behind the last record that was written completely, and behind the last one on the device.
        self.end = self.synced = end


class Writer:
    """Appends records to memory, and commits them to the open segment."""

    def __init__(
        self,
        directory: Directory,
        catalog: Catalog,
        owner: Ownership,
        segment: OpenSegment,
        options: LogOptions,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._files = directory.files
        self._catalog = catalog
        self._owner = owner
        self._options = options
        self._clock = clock
        self._open = segment
        self._synced_at = clock.monotonic()
        self._looked_at = float("-inf")
        self.memory = threading.Lock()
        self.tail = Tail()
        # Numbers of the last appended and of the last confirmed record.
        self.end = self.durable = 0
        self.sync_seconds: deque[float] = deque(maxlen=1000)  # of the open segment
        self.appended_bytes = self._durable_bytes = 0
        self.is_short = False  # whether the disk had no room for the last commit
        self.refusal: LogError | None = None  # why nothing can be appended or committed any more
        # Called once there is a refusal, in the thread that meets it, with locks held: it must neither wait nor take a
        # lock.
        self.on_refusal: Callable[[], None] = lambda: None
        # Where the next record goes, which may be segments ahead of the open one.
        self._seq, self._offset, self._number = segment.seq, segment.end, 1
        self._seed = catalog.seed(segment.seq)

    # --- appending -------------------------------------------------------------------------

    def admit(self, nbytes: int) -> None:
        """Raise the reason why a record of this size would not be taken."""
        if nbytes > MAX_BODY:
            raise RecordTooLarge(size=nbytes, limit=MAX_BODY)
        if self.refusal is not None:
            self.check()

    def append(
        self, type: int, parts: Sequence[Buffer], count: int, base: int, aux: int, flags: int, *, admitted: bool
    ) -> Position:
        """Add a record of the journal to memory, and return its permanent position."""
        body = parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)
        if len(body) > MAX_BODY:
            raise RecordTooLarge(size=len(body), limit=MAX_BODY)
        # Outside the lock: a body may have 64 MiB, and a commit waits for the lock too.
        body_crc = crc32(body)
        with self.memory:
            # An admitted record is taken even now, because the rules have made its change. It is never confirmed.
            if self.refusal is not None and not admitted:
                self.check()
            if self._offset > _FIRST and self._offset + HEADER_BYTES + len(body) > self._options.segment_bytes:
                self._go_to_next()
            position = self._add(type, flags, count, base, aux, body, body_crc)
            self.end += 1
            return position

    def note(self, type: RecordType) -> None:
        """Add a record of the log's own, which is not counted in `end`."""
        with self.memory:
            self._add(type, 0, 0, 0, 0, b"", 0)

    def roll(self) -> None:
        """Begin another segment with the next record, so that the next commit seals the open one."""
        with self.memory:
            if self._offset > _FIRST:
                self._go_to_next()
                # The commit seals the open segment only when a record waits for the next one.
                self._add(RecordType.SYNCED, 0, 0, 0, 0, b"", 0)

    def _go_to_next(self) -> None:
        self._add(RecordType.SEAL, 0, 0, 0, 0, b"", 0)
        self._seq, self._offset, self._number = self._catalog.allocate(), SEGMENT_BYTES, 0
        self._seed = self._catalog.seed(self._seq)

    def _add(self, type: int, flags: int, count: int, base: int, aux: int, body: bytes, body_crc: int) -> Position:
        header = Header(type, flags, count, len(body), base, aux, self._number, self._owner.epoch, body_crc)
        packed = pack_header(header, self._seed)
        position = Position(self._seq, self._offset, HEADER_BYTES + len(body))
        self.tail.append(AppendedRecord(position, packed, body))
        self._offset += position.size
        self._number += 1
        self.appended_bytes += position.size
        return position

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not yet confirmed."""
        return self.appended_bytes - self._durable_bytes

    @property
    def open_bytes(self) -> int:
        """Bytes of the open segment and of records not yet written."""
        # Callers hold the memory lock; a commit changes both.
        return self._open.end + self.tail.unwritten_bytes

    def place(self) -> tuple[int, int]:
        """Return the position of the next record."""
        # Callers hold the memory lock.
        return self._seq, self._offset

    # --- committing ------------------------------------------------------------------------

    def commit(self, *, sync: bool) -> int:
        """Write the appended records, sync them if asked or due, confirm them, and return the last confirmed number."""
        with self._catalog.lock:
            self.check()
            # Taken together, before writing: records appended while this commit does its I/O are not confirmed by it.
            with self.memory:
                end, appended, count = self.end, self.appended_bytes, len(self.tail)
            try:
                # The epoch is checked after the sync. Were it checked before, a new owner could begin its epoch and
                # read the files in between: it would not see these records, and they would be confirmed anyway.
                self._persist(count, sync=sync or self._sync_due())
                self._check_owner()
            except Fenced as error:
                raise self.refuse(error) from None
            except DiskFull:
                self.is_short = True
                raise
            except (OSError, _Broken) as error:
                if isinstance(error, OSError) and error.errno in NO_DESCRIPTORS:  # the next commit repeats it
                    raise NoDescriptors(directory=str(self._directory), reason=str(error)) from error
                raise self.refuse(self._failure(error)) from error
            self.durable, self._durable_bytes, self.is_short = end, appended, False
            return end

    def _check_owner(self) -> None:
        now = self._clock.monotonic()
        if self._options.sync != "os" or now - self._looked_at >= _LOOK_EVERY_S:
            self._owner.check()
            self._looked_at = now

    def check(self) -> None:
        """Raise the refusal, if there is one."""
        if self.refusal is not None:
            # A new object each time: several threads raise it, and each would extend the traceback of the others.
            # Without a lock, because the event loop calls this.
            raise type(self.refusal)(**self.refusal.fields)

    def refuse(self, error: LogError) -> LogError:
        """Refuse all further records, and return the first error that did."""
        with self.memory:  # not reentrant, so callers must not hold it
            known, self.refusal = self.refusal, self.refusal or error
        if known is None:  # a checkpoint meets failures too, while its owner is idle and would learn of none
            self.on_refusal()
        return self.refusal

    def close(self) -> None:
        """Close the files without writing anything."""
        with self._catalog.lock:
            # Before the files close. Commits check it under the same lock, so none uses a closed descriptor, whose
            # number another file may have by then.
            self.refuse(LogClosed(directory=str(self._directory)))
            with suppress(OSError):
                self._files.close(self._open.descriptor)

    def _sync_due(self) -> bool:
        if self._options.sync == "always":
            return True
        late = self._clock.monotonic() - self._synced_at >= self._options.interval
        return self._options.sync == "interval" and late

    def _failure(self, error: BaseException) -> LogFailed:
        reason = error.__cause__ or error
        return LogFailed(directory=str(self._directory), reason=f"{type(reason).__name__}: {reason}")

    def _persist(self, count: int, *, sync: bool) -> None:
        self._write(count)
        if sync:
            self._sync()
        elif self.tail.unsynced_bytes > _UNSYNCED_BYTES:
            if self._options.sync == "os":
                self._forget_written()
            else:
                self._sync()

    def _write(self, count: int) -> None:
        """Write the first `count` records that are not yet written."""
        while count > 0 and len(self.tail):
            with self.memory:
                entries, size = self.tail.next_write(count)
            if entries[0].position.segment != self._open.seq:
                self._roll(entries[0].position.segment)
            self._write_together(entries, size)
            with self.memory:
                self.tail.written(entries, size)
            count -= len(entries)

    def _write_together(self, entries: list[AppendedRecord], size: int) -> None:
        segment = self._open
        buffers = [buffer for entry in entries for buffer in (entry.header, entry.body)]
        for _ in range(_WRITES):
            try:
                written = self._files.write(segment.descriptor, buffers, segment.end)
            except OSError as error:
                self._cut(segment)
                if error.errno not in (errno.EINTR, *NO_SPACE):
                    raise _Broken from error
            else:
                if written == size:
                    segment.end += size
                    return
                self._cut(segment)
        raise disk_full(self._directory, size)

    def _cut(self, segment: OpenSegment) -> None:
        """Truncate what a failed write may have left."""
        try:
            # Records behind a half-written one would look like corruption to recovery.
            self._files.truncate(segment.descriptor, segment.end)
        except OSError as error:
            raise _Broken from error

    def _sync(self) -> None:
        self._synced_at = self._clock.monotonic()
        if self._open.synced == self._open.end:
            return
        try:
            self._files.sync(self._open.descriptor)
        except OSError as error:
            self._cut_off_unsynced()
            raise _Broken from error
        self.sync_seconds.append(self._clock.monotonic() - self._synced_at)
        self._open.synced = self._open.end
        self._forget_written()

    def _cut_off_unsynced(self) -> None:
        """Let the next open end where the open segment is synced."""
        # The next open would find the records in the system's memory, sync them without an error, and build on them
        # until a power cut takes them. In the other modes they are confirmed, as written, and stay.
        if self._options.sync == "always":
            with suppress(OSError, DiskFull):
                self._catalog.publish(self._catalog.manifest.sealed(self._open.seq, self._open.synced))

    def _forget_written(self) -> None:
        with self.memory:
            self.tail.synced()

    # --- the next segment ------------------------------------------------------------------

    def _roll(self, seq: int) -> None:
        """Seal the open segment and begin another."""
        # Synced in every mode before the manifest states its length: recovery takes the bytes of a sealed segment as
        # durable, and would report a part lost in a power cut as corruption.
        self._sync()
        old, epoch = self._open, self._owner.epoch
        header = pack_segment_header(self._catalog.uuid, seq, epoch, self._clock.wall())
        name = segment_name(seq, epoch)
        descriptor = tried_twice(self._directory, lambda: self._directory.create(name, [header]))
        listed = self._catalog.manifest.sealed(old.seq, old.end).having(SegmentEntry(seq, epoch))
        try:
            self._catalog.publish(listed)
        except BaseException:
            with suppress(OSError):
                self._files.close(descriptor)
            raise
        # Changed last: after an error before this line the same step is repeated with the same number, and `create` and
        # `having` allow that.
        self._open = OpenSegment(seq, descriptor, SEGMENT_BYTES)
        with suppress(OSError):
            self._files.close(old.descriptor)
