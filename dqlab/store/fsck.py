"""Checks the files of queues against each other: every byte is read, nothing is written.

A finding about damaged bytes says what they cost. That depends on who needs them: a frame that is settled, or a
record before the newest checkpoint, is missed by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dqlab.clock import Clock, SystemClock
from dqlab.errors import DqlabError
from dqlab.log import RecordType, SegmentMissing
from dqlab.log.checkpoints import Checkpoint
from dqlab.log.directory import segment_name
from dqlab.log.holder import look_at_lock
from dqlab.log.readonly import ReadOnlyLog, SegmentCheck
from dqlab.log.records import Position
from dqlab.log.recovery import Corruption
from dqlab.log.segment import SEGMENT_BYTES, Gap
from dqlab.rules.ids import first_id
from dqlab.rules.ranges import Ranges
from dqlab.store.contents import run_of_damaged, unreadable_frames, unreadable_results
from dqlab.store.findings import Finding, FsckReport, Level, QueueCheck, ShardCheck, loss_of
from dqlab.store.inspection import counts_of, steadily
from dqlab.store.needed import needed_by
from dqlab.store.records import unpack_plain
from dqlab.store.stored import NotUnderstood, ReadShard, StillClock, StoredPlace, places_in, read_shard
from dqlab.store.trail import Trail

__all__ = ["check_log", "check_shard", "fsck"]


def fsck(directory: Path, clock: Clock | None = None) -> FsckReport:
    """Check a store, a queue or a shard.

    Parameters
    ----------
    directory : Path
        Of any of these.

    Raises
    ------
    NotAQueue
        It is none of these.
    """
    still = StillClock(clock or SystemClock())
    return FsckReport(str(directory), tuple(_queue(place, still) for place in places_in(directory)))


def check_shard(place: StoredPlace, index: int, path: Path, clock: Clock) -> ShardCheck:
    """Check one shard."""
    try:
        return steadily(lambda log: check_log(log, place, index, clock), path)
    except DqlabError as error:
        return ShardCheck(index, str(path), (Finding(Level.UNREADABLE, str(error).removesuffix(".")),))


def check_log(log: ReadOnlyLog, place: StoredPlace, index: int, clock: Clock) -> ShardCheck:
    """Check the log of one shard.

    Raises
    ------
    LogError
        It cannot be read.
    """
    return _Check(log, place, index, clock).run()


def _queue(place: StoredPlace, clock: Clock) -> QueueCheck:
    findings = [] if place.problem is None else [Finding(Level.UNREADABLE, str(place.problem).removesuffix("."))]
    there = [(index, path) for index, path in place.shards if path.is_dir()]
    for _, path in place.shards:
        if there and not path.is_dir():
            text = f"shard {path.name} has no directory: all that it held is missing"
            findings.append(Finding(Level.UNREADABLE, text, file=path.name))
    shards = tuple(check_shard(place, index, path, clock) for index, path in there)
    return QueueCheck(place.name, str(place.path), tuple(findings), shards)


class _Check:
    """One shard's check."""

    def __init__(self, log: ReadOnlyLog, place: StoredPlace, index: int, clock: Clock) -> None:
        self._log = log
        self._place = place
        self._index = index
        self._clock = clock
        holder = look_at_lock(log.directory)
        self._held = holder is not None and holder.held is True
        self._newest = log.checkpoints[-1] if log.checkpoints else None
        self._segments = {e.seq: log.check(e) for e in log.manifest.segments if e.name not in log.missing}
        self.findings: list[Finding] = []
        self.lost = Ranges()
        self.lost_results = Ranges()

    def run(self) -> ShardCheck:
        """Check everything."""
        log = self._log
        self._files()
        for check in self._segments.values():
            self._segment(check)
        start = first_id(self._index, 0)
        if self._newest is not None:
            start = unpack_plain(log.body(self._newest))["next_id"]
        order = {entry.seq: at for at, entry in enumerate(log.manifest.segments)}
        trail = Trail(start, order)
        read = self._read(self._newest, trail)
        self._contents(read)
        self._sums(read)
        self._replayed(read, trail)
        self._passed_over(read)
        self._older(read)
        self._tables(read)
        return ShardCheck(
            self._index,
            str(log.directory),
            tuple(self.findings),
            tuple(self.lost),
            tuple(self.lost_results),
            counts_of(read.ledger),
            segments=len(self._segments),
            records=sum(check.records for check in self._segments.values()),
        )

    def _read(self, checkpoint: Checkpoint | None, trail: Trail | None = None) -> ReadShard:
        watch = None if trail is None else trail.watch
        wanted = self._log, self._place, self._index, self._clock
        try:
            return read_shard(*wanted, checkpoint=checkpoint, watch=watch)
        except NotUnderstood as error:
            read = read_shard(*wanted, checkpoint=checkpoint, watch=watch, counted=False)
            self._add(Level.UNREADABLE, f"the log's own count of needed bytes contradicts its records ({error.reason})")
            return read

    def _add(self, level: Level, text: str, file: str = "", lost: Iterable[tuple[int, int]] = ()) -> None:
        self.findings.append(Finding(level, text, file, lost=tuple(lost)))

    # --- files ------------------------------------------------------------------------------

    def _files(self) -> None:
        log = self._log
        for name in log.missing:
            error = SegmentMissing(directory=str(log.directory), file=name)
            self._add(Level.UNREADABLE, str(error).partition(". ")[0], name)
        for name in log.extra:
            self._add(Level.CLEAN, "a file of an unfinished step, which nobody reads; the next open removes it", name)
        for name in log.damaged:
            if log.checkpoints:
                self._add(Level.DAMAGED, "the checkpoint cannot be read; another one is in its place", name)
            else:
                text = (
                    "the checkpoint cannot be read, and there is no other: runs, functions and settled messages that "
                    "only it knew are gone, and what is left may be delivered again"
                )
                self._add(Level.LOST, text, name)

    def _segment(self, check: SegmentCheck) -> None:
        name = check.entry.name
        if not check.header:
            text = "the segment's header is damaged; its records carry all that is needed"
            self.findings.append(Finding(Level.DAMAGED, text, name, 0, SEGMENT_BYTES))
        if check.late:
            self._add(Level.CLEAN, f"{check.late:,} bytes behind the end that counts, which nobody reads", name)
        torn = check.size - check.end if check.entry.length is None else 0
        if torn > 0:
            level, text = Level.DAMAGED, "a torn tail: what a crash cut off, and nobody was told was there"
            if self._held:
                level, text = Level.CLEAN, "what is being written at this moment"
            self.findings.append(Finding(level, text, name, check.end, torn))

    # --- what the ledger needs ----------------------------------------------------------------

    def _contents(self, read: ReadShard) -> None:
        """Read every frame and settlement that the ledger still needs."""
        for position, ids, reason in unreadable_frames(read):
            self._loss(position, ids, f"a frame cannot be read ({reason})")
            for lo, hi in ids:
                self.lost.add(lo, hi)
        for position, ids, reason in unreadable_results(read):
            count = sum(hi - lo for lo, hi in ids)
            self._loss(position, (), f"a settlement cannot be read ({reason}); {count:,} results are gone")
            for lo, hi in ids:
                self.lost_results.add(lo, hi)

    def _sums(self, read: ReadShard) -> None:
        """Compare what is acked with the results that are kept."""
        for run, book in read.ledger.books.items():
            if book.missing:
                name = run.hex() if book.record is None else book.record.name
                at = ", ".join(f"{lo} to {hi - 1}" for lo, hi in book.missing_ordinals()[:8])
                text = f"{book.missing:,} documents of run {name} are acked and have no result, at positions {at}"
                self._add(Level.LOST, text)

    def _loss(self, position: Position, lost: Iterable[tuple[int, int]], text: str) -> None:
        segment, offset, size = position
        check = self._segments.get(segment)
        name = f"segment {segment}" if check is None else check.entry.name
        self.findings.append(Finding(Level.LOST, text, name, offset, size, tuple(lost)))

    # --- what replay passes over --------------------------------------------------------------

    def _replayed(self, read: ReadShard, trail: Trail) -> None:
        """Say what the damaged records behind the checkpoint cost."""
        unknown: list[Corruption] = []
        for found in read.records.corrupt:
            if found.nbytes == SEGMENT_BYTES and found.offset == 0:
                continue  # the header; said already
            if found.type == RecordType.PUT and found.base is not None and found.count is not None:
                self._put_lost(found, trail)
            elif found.type is None:
                unknown.append(found)
            else:
                level, text = loss_of(found.type)
                self.findings.append(Finding(level, text, found.file, found.offset, found.nbytes))
        complete = self._newest is not None or not self._log.manifest.checkpoints
        skipped = self._unsettled(trail.skipped(), trail) if complete else []
        self._unknown(unknown, skipped, trail if complete else None)
        homeless = self._unsettled(trail.homeless, trail)
        if homeless:
            text = "frames are whole, and what run they belong to is not known: its opening is lost"
            self._add(Level.LOST, text, lost=homeless)

    def _unsettled(self, ids: Ranges, trail: Trail) -> list[tuple[int, int]]:
        """Count ids as lost that reached no end; return them."""
        left = [span for lo, hi in ids for span in trail.ended.gaps(lo, hi)]
        for lo, hi in left:
            self.lost.add(lo, hi)
        return left

    def _unknown(self, unknown: list[Corruption], missing: list[tuple[int, int]], trail: Trail | None) -> None:
        """Tell of bytes that may have been any records, and of the ids that no frame was met for."""
        for at, found in enumerate(unknown):
            level, text = loss_of(None)
            start = None if trail is None else trail.open_end(_seq_of(found), found.offset)
            if trail is None:
                text += "; without a checkpoint it cannot be told which ids are missing"
            elif start is not None:
                text += f"; messages with ids from {start} on may be among them"
            lost = tuple(missing) if at == 0 else ()
            self.findings.append(Finding(level, text, found.file, found.offset, found.nbytes, lost))
        if missing and not unknown:
            self._add(Level.LOST, "ids were given, and their frames are nowhere", lost=missing)

    def _put_lost(self, found: Corruption, trail: Trail) -> None:
        assert found.base is not None
        assert found.count is not None
        lo, hi = found.base, found.base + found.count
        trail.met(_seq_of(found), found.offset, lo, hi)
        entry = next(check.entry for check in self._segments.values() if check.entry.name == found.file)
        run = run_of_damaged(self._log.bytes_at(entry, Gap(found.offset, found.offset + found.nbytes, None)))
        lost = () if run in trail.closed else tuple(self._unsettled(Ranges([(lo, hi)]), trail))
        level = Level.LOST if lost else Level.DAMAGED
        text = "a frame is damaged" if lost else "a frame is damaged, and none of its messages is needed any more"
        self.findings.append(Finding(level, text, found.file, found.offset, found.nbytes, lost))

    def _passed_over(self, read: ReadShard) -> None:
        """Mention damage that nobody misses: it lies before the newest checkpoint, and nothing there is needed."""
        told = [(finding.file, finding.offset, finding.offset + finding.nbytes) for finding in self.findings]
        for check in self._segments.values():
            for gap in check.gaps:
                if check.entry.length is None and gap.start >= check.end:
                    continue  # the torn tail
                if not any(name == check.entry.name and a < gap.stop and gap.start < b for name, a, b in told):
                    text = "damaged bytes that nobody needs any more"
                    nbytes = gap.stop - gap.start
                    self.findings.append(Finding(Level.DAMAGED, text, check.entry.name, gap.start, nbytes))

    # --- one against the other ----------------------------------------------------------------

    def _older(self, read: ReadShard) -> None:
        """Replay from the older checkpoint, which must end in the same counts."""
        for checkpoint in self._log.checkpoints[:-1]:
            older = self._read(checkpoint)
            if not older.records.corrupt and counts_of(older.ledger) != counts_of(read.ledger):
                text = f"a replay from it ends in other counts than one from {self._log.checkpoints[-1].name}"
                self._add(Level.DAMAGED, text, checkpoint.name)

    def _tables(self, read: ReadShard) -> None:
        """Compare what the log counts as needed with what the ledger needs."""
        listed, counted = read.needed.table(), needed_by(read.ledger)
        for segment in sorted(listed.keys() | counted.keys()):
            there, wanted = listed.get(segment, 0), counted.get(segment, 0)
            if there != wanted:
                text = f"the log counts {there:,} bytes as needed, and the ledger needs {wanted:,}"
                self._add(Level.DAMAGED, text, self._name(segment))

    def _name(self, segment: int) -> str:
        check = self._segments.get(segment)
        return segment_name(segment, 0) if check is None else check.entry.name


def _seq_of(found: Corruption) -> int:
    return int(found.file.partition("-")[0])
