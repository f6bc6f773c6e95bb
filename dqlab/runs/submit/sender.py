"""Sends messages to a queue: gathers them into frames, numbers these, and waits until they are confirmed.

Users' threads append; one coroutine on the client's loop takes. An idle sender sends at once; while puts are in flight,
the next frame gathers for at most 2 ms. Frames are numbered per shard without gaps, so a repeated put counts once, and
each producer's messages stay in order. There are two kinds of producers: plain puts, and the documents of a run.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
import uuid
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from dqlab.cluster.transport import calls
from dqlab.cluster.transport.internals import event_loop
from dqlab.cluster.transport.orders import Open
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.cluster.transport.ref import Limit
from dqlab.documents import Document
from dqlab.documents.parts import Row
from dqlab.errors import (
    ActorGone,
    CallTimeout,
    DqlabError,
    PutError,
    PutFailed,
    PutTimeout,
    QueueClosed,
    QueueFull,
    RunCancelled,
    in_words,
)
from dqlab.frame import NO_ID, Frame, Kind, Numbered
from dqlab.log.errors import DiskFull
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.rules.states import Verdict
from dqlab.runs.submit.elements import weigher

logger = logging.getLogger("dqlab.sender")

FRAME_MESSAGES = 1000
FRAME_BYTES = 256 << 10
WINDOW = 4
"""Frames of a run in flight. Plain puts have one, so that a refused frame leaves no gap that later frames wait for."""
LINGER = 0.002
"""Seconds that a frame gathers at most while others are in flight."""
FRAMES_PER_CALL = 4
"""Frames of a run in one call, if that many wait: each call costs a millisecond of CPU, whatever its size."""
BUFFER_MESSAGES = 16 * FRAME_MESSAGES
BUFFER_BYTES = 16 * FRAME_BYTES
ROOM_WAIT = 5.0
"""Seconds that a put waits at the queue for room before the queue answers with its state."""
CONFIRM_WAIT = 30.0
"""Seconds that a plain put waits for an answer."""
_UNBOUNDED = 1 << 62


@dataclass(eq=False)
class Ticket:
    """Tracks one put, and is done when all its messages are confirmed."""

    count: int
    done: concurrent.futures.Future[list[tuple[int, int]]] = field(default_factory=concurrent.futures.Future)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """Half-open ranges of ids, in the order of the messages."""
    confirmed: int = 0
    read: bool = False
    """Whether its caller has asked for the result, so that `flush` need not raise a refusal."""
    handed: float = field(default_factory=time.monotonic)
    """When the caller made it, on the monotonic clock."""
    refused: bool = False
    """Whether it has failed; the rest of it is not sent."""

    def confirm(self, first: int, n: int) -> None:
        """Record that `n` messages have the ids from `first` on."""
        if self.ranges and self.ranges[-1][1] == first:
            self.ranges[-1] = (self.ranges[-1][0], first + n)
        else:
            self.ranges.append((first, first + n))
        self.confirmed += n
        if self.confirmed == self.count and not self.done.done():
            self.done.set_result(self.ranges)

    async def landed(self) -> list[tuple[int, int]]:
        """Wait on the client's loop until all messages are confirmed, or raise why they were refused."""
        if not self.done.done():
            news = asyncio.Event()
            self.done.add_done_callback(lambda _: news.set())  # an Event suffices: senders confirm on this loop
            await news.wait()
        return self.done.result(0)

    def fail(self, error: BaseException) -> None:
        """Record that the put was refused."""
        self.refused = True
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True, eq=False)
class Entry:
    """What the messages of one frame share."""

    kind: Kind
    function: bytes = NO_ID
    blob: bytes = b""
    """The pickled function."""

    def joins(self, other: Entry) -> bool:
        """Whether messages of both may share a frame."""
        return self is other or (self.function == other.function and self.kind == other.kind)


@dataclass(slots=True, eq=False)
class UnsentFrame:
    """A frame without bytes, which are encoded when it is sent."""

    entry: Entry
    payloads: list[bytes] | Numbered = field(default_factory=list)
    weights: list[int] | None = None
    tickets: list[tuple[Ticket, int]] = field(default_factory=list)
    """The puts that the messages are of, in their order, each with how many."""
    shard: int = 0
    ordinal: int = 0
    sequence: int = 0
    opens: bool = False
    """Whether its first message begins a row group in its shard."""


class Sender:
    """Sends the messages of one producer, for PutSender and RunSender."""

    def __init__(
        self,
        handle: Handle,
        *,
        run: bytes,
        producer: bytes,
        opening: Open | None = None,
        patient: bool = False,
        maxsize: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self.handle = handle
        self.run = run
        """The lane to put into; NO_ID for plain puts."""
        self.producer = producer
        """The name under which frames are numbered."""
        self.patient = patient
        """Whether to wait for room and answers as long as it takes, as a run does. Otherwise raise QueueFull when no
        consumer makes room, and PutTimeout when the queue does not answer."""
        self.max_bytes = max_bytes
        self.sent = 0
        """Messages in frames so far; for a run, the ordinal of the next document."""
        self.opening = opening
        """Opens the run's lane; sent with frames until one is confirmed."""
        # A lane takes a frame whole or not at all: a frame as large as the lane would wait until the lane is empty.
        self.frame_messages = max(1, min((maxsize or _UNBOUNDED) // WINDOW, FRAME_MESSAGES))
        self.frames_per_call = FRAMES_PER_CALL if patient and (maxsize or _UNBOUNDED) >= BUFFER_MESSAGES * WINDOW else 1
        self.frame_bytes = max(1, min((max_bytes or _UNBOUNDED) // WINDOW, FRAME_BYTES))
        self.buffer: deque[Any] = deque()
        self.handed_bytes = self.taken_bytes = 0
        """Bytes put into the buffer and taken from it; two counters, since the loop does not take `_appending`."""
        self.on_unserved: Callable[[], None] | None = None
        """Called on the loop when the queue took calls and knows no consumer."""
        self._room = threading.Condition()
        self.awake = False
        self._pump: asyncio.Task[None] | None = None
        self._flying: set[asyncio.Task[None]] = set()
        self._next_shard = self.shard = 0
        self._next_sequence = [0] * handle.shards
        self._opened = [opening is None] * handle.shards
        """For each shard, whether it has the run's lane."""
        self._functions: list[set[bytes]] = [set() for _ in range(handle.shards)]
        """For each shard, the functions that it has."""
        self._numbered: list[set[UnsentFrame]] = [set() for _ in range(handle.shards)]
        """For each shard, frames that are neither confirmed nor refused."""
        self.here = [0] * handle.shards
        """For each shard, how many messages of the run it has confirmed."""
        self.failure: BaseException | None = None
        self._unread: Ticket | None = None
        """The first refused put whose caller has not asked for the result; `flush` raises its error."""

    # --- users' threads ---------------------------------------------------------------------

    def hand_over(self) -> None:
        """Start sending what the buffer holds, wait while it holds too much, and raise why the sender gave up."""
        if self.failure is not None:
            raise self.failure
        # Read without the lock, for speed: `_run` looks at the buffer again after it clears the flag.
        if not self.awake:
            self._wake()
        if self.buffered > BUFFER_MESSAGES or self.buffered_bytes > BUFFER_BYTES:
            self._until(lambda: self._has_room() or self.failure is not None)

    @property
    def buffered(self) -> int:
        """Messages in the buffer."""
        return len(self.buffer)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the messages in the buffer."""
        return self.handed_bytes - self.taken_bytes

    def _has_room(self) -> bool:
        # Half, so that the waiting thread then fills a good part of the buffer, rather than waking for every frame.
        return self.buffered <= BUFFER_MESSAGES // 2 and self.buffered_bytes <= BUFFER_BYTES // 2

    def flush(self, timeout: float | None) -> None:
        """Wait until all is confirmed, or raise PutTimeout, why the sender gave up, or an unread refusal."""
        if not self._until(lambda: not self.busy or self.failure is not None, timeout):
            # What is in flight may still be confirmed.
            raise PutTimeout(queue=self.handle.name, count=self.buffered, seconds=timeout)
        if self.failure is not None:
            raise self.failure
        unread, self._unread = self._unread, None
        if unread is not None and not unread.read:
            unread.done.result(0)

    def land(self) -> None:
        """Wait until no put is in flight, whether confirmed or refused."""
        self._until(lambda: not (self._flying or self.awake))

    def _until(self, holds: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until something holds, and return whether it did in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._room:
            while not holds():
                # At most 0.2 s at a time: nothing notifies `_room` when the scheduler is gone.
                left = 0.2 if deadline is None else min(0.2, deadline - time.monotonic())
                if left <= 0:
                    return False
                self._room.wait(left)
                self.handle.link.check_scheduler()
        return True

    @property
    def busy(self) -> bool:
        """Whether something was handed over and is not confirmed yet."""
        return bool(self.buffer or self._flying or self.awake)

    def close(self, error: BaseException | None = None) -> None:
        """Accept no more messages, and drop those that are not sent."""
        self.failure = self.failure or error or QueueClosed(queue=self.handle.name)
        with self._room:
            self._room.notify_all()

    def _wake(self) -> None:
        with self._room:
            if not self.awake:
                self.awake = True
                try:
                    event_loop(self.handle.link.client).call_soon_threadsafe(self._begin)
                except RuntimeError:  # the loop has ended
                    self.awake = False
                    raise self.handle.link.closed_error() from None

    # --- the client's loop ------------------------------------------------------------------

    def _begin(self) -> None:
        # Kept in an attribute: the event loop refers to its tasks weakly.
        self._pump = asyncio.get_running_loop().create_task(self._run(), name=f"dqlab-send-{self.handle.name}")

    async def _run(self) -> None:
        try:
            while self._has_more() and self.failure is None:
                if len(self._flying) >= (WINDOW if self.patient else 1):
                    await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)
                elif self._flying and self.buffered < self.frame_messages:
                    await asyncio.wait(self._flying, timeout=LINGER, return_when=asyncio.FIRST_COMPLETED)
                    if self._has_more() and self.failure is None:  # a refused number must not go to another frame
                        self._send(self._parcel())
                else:
                    self._send(self._parcel())
        except BaseException as error:
            self.failure = self.failure or self._unforeseen(error)
            if not isinstance(error, Exception):
                raise
        finally:
            # Before the look at the buffer: a thread that appends after it must find the sender asleep, and wake it.
            self.awake = False
            if self.buffer and self.failure is None:
                self._wake()
            elif self.failure is not None:
                self._abandon(self.failure)
            with self._room:
                self._room.notify_all()

    def _has_more(self) -> bool:
        """Return whether the buffer holds something to send."""
        return bool(self.buffer)

    def _parcel(self) -> list[UnsentFrame]:
        """Take the frames of one call, which are several while the buffer holds whole ones."""
        self.shard = shard = self.choose()
        parcel = [self._number(self.gather(), shard)]
        more = self.frames_per_call - 1
        most, most_bytes = self.sent + more * self.frame_messages, self.taken_bytes + more * self.frame_bytes
        while self.buffered >= self.frame_messages and self.sent < most and self.taken_bytes < most_bytes:
            parcel.append(self._number(self.gather(), shard))
        if self._has_room():
            with self._room:
                self._room.notify_all()
        return parcel

    def choose(self) -> int:
        """Return the shard for the next frame, each in turn."""
        shard = self._next_shard
        self._next_shard = (shard + 1) % self.handle.shards
        return shard

    def _number(self, batch: UnsentFrame, shard: int) -> UnsentFrame:
        batch.shard, batch.ordinal, batch.sequence = shard, self.sent, self._next_sequence[shard]
        self._next_sequence[shard] += 1
        self.sent += len(batch.payloads)
        self._numbered[shard].add(batch)
        return batch

    def gather(self) -> UnsentFrame:
        """Take the messages of one frame out of the buffer, which is not empty."""
        raise NotImplementedError

    def _send(self, parcel: list[UnsentFrame]) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(parcel), name=f"dqlab-put-{self.handle.name}")
        self._flying.add(task)  # also keeps the task alive
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.failure = self.failure or self._unforeseen(error)
        if not self._flying:
            with self._room:
                self._room.notify_all()

    async def _deliver(self, parcel: list[UnsentFrame]) -> None:
        """Put the frames of one call until all are confirmed or one is refused."""
        try:
            while parcel:
                answer = await self._put(parcel)
                if answer.unserved and self.on_unserved is not None and parcel[0].entry.kind is Kind.CALL:
                    self.on_unserved()
                for batch, first in zip(parcel, answer.firsts, strict=False):
                    self._confirmed(batch, first)
                del parcel[: len(answer.firsts)]  # in place, so that an error below refuses only the rest
                if parcel and answer.verdict is Verdict.NO_FUNCTION and parcel[0].entry.blob:
                    self._functions[parcel[0].shard].clear()  # it was dropped with its last message
                elif parcel:
                    self._judge(answer)
        except BaseException as error:
            failure = error if isinstance(error, DqlabError) else self._unforeseen(error)
            for batch in parcel:
                self._refused(batch, failure)
            if not isinstance(error, Exception):  # KeyboardInterrupt and the like end the loop, as they must
                raise

    def _unforeseen(self, error: BaseException) -> DqlabError:
        """Return the error that waiting callers get in place of an unexpected exception."""
        link = self.handle.link
        if link.closed:
            return link.closed_error()
        count = self.buffered + sum(len(batch.payloads) for batches in self._numbered for batch in batches)
        failure = PutFailed(queue=self.handle.name, count=count, reason=in_words(error))
        failure.__cause__ = error
        logger.error("event=put_failed queue=%s", self.handle.name, exc_info=error)
        return failure

    def _confirmed(self, batch: UnsentFrame, first: int | None) -> None:
        self._numbered[batch.shard].discard(batch)
        self._opened[batch.shard] = True
        self._functions[batch.shard].add(batch.entry.function)
        self.here[batch.shard] += len(batch.payloads)
        at = first or 0
        for ticket, n in batch.tickets:
            ticket.confirm(at, n)
            at += n

    async def _put(self, parcel: list[UnsentFrame]) -> calls.PutAnswer:
        shard = parcel[0].shard
        with Limit(CONFIRM_WAIT) as limit:
            while True:
                try:
                    put, parts = self._encode(parcel)
                    answer, _ = await self.handle.ask(shard, put, *parts, wait=ROOM_WAIT)
                    return answer
                except CallTimeout:
                    if self.failure is not None:
                        raise self.failure from None
                    # A run waits on, as it does for room: its cluster may come back, and `wait` warns meanwhile.
                    if not self.patient and limit.over:
                        count = sum(len(batch.payloads) for batch in parcel)
                        raise PutTimeout(queue=self.handle.name, count=count, seconds=CONFIRM_WAIT) from None

    def _judge(self, answer: calls.PutAnswer) -> None:
        """Return if a put that was not taken is to be tried again, else raise why not."""
        verdict, full = answer.verdict, answer.full
        if self.failure is not None:
            raise self.failure
        if verdict is Verdict.DRAINING:
            way = "These messages were not queued. Call pool.resume() to open it again."
            raise PutError(reason=f"queue {self.handle.name!r} is draining and takes no new messages. {way}")
        if verdict is Verdict.SEALED:
            raise RunCancelled(run=self.handle.run or self.run.hex(), cancelled=0, total=self.sent, acked=0)
        if verdict is Verdict.NO_FUNCTION:
            raise PutFailed(queue=self.handle.name, count=self.sent, reason="its function did not come along")
        if verdict is not Verdict.FULL:
            return
        assert full is not None, "the answer of a full queue has the reason"
        if full.disk is not None:
            if not self.patient:
                raise DiskFull(**full.disk)
            return
        unserved = full.consumers == 0
        if not self.patient and (unserved or full.paused):
            raise QueueFull(
                queue=self.handle.name,
                seconds=ROOM_WAIT,
                reason="no consumer takes messages" if unserved else "it is paused",
                messages=full.messages,
                maxsize=full.maxsize or 0,
                bytes=full.bytes,
                max_bytes=full.max_bytes or 0,
            )

    def _encode(self, parcel: list[UnsentFrame]) -> tuple[calls.PutCall, Sequence[bytes]]:
        entry, shard = parcel[0].entry, parcel[0].shard
        parts = [
            Frame.encode(
                batch.payloads,
                kind=entry.kind,
                run=self.run,
                function=entry.function,
                producer=self.producer,
                sequence=batch.sequence,
                ordinal=batch.ordinal,
                weights=batch.weights,
                opens=batch.opens,
            )
            for batch in parcel
        ]
        # Both are sent again until a frame is confirmed: a call that is lost may not have arrived.
        opens = self.opening is not None and not self._opened[shard]
        brings = bool(entry.blob) and entry.function not in self._functions[shard]
        put = calls.PutCall(
            frames=len(parts),
            wait=ROOM_WAIT,
            open=self.opening.spec if self.opening is not None and opens else None,
            function=entry.function if brings else None,
        )
        return put, [*parts, entry.blob] if brings else parts

    def _refused(self, batch: UnsentFrame, error: DqlabError) -> None:
        """Give up a frame, and free its number."""
        if self.patient or isinstance(error, ActorGone):
            self.failure = self.failure or error
        # The shard expects this number next, so all frames behind it are refused too.
        self._numbered[batch.shard].discard(batch)
        self._next_sequence[batch.shard] = min(self._next_sequence[batch.shard], batch.sequence)
        for ticket, _ in batch.tickets:
            ticket.fail(error)
        if batch.tickets and (self._unread is None or self._unread.read):
            self._unread = batch.tickets[0][0]

    def _abandon(self, error: BaseException) -> None:
        try:
            while self.buffer:
                for ticket, _ in self.gather().tickets:
                    ticket.fail(error)
        except Exception:  # callers must get the first failure, and this one must not replace it
            logger.exception("event=buffer_abandoned sender=%s left=%d", self.handle.name, self.buffered)
            self.buffer.clear()


class PutSender(Sender):
    """Sends the plain puts of one client, each with its own function and ticket."""

    buffer: deque[tuple[Entry, list[bytes], Ticket]]
    """Slices of puts, each of at most a frame."""

    def __init__(self, handle: Handle, **options: Any) -> None:
        super().__init__(handle, **options)
        self._appending = threading.Lock()
        self._handed = self._taken = 0
        """Messages put into the buffer and taken from it, as with the bytes."""

    @property
    def buffered(self) -> int:
        """Messages in the buffer."""
        return self._handed - self._taken

    def extend(self, messages: Iterable[tuple[Entry, list[bytes]]], ticket: Ticket) -> None:
        """Hand over the messages of one put, and wait while the buffer is full; stop once the put is refused."""
        for entry, payloads in messages:
            for some, size in self._slices(payloads):
                with self._appending:  # any number of threads may put, and `+=` is not atomic
                    self._handed += len(some)
                    self.handed_bytes += size
                    self.buffer.append((entry, some, ticket))
                self.hand_over()
                if ticket.refused:
                    return

    def _slices(self, payloads: list[bytes]) -> Iterator[tuple[list[bytes], int]]:
        """Cut messages into slices that fit a frame, each with its bytes."""
        sizes = [0, *accumulate(map(len, payloads))]
        start = 0
        while start < len(payloads):
            fits = bisect_right(sizes, sizes[start] + self.frame_bytes) - 1
            stop = max(start + 1, min(start + self.frame_messages, fits))
            yield payloads[start:stop], sizes[stop] - sizes[start]
            start = stop

    def gather(self) -> UnsentFrame:
        """Take neighbouring slices with the same function."""
        ticket, entry, payloads, size = self._take()
        batch = UnsentFrame(entry, payloads, tickets=[(ticket, len(payloads))])
        while self.buffer:
            entry, more, ticket = self.buffer[0]
            full = len(payloads) + len(more) > self.frame_messages or size + sum(map(len, more)) > self.frame_bytes
            if full or ticket.refused or not entry.joins(batch.entry):
                break
            size += self._take()[3]
            payloads += more
            batch.tickets.append((ticket, len(more)))
        return batch

    def _take(self) -> tuple[Ticket, Entry, list[bytes], int]:
        """Take one slice out of the buffer, with its ticket and its bytes."""
        entry, payloads, ticket = self.buffer.popleft()
        size = sum(map(len, payloads))
        self._taken += len(payloads)
        self.taken_bytes += size
        return ticket, entry, payloads, size

    def _refused(self, batch: UnsentFrame, error: DqlabError) -> None:
        super()._refused(batch, error)
        # The queue may have the frame: another frame with its number would be dropped as a repetition.
        if isinstance(error, PutTimeout | PutFailed):
            self.producer, self._next_sequence = uuid.uuid4().bytes, [0] * self.handle.shards
        if isinstance(error, PutTimeout | QueueFull | DiskFull):
            seconds = error.seconds if isinstance(error, PutTimeout) else ROOM_WAIT
            # Messages that were handed over before that frame was sent have waited as long, for the same.
            while self.buffer and self.buffer[0][2].handed <= time.monotonic() - seconds:
                ticket, why = self._take()[0], error
                if isinstance(error, PutTimeout):
                    why = PutTimeout(queue=self.handle.name, count=ticket.count, seconds=seconds)
                ticket.fail(why)

    def _has_more(self) -> bool:
        while self.buffer and self.buffer[0][2].refused:  # its caller has the error, so the rest must not run
            self._take()
        return bool(self.buffer)


class LoneSender(PutSender):
    """Sends one message, once for its key, and perhaps to be leased later."""

    def __init__(self, handle: Handle, key: bytes, *, within: float, delay: float, **options: Any) -> None:
        super().__init__(handle, run=NO_ID, producer=NO_ID, **options)  # its key does what numbers do
        self._key, self._within, self._delay = key, within, delay
        self.existed = False
        """Whether its key stood for a message already."""

    def choose(self) -> int:
        """Return the shard of its key."""
        return self._key[0] % self.handle.shards

    def _encode(self, parcel: list[UnsentFrame]) -> tuple[calls.PutCall, Sequence[bytes]]:
        put, parts = super()._encode(parcel)
        return replace(put, unique=self._key, within=self._within, delay=self._delay), parts

    async def _put(self, parcel: list[UnsentFrame]) -> calls.PutAnswer:
        answer = await super()._put(parcel)
        self.existed = answer.verdict is Verdict.DUPLICATE
        return answer


class RunSender(Sender):
    """Sends the documents of one run, which have one function and no tickets."""

    buffer: deque[bytes | Numbered]
    opening: Open

    def __init__(self, handle: Handle, entry: Entry, **options: Any) -> None:
        super().__init__(handle, patient=True, **options)
        # One thread appends, so nothing here is locked, unlike plain puts.
        self.entry = entry
        self._weight: Callable[[Any], int] | None = None
        """The function that weighs an element; None where all weigh the same."""
        self._weighs = False
        """Whether `_weight` is decided: by the unit in the run's record, else by the first element."""
        self._weights: deque[int] = deque()
        """Weights of the messages in the buffer."""
        self._grouped: bool | None = None
        """Whether documents are rows of row groups; None before the first document, which decides."""
        self._group: tuple[str, int] = "", 0
        """File and row group of the last appended row."""
        self._appended = self._gathered = self._opened_at = 0
        """Documents appended, documents in frames, and documents appended before the last border."""
        self._borders: deque[int] = deque()
        """For each group that is to begin a frame, the number of documents appended before it."""
        self._begun, self._begun_in = 0, [0] * handle.shards
        """How many groups have begun a frame, in all and when each shard got its last frame."""
        self.held, self.through = Ranges(), 0
        """Ordinals that the queue has confirmed, and the first one that it has not."""
        self._refusals: list[UnsentFrame] = []
        """Frames that were refused; `recount` may find that the queue holds them."""
        self._gaps: deque[tuple[int, int]] = deque([(0, ENDLESS)])
        """Ordinals for the next documents, as half-open ranges."""

    def append(self, element: Any, payload: bytes) -> None:
        """Hand over one element with its pickle, and wait while the buffer is full."""
        self._hand((element,), (payload,), (element,), 1, len(payload))

    def append_all(self, elements: Sequence[Any], payloads: Sequence[bytes], size: int) -> None:
        """Hand over elements with their pickles, of `size` bytes, and wait while the buffer is full."""
        self._hand(elements, payloads, elements, len(elements), size)

    def extend(self, first: Any, messages: Numbered, heavy: Iterable[Any]) -> None:
        """Hand over neighbours, given the first of them and what weighs as much, and wait while the buffer is full."""
        self._hand((first,), (messages,), heavy, len(messages), messages.nbytes)

    def _hand(
        self, elements: Sequence[Any], parts: Sequence[bytes | Numbered], heavy: Iterable[Any], n: int, size: int
    ) -> None:
        """Hand over `parts`, that are messages of these elements, or of neighbours of the first one."""
        if not self._weighs:
            unit = "" if self.opening is None else self.opening.record.get("unit", "")
            self._weight, self._weighs = weigher(unit, elements[0]), True
        if self._weight is not None:
            self._weights.extend(map(self._weight, heavy))
        if self._grouped is None:
            self._grouped = type(elements[0]) is Document and type(elements[0].part) is Row
        if self._grouped:
            for at, element in enumerate(elements, self._appended):
                self._note_group(element, at)
        self.buffer.extend(parts)
        self._appended += n
        self.handed_bytes += size
        self.hand_over()

    @property
    def buffered(self) -> int:
        """Messages in the buffer."""
        return self._appended - self._gathered

    def _note_group(self, element: Any, at: int) -> None:
        """Note the border of a row group, before its first row, the element `at`, is in the buffer."""
        part = element.part if type(element) is Document else None
        if type(part) is Row and self._group != (element.where, part.group):
            self._group = element.where, part.group
            # Smaller groups share a frame: a frame for each would multiply the calls.
            if at - self._opened_at >= self.frame_messages:
                self._opened_at = at
                self._borders.append(at)

    def go_on(self, here: Sequence[int], held: Iterable[tuple[int, int]]) -> None:
        """Continue a run, given how many documents each shard holds, and which ordinals the queue holds."""
        self.here, self.held = list(here), Ranges(held)
        self._gaps = deque(self.held.gaps(0, ENDLESS))
        self.through = self._gaps[0][0]

    def put_at(self, ordinals: Iterable[int]) -> None:
        """Give the next documents these ordinals, ascending, and no others."""
        self._gaps = deque(Ranges((at, at + 1) for at in ordinals))

    def recount(self, shard: int, holds: int) -> None:
        """Count the refused frames that a shard holds after all, given how many messages it holds."""
        # A shard takes frames in the order of their numbers, so it holds the first ones.
        for batch in sorted(self._refusals, key=lambda batch: batch.sequence):
            if batch.shard == shard and self.here[shard] + len(batch.payloads) <= holds:
                self._confirmed(batch, None)

    def gather(self) -> UnsentFrame:
        """Take as many messages as fit a frame."""
        batch = UnsentFrame(self.entry)
        self.sent, stop = self._gaps.popleft()
        n = min(self.frame_messages, stop - self.sent)
        if self._borders and self._borders[0] == self._gathered:
            self._borders.popleft()
            self._begun += 1
        batch.opens = self._begun_in[self.shard] != self._begun
        self._begun_in[self.shard] = self._begun
        if self._borders:
            n = min(n, self._borders[0] - self._gathered)
        payloads, size = self._taken(n)
        n = len(payloads)
        if self.sent + n < stop:
            self._gaps.appendleft((self.sent + n, stop))
        batch.payloads = payloads
        self._gathered += n
        if self._weights:
            batch.weights = [self._weights.popleft() for _ in range(n)]
        self.taken_bytes += size
        return batch

    def _taken(self, n: int) -> tuple[list[bytes] | Numbered, int]:
        """Take up to `n` messages that share a frame out of the buffer, and return them with the bytes it is rid of."""
        buffer, first = self.buffer, self.buffer[0]
        if isinstance(first, Numbered):
            buffer.popleft()
            n = min(n, max(1, self.frame_bytes * len(first) // first.nbytes))
            if n >= len(first):
                return first, first.nbytes
            buffer.appendleft(first.cut(n, len(first) - n))
            first = first.cut(0, n)
            return first, len(first.column)
        # First about as many as fit by their mean size, which costs no look at each; then no more than really fit.
        mean = self.buffered_bytes / len(buffer)
        n = max(1, min(n, len(buffer), int(self.frame_bytes / max(1.0, mean))))
        payloads: list[Any] = [buffer.popleft() for _ in range(n)]  # not iterated: the other thread appends meanwhile
        if Numbered in set(map(type, payloads)):
            n = next(at for at, message in enumerate(payloads) if type(message) is Numbered)
            buffer.extendleft(reversed(payloads[n:]))
            del payloads[n:]
        size = sum(map(len, payloads))
        if size > self.frame_bytes and n > 1:
            n = max(1, bisect_right(list(accumulate(map(len, payloads))), self.frame_bytes))
            buffer.extendleft(reversed(payloads[n:]))
            del payloads[n:]
            size = sum(map(len, payloads))
        return payloads, size

    def _confirmed(self, batch: UnsentFrame, first: int | None) -> None:
        super()._confirmed(batch, first)
        self.held.add(batch.ordinal, batch.ordinal + len(batch.payloads))
        lo, hi = next(iter(self.held))  # the first range: gaps behind it are not confirmed
        self.through = 0 if lo else hi

    def _refused(self, batch: UnsentFrame, error: DqlabError) -> None:
        super()._refused(batch, error)
        self._refusals.append(batch)
