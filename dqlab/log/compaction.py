"""Copies what is still needed out of segments that hold little of it, slowly, beside live traffic.

Until the manifest lists the new segment, that one is a leftover. The old ones stay listed until two checkpoints know
the new positions; `collection.removable` decides that. A crash finds one set of files or the other, complete.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from zlib import crc32

from dqlab.clock import Clock
from dqlab.log.collection import SegmentCollector
from dqlab.log.directory import TEMPORARY, Directory, segment_name, write_all
from dqlab.log.errors import RecordTooLarge
from dqlab.log.manifest import Catalog, SegmentEntry
from dqlab.log.options import LogOptions
from dqlab.log.records import (
    HEADER_BYTES,
    MAX_BODY,
    Header,
    NewRecord,
    Position,
    Record,
    RecordType,
    pack_header,
)
from dqlab.log.segment import SEGMENT_BYTES, pack_segment_header
from dqlab.log.space import Needed, Reserve
from dqlab.log.writer import Writer

__all__ = ["Compaction", "Compactor", "Moved", "Progress"]

_SLICE = 256 << 10

Progress = Callable[[int, int], None]


class Moved(NamedTuple):
    """A record that was copied."""

    old: Position
    key: Any
    """The key of its `NewRecord`."""
    new: Position


@dataclass(frozen=True)
class Compaction:
    """What a compaction did."""

    victims: tuple[int, ...] = ()
    """Segments that were copied from."""
    segment: int | None = None
    """The new one; None when nothing was kept."""
    read_bytes: int = 0
    """Bytes of the victims."""
    written_bytes: int = 0
    """Bytes of the new segment."""
    moved: list[Moved] = field(default_factory=list)
    """The journal moves to each new position and frees the old bytes; then it takes a checkpoint."""


class Compactor:
    """Writes one compacted segment at a time."""

    def __init__(
        self,
        directory: Directory,
        catalog: Catalog,
        writer: Writer,
        collector: SegmentCollector,
        needed: Needed,
        reserve: Reserve,
        options: LogOptions,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._catalog = catalog
        self._writer = writer
        self._collector = collector
        self._needed = needed
        self._reserve = reserve
        self._options = options
        self._clock = clock
        self._one_at_a_time = threading.Lock()

    def victims(self, below: float) -> list[int]:
        """Return the segments worth copying from, as `Log.victims` does."""
        manifest, checkpoints = self._catalog.manifest, self._collector.checkpoints
        if not checkpoints:
            return []
        excluded = {seq for entry in manifest.segments for seq in entry.covers}  # not again while a copy is listed
        found = []
        for entry in manifest.segments[: manifest.place(checkpoints[-1].segment)]:
            needed = self._needed[entry.seq]
            if entry.length is None or entry.seq in excluded:
                continue
            if 0 < needed < below * entry.length:
                found.append(entry.seq)
        return found

    def compact(
        self,
        keep: Callable[[Record], Iterable[NewRecord]],
        progress: Progress | None,
        segments: Sequence[int] | None,
    ) -> Compaction:
        """Copy what the journal keeps, as `Log.compact` promises."""
        with self._one_at_a_time:
            chosen = set(self.fitting(self.victims(self._options.compact_below)) if segments is None else segments)
            # `collect` runs in other threads and must not delete a segment while it is copied. So they are busy before
            # they are looked up, and under the lock under which it decides: else it deletes one that was just found.
            with self._catalog.lock:
                self._collector.busy = frozenset(chosen)
                segments_now = self._catalog.manifest.segments
            try:
                victims = [entry for entry in segments_now if entry.seq in chosen and entry.length]
                return self._copy(victims, keep, progress) if victims else Compaction()
            finally:
                self._collector.busy = frozenset()

    def fitting(self, victims: Sequence[int]) -> list[int]:
        """Return the first victims whose needed bytes fit one segment, at least one."""
        chosen: list[int] = []
        total = 0
        for seq in victims:
            total += self._needed[seq]
            if chosen and total > self._options.segment_bytes:
                break
            chosen.append(seq)
        return chosen

    def _copy(
        self, victims: list[SegmentEntry], keep: Callable[[Record], Iterable[NewRecord]], progress: Progress | None
    ) -> Compaction:
        directory, catalog = self._directory, self._catalog
        seq, epoch = catalog.allocate(), catalog.manifest.epoch
        name = segment_name(seq, epoch)
        descriptor = directory.create_temporary(name + TEMPORARY)
        try:
            copy = _Copy(seq, epoch, catalog.seed(seq))
            copy.buffers.append(pack_segment_header(catalog.uuid, seq, epoch, self._clock.wall()))
            written = self._copy_records(descriptor, copy, victims, keep, progress)
            moved = Compaction(tuple(entry.seq for entry in victims), None, _bytes_of(victims))
            if not copy.moved:
                directory.abandon(descriptor, name + TEMPORARY)
                return moved
            directory.settle(descriptor, name + TEMPORARY, name)
        except BaseException:
            directory.abandon(descriptor, name + TEMPORARY)
            raise
        directory.files.close(descriptor)
        entry = SegmentEntry(seq, epoch, kind="compacted", covers=moved.victims, length=written)
        with catalog.lock:
            # In the place of its first victim: replay meets the copies where it met the originals.
            catalog.publish(catalog.manifest.having(entry, before=victims[0].seq))
            # Under the same lock: a copy that is listed and not yet counted looks unneeded, and `collect` would delete
            # it. That asks once more under this lock.
            self._needed.add(seq, copy.needed)
        return replace(moved, segment=seq, written_bytes=written, moved=copy.moved)

    def _copy_records(
        self,
        descriptor: int,
        copy: _Copy,
        victims: list[SegmentEntry],
        keep: Callable[[Record], Iterable[NewRecord]],
        progress: Progress | None,
    ) -> int:
        """Write what is kept in slices, and return the file's length."""
        files = self._directory.files
        written, before, total = 0, 0, _bytes_of(victims)
        for victim in victims:
            length = victim.length or 0
            with self._directory.opened(victim.name) as source:
                for record in self._catalog.manifest.scan(files, source, victim, start=SEGMENT_BYTES, limit=length):
                    for new in keep(record):
                        copy.add(record.position, new)
                    if copy.size - written >= _SLICE:
                        written = self._write_slice(descriptor, copy, written)
                        if progress is not None:
                            progress(before + record.position.offset, total)
            before += length
        copy.pack(RecordType.SEAL, b"", NewRecord(RecordType.SEAL, ()))
        written = self._write_slice(descriptor, copy, written)
        if progress is not None:
            progress(total, total)
        return written

    def _write_slice(self, descriptor: int, copy: _Copy, offset: int) -> int:
        """Write the gathered records, and return the file's length."""
        self._writer.check()
        directory, size = self._directory, copy.size - offset
        # A compaction must not use the room that settlements need: it stops and leaves the reserve alone.
        if directory.files.free_bytes(directory.path) < size + self._options.reserve_bytes:
            raise self._reserve.full(size)
        end = write_all(directory.files, descriptor, copy.buffers, offset)
        copy.buffers.clear()
        # Appends share the disk and the interpreter with this thread.
        directory.files.pause(size / self._options.copy_bytes_per_s)
        return end


class _Copy:
    """Records gathered for the new segment."""

    def __init__(self, seq: int, epoch: int, seed: int) -> None:
        self._seq = seq
        self._epoch = epoch
        self._seed = seed
        self._number = 0
        self.size = SEGMENT_BYTES
        self.needed = 0
        self.buffers: list[bytes] = []
        self.moved: list[Moved] = []

    def add(self, old: Position, new: NewRecord) -> None:
        """Gather a record of the journal."""
        body = b"".join(new.parts)
        if len(body) > MAX_BODY:
            raise RecordTooLarge(size=len(body), limit=MAX_BODY)
        self.moved.append(Moved(old, new.key, Position(self._seq, self.size, HEADER_BYTES + len(body))))
        self.needed += new.needed
        self.pack(new.type, body, new)

    def pack(self, type: int, body: bytes, new: NewRecord) -> None:
        """Add a record's bytes."""
        fields = (new.flags, new.count, len(body), new.base, new.aux, self._number, self._epoch, crc32(body))
        self.buffers += [pack_header(Header(type, *fields), self._seed), body]
        self.size += HEADER_BYTES + len(body)
        self._number += 1


def _bytes_of(entries: list[SegmentEntry]) -> int:
    return sum(entry.length or 0 for entry in entries)
