"""Messages on their way into a queue: gathered into frames, numbered, confirmed.

Users' threads append; one coroutine on the client's loop takes. An idle sender sends at once;
while puts are in flight the next frame gathers, at most 2 ms. Frames are numbered per shard
without gaps, so a put that is repeated counts once, and each producer's messages stay in order.
There are two producers: plain puts, and the documents of a run. The caller of a put holds a `Ticket`.
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from dqlab.cluster.transport import calls
from dqlab.cluster.transport.handle import TRANSIENT, Handle
from dqlab.cluster.transport.internals import event_loop
from dqlab.cluster.transport.limits import Limit
from dqlab.cluster.transport.orders import Open
from dqlab.cluster.transport.ref import Place, Replaced
from dqlab.documents import Document
from dqlab.documents.parts import Row
from dqlab.errors import (
    ActorGone,
    CallTimeout,
    DqlabError,
    NotSentAgain,
    PutFailed,
    PutTimeout,
    QueueClosed,
    QueueDraining,
    QueueFull,
    RunCancelled,
    in_words,
)
from dqlab.frame import NO_ID, Frame, Kind
from dqlab.log import DiskFull
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.rules.states import Verdict
from dqlab.runs.submit.weights import weigher

__all__ = [
    "BUFFER_BYTES",
    "BUFFER_MESSAGES",
    "CONFIRM_WAIT",
    "Entry",
    "PutSender",
    "RunSender",
    "Sender",
    "Ticket",
    "UnsentFrame",
]

logger = logging.getLogger("dqlab.sender")

FRAME_MESSAGES = 1000
FRAME_BYTES = 256 << 10
WINDOW = 4
"""Frames of a run in flight. Plain puts have one: a refused frame leaves no gap behind which others wait."""
LINGER = 0.002
"""Seconds a frame gathers at most while others are in flight."""
FRAMES_PER_CALL = 4
"""Frames of a run in one call, when so many wait: a call costs a millisecond of CPU, whatever it carries."""
BUFFER_MESSAGES = 16 * FRAME_MESSAGES
BUFFER_BYTES = 16 * FRAME_BYTES
ROOM_WAIT = 5.0
"""Seconds a put waits at the queue for room before the sender checks the queue's state."""
CONFIRM_WAIT = 30.0
_UNBOUNDED = 1 << 62


@dataclass(eq=False)
class Ticket:
    """Where one put's messages went; done when all are confirmed.

    Attributes
    ----------
    ranges : list of (int, int)
        Half-open ranges of ids, in the order of the messages.
    actors : list of str or None
        For each range, the key of the actor in memory that confirmed it; another actor may reuse the ids.
    read : bool
        The caller has read what became of them, so a refusal is not news.
    handed : float
        When the caller made it, on the monotonic clock.
    refused : bool
        It has failed, and nothing more of it is sent.
    """

    count: int
    done: concurrent.futures.Future[list[tuple[int, int]]] = field(default_factory=concurrent.futures.Future)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    actors: list[str | None] = field(default_factory=list)
    confirmed: int = 0
    read: bool = False
    handed: float = field(default_factory=time.monotonic)
    refused: bool = False

    def confirm(self, first: int, n: int, actor: str | None = None) -> None:
        """Record that `n` messages got ids from `first` on."""
        if self.ranges and self.ranges[-1][1] == first and self.actors[-1] == actor:
            self.ranges[-1] = (self.ranges[-1][0], first + n)
        else:
            self.ranges.append((first, first + n))
            self.actors.append(actor)
        self.confirmed += n
        if self.confirmed == self.count and not self.done.done():
            self.done.set_result(self.ranges)

    async def landed(self) -> list[tuple[int, int]]:
        """Wait, on the client's loop, until all are confirmed; raises why they were refused."""
        if not self.done.done():
            news = asyncio.Event()
            self.done.add_done_callback(lambda _: news.set())  # on that loop too: there senders confirm and refuse
            await news.wait()
        return self.done.result(0)

    def fail(self, error: BaseException) -> None:
        """Record that the put was refused."""
        self.refused = True
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True, eq=False)
class Entry:
    """What a frame's messages share: the kind of their payloads, and the function with its blob."""

    kind: Kind
    function: bytes = NO_ID
    blob: bytes = b""

    def joins(self, other: Entry) -> bool:
        """Whether messages of both may share a frame."""
        return self is other or (self.function == other.function and self.kind == other.kind)


@dataclass(slots=True, eq=False)
class UnsentFrame:
    """A frame before it has bytes: it is numbered when it is taken."""

    entry: Entry
    payloads: list[bytes] = field(default_factory=list)
    weights: list[int] | None = None
    tickets: list[Ticket] = field(default_factory=list)
    shard: int = 0
    ordinal: int = 0
    sequence: int = 0
    opens: bool = False
    """Its first message is the first one of a group in its shard."""


class Sender:
    """Puts of one producer: what `PutSender` and `RunSender` have in common.

    Parameters
    ----------
    run : bytes
        Lane to put into; `NO_ID` for plain puts.
    producer : bytes
        Who numbers the frames.
    opening : Open, optional
        Opens the run's lane; sent with frames until one is confirmed.
    patient : bool
        Wait for room and for an answer as long as it takes (a run), or raise `QueueFull` when no consumer makes room,
        and `PutTimeout` when the queue does not answer.
    maxsize, max_bytes : int or None
        Bounds of the lane.
    """

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
        self.handle, self.run, self.producer, self.patient = handle, run, producer, patient
        self.max_bytes = max_bytes
        self.sent = 0
        self.why = ""
        self.opening = opening
        # A frame goes in whole: of a bounded lane it takes a part, or the lane would have to be empty first.
        self.frame_messages = max(1, min((maxsize or _UNBOUNDED) // WINDOW, FRAME_MESSAGES))
        self.frames_per_call = FRAMES_PER_CALL if patient and (maxsize or _UNBOUNDED) >= BUFFER_MESSAGES * WINDOW else 1
        self.frame_bytes = max(1, min((max_bytes or _UNBOUNDED) // WINDOW, FRAME_BYTES))
        self.buffer: deque[Any] = deque()
        self.handed_bytes = self.taken_bytes = 0
        """Bytes that entered the buffer, counted by the appending thread, and that left it, counted on the loop."""
        self.on_unserved: Callable[[], None] | None = None
        """Called on the loop when the queue has taken calls and knows no consumer."""
        self._room = threading.Condition()
        self.awake = False
        self._pump: asyncio.Task[None] | None = None
        self._flying: set[asyncio.Task[None]] = set()
        self._next_shard = self.shard = 0
        self._next_sequence = [0] * len(handle.refs)
        self._opened = [opening is None] * len(handle.refs)
        self._functions: list[set[bytes]] = [set() for _ in handle.refs]
        self._places: list[Place | None] = [None] * len(handle.refs)
        """For which actor of each shard in memory frames are numbered; it knows nothing of the ones before."""
        self._numbered: list[set[UnsentFrame]] = [set() for _ in handle.refs]
        """Frames of each shard that are neither confirmed nor refused."""
        self.here = [0] * len(handle.refs)
        """Messages of the run in each shard, as far as confirmed."""
        self.failure: BaseException | None = None
        self._unread: Ticket | None = None

    # --- users' threads ---------------------------------------------------------------------

    def hand_over(self) -> None:
        """Notify the sender that its buffer holds something; wait while it holds too much.

        Raises
        ------
        DqlabError
            What made the sender give up, if it did.
        """
        if self.failure is not None:
            raise self.failure
        if not self.awake:
            self._wake()
        if len(self.buffer) > BUFFER_MESSAGES or self.handed_bytes - self.taken_bytes > BUFFER_BYTES:
            self._wait_for_room()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the messages in the buffer."""
        return self.handed_bytes - self.taken_bytes

    def _has_room(self) -> bool:
        return len(self.buffer) <= BUFFER_MESSAGES // 2 and self.buffered_bytes <= BUFFER_BYTES // 2

    def flush(self, timeout: float | None) -> None:
        """Wait until everything handed over is confirmed.

        Raises
        ------
        PutTimeout
            `timeout` seconds are over; what is in flight may still be confirmed.
        DqlabError
            What made the sender give up, or why a put was refused whose result was not read.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._room:
            while self.busy and self.failure is None:
                left = 0.2 if deadline is None else min(0.2, deadline - time.monotonic())
                if left <= 0:
                    raise PutTimeout(queue=self.handle.name, count=len(self.buffer), seconds=timeout)
                self._room.wait(left)
                self.handle.link.check_scheduler()
        if self.failure is not None:
            raise self.failure
        unread, self._unread = self._unread, None
        if unread is not None and not unread.read:
            unread.done.result(0)

    def land(self) -> None:
        """Wait until no put is in flight any more, whatever became of them."""
        with self._room:
            while self._flying or self.awake:
                self._room.wait(0.2)
                self.handle.link.check_scheduler()

    @property
    def busy(self) -> bool:
        """Something was handed over and is not confirmed."""
        return bool(self.buffer or self._flying or self.awake)

    def close(self, error: BaseException | None = None) -> None:
        """Accept no more; give up what is not sent."""
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

    def _wait_for_room(self) -> None:
        with self._room:
            while not self._has_room() and self.failure is None:
                self._room.wait(0.2)
                self.handle.link.check_scheduler()

    # --- the client's loop ------------------------------------------------------------------

    def _begin(self) -> None:
        self._pump = asyncio.get_running_loop().create_task(self._run(), name=f"dqlab-send-{self.handle.name}")

    async def _run(self) -> None:
        try:
            while self._has_more() and self.failure is None:
                if len(self._flying) >= (WINDOW if self.patient else 1):
                    await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)
                elif self._flying and len(self.buffer) < self.frame_messages:
                    await asyncio.wait(self._flying, timeout=LINGER, return_when=asyncio.FIRST_COMPLETED)
                    if self._has_more() and self.failure is None:  # a refused number must not be given to another frame
                        self._send(self._parcel())
                else:
                    self._send(self._parcel())
        except BaseException as error:
            self.failure = self.failure or self._unforeseen(error)
            if not isinstance(error, Exception):
                raise
        finally:
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
        """Take what one call carries: a frame, and more of them while the buffer holds whole ones."""
        self.shard = shard = self.choose()
        parcel = [self._number(self.gather(), shard)]
        while len(parcel) < self.frames_per_call and len(self.buffer) >= self.frame_messages:
            parcel.append(self._number(self.gather(), shard))
        if self._has_room():
            with self._room:
                self._room.notify_all()
        return parcel

    def choose(self) -> int:
        """Return the shard that the next frame goes to: each in turn."""
        shard = self._next_shard
        self._next_shard = (shard + 1) % len(self.handle.refs)
        return shard

    def _number(self, batch: UnsentFrame, shard: int) -> UnsentFrame:
        batch.shard, batch.ordinal, batch.sequence = shard, self.sent, self._next_sequence[shard]
        self._next_sequence[shard] += 1
        self.sent += len(batch.payloads)
        self._numbered[shard].add(batch)
        return batch

    def gather(self) -> UnsentFrame:
        """Take one frame's messages out of the buffer, which holds at least one."""
        raise NotImplementedError

    def _send(self, parcel: list[UnsentFrame]) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(parcel), name=f"dqlab-put-{self.handle.name}")
        self._flying.add(task)
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
        """Put a call's frames until all are confirmed or one is refused."""
        try:
            while parcel:
                answer = await self._put(parcel)
                if answer.unserved and self.on_unserved is not None and parcel[0].entry.kind is Kind.CALL:
                    self.on_unserved()
                for batch, first in zip(parcel, answer.firsts, strict=False):
                    self._confirmed(batch, first)
                del parcel[: len(answer.firsts)]
                if parcel and answer.verdict == Verdict.NO_FUNCTION.name and parcel[0].entry.blob:
                    self._functions[parcel[0].shard].clear()  # it was forgotten with the last message that named it
                elif parcel:
                    self._judge(answer)
        except DqlabError as error:
            for batch in parcel:
                self._refused(batch, error)
        except BaseException as error:
            failure = self._unforeseen(error)
            for batch in parcel:
                self._refused(batch, failure)
            if not isinstance(error, Exception):  # the loop ends, and means to
                raise

    def _unforeseen(self, error: BaseException) -> DqlabError:
        """Return the error that all waiting callers get for an error that is not dqlab's."""
        link = self.handle.link
        if link.closed:
            return link.closed_error()
        count = len(self.buffer) + sum(len(batch.payloads) for batches in self._numbered for batch in batches)
        failure = PutFailed(queue=self.handle.name, count=count, reason=in_words(error))
        failure.__cause__ = error
        logger.error("event=put_failed queue=%s", self.handle.name, exc_info=error)
        return failure

    def _confirmed(self, batch: UnsentFrame, first: int | None) -> None:
        self._numbered[batch.shard].discard(batch)
        self._opened[batch.shard] = True
        self._functions[batch.shard].add(batch.entry.function)
        self.why = ""
        self.here[batch.shard] += len(batch.payloads)
        place = self._places[batch.shard]
        for offset, ticket in enumerate(batch.tickets):
            ticket.confirm((first or 0) + offset, 1, None if place is None else place.key)

    async def _put(self, parcel: list[UnsentFrame]) -> calls.PutAnswer:
        shard, opened = parcel[0].shard, False
        with Limit(CONFIRM_WAIT) as limit:
            while True:
                try:
                    place = await self._place(shard)
                    put, parts = self._encode(parcel, None if place is None else place.epoch)
                    there = self.handle.of_actor(shard, None if place is None else place.key)
                    answer, _ = await there.ask(shard, put, *parts, wait=ROOM_WAIT)
                    opened = opened or answer.opened  # a frame that is put again opens nothing
                    if place == self._places[shard]:  # else what it confirmed is lost already
                        if opened:
                            await self._note_opened()
                        return answer
                except Replaced:  # it is gone, with whatever it took
                    continue
                except CallTimeout:
                    if self.failure is not None:
                        raise self.failure from None
                    # A run waits as it does for room: its cluster may come back, and what waits for it warns of that.
                    if not self.patient and limit.over:
                        count = sum(len(batch.payloads) for batch in parcel)
                        raise PutTimeout(queue=self.handle.name, count=count, seconds=CONFIRM_WAIT) from None

    async def _note_opened(self) -> None:
        """Have the run known beside a shard in memory that did not have it, before what it holds is confirmed.

        Another client closed the queue, and opened it again: what was noted went with the queue before.
        """
        if self.opening is not None and self.handle.promise == TRANSIENT:
            await self.handle.keep_note(self.run, self.opening.where_unknown)

    async def _place(self, shard: int) -> Place | None:
        """Return where a shard in memory is. A new one has none of what was numbered: that begins again from 0.

        The epoch alone does not suffice: a queue that was closed, and opened again by another client, is at its first.
        """
        if self.handle.promise != TRANSIENT:
            return None
        place = await self.handle.refs[shard].place()
        if place != self._places[shard]:
            self._places[shard] = place
            self._opened[shard] = self.opening is None
            self._functions[shard].clear()
            for sequence, batch in enumerate(sorted(self._numbered[shard], key=lambda batch: batch.sequence)):
                batch.sequence = sequence
            self._next_sequence[shard] = len(self._numbered[shard])
        return place

    def _judge(self, answer: calls.PutAnswer) -> None:
        """Decide after a put that was not taken: return to try again, or raise."""
        verdict, full = answer.verdict, answer.full
        if self.failure is not None:
            raise self.failure
        if verdict == "DRAINING":
            raise QueueDraining(queue=self.handle.name)
        if verdict == "SEALED":
            raise RunCancelled(run=self.handle.run or self.run.hex(), cancelled=0, total=self.sent, acked=0)
        if verdict == Verdict.NO_FUNCTION.name:
            raise PutFailed(queue=self.handle.name, count=self.sent, reason="its function did not come along")
        if full is None:
            return
        unserved = full.consumers == 0
        self.why = "no consumer" if unserved else "paused" if full.paused else "queue full"
        if full.disk is not None:
            self.why = "disk full"
            if not self.patient:
                raise DiskFull(**full.disk)
            return
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

    def _encode(self, parcel: list[UnsentFrame], epoch: int | None) -> tuple[calls.Put, Sequence[bytes]]:
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
        opens = self.opening is not None and not self._opened[shard]
        brings = bool(entry.blob) and entry.function not in self._functions[shard]
        put = calls.Put(
            frames=len(parts),
            wait=ROOM_WAIT,
            epoch=epoch,
            open=self.opening.spec if self.opening is not None and opens else None,
            function=entry.function if brings else None,
        )
        return put, [*parts, entry.blob] if brings else parts

    def _refused(self, batch: UnsentFrame, error: DqlabError) -> None:
        """Give up a batch; its number is free again, so everything behind it is refused too."""
        if self.patient or isinstance(error, ActorGone):
            self.failure = self.failure or error
        self._numbered[batch.shard].discard(batch)
        self._next_sequence[batch.shard] = min(self._next_sequence[batch.shard], batch.sequence)
        for ticket in batch.tickets:
            ticket.fail(error)
        if batch.tickets and (self._unread is None or self._unread.read):
            self._unread = batch.tickets[0]

    def _abandon(self, error: BaseException) -> None:
        try:
            while self.buffer:
                for ticket in self.gather().tickets:
                    ticket.fail(error)
        except Exception:  # the failure of before is what its caller gets, and must not be lost for this one
            logger.exception("event=buffer_abandoned sender=%s left=%d", self.handle.name, len(self.buffer))
            self.buffer.clear()


class PutSender(Sender):
    """Plain puts of one client: each message with its function and its ticket."""

    buffer: deque[tuple[Entry, bytes, Ticket]]

    def __init__(self, handle: Handle, **options: Any) -> None:
        super().__init__(handle, **options)
        self._appending = threading.Lock()

    def append(self, entry: Entry, payload: bytes, ticket: Ticket) -> None:
        """Hand over one message; waits while the buffer is full."""
        with self._appending:  # any number of threads may put
            self.buffer.append((entry, payload, ticket))
            self.handed_bytes += len(payload)
        self.hand_over()

    def gather(self) -> UnsentFrame:
        """Take neighbours with the same function."""
        buffer, size = self.buffer, 0
        batch = UnsentFrame(buffer[0][0])
        while buffer and len(batch.payloads) < self.frame_messages:
            entry, payload, ticket = buffer[0]
            full = size + len(payload) > self.frame_bytes or not entry.joins(batch.entry)
            if batch.payloads and (full or ticket.refused):
                break
            buffer.popleft()
            batch.payloads.append(payload)
            batch.tickets.append(ticket)
            size += len(payload)
        self.taken_bytes += size
        return batch

    def _refused(self, batch: UnsentFrame, error: DqlabError) -> None:
        super()._refused(batch, error)
        if isinstance(error, PutTimeout | PutFailed):  # the queue may have it, so its number must not be reused
            self.producer, self._next_sequence = uuid.uuid4().bytes, [0] * len(self.handle.refs)
        if isinstance(error, PutTimeout | QueueFull | DiskFull):  # waited for an answer, or for room
            seconds = error.seconds if isinstance(error, PutTimeout) else ROOM_WAIT
            # What was handed over before it was sent has waited as long, for the same.
            while self.buffer and self.buffer[0][2].handed <= time.monotonic() - seconds:
                ticket, why = self._skip(), error
                if isinstance(error, PutTimeout):
                    why = PutTimeout(queue=self.handle.name, count=ticket.count, seconds=seconds)
                ticket.fail(why)

    def _has_more(self) -> bool:
        while self.buffer and self.buffer[0][2].refused:  # its caller has the error; a rest would run all the same
            self._skip()
        return bool(self.buffer)

    def _skip(self) -> Ticket:
        """Take a message out of the buffer that is not sent."""
        _, payload, ticket = self.buffer.popleft()
        self.taken_bytes += len(payload)
        return ticket


class RunSender(Sender):
    """The documents of one run: one function, no tickets, weights in the unit of its record.

    Without a unit they are pages, if the first document has some. One thread appends them.

    Attributes
    ----------
    held : Ranges
        Ordinals that the queue holds, as far as confirmed.
    through : int
        The first ordinal that is not among them.
    room : list of int or None
        Of documents that were lost: how many of them each shard still takes, in the place of its lost ones.
    claim : int or None
        Number of the claim to send those.
    """

    buffer: deque[bytes]
    opening: Open

    def __init__(self, handle: Handle, entry: Entry, **options: Any) -> None:
        super().__init__(handle, patient=True, **options)
        self._options = options
        self.entry = entry
        self.room: list[int] | None = None
        self.claim: int | None = None
        self._weight: Callable[[Any], int] | None = None
        """What weighs an element; None where nothing does."""
        self._weighs = False
        """Whether that is decided: by the unit in the run's record, else by the first element."""
        self._weights: deque[int] = deque()
        """Weights of the messages in the buffer."""
        self._grouped: bool | None = None
        """Whether documents are rows of row groups; the first document decides."""
        self._group: tuple[str, int] = "", 0
        """File and row group of the last one that was appended."""
        self._appended = self._gathered = self._opened_at = 0
        """How many were appended, how many of these are in frames, and how many were where the last group begins."""
        self._borders: deque[int] = deque()
        """How many were appended where each group begins that no frame begins with yet."""
        self._begun, self._begun_in = 0, [0] * len(handle.refs)
        """How many groups frames have begun with, and how many that were at the last frame of each shard."""
        self.held, self.through = Ranges(), 0
        self._refusals: list[UnsentFrame] = []
        self._gaps: deque[tuple[int, int]] = deque([(0, ENDLESS)])

    def successor(self, entry: Entry) -> RunSender:
        """Return a sender for the same run, with a function of its own and numbers of its own."""
        return RunSender(self.handle, entry, **self._options | {"producer": uuid.uuid4().bytes})

    def append(self, element: Any, payload: bytes) -> None:
        """Hand over one element with its pickle; waits while the buffer is full."""
        if not self._weighs:
            unit = "" if self.opening is None else self.opening.record.get("unit", "")
            self._weight, self._weighs = weigher(unit, element), True
        if self._weight is not None:
            self._weights.append(self._weight(element))
        if self._grouped is None:
            self._grouped = type(element) is Document and type(element.part) is Row
        if self._grouped:
            self._note_group(element)
        self.buffer.append(payload)
        self.handed_bytes += len(payload)
        self.hand_over()

    def _note_group(self, element: Any) -> None:
        """Note where a row group begins, before its first row is in the buffer; small ones go with those before."""
        part = element.part if type(element) is Document else None
        if type(part) is Row and self._group != (element.where, part.group):
            self._group = element.where, part.group
            if self._appended - self._opened_at >= self.frame_messages:
                self._opened_at = self._appended
                self._borders.append(self._appended)
        self._appended += 1

    def go_on(self, here: Sequence[int], held: Iterable[tuple[int, int]]) -> None:
        """Continue a run whose shards hold so many documents each, and all of them these ordinals."""
        self.here, self.held = list(here), Ranges(held)
        self._gaps = deque(self.held.gaps(0, ENDLESS))
        self.through = self._gaps[0][0]

    def replace(self, lost: Iterable[tuple[int, int]], room: Sequence[int], claim: int) -> None:
        """Put documents that were lost, with these ordinals, in the place of as many in each shard."""
        self._gaps, self.room, self.claim = deque(lost), list(room), claim
        self.frames_per_call = 1

    def recount(self, shard: int, holds: int) -> None:
        """Count the refused frames that a shard holds after all; it took what it took in their order."""
        for batch in sorted(self._refusals, key=lambda batch: batch.sequence):
            if batch.shard == shard and self.here[shard] + len(batch.payloads) <= holds:
                self._confirmed(batch, None)

    def gather(self) -> UnsentFrame:
        """Take as many as fit a frame: about that many by their mean size, then no more than fit by their own."""
        buffer, batch = self.buffer, UnsentFrame(self.entry)
        mean = self.buffered_bytes / max(1, len(buffer))
        self.sent, stop = self._gaps.popleft()
        n = max(1, min(len(buffer), self.frame_messages, int(self.frame_bytes / max(1.0, mean)), stop - self.sent))
        if self.room is not None:
            n = max(1, min(n, self.room[self.shard]))
        if self._borders and self._borders[0] == self._gathered:
            self._borders.popleft()
            self._begun += 1
        batch.opens = self._begun_in[self.shard] != self._begun
        self._begun_in[self.shard] = self._begun
        if self._borders:
            n = min(n, self._borders[0] - self._gathered)
        payloads = [buffer.popleft() for _ in range(n)]
        size = sum(map(len, payloads))
        if size > self.frame_bytes and n > 1:
            n = max(1, bisect_right(list(accumulate(map(len, payloads))), self.frame_bytes))
            buffer.extendleft(reversed(payloads[n:]))
            del payloads[n:]
            size = sum(map(len, payloads))
        if self.room is not None:
            self.room[self.shard] -= n
        if self.sent + n < stop:
            self._gaps.appendleft((self.sent + n, stop))
        batch.payloads = payloads
        self._gathered += n
        if self._weights:
            batch.weights = [self._weights.popleft() for _ in range(n)]
        self.taken_bytes += size
        return batch

    def choose(self) -> int:
        """Return the shard that the next frame goes to: of lost documents, one that has lost some."""
        shard = super().choose()
        if self.room is None or self.room[shard] > 0:
            return shard
        return max(range(len(self.room)), key=self.room.__getitem__)

    def _judge(self, answer: calls.PutAnswer) -> None:
        if self.room is not None and answer.verdict == Verdict.SEALED.name and self.failure is None:
            raise NotSentAgain(run=self.opening.record["name"])
        super()._judge(answer)

    def _encode(self, parcel: list[UnsentFrame], epoch: int | None) -> tuple[calls.Put, Sequence[bytes]]:
        put, parts = super()._encode(parcel, epoch)
        return replace(put, lost=self.claim), parts

    def _confirmed(self, batch: UnsentFrame, first: int | None) -> None:
        super()._confirmed(batch, first)
        self.held.add(batch.ordinal, batch.ordinal + len(batch.payloads))
        lo, hi = next(iter(self.held))
        self.through = 0 if lo else hi

    def _refused(self, batch: UnsentFrame, error: DqlabError) -> None:
        super()._refused(batch, error)
        self._refusals.append(batch)
