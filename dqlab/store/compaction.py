"""Compacts a shard's log: copies what the shard still needs, and moves the shard to the copies.

Frames are copied with the payloads of their unsettled messages only, settlements with results still kept verbatim.
Nothing else is copied: the checkpoints behind those segments hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dqlab.frame import Frame
from dqlab.log import Compaction, Log, LogOptions, Moved, NewRecord, Position, Record, RecordType
from dqlab.log.compaction import Progress
from dqlab.log.files import Buffer
from dqlab.rules.batches import Batch, share
from dqlab.rules.lane import Lane
from dqlab.rules.ledger import Ledger
from dqlab.rules.states import State, stretches
from dqlab.store.bodies import Move, pack_plain, place_of, position_of
from dqlab.store.directories import NotAQueue, read_queue, shard_directory, stored_directories
from dqlab.store.durable_shard import DurableShard
from dqlab.store.journal import LogJournal
from dqlab.store.values import Compacted

__all__ = ["MOSTLY", "Copying", "compact_offline", "compaction", "run_through", "still_needed"]

MOSTLY = 0.95
"""Share of a segment's bytes below which it is copied when compaction is asked for."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame to copy."""

    run: bytes
    # Only read, in another thread; it may have changed since the compaction began.
    batch: Batch


@dataclass(frozen=True, slots=True)
class _Results:
    """A settlement to copy, for the results in it."""

    run: bytes


class Copying:
    """One compaction of some segments, made and switched in the ledger's thread, and copied in any other."""

    def __init__(self, ledger: Ledger, journal: LogJournal, segments: Sequence[int]) -> None:
        self._ledger, self._log = ledger, journal.log
        self._wanted = _wanted(ledger, frozenset(segments))
        # Unsettled and settled messages of the copied frames.
        self.kept = self.dropped = 0

    def keep(self, record: Record) -> Iterable[NewRecord]:
        """Return what is needed of a record, for `Log.compact`."""
        wanted = self._wanted.get(place_of(record.position))
        if wanted is None:
            self.dropped += record.count if record.type == RecordType.PUT else 0
            return ()
        if isinstance(wanted, _Results):
            return (_copy(record, record.body, wanted),)
        return self._keep_frame(record, wanted)

    def _keep_frame(self, record: Record, wanted: _Frame) -> Iterator[NewRecord]:
        # One copy of the states: the ledger's thread goes on settling while this one copies.
        states = bytes(wanted.batch.states)
        kept = sum(b - a for a, b, state in stretches(states, 0, len(states)) if not State(state).final)
        self.kept += kept
        self.dropped += len(states) - kept
        if kept:
            frame, *moves = still_needed(record, wanted.run, wanted.batch.first, states)
            yield _copy(record, frame.parts[0], wanted)
            yield from moves

    def switch(self, compaction: Compaction) -> None:
        """Move the ledger to the copies, except for what was settled or dropped during the copying."""
        # No checkpoint may be in the making: it shares these batches and stretches, see `_freeze_lane`. And nothing is
        # touched here, so that `packed` is not emptied by `note_functions`: what is moved is dropped from it by hand.
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
        """Free in each copy of a frame the messages that are not needed there, and return whether the frame is kept."""
        # The copy was counted with all its bytes: messages settled while it was written are freed there, as the ledger
        # freed them in the old place already. Unsettled ones are freed in the old place.
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


def still_needed(record: Record, run: bytes, first: int, states: bytes) -> Iterator[NewRecord]:
    """Yield a frame, hollow where its messages are settled, and the record that makes those settled again."""
    spans = list(stretches(states, 0, len(states)))
    needed = [(a, b) for a, b, state in spans if not State(state).final]
    whole = sum(b - a for a, b in needed) == len(states)
    body = record.body if whole else Frame.decode(record.body).hollow(needed)
    yield NewRecord(RecordType.PUT, [body], record.count, record.base, record.aux, record.flags)
    if not whole:
        # Only a recovery that lost both checkpoints reads this: a hollow message must never run.
        moves = [
            Move(run, first + a, first + b, State(state), suspect=False, delay=0, counts=None)
            for a, b, state in spans
            if State(state).final
        ]
        yield NewRecord(RecordType.STATE, [pack_plain(moves)], aux=record.aux)


def _copy(record: Record, body: Buffer, wanted: _Frame | _Results) -> NewRecord:
    size = record.position.size - len(record.body) + len(body)
    return NewRecord(record.type, [body], record.count, record.base, record.aux, record.flags, needed=size, key=wanted)


def _wanted(ledger: Ledger, segments: frozenset[int]) -> dict[int, _Frame | _Results]:
    """Return the needed frames and settlements in some segments, by place."""
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
    """Yield the batches whose frames lie in some segments, without making objects of the many others."""
    yield from (batch for batch in lane.batches.kept() if position_of(batch.place).segment in segments)
    for rows in lane.batches.frozen():
        for first, place in zip(rows.column("first"), rows.column("place"), strict=True):
            if position_of(place).segment in segments:
                yield lane.batches[first]


def compaction(
    shard: DurableShard,
    *,
    below: float | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Generator[Callable[[], Any], Any, Compacted]:
    """Compact a shard step by step, yielding functions that block and taking their results."""
    # The functions may be called in any thread; everything else happens in the thread of the generator, which is the
    # ledger's. With `below`, segments are copied whose needed share is smaller, and the open one is sealed first.
    # `progress` is called in the copying thread, with bytes done and the total of the segments at hand. `stop` is
    # called before each new segment.
    log, clock = shard.journal.log, shard.ledger.shard.clock
    started, before = clock.monotonic(), _nbytes(log)
    if below is not None:
        yield log.roll
        yield from shard.checkpointing()
    kept = dropped = 0
    victims = log.victims(below)
    while not stop() and (segments := log.fitting(victims)):
        victims = victims[len(segments) :]
        copying = Copying(shard.ledger, shard.journal, segments)
        # No other compaction and no checkpoint until the switch: `Copying` knows the places of now.
        done = yield partial(log.compact, copying.keep, progress=progress, segments=segments)
        copying.switch(done)
        yield from shard.checkpointing()
        kept, dropped = kept + copying.kept, dropped + copying.dropped
    # A second checkpoint that knows the new places: the first may be damaged, so segments wait for two.
    yield from shard.checkpointing()
    return Compacted(before, _nbytes(log), kept, dropped, clock.monotonic() - started)


def run_through(steps: Generator[Callable[[], Any], Any, Compacted]) -> Compacted:
    """Run all steps of a `compaction` in this thread."""
    result = None
    while True:
        try:
            result = steps.send(result)()
        except StopIteration as done:
            compacted: Compacted = done.value
            return compacted


def compact_offline(directory: Path, progress: Callable[[str, int, int], None]) -> Iterator[tuple[str, Compacted]]:
    """Compact each shard of a queue, or of all queues of a store, and yield its name and the outcome."""
    # `progress` gets the shard's name, bytes done and the total. When a log cannot be opened, the shards before it are
    # compacted already.
    queues = stored_directories(directory)
    if not queues:
        hint = "Give a store, or one queue's directory in it, that you may read."
        raise NotAQueue(directory=str(directory), reason="no queue.json is in it or below", hint=hint)
    for path in queues:
        queue = read_queue(path)
        assert queue is not None, "only directories of queues are listed"
        for index in range(queue.shards):
            name, place = f"{queue.name}/{index}", shard_directory(path, index)
            shard = DurableShard.open(
                place, queue.name, index, queue.rules, log_options=LogOptions(), owner="dqlab compact"
            )
            try:
                compacted = run_through(compaction(shard, below=MOSTLY, progress=partial(progress, name)))
            finally:
                shard.journal.log.close()
            yield name, compacted


def _nbytes(log: Log) -> int:
    usage = log.usage()
    return usage.total - usage.reserve
