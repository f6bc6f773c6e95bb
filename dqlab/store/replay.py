"""Applies the records of a log to a ledger again.

Each record states what the rules decided then. The replay carries that out and decides nothing itself: under
other rules or at another time a message would end in another state than the one that was confirmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dqlab.frame import NO_ID, Frame, Piece, Settlement
from dqlab.log.records import COPIED, Record, RecordType
from dqlab.rules.batches import CHUNK, Row
from dqlab.rules.deliveries import Settled, kept_at
from dqlab.rules.journal import Op
from dqlab.rules.lane import Lane, microseconds
from dqlab.rules.ledger import Ledger
from dqlab.rules.ranges import Ranges, first_id, next_sequence
from dqlab.rules.result_index import Stretch
from dqlab.rules.states import State
from dqlab.rules.trouble import ONCE, Trouble
from dqlab.store.checkpoint import restore
from dqlab.store.journal import Move, old_place, open_settle, place_of, unpack_plain

_HASH_BYTES = 16


@dataclass
class Replay:
    """Brings a ledger to where its log ends."""

    ledger: Ledger
    highest: int = -1
    """The highest id met, -1 before the first."""
    skipped: int = 0
    """Records of unknown runs, which were opened by a record that is corrupt."""
    early: dict[bytes, Ranges] = field(default_factory=dict)
    """By run, ids that were acked early and have no outcome yet."""

    def __post_init__(self) -> None:
        clock = self.ledger.shard.clock  # read once, because there are many records
        self._monotonic, self._wall = clock.monotonic(), clock.wall()
        self._gathered = _Gathered()

    def run(self, records: Iterable[Record]) -> None:
        """Apply all records."""
        for record in records:
            if record.type == RecordType.PUT and not record.flags & COPIED:
                self._put(record)
            else:
                self._gathered.store()
                # First: the record may be about the messages of these frames.
                self._apply(record)
        self._gathered.store()
        for lane in self.ledger.shard.lanes.values():
            if lane.flow is not None:
                lane.flow.distrust(self._monotonic)

    def end_early(self, patience: float = 0.0) -> None:
        """Mark messages dead that were acked early and have no outcome, after `patience` seconds if given."""
        # These moves are new, and are recorded. With patience, consumers that still work on the messages can reclaim
        # them.
        for run, ids in self.early.items():
            lane = self.ledger.shard.lanes.get(run)
            if patience:
                self.ledger.shard.hold_begun(run, ids, patience)
            elif lane is not None:
                for lo, hi in list(ids):
                    self._lose(lane, lo, hi)

    def _apply(self, record: Record) -> None:
        match record.type:
            case RecordType.PUT:
                self._copy_of_frame(record)
            case RecordType.SETTLE:
                self._settle(record)
            case RecordType.STATE:
                elapsed = self._elapsed(record)
                moves = [Move.from_list(row) for row in unpack_plain(record.body)]
                for move in moves:
                    self._move(move, None, elapsed)
                for run in {move.run for move in moves}:  # after a purge, or a lease that ended in the last attempt
                    self._note_end(run, record)
            case RecordType.RUN:
                name, run, meta = unpack_plain(record.body)
                if name == Op.OPEN or run is None or run in self.ledger.books:
                    self.ledger.order(Op(name), run, meta)
                    self._note_end(meta["seal"]["run"] if name == Op.SEAL else run, record)
                else:
                    self.skipped += 1
            case RecordType.FUNCTION:
                body = bytes(record.body)
                self.ledger.functions[body[:_HASH_BYTES]] = body[_HASH_BYTES:]
            case RecordType.LEASE:
                run, ranges = unpack_plain(record.body)
                for lo, hi in ranges:
                    self.early.setdefault(run, Ranges()).add(lo, hi)
            case _:
                self.skipped += 1

    def _put(self, record: Record) -> None:
        frame = Frame.decode(record.body)
        shard, first = self.ledger.shard, record.base
        self.highest = max(self.highest, first + frame.count - 1)
        lane = shard.lanes.get(frame.run)
        if lane is None:
            self.skipped += 1
            return
        # A frame behind the seal replaces lost messages: the run went on, though it had ended.
        if lane.sealed:
            self.ledger.go_on(frame.run, record.aux / 1e9)
        put_at = microseconds(self._monotonic - self._elapsed(record))
        lane.name_function(first, frame)
        row = lane.row(frame, first, put_at, place_of(record.position))
        self._gathered.add(lane, row, frame.weights)
        # Frames of this producer between the last one and this one were in corrupt records. Without this, the producer
        # would get the order to send frames that it has forgotten.
        lost = frame.sequence - shard.producers.expected(frame.producer) if frame.producer != NO_ID else 0
        if lost > 0:
            shard.producers.missed(frame.producer, frame.run, lost)
        if lost >= 0:  # else it is a copy behind later frames
            shard.producers.record(frame.producer, frame.run, first)

    def _copy_of_frame(self, record: Record) -> None:
        lane = self.ledger.shard.lanes.get(Frame.decode(record.body).run)
        if lane is not None and lane.batches.at(record.base) is not None:
            lane.batches.relocate({record.base: place_of(record.position)})
        else:  # no checkpoint can be read, and the original is deleted
            self._put(record)
            self._gathered.store()

    def _settle(self, record: Record) -> None:
        ruling, blob = open_settle(record.body)
        settlement = Settlement.decode(blob)
        lane = self.ledger.shard.lanes.get(settlement.run)
        if lane is None:
            self.skipped += 1
            return
        place, copied = place_of(record.position), record.flags & COPIED
        book = self.ledger.books.get(settlement.run)
        if copied and book is not None and book.results.relocate(old_place(record), place):
            return
        acked = _whole(settlement) if ruling is None else ruling.acked
        if copied and book is not None:  # behind results of the same documents that came later
            acked = [one for one in acked if not book.results.covered.overlap(one[0].ordinal, sum(one[0][1:]))]
        for piece, _ in acked:
            self._has_outcome(settlement.run, piece.first, piece.first + piece.n)
            for batch, a, b, state in lane.stretches(piece.first, piece.first + piece.n):
                if not state.final:
                    lane.move(batch, a, b, State.ACKED)
        if ruling is not None and not copied:
            elapsed = self._elapsed(record)
            for move in ruling.moves:
                self._move(move, settlement, elapsed)
        failed, put_off = ((), ()) if ruling is None or copied else (ruling.failed, ruling.put_off)
        settled = Settled(tuple(acked), failed, put_off)
        self.ledger.record(settlement, settled, [Stretch(piece, place, at) for piece, at in acked])
        self._note_end(settlement.run, record)

    def _move(self, move: Move, settlement: Settlement | None, elapsed: float) -> None:
        lane = self.ledger.shard.lanes.get(move.run)
        if lane is None:
            self.skipped += 1
            return
        self._has_outcome(move.run, move.lo, move.hi)
        now = self.ledger.shard.clock.monotonic()
        due = microseconds(now + max(0.0, move.delay / 1e6 - elapsed))
        for batch, a, b, state in lane.stretches(move.lo, move.hi):
            if state.final:
                continue  # behind a copy of a frame, the final states of its messages come a second time
            if move.counts is not None:
                self._remember(lane, move, settlement)
            if state is not State.READY and move.state is State.READY:
                lane.move(batch, a, b, State.LEASED)  # so that the next move queues it again
            lane.move(batch, a, b, move.state, suspect=move.suspect, due=due)

    @staticmethod
    def _remember(lane: Lane, move: Move, settlement: Settlement | None) -> None:
        counts = move.counts
        assert counts is not None, "called only for messages in trouble"
        trouble = lane.trouble.get(move.lo)
        if trouble is None:
            trouble = lane.trouble[move.lo] = Trouble()
        lane.retrying += trouble.deliveries == 0 and counts.deliveries > 0
        trouble.deliveries, trouble.exceptions = counts.deliveries, counts.exceptions
        trouble.reason, trouble.receipt = counts.reason, counts.receipt
        if isinstance(counts.failure, bytes):
            trouble.failure = counts.failure
        elif counts.failure is not None and settlement is not None:
            trouble.failure = bytes(settlement.entry(counts.failure))
        if settlement is not None and ONCE in settlement.riders:
            trouble.once = kept_at(settlement, settlement.position_of(move.lo)) or trouble.once

    @staticmethod
    def _lose(lane: Lane, lo: int, hi: int) -> None:
        for batch, a, b, state in lane.stretches(lo, hi):
            for index in range(a, b) if state.alive else ():
                lane.count_delivery(batch.first + index).reason = "lost after early ack"
                lane.move(batch, index, index + 1, State.DEAD)

    def _has_outcome(self, run: bytes, lo: int, hi: int) -> None:
        if run in self.early:
            self.early[run].discard(lo, hi)

    def _note_end(self, run: bytes | None, record: Record) -> None:
        if run is not None:
            self.ledger.end(run, record.aux / 1e9)

    def _elapsed(self, record: Record) -> float:
        """Return the seconds since a record was written, 0 when the clock was set back since."""
        return max(0.0, self._wall - record.aux / 1e9)


class _Gathered:
    """Consecutive frames, which are stored together because that is much faster."""

    def __init__(self) -> None:
        self._lane: Lane | None = None
        self._rows: list[Row] = []
        self._end = 0

    def add(self, lane: Lane, row: Row, weights: Sequence[int] | None) -> None:
        """Gather a frame, after storing the gathered ones if it does not fit in with them."""
        if lane is not self._lane or row.first < self._end or len(self._rows) == CHUNK:
            self.store()
            self._lane = lane
        self._end = row.first + row.n
        if weights is None:
            self._rows.append(row)
        else:
            self.store()
            lane.put_row(row, weights)

    def store(self) -> None:
        """Store the gathered frames."""
        if self._rows and self._lane is not None:
            self._lane.put_rows(self._rows)
            self._rows.clear()


def rebuild(ledger: Ledger, checkpoint: bytes | None, records: Iterable[Record]) -> Replay:
    """Bring a fresh ledger to where its log ends, and make messages ready whose delay has passed."""
    shard = ledger.shard
    replay = Replay(ledger)
    ledger.rebuilding = True
    if checkpoint is not None:
        replay.early = restore(ledger, checkpoint)
        replay.highest = shard.next_id - 1
    replay.run(records)
    highest = replay.highest if replay.highest >= first_id(shard.index, 0) else None
    shard.next_id = first_id(shard.index, next_sequence(highest))
    shard.tick()
    # Last, because until here the functions were kept without knowing who names them. The caller then calls
    # `Replay.end_early`.
    ledger.check_functions()
    return replay


def _whole(settlement: Settlement) -> list[tuple[Piece, int]]:
    """Return all pieces of a settlement, each with its index in the settlement's columns."""
    at, found = 0, []
    for piece in settlement.pieces:
        found.append((piece, at))
        at += piece.n
    return found
