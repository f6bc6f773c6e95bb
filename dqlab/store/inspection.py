"""Describes what lies in the directories of queues, without touching anything.

`inspect` replays the logs: counts, runs, bytes. `survey`, for the doctor, reads only lists of files and the end of
the last segment: which process has them open, and what cannot be read or is missing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.errors import DqlabError
from dqlab.frame import NO_ID
from dqlab.log import LogError, SegmentMissing
from dqlab.log.ownership import Holder, look_at_lock
from dqlab.log.readonly import ReadOnlyLog
from dqlab.numbers import few_of, many
from dqlab.rules.book import Book, CodeRecord, RunRecord
from dqlab.rules.ledger import Ledger
from dqlab.rules.states import State
from dqlab.store.directories import NotAQueue
from dqlab.store.offline import OfflineShard, StillClock, StoredPlace, may_be_there, places_in, steadily

__all__ = [
    "QueueInfo",
    "RunInfo",
    "SegmentInfo",
    "ShardInfo",
    "StoreInfo",
    "SurveyedShard",
    "inspect",
    "survey",
]

SCHEMA = 1


@dataclass(frozen=True)
class RunInfo:
    """One run's messages in one shard."""

    run: str
    """Its id, 32 hex digits; zeros for plain puts."""
    name: str | None
    """Known to shard 0 only."""
    counts: dict[str, int]
    """Messages by state; those that were leased are ready."""
    results: int
    """Number of results kept."""
    versions: int
    """Number of versions of its code."""
    functions: int
    """How many of their functions are stored."""
    oldest_ready_s: float | None
    """Age of the first ready message, seconds."""


@dataclass(frozen=True)
class SegmentInfo:
    """One segment."""

    file: str
    kind: str
    nbytes: int
    needed: int
    """How many of its `nbytes` are needed."""
    sealed: bool


@dataclass(frozen=True)
class ShardInfo:
    """One shard."""

    index: int
    directory: str
    error: str | None = None
    """Why it cannot be read; the fields below mean nothing then."""
    format: str = ""
    uuid: str = ""
    epoch: int = 0
    clean: bool = False
    holder: Holder | None = None
    next_id: int = 0
    functions: int = 0
    torn_bytes: int = 0
    """Behind the last whole record; of an open log, what is being written."""
    nbytes: dict[str, int] | None = None
    """By kind: needed, garbage, checkpoints, quarantine, reserve, total."""
    segments: tuple[SegmentInfo, ...] = ()
    checkpoints: tuple[str, ...] = ()
    runs: tuple[RunInfo, ...] = ()


@dataclass(frozen=True)
class QueueInfo:
    """One queue."""

    name: str
    directory: str
    error: str | None
    options: dict[str, Any]
    """As in its ``queue.json``."""
    shards: tuple[ShardInfo, ...]


@dataclass(frozen=True)
class StoreInfo:
    """The result of `inspect`."""

    directory: str
    queues: tuple[QueueInfo, ...]

    @property
    def readable(self) -> bool:
        """True when everything could be read."""
        return all(queue.error is None and all(shard.error is None for shard in queue.shards) for queue in self.queues)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {"schema": SCHEMA, **asdict(self)}


def inspect(directory: Path, clock: Clock | None = None) -> StoreInfo:
    """Describe the store, the queue or the shard in a directory, or raise `NotAQueue` when none is there."""
    still = StillClock(clock or SystemClock())
    return StoreInfo(str(directory), tuple(_queue(place, still) for place in places_in(directory)))


def _queue(place: StoredPlace, clock: Clock) -> QueueInfo:
    error = None if place.problem is None else str(place.problem)
    options = {} if place.queue is None else place.queue.options
    shards = tuple(_shard(place, index, path, clock) for index, path in place.shards)
    return QueueInfo(place.name, str(place.path), error, options, shards)


def _shard(place: StoredPlace, index: int, path: Path, clock: Clock) -> ShardInfo:
    def look(log: ReadOnlyLog) -> ShardInfo:
        if log.missing:
            raise SegmentMissing(directory=str(path), file=log.missing[0])
        newest = log.checkpoints[-1] if log.checkpoints else None
        return _describe(OfflineShard.read(log, place, index, clock, checkpoint=newest), clock)

    try:
        return steadily(look, path)
    except DqlabError as error:
        return ShardInfo(index, str(path), error=str(error))


def _describe(read: OfflineShard, clock: Clock) -> ShardInfo:
    log, ledger = read.log, read.ledger
    sizes, needed = log.sizes(), read.needed.table()
    usage = log.usage(sum(needed.values()))
    segments = tuple(
        SegmentInfo(
            entry.name, entry.kind, sizes.get(entry.name, 0), needed.get(entry.seq, 0), entry.length is not None
        )
        for entry in log.manifest.segments
    )
    return ShardInfo(
        index=ledger.shard.index,
        directory=str(log.directory),
        format=log.format,
        uuid=log.manifest.uuid,
        epoch=log.manifest.epoch,
        clean=log.clean,
        holder=look_at_lock(log.directory),
        next_id=ledger.shard.next_id,
        functions=len(ledger.functions),
        torn_bytes=log.torn_bytes,
        nbytes={
            "needed": usage.needed,
            "garbage": usage.segments - usage.needed,
            "checkpoints": usage.checkpoints,
            "quarantine": usage.quarantine,
            "reserve": usage.reserve,
            "total": usage.total,
        },
        segments=segments,
        checkpoints=tuple(checkpoint.name for checkpoint in log.checkpoints),
        runs=tuple(_run(run, book, ledger, clock) for run, book in ledger.books.items()),
    )


def _run(run: bytes, book: Book, ledger: Ledger, clock: Clock) -> RunInfo:
    record: RunRecord | None = book.record
    codes: list[CodeRecord] = [] if record is None else record.codes
    oldest = book.lane.oldest()
    return RunInfo(
        run=run.hex(),
        name="plain puts" if run == NO_ID else None if record is None else record.name,
        counts={state.name.lower(): book.lane.counts[state] for state in State},
        results=len(book.results),
        versions=len(codes),
        functions=sum(code.get("blob") in ledger.functions for code in codes),
        oldest_ready_s=None if oldest is None else max(0.0, clock.monotonic() - oldest),
    )


# --- survey ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SurveyedShard:
    """One shard's files."""

    queue: str
    index: int
    directory: str
    error: str = ""
    """Why it, or its queue, cannot be opened whole; "" when it can."""
    holder: Holder | None = None
    """The process that opened it last."""


def survey(store: Path) -> tuple[SurveyedShard, ...]:
    """Return the shards of all queues below a directory, or none when there is no queue."""
    try:
        places = places_in(store)
    except NotAQueue:
        return ()
    except LogError as error:
        folders = _folders(store)
        if not folders:
            return (SurveyedShard(store.name, 0, str(store), error=str(error)),)
        return tuple(shard for folder in folders for shard in survey(folder))  # one of them cannot be read
    return tuple(shard for place in places for shard in _surveyed_queue(place))


def _folders(store: Path) -> list[Path]:
    try:
        return sorted(below for below in store.iterdir() if below.is_dir())
    except OSError:
        return []


def _surveyed_queue(place: StoredPlace) -> list[SurveyedShard]:
    if place.problem is not None:
        return [SurveyedShard(place.name, 0, str(place.path), error=str(place.problem))]
    return [_surveyed(place.name, index, path) for index, path in place.shards]


def _surveyed(queue: str, index: int, path: Path) -> SurveyedShard:
    def look(log: ReadOnlyLog) -> SurveyedShard:
        missing = f"it lacks {many(len(log.missing), 'file')}: {few_of(log.missing)}" if log.missing else ""
        return SurveyedShard(queue, index, str(path), missing, look_at_lock(path))

    if not may_be_there(path):
        return SurveyedShard(queue, index, str(path))  # of a new queue: it is created when the shard is first opened
    try:
        return steadily(look, path)
    except DqlabError as error:
        return SurveyedShard(queue, index, str(path), error=str(error))
