"""One executor slot of a consumer: leases ahead, runs, settles, gives back.

A slot parks one lease call at each shard it serves and runs chunks one after another in a thread
of its own, with at most two chunks in hand, so that it never waits for the network between them.
Coroutine functions run in a second thread, where chunks overlap: one that has begun all its
messages is no longer counted as in hand. Runs that ask for it have their messages run in a process,
which the slot's thread feeds.

A thread cannot be killed. One whose function continues for 5 s after its message was cancelled is abandoned:
it settles nothing more, its other messages are given back, and the slot continues in a new thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from itertools import count, groupby
from typing import Any

from dqlab.cluster.consumer.process.slot_process import SlotProcess
from dqlab.cluster.consumer.refusals import Refusals
from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.coroutines import CoroutineThread
from dqlab.cluster.consumer.running.execution import (
    Flight,
    Origin,
    Work,
    fail_all,
    fail_taken,
    refuse_value,
    run_chunk,
)
from dqlab.cluster.consumer.running.functions import FunctionCache, FunctionLost
from dqlab.cluster.consumer.running.occupancy import Occupancy, Stay, occupancy
from dqlab.cluster.consumer.running.sink_rows import code_in
from dqlab.cluster.consumer.running.thread import SlotThread
from dqlab.cluster.consumer.sink_writing import Sinks
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.orders import RunningMessage
from dqlab.cluster.transport.parking import Credit, Do, SlotOrder
from dqlab.cluster.transport.protocol import LEASE_PARK
from dqlab.cluster.transport.ref import Ref
from dqlab.cluster.transport.reports import Running
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import ActorGone, CallTimeout, DqlabError, SchedulerGone
from dqlab.frame import NO_ID, Frame, Kind
from dqlab.log import LogError, RecordTooLarge
from dqlab.rules.deliveries import MOST_IN_VAIN
from dqlab.texts import as_name

__all__ = ["Slot", "SlotOptions"]


class SlotOptions:
    """Options that a consumer passes to its slots.

    Attributes
    ----------
    batch : int
        Most messages in one lease.
    early : bool
        Early ack: at most once.
    concurrency : int
        Coroutines at a time.
    values : callable or None
        Makes the function that takes plain values (a consumer's own process_item).
    calls : callable or None
        Makes what runs a chunk's calls in place of their function.
    """

    def __init__(
        self,
        *,
        batch: int,
        early: bool,
        concurrency: int,
        origin: Origin,
        values: Callable[[], Work] | None,
        calls: Callable[[Work, Chunk], Work] | None = None,
    ) -> None:
        self.batch, self.early, self.concurrency, self.origin = batch, early, concurrency, origin
        self.values, self.calls = values, calls


SAY_AFTER, SAY_EVERY = 1.0, 5.0
"""Seconds after which a running message is worth a report, and between two reports of it."""


class Begun:
    """What a slot is running, a message of each chunk in hand, and since when."""

    def __init__(self) -> None:
        self._seen: dict[Chunk, tuple[int, float]] = {}
        self._said: dict[Chunk, float] = {}

    def look(self, chunk: Chunk, now: float) -> bool:
        """Note what runs; return whether that is worth a report. `now` is seconds on a steady clock."""
        index = chunk.running
        if index is None:
            self.forget(chunk)
            return False
        if chunk not in self._seen or self._seen[chunk][0] != index:
            self._seen[chunk] = index, now
            self._said[chunk] = now + SAY_AFTER - SAY_EVERY
        if now - self._said[chunk] < SAY_EVERY:
            return False
        self._said[chunk] = now
        return True

    def forget(self, chunk: Chunk) -> None:
        """Note that nothing of a chunk runs."""
        self._seen.pop(chunk, None)
        self._said.pop(chunk, None)

    def oldest(self, now: float) -> Running | None:
        """Return the message that runs, and for how many seconds it has been seen running."""
        runs = self.message(now)
        return None if runs is None else Running(runs.document, runs.seconds, runs.run.hex())

    def message(self, now: float) -> RunningMessage | None:
        """Return the message that has run longest, and since when."""
        running = [(since, chunk, index) for chunk, (index, since) in self._seen.items() if chunk.running == index]
        if not running:
            return None
        since, chunk, index = min(running, key=lambda each: each[0])
        document = as_name(chunk.name_of(index))
        return RunningMessage(chunk.shard, chunk.run, chunk.id_at(index), document, now - since)


logger = logging.getLogger("dqlab.consumer")

SETTLE_EVERY = 0.1
"""Seconds after which finished messages of a running chunk are settled."""
IN_HAND = 2
PARK_AGAIN = 1.0
"""Seconds after which a slot parks again when a call failed unexpectedly."""
REFUSED_AGAIN = 1.0
"""Seconds after which a shard whose store could not keep something is called again."""
RENEW_FOR = 1.0
"""Least seconds that a shard may take to answer a renewal before another one is sent."""
LAST_MESSAGE_S = 5.0
"""Seconds that a running message may still take when its slot stops; then it is given back."""
LAST_SETTLEMENT_S = 2.0
"""Seconds that the last outcomes may then travel; with the others, less than the registry waits."""
KILLED_IN = 2.0
"""Seconds to wait until a slot's process is dead."""
LET_GO_S = 5.0
"""Seconds that a function may take to end after its message was cancelled; then its thread is abandoned."""
FREE_S = 1.0
"""Seconds that the thread of coroutines may take to continue without one; then the thread is abandoned."""
MOST_ABANDONED = 3
"""Most abandoned threads of a slot that still run; with one more it leases nothing, and its worker is replaced."""
ISOLATED_WITHIN = 60.0
"""Seconds that a suspect waits until nothing runs beside it; then it runs beside what does, uncounted. What runs there
may wait for a message behind it."""
ISOLATED_FOR = 60.0
"""Seconds that others wait for a suspect that runs alone; its function may wait for theirs.

Both double with each loss of the suspect beside others, `MOST_IN_VAIN` times at most: until it outlasts what ran there.
"""
ISOLATION_TOLD_IN = 5.0
"""Seconds that a shard may take to note that a suspect runs alone. Until then this process does nothing else."""
COROUTINES_AHEAD = 4
"""Coroutines leased for each that runs at a time: they wait together, so their mean cost means little."""


class Slot:
    """One executor slot. `name` is unique among all slots of the queue; `touched` is called on every change."""

    def __init__(
        self,
        name: str,
        shards: dict[int, Ref],
        options: SlotOptions,
        functions: FunctionCache,
        touched: Callable[[], None],
        sinks: Sinks | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self.name, self.options = name, options
        self.done = self.units = self.chunk = 0
        self.busy_s = 0.0
        self.last_error: str | None = None
        self._shards, self._functions, self._touched = shards, functions, touched
        self._sinks = sinks if sinks is not None else Sinks(name.partition("#")[0], "this process", options.origin)
        self._refusals = refusals if refusals is not None else Refusals(name.partition("#")[0], "this process")
        self._into_sinks: dict[Chunk, asyncio.Task[None]] = {}
        """By chunk of a run with a sink, what settles its finished messages while it runs."""
        self._session = uuid.uuid4().hex
        self._inbox: deque[Chunk] = deque()
        self._running: Chunk | None = None
        self._flying: list[Chunk] = []
        """Chunks whose coroutines run, or wait to begin, oldest first."""
        self._arrived = asyncio.Event()
        self._renewing: dict[int, asyncio.Task[None]] = {}
        """By shard, what renews the leases in hand of it."""
        self._thread = SlotThread(f"dq-{name}")
        self._coroutines: CoroutineThread | None = None
        self._abandoned: list[tuple[str, asyncio.Future[Any] | CoroutineThread]] = []
        """Names of cancelled messages that still run, and the threads that they hold."""
        self._flights: dict[Chunk, Flight] = {}
        self._occupancy = Occupancy()
        self._stays: dict[Chunk, Stay] = {}
        """The places of chunks that run in this process, or wait for one."""
        self._sharing: dict[Chunk, asyncio.Task[None]] = {}
        """By chunk that runs alone, what lets others in when it has for long."""
        self.replace_worker: Callable[[], bool] = lambda: False
        """Ends this process in good order, so that another starts; returns whether it will."""
        self.process = SlotProcess(options.origin)
        self._context = contextvars.copy_context()
        self._tasks: list[asyncio.Task[None]] = []
        self._settling: set[asyncio.Task[None]] = set()
        self._ending: list[Chunk] = []
        """Chunks that have ended, whose last outcomes are on their way."""
        self._at_least = 1
        self._credits = count(1)
        self.begun = Begun()
        self._told: dict[int, tuple[int, int]] = {}
        """The last credit that each shard knows: its number, and how many messages are wanted."""
        self._stopping = False
        self.gone: str | None = None

    def start(self) -> None:
        """Park at every shard and begin to work."""
        loop = asyncio.get_running_loop()
        self._occupancy = occupancy()
        self._occupancy.slots += 1
        self._tasks = [
            loop.create_task(self._park(index, ref), name=f"dqlab-park-{self.name}-{index}")
            for index, ref in self._shards.items()
        ]
        self._tasks.append(loop.create_task(self._work(), name=f"dqlab-work-{self.name}"))

    async def stop(self, patience: float = 0.0) -> None:
        """Lease no more, give back what has not begun, let the running message end unless that takes too long.

        The limit is 5 s, or `patience` if that is more.
        """
        self._stopping = True
        for chunk in reversed(self._chunks):
            await self._give_back(chunk, chunk.count)
        self._arrived.set()
        *parking, working = self._tasks  # parked it stays meanwhile, to be known where a shard may move
        await asyncio.wait([working, *self._settling], timeout=max(LAST_MESSAGE_S, patience))
        if self._running is not None:
            logger.info("event=thread_left slot=%s lease=%s", self.name, self._running.lease)
        for task in parking:
            task.cancel()
        await asyncio.wait([*parking, *self._settling], timeout=LAST_SETTLEMENT_S)
        for task in [*self._tasks, *self._settling, *self._renewing.values()]:
            task.cancel()
        for chunk in list(self._stays):
            self._leave(chunk)
        if not self.process.stopping:  # else this is the second time
            self._occupancy.slots -= 1
            self.process.stopping = True
            ended = asyncio.wrap_future(self._thread.submit(self.process.close))
            self._thread.shutdown(wait=False)
            if self.process.child is not None:
                await asyncio.wait((ended,), timeout=KILLED_IN)
        if self._coroutines is not None:
            self._coroutines.close()

    @property
    def in_hand(self) -> int:
        """Messages leased and not yet settled."""
        return sum(chunk.count - chunk.settled for chunk in self._chunks)

    @property
    def busy(self) -> bool:
        """Whether something runs here, or is about to."""
        return bool(self._running or self._flying or self._inbox)

    @property
    def abandoned(self) -> list[str]:
        """Names of cancelled messages whose functions still run here."""
        self._abandoned = [kept for kept in self._abandoned if _runs(kept[1])]
        coroutines = self._coroutines.abandoned if self._coroutines is not None else 0
        return [name for name, _ in self._abandoned] + ["a coroutine"] * coroutines

    @property
    def _chunks(self) -> list[Chunk]:
        """Chunks in hand, oldest first."""
        return [*self._flying, *([self._running] if self._running else []), *self._inbox]

    # --- leasing ----------------------------------------------------------------------------

    def _want(self, shard: int) -> int:
        """How many messages to ask a shard for: none while enough leases are in hand; for a sink one is many chunks."""
        chunks = [chunk for chunk in self._chunks if chunk.todo or (chunk is self._running and not chunk.finished)]
        leases = {(chunk.shard, chunk.lease) for chunk in chunks}
        here = sum(of == shard for of, _ in leases)
        limit = IN_HAND if len(leases) < IN_HAND else 1
        return self.options.batch if here < limit and not (self._stopping or self._overrun) else 0

    def _credit(self, shard: int) -> Credit:
        return Credit(next(self._credits), self._want(shard), self._at_least)

    def _note_told(self, shard: int, credit: Credit) -> None:
        self._told[shard] = max(self._told.get(shard, (0, 0)), (credit.at, credit.want))

    async def _park(self, shard: int, ref: Ref) -> None:
        def asked() -> calls.Lease:
            """Return how much is wanted now: what the shard knew before may have died with it."""
            credit = self._credit(shard)
            self._note_told(shard, credit)
            return calls.Lease(self.name, self._session, credit)

        while not (self._stopping and self._tasks[-1].done()):
            try:
                packed = await ref.call(calls.Lease.method, lambda: asked().pack(), timeout=LEASE_PARK + 10)
                answer, parts = calls.Leased.unpack(packed)
                if answer.lease is not None:
                    self._receive(shard, answer.lease, answer.epoch, parts)
                    await asyncio.sleep(0)  # work begins first; the next lease is asked for meanwhile
                for order in answer.orders:
                    await self._obey(order)
            except (ActorGone, SchedulerGone) as error:
                self.gone = str(error)
                self._arrived.set()
                return
            except CallTimeout:
                continue
            except Exception:  # whatever it was, a slot that leases no more would be worse
                logger.exception("event=park_failed slot=%s shard=%s", self.name, shard)
                await asyncio.sleep(PARK_AGAIN)

    def held(self, shard: int) -> list[calls.HeldBySlot]:
        """Return what is in hand of a shard, by lease."""
        found: dict[int, calls.HeldBySlot] = {}
        for chunk in self._held_of(shard):
            if ids := chunk.unsettled():
                age = time.monotonic() - chunk.leased_at
                new = calls.HeldBySlot(self.name, chunk.lease, chunk.run, [], age, early=False)
                before = found.get(chunk.lease, new)
                found[chunk.lease] = replace(before, ids=[*before.ids, *ids], early=before.early or chunk.early)
        return list(found.values())

    def _receive(self, shard: int, lease: calls.Delivery, epoch: int, parts: list[memoryview]) -> None:
        """Put a lease into the inbox, as one chunk for each function in it."""
        frames = zip(lease.firsts, (Frame.decode(bytes(part)) for part in parts), strict=True)
        for _, group in groupby(frames, key=lambda pair: (pair[1].function, pair[1].kind)):
            firsts, cuts = zip(*group, strict=True)
            self.chunk = sum(frame.count for frame in cuts)
            portions = portions_of(firsts, cuts, self._sinks.piece(cuts[0].run)) if lease.sink else [(firsts, cuts)]
            for ids, portion in portions:
                self._inbox.append(
                    Chunk(
                        shard,
                        lease.id,
                        epoch,
                        lease.timeout,
                        ids,
                        portion,
                        lease.process,
                        sink=lease.sink,
                        suspect=lease.suspect is not None,
                        isolate=lease.suspect is not None and lease.suspect.isolate,
                        in_vain=0 if lease.suspect is None else lease.suspect.in_vain,
                        consumer=self.options.origin.consumer,
                        attempts=dict(lease.attempts),
                        paged=not lease.unit,
                    )
                )
        self._look_ahead()
        if shard not in self._renewing:
            work = self._renew(shard)
            self._renewing[shard] = asyncio.get_running_loop().create_task(
                work, name=f"dqlab-renew-{self.name}-{shard}"
            )
        self._arrived.set()
        self._touched()

    async def _obey(self, order: SlotOrder) -> None:
        if order.op is Do.STOP:
            self._stopping = True
            return
        left = order.n
        for chunk in [chunk for chunk in reversed(self._chunks) if chunk.lease == order.lease]:
            if order.op is Do.CANCEL:
                chunk.cancel(order.ids)
            else:
                left -= await self._give_back(chunk, left)

    async def _give_back(self, chunk: Chunk, n: int) -> int:
        """Give up to `n` untouched messages back to their queue; return how many."""
        before = chunk.settled
        settlement = chunk.give_back(n)
        if settlement is None:
            return 0
        given = chunk.settled - before  # what ends during the settlement is not given back
        if chunk in self._inbox and chunk.finished:  # before it waits: `_work` must not take an empty chunk
            self._inbox.remove(chunk)
        self._look_ahead()
        await self._settle(chunk, settlement)
        return given

    def _look_ahead(self) -> None:
        """Have what is read ahead follow what comes next, which has changed."""
        if self._running is not None and self._running.ahead is not None:
            self._running.ahead.look()

    # --- working ----------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            while not self._inbox:
                self._arrived.clear()
                if self._stopping or self.gone:
                    return
                await self._arrived.wait()
            self._running = chunk = self._inbox.popleft()  # in one step: see `_held_of`
            try:
                await self._run(chunk)
            except Exception as error:  # noqa: BLE001 - the next chunk may fare better
                self._lost(chunk, error)
                if not isinstance(error, DqlabError):  # a defect: clients that wait for these messages should see it
                    fail_taken(chunk, error, self.options.origin)
                    fail_all(chunk, error, self.options.origin)
                self._end(chunk)
            finally:
                self._running = None
                if chunk not in self._flights:
                    self.begun.forget(chunk)
                self._touched()

    async def _run(self, chunk: Chunk) -> None:
        ref = self._shards[chunk.shard]
        if chunk.sink:
            await (await self._sinks.of(chunk.run, self._shards, chunk.shard)).room(chunk)
        if not await self._enter(chunk):
            self._end(chunk)
            return
        if self.options.early:
            begin = calls.Begin(chunk.lease)
            answer, _ = begin.opened(await self._insist(chunk, begin.method, begin.pack()))
            if not answer.begun:
                self._end(chunk)
                return
            chunk.early = True
        loop = asyncio.get_running_loop()
        blobs = {}
        for frame in chunk.frames:
            if frame.function != NO_ID and frame.function not in blobs:
                blobs[frame.function] = await self._functions.fetch(ref, frame.function)
        running = loop.run_in_executor(self._thread, self._context.run, self._execute, chunk, blobs)
        while not await self._attend(chunk, running):
            if await self._abandon(chunk, running):
                self._running = None  # as below
                self._end(chunk)
                return
        flight = running.result()
        self._running = None  # and in `_ending` or `_flying` before the next await: see `_held_of`
        if flight is None:
            # Not awaited: the next chunk starts while this one's outcomes travel.
            self._end(chunk)
        else:
            self._flying.append(chunk)
            self._flights[chunk] = flight
            if flight.thread is not self._coroutines:  # it was abandoned meanwhile
                chunk.stopped = True
            following = self._in_background(self._follow(chunk, flight))
            if self.options.early:  # what has not begun may still be given back when this consumer dies
                begun = asyncio.wrap_future(flight.begun)
                await asyncio.wait((begun, following), return_when=asyncio.FIRST_COMPLETED)

    async def _enter(self, chunk: Chunk) -> bool:
        """Wait until a chunk may run in this process; return whether any of it is still to run.

        A suspect that was lost more than once runs with nothing beside it, and in a process with one slot any suspect
        does. Its shard notes that before it begins: should this process die then, it died of that message.
        """
        patience = 2 ** min(chunk.in_vain, MOST_IN_VAIN)
        alone = chunk.suspect and not self.options.early and (chunk.isolate or self._occupancy.slots == 1)
        stay = self._stays[chunk] = self._occupancy.enter(alone=alone)
        until = time.monotonic() + ISOLATED_WITHIN * patience
        while not await stay.admitted(SETTLE_EVERY):
            if chunk.finished or len(chunk.cancelled) == chunk.count:
                return False
            if stay.alone and time.monotonic() >= until:
                stay.share()
        if stay.alone:
            self._sharing[chunk] = asyncio.get_running_loop().create_task(
                self._share(chunk, stay, ISOLATED_FOR * patience), name=f"dqlab-share-{self.name}"
            )
        return await self._note_alone(chunk, alone=stay.alone) if alone else True

    async def _note_alone(self, chunk: Chunk, *, alone: bool) -> bool:
        """Let a suspect's shard know whether it runs alone; return whether it still has to run."""
        try:
            async with asyncio.timeout(ISOLATION_TOLD_IN):
                call = calls.Isolate(chunk.lease, alone)
                answer, _ = call.opened(await self._insist(chunk, call.method, call.pack()))
        except TimeoutError:
            return True  # its death does not count, unless it had been alone before
        return answer.held

    async def _share(self, chunk: Chunk, stay: Stay, seconds: float) -> None:
        """Let others run beside a suspect that has run alone for some time; not before its shard knows."""
        await asyncio.sleep(seconds)
        # As long as nothing waits it stays alone, so that a function that kills its process late is found too.
        while not self._occupancy.wanted:  # noqa: ASYNC110 - seldom, and ten times a second is little
            await asyncio.sleep(SETTLE_EVERY)
        try:
            await self._note_alone(chunk, alone=False)
        except DqlabError as error:
            logger.warning("event=share_unnoted slot=%s lease=%s %s", self.name, chunk.lease, error)
        finally:
            stay.share()

    def _leave(self, chunk: Chunk) -> None:
        """Note that a chunk no longer runs in this process."""
        if (stay := self._stays.pop(chunk, None)) is not None:
            stay.leave()
        if (sharing := self._sharing.pop(chunk, None)) is not None:
            sharing.cancel()

    async def _attend(self, chunk: Chunk, end: asyncio.Future[Any]) -> bool:
        """Settle what is finished every 100 ms, until the end.

        Returns
        -------
        bool
            False if it has not ended because a cancelled message still runs.
        """
        while not (await asyncio.wait((end,), timeout=SETTLE_EVERY))[0]:
            if chunk.sink:
                self._settle_meanwhile(chunk)
            else:
                await self._settle_done(chunk)
            if self.begun.look(chunk, asyncio.get_running_loop().time()):
                self._touched()
            if chunk.stopped or (self._clinging(chunk) and time.monotonic() - chunk.cancelled_at >= LET_GO_S):
                return False
        return True

    def _clinging(self, chunk: Chunk) -> list[int]:
        """Return the messages of a chunk that run although they are cancelled."""
        if not chunk.cancelled:
            return []
        flight = self._flights.get(chunk)
        runs = [chunk.running] if flight is None else list(flight.hands)
        return [index for index in runs if index is not None and index in chunk.cancelled]

    async def _abandon(self, chunk: Chunk, running: asyncio.Future[Any]) -> bool:
        """Abandon the slot's thread to a function that does not end; return whether it was abandoned.

        It is not if the function has just ended.
        """
        before = chunk.running
        chunk.stopped = True  # from here on the thread begins nothing more of this chunk
        await self._give_back(chunk, chunk.count)
        if running.done() or chunk.running != before or not self._clinging(chunk):
            await asyncio.wait((running,), timeout=SETTLE_EVERY)
            return False
        name = chunk.name_of(before) if before is not None else "?"
        self._note_abandoned(name, running, chunk)
        running.add_done_callback(lambda _: self._in_background(self._tell(chunk)))
        self._thread.shutdown(wait=False)
        self._thread = SlotThread(f"dq-{self.name}")
        self._context = self._context.copy()  # the other one is entered as long as that function runs
        if self.process.child is not None:  # the kernel would kill it with the thread that started it
            self._thread.submit(self.process.close)
            self.process = SlotProcess(self.options.origin)
        return True

    def _note_abandoned(self, name: str, thread: asyncio.Future[Any] | CoroutineThread, chunk: Chunk) -> None:
        self._abandoned.append((name, thread))
        self.last_error = f"{name} goes on though it was cancelled; its thread was abandoned"
        threads = len(self._abandoned)
        words = "event=thread_abandoned slot=%s lease=%s message=%s threads=%d"
        logger.info(words, self.name, chunk.lease, name, threads)  # `last_error` and the doctor name it
        if self._overrun:
            words = "event=slot_overrun slot=%s threads=%d worker_replaced=%s"
            logger.error(words, self.name, threads, self.replace_worker())
            for waiting in list(self._inbox):
                self._in_background(self._return(waiting))
        self._touched()

    async def _return(self, chunk: Chunk) -> None:
        await self._give_back(chunk, chunk.count)

    async def _tell(self, chunk: Chunk) -> None:
        """Send a chunk's shard how much is wanted, now that the function of an abandoned thread has ended."""
        try:
            await self._settle(chunk, chunk.nothing())
        except Exception as error:  # noqa: BLE001 - the next lease call has the credit too
            self._lost(chunk, error)

    @property
    def _overrun(self) -> bool:
        """Whether there are too many abandoned threads: nothing more is leased until one has ended."""
        return len(self.abandoned) > MOST_ABANDONED

    async def _follow(self, chunk: Chunk, flight: Flight) -> None:
        """See a chunk of coroutines to its end, while others run."""
        try:
            if not await self._attend_flight(chunk, flight, flight.begun):
                return
            if not flight.ended.done():
                if chunk.sink:
                    self._settle_meanwhile(chunk)
                    await self._settle(chunk, chunk.nothing())
                else:
                    await self._settle_done(chunk, tell=True)
            if await self._attend_flight(chunk, flight, flight.ended):
                await self._note_run(chunk)
                await self._settle_done(chunk)
        except Exception as error:  # noqa: BLE001 - its messages are delivered again, and other chunks run on
            self._lost(chunk, error)
        finally:
            self._leave(chunk)
            self._flying.remove(chunk)
            del self._flights[chunk]
            self.begun.forget(chunk)
            self._touched()

    async def _attend_flight(self, chunk: Chunk, flight: Flight, end: concurrent.futures.Future[None]) -> bool:
        """Attend a chunk of coroutines until one of its ends; return False when their thread was abandoned."""
        waited = asyncio.wrap_future(end)
        while not await self._attend(chunk, waited):
            clinging = self._clinging(chunk)
            thread = self._coroutines
            if thread is not None and thread is flight.thread:
                freed = asyncio.wrap_future(thread.abandon(flight))
                await asyncio.wait((freed,), timeout=FREE_S)
                if freed.done():
                    continue
                self._abandon_coroutines(thread, chunk, clinging)
            settlement = chunk.give_up()
            # Outcomes before what is returned: a coroutine that ends in between is in both, and the first one counts.
            await self._settle_done(chunk, tell=settlement is None)
            if settlement is not None:
                await self._settle(chunk, settlement)
            return False
        return True

    def _abandon_coroutines(self, thread: CoroutineThread, chunk: Chunk, clinging: list[int]) -> None:
        """Abandon the coroutines' thread to one that blocks it; each of its chunks gives back what has not ended."""
        self._coroutines = None
        thread.close()
        for other in self._flying:
            other.stopped = True
        names = [chunk.name_of(index) for index in clinging]
        self._note_abandoned(", ".join(names) or "a coroutine", thread, chunk)

    def _lost(self, chunk: Chunk, error: Exception) -> None:
        """Log why a lease ends without all its outcomes; its messages are delivered again."""
        self.last_error = f"{type(error).__name__}: {error}"
        if isinstance(error, DqlabError):
            logger.warning("event=chunk_lost slot=%s lease=%s %s", self.name, chunk.lease, error)
        else:
            logger.error("event=chunk_failed slot=%s lease=%s", self.name, chunk.lease, exc_info=error)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        settling = asyncio.get_running_loop().create_task(work, name=f"dqlab-settle-{self.name}")
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)
        return settling

    def _execute(self, chunk: Chunk, blobs: dict[bytes, bytes | None]) -> Flight | None:
        """Run the chunk, or hand it to the coroutines; in the slot's thread."""
        chunk.behind = self._next_chunk
        frame = chunk.frames[0]
        try:
            chunk.code = code_in(blobs.get(frame.function))
            if frame.kind is Kind.VALUE:
                work = self.options.values() if self.options.values is not None else Work(refuse_value)
            else:
                blob = blobs[frame.function]
                if blob is None:
                    raise FunctionLost()
                if chunk.process is not None and self.options.calls is None:
                    self._at_least = 1
                    self.process.renewed = self._refusals.renewed
                    self.process.run(chunk, blob)
                    return None
                work = self._functions.open(frame.function, blob)
                if self.options.calls is not None:
                    work = self.options.calls(work, chunk)
                if chunk.sink:
                    work = replace(work, rows=True)
        except BaseException as error:  # noqa: BLE001 - users' imports run here; each message reports the failure
            fail_all(chunk, error, self.options.origin)
            return None
        concurrency = self.options.concurrency
        if not work.is_coroutine:
            self._at_least = 1
            run_chunk(chunk, work, self.options.origin, concurrency)
            return None
        self._at_least = min(COROUTINES_AHEAD * concurrency, self.options.batch)
        thread = self._coroutines
        if thread is None:
            thread = CoroutineThread(f"dq-{self.name}-coroutines", concurrency, self.options.origin)
            self._coroutines = thread
        return thread.add(chunk, work)

    def _next_chunk(self) -> Chunk | None:
        """Return the chunk that runs next; called in the slot's thread, while the loop may take it away."""
        try:
            return self._inbox[0]
        except IndexError:
            return None

    # --- settling ---------------------------------------------------------------------------

    def _end(self, chunk: Chunk) -> None:
        """Settle what is left of a chunk that has stopped running; not awaited."""
        chunk.over = True
        stay = self._stays.get(chunk)
        if stay is None or not (stay.inside and stay.alone):  # else its outcome first: see `_settle_last`
            self._leave(chunk)
        self._ending.append(chunk)
        self._in_background(self._settle_last(chunk))

    async def _settle_last(self, chunk: Chunk) -> None:
        """Settle what is left of a chunk that has ended; let its shard know if more is wanted.

        The next one begins beside one that ran alone when the shard has its outcome: it may kill this process at once.
        """
        try:
            if not chunk.sink:
                await self._settle_done(chunk)
            await self._note_run(chunk)
            # Before the rows of a sink are written, which may take a second: the shard may send others meanwhile.
            if not self._stopping and self._told[chunk.shard][1] != self._want(chunk.shard):
                await self._settle(chunk, chunk.nothing())
            if chunk.sink:
                await self._settle_done(chunk)
        except Exception as error:  # noqa: BLE001 - the lease ends by itself, and the messages are delivered again
            self._lost(chunk, error)
        finally:
            self._leave(chunk)
            self._ending.remove(chunk)
            self._touched()

    async def _note_run(self, chunk: Chunk) -> None:
        """Let the next suspect begin as soon as the shard knows that this one has run, where its row waits for others.

        A killed consumer of a fast function leaves thousands of suspects, and would write a part for each.
        """
        if chunk.sink and chunk.suspect:
            call = calls.Ran(chunk.lease)
            await self._insist(chunk, call.method, call.pack())
            self._leave(chunk)

    def _settle_meanwhile(self, chunk: Chunk) -> None:
        """Settle what is finished of a chunk with a sink, unless that is under way; not awaited."""
        if chunk not in self._into_sinks and (chunk.undecided or chunk.pending()):
            self._into_sinks[chunk] = self._in_background(self._settle_rows(chunk))

    async def _settle_rows(self, chunk: Chunk) -> None:
        try:
            await self._settle_taken(chunk)
        except Exception as error:  # noqa: BLE001 - what it had taken ends with its lease, and is delivered again
            self._lost(chunk, error)
        finally:
            del self._into_sinks[chunk]

    async def _settle_done(self, chunk: Chunk, *, tell: bool = False) -> None:
        """Settle what is finished; with `tell`, send at least how many messages are wanted now."""
        if (before := self._into_sinks.get(chunk)) is not None:  # one settlement of a chunk follows another
            await asyncio.wait((before,))
        await self._settle_taken(chunk, tell=tell)

    async def _settle_taken(self, chunk: Chunk, *, tell: bool = False) -> None:
        while True:
            while chunk.undecided:
                await self._refusals.decide(chunk, self._shards)
            if chunk.sink and (taken := chunk.pending()):
                gathering = await self._sinks.of(chunk.run, self._shards, chunk.shard)
                chunk.refer(await gathering.keep(chunk, taken))
            done, units, busy = chunk.acked + chunk.failed, chunk.units, chunk.busy_collected
            settlement = chunk.collect()
            if settlement is None:
                break
            self.done += chunk.acked + chunk.failed - done
            self.units += chunk.units - units
            self.busy_s += chunk.busy_collected - busy
            self.last_error = chunk.last_error or self.last_error
            tell = False
            await self._settle(chunk, settlement, chunk.sending)
            chunk.confirm()
        if tell:
            await self._settle(chunk, chunk.nothing())

    async def _settle(
        self, chunk: Chunk, settlement: bytes | memoryview, sending: Callable[[], None] | None = None
    ) -> None:
        """Settle outcomes; `sending` is called when they are about to leave this process, at each try."""
        credit = self._credit(chunk.shard)
        call = calls.Settle(self.name, credit)
        body = call.pack_apart(settlement)

        def packed() -> Packed:
            if sending is not None:
                sending()
            return body

        await self._insist(chunk, call.method, packed)
        self._note_told(chunk.shard, credit)
        self._touched()

    async def _insist(self, chunk: Chunk, call: str, body: Packed | Callable[[], Packed]) -> Packed:
        """Call a chunk's shard until it has answered: it may be slow, its disk full, or its log opened again just now.

        What is settled twice counts once.
        """
        while True:
            try:
                return await self._shards[chunk.shard].call(call, body)
            except CallTimeout:
                logger.warning("event=%s_again slot=%s lease=%s", call, self.name, chunk.lease)
            except RecordTooLarge:
                raise
            except LogError as error:
                logger.warning("event=%s_refused slot=%s lease=%s %s", call, self.name, chunk.lease, error)
                await asyncio.sleep(REFUSED_AGAIN)

    async def _renew(self, shard: int) -> None:
        """Renew the leases in hand of one shard until there are none.

        Not awaited by what runs and settles: neither a slow settlement nor another shard makes these leases expire.
        """
        try:
            while held := self._held_of(shard):
                every = min(chunk.timeout for chunk in held) / 3
                await asyncio.sleep(every)
                if leases := sorted({chunk.lease for chunk in self._held_of(shard)}):
                    await self._send_renewal(shard, leases, max(every, RENEW_FOR))
        finally:
            del self._renewing[shard]

    async def _send_renewal(self, shard: int, leases: list[int], timeout: float) -> None:
        try:
            call = calls.Renew(leases)
            await self._shards[shard].call(call.method, call.pack(), timeout=timeout)
        except (CallTimeout, LogError):
            logger.warning("event=renew_late slot=%s", self.name)
        except (ActorGone, SchedulerGone):
            pass  # the parked lease call reports it
        except Exception:  # whatever it was, the next renewal is sent
            logger.exception("event=renew_failed slot=%s shard=%s", self.name, shard)

    def _held_of(self, shard: int) -> list[Chunk]:
        """Return the chunks of a shard that are in hand, or whose last outcomes are on their way."""
        # A chunk goes from `_inbox` to `_running`, and on to `_flying` or `_ending`, without an await in between.
        # Were it missing here for a moment, its renewals would end and its lease expire, and a recreated shard would
        # deliver its messages to others.
        return [chunk for chunk in (*self._ending, *self._chunks) if chunk.shard == shard]


def portions_of(firsts: Sequence[int], frames: Sequence[Frame], about: int) -> Iterator[tuple[list[int], list[Frame]]]:
    """Yield frames in portions of equal size, of about so many messages each, with the ids of their firsts."""
    total = sum(frame.count for frame in frames)
    portions = max(1, round(total / about))
    most = room = -(-total // portions)
    ids, cuts = list[int](), list[Frame]()
    for first, frame in zip(firsts, frames, strict=True):
        at = 0
        while at < frame.count:
            n = min(room, frame.count - at)
            ids.append(first + at)
            cuts.append(frame if n == frame.count else Frame.decode(frame.cut(at, n)))
            at, room = at + n, room - n
            if not room:
                yield ids, cuts
                ids, cuts, room = [], [], most
    if ids:
        yield ids, cuts


def _runs(thread: asyncio.Future[Any] | CoroutineThread) -> bool:
    """Return whether an abandoned thread has not ended after all."""
    return thread.lives if isinstance(thread, CoroutineThread) else not thread.done()
