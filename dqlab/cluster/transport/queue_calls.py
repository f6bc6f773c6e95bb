"""Calls to the shards of one queue, from a client (`Handle`) or from the scheduler, which reach them differently.

A call asks one shard or all of them. An order is noted first, then given (`QueueCalls.order`). Below are the actions
that take more than one call: retry, compact, pages of dead letters.
"""

from __future__ import annotations

import asyncio
import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import reduce
from operator import add
from typing import Any, Self

from dqlab.cluster.transport import calls
from dqlab.cluster.transport.calls import A, Call, DeadCall, DeadRow
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.orders import (
    TRANSIENT,
    Adopt,
    Code,
    LearnCode,
    Order,
)
from dqlab.cluster.transport.ref import RPC_TIMEOUT, Ref
from dqlab.cluster.transport.reports import Progress
from dqlab.errors import BadOption, FrameCorrupt, RunError, RunNotFound
from dqlab.failures.classes import NO_ANSWER
from dqlab.failures.failure import NO_ERROR, Failure, shown_name
from dqlab.store.values import Compacted
from dqlab.texts import as_name


class QueueCalls(ABC):
    """Calls that clients and the scheduler can make to a queue's shards."""

    name: str
    shards: int
    promise: str
    """What a confirmed message survives. "transient": the end of workers; the others as in `LogOptions.sync`."""

    @abstractmethod
    async def ask(self, shard: int, call: Call[A], *parts: bytes, wait: float = 0.0) -> tuple[A, list[memoryview]]:
        """Call one shard, which may park the call for `wait` seconds, and return its answer with the answer's parts."""

    async def ask_all(self, call: Call[A], *, wait: float = 0.0) -> list[A]:
        """Call every shard, and return their answers."""
        answers = await asyncio.gather(*(self.ask(index, call, wait=wait) for index in range(self.shards)))
        return [answer for answer, _ in answers]

    async def order(self, order: Order, *, shard: int | None = None) -> int:
        """Give an order to its shards, or to one shard, and return how many messages it changed."""
        shards = list(order.shards(self.shards)) if shard is None else [shard]
        return sum([sum(await asyncio.gather(*(self._give(order, at) for at in wave))) for wave in order.waves(shards)])

    async def _give(self, order: Order, shard: int) -> int:
        answers = [await self.ask(shard, calls.ControlCall(message)) for message in order.messages(shard)]
        return sum(answer.count for answer, _ in answers)


# --- actions --------------------------------------------------------------------------------------


AT_ONCE = 5000
"""Messages that one call retries, at most."""
LOOK_EVERY = 0.2
"""Seconds between two reports of a compaction's progress; its end is answered at once."""


async def runs_of(queue: QueueCalls) -> dict[str, bytes]:
    """Return the ids of a queue's runs by name."""
    return {name: run for answer in await queue.ask_all(calls.RunsCall()) for run, name in answer.runs}


async def progress_of(queue: QueueCalls, run: bytes) -> Progress:
    """Return the current reports of a run's shards, joined."""
    return Progress(await queue.ask_all(calls.WatchCall(run)))


async def kept_function(queue: QueueCalls, blob: bytes) -> bytes | None:
    """Return a packed function, or None where no shard has it."""
    for shard in range(queue.shards):  # any of them: a recreated shard may lack the function
        answer, parts = await queue.ask(shard, calls.FunctionCall(blob))
        if answer.known:
            return bytes(parts[0])
    return None


async def newest_code(queue: QueueCalls, run: bytes) -> Code:
    """Return a run's newest code version, or raise RunError where no shard has its function."""
    record = (await progress_of(queue, run)).record
    code = record.codes[-1]
    if (blob := await kept_function(queue, code["blob"])) is not None:
        return Code(code["blob"], blob, code)
    raise RunError(
        run=record.lane.name,
        reason=f"its newest code, {code['name']!r} (version {code['short']}), is no longer kept anywhere: it was lost "
        "with a worker or in a damaged file. Nothing was sent again. Pass the function: run.retry(fn=...).",
    )


async def begin_retry(queue: QueueCalls, run: bytes, code: Code | None) -> Code:
    """Prepare all shards of a run for a retry with this code, or with the newest, and return the code."""
    chosen = code if code is not None else await newest_code(queue, run)
    # All shards get the code, also those with nothing to retry: a shard keeps the newest code that it knows while it
    # has dead documents. If only shards with work knew it, it would be gone with that work. A run that paused itself
    # because everything failed continues in all its shards, with this code for the rest.
    if (await progress_of(queue, run)).halted:
        await queue.order(Adopt(run, chosen))
    elif code is not None:
        await queue.order(LearnCode(run, code))
    return chosen


async def dead_counts(queue: QueueCalls, run: bytes | None, classes: Collection[str] = ()) -> list[dict[bytes, int]]:
    """Return for each shard how many messages are dead by lane, of one run or all, of some failure classes or all."""
    answers = await queue.ask_all(calls.DeadCountsCall(run, list(classes)))
    return [dict(answer.counts) for answer in answers]


async def retry(
    queue: QueueCalls,
    run: bytes,
    code: Code | None = None,
    *,
    classes: Collection[str] = (),
    limit: int | None = None,
) -> int:
    """Retry dead messages of a run, each once, and return how many, or raise RunError before any is sent."""
    # `classes` are fingerprints of failures, none for all dead messages. Messages are read behind a cursor, so one that
    # dies again meanwhile is not sent twice.
    dead = [sum(counts.values()) for counts in await dead_counts(queue, run, classes)]
    if not any(dead):
        return 0
    chosen = await begin_retry(queue, run, code)
    sent = 0
    for shard, count in enumerate(dead):
        after: int | None = -1 if count else None
        while after is not None and (limit is None or sent < limit):
            at_most = AT_ONCE if limit is None else min(AT_ONCE, limit - sent)
            # Without the code version: `begin_retry` sent it, and shards must get it once.
            asked = calls.RetryCall(run, list(classes), after, at_most, chosen.function, chosen.blob)
            answer, _ = await queue.ask(shard, asked)
            sent += answer.count
            after = answer.after
    return sent


async def compact(queue: QueueCalls, progress: Callable[[int, int], None] | None = None) -> Compacted:
    """Compact every shard of a queue at once, and wait until they are done."""
    far = [(0, 0)] * queue.shards

    async def compact_one(shard: int) -> Compacted:
        while True:
            answer, _ = await queue.ask(shard, calls.CompactCall(LOOK_EVERY), wait=LOOK_EVERY)
            far[shard] = answer.copied, answer.of
            if progress is not None:
                progress(sum(copied for copied, _ in far), sum(of for _, of in far))
            if answer.done is not None:
                return answer.done

    return reduce(add, await asyncio.gather(*map(compact_one, range(queue.shards))))


# --- from a client --------------------------------------------------------------------------------


class Handle(QueueCalls):
    """Calls the shards of one queue from a client."""

    run = ""
    """Name of the run that calls are about, for errors, since shards know only its id; "" for the whole queue."""

    def __init__(
        self, link: Link, name: str, shards: int, promise: str = TRANSIENT, store: str = "", opening: str = ""
    ) -> None:
        # promise: what a confirmed message survives. "transient": the end of workers; others as in `LogOptions.sync`.
        self.link, self.name, self.promise = link.named(f"queue {name!r}", f"lab.queue({name!r})"), name, promise
        self.link.store = store
        self.opening = opening
        """Which queue of this name it is; "" for a durable one, which goes on when it is opened again."""
        self.shards = shards
        names = (f"queue/{name}/{index}" for index in range(shards))
        self.refs = [Ref(shard, link.client, direct=link.direct, opening=opening) for shard in names]

    def of_run(self, name: str) -> Self:
        """Return a copy of the handle for a run of the queue, which errors then name."""
        handle = copy.copy(self)
        handle.run, handle.link = name, self.link.named(f"run {name!r}", f"lab.attach({name!r})")
        return handle

    async def missing(self) -> tuple[bool, bool]:
        """Return whether a shard is gone for good or unknown, and whether one is not recreated within 10 s."""
        resolve, opening = self.link.scheduler, self.opening
        places = await asyncio.gather(*(resolve("dq_resolve", name=ref.name, opening=opening) for ref in self.refs))
        gone = any(place["gone"] is not None for place in places)
        return gone, any(place["gone"] is None and place["address"] is None for place in places)

    async def ask(self, shard: int, call: Call[A], *parts: bytes, wait: float = 0.0) -> tuple[A, list[memoryview]]:
        """Call one shard as `QueueCalls.ask` says, and name the run in RunNotFound."""
        try:
            answer = await self.refs[shard].call(call.method, call.pack(*parts), timeout=RPC_TIMEOUT + wait)
        except RunNotFound:
            if not self.run:
                raise
            hint = " It was dropped, or went with its queue; if it is still listed, drop it again."
            raise RunNotFound(run=self.run, hint=hint, known="see lab.runs") from None
        return call.opened(answer)

    # Not an `Order`: shards record the messages it moves, as a released lease does, and replay those.
    async def let_go(
        self, *, consumer: str = "", document: str = "", run: bytes | None = None, give_up: bool
    ) -> list[str]:
        """Take running messages from their consumers, and return the documents' names, sorted."""
        consumer, document = as_name(consumer), as_name(document)
        call = self.link.scheduler
        return sorted(
            await call("dq_let_go", queue=self.name, consumer=consumer, document=document, run=run, give_up=give_up)
        )


# --- pages of dead letters for views outside a client, from failure records: payloads stay sealed -


MOST = 100


async def dead_page(queue: QueueCalls, run: bytes | None, fingerprint: str, after: str, limit: int) -> dict[str, Any]:
    """Return {total, rows, next} of dead letters, or raise BadOption for an invalid `after` or `limit`."""
    if not 1 <= limit <= MOST:
        raise BadOption(option="limit", value=limit, problem=f"is 1 to {MOST}.")
    # `after` is the `next` of the page before; an empty one begins at the first page.
    begin = _place(after)
    classes = [fingerprint] if fingerprint else []
    by_shard = await dead_counts(queue, run, classes)
    places = sorted((shard, lane) for shard, lanes in enumerate(by_shard) for lane in lanes)
    rows: list[dict[str, Any]] = []
    last: tuple[int, bytes, int] | None = None
    for shard, lane in places:
        if (shard, lane) < begin[:2]:
            continue
        id = begin[2] if (shard, lane) == begin[:2] else -1
        asked = DeadCall(lane, id, limit + 1 - len(rows), classes, bare=True)
        answer, records = await queue.ask(shard, asked)
        for row, record in zip(answer.rows, records, strict=True):
            if len(rows) == limit:  # one more than asked for: there is a next page
                return _page(by_shard, rows, last)
            rows.append(described(row, bytes(record)))
            last = shard, lane, row.id
    return _page(by_shard, rows, None)


def _page(
    by_shard: list[dict[bytes, int]], rows: list[dict[str, Any]], last: tuple[int, bytes, int] | None
) -> dict[str, Any]:
    total = sum(count for lanes in by_shard for count in lanes.values())
    return {"total": total, "rows": rows, "next": None if last is None else f"{last[0]}-{last[1].hex()}-{last[2]}"}


def _place(after: str) -> tuple[int, bytes, int]:
    """Return the shard, lane and id that a page follows."""
    if not after:
        return 0, b"", -1
    try:
        shard, lane, id = after.split("-")
        return int(shard), bytes.fromhex(lane), int(id)
    except ValueError:
        problem = "is the 'next' of the page before; leave it out for the first page."
        raise BadOption(option="after", value=after[:80], problem=problem) from None


def described(row: DeadRow, record: bytes) -> dict[str, Any]:
    """Describe a dead letter from its row and its failure record."""
    failure, reason = None, row.reason
    if record:
        try:
            failure = Failure.from_bytes(record)
        except FrameCorrupt as error:
            reason = f"{reason}; {error}"
    known = {"id": row.id, "key": row.ordinal, "deliveries": row.deliveries, "reason": reason}
    if failure is None:  # its function never raised
        texts = dict.fromkeys(("at", "traceback", "version", "consumer", "logs"), "")
        nothing = {"error": NO_ERROR, "message": reason, "fingerprint": NO_ANSWER, "when": 0.0, "cut": 0}
        return known | texts | nothing
    return known | {
        "key": failure.key if failure.key is not None else row.ordinal,
        "error": shown_name(failure.error),
        "message": failure.message,
        "at": failure.at,
        "traceback": failure.traceback,
        "fingerprint": failure.fingerprint,
        "version": failure.code,
        "consumer": failure.consumer,
        "when": failure.when,
        "logs": failure.printed,
        "cut": failure.cut,
    }
