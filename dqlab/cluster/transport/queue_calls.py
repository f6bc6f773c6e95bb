"""Calls to the shards of one queue, from a client or from the scheduler, which reach them differently.

A call asks one shard or all of them. An order is noted first, then given (`QueueCalls.order`). Below are the actions
that take more than one call: cancel, retry, compact.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import reduce
from operator import add

from dqlab.cluster.transport import calls
from dqlab.cluster.transport.calls import A, Call
from dqlab.cluster.transport.orders import (
    Adopt,
    Cancel,
    Code,
    LearnCode,
    Order,
)
from dqlab.cluster.transport.progress import Progress
from dqlab.errors import RunError
from dqlab.store.values import Compacted


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


async def cancel(queue: QueueCalls, run: bytes) -> int:
    """Cancel every document of a run that has no result yet, and return how many."""
    return await queue.order(Cancel(run))


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
