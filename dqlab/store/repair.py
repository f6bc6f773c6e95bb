"""Writes what can be saved of damaged queues into a new directory, which opens like any other.

The ledger is read as far as it can be, each frame and settlement that it still needs is copied, and a checkpoint
of the ledger stands behind them. The damaged directory is only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.errors import DqlabError
from dqlab.frame import Frame
from dqlab.log import (
    Files,
    Log,
    LogError,
    LogOptions,
    ManifestCorrupt,
    NewRecord,
    OwnerStillAlive,
    Position,
    Record,
    RecordType,
)
from dqlab.log.directory import epoch_name
from dqlab.log.holder import look_at_lock
from dqlab.log.readonly import ReadOnlyLog
from dqlab.rules.batches import Batch, share
from dqlab.rules.book import Book
from dqlab.rules.ledger import Ledger
from dqlab.rules.ranges import Ranges
from dqlab.rules.results import ResultIndex, Stretch
from dqlab.rules.states import State, stretches
from dqlab.store.contents import frame_at, settlement_at, unreadable_frames
from dqlab.store.directories import keep_queue, shard_directory
from dqlab.store.findings import FsckReport, Level, ShardCheck, describe_ids
from dqlab.store.fsck import check_log
from dqlab.store.places import place_of
from dqlab.store.records import Move, pack_plain
from dqlab.store.salvage import salvaged_manifest
from dqlab.store.snapshot import freeze
from dqlab.store.stored import ReadShard, StillClock, StoredPlace, places_in, read_shard

__all__ = ["Repaired", "TargetInUse", "UnknownQueue", "repair", "savable", "status_after"]

_PENDING_BYTES = 8 << 20


class TargetInUse(LogError):
    """The directory that was to be made is there already."""

    text = "{directory} is not empty. Nothing was touched. Give the name of a new directory."


class UnknownQueue(LogError):
    """What kind of queue it was cannot be read."""

    text = (
        "the queue in {directory} cannot be recreated: {reason}. Nothing was touched. Put queue.json back: "
        "format, name, shards and options; those of a similar queue will do."
    )


@dataclass(frozen=True)
class Repaired:
    """What was saved of one shard.

    Attributes
    ----------
    queue, directory : str
        The queue's name, and the shard's new directory.
    messages, results : int
        That are not settled, and that are kept.
    lost, lost_results : tuple of (int, int)
        Ids, half-open ranges, of messages whose frames cannot be read, and of acked ones whose results cannot.
    complete : bool
        Nothing is lost, as far as that can be told. Without its manifest, a segment that was cut short where a record
        ends shows nothing of it.
    """

    queue: str
    index: int
    directory: str
    messages: int
    results: int
    lost: tuple[tuple[int, int], ...]
    lost_results: tuple[tuple[int, int], ...]
    complete: bool

    def __str__(self) -> str:
        saved = f"{self.directory}: {self.messages:,} unsettled messages and {self.results:,} results saved"
        lost = f"; lost: {describe_ids(self.lost)}" if self.lost else ""
        return saved + lost + ("" if self.complete or lost else "; not everything could be")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return asdict(self)


def repair(directory: Path, target: Path, clock: Clock | None = None) -> list[Repaired]:
    """Write what can be saved below `directory` to `target`, laid out in the same way.

    Parameters
    ----------
    directory : Path
        A store, a queue's directory or a shard's.
    target : Path
        A new directory, or an empty one.

    Raises
    ------
    TargetInUse, UnknownQueue, OwnerStillAlive, Unsalvageable
        It cannot be done; nothing was written.
    LogError
        A log cannot be read at all, or the new one not be written.
    """
    if target.exists() and any(target.iterdir()):
        raise TargetInUse(directory=str(target))
    still, places = StillClock(clock or SystemClock()), places_in(directory)
    for place in places:
        _check(place, directory)
    done = []
    for place in places:
        for index, path in place.shards:
            if path.is_dir():
                read = savable(place, index, path, still)
                check = check_log(read.log, place, index, still)
                done.append(_write(read, check, place.name, _new_shard(directory, target, place, path), still))
    return done


def status_after(found: FsckReport, saved: Sequence[Repaired]) -> int:
    """Return the exit status of a check that was followed by a repair: what is saved can be opened."""
    if found.level < Level.UNREADABLE:
        return int(found.level)
    missing = any(queue.findings for queue in found.queues)  # whole shards
    return int(Level.DAMAGED if all(shard.complete for shard in saved) and not missing else Level.LOST)


def savable(place: StoredPlace, index: int, path: Path, clock: Clock) -> ReadShard:
    """Return a shard as far as it can be read, with or without its manifest.

    Raises
    ------
    Unsalvageable, NotUnderstood, LogTooNew, LogError
        It cannot be read at all.
    """
    try:
        log = ReadOnlyLog(path)
    except ManifestCorrupt:
        log = ReadOnlyLog(path, salvaged_manifest(path))
    newest = log.checkpoints[-1] if log.checkpoints else None
    return read_shard(log, place, index, clock, checkpoint=newest, watch=_housed, counted=False)


def _housed(ledger: Ledger, records: Iterator[Record]) -> Iterator[Record]:
    """Yield records; a run whose opening is lost gets a lane at its first frame, without name and with the defaults."""
    for record in records:
        if record.type == RecordType.PUT and (run := Frame.decode(record.body).run) not in ledger.shard.lanes:
            ledger.open({"run": run})
        yield record


def _check(place: StoredPlace, directory: Path) -> None:
    if place.queue is None and all(path != directory for _, path in place.shards):
        raise UnknownQueue(directory=str(place.path), reason=str(place.problem or "queue.json is missing"))
    for _, path in place.shards:
        holder = look_at_lock(path)
        if holder is not None and holder.held:
            raise OwnerStillAlive(directory=str(path), pid=holder.pid, host=holder.host)


def _new_shard(directory: Path, target: Path, place: StoredPlace, path: Path) -> Path:
    """Return where a shard goes; make its queue's directory where that is part of the layout."""
    if path == directory:
        return target
    queue = target if place.path == directory else target / place.path.name
    assert place.queue is not None, "checked before"
    keep_queue(queue, place.queue)
    return shard_directory(queue, int(path.name))


def _write(read: ReadShard, check: ShardCheck, queue: str, path: Path, clock: Clock) -> Repaired:
    """Write a shard's directory."""
    files = Files()
    files.make_directory(path)
    # The new log goes on behind the old one's epochs: receipts of earlier deliveries must stay unlike new ones.
    files.close(files.create(path / epoch_name(max(1, read.log.manifest.epoch))))
    with Log.open(path, options=LogOptions(sync="os", reserve_bytes=0), clock=clock, owner="dqlab fsck") as log:
        copy = _Copy(read, log)
        copy.frames()
        copy.results()
        for _ in range(2):  # as everywhere, one of them may be lost
            log.checkpoint(log.mark(), freeze(read.ledger)())
    lanes, books = read.ledger.shard.lanes.values(), read.ledger.books.values()
    messages = sum(lane.alive + lane.counts[State.DEAD] for lane in lanes)
    results = sum(len(book.results) for book in books)
    saved = Ranges((batch.first, batch.first + len(batch.states)) for lane in lanes for batch in lane.batches)
    lost = tuple(span for lo, hi in check.lost for span in saved.gaps(lo, hi))
    complete = not lost and Level.LOST not in [finding.level for finding in check.findings]
    return Repaired(queue, check.index, str(path), messages, results, lost, check.lost_results, complete)


class _Copy:
    """The copy of one shard's frames and settlements; the ledger goes over to their new places."""

    def __init__(self, read: ReadShard, log: Log) -> None:
        self._read = read
        self._log = log

    def frames(self) -> None:
        """Copy what is not settled; what cannot be read is lost from now on."""
        shard = self._read.ledger.shard
        for _, ids, _ in list(unreadable_frames(self._read)):
            for run in list(shard.lanes):
                shard.lose(run, ids)  # the others have none of these ids
        for run, lane in shard.lanes.items():
            lane.batches.relocate({batch.first: self._frame(run, batch) for batch in lane.batches})

    def _frame(self, run: bytes, batch: Batch) -> int:
        """Copy one frame; return its new place."""
        record, _ = frame_at(self._read, run, batch)
        count, spans = len(batch.states), list(stretches(batch.states, 0, len(batch.states)))
        needed = [(a, b) for a, b, state in spans if not State(state).final]
        whole = sum(b - a for a, b in needed) == count
        body = record.body if whole else Frame.decode(record.body).hollow(needed)
        new = NewRecord(RecordType.PUT, [body], count=record.count, base=record.base, aux=record.aux)
        place = self._append(new)
        for a, b in needed:
            self._log.need(place.segment, share(place.size, count, a, b))
        if not whole:  # as in a compacted segment: what is hollow must not run, whatever else is lost
            moves = [
                Move(run, batch.first + a, batch.first + b, State(state), suspect=False, delay=0, counts=None)
                for a, b, state in spans
                if State(state).final
            ]
            self._append(NewRecord(RecordType.STATE, [pack_plain(moves)], aux=record.aux))
        return place_of(place)

    def results(self) -> None:
        """Copy the settlements of results that are kept, and forget the results that cannot be read."""
        for run, book in self._read.ledger.books.items():
            by_place: dict[int, list[Stretch]] = {}
            for stretch in book.results:
                by_place.setdefault(stretch.place, []).append(stretch)
            gone = [stretch for place, found in by_place.items() for stretch in self._settlement(run, place, found)]
            if gone:
                _forget(book, gone)

    def _settlement(self, run: bytes, place: int, found: Sequence[Stretch]) -> Sequence[Stretch]:
        """Copy one settlement; return the stretches that cannot be."""
        try:
            record, _ = settlement_at(self._read, run, place, list(found))
        except DqlabError:
            return found
        new = self._append(NewRecord(RecordType.SETTLE, [record.body], count=record.count, aux=record.aux))
        self._log.need(new.segment, new.size)
        for stretch in found:
            stretch.place = place_of(new)
        return ()

    def _append(self, new: NewRecord) -> Position:
        position = self._log.append(new.type, new.parts, count=new.count, base=new.base, aux=new.aux)
        if self._log.pending_bytes > _PENDING_BYTES:
            self._log.commit()
        return position


def _forget(book: Book, gone: Sequence[Stretch]) -> None:
    """Leave results out of a book."""
    lost = {id(stretch) for stretch in gone}
    kept = [stretch for stretch in book.results if id(stretch) not in lost]
    forgotten = list(book.results.forgotten)
    book.results = ResultIndex()
    for stretch in kept:
        book.results.add(stretch)
    for lo, hi in forgotten:
        book.results.forget(lo, hi)
