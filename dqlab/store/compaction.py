"""Which bytes of a log's segments a shard still needs, and its going over to where they have been copied.

Frames are copied with the payloads of those messages alone that are not yet settled; settlements whose results
are still kept, verbatim. Everything else is in the checkpoints before the copied segments.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dqlab.frame import Frame
from dqlab.log import Compaction, Log, Moved, NewRecord, Position, Record, RecordType
from dqlab.rules.batches import Batch, share
from dqlab.rules.lane import Lane
from dqlab.rules.ledger import Ledger
from dqlab.rules.states import State, stretches
from dqlab.store.journal import LogJournal
from dqlab.store.places import place_of, position_of
from dqlab.store.records import Move, pack_plain
from dqlab.store.shard import DurableShard

__all__ = ["MOSTLY", "Compacted", "Copying", "compaction", "run_through"]

MOSTLY = 0.95
"""On demand, segments that are needed by a smaller share are copied."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame that is to be copied; its states are only looked at, and may be those of when this began."""

    run: bytes
    batch: Batch


@dataclass(frozen=True, slots=True)
class _Results:
    """A settlement that is to be copied, for results in it."""

    run: bytes


class Copying:
    """One compaction of some segments: planned and ended where the ledger lives, copied in any thread.

    Attributes
    ----------
    kept, dropped : int
        Messages of the copied frames that are not yet settled, and that are.
    """

    def __init__(self, ledger: Ledger, journal: LogJournal, segments: Sequence[int]) -> None:
        self._ledger, self._log = ledger, journal.log
        self._wanted = _wanted(ledger, frozenset(segments))
        self.kept = self.dropped = 0

    def keep(self, record: Record) -> Iterable[NewRecord]:
        """Return what is needed of a record; for `Log.compact`."""
        wanted = self._wanted.get(place_of(record.position))
        if wanted is None:
            self.dropped += record.count if record.type == RecordType.PUT else 0
            return ()
        if isinstance(wanted, _Results):
            return (_copy(record, record.body, wanted),)
        return self._keep_frame(record, wanted)

    def _keep_frame(self, record: Record, wanted: _Frame) -> Iterator[NewRecord]:
        states = bytes(wanted.batch.states)
        needed = [(a, b) for a, b, state in stretches(states, 0, len(states)) if not State(state).final]
        kept = sum(b - a for a, b in needed)
        self.kept += kept
        self.dropped += len(states) - kept
        if kept == len(states):
            yield _copy(record, record.body, wanted)
        elif kept:
            yield _copy(record, Frame.decode(record.body).hollow(needed), wanted)
            # Only a recovery that has lost both checkpoints reads this: what is hollow must not run.
            first = wanted.batch.first
            moves = [
                Move(wanted.run, first + a, first + b, State(state), suspect=False, delay=0, counts=None)
                for a, b, state in stretches(states, 0, len(states))
                if State(state).final
            ]
            yield NewRecord(RecordType.STATE, [pack_plain(moves)], aux=record.aux)

    def switch(self, compaction: Compaction) -> None:
        """Go over to the copies, of what has not become superfluous meanwhile."""
        places: dict[bytes, dict[int, int]] = {}
        for moved in compaction.moved:
            if isinstance(moved.key, _Frame):
                if self._switch_frame(moved, moved.key):
                    places.setdefault(moved.key.run, {})[moved.key.batch.first] = place_of(moved.new)
            elif isinstance(moved.key, _Results):
                self._switch_results(moved, moved.key)
        for run, changes in places.items():
            self._ledger.shard.lanes[run].batches.relocate(changes)
            self._ledger.packed.pop(run, None)

    def _switch_frame(self, moved: Moved, wanted: _Frame) -> bool:
        """Free what is needed no more of both copies of a frame; return whether the frame is still there."""
        lane = self._ledger.shard.lanes.get(wanted.run)
        found = lane.batches.at(wanted.batch.first) if lane is not None else None
        if found is None:
            self._free(moved.new)
            return False
        states = found[0].states
        for a, b, state in stretches(states, 0, len(states)):
            gone = moved.new if State(state).final else moved.old
            self._log.free(gone.segment, share(gone.size, len(states), a, b))
        return True

    def _switch_results(self, moved: Moved, wanted: _Results) -> None:
        book = self._ledger.books.get(wanted.run)
        here = book is not None and book.results.relocate(place_of(moved.old), place_of(moved.new))
        self._ledger.packed.pop(wanted.run, None)
        self._free(moved.old if here else moved.new)

    def _free(self, position: Position) -> None:
        self._log.free(position.segment, position.size)


def _copy(record: Record, body: bytes | memoryview, wanted: _Frame | _Results) -> NewRecord:
    size = record.position.size - len(record.body) + len(body)
    return NewRecord(record.type, [body], record.count, record.base, record.aux, record.flags, needed=size, key=wanted)


def _wanted(ledger: Ledger, segments: frozenset[int]) -> dict[int, _Frame | _Results]:
    """Return what lies in some segments and is still needed, by place."""
    wanted: dict[int, _Frame | _Results] = {}
    for run, lane in ledger.shard.lanes.items():
        for batch in _batches_in(lane, segments):
            wanted[batch.place] = _Frame(run, batch)
    for run, book in ledger.books.items():
        for stretch in book.results:
            if position_of(stretch.place).segment in segments:
                wanted[stretch.place] = _Results(run)
    return wanted


def _batches_in(lane: Lane, segments: frozenset[int]) -> Iterator[Batch]:
    """Yield the batches whose frames lie in some segments; of the others no object is made, for they are many."""
    yield from (batch for batch in lane.batches.kept() if position_of(batch.place).segment in segments)
    for rows in lane.batches.frozen():
        for first, place in zip(rows.column("first"), rows.column("place"), strict=True):
            if position_of(place).segment in segments:
                yield lane.batches[first]


@dataclass(frozen=True, slots=True, repr=False)
class Compacted:
    """What a compaction of a shard gave.

    Attributes
    ----------
    bytes_before, bytes_after : int
        Of everything in the directory but the reserve.
    kept, dropped : int
        Messages of the copied frames that stayed, and that were settled.
    seconds : float
        How long it took.
    """

    bytes_before: int = 0
    bytes_after: int = 0
    kept: int = 0
    dropped: int = 0
    seconds: float = 0.0

    def __add__(self, other: Compacted) -> Compacted:
        """Return both together: shards are compacted side by side, so the longer time counts."""
        return Compacted(
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
            self.kept + other.kept,
            self.dropped + other.dropped,
            max(self.seconds, other.seconds),
        )

    def __str__(self) -> str:
        """Return one sentence."""
        size = f"{_megabytes(self.bytes_before)} MB before, {_megabytes(self.bytes_after)} MB after"
        return f"{size}; {self.kept:,} messages kept, {self.dropped:,} dropped; {self.seconds:.1f} s"

    def __repr__(self) -> str:
        return f"<Compacted: {self}>"


def compaction(
    shard: DurableShard,
    *,
    below: float | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Generator[Callable[[], Any], Any, Compacted]:
    """Compact a shard, step by step.

    Yields what blocks, to be called in any thread, and takes its result; all else happens where the generator
    runs, which is where the ledger lives.

    Parameters
    ----------
    below : float, optional
        Copy from segments that are needed by a smaller share; also seal the open one first. By default those
        that the option `compact_below` names.
    progress : callable, optional
        Called in the thread with bytes done and bytes in all of the segments at hand.
    stop : callable, optional
        Asked before each new segment is written; once it returns True nothing more is copied.
    """
    log, clock = shard.journal.log, shard.ledger.shard.clock
    started, before = clock.monotonic(), _nbytes(log)
    if below is not None:
        yield log.roll
        yield from shard.checkpointing()
    kept = dropped = 0
    victims = log.victims(below)
    while not stop() and (segments := _fitting(log, victims)):
        victims = victims[len(segments) :]
        copying = Copying(shard.ledger, shard.journal, segments)
        done = yield partial(log.compact, copying.keep, progress=progress, segments=segments)
        copying.switch(done)
        yield from shard.checkpointing()
        kept, dropped = kept + copying.kept, dropped + copying.dropped
    yield from shard.checkpointing()  # the second one that knows the new places: now the old ones can go
    return Compacted(before, _nbytes(log), kept, dropped, clock.monotonic() - started)


def run_through(steps: Generator[Callable[[], Any], Any, Compacted]) -> Compacted:
    """Carry out all steps of a `compaction` here; blocks."""
    result = None
    while True:
        try:
            result = steps.send(result)()
        except StopIteration as done:
            gave: Compacted = done.value
            return gave


def _fitting(log: Log, victims: Sequence[int]) -> list[int]:
    """Return the first victims, as many as fill one segment."""
    chosen: list[int] = []
    room = log.options.segment_bytes
    for segment in victims:
        room -= log.needed(segment)
        if chosen and room < 0:
            break
        chosen.append(segment)
    return chosen


def _nbytes(log: Log) -> int:
    usage = log.usage()
    return usage.total - usage.reserve


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f}" if nbytes >= 50_000 else f"{nbytes / 1e6:.3f}"
