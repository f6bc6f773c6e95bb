"""Reads queues from their files alone, for `store.verbs`; nothing here writes, locks or deletes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from stat import S_ISDIR
from typing import NamedTuple, Self, TypeVar

import msgpack

from dqlab.clock import Clock
from dqlab.errors import DqlabError, FrameCorrupt
from dqlab.frame import Frame, Outcome, Settlement
from dqlab.log.errors import CannotOpen, ChangedMeanwhile, DiskFailed, RecordCorrupt, typed
from dqlab.log.files import Directory, Files, is_ours
from dqlab.log.ownership import look_at_lock
from dqlab.log.readonly import ReadOnlyLog
from dqlab.log.records import Position, Record
from dqlab.log.recovery import Corruption
from dqlab.rules.batches import Batch
from dqlab.rules.ledger import Ledger
from dqlab.rules.ranges import Ranges
from dqlab.rules.result_index import Stretch
from dqlab.rules.retry import QueueOptions
from dqlab.rules.shard import Shard
from dqlab.rules.states import State, stretches
from dqlab.store.directories import StoredQueue, not_a_queue, read_queue, shard_directory
from dqlab.store.journal import LogJournal, open_settle, position_of
from dqlab.store.replay import rebuild

_SHARD = re.compile(r"\d{3}")
_ATTEMPTS = 3
UNREADABLE = (RecordCorrupt, FrameCorrupt)
"""Errors of a record that holds other bytes than were written."""
_REFUSED = (*UNREADABLE, DiskFailed)
"""And of one that cannot be read. `NoDescriptors` is not among them: then none can be read."""

T = TypeVar("T")
Watch = Callable[[Ledger, Iterator[Record]], Iterator[Record]]


# --- where queues lie -----------------------------------------------------------------------


@dataclass(frozen=True)
class StoredPlace:
    """A queue's directory."""

    path: Path
    queue: StoredQueue | None
    """None when ``queue.json`` cannot be read."""
    problem: DqlabError | None
    """Why it cannot be read."""
    shards: tuple[tuple[int, Path], ...]
    """The shards to read, whether or not their directories exist."""

    @property
    def name(self) -> str:
        """The queue's name, or its directory's name when it is not known."""
        return self.path.name if self.queue is None else self.queue.name

    @property
    def options(self) -> QueueOptions:
        """The options of the queue's shards, or the defaults when these are not known."""
        return QueueOptions() if self.queue is None else self.queue.rules


def places_in(path: Path) -> list[StoredPlace]:
    """Return a store's queues, the queue in this directory, or the queue of a shard's directory with that shard."""
    with typed(Directory(path, Files())):
        return _places_in(path)


def _places_in(path: Path) -> list[StoredPlace]:
    try:
        if any(is_ours(entry.name) for entry in path.iterdir()):
            queue = _place(path.parent)
            index = int(path.name) if _SHARD.fullmatch(path.name) else 0
            return [StoredPlace(path.parent, queue.queue, None, ((index, path),))]
        if _is_queue(path):
            return [_place(path)]
        found = [_place(below) for below in sorted(path.iterdir()) if below.is_dir() and _is_queue(below)]
    except (FileNotFoundError, NotADirectoryError) as error:
        reason = f"it cannot be read ({type(error).__name__}: {error})"
        raise not_a_queue(path, reason, "Check the path.") from error
    if not found:
        hint = "Give a store, a queue's directory, or that of one of its shards."
        raise not_a_queue(path, "neither a queue.json nor a log is in it or below", hint)
    return found


def may_be_there(path: Path) -> bool:
    """Return whether a directory exists or cannot be looked at."""
    try:
        return S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # Then reading it raises why; as missing, its messages would be passed over in silence.
        return True


def _is_queue(path: Path) -> bool:
    return (path / "queue.json").exists() or any(_logs_in(path))


def _logs_in(path: Path) -> Iterator[tuple[int, Path]]:
    for below in sorted(path.iterdir()):
        if _SHARD.fullmatch(below.name) and below.is_dir() and any(is_ours(entry.name) for entry in below.iterdir()):
            yield int(below.name), below


def _place(path: Path) -> StoredPlace:
    problem: DqlabError | None = None
    queue: StoredQueue | None = None
    try:
        queue = read_queue(path)
    except DqlabError as error:
        problem = error
    if queue is not None:
        shards = tuple((index, shard_directory(path, index)) for index in range(queue.shards))
    else:
        shards = tuple(_logs_in(path))
    return StoredPlace(path, queue, problem, shards)


# --- one shard ------------------------------------------------------------------------------


class StillClock:
    """A `Clock` that stands still, so that two readings of a log agree on what is ready."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic, self._wall = clock.monotonic(), clock.wall()

    def monotonic(self) -> float:
        """Return the instant at which the clock was made, seconds."""
        return self._monotonic

    def wall(self) -> float:
        """Return that instant as seconds since 1970-01-01 UTC."""
        return self._wall


class Unreadable(NamedTuple):
    """A needed record that cannot be read."""

    position: Position
    ids: tuple[tuple[int, int], ...]
    """Half-open ranges of the ids that are lost with it."""
    reason: str


@dataclass
class OfflineShard:
    """A shard as opening it would find it."""

    log: ReadOnlyLog
    ledger: Ledger
    """Nothing is leased: what was leased is ready."""
    corrupt: list[Corruption]
    """Damage that the replay skipped."""
    skipped: int
    """Records of runs that are not known."""

    @classmethod
    def read(
        cls,
        log: ReadOnlyLog,
        place: StoredPlace,
        index: int,
        clock: Clock,
        watch: Watch = lambda _, records: records,
    ) -> Self:
        """Bring a ledger to where a log ends, or raise CannotOpen when its content makes no sense."""
        # `watch` gets the ledger and the records behind the newest checkpoint, and yields the records to apply.
        epoch, options, journal = log.manifest.epoch, place.options, LogJournal(None, clock)
        shard = Shard(place.name, index, epoch=epoch, options=options, clock=clock, random=Random(), journal=journal)
        checkpoint = log.checkpoints[-1] if log.checkpoints else None
        ledger, records = Ledger(shard), log.replay(checkpoint)
        body = None if checkpoint is None else log.body(checkpoint)
        try:
            with log.typed():
                replay = rebuild(ledger, body, watch(ledger, iter(records)))
                replay.end_early()
        # What decoding raises on bytes that another version wrote or that are wrong with a right checksum; the rules
        # assert what a sound log guarantees.
        except (ValueError, LookupError, TypeError, AssertionError, struct.error, msgpack.UnpackException) as error:
            what = f"{type(error).__name__}: {error}"
            reason = f"a record or checkpoint in {log.directory} is whole, and cannot be understood: {what}"
            raise CannotOpen(reason=reason, hint="Read it with the version of dqlab that wrote it.") from error
        return cls(log, ledger, records.corrupt, replay.skipped)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the messages of each run by state."""
        return {
            run.hex(): {state.name.lower(): lane.counts[state] for state in State if lane.counts[state]}
            for run, lane in self.ledger.shard.lanes.items()
        }

    def frame(self, run: bytes, batch: Batch) -> tuple[Record, Frame]:
        """Return the record of a batch and its frame, or raise `RecordCorrupt` or `FrameCorrupt`."""
        record = self.log.record(position_of(batch.place))
        frame = Frame.decode(record.body)
        if (frame.run, frame.count, record.base) != (run, len(batch.states), batch.first):
            raise FrameCorrupt(kind="frame", reason="it is another one", size=len(record.body))
        return record, frame

    def settlement(self, run: bytes, place: int, found: Sequence[Stretch]) -> Record:
        """Return the record of the settlement with these results, or raise `RecordCorrupt` or `FrameCorrupt`."""
        record = self.log.record(position_of(place))
        settlement = Settlement.decode(open_settle(record.body)[1])
        ids = list(settlement.ids())
        for stretch in found:
            first, _, n = stretch.piece
            here = slice(stretch.at, stretch.at + n)
            acked = settlement.outcomes[here] == bytes((Outcome.ACK,)) * n
            if settlement.run != run or not acked or ids[here] != list(range(first, first + n)):
                raise FrameCorrupt(kind="settlement", reason="it holds other results", size=len(record.body))
        return record

    def settlements(self) -> Iterator[tuple[bytes, int, list[Stretch]]]:
        """Yield (run, place, results) of each settlement that is still needed."""
        for run, book in self.ledger.books.items():
            by_place: dict[int, list[Stretch]] = {}
            for stretch in book.results:
                by_place.setdefault(stretch.place, []).append(stretch)
            for place, found in by_place.items():
                yield run, place, found

    def unreadable_frames(self) -> Iterator[Unreadable]:
        """Yield each needed frame that cannot be read, with the ids of its unsettled messages."""
        for run, lane in self.ledger.shard.lanes.items():
            for batch in list(lane.batches):
                try:
                    self.frame(run, batch)
                except _REFUSED as error:
                    ids = Ranges(
                        (batch.first + a, batch.first + b)
                        for a, b, state in stretches(batch.states, 0, len(batch.states))
                        if not State(state).final
                    )
                    yield Unreadable(position_of(batch.place), tuple(ids), str(error.reason))

    def unreadable_results(self) -> Iterator[Unreadable]:
        """Yield each needed settlement that cannot be read, with the ids of its results."""
        for run, place, found in self.settlements():
            try:
                self.settlement(run, place, found)
            except _REFUSED as error:
                ids = tuple((stretch.piece.first, stretch.piece.first + stretch.piece.n) for stretch in found)
                yield Unreadable(position_of(place), ids, str(error.reason))


def steadily(look: Callable[[ReadOnlyLog], T], path: Path) -> T:
    """Return what `look` makes of a log that did not change during the look, in up to three attempts."""
    for _ in range(_ATTEMPTS):
        failed: DqlabError | None = None
        try:
            log = ReadOnlyLog(path)
            found = look(log)
            if not log.changed:
                return found
        except ChangedMeanwhile:
            continue
        except DqlabError as error:
            failed = error
        # While a process has the log open, files may vanish under the reader; this is not damage, so try again.
        holder = look_at_lock(path)
        if failed is not None and (holder is None or holder.held is False):
            raise failed
    raise failed or ChangedMeanwhile(directory=str(path))
