"""One executor slot of a consumer: it leases ahead, runs functions, settles outcomes and gives messages back.

A slot parks one lease call at each shard and runs chunks one after another in its own thread; it leases ahead, so that
it never waits for the network between two chunks. Coroutine functions run in a second thread, where chunks overlap;
isolated runs use a process, which the slot's thread feeds. Since a thread cannot be killed, the slot abandons one whose
function ignores a cancel, and continues in a new one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from dqlab.cluster.consumer.devices import Equipment
from dqlab.cluster.consumer.hand import Hand, Stage, clinging, let_go
from dqlab.cluster.consumer.process.slot_process import BatchProcess, SlotProcess
from dqlab.cluster.consumer.refusals import Refusals
from dqlab.cluster.consumer.running.batches import Batches, BatchFlight
from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.running.execution import Origin, Work, fail_all, fail_taken, refuse_value, run_chunk
from dqlab.cluster.consumer.running.functions import (
    FunctionCache,
    FunctionLost,
    Objects,
    Setup,
    SetupFailed,
    halt_all,
    makes_objects,
)
from dqlab.cluster.consumer.running.here import note_output
from dqlab.cluster.consumer.running.one_batch import key_in, one_by_one
from dqlab.cluster.consumer.running.suspects import needs_worker, turn_of_suspects
from dqlab.cluster.consumer.running.threads import Coroutines, CoroutineThread, Flight, SlotThread
from dqlab.cluster.consumer.sink_writing import Sinks
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.isolation import Isolation, is_coroutine
from dqlab.cluster.transport.orders import RunningMessage
from dqlab.cluster.transport.parking import Do, SlotOrder
from dqlab.cluster.transport.protocol import LEASE_PARK
from dqlab.cluster.transport.ref import Ref
from dqlab.cluster.transport.reports import Running
from dqlab.cluster.transport.sealed import settings_in
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import ActorGone, CallTimeout, DqlabError, SchedulerGone
from dqlab.frame import NO_ID, Frame, Kind
from dqlab.log.errors import LogError, RecordTooLarge
from dqlab.plan import Batch, Plan, called
from dqlab.printed import Logs
from dqlab.rules.states import State
from dqlab.texts import as_name


@dataclass(kw_only=True)
class SlotOptions:
    """Options that a consumer passes to its slots."""

    batch: int
    """Most messages in one lease."""
    early: bool
    """Acknowledge before running: at most once."""
    concurrency: int
    """Coroutines at a time."""
    origin: Origin
    values: Callable[[], Work] | None
    """Makes the function for plain values: a custom consumer's `process_item`."""
    calls: Callable[[Work, Chunk], Work] | None = None
    """Makes the function that replaces a call's own."""
    prepare: Callable[[], object] | None = None
    """Called in the slot's thread before a chunk runs."""
    memory: int | None = None
    """Bytes at which the worker's nanny ends it, and so the process of a suspect."""


SAY_AFTER, SAY_EVERY = 1.0, 5.0
"""Seconds until a running message is first reported, and between two reports of it; the first where it says how far
its function is."""


class Begun:
    """The running message of each chunk in hand, and since when it has been seen."""

    def __init__(self) -> None:
        self._seen: dict[Chunk, tuple[int, float, float]] = {}
        """Its position, since when it has been seen, and when the next report of it is due."""

    def look(self, chunk: Chunk, now: float) -> bool:
        """Note the chunk's running message at `now`, in steady seconds, and return whether a report is due."""
        index = chunk.running
        if index is None:
            self.forget(chunk)
            return False
        seen = self._seen.get(chunk)
        if seen is None or seen[0] != index:
            seen = self._seen[chunk] = index, now, now + SAY_AFTER
        if now < seen[2]:
            return False
        self._seen[chunk] = index, seen[1], now + (SAY_AFTER if chunk.step_of(index) else SAY_EVERY)
        return True

    def forget(self, chunk: Chunk) -> None:
        """Note that no message of the chunk runs."""
        self._seen.pop(chunk, None)

    def oldest(self, now: float) -> Running | None:
        """Return the message that has run longest, as reports have it."""
        runs = self.message(now)
        return None if runs is None else Running(runs.document, runs.seconds, runs.run.hex(), runs.step)

    def message(self, now: float) -> RunningMessage | None:
        """Return the message that has run longest, as views have it."""
        # The thread may have begun another message since `look`; when that one began is not known yet.
        running = [(since, chunk, index) for chunk, (index, since, _) in self._seen.items() if chunk.running == index]
        if not running:
            return None
        _, chunk, index = min(running, key=lambda each: each[0])
        return self.described(chunk, index, as_name(chunk.name_of(index)), now)

    def described(self, chunk: Chunk, index: int, document: str, now: float) -> RunningMessage:
        """Return a message of a chunk as views have it, with how long what runs there has been seen."""
        since, step = self._seen.get(chunk, (index, now))[1], chunk.step_of(index)
        return RunningMessage(chunk.lease.shard, chunk.run, chunk.id_at(index), document, now - since, step)


logger = logging.getLogger("dqlab.consumer")

SETTLE_EVERY = 0.1
"""Seconds after which finished messages of a running chunk are settled."""
PARK_AGAIN = 1.0
"""Seconds after which a slot parks again when a call failed unexpectedly."""
REFUSED_AGAIN = 1.0
"""Seconds after which a shard is called again when its log refused a write."""
RENEW_FOR = 1.0
"""Shortest timeout of a renewal, in seconds."""
LAST_MESSAGE_S = 5.0
"""Seconds that a running message may still take when its slot stops; its lease then ends without an outcome."""
LAST_SETTLEMENT_S = 2.0
"""Seconds to deliver the last outcomes after that. All limits of a stop together are less than the registry waits."""
KILLED_IN = 2.0
"""Seconds to wait for the end of a slot's process."""
FREE_S = 1.0
"""Seconds that the event loop of coroutines may take to drop one, until its thread is abandoned."""
TURN_WITHIN = 60.0
"""Seconds that a suspect waits until no other one runs in its process."""
TOLD_IN = 5.0
"""Seconds that a shard may take to note that a suspect runs in this process."""
COROUTINE, BATCH = "a coroutine", "a batch"
COROUTINES_AHEAD = 4
"""Coroutines to lease for each that runs at a time: they wait together, so their mean cost is a poor measure."""


class Slot:
    """One executor slot of a consumer."""

    def __init__(
        self,
        name: str,  # unique among all slots of the queue
        shards: dict[int, Ref],
        options: SlotOptions,
        functions: FunctionCache,
        touched: Callable[[], None],  # called on every change
        sinks: Sinks | None = None,
        refusals: Refusals | None = None,
        equipment: Equipment | None = None,
    ) -> None:
        self.name, self.options = name, options
        self.done = self.units = self.chunk = 0
        self.busy_s = 0.0
        self.last_error: str | None = None
        self._shards, self._functions, self._touched = shards, functions, touched
        self._equipment = equipment or Equipment()
        self._sinks = sinks if sinks is not None else Sinks(name.partition("#")[0], "this process", options.origin)
        self._refusals = refusals if refusals is not None else Refusals(name.partition("#")[0], "this process")
        self._session = uuid.uuid4().hex
        self._hand = Hand(name, options.batch)
        self._arrived = asyncio.Event()
        self._renewing: dict[int, asyncio.Task[None]] = {}
        """The task that renews the leases in hand, by shard."""
        self._thread = SlotThread(f"dq-{name}")
        self._threads: dict[str, CoroutineThread] = {}
        """The threads with event loops, by what one of their messages is called."""
        self.batches: Batches | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._abandoned: list[tuple[str, asyncio.Future[Any] | CoroutineThread]] = []
        """Cancelled messages that still run: their names, and the threads that they hold."""
        self._flights: dict[Chunk, Flight] = {}
        self._turns: dict[Chunk, asyncio.Lock] = {}
        """The suspects that run in this process, with the lock that each of them holds."""
        self.process = SlotProcess(options.origin, self._equipment)
        self._batch_processes: list[SlotProcess] = []
        self._objects = Objects()
        self._setup: Setup | None = None
        self._context = contextvars.copy_context()
        self._tasks: list[asyncio.Task[None]] = []
        self._settling: set[asyncio.Task[Any]] = set()
        self.begun = Begun()
        self.gone: str | None = None

    def start(self) -> None:
        """Park at every shard and begin to work."""
        self._loop = loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._park(index, ref), name=f"dqlab-park-{self.name}-{index}")
            for index, ref in self._shards.items()
        ]
        self._tasks.append(loop.create_task(self._work(), name=f"dqlab-work-{self.name}"))

    async def stop(self, patience: float = 0.0) -> None:
        """Lease no more, give back untouched messages, and wait 5 s, or `patience` if more, for the running one."""
        self._hand.stopping = True
        for chunk in reversed(self._hand.chunks):
            await self._give_back(chunk, chunk.count)
        self._arrived.set()
        # Stay parked meanwhile: these calls introduce the consumer, with its leases in hand, to a shard that moves.
        *parking, working = self._tasks
        await asyncio.wait([working, *self._settling], timeout=max(LAST_MESSAGE_S, patience))
        if (running := self._hand.at(Stage.RUNS)) is not None:
            logger.info("event=thread_left slot=%s lease=%s", self.name, running.lease.id)
        for task in parking:
            task.cancel()
        await asyncio.wait([*parking, *self._settling], timeout=LAST_SETTLEMENT_S)
        for task in [*self._tasks, *self._settling, *self._renewing.values()]:
            task.cancel()
        for chunk in list(self._turns):
            self._leave(chunk)
        if not self.process.stopping:  # unless this is the second stop
            self.process.stopping = True
            # In the slot's thread, behind what runs there: only that thread starts and ends processes.
            ended = asyncio.wrap_future(self._thread.submit(self._close))
            self._thread.shutdown(wait=False)
            if self.process.child is not None or self._objects.made:
                await asyncio.wait((ended,), timeout=KILLED_IN)
        for thread in self._threads.values():
            thread.close()
        if self.batches is not None:
            await asyncio.wait((asyncio.wrap_future(self.batches.closed),), timeout=KILLED_IN)

    def _close(self) -> None:
        """End the process and the objects that the slot's thread has made."""
        self.process.close()
        self._objects.close()

    @property
    def processes(self) -> list[SlotProcess]:
        """The processes of this slot."""
        return [self.process, *self._batch_processes]

    @property
    def setups(self) -> list[Setup]:
        """How long it took to make the objects of the functions that run here."""
        batches = [] if self.batches is None else [self.batches.setup]
        here = [self._setup, *batches, *(process.setup for process in self.processes)]
        return [each for each in here if each is not None]

    @property
    def in_hand(self) -> int:
        """How many messages are leased and not yet settled."""
        return sum(chunk.count - chunk.settled for chunk in self._hand.chunks)

    @property
    def busy(self) -> bool:
        """Whether a chunk runs here or is about to."""
        return bool(self._hand.chunks)

    @property
    def abandoned(self) -> list[str]:
        """Names of cancelled messages whose functions still run here."""
        self._abandoned = [kept for kept in self._abandoned if _runs(kept[1])]
        dropped = [name for name, thread in self._threads.items() for _ in range(thread.abandoned)]
        return [name for name, _ in self._abandoned] + dropped

    def running(self, document: str, now: float) -> list[RunningMessage]:
        """Return the messages of one name that run here, also beside others in a batch, as views have them."""
        return [self.begun.described(chunk, index, document, now) for chunk, index in self._named(document)]

    def printed(self, run: bytes, document: str, seconds: float | None = None) -> Logs | None:
        """Return what a document that runs here has printed so far, or None if it does not run here."""
        for chunk, index in self._named(document):
            if chunk.run == run:
                flight = self._flights.get(chunk)
                ring = chunk.output.get(index) if flight is None else flight.ring_at(index)
                return Logs.of("") if ring is None else ring.logs(seconds)
        return None

    def _named(self, document: str) -> Iterator[tuple[Chunk, int]]:
        """Yield the running messages of one name, and their chunks."""
        for chunk in self._hand.chunks:
            flight = self._flights.get(chunk)
            for index in self._runs(chunk):
                if index is not None and (
                    as_name(chunk.name_of(index)) == document
                    or (flight is not None and key_in(flight.messages[index], document) == document)
                ):
                    yield chunk, index

    # --- leasing ----------------------------------------------------------------------------

    async def _park(self, shard: int, ref: Ref) -> None:
        def asked() -> calls.LeaseCall:
            """Return the call with how many messages are wanted now."""
            # Made again at each try: a recreated shard knows no earlier credit.
            credit = self._hand.credit(shard)
            self._hand.told(shard, credit)
            stays = self._hand.stays(time.monotonic())
            return calls.LeaseCall(self.name, self._session, credit, dict(self._equipment.has) or None, stays)

        while not (self._hand.stopping and self._tasks[-1].done()):
            try:
                packed = await ref.call(calls.LeaseCall.method, lambda: asked().pack(), timeout=LEASE_PARK + 10)
                answer, parts = calls.LeaseAnswer.unpack(packed)
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
            except Exception:  # a slot that leases no more would be worse than any error here
                logger.exception("event=park_failed slot=%s shard=%s", self.name, shard)
                await asyncio.sleep(PARK_AGAIN)

    def held(self, shard: int) -> list[calls.HeldBySlot]:
        """Return the messages of a shard that are in hand, by lease."""
        return self._hand.held(shard, time.monotonic())

    def _receive(self, shard: int, lease: calls.Delivery, epoch: int, parts: list[memoryview]) -> None:
        """Put a lease into the inbox, as one chunk for each function in it, or as several for a run with a sink."""
        frames = zip(lease.firsts, (Frame.decode(bytes(part)) for part in parts), strict=True)
        held = Lease(
            shard,
            lease.id,
            epoch,
            lease.timeout,
            process=lease.process,
            sink=lease.sink,
            paced=lease.paced,
            suspect=lease.suspect,
            consumer=self.options.origin.consumer,
            attempts=dict(lease.attempts),
            once=dict(lease.once),
            paged=not lease.unit,
        )
        for _, group in groupby(frames, key=lambda pair: (pair[1].function, pair[1].kind)):
            firsts, cuts = zip(*group, strict=True)
            self.chunk = sum(frame.count for frame in cuts)
            portions = portions_of(firsts, cuts, self._sinks.piece(cuts[0].run)) if lease.sink else [(firsts, cuts)]
            for ids, portion in portions:
                self._hand.move(Chunk(held, ids, portion), Stage.WAITS)
        self._look_ahead()
        if shard not in self._renewing:
            work = self._renew(shard)
            self._renewing[shard] = asyncio.get_running_loop().create_task(
                work, name=f"dqlab-renew-{self.name}-{shard}"
            )
        self._arrived.set()
        self._touched()

    async def _obey(self, order: SlotOrder) -> None:
        left = order.n
        for chunk in [chunk for chunk in reversed(self._hand.chunks) if chunk.lease.id == order.lease]:
            if order.op is Do.CANCEL:
                chunk.cancel(order.ids)
            else:
                left -= await self._give_back(chunk, left)

    async def _give_back(self, chunk: Chunk, n: int) -> int:
        """Give up to `n` untouched messages back to their queue and return how many."""
        before = chunk.settled
        settlement = chunk.give_back(n)
        if settlement is None:
            return 0
        # Counted before the await below: messages that end during it add to `settled` and are not given back.
        given = chunk.settled - before
        if chunk.finished:  # before the await too: `_work` must not take an empty chunk
            self._hand.leave(chunk, Stage.WAITS)
        self._look_ahead()
        await self._send(chunk, settlement)
        return given

    def _look_ahead(self) -> None:
        """Have reading ahead follow the next messages, which have changed."""
        if (running := self._hand.at(Stage.RUNS)) is not None and running.ahead is not None:
            running.ahead.look()

    # --- working ----------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            while (chunk := self._hand.at(Stage.WAITS)) is None:
                self._arrived.clear()
                if self._hand.stopping or self.gone:
                    return
                await self._arrived.wait()
            self._hand.move(chunk, Stage.RUNS)
            try:
                await self._run(chunk)
            except Exception as error:  # noqa: BLE001 - the slot goes on with the next chunk
                self._lost(chunk, error)
                if not isinstance(error, DqlabError):  # a defect of ours: fail the messages, so that clients see it
                    fail_taken(chunk, error, self.options.origin)
                    fail_all(chunk, error, self.options.origin)
                self._end(chunk)
            finally:
                self._hand.leave(chunk, Stage.RUNS)
                if chunk not in self._flights:
                    self.begun.forget(chunk)
                self._touched()

    async def _run(self, chunk: Chunk) -> None:
        if chunk.lease.sink:
            await (await self._sinks.of(chunk.run, self._shards, chunk.lease.shard)).room(chunk)
        if self.options.early:
            answer, _ = await calls.BeginCall(chunk.lease.id).ask(partial(self._insist, chunk))
            if not answer.begun:
                self._end(chunk)
                return
            chunk.early = True
        loop = asyncio.get_running_loop()
        blob = await self._fetch(chunk)
        if chunk.lease.suspect and not self.options.early and not await self._place(chunk, blob):
            self._end(chunk)
            return
        makes = self._objects.made and blob is not None and makes_objects(blob)
        # No coroutine of another run may use the objects that those of this run would replace.
        while makes and any(other.run != chunk.run for other in self._flights):  # noqa: ASYNC110
            await asyncio.sleep(SETTLE_EVERY)
        running = loop.run_in_executor(self._thread, self._context.run, self._execute, chunk, blob)
        while not await self._attend(chunk, running):
            if await self._abandon(chunk, running):
                self._end(chunk)
                return
        flight = running.result()
        if flight is None:
            ended = self._end(chunk)
            # The next chunk starts while this one's outcomes travel, unless its death would be blamed on this one.
            if chunk in self._turns and not chunk.lease.sink:
                await asyncio.wait((ended,))
        else:
            self._hand.move(chunk, Stage.FLIES)
            self._flights[chunk] = flight
            if flight.thread not in self._threads.values():  # that thread was abandoned meanwhile
                chunk.stopped = True
            following = self._in_background(self._follow(chunk, flight))
            # With early ack, the next chunk must not be acknowledged while it waits for coroutines of this one: what is
            # not acknowledged returns to its queue when this consumer dies.
            if self.options.early:
                begun = asyncio.wrap_future(flight.begun)
                await asyncio.wait((begun, following), return_when=asyncio.FIRST_COMPLETED)

    async def _fetch(self, chunk: Chunk) -> bytes | None:
        """Return the function of a chunk, None for values or where its queue has lost it."""
        hash = chunk.frames[0].function
        blob = None if hash == NO_ID else await self._functions.fetch(self._shards[chunk.lease.shard], hash)
        if blob is None:
            return None
        if "process" in (settings := settings_in(blob)):  # a retry has given its own
            chunk.lease = replace(chunk.lease, process=settings["process"])
        if (self._equipment.devices and chunk.lease.process is not None) or makes_objects(blob):
            longest = max((seconds for _, seconds in self.setups), default=0.0)
            self._hand.stay(chunk.run, time.monotonic(), longest)
        return blob

    async def _place(self, chunk: Chunk, blob: bytes | None) -> bool:
        """Choose the process in which a suspect runs, and return whether it is still to run."""
        if chunk.lease.process is not None and self.options.calls is None:
            return True
        loop, raised, this = asyncio.get_running_loop(), needs_worker(), (chunk.run, chunk.id_at(0))
        if this not in raised and await loop.run_in_executor(self._thread, self._fits_child, chunk, blob):
            # If it kills that process, it alone is the reason, and nothing else is lost.
            chunk.lease = replace(chunk.lease, process=Isolation(memory=self.options.memory).record())
            chunk.apart = raised
            return True
        raised.discard(this)
        turn, until = turn_of_suspects(), time.monotonic() + TURN_WITHIN
        while chunk not in self._turns:
            if chunk.finished or len(chunk.cancelled) == chunk.count:
                return False
            if time.monotonic() >= until:  # the suspect that runs may wait for this one
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_EVERY):
                    await turn.acquire()
                self._turns[chunk] = turn
        try:
            async with asyncio.timeout(TOLD_IN):
                answer, _ = await calls.IsolateCall(chunk.lease.id).ask(partial(self._insist, chunk))
        except TimeoutError:
            return True  # it runs all the same; its death counts only if the shard has noted it
        return answer.held

    def _fits_child(self, chunk: Chunk, blob: bytes | None) -> bool:
        """Return in the slot's thread whether a chunk calls a plain function, which may run in another process."""
        own = self.options
        if blob is None or chunk.kind is Kind.VALUE or own.calls is not None or own.prepare is not None:
            return False
        with suppress(BaseException):  # `_execute` opens it again, and fails the message
            work = self._functions.open(chunk.frames[0].function, blob)
            return not (is_coroutine(called(work.call)) if chunk.kind is Kind.ELEMENT else work.is_coroutine)
        return False

    def _leave(self, chunk: Chunk) -> None:
        """Note that a chunk no longer runs in this process."""
        if (turn := self._turns.pop(chunk, None)) is not None:
            turn.release()

    async def _attend(self, chunk: Chunk, end: asyncio.Future[Any]) -> bool:
        """Settle finished messages every 100 ms until `end`, and return False if a cancelled message still runs."""
        while not (await asyncio.wait((end,), timeout=SETTLE_EVERY))[0]:
            self._settle_meanwhile(chunk)
            if self.begun.look(chunk, asyncio.get_running_loop().time()):
                self._touched()
            if let_go(chunk, self._runs(chunk), time.monotonic()):
                return False
        return True

    def _runs(self, chunk: Chunk) -> list[int | None]:
        """Return the positions of a chunk's messages that run."""
        flight = self._flights.get(chunk)
        return [chunk.running] if flight is None else list(flight.tasks)

    async def _abandon(self, chunk: Chunk, running: asyncio.Future[Any]) -> bool:
        """Abandon the slot's thread to a function that does not end, and return False if it has just ended."""
        before = chunk.running
        chunk.stopped = True  # the thread begins no more messages of this chunk
        await self._give_back(chunk, chunk.count)
        # The function may have ended during the await, and the thread is then free again.
        if running.done() or chunk.running != before or not clinging(chunk, self._runs(chunk)):
            await asyncio.wait((running,), timeout=SETTLE_EVERY)
            return False
        name = chunk.name_of(before) if before is not None else "?"
        self._note_abandoned(name, running, chunk)
        self._thread.shutdown(wait=False)
        self._thread = SlotThread(f"dq-{self.name}")
        self._objects.leave()
        self._objects = Objects()  # that function may still use the ones before
        self._context = self._context.copy()  # a context cannot be entered twice, and that function is still in it
        if self.process.child is not None:  # the thread that started the process owns it: Linux kills it with that one
            self._thread.submit(self.process.close)
            self.process = SlotProcess(self.options.origin, self._equipment)
        return True

    def _note_abandoned(self, name: str, thread: asyncio.Future[Any] | CoroutineThread, chunk: Chunk) -> None:
        self._abandoned.append((name, thread))
        self.last_error = f"{name} still runs after its cancellation; its thread was abandoned"
        words = "event=thread_abandoned slot=%s lease=%s message=%s threads=%d"
        logger.info(
            words, self.name, chunk.lease.id, name, len(self._abandoned)
        )  # no warning: views and the doctor name it
        self._touched()

    async def _follow(self, chunk: Chunk, flight: Flight) -> None:
        """Attend a chunk of coroutines to its end, while other chunks run."""
        try:
            if not await self._attend_flight(chunk, flight, flight.begun):
                return
            if not flight.ended.done():
                # Send a credit now: a chunk that has begun all its messages no longer counts as in hand.
                await self._send(chunk, chunk.nothing())
            if await self._attend_flight(chunk, flight, flight.ended):
                await self._note_run(chunk)
                await self._settle(chunk)
        except Exception as error:  # noqa: BLE001 - its messages are delivered again, and other chunks continue
            self._lost(chunk, error)
        finally:
            self._leave(chunk)
            self._hand.leave(chunk)
            del self._flights[chunk]
            self.begun.forget(chunk)
            self._touched()

    async def _attend_flight(self, chunk: Chunk, flight: Flight, end: concurrent.futures.Future[None]) -> bool:
        """Attend a chunk of coroutines until `end`, and return False when their thread was abandoned."""
        waited = asyncio.wrap_future(end)
        while not await self._attend(chunk, waited):
            left = clinging(chunk, self._runs(chunk))
            name = next((name for name, thread in self._threads.items() if thread is flight.thread), None)
            if name is not None:
                freed = asyncio.wrap_future(self._threads[name].abandon(flight))
                await asyncio.wait((freed,), timeout=FREE_S)
                if freed.done():
                    continue
                self._abandon_coroutines(name, chunk, left)
            settlement = chunk.give_up()
            # Outcomes first, then the messages given back: one that ends in between is in both, and the first counts.
            await self._settle(chunk)
            await self._send(chunk, settlement or chunk.nothing())
            return False
        return True

    def _abandon_coroutines(self, name: str, chunk: Chunk, left: list[int]) -> None:
        """Abandon a thread with an event loop to a coroutine that blocks it."""
        thread = self._threads.pop(name)
        if name == BATCH:
            self.batches = None
        else:
            self._objects = Objects()
        thread.close()
        for other, flight in self._flights.items():
            if flight.thread is thread:  # `_attend` returns False for it, and it gives back what has not ended
                other.stopped = True
        names = [chunk.name_of(index) for index in left]
        self._note_abandoned(", ".join(names) or "a coroutine", thread, chunk)

    def _lost(self, chunk: Chunk, error: Exception) -> None:
        """Log why a lease ends without all its outcomes, so that its messages are delivered again."""
        self.last_error = f"{type(error).__name__}: {error}"
        if isinstance(error, DqlabError):
            logger.warning("event=chunk_lost slot=%s lease=%s %s", self.name, chunk.lease.id, error)
        else:
            logger.error("event=chunk_failed slot=%s lease=%s", self.name, chunk.lease.id, exc_info=error)

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        # In a set until it ends: the event loop holds only a weak reference to a task.
        settling = asyncio.get_running_loop().create_task(work, name=f"dqlab-settle-{self.name}")
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)
        return settling

    def _execute(self, chunk: Chunk, blob: bytes | None) -> Flight | None:
        """Run the chunk in the slot's thread, or add it to the thread of coroutines."""
        chunk.behind = partial(self._hand.at, Stage.WAITS)
        note_output()  # for each chunk: a library may have put its own in their place
        try:
            about = {} if blob is None else settings_in(blob)
            plan = about.get("plan", {})
            chunk.code, chunk.logs = about.get("code", ""), plan.get("logs", "failed")
            chunk.columns = plan.get("columns") if chunk.lease.sink else None
            self._refusals.begin(chunk.run)
            if self.options.prepare is not None:
                self.options.prepare()
            if chunk.kind is Kind.VALUE:
                work = self.options.values() if self.options.values is not None else Work(refuse_value)
            else:
                if blob is None:
                    raise FunctionLost()
                batch = Plan.of(plan, {}).batch if chunk.kind is Kind.ELEMENT and self.options.calls is None else None
                if batch is not None and not chunk.lease.suspect:
                    return self._add_to_batches(chunk, blob, batch)
                if chunk.lease.process is not None and self.options.calls is None:
                    self._hand.at_least = 1
                    self.process.renewed = self._refusals.renewed
                    self.process.run(chunk, blob)
                    return None
                work = self._opened(chunk, blob)
                if self.options.calls is not None:
                    work = self.options.calls(work, chunk)
                if chunk.lease.sink:
                    work = replace(work, rows=True)
        except SetupFailed as failed:
            halt_all(chunk, failed, self.options.origin)
            return None
        except BaseException as error:  # noqa: BLE001 - users' imports run here; each message reports the failure
            fail_all(chunk, error, self.options.origin)
            return None
        concurrency = self.options.concurrency
        if not work.is_coroutine:
            self._hand.at_least = 1
            run_chunk(chunk, work, self.options.origin)
            return None
        self._hand.at_least = min(COROUTINES_AHEAD * concurrency, self.options.batch)
        if COROUTINE not in self._threads:
            runs = Coroutines(concurrency, self.options.origin)
            self._threads[COROUTINE] = CoroutineThread(f"dq-{self.name}-coroutines", runs)
        return self._threads[COROUTINE].add(Flight(chunk, work))

    def _opened(self, chunk: Chunk, blob: bytes) -> Work:
        """Return the function of a chunk, ready to be called with its messages one by one."""
        work = self._functions.open(chunk.frames[0].function, blob)
        if chunk.kind is not Kind.ELEMENT:
            return work
        with suppress(IndexError):
            chunk.running = chunk.todo[0]  # views show a document that waits for a model
        try:
            work = self._objects.ready(chunk.frames[0].function, work, chunk.leased_at)
            if seconds := self._objects.seconds(chunk.frames[0].function):
                self._setup = chunk.run, seconds
        finally:
            chunk.running = None
        return one_by_one(work) if work.plan is not None and work.plan.batch is not None else work

    def _add_to_batches(self, chunk: Chunk, blob: bytes, batch: Batch) -> Flight:
        """Add a chunk to those whose messages run in batches, or raise what opening its function raises."""
        remote, origin = chunk.lease.process is not None, self.options.origin
        work = Work(refuse_value, chunk.code) if remote else self._functions.open(chunk.frames[0].function, blob)
        work = replace(work, rows=chunk.lease.sink)
        wide = not remote and is_coroutine(called(work.call))
        flight = BatchFlight(chunk, work, batch=batch, blob=blob, wide=wide, remote=remote)
        batches = self.batches
        if batches is None:
            process = BatchProcess(origin, self._equipment)
            process.renewed = lambda: self._refusals.renewed
            self._batch_processes = [process.process]
            name = f"dq-{self.name}-batches"
            self.batches = batches = Batches(name, self.options.concurrency, origin, process, self._emptied)
            self._threads[BATCH] = CoroutineThread(f"{name}-loop", batches)
        self._hand.at_least = min(batches.at_least(flight), self.options.batch)
        return self._threads[BATCH].add(flight)

    def _emptied(self, run: bytes) -> concurrent.futures.Future[bool]:
        """Return, from any thread, whether no message of a run is left that this slot does not have."""
        assert self._loop is not None, "a slot that runs has started"
        return asyncio.run_coroutine_threadsafe(self._is_emptied(run), self._loop)

    async def _is_emptied(self, run: bytes) -> bool:
        if any(chunk.run == run and chunk.todo for chunk in self._hand.chunks):
            return False
        answers = await asyncio.gather(*(calls.WatchCall(run).ask(shard.call) for shard in self._shards.values()))
        lanes = [progress.lane for progress, _ in answers]
        return all(lane.sealed and not lane.counts[State.READY] for lane in lanes)

    # --- settling ---------------------------------------------------------------------------

    def _end(self, chunk: Chunk) -> asyncio.Task[None]:
        """Begin to settle the rest of a chunk that has stopped running, and return the task that does it."""
        chunk.over = True
        self._hand.move(chunk, Stage.ENDS)
        return self._in_background(self._settle_last(chunk))

    async def _settle_last(self, chunk: Chunk) -> None:
        """Settle the rest of a chunk that has ended, and send its shard a new credit where that has changed."""
        try:
            if not chunk.lease.sink:
                await self._settle(chunk)
            await self._note_run(chunk)
            # Before the rows of a sink are written, which may take a second: the shard may send a lease meanwhile.
            if self._hand.outdated(chunk.lease.shard):
                await self._send(chunk, chunk.nothing())
            if chunk.lease.sink:
                await self._settle(chunk)
        except Exception as error:  # noqa: BLE001 - the lease ends by itself, and the messages are delivered again
            self._lost(chunk, error)
        finally:
            self._leave(chunk)
            self._hand.leave(chunk)
            self._touched()

    async def _note_run(self, chunk: Chunk) -> None:
        """Note at the shard that a suspect of a run with a sink has run, and let the next one begin."""
        # Its row still waits for others. A killed consumer of a fast function leaves thousands of suspects: if each
        # waited for its outcome, each would become a part of its own.
        if chunk.lease.sink and chunk.lease.suspect:
            await calls.RanCall(chunk.lease.id).ask(partial(self._insist, chunk))
            self._leave(chunk)

    def _settle_meanwhile(self, chunk: Chunk) -> None:
        """Begin to settle finished messages of a chunk that runs, unless that is under way."""
        if chunk.news and not chunk.settling.locked():
            self._in_background(self._settle(chunk))
        elif chunk.news and chunk.lease.sink and chunk.lease.paced:
            self._in_background(self._tell_waiting(chunk))

    async def _tell_waiting(self, chunk: Chunk) -> None:
        """Tell a shard how many rows of a lease wait for their part: they are calls no more, and others may begin."""
        held = [each for each in self._hand.of(chunk.lease.shard) if each.lease.id == chunk.lease.id]
        with suppress(DqlabError):  # then the part that they wait for tells it
            await self._send(chunk, chunk.nothing(), answered=sum(each.waiting for each in held))

    async def _settle(self, chunk: Chunk) -> None:
        """Settle finished messages of a chunk."""
        # One settlement of a chunk at a time: `Chunk.confirm` confirms all that was collected.
        if chunk.lease.sink and chunk.lease.paced:
            await self._tell_waiting(chunk)
        async with chunk.settling:
            try:
                while await self._settle_some(chunk):
                    pass
            except Exception as error:  # noqa: BLE001 - the lease of these messages ends, and they are delivered again
                self._lost(chunk, error)

    async def _settle_some(self, chunk: Chunk) -> bool:
        """Send one settlement, and return False if nothing is to be settled."""
        while chunk.undecided:
            await self._refusals.decide(chunk, self._shards)
        await self._sinks.keep(chunk, self._shards)
        done, units, busy = chunk.acked + chunk.failed, chunk.units, chunk.busy_collected
        settlement = chunk.collect()
        if settlement is None:
            return False
        self.done += chunk.acked + chunk.failed - done
        self.units += chunk.units - units
        self.busy_s += chunk.busy_collected - busy
        self.last_error = chunk.last_error or self.last_error
        await self._send(chunk, settlement, chunk.sending)
        chunk.confirm()
        return True

    async def _send(
        self,
        chunk: Chunk,
        settlement: bytes | memoryview,
        sending: Callable[[], None] | None = None,
        answered: int | None = None,
    ) -> None:
        """Send a settlement with a new credit, and call `sending` before each try."""
        credit = self._hand.credit(chunk.lease.shard)
        call = calls.SettleCall(self.name, credit, answered)
        body = call.pack_apart(settlement)

        def packed() -> Packed:
            # `Ref` packs a call after it has introduced itself to a recreated shard: until then `held` lists these
            # acks as still to come.
            if sending is not None:
                sending()
            return body

        await self._insist(chunk, call.method, packed)
        self._hand.told(chunk.lease.shard, credit)
        self._touched()

    async def _insist(self, chunk: Chunk, call: str, body: Packed | Callable[[], Packed]) -> Packed:
        """Call a chunk's shard until it answers, however slow or full its disk is."""
        # Safe to repeat: an outcome that is settled twice counts once.
        while True:
            try:
                return await self._shards[chunk.lease.shard].call(call, body)
            except CallTimeout:
                logger.warning("event=%s_again slot=%s lease=%s", call, self.name, chunk.lease.id)
            except RecordTooLarge:  # a `LogError` too, but the same call can never succeed
                raise
            except LogError as error:
                logger.warning("event=%s_refused slot=%s lease=%s %s", call, self.name, chunk.lease.id, error)
                await asyncio.sleep(REFUSED_AGAIN)

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
            del self._renewing[shard]

    async def _send_renewal(self, shard: int, leases: list[int], timeout: float) -> None:
        try:
            await calls.RenewCall(leases).ask(partial(self._shards[shard].call, timeout=timeout))
        except (CallTimeout, LogError):
            logger.warning("event=renew_late slot=%s", self.name)
        except (ActorGone, SchedulerGone):
            pass  # the parked lease call reports it
        except Exception:  # go on with the next renewal
            logger.exception("event=renew_failed slot=%s shard=%s", self.name, shard)


def portions_of(firsts: Sequence[int], frames: Sequence[Frame], about: int) -> Iterator[tuple[list[int], list[Frame]]]:
    """Yield frames in portions of equal size, about `about` messages each, with the ids of their first messages."""
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
    """Return whether an abandoned thread still runs."""
    return thread.lives if isinstance(thread, CoroutineThread) else not thread.done()
