"""The messages of one lease on their consumer: those left to run, and those that have ended and are not settled.

The executor's thread takes messages from the left and appends outcomes, while the event loop gives back messages from
the right and collects outcomes. Each of these is one deque or list operation, atomic in CPython, so no lock is needed.
"""

from __future__ import annotations

import pickle
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgpack

from dqlab.cluster.consumer.running.notes import RIDERS, Noted, kept_in_failures
from dqlab.documents import Document, key_texts
from dqlab.documents.ahead import ReadAhead
from dqlab.documents.document import reading_ahead
from dqlab.documents.spans import opened
from dqlab.errors import FrameCorrupt, Reject
from dqlab.failures.failure import Failure
from dqlab.frame import NO_ID, Frame, Outcome, Piece, Settlement

T = TypeVar("T")


SETTLE_MOST, SETTLE_BYTES = 4096, 8 << 20
"""Most messages of a settlement and bytes of their outcomes: it becomes one record of a log, which has a limit."""
_POSITION = itemgetter(0)
_MADE_BYTES = 3
"""Bytes of each message in the part of a settlement that describes how results were made."""
_HELD_BYTES = 1 << 20
"""Bytes of confirmed outcomes above which a chunk releases them before it ends."""


class Undecided(IntEnum):
    """The outcome of a delivery whose consumer has not decided on one."""

    UNDECIDED = 255
    """The document's storage may have refused it; `consumer.refusals` reads the payload, and no shard ever gets it."""


UNDECIDED = Undecided.UNDECIDED
Done: TypeAlias = tuple[int, Outcome | Undecided, bytes, str | int | None]
"""One message's outcome: position in the chunk, outcome, payload, the document's key or label."""


class Columns(NamedTuple):
    """Some outcomes, by column."""

    positions: list[int]
    outcomes: list[Outcome | Undecided]
    payloads: list[bytes]
    keys: list[str | int | None]

    @classmethod
    def of(cls, done: Iterable[Done]) -> Columns:
        """Return outcomes by column."""
        return cls(*map(list, zip(*done, strict=True)))

    @classmethod
    def returned(cls, positions: list[int]) -> Columns:
        """Return the outcomes of messages that are given back."""
        n = len(positions)
        return cls(positions, [Outcome.RETURN] * n, [b""] * n, [None] * n)


class Outcomes:
    """The outcomes of one chunk's messages, in the order of their ends: a column for each of their parts."""

    # The executor's thread adds outcomes while the event loop reads and replaces earlier ones. A payload is added last,
    # in one atomic step, and outcomes are counted by payloads, so that a counted one has all its other parts.

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.keys: list[str | int | None] = []
        self.payloads: list[bytes] = []
        self._others: dict[int, Outcome | Undecided] = {}
        """Outcomes that are no acks, by their places in the columns."""

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[Done]:
        return zip(*self.columns(0, len(self)), strict=True)

    def __getitem__(self, place: int) -> Done:
        return self.positions[place], self.outcome(place), self.payloads[place], self.keys[place]

    def append(self, done: Done) -> None:
        """Add an outcome."""
        n = len(self.payloads)
        # An exception that was raised in the thread from outside may have come between two columns of a result.
        del self.positions[n:], self.keys[n:]
        index, outcome, payload, key = done
        self.positions.append(index)
        self.keys.append(key)
        if outcome is not Outcome.ACK:
            self._others[n] = outcome
        self.payloads.append(payload)

    def outcome(self, place: int) -> Outcome | Undecided:
        """Return the outcome at a place."""
        return self._others.get(place, Outcome.ACK)

    def columns(self, start: int, stop: int) -> Columns:
        """Return the outcomes at places from `start` to `stop`."""
        stop = min(stop, len(self.payloads))
        outcomes: list[Outcome | Undecided] = [Outcome.ACK] * (stop - start)
        if self._others:
            outcomes = [self.outcome(place) for place in range(start, stop)]
        return Columns(self.positions[start:stop], outcomes, self.payloads[start:stop], self.keys[start:stop])

    def ended(self) -> list[int]:
        """Return the positions of all messages that have an outcome."""
        return self.positions[: len(self.payloads)]

    def decided(self, start: int, stop: int) -> int:
        """Return the place of the first undecided outcome from `start` on, at most `stop`."""
        stop = min(stop, len(self.payloads))
        if not self._others:
            return stop
        return next((place for place in range(start, stop) if self.outcome(place) is UNDECIDED), stop)

    def replace(self, start: int, done: Columns) -> None:
        """Replace the outcomes from `start` on by others of the same messages."""
        stop, outcomes = start + len(done.payloads), done.outcomes
        self.payloads[start:stop], self.keys[start:stop] = done.payloads, done.keys
        if self._others or outcomes.count(Outcome.ACK) < len(outcomes):
            self._others.update(enumerate(outcomes, start))

    def release(self, start: int, stop: int) -> None:
        """Let go of the payloads and keys of some outcomes."""
        self.payloads[start:stop], self.keys[start:stop] = [b""] * (stop - start), [None] * (stop - start)


@dataclass(frozen=True, slots=True)
class Lease:
    """What a shard lends its consumer some messages for."""

    shard: int
    id: int
    epoch: int
    timeout: float
    """Seconds until it expires, unless it is renewed."""
    process: dict[str, Any] | None = None
    """The record of the run's `Isolation`; None: no process."""
    sink: bool = False
    """Results are written to the run's sink, and settled as references."""
    paced: bool = False
    """Only so many calls of its run may run at once."""
    suspect: bool = False
    """Its one message was lost with a consumer."""
    paged: bool = True
    """Weights of messages are pages."""
    consumer: str = ""
    """As the results name it."""
    attempts: Mapping[int, int] = field(default_factory=dict)
    """Number of this delivery, by id, where earlier ones count."""
    once: Mapping[int, bytes] = field(default_factory=dict)
    """Answers that earlier deliveries have kept, by id."""


class Chunk(Noted):
    """Messages of one lease, all of one run and one function."""

    todo: deque[int]
    done: Outcomes
    cancelled: set[int]

    def __init__(
        self,
        lease: Lease,
        firsts: Sequence[int],  # the id of the first message of each frame
        frames: Sequence[Frame],  # cuts of the stored frames, with the ordinals that the settlement repeats
    ):
        self.lease = lease
        self.run = frames[0].run
        self.frames = frames
        self.apart: set[tuple[bytes, int]] | None = None
        """Set if it runs in a process of the slot only because it is a suspect: where to note that it raised there."""
        self.columns: Mapping[str, Any] | None = None
        """Columns that the code version declares for its results."""
        self.pieces = [Piece(first, frame.ordinal, frame.count) for first, frame in zip(firsts, frames, strict=True)]
        self._starts = list(accumulate((piece.n for piece in self.pieces), initial=0))
        self.count = self._starts[-1]
        self._positions = tuple(range(self.count))
        super().__init__(self.count)
        self.kind = frames[0].kind
        self.once = {at: msgpack.unpackb(answers) for at, answers in self._by_position(lease.once).items()}
        self._made_bytes = 0 if self.run == NO_ID else _MADE_BYTES
        self.attempts = self._by_position(lease.attempts)
        self.todo = deque(self._positions)
        self.done = Outcomes()
        # Positions, not ids. Change it in place and only add: see `cancel`; `Slot._place` and `give_up` count on it.
        self.cancelled = set()
        self.cancelled_at = 0.0
        """When messages were last cancelled, seconds of `time.monotonic`."""
        self.over = self.early = False
        self.seen: tuple[int, float, float] | None = None
        """The message that was seen to run, since when, and when the next report of it is due, for the slot."""
        import asyncio  # here: a process that only runs functions starts in half the time without it

        self.settling = asyncio.Lock()
        """Held by the one settlement that is on its way."""
        self.acked = self.failed = self.units = 0
        # `units` counts pages, the weights, and not messages.
        self._paged = lease.paged and frames[0].weights is not None
        self.last_error: str | None = None
        self._confirmed = self._sent = self._collected = self._referred = 0
        """Prefixes of `done`, by length: acknowledged by the shard, sent to it, taken by `collect`, and, with a sink,
        written there, so that `collect` may take it."""
        self._began = self._spent = self.busy_collected = 0.0
        self._collected_bytes = 0
        self._given_back: set[int] = set()
        self.ahead: ReadAhead | None = None
        self._messages: list[bytes] | None = None
        self.behind: Callable[[], Chunk | None] = lambda: None
        """Returns the slot's next chunk, or None."""
        self.leased_at = time.monotonic()

    def pay(self, index: int, amounts: Mapping[str, float]) -> None:
        """Note what a message has spent, or raise Reject where it has its result."""
        if self.ended[index]:  # by a task that the function has left behind
            raise Reject("dq.spend: the document has its result, and nothing counts this any more")
        super().pay(index, amounts)

    def begin(self) -> None:
        """Note that the executor starts this chunk."""
        self._began = time.perf_counter()

    def end(self) -> None:
        """Note that the executor has finished this chunk."""
        began, self._began = self._began, 0.0
        self.spend(time.perf_counter() - began)

    def spend(self, seconds: float) -> None:
        """Add seconds that the executor spent on this chunk, where it runs several together."""
        self._spent += seconds

    @property
    def busy_s(self) -> float:
        """Seconds that the executor has spent on this chunk."""
        began = self._began  # read once: the slot's thread may set it to 0 between two reads
        return self._spent + (time.perf_counter() - began if began else 0.0)

    @property
    def settled(self) -> int:
        """How many messages `collect` and `give_back` have taken."""
        return self._collected + len(self._given_back)

    @property
    def finished(self) -> bool:
        """Whether every message was settled or given back."""
        return self.settled >= self.count

    def unsettled(self) -> list[tuple[int, int]]:
        """Return the ids to reclaim from a recreated shard, as ranges."""
        # Of what is on its way only acks, which count once however often they are sent. A failure may have been counted
        # by a shard that was recreated since: reclaimed here, it would count twice.
        done = self.done.columns(0, len(self.done))
        on_its_way = slice(self._confirmed, self._sent)
        left = {
            at for at, outcome in zip(done.positions[on_its_way], done.outcomes[on_its_way], strict=True) if not outcome
        }
        left.update(done.positions[self._sent :])
        if not self.over:
            left |= set(self._positions).difference(self._given_back, done.positions)
        return [(piece.first, piece.first + piece.n) for piece in self._pieces(tuple(sorted(left)))]

    def taken(self) -> list[int]:
        """Return the positions of messages that have begun and have no outcome."""
        return sorted(set(self._positions).difference(self.todo, self._given_back, self.done.ended()))

    def messages(self) -> list[bytes]:
        """Return the bytes of every message, by position."""
        # One list for all callers: cutting the frames copies every message.
        if self._messages is None:
            self._messages = [message for frame in self.frames for message in frame.messages()]
        return self._messages

    def opening(self) -> tuple[Callable[[Any], Any], Sequence[Any]]:
        """Return a function that opens a message, and what it takes, by position."""
        values: list[Any] = []
        for frame in self.frames:
            some = None if frame.numbered is None else opened(frame.numbered)
            if some is None:
                return pickle.loads, self.messages()
            values += some
        return values.__getitem__, range(len(values))

    def read_on(self, document: Document) -> None:
        """Begin to read the documents that follow one behind a URL."""
        if self.ahead is None:
            self.ahead = reading_ahead(self.run, self.upcoming, document)
        self.ahead.begin(document)

    def rest(self) -> None:
        """Release documents that were read ahead, unless another chunk follows."""
        if self.ahead is not None:
            self.ahead.rest()

    def upcoming(self, most: int) -> list[bytes]:
        """Return the bytes of up to `most` next messages, of this chunk and the one behind it."""
        # Without taking them: the event loop may still give them back, at any moment, so `todo` is read by index.
        messages, found = self.messages(), list[bytes]()
        for at in range(most):
            try:
                found.append(messages[self.todo[at]])
            except IndexError:
                behind = self.behind()
                if behind is None or behind.run != self.run:
                    return found
                return found + behind.upcoming(most - at)
        return found

    def id_at(self, index: int) -> int:
        """Return the id of the message at a position."""
        at = bisect_right(self._starts, index) - 1
        return self.pieces[at].first + index - self._starts[at]

    def ordinal_at(self, index: int) -> int:
        """Return the position in the run's input of the message at a position."""
        at = bisect_right(self._starts, index) - 1
        return self.pieces[at].ordinal + index - self._starts[at]

    def ordinals_at(self, indexes: Sequence[int]) -> list[int]:
        """Return the positions in the run's input of the messages at some positions."""
        if len(self.pieces) > 1:
            return [self.ordinal_at(index) for index in indexes]
        return list(map(self.pieces[0].ordinal.__add__, indexes))

    def _by_position(self, found: Mapping[int, T]) -> dict[int, T]:
        ids = (id for piece in self.pieces if found for id in range(piece.first, piece.first + piece.n))
        return {index: found[id] for index, id in enumerate(ids) if id in found}

    def _weight_at(self, index: int) -> int:
        at = bisect_right(self._starts, index) - 1
        weights = self.frames[at].weights
        return weights[index - self._starts[at]] if weights is not None else 1

    def nbytes_at(self, index: int) -> int:
        """Return the bytes of the message at a position: of its file, where the run counts bytes."""
        own = len(self.messages()[index])
        return own if self._paged or self.lease.paged else max(own, self._weight_at(index))

    def name_of(self, index: int) -> str:
        """Return a message's name for users, its document's key or its position in the input as ``#17``."""
        document = self.document
        if document is not None and document[0] == index:
            return document[1]
        return f"#{self.ordinal_at(index)}"

    def cancel(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Cancel messages by ranges of ids, so that those that have not begun are skipped."""
        ids = {id for lo, hi in ranges for id in range(lo, hi)}
        # In place, as `done` and `todo` are: `run_calls` keeps references to them from its start, and would never see
        # another object. Ids of other chunks are among them: one lease may be several chunks.
        self.cancelled |= {index for index in range(self.count) if self.id_at(index) in ids}
        self.cancelled_at = time.monotonic()

    def give_back(self, n: int) -> bytes | memoryview | None:
        """Take up to `n` untouched messages from the right and return their settlement, or None."""
        indexes: list[int] = []
        while len(indexes) < n:
            try:
                indexes.append(self.todo.pop())
            except IndexError:
                break
        if not indexes:
            return None
        self._given_back.update(indexes)
        return self._returned(indexes[::-1])

    def give_up(self) -> bytes | memoryview | None:
        """Stop this chunk and return a settlement that gives back messages without an outcome, or None."""
        self.stopped = True
        # Not the cancelled ones, nor, with early ack, those that may have begun: these are not delivered again.
        ended = {*self._given_back, *self.cancelled, *self.done.ended()}
        left = [index for index in (sorted(self.todo) if self.early else self._positions) if index not in ended]
        self.todo.clear()
        if not left:
            return None
        self._given_back.update(left)
        return self._returned(left)

    def collect(self, most: int = SETTLE_MOST, most_bytes: int = SETTLE_BYTES) -> bytes | memoryview | None:
        """Return a settlement of up to `most` outcomes before the first undecided one, or None when there are none."""
        start = self._collected
        stop = self.done.decided(start, min(start + most, self._referred) if self.lease.sink else start + most)
        if stop == start:
            return None
        if self.output:
            kept_in_failures(self, start, stop)
        done = self.done.columns(start, stop)
        if self._size(done) > most_bytes:
            # At least one, however large: a settlement that stays empty would never be sent.
            ends = accumulate(self._size(self.done.columns(at, at + 1)) for at in range(start, stop))
            stop = start + max(1, bisect_right(list(ends), most_bytes))
            done = self.done.columns(start, stop)
        busy = self.busy_s
        settlement = self._encode(done, max(0.0, busy - self.busy_collected))
        self.busy_collected = busy
        self._collected = stop
        self._collected_bytes += len(settlement)
        acked = done.outcomes.count(Outcome.ACK)
        self.acked += acked
        if acked < stop - start:
            self._note_failures(done)
        self.units += sum(map(self._weight_at, done.positions)) if self._paged else stop - start
        return settlement

    def pending(self) -> Columns:
        """Return the decided outcomes whose results are not in the sink yet, which `collect` leaves."""
        start = self._referred
        return self.done.columns(start, self.done.decided(start, start + SETTLE_MOST))

    @property
    def waiting(self) -> int:
        """How many rows wait for their part of the sink."""
        return self.pending().outcomes.count(Outcome.ACK)

    @property
    def news(self) -> bool:
        """Whether messages have ended and are not settled."""
        return len(self.done) > self._next

    @property
    def undecided(self) -> bool:
        """Whether the next outcome to settle is undecided."""
        return self.news and self.done.outcome(self._next) is UNDECIDED

    def refusals(self) -> list[tuple[int, Done]]:
        """Return the undecided outcomes, with their places in `done`."""
        first = self._next
        return [(place, each) for place, each in enumerate(self.done) if place >= first and each[1] is UNDECIDED]

    @property
    def _next(self) -> int:
        """The place in `done` of the next outcome to settle or to write."""
        return self._referred if self.lease.sink else self._collected

    def refer(self, done: Columns) -> None:
        """Replace the outcomes that `pending` returned by those that refer to the sink."""
        self.done.replace(self._referred, done)
        self._referred += len(done.payloads)

    def sending(self) -> None:
        """Note that all collected outcomes are being sent, so that a shard may or may not know them."""
        self._sent = self._collected

    def confirm(self) -> None:
        """Note that the shard has acknowledged all collected outcomes, and release large ones."""
        # All of them: `Slot._settle` settles a chunk once at a time. With two at a time, acks of the other one
        # would count as confirmed while they are on their way, and a recreated shard would deliver them again.
        if self._collected_bytes > _HELD_BYTES:
            self._collected_bytes = 0
            self.done.release(self._confirmed, self._collected)
        self._confirmed = self._sent = self._collected

    def nothing(self) -> bytes | memoryview:
        """Return an empty settlement."""
        return Settlement.encode([], b"", [], run=self.run, epoch=self.lease.epoch, lease=self.lease.id)

    def _size(self, done: Columns) -> int:
        """Return the bytes of some outcomes in a settlement."""
        keyed = done.keys.count(None) < len(done.keys)
        texts = sum(len(key) for key in done.keys if type(key) is str) if keyed else 0
        if self.versions:
            texts += sum(map(len, self.versions_at(done.positions) or ()))
        if self.output:
            texts += sum(len(self.output.get(position, ())) for position in done.positions)
        return sum(map(len, done.payloads)) + texts + self._made_bytes * len(done.payloads)

    def _note_failures(self, done: Columns) -> None:
        pairs = zip(done.outcomes, done.payloads, strict=True)
        failed = [payload for outcome, payload in pairs if outcome in (Outcome.FAIL, Outcome.REJECT)]
        self.failed += len(failed)
        if failed:
            self.last_error = Failure.from_bytes(failed[-1]).error

    def _returned(self, indexes: list[int]) -> bytes | memoryview:
        """Pack messages that are given back."""
        return self._encode(Columns.returned(indexes), 0.0)

    def _encode(self, done: Columns, busy_s: float) -> bytes | memoryview:
        """Pack outcomes."""
        acked = done.outcomes.count(Outcome.ACK)
        # Single calls are in no table, so they need neither lineage nor riders; what a failed call has cost counts.
        recorded = acked and self.run != NO_ID
        made = self.making(done) if recorded else None
        indexes, n = done.positions, len(done.positions)
        if tuple(indexes) != self._positions[indexes[0] : indexes[0] + n]:
            done = Columns.of(sorted(zip(*done, strict=True), key=_POSITION))
        riders = {name: entries for name, make in RIDERS.items() if self.run != NO_ID and (entries := make(self, done))}
        return Settlement.encode(
            self._pieces(tuple(done.positions)),
            bytes(n) if acked == n else bytes(done.outcomes),  # ACK is 0
            done.payloads,
            run=self.run,
            epoch=self.lease.epoch,
            lease=self.lease.id,
            busy_s=busy_s,
            keys=None if done.keys.count(None) == n else key_texts(done.keys),
            made=made,
            riders=riders,
        )

    def _pieces(self, indexes: tuple[int, ...]) -> list[Piece]:
        """Join neighbouring positions of one frame into pieces, or raise FrameCorrupt if they do not ascend."""
        # The columns of a settlement have no positions of their own, so each piece is compared with the positions that
        # it stands for. Comparing whole pieces costs some nanoseconds a message.
        starts, positions, pieces, at, least = self._starts, self._positions, [], 0, 0
        while at < len(indexes):
            lo = indexes[at]
            if lo < least:
                raise FrameCorrupt(kind="settlement", reason=f"position {lo} stands behind {least - 1}", size=0)
            frame = bisect_right(starts, lo) - 1
            offset = lo - starts[frame]
            n = min(len(indexes) - at, starts[frame + 1] - lo)
            if indexes[at + n - 1] != lo + n - 1 or indexes[at : at + n] != positions[lo : lo + n]:
                n = next(i for i in range(1, n) if indexes[at + i] != lo + i)
            piece = self.pieces[frame]
            pieces.append(Piece(piece.first + offset, piece.ordinal + offset, n))
            at, least = at + n, lo + n
        return pieces
