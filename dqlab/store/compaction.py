"""Compacts a shard's log: appends again what the shard still needs of segments that hold little of it.

Frames are copied with the payloads of their unsettled messages only, settlements with results still kept verbatim. A
copy is a record like any other, and the shard knows it from the instant of its append; so a crash finds the original,
the copy or both. The original's segment is deleted as any other that nothing needs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from dqlab.frame import Frame, Settlement
from dqlab.log.errors import RecordCorrupt
from dqlab.log.log import Log
from dqlab.log.records import COPIED, RecordType
from dqlab.rules.batches import Batch, share
from dqlab.rules.lane import Lane
from dqlab.rules.ledger import Ledger
from dqlab.rules.states import State, stretches
from dqlab.store.bodies import Move, base_of_copy, open_settle, pack_plain, place_of, position_of
from dqlab.store.durable_shard import DurableShard
from dqlab.store.journal import unsettled
from dqlab.store.values import Compacted

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
