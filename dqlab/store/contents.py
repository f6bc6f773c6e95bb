"""Reads each frame and settlement that a ledger still needs, and says which cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab.errors import DqlabError, FrameCorrupt
from dqlab.frame import Frame, Outcome, Settlement
from dqlab.log import Position, Record, RecordCorrupt
from dqlab.log.records import HEADER_BYTES
from dqlab.rules.batches import Batch
from dqlab.rules.ranges import Ranges
from dqlab.rules.results import Stretch
from dqlab.rules.states import State, stretches
from dqlab.store.places import position_of
from dqlab.store.records import open_settle
from dqlab.store.stored import ReadShard

__all__ = ["frame_at", "run_of_damaged", "settlement_at", "unreadable_frames", "unreadable_results"]

_RUN_AT = HEADER_BYTES + 24
"""Where a frame's run stands in the record of a PUT."""

Unreadable = tuple[Position, tuple[tuple[int, int], ...], str]


def unreadable_frames(read: ReadShard) -> Iterator[Unreadable]:
    """Yield (position, ids not yet settled, reason) of each needed frame that cannot be read."""
    for run, lane in read.ledger.shard.lanes.items():
        for batch in list(lane.batches):
            try:
                frame_at(read, run, batch)
            except DqlabError as error:
                ids = Ranges(
                    (batch.first + a, batch.first + b)
                    for a, b, state in stretches(batch.states, 0, len(batch.states))
                    if not State(state).final
                )
                yield position_of(batch.place), tuple(ids), _reason(error)


def unreadable_results(read: ReadShard) -> Iterator[Unreadable]:
    """Yield (position, ids of its results, reason) of each needed settlement that cannot be read."""
    for run, book in read.ledger.books.items():
        by_place: dict[int, list[Stretch]] = {}
        for stretch in book.results:
            by_place.setdefault(stretch.place, []).append(stretch)
        for place, found in by_place.items():
            try:
                settlement_at(read, run, place, found)
            except DqlabError as error:
                ids = tuple((stretch.piece.first, stretch.piece.first + stretch.piece.n) for stretch in found)
                yield position_of(place), ids, _reason(error)


def frame_at(read: ReadShard, run: bytes, batch: Batch) -> tuple[Record, Frame]:
    """Return the record of a batch, and the frame in it.

    Raises
    ------
    RecordCorrupt, FrameCorrupt
        It is not there, or not what it should be.
    """
    record = read.log.record(position_of(batch.place))
    frame = Frame.decode(record.body)
    if (frame.run, frame.count, record.base) != (run, len(batch.states), batch.first):
        raise FrameCorrupt(kind="frame", reason="it is another one", size=len(record.body))
    return record, frame


def settlement_at(read: ReadShard, run: bytes, place: int, found: list[Stretch]) -> tuple[Record, Settlement]:
    """Return the record at a place, and the settlement in it that holds these results.

    Raises
    ------
    RecordCorrupt, FrameCorrupt
        It is not there, or not what it should be.
    """
    record = read.log.record(position_of(place))
    settlement = Settlement.decode(open_settle(record.body)[1])
    ids = list(settlement.ids())
    for stretch in found:
        first, _, n = stretch.piece
        told = slice(stretch.at, stretch.at + n)
        acked = settlement.outcomes[told] == bytes((Outcome.ACK,)) * n
        if settlement.run != run or not acked or ids[told] != list(range(first, first + n)):
            raise FrameCorrupt(kind="settlement", reason="it holds other results", size=len(record.body))
    return record, settlement


def run_of_damaged(data: bytes) -> bytes:
    """Return the run that a damaged frame's record names; it may be what is damaged."""
    return data[_RUN_AT : _RUN_AT + 16]


def _reason(error: DqlabError) -> str:
    return str(error.reason) if isinstance(error, RecordCorrupt | FrameCorrupt) else str(error)
