"""Writes what can be saved of damaged queues into a new directory, which opens like any other.

The ledger is read as far as possible, each frame and settlement that it still needs is copied, and checkpoints of the
ledger follow them. The damaged directory is only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.errors import DqlabError
from dqlab.log import Files, Log, LogError, LogOptions, NewRecord, OwnerStillAlive, Position
from dqlab.log.directory import Directory, epoch_name
from dqlab.log.errors import typed
from dqlab.log.ownership import look_at_lock
from dqlab.rules.batches import Batch, share
from dqlab.rules.book import Book
from dqlab.rules.ranges import Ranges
from dqlab.rules.result_index import ResultIndex, Stretch
from dqlab.rules.states import State, stretches
from dqlab.store.bodies import place_of
from dqlab.store.checkpoint import freeze
from dqlab.store.compaction import still_needed
from dqlab.store.directories import keep_queue, shard_directory
from dqlab.store.fsck import FsckReport, Level, ShardCheck, check_log, describe_ids
from dqlab.store.offline import OfflineShard, StillClock, StoredPlace, may_be_there, places_in

__all__ = ["Repaired", "TargetInUse", "UnknownQueue", "repair", "status_after"]

_PENDING_BYTES = 8 << 20


class TargetInUse(LogError):
    """The target exists and is not an empty directory."""

    text = "{directory} is not an empty directory. Nothing was touched. Give the name of a new directory."


class UnknownQueue(LogError):
    """The description of the queue cannot be read."""

    text = (
        "the queue in {directory} cannot be recreated: {reason}. Nothing was touched. Put queue.json back: "
        "format, name, shards and options; copy them from a similar queue."
    )


@dataclass(frozen=True)
class Repaired:
    """The saved part of one shard."""

    queue: str
    index: int
    directory: str
    """The shard's new directory."""
    messages: int
    """Unsettled messages."""
    results: int
    lost: tuple[tuple[int, int], ...]
    """Ids of messages whose frames cannot be read, half-open ranges."""
    lost_results: tuple[tuple[int, int], ...]
    """Ids of acked messages whose results cannot be read, half-open ranges."""
    complete: bool
    """Nothing is known to be lost. Without a manifest, a segment that was cut off between two records looks whole."""

    def __str__(self) -> str:
        saved = f"{self.directory}: {self.messages:,} unsettled messages and {self.results:,} results saved"
        lost = f"; lost: {describe_ids(self.lost)}" if self.lost else ""
        return saved + lost + ("" if self.complete or lost else "; not everything could be")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return asdict(self)


def repair(directory: Path, target: Path, clock: Clock | None = None) -> list[Repaired]:
    """Write what can be saved below `directory` to `target`, with the same layout."""
    with typed(Directory(target, Files())):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise TargetInUse(directory=str(target))
    still, places = StillClock(clock or SystemClock()), places_in(directory)
    for place in places:
        # All of them before anything is written: an error must leave no half of a repair.
        _check(place, directory)
    done = []
    for place in places:
        for index, path in place.shards:
            if may_be_there(path):
                read = OfflineShard.rescue(place, index, path, still)
                check = check_log(read.log, place, index, still)
                done.append(_write(read, check, place.name, _new_shard(directory, target, place, path), still))
    return done


def status_after(found: FsckReport, saved: Sequence[Repaired]) -> int:
    """Return the exit status of a check followed by a repair."""
    if found.level < Level.UNREADABLE:
        return int(found.level)
    # Saved shards can be opened, so only what is gone counts from here on.
    missing = any(queue.findings for queue in found.queues)  # whole shards
    return int(Level.DAMAGED if all(shard.complete for shard in saved) and not missing else Level.LOST)


def _check(place: StoredPlace, directory: Path) -> None:
    if place.queue is None and all(path != directory for _, path in place.shards):
        raise UnknownQueue(directory=str(place.path), reason=str(place.problem or "queue.json is missing"))
    for _, path in place.shards:
        holder = look_at_lock(path)
        if holder is not None and holder.held:
            raise OwnerStillAlive(directory=str(path), pid=holder.pid, host=holder.host)


def _new_shard(directory: Path, target: Path, place: StoredPlace, path: Path) -> Path:
    """Return a shard's new directory, and create its queue's directory if that is part of the layout."""
    if path == directory:
        return target
    queue = target if place.path == directory else target / place.path.name
    assert place.queue is not None, "checked before"
    keep_queue(queue, place.queue)
    return shard_directory(queue, int(path.name))


def _write(read: OfflineShard, check: ShardCheck, queue: str, path: Path, clock: Clock) -> Repaired:
    """Write a shard's directory."""
    files = Files()
    with typed(Directory(path, files)):
        files.make_directory(path)
        # The new log continues the old one's epochs: receipts of earlier deliveries must never match new ones.
        files.close(files.create(path / epoch_name(max(1, read.log.manifest.epoch))))
    # Synced once, when it closes: a repair that is cut off is started again in a new directory.
    with Log.open(path, options=LogOptions(sync="os", reserve_bytes=0), clock=clock, owner="dqlab fsck") as log:
        copy = _Copy(read, log)
        copy.frames()
        copy.results()
        for _ in range(2):  # as everywhere, one of them may be damaged later
            # From the ledger, not from the copied records: the log has no records of runs, functions and settled
            # messages.
            log.checkpoint(log.mark(), freeze(read.ledger)())
    lanes, books = read.ledger.shard.lanes.values(), read.ledger.books.values()
    messages = sum(lane.alive + lane.counts[State.DEAD] for lane in lanes)
    results = sum(len(book.results) for book in books)
    saved = Ranges((batch.first, batch.first + len(batch.states)) for lane in lanes for batch in lane.batches)
    lost = tuple(span for lo, hi in check.lost for span in saved.gaps(lo, hi))
    complete = not lost and Level.LOST not in [finding.level for finding in check.findings]
    return Repaired(queue, check.index, str(path), messages, results, lost, check.lost_results, complete)


class _Copy:
    """Copies one shard's frames and settlements, and moves the ledger to their new places."""

    def __init__(self, read: OfflineShard, log: Log) -> None:
        self._read = read
        self._log = log

    def frames(self) -> None:
        """Copy the unsettled messages, and count those that cannot be read as lost."""
        shard = self._read.ledger.shard
        for _, ids, _ in list(self._read.unreadable_frames()):
            for run in list(shard.lanes):
                shard.lose(run, ids)  # other runs have none of these ids
        for run, lane in shard.lanes.items():
            lane.batches.relocate({batch.first: self._frame(run, batch) for batch in lane.batches})

    def _frame(self, run: bytes, batch: Batch) -> int:
        """Copy one frame, and return its new place."""
        record, _ = self._read.frame(run, batch)
        frame, *moves = still_needed(record, run, batch.first, bytes(batch.states))
        position = self._append(frame)
        count = len(batch.states)
        for a, b, state in stretches(batch.states, 0, count):
            if not State(state).final:
                self._log.need(position.segment, share(position.size, count, a, b))
        for move in moves:
            self._append(move)
        return place_of(position)

    def results(self) -> None:
        """Copy the settlements of kept results, and forget the results that cannot be read."""
        gone: dict[bytes, list[Stretch]] = {}
        for run, place, found in self._read.settlements():
            try:
                record = self._read.settlement(run, place, found)
            except DqlabError:
                gone.setdefault(run, []).extend(found)
                continue
            new = self._append(NewRecord(record.type, [record.body], record.count, aux=record.aux))
            self._log.need(new.segment, new.size)
            for stretch in found:
                stretch.place = place_of(new)
        for run, lost in gone.items():
            _forget(self._read.ledger.books[run], lost)

    def _append(self, new: NewRecord) -> Position:
        position = self._log.append(new.type, new.parts, count=new.count, base=new.base, aux=new.aux)
        if self._log.pending_bytes > _PENDING_BYTES:
            self._log.commit()
        return position


def _forget(book: Book, gone: Sequence[Stretch]) -> None:
    """Remove results from a book."""
    # By identity: two stretches with equal numbers may lie in two settlements.
    lost = {id(stretch) for stretch in gone}
    kept = [stretch for stretch in book.results if id(stretch) not in lost]
    forgotten = list(book.results.forgotten)
    book.results = ResultIndex()
    for stretch in kept:
        book.results.add(stretch)
    for lo, hi in forgotten:
        book.results.forget(lo, hi)
