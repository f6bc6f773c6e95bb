"""What the records behind a checkpoint say of ids, whether or not the records of their frames can be read."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab.frame import Frame, Settlement
from dqlab.log import Record, RecordType
from dqlab.queue.ids import first_id, next_sequence
from dqlab.queue.ranges import Ranges
from dqlab.store.records import Move, open_settle, unpack_plain

__all__ = ["Trail"]

_ENDING = frozenset({"cancel", "drop"})


class Trail:
    """Watches a replay.

    Parameters
    ----------
    index : int
        Of the shard.
    next_id : int or None
        Which id comes next; None = not known, so nothing can be missing before the first.

    Attributes
    ----------
    skipped : Ranges
        Ids that were given, for ids are given in order, and whose frames were not met.
    ended : Ranges
        Ids that reached an end.
    closed : set of bytes
        Runs that were cancelled or dropped.
    """

    def __init__(self, index: int, next_id: int | None) -> None:
        self._index = index
        self._next = next_id
        self.skipped = Ranges()
        self.ended = Ranges()
        self.closed: set[bytes] = set()

    def watch(self, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records, each when it has been looked at."""
        for record in records:
            self._look(record)
            yield record

    def _look(self, record: Record) -> None:
        if record.type == RecordType.PUT:
            self._put(record.base, Frame.decode(record.body).count)
        elif record.type == RecordType.SETTLE:
            self._settled(record)
        elif record.type == RecordType.STATE:
            self._moved(Move.from_list(row) for row in unpack_plain(record.body))
        elif record.type == RecordType.RUN:
            op, run, _ = unpack_plain(record.body)
            if op in _ENDING and run is not None:
                self.closed.add(run)

    def _put(self, first: int, count: int) -> None:
        if self._next is not None and first > self._next:
            highest = self._next - 1 if self._next > first_id(self._index, 0) else None
            if first != first_id(self._index, next_sequence(highest)):  # where the next epoch begins
                self.skipped.add(self._next, first)
        self._next = first + count

    def _settled(self, record: Record) -> None:
        ruling, blob = open_settle(record.body)
        pieces = Settlement.decode(blob).pieces if ruling is None else [piece for piece, _ in ruling.acked]
        for piece in pieces:
            self.ended.add(piece.first, piece.first + piece.n)
        if ruling is not None:
            self._moved(iter(ruling.moves))

    def _moved(self, moves: Iterator[Move]) -> None:
        for move in moves:
            if move.state.final:
                self.ended.add(move.lo, move.hi)
