"""What the records behind a checkpoint say of ids, whether or not the records of their frames can be read."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Iterator
from typing import NamedTuple

from dqlab.frame import Frame, Settlement
from dqlab.log import Record, RecordType
from dqlab.rules.ids import next_sequence
from dqlab.rules.ledger import Ledger
from dqlab.rules.ranges import Ranges
from dqlab.store.records import Move, open_settle, unpack_plain

__all__ = ["Trail"]

_STRIDE = next_sequence(0)
_ENDING = frozenset({"cancel", "drop"})


class _Put(NamedTuple):
    """A frame: where it lies in the order of replay, and its ids."""

    place: tuple[int, int]
    first: int
    stop: int


class Trail:
    """Watches a replay.

    Parameters
    ----------
    next_id : int
        Which id comes next.
    order : dict of int to int
        The places of segments in the order of replay.

    Attributes
    ----------
    homeless : Ranges
        Ids of frames whose run is not known.
    ended : Ranges
        Ids that reached an end.
    closed : set of bytes
        Runs that were cancelled or dropped.
    """

    def __init__(self, next_id: int, order: dict[int, int]) -> None:
        self._start = next_id
        self._order = order
        self._puts: list[_Put] = []
        self.homeless = Ranges()
        self.ended = Ranges()
        self.closed: set[bytes] = set()

    def watch(self, ledger: Ledger, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records, which are then applied to the ledger."""
        for record in records:
            if record.type == RecordType.PUT:
                frame = Frame.decode(record.body)
                segment, offset, _ = record.position
                self.met(segment, offset, record.base, record.base + frame.count)
                if frame.run not in ledger.shard.lanes:
                    self.homeless.add(record.base, record.base + frame.count)
            elif record.type == RecordType.SETTLE:
                self._settled(record)
            elif record.type == RecordType.STATE:
                self._moved(Move.from_list(row) for row in unpack_plain(record.body))
            elif record.type == RecordType.RUN:
                op, run, _ = unpack_plain(record.body)
                if op in _ENDING and run is not None:
                    self.closed.add(run)
            yield record

    def met(self, segment: int, offset: int, first: int, stop: int) -> None:
        """Take note of a frame, or of the header of one that cannot be read."""
        insort(self._puts, _Put((self._order[segment], offset), first, stop))

    def skipped(self) -> Ranges:
        """Return ids that no frame was met for; they were given, for within a session there are no gaps."""
        skipped, end = Ranges(), self._start
        for _, first, stop in self._puts:
            skipped.add(max(end, _session(first)), first)
            end = max(end, stop)
        return skipped

    def open_end(self, segment: int, offset: int) -> int | None:
        """Return from which id on messages may have been put in a place that nothing is known of.

        None when the frames behind it go on in the same session: then `skipped` has them all.
        """
        at = bisect(self._puts, (self._order[segment], offset), key=lambda put: put.place)
        before = self._puts[at - 1].stop if at else self._start
        if at < len(self._puts) and _session(self._puts[at].first) < before:
            return None
        return before

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


def _session(id: int) -> int:
    """Return the lowest id that the session which gave this one may have given."""
    return id - id % _STRIDE
