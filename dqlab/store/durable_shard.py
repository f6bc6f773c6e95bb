"""Opens a durable shard from its directory, takes its checkpoints, and compacts its log.

Compacting appends again what the shard still needs of segments that hold little of it: frames with the payloads of
their unsettled messages only, settlements with results still kept verbatim. A copy is a record like any other, and the
shard knows it from the instant of its append; so a crash finds the original, the copy or both. The original's segment
is deleted as any other that nothing needs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.frame import Frame, Settlement
from dqlab.log.errors import RecordCorrupt
from dqlab.log.files import Files
from dqlab.log.log import Log
from dqlab.log.records import COPIED, RecordType
from dqlab.log.writer import LogOptions
from dqlab.rules.batches import Batch, share
from dqlab.rules.lane import Lane
from dqlab.rules.leases import NO_OWNER
from dqlab.rules.ledger import Ledger
from dqlab.rules.retry import QueueOptions
from dqlab.rules.shard import Shard
from dqlab.rules.states import State, stretches
from dqlab.store.checkpoint import freeze, hold_resting
from dqlab.store.journal import (
    LogJournal,
    Move,
    base_of_copy,
    open_settle,
    pack_plain,
    place_of,
    position_of,
    unsettled,
)
from dqlab.store.replay import rebuild
from dqlab.store.values import Compacted


@dataclass
class DurableShard:
    """A ledger, the journal that records its changes, and how many records a replay skipped."""

    ledger: Ledger
    journal: LogJournal
    skipped: int

    @classmethod
    def open(
        cls,
        directory: Path,
        name: str,
        index: int,
        options: QueueOptions,
        *,
        log_options: LogOptions | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        files: Files | None = None,
        owner: str = "",
        takeover: bool = False,
        patience: float = 0.0,
        journal: Callable[[Log, Clock], LogJournal] = LogJournal,
    ) -> DurableShard:
        """Open a shard and replay its log."""
        clock = clock or SystemClock()
        log = Log.open(directory, options=log_options, files=files, clock=clock, owner=owner, takeover=takeover)
        try:
            keeper = journal(log, clock)
            shard = Shard(
                name, index, epoch=log.epoch, options=options, clock=clock, random=random or Random(), journal=keeper
            )
            ledger = Ledger(shard)
            with _no_collections():
                replay = rebuild(ledger, log.recovery.checkpoint, log.replay())
            # Before `end_early`: its moves are new, and must be in the log. With `patience`, in seconds, consumers may
            # first reclaim what they acked early (`Shard.reclaim`).
            keeper.start_recording(ledger)
            replay.end_early(patience)
            shard.end_drain()  # what had been acked early may have been all that was alive
            keeper.remember_begun(shard.leases.of_consumer(NO_OWNER))
            keeper.noted()
            return cls(ledger, keeper, replay.skipped)
        except BaseException:
            # Not clean: nothing that a failed opening has appended may become durable.
            log.close(clean=False)
            raise

    def checkpoint(self) -> Callable[[], None]:
        """Copy the state of this instant, and return a function for any thread that makes the copy durable."""
        # No await in here: the mark, the state and the records before the mark must belong to one instant. Moves that
        # are not recorded yet go first; behind the mark they would be applied a second time.
        self.journal.noted()
        self.ledger.note_functions()
        mark, pack = self.journal.log.mark(), freeze(self.ledger, reuse=True)
        return lambda: self.journal.log.checkpoint(mark, pack())

    def checkpointing(self) -> Generator[Callable[[], None], Any, None]:
        """Take a checkpoint in steps, so that thousands of lanes do not block the event loop."""
        # As `compaction`, this yields functions to be called in another thread. The first ones do nothing there:
        # meanwhile the event loop serves others.
        for _ in hold_resting(self.ledger):
            yield _let_others_go_on
        yield self.checkpoint()


def _let_others_go_on() -> None:
    """Do nothing, in another thread."""


@contextmanager
def _no_collections() -> Iterator[None]:
    """Stop the garbage collector while the block runs."""
    # A replay makes many objects and no cycles, and would take a quarter longer.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


MOSTLY = 0.95
"""Share of a segment's bytes below which it is copied when compaction is asked for."""
_BYTES, _RECORDS = 256 << 10, 100
"""Most that is copied in one turn, unless one record is larger: puts wait for its commit, and other calls for the
copying."""

Progress = Callable[[int, int], None]
_Wanted = tuple[bytes, int | None]
"""The run of a record to copy, and the first id of a frame; None = it is a settlement."""


def _wanted(ledger: Ledger, segments: frozenset[int]) -> dict[int, _Wanted]:
    """Return the needed frames and settlements in some segments, by place."""
    wanted: dict[int, _Wanted] = {}
    for run, lane in ledger.shard.lanes.items():
        wanted |= {place: (run, first) for place, first in _frames_of(lane) if position_of(place).segment in segments}
    for run, book in ledger.books.items():
        places = (stretch.place for stretch in book.results)
        wanted |= {place: (run, None) for place in places if position_of(place).segment in segments}
    return wanted


def _frames_of(lane: Lane) -> Iterator[tuple[int, int]]:
    """Yield (place, first id) of each frame, without making objects of those to which nothing has happened."""
    yield from ((batch.place, batch.first) for batch in lane.batches.kept())
    for rows in lane.batches.frozen():
        yield from zip(rows.column("place"), rows.column("first"), strict=True)


def _turns(places: Sequence[int]) -> Iterator[list[int]]:
    """Yield the places in parts that are copied in one turn each."""
    turn: list[int] = []
    nbytes = 0
    for place in places:
        size = position_of(place).size
        if turn and (nbytes + size > _BYTES or len(turn) == _RECORDS):
            yield turn
            turn, nbytes = [], 0
        turn.append(place)
        nbytes += size
    if turn:
        yield turn


def _read(log: Log, places: Sequence[int]) -> dict[int, bytes]:
    """Return the bodies of the records at some places, without those that are damaged."""
    bodies = {}
    for place in places:
        try:
            bodies[place] = log.read(position_of(place))
        except RecordCorrupt:
            continue  # reported when a consumer or a person asks for it
    return bodies


class _Copier:
    """Appends records again, in the ledger's thread."""

    def __init__(self, shard: DurableShard) -> None:
        self._ledger, self._log, self._clock = shard.ledger, shard.journal.log, shard.ledger.shard.clock

    def copy(self, wanted: Mapping[int, _Wanted], bodies: Mapping[int, bytes]) -> None:
        """Copy the records at some places, except for what was settled, dropped or moved since they were read."""
        room = sum(map(len, bodies.values()))
        if not self._log.room(room):
            # A compaction must not use the room that settlements need.
            raise self._log.disk_full(room)
        for place, body in bodies.items():
            run, first = wanted[place]
            if first is None:
                self._copy_results(run, place, body)
                continue
            lane = self._ledger.shard.lanes.get(run)
            found = None if lane is None else lane.batches.at(first)
            if lane is not None and found is not None and found[0].place == place:
                self._copy_frame(lane, found[0], body)

    # No checkpoint may be in the making: it shares these batches and stretches, see `_freeze_lane`. And nothing is
    # touched here, so that `packed` is not emptied by `note_functions`: what is moved is dropped from it by hand.

    def _copy_frame(self, lane: Lane, batch: Batch, body: bytes) -> None:
        old, count, needed = position_of(batch.place), len(batch.states), unsettled(batch)
        whole = needed == [(0, count)] or sum(b - a for a, b in needed) == count
        if not whole:
            body = Frame.decode(body).hollow(needed)
        put_at = round((self._clock.wall() - self._clock.monotonic() + batch.put_at) * 1e9)
        new = self._log.append(RecordType.PUT, [body], count=count, base=batch.first, aux=put_at, flags=COPIED)
        if not whole:
            # Only a recovery that lost both checkpoints reads this: a hollow message must never run.
            spans = stretches(batch.states, 0, count)
            moves = [
                Move(lane.run, batch.first + a, batch.first + b, State(state), suspect=False, delay=0, counts=None)
                for a, b, state in spans
                if State(state).final
            ]
            self._log.append(RecordType.STATE, [pack_plain(moves)], aux=put_at, admitted=True)
        self._log.need(new.segment, sum(share(new.size, count, a, b) for a, b in needed))
        self._log.free(old.segment, sum(share(old.size, count, a, b) for a, b in needed))
        lane.batches.relocate({batch.first: place_of(new)})
        self._ledger.packed.pop(lane.run, None)

    def _copy_results(self, run: bytes, place: int, body: bytes) -> None:
        book = self._ledger.books.get(run)
        if book is None or not book.results.relocate(place, place):
            return  # none of its results is kept any more
        old, count = position_of(place), Settlement.decode(open_settle(body)[1]).count
        now = round(self._clock.wall() * 1e9)
        new = self._log.append(
            RecordType.SETTLE, [body], count=count, base=base_of_copy(place), aux=now, flags=COPIED, needed=old.size
        )
        self._log.free(old.segment, old.size)
        book.results.relocate(place, place_of(new))
        self._ledger.packed.pop(run, None)


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
    # `progress` is called with bytes copied and the total. `stop` is called before each turn. No other compaction and
    # no checkpoint but those taken here until the end.
    log, clock, copier = shard.journal.log, shard.ledger.shard.clock, _Copier(shard)
    started, before = clock.monotonic(), log.usage().total
    if below is not None:
        yield log.roll
    wanted = _wanted(shard.ledger, frozenset(log.victims(below)))
    done, total = 0, sum(position_of(place).size for place in wanted)
    for turn in _turns(sorted(wanted)):
        if stop():
            break
        copier.copy(wanted, (yield partial(_read, log, turn)))
        yield log.commit
        if log.checkpoint_due:  # so that segments can be deleted before all are copied
            yield from shard.checkpointing()
        done += sum(position_of(place).size for place in turn)
        if progress is not None:
            progress(done, total)
    # Two: the older one may turn out to be the only readable one, so segments wait until both lie behind them.
    yield from shard.checkpointing()
    yield from shard.checkpointing()
    return Compacted(before, log.usage().total, clock.monotonic() - started)


def run_through(steps: Generator[Callable[[], Any], Any, Compacted]) -> Compacted:
    """Run all steps of a `compaction` in this thread."""
    result = None
    while True:
        try:
            result = steps.send(result)()
        except StopIteration as done:
            compacted: Compacted = done.value
            return compacted
