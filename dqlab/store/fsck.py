"""Checks the files of queues against each other, and judges what it finds: every byte is read, nothing is written.

A finding about damaged bytes names their cost, which depends on what still needs them: a settled frame, or a record
before the newest checkpoint, costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.errors import DqlabError
from dqlab.frame import Frame, Settlement
from dqlab.log import Corruption, Position, Record, RecordType, SegmentMissing
from dqlab.log.checkpoints import Checkpoint
from dqlab.log.directory import segment_name
from dqlab.log.ownership import look_at_lock
from dqlab.log.readonly import ReadOnlyLog, SegmentCheck
from dqlab.log.records import HEADER_BYTES
from dqlab.log.segment import SEGMENT_BYTES
from dqlab.numbers import many
from dqlab.rules.ids import first_id, next_sequence
from dqlab.rules.journal import Op
from dqlab.rules.ledger import Ledger
from dqlab.rules.ranges import Ranges
from dqlab.store.bodies import Move, open_settle, unpack_plain
from dqlab.store.journal import needed_by
from dqlab.store.offline import NotUnderstood, OfflineShard, StillClock, StoredPlace, may_be_there, places_in, steadily

__all__ = [
    "Finding",
    "FsckReport",
    "Level",
    "QueueCheck",
    "ShardCheck",
    "check_log",
    "check_shard",
    "describe_ids",
    "fsck",
    "loss_of",
]

SCHEMA = 1


class Level(IntEnum):
    """How bad a finding is, as exit statuses."""

    CLEAN = 0
    """Nothing to do."""
    DAMAGED = 1
    """Something has changed since it was written, and nothing is lost."""
    LOST = 2
    """Messages, results or other facts are gone."""
    UNREADABLE = 3
    """It cannot be opened as it is."""


_NEXT = {
    Level.CLEAN: "Nothing to do.",
    Level.DAMAGED: "Opening the queue is safe and repairs it.",
    Level.LOST: (
        "Make a copy of the directory first. Then open the queue and put the lost messages again, "
        "or take what is left with `dqlab fsck DIR --repair NEWDIR`."
    ),
    Level.UNREADABLE: "Put the file back from a copy, or save the rest with `dqlab fsck DIR --repair NEWDIR`.",
}

_LOSSES = {
    RecordType.SETTLE: "a settlement is damaged: its results are gone, and its messages are delivered again",
    RecordType.STATE: "a change of states is damaged: some messages are in the state before it",
    RecordType.RUN: "an order is damaged: a run may be unknown, or go on as if the order had not been given",
    RecordType.FUNCTION: "a function is damaged: runs that need it fail until they are retried with it",
    RecordType.LEASE: "an early ack is damaged: its messages may be delivered a second time",
}


def loss_of(type: int | None) -> tuple[Level, str]:
    """Return how bad damage to a record behind the checkpoint is, and what it means, except for PUT."""
    if type is None:
        return Level.LOST, "damaged bytes; what records they held is not known"
    if type in _LOSSES:
        return Level.LOST, _LOSSES[RecordType(type)]
    return Level.DAMAGED, "a record of the log's own is damaged, and it holds no message"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    level: Level
    text: str
    """What it is and what it means, a sentence without its period."""
    file: str = ""
    """Name in the shard's directory, "" when the finding is about no single file."""
    offset: int = 0
    """With `nbytes`, which bytes of it."""
    nbytes: int = 0
    lost: tuple[tuple[int, int], ...] = ()
    """Ids of messages that are lost, half-open ranges."""
    then: str = ""
    """What to do next; by default the advice for the level."""

    @property
    def advice(self) -> str:
        """What to do next."""
        return self.then or _NEXT[self.level]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return asdict(self) | {"level": int(self.level), "then": self.advice}

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        if self.nbytes:
            where = f"{self.file}, bytes {self.offset:,} to {self.offset + self.nbytes:,}: "
        ids = f"; lost: {describe_ids(self.lost)}" if self.lost else ""
        return f"{where}{self.text}{ids}."


@dataclass(frozen=True)
class ShardCheck:
    """The findings about one shard."""

    index: int
    directory: str
    findings: tuple[Finding, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    """Ids of lost messages, half-open ranges."""
    lost_results: tuple[tuple[int, int], ...] = ()
    """Ids of acked messages whose results are lost, half-open ranges."""
    counts: dict[str, dict[str, int]] | None = None
    """Messages of each run by state, without the lost ones."""
    segments: int = 0
    records: int = 0

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        return max((finding.level for finding in self.findings), default=Level.CLEAN)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        findings = [finding.to_dict() for finding in self.findings]
        return asdict(self) | {"status": int(self.level), "findings": findings}


@dataclass(frozen=True)
class QueueCheck:
    """The findings about one queue."""

    name: str
    directory: str
    findings: tuple[Finding, ...]
    """Those about no single shard."""
    shards: tuple[ShardCheck, ...]

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        worst = max((finding.level for finding in self.findings), default=Level.CLEAN)
        return max((worst, *(shard.level for shard in self.shards)))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        findings, shards = [f.to_dict() for f in self.findings], [shard.to_dict() for shard in self.shards]
        return asdict(self) | {"status": int(self.level), "findings": findings, "shards": shards}


@dataclass(frozen=True)
class FsckReport:
    """The findings about all queues."""

    directory: str
    queues: tuple[QueueCheck, ...]

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        return max((queue.level for queue in self.queues), default=Level.CLEAN)

    def shards(self) -> Iterator[ShardCheck]:
        """Yield the shards of all queues."""
        for queue in self.queues:
            yield from queue.shards

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON, with the exit status as `status`."""
        queues = [queue.to_dict() for queue in self.queues]
        return {"schema": SCHEMA, "status": int(self.level), "directory": self.directory, "queues": queues}


def describe_ids(ranges: Iterable[tuple[int, int]]) -> str:
    """Return half-open ranges of ids in words, at most eight of them."""
    spans = list(ranges)
    total = sum(hi - lo for lo, hi in spans)
    words = [str(lo) if hi == lo + 1 else f"{lo} to {hi - 1}" for lo, hi in spans[:8]]
    more = f" and {len(spans) - 8:,} more ranges" if len(spans) > 8 else ""
    return (
        f"{total:,} {'message' if total == 1 else 'messages'}, {'id' if total == 1 else 'ids'} "
        + ", ".join(words)
        + more
    )


_STRIDE = next_sequence(0)
_ENDING = frozenset({Op.CANCEL, Op.DROP})
_RUN = slice(HEADER_BYTES + 24, HEADER_BYTES + 40)
"""Where the record of a PUT names the run of its frame."""


def fsck(directory: Path, clock: Clock | None = None) -> FsckReport:
    """Check the store, the queue or the shard in a directory, or raise `NotAQueue` when none is there."""
    still = StillClock(clock or SystemClock())
    return FsckReport(str(directory), tuple(_queue(place, still) for place in places_in(directory)))


def check_shard(place: StoredPlace, index: int, path: Path, clock: Clock) -> ShardCheck:
    """Check one shard."""
    try:
        return steadily(lambda log: check_log(log, place, index, clock), path)
    except DqlabError as error:
        return ShardCheck(index, str(path), (Finding(Level.UNREADABLE, str(error).removesuffix(".")),))


def check_log(log: ReadOnlyLog, place: StoredPlace, index: int, clock: Clock) -> ShardCheck:
    """Check the log of one shard, or raise `LogError`."""
    return _Check(log, place, index, clock).run()


def _queue(place: StoredPlace, clock: Clock) -> QueueCheck:
    findings = [] if place.problem is None else [Finding(Level.UNREADABLE, str(place.problem).removesuffix("."))]
    there = [(index, path) for index, path in place.shards if may_be_there(path)]
    for _, path in place.shards:
        if there and not may_be_there(path):
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
        # One pass over the records serves the replay and the ids, since `watch` yields each record before it is
        # applied.
        ids = _Ids(start)
        read = self._read(self._newest, ids)
        self._needed_records(read)
        self._missing_results(read)
        self._replayed(read, ids)
        self._skipped_damage()
        self._older_checkpoints(read)
        self._needed_bytes(read)
        return ShardCheck(
            self._index,
            str(log.directory),
            tuple(self.findings),
            tuple(self.lost),
            tuple(self.lost_results),
            read.counts(),
            segments=len(self._segments),
            records=sum(check.records for check in self._segments.values()),
        )

    def _read(self, checkpoint: Checkpoint | None, ids: _Ids | None = None) -> OfflineShard:
        watch = None if ids is None else ids.watch
        wanted = self._log, self._place, self._index, self._clock
        try:
            return OfflineShard.read(*wanted, checkpoint=checkpoint, watch=watch)
        except NotUnderstood as error:
            read = OfflineShard.read(*wanted, checkpoint=checkpoint, watch=watch, counted=False)
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
            self._add(Level.CLEAN, "a file of an unfinished step, which is never read; the next open removes it", name)
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
            text = "the segment's header is damaged; its records hold all that is needed"
            self.findings.append(Finding(Level.DAMAGED, text, name, 0, SEGMENT_BYTES))
        if check.late:
            self._add(Level.CLEAN, f"{check.late:,} bytes behind the end that counts, which are never read", name)
        torn = check.size - check.end if check.entry.length is None else 0
        if torn > 0:
            level, text = Level.DAMAGED, "a torn tail: a crash cut it off, and it was never confirmed"
            if self._held:
                level, text = Level.CLEAN, "a record that is being written"
            self.findings.append(Finding(level, text, name, check.end, torn))

    # --- what the ledger needs ----------------------------------------------------------------

    def _needed_records(self, read: OfflineShard) -> None:
        """Read every frame and settlement that the ledger still needs."""
        for position, ids, reason in read.unreadable_frames():
            self._loss(position, ids, f"a frame cannot be read ({reason})")
            for lo, hi in ids:
                self.lost.add(lo, hi)
        for position, ids, reason in read.unreadable_results():
            count = sum(hi - lo for lo, hi in ids)
            self._loss(position, (), f"a settlement cannot be read ({reason}); {count:,} results are gone")
            for lo, hi in ids:
                self.lost_results.add(lo, hi)

    def _missing_results(self, read: OfflineShard) -> None:
        """Compare the acked messages with the results that are kept."""
        for run, book in read.ledger.books.items():
            if book.missing:
                name = run.hex() if book.record is None else book.record.name
                at = ", ".join(f"{lo} to {hi - 1}" for lo, hi in book.missing_ordinals()[:8])
                text = (
                    f"{many(book.missing, 'document')} of run {name} {'is' if book.missing == 1 else 'are'} acked and "
                    f"{'has' if book.missing == 1 else 'have'} no result, at positions {at}"
                )
                self._add(Level.LOST, text)

    def _loss(self, position: Position, lost: Iterable[tuple[int, int]], text: str) -> None:
        segment, offset, size = position
        check = self._segments.get(segment)
        name = f"segment {segment}" if check is None else check.entry.name
        self.findings.append(Finding(Level.LOST, text, name, offset, size, tuple(lost)))

    # --- what replay skips --------------------------------------------------------------------

    def _replayed(self, read: OfflineShard, ids: _Ids) -> None:
        """Report the cost of the damaged records behind the checkpoint."""
        unknown: list[Corruption] = []
        for found in read.corrupt:
            if found.nbytes == SEGMENT_BYTES and found.offset == 0:
                continue  # the segment's header, which `_segment` reports
            if found.type == RecordType.PUT and found.base is not None and found.count is not None:
                self._put_lost(found, found.base, found.base + found.count, ids)
            elif found.type is None:
                unknown.append(found)
            else:
                level, text = loss_of(found.type)
                self.findings.append(Finding(level, text, found.file, found.offset, found.nbytes))
        complete = self._newest is not None or not self._log.manifest.checkpoints
        self._unknown(unknown, ids if complete else None)
        homeless = self._unsettled(ids.homeless, ids)
        if homeless:
            text = "frames are intact, but the record that opened their run is lost"
            self._add(Level.LOST, text, lost=homeless)

    def _unsettled(self, spans: Iterable[tuple[int, int]], ids: _Ids) -> list[tuple[int, int]]:
        """Count the ids that were not settled as lost, and return them."""
        left = [span for lo, hi in spans for span in ids.ended.gaps(lo, hi)]
        for lo, hi in left:
            self.lost.add(lo, hi)
        return left

    def _unknown(self, unknown: list[Corruption], ids: _Ids | None) -> None:
        """Report bytes that may have been any records, and ids whose frames are missing."""
        skipped = [] if ids is None else ids.skipped()
        missing = [] if ids is None else self._unsettled(skipped, ids)
        for at, found in enumerate(unknown):
            level, text = loss_of(None)
            if ids is None:
                text += "; without a checkpoint it is not known which ids are missing"
            elif not skipped or len(unknown) > 1:  # else these bytes held the skipped ids, as a session has no gaps
                text += f"; messages with ids from {ids.open_end()} on may be among them"
            lost = tuple(missing) if at == 0 else ()
            self.findings.append(Finding(level, text, found.file, found.offset, found.nbytes, lost))
        if missing and not unknown:
            self._add(Level.LOST, "frames of these ids are missing", lost=missing)

    def _put_lost(self, found: Corruption, first: int, stop: int, ids: _Ids) -> None:
        ids.given.add(first, stop)
        run = self._log.read(found.file, found.offset, found.nbytes)[_RUN]  # may itself be what is damaged
        lost = () if run in ids.closed else tuple(self._unsettled([(first, stop)], ids))
        level = Level.LOST if lost else Level.DAMAGED
        text = "a frame is damaged" if lost else "a frame is damaged, and none of its messages is needed any more"
        self.findings.append(Finding(level, text, found.file, found.offset, found.nbytes, lost))

    def _skipped_damage(self) -> None:
        """Mention damage before the newest checkpoint that costs nothing."""
        reported = [(finding.file, finding.offset, finding.offset + finding.nbytes) for finding in self.findings]
        for check in self._segments.values():
            for gap in check.gaps:
                if check.entry.length is None and gap.start >= check.end:
                    continue  # the torn tail
                if not any(name == check.entry.name and a < gap.stop and gap.start < b for name, a, b in reported):
                    text = "damaged bytes that nothing needs any more"
                    nbytes = gap.stop - gap.start
                    self.findings.append(Finding(Level.DAMAGED, text, check.entry.name, gap.start, nbytes))

    # --- one against the other ----------------------------------------------------------------

    def _older_checkpoints(self, read: OfflineShard) -> None:
        """Replay from the older checkpoint, which must end with the same counts."""
        for checkpoint in self._log.checkpoints[:-1]:
            older = self._read(checkpoint)
            if not older.corrupt and older.counts() != read.counts():
                text = f"a replay from it ends in other counts than one from {self._log.checkpoints[-1].name}"
                self._add(Level.DAMAGED, text, checkpoint.name)

    def _needed_bytes(self, read: OfflineShard) -> None:
        """Compare the log's count of needed bytes with the ledger."""
        listed, counted = read.needed.table(), needed_by(read.ledger)
        for segment in sorted(listed.keys() | counted.keys()):
            there, wanted = listed.get(segment, 0), counted.get(segment, 0)
            if there != wanted:
                text = f"the log counts {there:,} bytes as needed, and the ledger needs {wanted:,}"
                self._add(Level.DAMAGED, text, self._name(segment))

    def _name(self, segment: int) -> str:
        check = self._segments.get(segment)
        return segment_name(segment, 0) if check is None else check.entry.name


class _Ids:
    """The ids that the records behind a checkpoint mention, whether or not their frames can be read."""

    def __init__(self, next_id: int) -> None:
        self._start = next_id
        # Ids of frames that were met; of frames whose run is not known; of messages that were settled or purged.
        self.given, self.homeless, self.ended = Ranges(), Ranges(), Ranges()
        self.closed: set[bytes] = set()  # runs that were cancelled or dropped

    def watch(self, ledger: Ledger, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records, which are then applied to the ledger."""
        for record in records:
            if record.type == RecordType.PUT:
                frame = Frame.decode(record.body)
                self.given.add(record.base, record.base + frame.count)
                if frame.run not in ledger.shard.lanes:
                    self.homeless.add(record.base, record.base + frame.count)
            elif record.type == RecordType.SETTLE:
                self._settled(record)
            elif record.type == RecordType.STATE:
                self._moved(Move.from_list(row) for row in unpack_plain(record.body))
            elif record.type == RecordType.RUN:
                op, run, _ = unpack_plain(record.body)
                if op in _ENDING and run is not None:
                    self.closed.add(run)
            yield record

    def skipped(self) -> list[tuple[int, int]]:
        """Return the ids that were given and whose frames were not met."""
        # A session gives ids without gaps, so an id between two that were met was given, too.
        starts = {max(session, self._start): end for session, end in self._ends().items()}
        return [span for start, end in starts.items() for span in self.given.gaps(start, end)]

    def open_end(self) -> int:
        """Return the lowest id that a frame at the end of a session may have had."""
        return self._ends().get(_session(self._start), self._start)

    def _ends(self) -> dict[int, int]:
        """Return the first id behind those met, by session."""
        return {_session(lo): hi for lo, hi in self.given}

    def _settled(self, record: Record) -> None:
        ruling, blob = open_settle(record.body)
        pieces = Settlement.decode(blob).pieces if ruling is None else [piece for piece, _ in ruling.acked]
        for piece in pieces:
            self.ended.add(piece.first, piece.first + piece.n)
        if ruling is not None:
            self._moved(ruling.moves)

    def _moved(self, moves: Iterable[Move]) -> None:
        for move in moves:
            if move.state.final:
                self.ended.add(move.lo, move.hi)


def _session(id: int) -> int:
    """Return the lowest id of the session that gave this one."""
    # Each opening goes on at the next multiple; see `next_sequence`.
    return id - id % _STRIDE
