"""Calls to the shards of one queue, from a client or from the scheduler, which reach them differently.

A call asks one shard or all of them. An order is noted first, then given: `QueueCalls.order`. What takes more than one
call stands below it: cancel, retry, compact.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import reduce
from operator import add

from dqlab.cluster.transport import calls
from dqlab.cluster.transport.calls import A, Call
from dqlab.cluster.transport.orders import TRANSIENT, Adopt, Cancel, CancelledNothing, Code, Facts, LearnCode, Order
from dqlab.cluster.transport.progress import Progress
from dqlab.cluster.transport.ref import RPC_TIMEOUT
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import CodeGone
from dqlab.store.values import Compacted

__all__ = [
    "QueueCalls",
    "begin_retry",
    "cancel",
    "compact",
    "dead_counts",
    "newest_code",
    "progress_of",
    "retry",
    "runs_of",
]


class QueueCalls(ABC):
    """What can be asked of a queue's shards, by clients and the scheduler.

    Attributes
    ----------
    name : str
        The queue's name.
    promise : str
        What a confirmed message survives: "transient" = nothing; else see `LogOptions.sync`.
    """

    name: str
    promise: str

    @property
    @abstractmethod
    def shards(self) -> int:
        """How many shards it has."""

    @abstractmethod
    async def call(self, shard: int, call: str, body: Packed, *, timeout: float) -> Packed:
        """Call one shard with packed arguments; return its packed answer."""

    @abstractmethod
    async def keep_note(self, run: bytes, facts: Facts | None) -> None:
        """Make the scheduler keep facts about a run; see `RunNotes.note`."""

    async def ask(self, shard: int, call: Call[A], *parts: bytes, wait: float = 0.0) -> tuple[A, list[memoryview]]:
        """Call one shard, which may park the call for `wait` seconds; return its answer and the answer's parts."""
        answer = await self.call(shard, call.method, call.pack(*parts), timeout=RPC_TIMEOUT + wait)
        return call.opened(answer)

    async def ask_all(self, call: Call[A], *, wait: float = 0.0) -> list[A]:
        """Call every shard; return their answers."""
        answers = await asyncio.gather(*(self.ask(index, call, wait=wait) for index in range(self.shards)))
        return [answer for answer, _ in answers]

    async def order(self, order: Order, *, shard: int | None = None) -> int:
        """Give an order to the shards that it is for, or to one of them; return the messages it touched.

        What must not be lost with a shard in memory is noted before any shard has it: one that dies in between is
        recreated with it. A note may be ahead of the shards, and never behind.
        """
        note = order.note()
        if note is not None and self.promise == TRANSIENT:
            await self.keep_note(note.run, note.facts)
        shards = list(order.shards(self.shards)) if shard is None else [shard]
        return sum([sum(await asyncio.gather(*(self._give(order, at) for at in wave))) for wave in order.waves(shards)])

    async def _give(self, order: Order, shard: int) -> int:
        answers = [await self.ask(shard, calls.Control(message)) for message in order.messages(shard)]
        return sum(answer.count for answer, _ in answers)


AT_ONCE = 5000
"""Messages that one order sends through again."""
LOOK_EVERY = 0.2
"""Seconds between two looks at the progress of a compaction; the queue answers at once when it is done."""


async def runs_of(queue: QueueCalls) -> dict[str, bytes]:
    """Return the ids of a queue's runs by name."""
    return {name: run for answer in await queue.ask_all(calls.Runs()) for run, name in answer.runs}


async def progress_of(queue: QueueCalls, run: bytes) -> Progress:
    """Return the current reports of a run's shards, joined."""
    return Progress(await queue.ask_all(calls.Watch(run)))


async def cancel(queue: QueueCalls, run: bytes) -> int:
    """Give up every document of a run that has no result yet; return how many."""
    cancelled = await queue.order(Cancel(run, complete=(await progress_of(queue, run)).complete))
    if not (await progress_of(queue, run)).cancelled:  # it had ended before the order came
        await queue.order(CancelledNothing(run))
    return cancelled


async def newest_code(queue: QueueCalls, run: bytes) -> Code:
    """Return a run's newest code version.

    Raises
    ------
    CodeGone
        No shard has its function.
    """
    record = (await progress_of(queue, run)).record
    code = record.codes[-1]
    for shard in range(queue.shards):  # one that was lost has lost its functions too
        answer, parts = await queue.ask(shard, calls.Function(code["blob"]))
        if answer.known:
            return Code(code["blob"], bytes(parts[0]), code)
    raise CodeGone(run=record.lane.name, code=code["name"], version=code["short"])


async def begin_retry(queue: QueueCalls, run: bytes, code: Code | None) -> Code:
    """Have all shards of a run ready for a retry with some code, else with the newest; return that.

    Shards with nothing to run get new code too: each keeps the newest that it knows as long as it has dead documents,
    and where only those with work knew it, it was gone with that work. A run that paused itself because everything
    failed goes on in all its shards, with this code for its rest.
    """
    chosen = code if code is not None else await newest_code(queue, run)
    if (await progress_of(queue, run)).halted:
        await queue.order(Adopt(run, chosen))
    elif code is not None:
        await queue.order(LearnCode(run, code))
    return chosen


async def dead_counts(queue: QueueCalls, run: bytes | None, classes: Collection[str] = ()) -> list[dict[bytes, int]]:
    """Return for each shard how many messages are dead by lane, of one run or of all; of some classes, if given."""
    answers = await queue.ask_all(calls.DeadCounts(run, list(classes)))
    return [dict(answer.counts) for answer in answers]


async def retry(
    queue: QueueCalls,
    run: bytes,
    code: Code | None = None,
    *,
    classes: Collection[str] = (),
    limit: int | None = None,
) -> int:
    """Send dead messages of a run through again; return how many. Each goes once, even if it dies again on the way.

    The shards choose the messages and make the order themselves, so it is not noted as `QueueCalls.order` notes one:
    what has to survive a shard, the code and that a paused run goes on, `begin_retry` has noted before.

    Parameters
    ----------
    code : Code, optional
        What they run from now on, a version that the run may not have had. Default: the run's newest.
    classes : collection of str
        Fingerprints of failures; none = all dead messages.
    limit : int, optional
        Most messages to send.

    Raises
    ------
    CodeGone
        No shard has the run's newest code. Nothing was sent.
    """
    dead = [sum(counts.values()) for counts in await dead_counts(queue, run, classes)]
    if not any(dead):
        return 0
    chosen = await begin_retry(queue, run, code)
    sent = 0
    for shard, count in enumerate(dead):
        after: int | None = -1 if count else None
        while after is not None and (limit is None or sent < limit):
            at_most = AT_ONCE if limit is None else min(AT_ONCE, limit - sent)
            # Without the version of the code: `begin_retry` has brought it, and shards must get it once.
            asked = calls.Retry(run, list(classes), after, at_most, chosen.function, chosen.blob)
            answer, _ = await queue.ask(shard, asked)
            sent += answer.count
            after = answer.after
    return sent


async def compact(queue: QueueCalls, progress: Callable[[int, int], None] | None = None) -> Compacted:
    """Compact every shard of a queue at once, and wait for the end; see `QueuePool.compact`."""
    far = [(0, 0)] * queue.shards

    async def compact_one(shard: int) -> Compacted:
        while True:
            answer, _ = await queue.ask(shard, calls.Compact(LOOK_EVERY), wait=LOOK_EVERY)
            far[shard] = answer.copied, answer.of
            if progress is not None:
                progress(sum(copied for copied, _ in far), sum(of for _, of in far))
            if answer.done is not None:
                return answer.done

    return reduce(add, await asyncio.gather(*map(compact_one, range(queue.shards))))
