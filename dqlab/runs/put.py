"""What a put answers: ids and durability once confirmed, results once settled."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

from dqlab.cluster.transport.handle import Handle
from dqlab.cluster.transport.protocol import PARK
from dqlab.cluster.transport.ref import Replaced
from dqlab.config import seconds
from dqlab.errors import (
    CallsFailed,
    CallTimeout,
    MessagesLost,
    NoAnswer,
    PutTimeout,
    ResultsFull,
    RunStalled,
    WaitTimeout,
)
from dqlab.errors.trimming import interruptible
from dqlab.frame import NO_ID
from dqlab.rules.ids import shard_of
from dqlab.rules.states import State
from dqlab.runs.deadline import Deadline
from dqlab.runs.failures import Failures
from dqlab.runs.keywords import checks_keywords
from dqlab.runs.results import check_errors, check_readable, open_settlements
from dqlab.runs.submit.sender import CONFIRM_WAIT
from dqlab.runs.submit.ticket import Ticket

__all__ = ["PutResult"]

PAGE = 1000


class PutResult:
    """The messages of one put. Made without waiting; `ids` and `durability` wait for the confirm.

    Parameters
    ----------
    ticket : Ticket
        Where the sender notes what became of the messages.
    """

    def __init__(self, handle: Handle, ticket: Ticket) -> None:
        self._handle, self._ticket = handle, ticket

    def __repr__(self) -> str:
        done = self._ticket.done
        state = "sending" if not done.done() else "refused" if done.exception() else "confirmed"
        return f"<PutResult of {self._ticket.count:,} messages on {self._handle.name!r}: {state}>"

    def __len__(self) -> int:
        return self._ticket.count

    @property
    def ids(self) -> list[int]:
        """The messages' ids, in the order they were put; waits at most 30 s.

        Raises
        ------
        PutTimeout
            Not confirmed within 30 s.
        QueueFull, QueueDraining
            The put was refused.
        """
        return [id for lo, hi in self._ranges() for id in range(lo, hi)]

    @property
    def durability(self) -> str:
        """What these messages survive, now that they are confirmed.

        "transient": nothing, they are in the memory of one process. "always": the end of every process, and a power
        cut. "interval": both, but for the last 50 ms before a power cut. "os": the end of every process.
        """
        self._ranges()
        return self._handle.promise

    @checks_keywords
    def results(self, timeout: float | str | None = None, errors: Literal["raise", "return"] = "raise") -> list[Any]:
        """Wait until all messages are settled; return their values in the order they were put.

        Parameters
        ----------
        errors : {"raise", "return"}
            What to do about messages that failed, and results that cannot be unpickled here: raise, or put their
            `DeadLetter` or `ResultUnreadable` in their place.
        timeout : float or str, optional
            Seconds, or "5m"; without one there is no limit.

        Raises
        ------
        CallsFailed
            Some are dead, or were cancelled; the first failure is named.
        ResultUnreadable
            One cannot be unpickled in this process.
        MessagesLost
            Some were in the memory of a worker that died, or of a queue that was closed and opened again.
        WaitTimeout
            The time is over; the messages stay queued.
        RunStalled
            No consumer has existed for 5 s.
        ResultsFull
            The queue has no room for more results of single calls, and stands still.
        """
        check_errors(errors)
        text = f"no longer waiting for {self!r}, which was left as it is. Call results() again."
        with interruptible(text):
            return self._results(Deadline(seconds(timeout, name="timeout")), instead=errors == "return")

    def _results(self, deadline: Deadline, *, instead: bool) -> list[Any]:
        sync, values = self._handle.link.sync, list[Any]()
        self._ticket.read = True
        try:
            ranges, parts = sync(self._first_look(deadline))
            for (lo, hi), actor in zip(ranges, self._ticket.actors, strict=True):
                handle = self._handle.of_actor(shard_of(lo), actor)
                for start in range(lo, hi, PAGE):
                    stop = min(hi, start + PAGE)
                    if parts is None:
                        parts = sync(self._settled(handle, start, stop, deadline))
                    values += self._page(handle, start, stop, parts, instead=instead)
                    parts = None
        except Replaced:
            raise sync(self._lost()) from None
        return values

    def _ranges(self) -> list[tuple[int, int]]:
        self._ticket.read = True
        return self._handle.link.sync(self._confirmed())

    async def _confirmed(self, limit: float | None = None) -> list[tuple[int, int]]:
        limit = CONFIRM_WAIT if limit is None else min(limit, CONFIRM_WAIT)
        try:
            async with asyncio.timeout(limit):
                return await self._ticket.landed()
        except TimeoutError:
            raise PutTimeout(queue=self._handle.name, count=self._ticket.count, seconds=limit) from None

    async def _first_look(self, deadline: Deadline) -> tuple[list[tuple[int, int]], list[memoryview] | None]:
        """Wait for the ids and the first page's results in one go: crossing threads costs as much as a call."""
        ranges = await self._confirmed(deadline.limit)
        if not ranges:
            return ranges, None
        lo, hi = ranges[0]
        handle = self._handle.of_actor(shard_of(lo), self._ticket.actors[0])
        return ranges, await self._settled(handle, lo, min(hi, lo + PAGE), deadline)

    async def _lost(self) -> MessagesLost:
        """Return the error for messages whose shard in memory is another one now: it may have others with their ids."""
        lost, how = 0, ""
        for (lo, hi), actor in zip(self._ticket.ranges, self._ticket.actors, strict=True):
            shard = shard_of(lo)
            if actor == (await self._handle.refs[shard].place()).key:
                continue
            lost += hi - lo
            answer, _ = await self._handle.ask(shard, "settled", {"run": NO_ID, "lo": lo, "hi": hi, "wait": 0.0})
            died = f"worker {answer['died'][-1]} died" if answer["lost"] else MessagesLost.CLOSED
            how = how or died
        return MessagesLost(queue=self._handle.name, lost=lost, total=self._ticket.count, how=how)

    async def _settled(self, handle: Handle, lo: int, hi: int, deadline: Deadline) -> list[memoryview]:
        """Wait until none of these ids is ready, delayed or leased; return the first page of their results."""
        alone_since: float | None = None
        name = f"put on {self._handle.name}"
        while True:
            wait = deadline.within(PARK if alone_since is None else 0.5)
            meta = {"run": NO_ID, "lo": lo, "hi": hi, "wait": wait}
            try:
                async with asyncio.timeout(deadline.patience):
                    answer, parts = await handle.ask(shard_of(lo), "settled", meta, wait=wait)
            except (CallTimeout, TimeoutError) as error:  # the shard is being recreated, and takes its time
                if deadline.over:
                    raise NoAnswer(run=name, queue=self._handle.name, seconds=deadline.limit) from error
                continue
            if not answer["left"]:
                return parts
            if answer["stopped"]:
                puts = f"puts on {self._handle.name}"
                raise ResultsFull(run=puts, used=answer["stored"], limit=answer["results_maxsize"])
            now = time.monotonic()
            if deadline.over:
                raise WaitTimeout(run=name, seconds=deadline.limit, left=answer["left"], why=answer["why"])
            alone_since = None if answer["consumers"] or answer["paused"] else alone_since or now
            if alone_since is not None and now - alone_since > PARK:
                raise RunStalled(run=name, queue=self._handle.name, waiting=answer["left"], seconds=PARK)

    def _page(self, handle: Handle, lo: int, hi: int, parts: list[memoryview], *, instead: bool) -> list[Any]:
        found: dict[int, Any] = {}
        cursor = lo
        while cursor < hi:
            if cursor > lo:
                meta = {"run": NO_ID, "lo": cursor, "hi": hi}
                _, parts = handle.link.sync(handle.ask(shard_of(lo), "page", meta))
            page = open_settlements(parts)
            if not page:
                break
            for stretch in page:
                values = stretch.values if instead else check_readable(stretch).values
                found.update(zip(range(stretch.ordinal, stretch.end), values, strict=True))
            cursor = page[-1].end
        acked = len(found)
        if instead and acked < hi - lo:
            found.update((letter.id, letter) for letter in _letters(handle).named(set(range(lo, hi)) - found.keys()))
        if len(found) < hi - lo:
            raise self._dead(handle, lo, hi, acked)
        return [found[ordinal] for ordinal in range(lo, hi)]

    def _dead(self, handle: Handle, lo: int, hi: int, acked: int) -> CallsFailed:
        first = next((letter for letter in _letters(handle) if lo <= letter.id < hi), None)
        what = f"{first.error} ({first.reason}): {first.message}" if first else "a cancelled message"
        others = CallsFailed.OTHERS if acked else ""
        run = f"put on {self._handle.name}"
        return CallsFailed(run=run, dead=hi - lo - acked, total=hi - lo, first=what, others=others)


def _letters(handle: Handle) -> Failures:
    progress = handle.link.sync(handle.ask_all("watch", {"run": NO_ID, "wait": 0.0}))
    return Failures("puts", handle, NO_ID, [shard["counts"][State.DEAD] for shard in progress])
