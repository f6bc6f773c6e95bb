"""A queue in this process: the real rules, frames and sealed values, without Dask, threads or waiting.

Owns nothing of the rules: it puts real frames into a real `Shard` and settles with real settlements,
so what a test sees here is what a cluster does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import Any

from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.execution import Origin, Work, fail_all, refuse_value, run_chunk
from dqlab.cluster.transport.sealed import blob_hash, open_value, seal_function, seal_or_explain, seal_value
from dqlab.config import nbytes, option
from dqlab.errors import MessageNotFound, MessageTooLarge, QueueDraining, QueueFull
from dqlab.failures.classes import Failure, retryable
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.rules.journal import MemoryJournal
from dqlab.rules.leases import Lease
from dqlab.rules.options import QueueOptions
from dqlab.rules.retry import Retry
from dqlab.rules.settling import Settled
from dqlab.rules.shard import Shard
from dqlab.rules.states import State, Verdict
from dqlab.runs.failures import DeadLetter, dead_letter
from dqlab.runs.session import queue_options
from dqlab.testing.clock import FakeClock

__all__ = ["Delivery", "LocalQueue", "local_queue"]

CONSUMER = "consumer"
AT_A_TIME = 1000


@dataclass(frozen=True)
class Delivery:
    """One leased message.

    Attributes
    ----------
    id : int
        The message's id.
    value : object
        What was put; (args, kwargs) for calls.
    consumer : str
        Who leased it.
    lease, ordinal : int
        The lease's id, and the message's position.
    """

    id: int
    value: Any
    consumer: str
    lease: int
    ordinal: int


def local_queue(*, clock: FakeClock | None = None, **options: Any) -> LocalQueue:
    """Return an empty queue in this process.

    Parameters
    ----------
    clock : FakeClock, optional
        Its time. Default: a clock of its own, `queue.clock`.
    **options
        `visibility_timeout`, `max_deliveries`, `retry`, `maxsize`, `max_bytes`, as for `lab.queue`.

    Raises
    ------
    BadOption
        An option has a value it cannot have.
    """
    return LocalQueue(clock or FakeClock(), **options)


class LocalQueue:
    """A queue of one shard in this process. Made by `local_queue`.

    Attributes
    ----------
    clock : FakeClock
    shard : Shard
        The rules themselves, for what has no word here.
    """

    def __init__(
        self,
        clock: FakeClock,
        *,
        visibility_timeout: float | str | None = None,
        max_deliveries: int | None = None,
        retry: bool | Retry | None = None,
        maxsize: int | None = None,
        max_bytes: int | str | None = None,
    ) -> None:
        chosen = queue_options(
            visibility_timeout=visibility_timeout,
            max_deliveries=max_deliveries,
            retry=retry,
            maxsize=maxsize,
            max_bytes=max_bytes,
        )
        del chosen["results_memory"], chosen["results_maxsize"]
        chosen["retry"] = Retry(**chosen["retry"])
        self.clock = clock
        self._journal = MemoryJournal()
        self.shard = Shard(
            "local", 0, epoch=1, options=QueueOptions(**chosen), clock=clock, random=Random(0), journal=self._journal
        )
        self._limit = nbytes(option("message.max-bytes"), name="dqlab.message.max-bytes")
        self._origin = Origin(CONSUMER, "local", nbytes(option("results.max-bytes"), name="dqlab.results.max-bytes"))
        self._producer, self._sequence = uuid.uuid4().bytes, 0
        self._functions: dict[bytes, bytes] = {}
        self._results: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return f"<LocalQueue: {self.counts()}>"

    def __len__(self) -> int:
        """Return messages that wait or are leased."""
        return self.shard.lanes[NO_ID].alive

    # --- messages in ------------------------------------------------------------------------

    def put(self, value: Any) -> int:
        """Put one value; return its id. Errors as `QueuePool.put`."""
        return self.put_many([value])[0]

    def put_many(self, values: Iterable[Any]) -> list[int]:
        """Put values in one frame: all of them are taken, or none; return their ids."""
        payloads = [self._sealed(value, f"value {position}", position) for position, value in enumerate(values)]
        return self._put(payloads, Kind.VALUE, NO_ID) if payloads else []

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
        """Put one call; return its id. Errors as `QueuePool.submit`."""
        blob = seal_function(fn)
        self._functions[blob_hash(blob)] = blob
        return self._put([self._sealed((args, kwargs), "the arguments of call 0", 0)], Kind.CALL, blob_hash(blob))[0]

    def _sealed(self, value: Any, what: str, position: int) -> bytes:
        payload = seal_or_explain(value, what)
        if len(payload) > self._limit:
            raise MessageTooLarge(position=position, size=len(payload), limit=self._limit)
        return payload

    def _put(self, payloads: Sequence[bytes], kind: Kind, function: bytes) -> list[int]:
        frame = Frame.decode(
            Frame.encode(payloads, kind=kind, function=function, producer=self._producer, sequence=self._sequence)
        )
        put = self.shard.put(frame)
        if put.verdict is Verdict.DRAINING:
            raise QueueDraining(queue=self.shard.name)
        if put.verdict is Verdict.FULL:
            lane = self.shard.lanes[NO_ID]
            limits = {"maxsize": lane.maxsize or 0, "max_bytes": lane.max_bytes or 0}
            reason = "nobody works while a local queue is put into"
            raise QueueFull(
                queue=self.shard.name, messages=lane.alive, bytes=lane.nbytes, seconds=0.0, reason=reason, **limits
            )
        assert put.first is not None, "a numbered frame of this queue's own is taken, refused or full"
        self._sequence += 1
        return list(range(put.first, put.first + frame.count))

    # --- messages out, one by one -----------------------------------------------------------

    def lease(self, n: int = 1, *, consumer: str = CONSUMER) -> list[Delivery]:
        """Lease up to `n` messages, the oldest first; an empty list when there is nothing to lease."""
        lease = self.shard.lease(consumer, n)
        if lease is None:
            return []
        found = []
        for piece in lease.pieces:
            frame = self._journal.frames[piece.frame]
            for offset in range(piece.n):
                value = open_value(frame.message(piece.lo + offset))
                id = piece.frame + piece.lo + offset
                found.append(Delivery(id, value, consumer, lease.id, piece.ordinal + offset))
        return found

    def ack(self, delivery: Delivery, result: Any = None) -> Settled:
        """Settle one delivery with its result; the answer says whether it counted."""
        return self._settle_one(delivery, Outcome.ACK, seal_value(result))

    def fail(self, delivery: Delivery, error: BaseException) -> Settled:
        """Settle one delivery with an exception, retried or not as a consumer's would be."""
        failure = Failure.from_exception(error, consumer=delivery.consumer, when=self.clock.wall(), seconds=0.0)
        return self._settle_one(delivery, Outcome.FAIL if retryable(error) else Outcome.REJECT, failure.to_bytes())

    def give_back(self, delivery: Delivery) -> Settled:
        """Return one delivery untouched; it does not count."""
        return self._settle_one(delivery, Outcome.RETURN, b"")

    def advance(self, seconds: float) -> None:
        """Let time pass: leases expire, delayed messages become ready."""
        self.clock.advance(seconds)
        self.shard.tick()

    def _settle_one(self, delivery: Delivery, outcome: Outcome, payload: bytes) -> Settled:
        piece = Piece(delivery.id, delivery.ordinal, 1)
        return self._settle(
            Settlement.encode(
                [piece], bytes([outcome]), [payload], run=NO_ID, epoch=self.shard.epoch, lease=delivery.lease
            )
        )

    # --- messages out, all of them ----------------------------------------------------------

    def run_all(self, process_item: Callable[[Any], Any] | None = None) -> int:
        """Run what is ready, here and now, until nothing is left to run; return the number of deliveries.

        The clock moves over the delays of retries. What others hold stays with them.

        Parameters
        ----------
        process_item : callable, optional
            Takes plain values; without it they become dead letters, as with automatic consumers.
        """
        ran = 0
        while True:
            lease = self.shard.lease(CONSUMER, AT_A_TIME)
            if lease is not None:
                ran += self._run(lease, Work(process_item or refuse_value))
                continue
            due = self.shard.lanes[NO_ID].next_due()
            if due is None or self.shard.paused:
                return ran
            self.advance(max(0.0, due - self.clock.monotonic()))

    def _run(self, lease: Lease, values: Work) -> int:
        cuts = []
        for piece in lease.pieces:
            frame = self._journal.frames[piece.frame]
            cut = frame.cut(piece.lo, piece.n, function=piece.function, ordinal=piece.ordinal)
            cuts.append((piece.frame + piece.lo, Frame.decode(cut)))
        ran = 0
        for _, group in groupby(cuts, key=lambda pair: (pair[1].function, pair[1].kind)):
            firsts, frames = zip(*group, strict=True)
            chunk = Chunk(0, lease.id, self.shard.epoch, lease.timeout, firsts, frames)
            self._run_chunk(chunk, values)
            ran += chunk.count
            while (settlement := chunk.collect()) is not None:
                self._settle(settlement)
        return ran

    def _run_chunk(self, chunk: Chunk, values: Work) -> None:
        frame = chunk.frames[0]
        try:
            work = values if frame.kind is Kind.VALUE else Work(open_value(self._functions[frame.function]))
        except BaseException as error:  # noqa: BLE001 - as on a consumer: each message reports the failure
            fail_all(chunk, error, self._origin)
        else:
            run_chunk(chunk, work, self._origin, 100)

    def _settle(self, blob: bytes) -> Settled:
        settlement = Settlement.decode(blob)
        settled = self.shard.settle(settlement)
        for piece, at in settled.results:
            for offset in range(piece.n):
                self._results[piece.first + offset] = bytes(settlement.entry(at + offset))
        self.shard.invariants()
        self.shard.effects.clear()
        return settled

    # --- looking ----------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Return messages by state: ready, delayed, leased, acked, dead, cancelled, lost."""
        self.shard.tick()
        return {state.name.lower(): self.shard.lanes[NO_ID].counts[state] for state in State}

    def result(self, id: int) -> Any:
        """Return one message's value.

        Raises
        ------
        MessageNotFound
            It has none, or not yet.
        """
        if id not in self._results:
            raise MessageNotFound(queue=self.shard.name, id=id)
        return open_value(self._results[id])

    def results(self) -> dict[int, Any]:
        """Return every value there is, by message id."""
        return {id: open_value(payload) for id, payload in sorted(self._results.items())}

    def dead(self) -> list[DeadLetter]:
        """Return the dead letters, by id."""
        found = []
        for letter in self.shard.dead_letters(NO_ID):
            first, index = self.shard.locate(NO_ID, letter.id)
            frame = self._journal.frames[first]
            row = [letter.id, letter.ordinal, letter.reason, letter.deliveries, letter.exceptions, int(frame.kind)]
            found.append(dead_letter(row, memoryview(letter.failure), frame.message(index)))
        return found
