"""A lease in a consumer's hands: what is left to run, and what is done but not yet settled.

The executor's thread takes from the left and appends outcomes; the event loop gives back from the
right and collects outcomes. Both ends are single deque and list operations, atomic in CPython, so
neither waits for the other.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from itertools import accumulate
from operator import itemgetter, sub
from typing import Any, TypeAlias

from dqlab.documents import Document
from dqlab.documents.ahead import ReadAhead
from dqlab.documents.document import reading_ahead
from dqlab.errors import FrameCorrupt
from dqlab.failures.failure import Failure
from dqlab.frame import NO_ID, Frame, Kind, Making, Outcome, Piece, Settlement

__all__ = ["UNDECIDED", "Chunk", "Done", "Undecided"]


class Undecided(IntEnum):
    """The outcome of a delivery until its consumer has decided on one; it is never settled."""

    UNDECIDED = 255
    """The storage of its document may have refused it; the payload is for `consumer.refusals`."""


UNDECIDED = Undecided.UNDECIDED
Done: TypeAlias = tuple[int, Outcome | Undecided, bytes, str | None]
"""One message's outcome: position in the chunk, outcome, payload, the document's key. A plain tuple: a
named one costs as much to make as calling a small function."""


SETTLE_MOST, SETTLE_BYTES = 4096, 8 << 20
"""Messages in one settlement, and bytes of their outcomes: it becomes one record of a log, which has a limit."""
_POSITION, _OUTCOME = itemgetter(0), itemgetter(1)
_MADE_BYTES = 3
"""Of each message, in what the settlement of a run has of how its results were made."""
_NAN = float("nan")
FAR_APART = 0.2
"""Seconds between the first and the last result of a settlement above which each has a time of its own."""
_HELD_BYTES = 1 << 20
"""Bytes of confirmed outcomes above which a chunk releases them before it ends."""


class Chunk:
    """The messages of one lease, all of one run.

    Parameters
    ----------
    lease, epoch : int
        Receipt, with each message's id.
    firsts : sequence of int
        Id of the first message of each frame.
    frames : sequence of Frame
        Cuts of the stored frames; ordinals as the queue wants them back.
    process : dict, optional
        The run's `Isolation`: its messages run in a process of their own.
    suspect, isolate : bool
        Its one message was lost with a consumer; more than once, so nothing may run beside it in the worker's process.
    in_vain : int
        How often it was lost beside others, since one of the two could not wait any longer.
    sink : bool
        The run has a sink: its results are written there, and settled as references.
    consumer : str
        Name of the consumer, as its results have it.
    attempts : mapping of int to int, optional
        By id, the number of this delivery, of messages with earlier ones that count.

    Attributes
    ----------
    began : float
        When the first of messages that run one after another began, seconds of `time.perf_counter`.
    ended : list of float
        By position, when a message ended; 0 where that is not known.
    waits : bool
        False: a message that is taken is here.
    took : dict of int to float
        By position, how long messages took that run together, or in a process.
    versions : dict of int to str
        By position, the versions of documents.
    code : str
        The short code version that its results have.
    process_began : float
        When the process began in which its messages run, seconds of `time.monotonic`.
    """

    waits = False

    def __init__(
        self,
        shard: int,
        lease: int,
        epoch: int,
        timeout: float,
        firsts: Sequence[int],
        frames: Sequence[Frame],
        process: dict[str, Any] | None = None,
        *,
        suspect: bool = False,
        isolate: bool = False,
        in_vain: int = 0,
        sink: bool = False,
        consumer: str = "",
        attempts: Mapping[int, int] | None = None,
        paged: bool = True,
    ):
        self.shard, self.lease, self.epoch, self.timeout = shard, lease, epoch, timeout
        self.run = frames[0].run
        self.frames, self.process = frames, process
        self.suspect, self.isolate, self.in_vain = suspect, isolate, in_vain
        self.sink, self.consumer, self.code = sink, consumer, ""
        self.process_began = 0.0
        self.pieces = [Piece(first, frame.ordinal, frame.count) for first, frame in zip(firsts, frames, strict=True)]
        self._starts = list(accumulate((piece.n for piece in self.pieces), initial=0))
        self.count = self._starts[-1]
        self._positions = tuple(range(self.count))
        # Written by what runs messages, before an outcome is in `done`. Not in `done` itself: a longer tuple, and a
        # column more to take out of it, cost each of a million messages more than this list does.
        self.began, self.ended = 0.0, [0.0] * self.count
        self.took: dict[int, float] = {}
        self.versions: dict[int, str] = {}
        self._made_bytes = 0 if self.run == NO_ID else _MADE_BYTES
        self._attempts = self._by_position(attempts) if attempts else {}
        self.todo: deque[int] = deque(self._positions)
        self.done: list[Done] = []
        self.cancelled: set[int] = set()
        self.cancelled_at = 0.0
        """When the last of them were cancelled, seconds of `time.monotonic`."""
        self.running: int | None = None
        self.document: tuple[int, str] | None = None
        """Position and key of the document that began last; other elements have no key that is known here."""
        self._began = self._spent = 0.0
        self.stopped = self.over = self.early = False
        self.acked = self.failed = self.units = 0
        self._paged = paged and frames[0].weights is not None
        self.last_error: str | None = None
        self._confirmed = self._sent = self._collected = self._referred = 0
        """How many entries of `done` have reached their shard, how many are on their way or there, how many of these
        `collect` has taken, and of a run with a sink may take."""
        self._collected_bytes = 0
        self.busy_collected = 0.0
        self._given_back: set[int] = set()
        self.ahead: ReadAhead | None = None
        self._messages: list[bytes] | None = None
        self.behind: Callable[[], Chunk | None] = lambda: None
        """Returns the chunk that runs after this one, if it is here."""
        self.leased_at = time.monotonic()

    def begin(self) -> None:
        """Note that the executor starts this chunk."""
        self._began = time.perf_counter()

    def end(self) -> None:
        """Note that the executor has finished it."""
        began, self._began = self._began, 0.0
        self.spend(time.perf_counter() - began)

    def spend(self, seconds: float) -> None:
        """Note time the executor gave to this chunk, when it runs several together."""
        self._spent += seconds

    @property
    def busy_s(self) -> float:
        """Seconds the executor has spent on it."""
        began = self._began
        return self._spent + (time.perf_counter() - began if began else 0.0)

    @property
    def settled(self) -> int:
        """Messages already taken by `collect` or `give_back`."""
        return self._collected + len(self._given_back)

    @property
    def finished(self) -> bool:
        """Whether every message was settled or given back."""
        return self.settled >= self.count

    def unsettled(self) -> list[tuple[int, int]]:
        """Return the ids whose outcome is still to come, not sent yet, or on its way as an ack that is not confirmed.

        A failure on its way is not among them: a shard that was recreated may have counted it already.
        """
        done = self.done[:]
        left = {index for index, outcome, _, _ in done[self._confirmed : self._sent] if not outcome}
        left |= {index for index, _, _, _ in done[self._sent :]}
        if not self.over:
            left |= set(self._positions).difference(self._given_back, map(_POSITION, done))
        return [(piece.first, piece.first + piece.n) for piece in self._pieces(tuple(sorted(left)))]

    def taken(self) -> list[int]:
        """Return the positions of messages that were begun and have no outcome."""
        return sorted(set(self._positions).difference(self.todo, self._given_back, map(_POSITION, self.done)))

    @property
    def kind(self) -> Kind:
        """What its payloads are."""
        return self.frames[0].kind

    def messages(self) -> list[bytes]:
        """Return every message's bytes, by position; always the same list."""
        if self._messages is None:
            self._messages = [message for frame in self.frames for message in frame.messages()]
        return self._messages

    def read_on(self, document: Document) -> None:
        """Begin to read what comes behind a document that is far away."""
        if self.ahead is None:
            self.ahead = reading_ahead(self.run, self.upcoming, document)
        self.ahead.begin(document)

    def rest(self) -> None:
        """Let go of what was read ahead, unless more comes behind this chunk."""
        if self.ahead is not None:
            self.ahead.rest()

    def upcoming(self, most: int) -> list[bytes]:
        """Return the bytes of up to so many messages that come next, here and in the chunk behind.

        Others may still take them.
        """
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
        """Return the positions in the run's input of messages at some positions."""
        if len(self.pieces) > 1:
            return [self.ordinal_at(index) for index in indexes]
        ordinal, span = self.pieces[0].ordinal, self._span_of(indexes)
        return (
            [ordinal + index for index in indexes] if span is None else [*range(ordinal + span[0], ordinal + span[1])]
        )

    def ended_at(self, indexes: Sequence[int]) -> list[float]:
        """Return when messages at some positions ended, as `ended` has it."""
        span = self._span_of(indexes)
        return [self.ended[index] for index in indexes] if span is None else self.ended[span[0] : span[1]]

    def _span_of(self, indexes: Sequence[int]) -> tuple[int, int] | None:
        """Return the first position and the one behind the last, if these are neighbours in order."""
        first, n = indexes[0], len(indexes)
        return (first, first + n) if tuple(indexes) == self._positions[first : first + n] else None

    def seconds_at(self, indexes: Sequence[int]) -> list[float]:
        """Return how long messages at some ascending positions took, NaN where that is not known.

        Of those that ran one after another each began when the one before it ended.
        """
        if self.took or not self.began:
            return [self.took.get(index, _NAN) for index in indexes]
        ended, first, last = self.ended, indexes[0], indexes[-1]
        before = ended[first - 1] if first else self.began
        if last - first + 1 == len(indexes) and before:
            ends = ended[first : last + 1]
            return list(map(sub, ends, [before, *ends[:-1]]))
        return [ended[index] - self._before(index) for index in indexes]

    def _before(self, index: int) -> float:
        """Return when the last message in front of a position ended, or the first one began."""
        return next((end for end in reversed(self.ended[:index]) if end), self.began)

    def attempts_at(self, indexes: Sequence[int]) -> list[int]:
        """Return the numbers of these deliveries of the messages at some positions."""
        return [self._attempts.get(index, 1) for index in indexes] if self._attempts else [1] * len(indexes)

    def _by_position(self, attempts: Mapping[int, int]) -> dict[int, int]:
        ids = (id for piece in self.pieces for id in range(piece.first, piece.first + piece.n))
        return {index: attempts[id] for index, id in enumerate(ids) if id in attempts}

    def _versions_at(self, indexes: Sequence[int]) -> list[str] | None:
        """Return the versions of documents at some positions, "" where there is none; None where none has any."""
        # By position, and not through the whole dict: the slot's thread puts more into it meanwhile.
        return [self.versions.get(index, "") for index in indexes] if self.versions else None

    def _weight_at(self, index: int) -> int:
        at = bisect_right(self._starts, index) - 1
        weights = self.frames[at].weights
        return weights[index - self._starts[at]] if weights is not None else 1

    def name_of(self, index: int) -> str:
        """Return a message's name for users: its document's key, else its position in the input, as ``#17``."""
        document = self.document
        if document is not None and document[0] == index:
            return document[1]
        at = bisect_right(self._starts, index) - 1
        return f"#{self.pieces[at].ordinal + index - self._starts[at]}"

    def cancel(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Skip these ids where they have not started; where they run in a process, that is killed."""
        ids = {id for lo, hi in ranges for id in range(lo, hi)}
        # In place: `run_calls` looks up the set that it has had since it began, and appends to such a list `done`.
        # Another object here would never be seen there.
        self.cancelled |= {index for index in range(self.count) if self.id_at(index) in ids}
        self.cancelled_at = time.monotonic()

    def give_back(self, n: int) -> bytes | memoryview | None:
        """Take up to `n` untouched messages from the right; return their settlement, or None."""
        indexes: list[int] = []
        while len(indexes) < n:
            try:
                indexes.append(self.todo.pop())
            except IndexError:
                break
        if not indexes:
            return None
        self._given_back.update(indexes)
        n = len(indexes)
        return self._encode(indexes[::-1], [Outcome.RETURN] * n, [b""] * n, [None] * n, 0.0)

    def give_up(self) -> bytes | memoryview | None:
        """Return a settlement that gives back all messages without an outcome; their thread settles nothing more.

        It leaves out cancelled messages and, with early ack, those that may have begun: they are not delivered again.
        """
        self.stopped = True
        ended = {*self._given_back, *self.cancelled, *map(_POSITION, self.done)}
        left = [index for index in (sorted(self.todo) if self.early else self._positions) if index not in ended]
        self.todo.clear()
        if not left:
            return None
        self._given_back.update(left)
        n = len(left)
        return self._encode(left, [Outcome.RETURN] * n, [b""] * n, [None] * n, 0.0)

    def collect(self, most: int = SETTLE_MOST, most_bytes: int = SETTLE_BYTES) -> bytes | memoryview | None:
        """Return a settlement of finished messages, or None when there are none; it ends before one that is undecided.

        Parameters
        ----------
        most : int
            Messages in it, at most.
        most_bytes : int
            About how many bytes their outcomes, keys and lineage may have; the first one is taken whatever it has.
        """
        if self.sink:
            most = min(most, self._referred - self._collected)
        done = _decided(self.done[self._collected : self._collected + most])
        if not done:
            return None
        indexes, outcomes, payloads, keys = zip(*done, strict=True)
        texts = 0 if keys.count(None) == len(done) else sum(map(len, filter(None, keys)))
        if self.versions:
            texts += sum(map(len, self._versions_at(indexes) or ()))
        if sum(map(len, payloads)) + texts + self._made_bytes * len(done) > most_bytes:
            sizes = accumulate(map(self._size, done))
            done = done[: max(1, bisect_right(list(sizes), most_bytes))]
            indexes, outcomes, payloads, keys = zip(*done, strict=True)
        busy = self.busy_s
        settlement = self._encode(indexes, outcomes, payloads, keys, max(0.0, busy - self.busy_collected), done)
        self.busy_collected = busy
        self._collected += len(done)
        self._collected_bytes += len(settlement)
        acked = outcomes.count(Outcome.ACK)
        self.acked += acked
        if acked < len(done):
            self._note_failures(done)
        self.units += sum(self._weight_at(entry[0]) for entry in done) if self._paged else len(done)
        return settlement

    def pending(self) -> list[Done]:
        """Return outcomes, with a sink, whose results are not there yet; `collect` takes none of them.

        They end before one that is undecided.
        """
        return _decided(self.done[self._referred : self._referred + SETTLE_MOST])

    @property
    def undecided(self) -> bool:
        """Whether the outcome that is settled next has to be decided before."""
        first = self._referred if self.sink else self._collected
        return first < len(self.done) and self.done[first][1] is UNDECIDED

    def refusals(self) -> list[tuple[int, Done]]:
        """Return the outcomes that are undecided, with their places in `done`."""
        first = self._referred if self.sink else self._collected
        return [(place, each) for place, each in enumerate(self.done[first:], first) if each[1] is UNDECIDED]

    def refer(self, done: Sequence[Done]) -> None:
        """Have other outcomes in the place of those that `pending` returned: their results are elsewhere now."""
        self.done[self._referred : self._referred + len(done)] = done
        self._referred += len(done)

    def sending(self) -> None:
        """Note that all that was collected is being sent: what of it a shard knows is not certain until it answers."""
        self._sent = self._collected

    def confirm(self) -> None:
        """Note that all that was collected has reached its shard; large outcomes need not be held any longer."""
        # All of it: right because one `Slot._settle_done` of a chunk follows another. With two at a time, acks of the
        # other one would count as confirmed while they are on their way, and not be reclaimed from a recreated shard.
        if self._collected_bytes > _HELD_BYTES:
            self._collected_bytes = 0
            for at in range(self._confirmed, self._collected):
                index, outcome, _, _ = self.done[at]
                self.done[at] = index, outcome, b"", None
        self._confirmed = self._sent = self._collected

    def nothing(self) -> bytes | memoryview:
        """Return an empty settlement."""
        return Settlement.encode([], b"", [], run=self.run, epoch=self.epoch, lease=self.lease)

    def _size(self, done: Done) -> int:
        index, _, payload, key = done
        return len(payload) + len(key or "") + len(self.versions.get(index, "")) + self._made_bytes

    def _note_failures(self, done: list[Done]) -> None:
        failed = [payload for _, outcome, payload, _ in done if outcome in (Outcome.FAIL, Outcome.REJECT)]
        self.failed += len(failed)
        if failed:
            self.last_error = Failure.from_bytes(failed[-1]).error

    def _encode(
        self,
        indexes: Sequence[int],
        outcomes: Sequence[Outcome],
        payloads: Sequence[bytes],
        keys: Sequence[str | None],
        busy_s: float,
        done: Sequence[Done] = (),
    ) -> bytes | memoryview:
        """Pack outcomes by position; `done` has those of messages that have run, in the order in which they ended."""
        n, first = len(indexes), indexes[0]
        if tuple(indexes) != self._positions[first : first + n]:
            rows = sorted(zip(indexes, outcomes, payloads, keys, strict=True), key=_POSITION)
            indexes, outcomes, payloads, keys = zip(*rows, strict=True)
        acked = self.run != NO_ID and Outcome.ACK in outcomes
        return Settlement.encode(
            self._pieces(tuple(indexes)),
            bytes(n) if outcomes.count(Outcome.ACK) == n else bytes(outcomes),  # ACK is 0
            payloads,
            run=self.run,
            epoch=self.epoch,
            lease=self.lease,
            busy_s=busy_s,
            keys=None if keys.count(None) == n else [key or "" for key in keys],
            made=self._making(indexes, done) if acked else None,
        )

    def _making(self, indexes: Sequence[int], done: Sequence[Done]) -> Making:
        """Return how results were made; single calls, which are in no table, have none of it."""
        seconds = self.seconds_at(indexes)
        attempts = self.attempts_at(indexes) if self._attempts else None
        versions = self._versions_at(indexes)
        now, ages = time.perf_counter(), None
        first = next(self.ended[index] for index, outcome, *_ in done if not outcome) or now
        last = next(self.ended[index] for index, outcome, *_ in reversed(done) if not outcome) or now
        if last - first > FAR_APART:
            ages = [last - (self.ended[index] or last) for index in indexes]
            first = last
        at = time.time() - now + (first + last) / 2
        return Making(self.consumer, self.code, at, seconds, ages, attempts, versions)

    def _pieces(self, indexes: tuple[int, ...]) -> list[Piece]:
        """Join neighbouring positions of one frame into pieces.

        Columns of a settlement bear no positions of their own, so each piece is compared with the positions it
        stands for: whole pieces at a time, which costs some nanoseconds a message.

        Raises
        ------
        FrameCorrupt
            The positions do not ascend.
        """
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


def _decided(done: list[Done]) -> list[Done]:
    """Return the outcomes before the first one that is undecided."""
    outcomes = list(map(_OUTCOME, done))
    return done[: outcomes.index(UNDECIDED)] if UNDECIDED in outcomes else done
