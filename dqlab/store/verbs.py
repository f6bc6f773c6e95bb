"""What `dqlab store` does with files of queues: `check` reads every byte, `show` describes, `export` writes rows.

Nothing in the directories is written, locked or unpickled. A finding about damaged bytes names their cost, which
depends on what still needs them: a settled frame, or a record before the newest checkpoint, costs nothing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.errors import DqlabError
from dqlab.frame import NO_ID, Frame, Settlement
from dqlab.log.errors import ManifestCorrupt, missing_segment
from dqlab.log.ownership import look_at_lock
from dqlab.log.readonly import ReadOnlyLog, listed_by_name
from dqlab.log.records import COPIED, HEADER_BYTES, SEGMENT_BYTES, Record, RecordType
from dqlab.log.recovery import Corruption
from dqlab.numbers import many
from dqlab.rules.book import Book
from dqlab.rules.ledger import Ledger
from dqlab.rules.ranges import Ranges
from dqlab.rules.states import State
from dqlab.store.journal import needed_by, open_settle
from dqlab.store.offline import (
    UNREADABLE,
    OfflineShard,
    StillClock,
    StoredPlace,
    Unreadable,
    may_be_there,
    places_in,
    steadily,
)

SCHEMA = 3
_FLAGS = 5
"""Where a record's header has its flags."""

Spans = tuple[tuple[int, int], ...]
"""Half-open ranges of ids."""


# --- check: what it finds -------------------------------------------------------------------


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

    @property
    def advice(self) -> str:
        """What to do next."""
        return _NEXT[self]


_NEXT = {
    Level.CLEAN: "Nothing to do.",
    Level.DAMAGED: "Opening the queue is safe.",
    Level.LOST: (
        "Make a copy of the directory first. Then open the queue, which goes on without what is lost, and put the lost "
        "messages again."
    ),
    Level.UNREADABLE: (
        "Put the file back from a copy; or write what can be read with `dqlab store export DIR`, and put it into a new "
        "queue."
    ),
}

_LOSSES = {
    RecordType.SETTLE: "a settlement is damaged: its results are gone, and its messages are delivered again",
    RecordType.STATE: "a change of states is damaged: some messages are in the state before it",
    RecordType.RUN: "an order is damaged: a run may be unknown, or go on as if the order had not been given",
    RecordType.FUNCTION: "a function is damaged: runs that need it fail until they are retried with it",
    RecordType.LEASE: "an early ack is damaged: its messages may be delivered a second time",
}


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
    lost: Spans = ()
    """Ids of messages that are lost."""

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
    lost: Spans = ()
    """Ids of lost messages."""
    lost_results: Spans = ()
    """Ids of acked messages whose results are lost."""
    counts: dict[str, dict[str, int]] | None = None
    """Messages of each run by state, without the lost ones."""
    segments: int = 0
    records: int = 0

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        return max((finding.level for finding in self.findings), default=Level.CLEAN)


@dataclass(frozen=True)
class QueueCheck:
    """The findings about one queue."""

    name: str
    directory: str
    findings: tuple[Finding, ...]
    """Those about no single shard."""
    shards: tuple[ShardCheck, ...]

    def all_findings(self) -> Iterator[Finding]:
        """Yield its own findings, and those of its shards."""
        yield from self.findings
        for shard in self.shards:
            yield from shard.findings


@dataclass(frozen=True)
class CheckReport:
    """The findings about all queues."""

    directory: str
    queues: tuple[QueueCheck, ...]

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        found = (finding.level for queue in self.queues for finding in queue.all_findings())
        return max(found, default=Level.CLEAN)

    def shards(self) -> Iterator[ShardCheck]:
        """Yield the shards of all queues."""
        for queue in self.queues:
            yield from queue.shards

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON, with the exit status as `status`."""
        return {"schema": SCHEMA, "status": int(self.level), **asdict(self)}


def describe_ids(ranges: Iterable[tuple[int, int]]) -> str:
    """Return half-open ranges of ids in words, at most eight of them."""
    spans = list(ranges)
    total = sum(hi - lo for lo, hi in spans)
    words = [str(lo) if hi == lo + 1 else f"{lo} to {hi - 1}" for lo, hi in spans[:8]]
    more = f" and {len(spans) - 8:,} more ranges" if len(spans) > 8 else ""
    return f"{many(total, 'message')}, {'id' if total == 1 else 'ids'} {', '.join(words)}{more}"


def check(directory: Path, clock: Clock | None = None) -> CheckReport:
    """Check the store, the queue or the shard in a directory, or raise `CannotOpen` when none is there."""
    still = StillClock(clock or SystemClock())
    return CheckReport(str(directory), tuple(_checked_queue(place, still) for place in places_in(directory)))


def _checked_queue(place: StoredPlace, clock: Clock) -> QueueCheck:
    findings = [] if place.problem is None else [Finding(Level.UNREADABLE, str(place.problem).removesuffix("."))]
    there = [(index, path) for index, path in place.shards if may_be_there(path)]
    for index, path in place.shards:
        if there and (index, path) not in there:
            text = f"shard {path.name} has no directory: all that it held is missing"
            findings.append(Finding(Level.UNREADABLE, text, file=path.name))
    shards = tuple(_checked_shard(place, index, path, clock) for index, path in there)
    return QueueCheck(place.name, str(place.path), tuple(findings), shards)


def _checked_shard(place: StoredPlace, index: int, path: Path, clock: Clock) -> ShardCheck:
    try:
        return steadily(lambda log: _Check(log, place, index, clock).run(), path)
    except DqlabError as error:
        return ShardCheck(index, str(path), (Finding(Level.UNREADABLE, str(error).removesuffix(".")),))


class _Check:
    """One shard's check."""

    def __init__(self, log: ReadOnlyLog, place: StoredPlace, index: int, clock: Clock) -> None:
        self._log = log
        self._place = place
        self._index = index
        self._clock = clock
        self._segments = {e.seq: log.check(e) for e in log.manifest.segments if e.name not in log.missing}
        self.findings: list[Finding] = []
        self.lost = Ranges()
        self.lost_results = Ranges()

    def run(self) -> ShardCheck:
        """Check everything."""
        log = self._log
        self._files()
        read = OfflineShard.read(log, self._place, self._index, self._clock)
        self._needed_records(read)
        self._missing_results(read)
        for found in read.corrupt:
            self._skipped(found)
        if read.skipped:
            text = f"{many(read.skipped, 'record')} of runs that are not known: what opened them is lost"
            self._add(Level.LOST, text)
        self._unneeded_damage()
        return ShardCheck(
            self._index,
            str(log.directory),
            tuple(self.findings),
            tuple(self.lost),
            tuple(self.lost_results),
            read.counts(),
            segments=len(self._segments),
            records=sum(segment.records for segment in self._segments.values()),
        )

    def _add(self, level: Level, text: str, file: str = "", lost: Iterable[tuple[int, int]] = ()) -> None:
        self.findings.append(Finding(level, text, file, lost=tuple(lost)))

    def _files(self) -> None:
        log = self._log
        for name in log.missing:
            error = missing_segment(log.directory, name)
            self._add(Level.UNREADABLE, str(error).partition(". ")[0], name)
        for name in log.damaged:
            if log.checkpoints:
                self._add(Level.DAMAGED, "the checkpoint cannot be read; another one is in its place", name)
            else:
                text = (
                    "the checkpoint cannot be read, and there is no other: runs, functions and settled messages that "
                    "only it knew are gone, and what is left may be delivered again"
                )
                self._add(Level.LOST, text, name)
        holder = look_at_lock(log.directory)
        for segment in self._segments.values():
            name = segment.entry.name
            if not segment.header:
                text = "the segment's header is damaged; its records hold all that is needed"
                self.findings.append(Finding(Level.DAMAGED, text, name, 0, SEGMENT_BYTES))
            torn = segment.size - segment.end if segment.entry.length is None else 0
            if torn > 0 and not (holder is not None and holder.held):  # else it is being written at this moment
                text = "a torn tail: a crash cut it off, and it was never confirmed"
                self.findings.append(Finding(Level.DAMAGED, text, name, segment.end, torn))

    def _needed_records(self, read: OfflineShard) -> None:
        """Read every frame and settlement that the ledger still needs."""
        for found in read.unreadable_frames():
            self._unreadable(found, f"a frame cannot be read ({found.reason})", found.ids)
            _add_all(self.lost, found.ids)
        for found in read.unreadable_results():
            count = sum(hi - lo for lo, hi in found.ids)
            self._unreadable(found, f"a settlement cannot be read ({found.reason}); {count:,} results are gone", ())
            _add_all(self.lost_results, found.ids)

    def _unreadable(self, found: Unreadable, text: str, lost: Spans) -> None:
        segment, offset, size = found.position
        self.findings.append(Finding(Level.LOST, text, self._name(segment), offset, size, lost))

    def _missing_results(self, read: OfflineShard) -> None:
        """Compare the acked messages with the results that are kept."""
        for run, book in read.ledger.books.items():
            if book.missing:
                name = run.hex() if book.record is None else book.record.name
                at = ", ".join(f"{lo} to {hi - 1}" for lo, hi in book.missing_ordinals()[:8])
                text = f"{many(book.missing, 'document')} of run {name} acked and without a result, at positions {at}"
                self._add(Level.LOST, text)

    def _skipped(self, found: Corruption) -> None:
        """Report one damaged record behind the checkpoint."""
        lost: Spans = ()
        if found.nbytes == SEGMENT_BYTES and found.offset == 0:
            return  # the segment's header, which `_files` reports
        level, text = Level.LOST, "damaged bytes; what records they held is not known"
        if found.type is not None and self._log.read(found.file, found.offset, HEADER_BYTES)[_FLAGS] & COPIED:
            # Where the original is gone too, the ledger needs a record that cannot be read.
            level, text = Level.DAMAGED, "a copy of an earlier record is damaged"
        elif found.type == RecordType.PUT and found.base is not None and found.count is not None:
            lost = ((found.base, found.base + found.count),)
            _add_all(self.lost, lost)
            text = "a frame is damaged: its messages are lost, unless they were settled before"
        elif found.type in _LOSSES:
            text = _LOSSES[RecordType(found.type)]
        elif found.type is not None:
            level, text = Level.DAMAGED, "a record of the log's own is damaged, and it holds no message"
        self.findings.append(Finding(level, text, found.file, found.offset, found.nbytes, lost))

    def _unneeded_damage(self) -> None:
        """Mention damage before the newest checkpoint that costs nothing."""
        reported = [(finding.file, finding.offset, finding.offset + finding.nbytes) for finding in self.findings]
        for segment in self._segments.values():
            for gap in segment.gaps:
                if segment.entry.length is None and gap.start >= segment.end:
                    continue  # the torn tail
                name = segment.entry.name
                if not any(file == name and a < gap.stop and gap.start < b for file, a, b in reported):
                    text, nbytes = "damaged bytes that nothing needs any more", gap.stop - gap.start
                    self.findings.append(Finding(Level.DAMAGED, text, name, gap.start, nbytes))

    def _name(self, segment: int) -> str:
        found = self._segments.get(segment)
        return f"segment {segment}" if found is None else found.entry.name


def _add_all(ranges: Ranges, spans: Iterable[tuple[int, int]]) -> None:
    for lo, hi in spans:
        ranges.add(lo, hi)


# --- show -----------------------------------------------------------------------------------


def show(directory: Path, clock: Clock | None = None) -> dict[str, Any]:
    """Describe the store, the queue or the shard in a directory, as plain data, or raise `CannotOpen`."""
    still = StillClock(clock or SystemClock())
    return {
        "schema": SCHEMA,
        "directory": str(directory),
        "queues": [
            {
                "name": place.name,
                "directory": str(place.path),
                "error": None if place.problem is None else str(place.problem),
                "options": {} if place.queue is None else place.queue.options,
                "shards": [_shard(place, index, path, still) for index, path in place.shards],
            }
            for place in places_in(directory)
        ],
    }


def readable(shown: dict[str, Any]) -> bool:
    """Return whether all that `show` described could be read."""
    return not any(part["error"] for queue in shown["queues"] for part in (queue, *queue["shards"]))


def _shard(place: StoredPlace, index: int, path: Path, clock: Clock) -> dict[str, Any]:
    def look(log: ReadOnlyLog) -> dict[str, Any]:
        if log.missing:
            raise missing_segment(path, log.missing[0])
        return _describe(OfflineShard.read(log, place, index, clock), clock)

    known = {"index": index, "directory": str(path)}
    try:
        return known | steadily(look, path) | {"error": None}
    except DqlabError as error:
        return known | {"error": str(error)}


def _describe(read: OfflineShard, clock: Clock) -> dict[str, Any]:
    log, ledger, holder = read.log, read.ledger, look_at_lock(read.log.directory)
    sizes, kept = log.sizes(), sum(needed_by(ledger).values())
    written = sum(sizes.get(entry.name, 0) for entry in log.manifest.segments)
    checkpoints = sum(sizes.get(name, 0) for name in log.manifest.checkpoints)
    bytes_of = {"needed": kept, "garbage": written - kept, "checkpoints": checkpoints, "total": written + checkpoints}
    return {
        "epoch": log.manifest.epoch,
        "clean": log.clean,
        "holder": None if holder is None else asdict(holder),
        "nbytes": bytes_of,
        "runs": [_run(run, book, clock) for run, book in ledger.books.items()],
    }


def _run(run: bytes, book: Book, clock: Clock) -> dict[str, Any]:
    """Return the messages of one run in one shard; only shard 0 knows its name."""
    record, oldest = book.record, book.lane.oldest()
    return {
        "run": run.hex(),
        "name": "plain puts" if run == NO_ID else None if record is None else record.name,
        "counts": {state.name.lower(): book.lane.counts[state] for state in State},
        "results": len(book.results),
        "oldest_ready_s": None if oldest is None else max(0.0, clock.monotonic() - oldest),
    }


# --- export ---------------------------------------------------------------------------------


def export(directory: Path, clock: Clock | None = None) -> Iterator[str]:
    """Yield one JSON object for each unsettled message, failure and result; payloads and results in base64."""
    # What cannot be read is left out: `check` names its ids.
    still = StillClock(clock or SystemClock())
    for place in places_in(directory):
        for index, path in place.shards:
            if may_be_there(path):
                for row in _rows_of(place, index, path, still):
                    yield json.dumps({"queue": place.name, "shard": index, **row})


def _rows_of(place: StoredPlace, index: int, path: Path, clock: Clock) -> Iterator[dict[str, Any]]:
    try:
        log = ReadOnlyLog(path)
    except ManifestCorrupt:
        log = ReadOnlyLog(path, listed_by_name(path))
    read = OfflineShard.read(log, place, index, clock, watch=_opening_lost_runs)
    yield from _message_rows(read)
    yield from _result_rows(read)


def _opening_lost_runs(ledger: Ledger, records: Iterator[Record]) -> Iterator[Record]:
    """Yield records, and open a nameless lane for a run whose opening is lost before its first frame."""
    for record in records:
        if record.type == RecordType.PUT and (run := Frame.decode(record.body).run) not in ledger.shard.lanes:
            ledger.open({"run": run})
        yield record


def _message_rows(read: OfflineShard) -> Iterator[dict[str, Any]]:
    for run, lane in read.ledger.shard.lanes.items():
        for batch in lane.batches:
            try:
                _, frame = read.frame(run, batch)
            except UNREADABLE:
                continue
            for i, value in enumerate(batch.states):
                if not State(value).final:
                    id = batch.first + i
                    trouble = lane.trouble.get(id)
                    failure = None if trouble is None else (trouble.reason, bytes(trouble.failure).decode())
                    row = _row(id, State(value).name.lower(), run, batch.ordinal + i, failure=failure)
                    yield row | {"payload": _text(frame.message(i))}


def _result_rows(read: OfflineShard) -> Iterator[dict[str, Any]]:
    for run, place, found in read.settlements():
        try:
            settlement = Settlement.decode(open_settle(read.settlement(run, place, found).body)[1])
        except UNREADABLE:
            continue
        for stretch in found:
            first, ordinal, n = stretch.piece
            for i in range(n):
                yield _row(first + i, "acked", run, ordinal + i, result=_text(settlement.entry(stretch.at + i)))


def _row(
    id: int, state: str, run: bytes, ordinal: int, *, result: str | None = None, failure: tuple[str, str] | None = None
) -> dict[str, Any]:
    reason, record = failure or (None, None)
    where = {"id": id, "state": state, "run": run.hex(), "ordinal": ordinal}
    return where | {"payload": None, "result": result, "reason": reason, "failure": record}


def _text(data: bytes | memoryview) -> str:
    return b64encode(data).decode()
