"""Where queues and their shards lie below a directory, and a shard's ledger as its log has it: read, never opened."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random

import msgpack

from dqlab.clock import Clock
from dqlab.errors import DqlabError
from dqlab.log import LogError, Record
from dqlab.log.checkpoints import Checkpoint
from dqlab.log.directory import is_ours
from dqlab.log.readonly import ReadOnlyLog
from dqlab.log.recovery import Replay as LogReplay
from dqlab.log.space import Needed
from dqlab.rules.ledger import Ledger
from dqlab.rules.options import QueueOptions
from dqlab.rules.retry import Retry
from dqlab.rules.shard import Shard
from dqlab.store.directories import NotAQueue, StoredQueue, read_queue, shard_directory
from dqlab.store.needed import NeededBytes
from dqlab.store.replay import Replay, rebuild

__all__ = ["ChangedMeanwhile", "NotUnderstood", "ReadShard", "StillClock", "StoredPlace", "places_in", "read_shard"]

_SHARD = re.compile(r"\d{3}")

Watch = Callable[[Ledger, Iterator[Record]], Iterator[Record]]


class NotUnderstood(LogError):
    """The bytes are whole and say what this dqlab cannot make sense of."""

    text = (
        "a record or checkpoint in {directory} is whole, and cannot be understood: {reason}. Nothing was touched. "
        "Read it with the dqlab that wrote it."
    )


class ChangedMeanwhile(LogError):
    """Somebody is at work in the directory, faster than it can be read."""

    text = (
        "the files in {directory} changed while they were read. Nothing was touched. "
        "Run this again, or close the queue first."
    )


@dataclass(frozen=True)
class StoredPlace:
    """A queue's directory.

    Attributes
    ----------
    path : Path
    queue : StoredQueue or None
        None when ``queue.json`` cannot be read.
    problem : DqlabError or None
        Why not.
    shards : tuple of (int, Path)
        Those that are looked at, whether or not they are there.
    """

    path: Path
    queue: StoredQueue | None
    problem: DqlabError | None
    shards: tuple[tuple[int, Path], ...]

    @property
    def name(self) -> str:
        """The queue's name, that of its directory when it is not known."""
        return self.path.name if self.queue is None else self.queue.name

    @property
    def options(self) -> QueueOptions:
        """What the queue's shards are opened with; the defaults for what is not known."""
        kept = {} if self.queue is None else dict(self.queue.options)
        if isinstance(kept.get("retry"), dict):
            kept["retry"] = Retry(**kept["retry"])
        return QueueOptions(**{field.name: kept[field.name] for field in fields(QueueOptions) if field.name in kept})


def places_in(path: Path) -> list[StoredPlace]:
    """Return the queues of a store, the one of a queue's directory, or that of a shard's directory with it alone.

    Raises
    ------
    NotAQueue
        It is none of these.
    """
    try:
        if any(is_ours(entry.name) for entry in path.iterdir()):
            queue = _place(path.parent)
            index = int(path.name) if _SHARD.fullmatch(path.name) else 0
            return [StoredPlace(path.parent, queue.queue, None, ((index, path),))]
        if _is_queue(path):
            return [_place(path)]
        found = [_place(below) for below in sorted(path.iterdir()) if below.is_dir() and _is_queue(below)]
    except OSError as error:
        reason = f"it cannot be read ({type(error).__name__}: {error})"
        raise NotAQueue(directory=str(path), reason=reason, hint="Check the path.") from error
    if not found:
        hint = "Give a store, a queue's directory, or that of one of its shards."
        raise NotAQueue(directory=str(path), reason="neither a queue.json nor a log is in it or below", hint=hint)
    return found


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
    """A `Clock` that stands at the instant at which it was made, so that two readings of a log agree."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic, self._wall = clock.monotonic(), clock.wall()

    def monotonic(self) -> float:
        """Return that instant, seconds."""
        return self._monotonic

    def wall(self) -> float:
        """Return that instant, seconds since 1970-01-01 UTC."""
        return self._wall


@dataclass
class ReadShard:
    """A shard as an open would find it.

    Attributes
    ----------
    log : ReadOnlyLog
    ledger : Ledger
        Nobody leases: what was leased is ready.
    needed : Needed
        The log's own table, as it would be after the replay.
    replay : Replay
        What was met on the way.
    records : LogReplay
        Its `corrupt` is what was passed over.
    """

    log: ReadOnlyLog
    ledger: Ledger
    needed: Needed
    replay: Replay
    records: LogReplay


def read_shard(
    log: ReadOnlyLog,
    place: StoredPlace,
    index: int,
    clock: Clock,
    *,
    checkpoint: Checkpoint | None,
    watch: Watch | None = None,
    counted: bool = True,
) -> ReadShard:
    """Bring a ledger to where a log ends.

    Parameters
    ----------
    checkpoint : Checkpoint or None
        Where to begin; None = at the oldest record that is left.
    watch : callable, optional
        Gets the ledger and the records behind the checkpoint, and yields them to be applied.
    counted : bool, default True
        Keep the log's table of needed bytes, and fail where it is wrong.

    Raises
    ------
    NotUnderstood, LogTooNew, LogError
        It cannot be read.
    """
    needed = Needed({} if checkpoint is None else checkpoint.needed)
    journal = NeededBytes(needed.add, needed.take) if counted else NeededBytes(_uncounted, _uncounted)
    epoch = log.manifest.epoch
    shard = Shard(place.name, index, epoch=epoch, options=place.options, clock=clock, random=Random(), journal=journal)
    ledger, records = Ledger(shard), log.replay(checkpoint)
    body = None if checkpoint is None else log.body(checkpoint)
    try:
        told = iter(records) if watch is None else watch(ledger, iter(records))
        replay = rebuild(ledger, journal, body, told)
        replay.end_early()
    except (ValueError, LookupError, TypeError, AssertionError, struct.error, msgpack.UnpackException) as error:
        raise NotUnderstood(directory=str(log.directory), reason=f"{type(error).__name__}: {error}") from error
    except OSError as error:
        raise LogError(directory=str(log.directory), reason=f"{type(error).__name__}: {error}") from error
    needed.keep_only(log.sealed.listed())
    return ReadShard(log, ledger, needed, replay, records)


def _uncounted(segment: int, nbytes: int) -> None:
    pass
