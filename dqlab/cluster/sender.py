"""Messages on their way into a queue: gathered into frames, numbered, confirmed.

Users' threads append; one coroutine on the client's loop takes. An idle sender sends at once;
while puts are in flight the next frame gathers, at most 2 ms. Frames are numbered per shard
without gaps, so a put that is repeated counts once, and each producer's messages stay in order.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dqlab.cluster.handle import Handle
from dqlab.errors import (
    ActorGone,
    CallTimeout,
    DqlabError,
    PutTimeout,
    QueueClosed,
    QueueDraining,
    QueueFull,
    RunCancelled,
)
from dqlab.frame import NO_ID, Frame, Kind

__all__ = ["Entry", "Sender", "Ticket"]

FRAME_MESSAGES = 1000
FRAME_BYTES = 256 << 10
WINDOW = 4
"""Frames of a run in flight. Plain puts have one: a refused frame leaves no gap behind which others wait."""
LINGER = 0.002
"""Seconds a frame gathers at most while others are in flight."""
BUFFER_MESSAGES = 8 * FRAME_MESSAGES
BUFFER_BYTES = 16 * FRAME_BYTES
ROOM_WAIT = 5.0
"""Seconds a put waits at the queue for room before it looks around."""
CONFIRM_WAIT = 30.0


@dataclass(eq=False)
class Ticket:
    """Where one put's messages went; done when all are confirmed.

    Attributes
    ----------
    ranges : list of (int, int)
        Half-open ranges of ids, in the order of the messages.
    """

    count: int
    done: concurrent.futures.Future[list[tuple[int, int]]] = field(default_factory=concurrent.futures.Future)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    confirmed: int = 0

    def confirm(self, first: int, n: int) -> None:
        """Note that `n` messages got ids from `first` on."""
        if self.ranges and self.ranges[-1][1] == first:
            self.ranges[-1] = (self.ranges[-1][0], first + n)
        else:
            self.ranges.append((first, first + n))
        self.confirmed += n
        if self.confirmed == self.count and not self.done.done():
            self.done.set_result(self.ranges)

    def fail(self, error: BaseException) -> None:
        """Note that the put was refused."""
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True, eq=False)
class Entry:
    """What a frame's messages share."""

    kind: Kind
    function: bytes = NO_ID
    blob: bytes = b""


@dataclass(slots=True, eq=False)
class _Batch:
    """A frame before it has bytes: it is numbered when it is sent."""

    shard: int
    entry: Entry
    payloads: list[bytes]
    weights: list[int] | None
    tickets: list[Ticket | None]
    ordinal: int
    sequence: int = 0


class Sender:
    """Puts of one producer: a client's plain puts, or one run's documents.

    Parameters
    ----------
    run : bytes
        Lane to put into; `NO_ID` for plain puts.
    producer : bytes
        Who numbers the frames.
    opening : dict, optional
        Specification of the run's lane; rides on frames until one is confirmed.
    patient : bool
        Wait for room as long as it takes (a run), or raise `QueueFull` when nobody makes room.
    frame_messages : int
        Most messages in a frame; at most the lane's maxsize.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        run: bytes,
        producer: bytes,
        opening: dict[str, Any] | None = None,
        patient: bool = False,
        frame_messages: int = FRAME_MESSAGES,
    ) -> None:
        self.handle, self.run, self.producer, self.patient = handle, run, producer, patient
        self.sent = 0
        self.why = ""
        self.opening = opening
        self._frame_messages = max(1, min(frame_messages, FRAME_MESSAGES))
        self._buffer: deque[tuple[Entry, bytes, int, Ticket | None]] = deque()
        self._buffered_bytes = 0
        self._room = threading.Condition()
        self._awake = False
        self._pump: asyncio.Task[None] | None = None
        self._more = asyncio.Event()
        self._flying: set[asyncio.Task[None]] = set()
        self._next_shard = 0
        self._next_sequence = [0] * len(handle.refs)
        self._opened = [opening is None] * len(handle.refs)
        self._functions: list[set[bytes]] = [set() for _ in handle.refs]
        self.here = [0] * len(handle.refs)
        self.failure: BaseException | None = None
        self._closed = False

    # --- users' threads ---------------------------------------------------------------------

    def append(self, entry: Entry, payload: bytes, *, weight: int = 0, ticket: Ticket | None = None) -> None:
        """Hand over one message; waits while the buffer is full.

        Raises
        ------
        DqlabError
            What made the sender give up, if it did.
        """
        if self.failure is not None:
            raise self.failure
        self._buffer.append((entry, payload, weight, ticket))
        self._buffered_bytes += len(payload)
        if not self._awake:
            self._wake()
        if len(self._buffer) > BUFFER_MESSAGES or self._buffered_bytes > BUFFER_BYTES:
            self._wait_for_room()

    def flush(self, timeout: float | None) -> None:
        """Wait until everything handed over is confirmed.

        Raises
        ------
        PutTimeout
            `timeout` seconds are over; what is in flight may still be confirmed.
        DqlabError
            What made the sender give up.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._room:
            while self.busy and self.failure is None:
                left = 0.2 if deadline is None else min(0.2, deadline - time.monotonic())
                if left <= 0:
                    raise PutTimeout(queue=self.handle.name, count=len(self._buffer), seconds=timeout)
                self._room.wait(left)
                self.handle.link.check_scheduler()
        if self.failure is not None:
            raise self.failure

    @property
    def busy(self) -> bool:
        """Something was handed over and is not confirmed."""
        return bool(self._buffer or self._flying or self._awake)

    def close(self, error: BaseException | None = None) -> None:
        """Take no more; give up what is not sent."""
        self.failure = self.failure or error or QueueClosed(queue=self.handle.name)
        with self._room:
            self._room.notify_all()

    def _wake(self) -> None:
        with self._room:
            if not self._awake:
                self._awake = True
                self.handle.link.client.loop.asyncio_loop.call_soon_threadsafe(self._begin)

    def _wait_for_room(self) -> None:
        with self._room:
            while len(self._buffer) > BUFFER_MESSAGES // 2 and self.failure is None:
                self._room.wait(0.2)
                self.handle.link.check_scheduler()

    # --- the client's loop ------------------------------------------------------------------

    def _begin(self) -> None:
        self._pump = asyncio.get_running_loop().create_task(self._run(), name=f"dqlab-send-{self.handle.name}")

    async def _run(self) -> None:
        try:
            while self._buffer and self.failure is None:
                if len(self._flying) >= (WINDOW if self.patient else 1):
                    await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)
                elif self._flying and len(self._buffer) < self._frame_messages:
                    await asyncio.wait(self._flying, timeout=LINGER, return_when=asyncio.FIRST_COMPLETED)
                    if self._buffer:
                        self._send(self._take())
                else:
                    self._send(self._take())
        finally:
            self._awake = False
            if self._buffer and self.failure is None:
                self._wake()
            elif self.failure is not None:
                self._abandon(self.failure)
            with self._room:
                self._room.notify_all()

    def _take(self) -> _Batch:
        """Take the next frame's messages out of the buffer: of one function, within the limits."""
        buffer = self._buffer
        entry = buffer[0][0]
        payloads: list[bytes] = []
        weights: list[int] = []
        tickets: list[Ticket | None] = []
        size = 0
        while buffer and len(payloads) < self._frame_messages and size < FRAME_BYTES:
            head, payload, weight, ticket = buffer[0]
            if head is not entry and (head.function != entry.function or head.kind != entry.kind):
                break
            buffer.popleft()
            payloads.append(payload)
            weights.append(weight)
            tickets.append(ticket)
            size += len(payload)
        self._buffered_bytes -= size
        shard = self._next_shard
        self._next_shard = (shard + 1) % len(self.handle.refs)
        batch = _Batch(shard, entry, payloads, weights if any(weights) else None, tickets, self.sent)
        batch.sequence = self._next_sequence[shard]
        self._next_sequence[shard] += 1
        self.sent += len(payloads)
        if len(buffer) <= BUFFER_MESSAGES // 2:
            with self._room:
                self._room.notify_all()
        return batch

    def _send(self, batch: _Batch) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(batch), name=f"dqlab-put-{self.handle.name}")
        self._flying.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying.discard(task)
        if not self._flying:
            with self._room:
                self._room.notify_all()

    async def _deliver(self, batch: _Batch) -> None:
        try:
            answer = await self._put(batch)
        except DqlabError as error:
            self._refused(batch, error)
            return
        self.here[batch.shard] += len(batch.payloads)
        if answer["first"] is not None:
            first = answer["first"]
            if not self.patient:
                for offset, ticket in enumerate(batch.tickets):
                    if ticket is not None:
                        ticket.confirm(first + offset, 1)

    async def _put(self, batch: _Batch) -> dict[str, Any]:
        started = time.monotonic()
        while True:
            meta, parts = self._encode(batch)
            try:
                answer, _ = await self.handle.ask(batch.shard, "put", meta, *parts, wait=ROOM_WAIT)
            except CallTimeout:
                if time.monotonic() - started > CONFIRM_WAIT:
                    raise PutTimeout(queue=self.handle.name, count=len(batch.payloads), seconds=CONFIRM_WAIT) from None
                continue
            verdict = answer["verdict"]
            if verdict in ("ACCEPTED", "DUPLICATE"):
                self._opened[batch.shard] = True
                self._functions[batch.shard].add(batch.entry.function)
                self.why = ""
                return answer
            self._judge(answer)

    def _judge(self, answer: dict[str, Any]) -> None:
        """Decide after a put that was not taken: return to try again, or raise."""
        verdict = answer["verdict"]
        if self.failure is not None:
            raise self.failure
        if verdict == "DRAINING" and not self.patient:
            raise QueueDraining(queue=self.handle.name)
        if verdict == "SEALED":
            raise RunCancelled(run=self.run.hex(), cancelled=0, total=self.sent, acked=0)
        if verdict != "FULL":
            return
        nobody = answer["consumers"] == 0
        self.why = "no consumer" if nobody else "paused" if answer["paused"] else "queue full"
        if not self.patient and (nobody or answer["paused"]):
            reason = "no consumer takes messages" if nobody else "it is paused"
            limits = {k: answer[k] for k in ("messages", "maxsize", "bytes", "max_bytes")}
            limits = {k: v if v is not None else 0 for k, v in limits.items()}
            raise QueueFull(queue=self.handle.name, seconds=ROOM_WAIT, reason=reason, **limits)

    def _encode(self, batch: _Batch) -> tuple[dict[str, Any], Sequence[bytes]]:
        entry, shard = batch.entry, batch.shard
        frame = Frame.encode(
            batch.payloads,
            kind=entry.kind,
            run=self.run,
            function=entry.function,
            producer=self.producer,
            sequence=batch.sequence,
            ordinal=batch.ordinal,
            weights=batch.weights,
        )
        meta: dict[str, Any] = {"parts": ["frame"], "wait": ROOM_WAIT}
        parts = [frame]
        if not self._opened[shard]:
            meta["open"] = self.opening
        if entry.blob and entry.function not in self._functions[shard]:
            meta["parts"].append("function")
            meta["hash"] = entry.function
            parts.append(entry.blob)
        return meta, parts

    def _refused(self, batch: _Batch, error: DqlabError) -> None:
        """Give up a batch; its number is free again, so everything behind it is refused too."""
        if self.patient or isinstance(error, (ActorGone, PutTimeout)):
            self.failure = self.failure or error
        self._next_sequence[batch.shard] = min(self._next_sequence[batch.shard], batch.sequence)
        for ticket in batch.tickets:
            if ticket is not None:
                ticket.fail(error)

    def _abandon(self, error: BaseException) -> None:
        while self._buffer:
            ticket = self._buffer.popleft()[3]
            if ticket is not None:
                ticket.fail(error)
