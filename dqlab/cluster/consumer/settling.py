"""Settles what a slot's chunks have to say, and holds their leases meanwhile.

What is done before a settlement is packed are its hooks: `Refusals.decide` for outcomes that are undecided,
`Sinks.keep` for rows, and the notes of `running.notes`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from dqlab.cluster.consumer.hand import Hand, Stage
from dqlab.cluster.consumer.refusals import Refusals
from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.sink_writing import Sinks
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.ref import Ref
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import ActorGone, CallTimeout, DqlabError, SchedulerGone
from dqlab.log.errors import LogError, RecordTooLarge

logger = logging.getLogger("dqlab.consumer")

REFUSED_AGAIN = 1.0
"""Seconds after which a shard is called again when its log refused a write."""
RENEW_FOR = 1.0
"""Shortest timeout of a renewal, in seconds."""


class Settler:
    """The settlements and renewals of one slot."""

    def __init__(
        self, shards: dict[int, Ref], hand: Hand, sinks: Sinks, refusals: Refusals, touched: Callable[[], None]
    ) -> None:
        self._shards, self._hand, self._touched = shards, hand, touched
        self.sinks, self.refusals = sinks, refusals
        self.done = self.units = 0
        self.busy_s = 0.0
        self.last_error: str | None = None
        self.turns: dict[Chunk, asyncio.Lock] = {}
        """The suspects that run in this process, with the lock that each of them holds."""
        self.tasks: set[asyncio.Task[Any]] = set()
        self.renewing: dict[int, asyncio.Task[None]] = {}
        """The task that renews the leases in hand, by shard."""

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin to settle something."""
        # In a set until it ends: the event loop holds only a weak reference to a task.
        task = asyncio.get_running_loop().create_task(work, name=f"dqlab-settle-{self._hand.name}")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def lost(self, chunk: Chunk, error: Exception) -> None:
        """Log why a lease ends without all its outcomes, so that its messages are delivered again."""
        self.last_error = f"{type(error).__name__}: {error}"
        if isinstance(error, DqlabError):
            logger.warning("event=chunk_lost slot=%s lease=%s %s", self._hand.name, chunk.lease.id, error)
        else:
            logger.error("event=chunk_failed slot=%s lease=%s", self._hand.name, chunk.lease.id, exc_info=error)

    @contextmanager
    def losing(self, chunk: Chunk) -> Iterator[None]:
        """Go on after an error that ends a lease."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the lease ends, and its messages are delivered again
            self.lost(chunk, error)

    def end(self, chunk: Chunk) -> asyncio.Task[None]:
        """Begin to settle the rest of a chunk that has stopped running, and return the task that does it."""
        chunk.over = True
        self._hand.move(chunk, Stage.ENDS)
        return self.begin(self._settle_last(chunk))

    async def _settle_last(self, chunk: Chunk) -> None:
        """Settle the rest of a chunk that has ended, and send its shard a new credit where that has changed."""
        with self.leaving(chunk):
            if not chunk.lease.sink:
                await self.settle(chunk)
            await self.note_run(chunk)
            # Before the rows of a sink are written, which may take a second: the shard may send a lease meanwhile.
            if self._hand.outdated(chunk.lease.shard):
                await self.send(chunk, chunk.nothing())
            if chunk.lease.sink:
                await self.settle(chunk)

    async def note_run(self, chunk: Chunk) -> None:
        """Note at the shard that a suspect of a run with a sink has run, and let the next one begin."""
        # Its row still waits for others. A killed consumer of a fast function leaves thousands of suspects: if each
        # waited for its outcome, each would become a part of its own.
        if chunk.lease.sink and chunk.lease.suspect:
            await calls.RanCall(chunk.lease.id).ask(partial(self.insist, chunk))
            self.leave_turn(chunk)

    @contextmanager
    def leaving(self, chunk: Chunk) -> Iterator[None]:
        """Note in the end, whatever happens, that nothing of a chunk is left to do."""
        try:
            with self.losing(chunk):
                yield
        finally:
            self.leave_turn(chunk)
            self._hand.leave(chunk)
            self._touched()

    def leave_turn(self, chunk: Chunk) -> None:
        """Note that a chunk no longer runs in this process."""
        if (turn := self.turns.pop(chunk, None)) is not None:
            turn.release()

    def meanwhile(self, chunk: Chunk) -> None:
        """Begin to settle finished messages of a chunk that runs, unless that is under way."""
        if chunk.news and not chunk.settling.locked():
            self.begin(self.settle(chunk))
        elif chunk.news and chunk.lease.sink and chunk.lease.paced:
            self.begin(self._tell_waiting(chunk))

    async def _tell_waiting(self, chunk: Chunk) -> None:
        """Tell a shard how many rows of a lease wait for their part: they are calls no more, and others may begin."""
        held = [each for each in self._hand.of(chunk.lease.shard) if each.lease.id == chunk.lease.id]
        with suppress(DqlabError):  # then the part that they wait for tells it
            await self.send(chunk, chunk.nothing(), answered=sum(each.waiting for each in held))

    async def settle(self, chunk: Chunk) -> None:
        """Settle finished messages of a chunk."""
        # One settlement of a chunk at a time: `Chunk.confirm` confirms all that was collected.
        if chunk.lease.sink and chunk.lease.paced:
            await self._tell_waiting(chunk)
        async with chunk.settling:
            with self.losing(chunk):
                while await self._settle_some(chunk):
                    pass

    async def _settle_some(self, chunk: Chunk) -> bool:
        """Send one settlement, and return False if nothing is to be settled."""
        while chunk.undecided:
            await self.refusals.decide(chunk, self._shards)
        await self.sinks.keep(chunk, self._shards)
        done, units, busy = chunk.acked + chunk.failed, chunk.units, chunk.busy_collected
        settlement = chunk.collect()
        if settlement is None:
            return False
        self.done += chunk.acked + chunk.failed - done
        self.units += chunk.units - units
        self.busy_s += chunk.busy_collected - busy
        self.last_error = chunk.last_error or self.last_error
        await self.send(chunk, settlement, chunk.sending)
        chunk.confirm()
        return True

    async def give_back(self, chunk: Chunk, n: int) -> int:
        """Give up to `n` untouched messages back to their queue and return how many."""
        before = chunk.settled
        settlement = chunk.give_back(n)
        if settlement is None:
            return 0
        # Counted before the await below: messages that end during it add to `settled` and are not given back.
        given = chunk.settled - before
        if chunk.finished:  # before the await too: the slot must not take an empty chunk
            self._hand.leave(chunk, Stage.WAITS)
        self._hand.look_ahead()
        await self.send(chunk, settlement)
        return given

    async def send(
        self,
        chunk: Chunk,
        settlement: bytes | memoryview,
        sending: Callable[[], None] = lambda: None,
        answered: int | None = None,
    ) -> None:
        """Send a settlement with a new credit, and call `sending` before each try."""
        credit = self._hand.credit(chunk.lease.shard)
        call = calls.SettleCall(self._hand.name, credit, answered)
        body = call.pack_apart(settlement)

        def packed() -> Packed:
            # `Ref` packs a call after it has introduced itself to a recreated shard: until then `held` lists these
            # acks as still to come.
            sending()
            return body

        await self.insist(chunk, call.method, packed)
        self._hand.told(chunk.lease.shard, credit)
        self._touched()

    async def insist(self, chunk: Chunk, call: str, body: Packed | Callable[[], Packed]) -> Packed:
        """Call a chunk's shard until it answers, however slow or full its disk is."""
        # Safe to repeat: an outcome that is settled twice counts once.
        while True:
            try:
                return await self._shards[chunk.lease.shard].call(call, body)
            except CallTimeout:
                logger.warning("event=%s_again slot=%s lease=%s", call, self._hand.name, chunk.lease.id)
            except RecordTooLarge:  # a `LogError` too, but the same call can never succeed
                raise
            except LogError as error:
                logger.warning("event=%s_refused slot=%s lease=%s %s", call, self._hand.name, chunk.lease.id, error)
                await asyncio.sleep(REFUSED_AGAIN)

    def renew(self, shard: int) -> None:
        """Renew the leases in hand of one shard from now on."""
        if shard not in self.renewing:
            work, name = self._renew(shard), f"dqlab-renew-{self._hand.name}-{shard}"
            self.renewing[shard] = asyncio.get_running_loop().create_task(work, name=name)

    async def _renew(self, shard: int) -> None:
        """Renew the leases in hand of one shard until there are none."""
        # A task for each shard: neither a slow settlement nor another shard that hangs may let these leases expire.
        try:
            while held := self._hand.of(shard):
                every = min(chunk.lease.timeout for chunk in held) / 3
                await asyncio.sleep(every)
                if leases := sorted({chunk.lease.id for chunk in self._hand.of(shard)}):
                    await self._send_renewal(shard, leases, max(every, RENEW_FOR))
        finally:
            del self.renewing[shard]

    async def _send_renewal(self, shard: int, leases: list[int], timeout: float) -> None:
        try:
            await calls.RenewCall(leases).ask(partial(self._shards[shard].call, timeout=timeout))
        except (CallTimeout, LogError):
            logger.warning("event=renew_late slot=%s", self._hand.name)
        except (ActorGone, SchedulerGone):
            pass  # the parked lease call reports it
        except Exception:  # go on with the next renewal
            logger.exception("event=renew_failed slot=%s shard=%s", self._hand.name, shard)
