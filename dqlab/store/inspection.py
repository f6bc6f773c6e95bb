"""What lies in the directories of queues: counts, files and bytes, read without touching anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from dqlab.clock import Clock, SystemClock
from dqlab.errors import DqlabError
from dqlab.frame import NO_ID
from dqlab.log import SegmentMissing
from dqlab.log.holder import Holder, look_at_lock
from dqlab.log.readonly import ReadOnlyLog
from dqlab.rules.book import Book, RunRecord
from dqlab.rules.ledger import Ledger
from dqlab.rules.states import State
from dqlab.store.stored import ChangedMeanwhile, ReadShard, StillClock, StoredPlace, places_in, read_shard

__all__ = ["QueueInfo", "RunInfo", "SegmentInfo", "ShardInfo", "StoreInfo", "counts_of", "inspect", "steadily"]

SCHEMA = 1
_ATTEMPTS = 3

T = TypeVar("T")


@dataclass(frozen=True)
class RunInfo:
    """One run's messages in one shard.

    Attributes
    ----------
    run : str
        Its id, 32 hex digits; zeros for plain puts.
    name : str or None
        Kept in shard 0 alone.
    counts : dict of str to int
        Messages by state; those that were leased are ready.
    results : int
        Results that are kept.
    versions, functions : int
        Versions of its code, and how many of them can be run from here.
    oldest_ready_s : float or None
        Age of the front-most ready message, seconds.
    """

    run: str
    name: str | None
    counts: dict[str, int]
    results: int
    versions: int
    functions: int
    oldest_ready_s: float | None


@dataclass(frozen=True)
class SegmentInfo:
    """One segment; `needed` of its `nbytes` are needed."""

    file: str
    kind: str
    nbytes: int
    needed: int
    sealed: bool


@dataclass(frozen=True)
class ShardInfo:
    """One shard; only `error` says anything when it could not be read.

    Attributes
    ----------
    nbytes : dict of str to int
        By kind: needed, garbage, checkpoints, quarantine, reserve, total.
    torn_bytes : int
        Behind the last whole record; of an open log, what is being written.
    """

    index: int
    directory: str
    error: str | None = None
    format: str = ""
    uuid: str = ""
    epoch: int = 0
    clean: bool = False
    holder: Holder | None = None
    next_id: int = 0
    functions: int = 0
    torn_bytes: int = 0
    nbytes: dict[str, int] | None = None
    segments: tuple[SegmentInfo, ...] = ()
    checkpoints: tuple[str, ...] = ()
    runs: tuple[RunInfo, ...] = ()


@dataclass(frozen=True)
class QueueInfo:
    """One queue; `format` and `options` are those of its ``queue.json``."""

    name: str
    directory: str
    error: str | None
    options: dict[str, Any]
    shards: tuple[ShardInfo, ...]


@dataclass(frozen=True)
class StoreInfo:
    """What `inspect` found."""

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
    """Look at a store, a queue or a shard.

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
    return StoreInfo(str(directory), tuple(_queue(place, still) for place in places_in(directory)))


def steadily(look: Callable[[ReadOnlyLog], T], path: Path) -> T:
    """Return what `look` makes of a log that did not change meanwhile.

    Raises
    ------
    ChangedMeanwhile
        It did, three times.
    """
    for _ in range(_ATTEMPTS):
        failed: DqlabError | None = None
        try:
            log = ReadOnlyLog(path)
            found = look(log)
            if not log.changed:
                return found
        except DqlabError as error:
            failed = error
        holder = look_at_lock(path)
        if failed is not None and (holder is None or holder.held is False):
            raise failed
    raise failed or ChangedMeanwhile(directory=str(path))


def counts_of(ledger: Ledger) -> dict[str, dict[str, int]]:
    """Return the messages of each run by state."""
    return {
        run.hex(): {state.name.lower(): lane.counts[state] for state in State if lane.counts[state]}
        for run, lane in ledger.shard.lanes.items()
    }


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
        return _describe(read_shard(log, place, index, clock, checkpoint=newest), clock)

    try:
        return steadily(look, path)
    except DqlabError as error:
        return ShardInfo(index, str(path), error=str(error))


def _describe(read: ReadShard, clock: Clock) -> ShardInfo:
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
    codes = [] if record is None else record.codes
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
