"""One executor slot of a consumer: it leases ahead, and has its chunks run one after another.

A slot parks one lease call at each shard and leases ahead, so that it never waits for the network between two chunks.
Where a chunk runs is known to `runner`, what becomes of its outcomes to `settling`, and what is in hand to `hand`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

from dqlab.cluster.consumer.devices import Equipment
from dqlab.cluster.consumer.hand import Hand, Stage, clinging, let_go
from dqlab.cluster.consumer.refusals import Refusals
from dqlab.cluster.consumer.runner import Runner, SlotOptions
from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.running.execution import fail_all, fail_taken
from dqlab.cluster.consumer.running.functions import FunctionCache, makes_objects
from dqlab.cluster.consumer.running.one_batch import key_in
from dqlab.cluster.consumer.running.threads import Flight
from dqlab.cluster.consumer.settling import Settler
from dqlab.cluster.consumer.sink_writing import Sinks
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.isolation import Isolation
from dqlab.cluster.transport.orders import RunningMessage
from dqlab.cluster.transport.parking import Do, SlotOrder
from dqlab.cluster.transport.protocol import LEASE_PARK
from dqlab.cluster.transport.ref import Ref
from dqlab.cluster.transport.sealed import settings_in
from dqlab.errors import ActorGone, CallTimeout, DqlabError, SchedulerGone
from dqlab.frame import NO_ID, Frame
from dqlab.printed import Logs
from dqlab.rules.states import State
from dqlab.texts import as_name

logger = logging.getLogger("dqlab.consumer")

SETTLE_EVERY = 0.1
"""Seconds after which finished messages of a running chunk are settled."""
PARK_AGAIN = 1.0
"""Seconds after which a slot parks again when a call failed unexpectedly."""
LAST_MESSAGE_S = 5.0
"""Seconds that a running message may still take when its slot stops; its lease then ends without an outcome."""
LAST_SETTLEMENT_S = 2.0
"""Seconds to deliver the last outcomes after that. All limits of a stop together are less than the registry waits."""
TURN_WITHIN = 60.0
"""Seconds that a suspect waits until no other one runs in its process."""
TOLD_IN = 5.0
"""Seconds that a shard may take to note that a suspect runs in this process."""
_raised: WeakKeyDictionary[asyncio.AbstractEventLoop, set[tuple[bytes, int]]] = WeakKeyDictionary()
"""The suspects, by run and id, that raised in a process of their own, which may lack what the worker has."""
_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""What a suspect holds while it runs here: all actors of a worker share its event loop, which tests have several of."""


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
        consumer, here = name.partition("#")[0], "this process"
        sinks, refusals = sinks or Sinks(consumer, here, options.origin), refusals or Refusals(consumer, here)
        self.name, self.options, self.chunk = name, options, 0
        self._shards, self._functions, self._touched = shards, functions, touched
        self._equipment = equipment or Equipment()
        self._session = uuid.uuid4().hex
        self._hand = hand = Hand(name, options.batch)
        self.settler = Settler(shards, hand, sinks, refusals, touched)
        self.runner = Runner(options, functions, hand, refusals, self._equipment, self._emptied)
        self._arrived = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.gone: str | None = None

    def start(self) -> None:
        """Park at every shard and begin to work."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._park(index, ref), name=f"dqlab-park-{self.name}-{index}")
            for index, ref in self._shards.items()
        ]
        self._tasks.append(loop.create_task(self._work(), name=f"dqlab-work-{self.name}"))

    async def stop(self, patience: float = 0.0) -> None:
        """Lease no more, give back untouched messages, and wait 5 s, or `patience` if more, for the running one."""
        settler = self.settler
        self._hand.stopping = True
        for chunk in reversed(self._hand.chunks):
            await settler.give_back(chunk, chunk.count)
        self._arrived.set()
        # Stay parked meanwhile: these calls introduce the consumer, with its leases in hand, to a shard that moves.
        *parking, working = self._tasks
        await asyncio.wait([working, *settler.tasks], timeout=max(LAST_MESSAGE_S, patience))
        if (running := self._hand.at(Stage.RUNS)) is not None:
            logger.info("event=thread_left slot=%s lease=%s", self.name, running.lease.id)
        for task in parking:
            task.cancel()
        await asyncio.wait([*parking, *settler.tasks], timeout=LAST_SETTLEMENT_S)
        for task in [*self._tasks, *settler.tasks, *settler.renewing.values()]:
            task.cancel()
        for chunk in list(settler.turns):
            settler.leave_turn(chunk)
        await self.runner.stop()

    @property
    def in_hand(self) -> int:
        """How many messages are leased and not yet settled."""
        return sum(chunk.count - chunk.settled for chunk in self._hand.chunks)

    @property
    def busy(self) -> bool:
        """Whether a chunk runs here or is about to."""
        return bool(self._hand.chunks)

    def running(self, document: str, now: float) -> list[RunningMessage]:
        """Return the messages of one name that run here, also beside others in a batch, as views have them."""
        return [_described(chunk, index, document, now) for chunk, index in self._named(document)]

    def longest(self, now: float) -> RunningMessage | None:
        """Return the message that has run longest, as views have it."""
        found = self._hand.longest()
        return None if found is None else _described(*found, as_name(found[0].name_of(found[1])), now)

    def printed(self, run: bytes, document: str, seconds: float | None = None) -> Logs | None:
        """Return what a document that runs here has printed so far, or None if it does not run here."""
        for chunk, index in self._named(document):
            if chunk.run == run:
                flight = self.runner.flights.get(chunk)
                ring = chunk.output.get(index) if flight is None else flight.ring_at(index)
                return Logs.of("") if ring is None else ring.logs(seconds)
        return None

    def _named(self, document: str) -> Iterator[tuple[Chunk, int]]:
        """Yield the running messages of one name, and their chunks."""
        for chunk in self._hand.chunks:
            flight = self.runner.flights.get(chunk)
            for index in self.runner.running(chunk):
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
            about = self.settler.sinks.piece(cuts[0].run) if lease.sink else self.chunk
            for ids, portion in portions_of(firsts, cuts, about):
                self._hand.move(Chunk(held, ids, portion), Stage.WAITS)
        self._hand.look_ahead()
        self.settler.renew(shard)
        self._arrived.set()
        self._touched()

    async def _obey(self, order: SlotOrder) -> None:
        left = order.n
        for chunk in [chunk for chunk in reversed(self._hand.chunks) if chunk.lease.id == order.lease]:
            if order.op is Do.CANCEL:
                chunk.cancel(order.ids)
            else:
                left -= await self.settler.give_back(chunk, left)

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
                self.settler.lost(chunk, error)
                if not isinstance(error, DqlabError):  # a defect of ours: fail the messages, so that clients see it
                    fail_taken(chunk, error, self.options.origin)
                    fail_all(chunk, error, self.options.origin)
                self.settler.end(chunk)
            finally:
                self._hand.leave(chunk, Stage.RUNS)
                self._touched()

    async def _run(self, chunk: Chunk) -> None:
        settler, runner = self.settler, self.runner
        if chunk.lease.sink:
            await (await settler.sinks.of(chunk.run, self._shards, chunk.lease.shard)).room(chunk)
        if self.options.early:
            answer, _ = await calls.BeginCall(chunk.lease.id).ask(partial(settler.insist, chunk))
            if not answer.begun:
                settler.end(chunk)
                return
            chunk.early = True
        blob = await self._fetch(chunk)
        if chunk.lease.suspect and not chunk.early and not await self._place(chunk, blob):
            settler.end(chunk)
            return
        while runner.disturbs(chunk, blob):  # noqa: ASYNC110 - coroutines end in another thread
            await asyncio.sleep(SETTLE_EVERY)
        running = runner.run(chunk, blob)
        while not await self._attend(chunk, running):
            if await self._abandon(chunk, running):
                settler.end(chunk)
                return
        flight = running.result()
        if flight is None:
            ended = settler.end(chunk)
            # The next chunk starts while this one's outcomes travel, unless its death would be blamed on this one.
            if chunk in settler.turns and not chunk.lease.sink:
                await asyncio.wait((ended,))
        else:
            self._hand.move(chunk, Stage.FLIES)
            runner.flights[chunk] = flight
            if not runner.lives(flight):  # its thread was abandoned meanwhile
                chunk.stopped = True
            following = settler.begin(self._follow(chunk, flight))
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
            longest = max((seconds for _, seconds in self.runner.setups), default=0.0)
            self._hand.stay(chunk.run, time.monotonic(), longest)
        return blob

    async def _place(self, chunk: Chunk, blob: bytes | None) -> bool:
        """Choose the process in which a suspect runs, and return whether it is still to run."""
        # A process that dies does not report which message killed it, and of two suspects in it one would be blamed for
        # the other: each has a process of its own, or is the only one in this process, over all slots and queues.
        own = self.options
        if chunk.lease.process is not None and own.calls is None:
            return True
        loop, this = asyncio.get_running_loop(), (chunk.run, chunk.id_at(0))
        raised, turn = _raised.setdefault(loop, set()), _by_loop.setdefault(loop, asyncio.Lock())
        if this not in raised and await self.runner.fits_child(chunk, blob):
            # If it kills that process, it alone is the reason, and nothing else is lost.
            chunk.lease = replace(chunk.lease, process=Isolation(memory=own.memory).record())
            chunk.apart = raised
            return True
        raised.discard(this)
        until = time.monotonic() + TURN_WITHIN
        while chunk not in self.settler.turns:
            if chunk.finished or len(chunk.cancelled) == chunk.count:
                return False
            if time.monotonic() >= until:  # the suspect that runs may wait for this one
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_EVERY):
                    await turn.acquire()
                self.settler.turns[chunk] = turn
        try:
            async with asyncio.timeout(TOLD_IN):
                answer, _ = await calls.IsolateCall(chunk.lease.id).ask(partial(self.settler.insist, chunk))
        except TimeoutError:
            return True  # it runs all the same; its death counts only if the shard has noted it
        return answer.held

    async def _attend(self, chunk: Chunk, end: asyncio.Future[Any]) -> bool:
        """Settle finished messages every 100 ms until `end`, and return False if a cancelled message still runs."""
        while not (await asyncio.wait((end,), timeout=SETTLE_EVERY))[0]:
            self.settler.meanwhile(chunk)
            if self._hand.look(chunk, asyncio.get_running_loop().time()):
                self._touched()
            if let_go(chunk, self.runner.running(chunk), time.monotonic()):
                return False
        return True

    async def _abandon(self, chunk: Chunk, running: asyncio.Future[Any]) -> bool:
        """Abandon the slot's thread to a function that does not end, and return False if it has just ended."""
        before = chunk.running
        chunk.stopped = True  # the thread begins no more messages of this chunk
        await self.settler.give_back(chunk, chunk.count)
        # The function may have ended during the await, and the thread is then free again.
        if running.done() or chunk.running != before or not clinging(chunk, self.runner.running(chunk)):
            await asyncio.wait((running,), timeout=SETTLE_EVERY)
            return False
        self.settler.last_error = self.runner.abandon_thread(chunk, running)
        self._touched()
        return True

    async def _follow(self, chunk: Chunk, flight: Flight) -> None:
        """Attend a chunk of coroutines to its end, while other chunks run."""
        try:
            with self.settler.leaving(chunk):
                if not await self._attend_flight(chunk, flight, flight.begun):
                    return
                if not flight.ended.done():
                    # Send a credit now: a chunk that has begun all its messages no longer counts as in hand.
                    await self.settler.send(chunk, chunk.nothing())
                if await self._attend_flight(chunk, flight, flight.ended):
                    await self.settler.note_run(chunk)
                    await self.settler.settle(chunk)
        finally:
            del self.runner.flights[chunk]
            self._touched()

    async def _attend_flight(self, chunk: Chunk, flight: Flight, end: concurrent.futures.Future[None]) -> bool:
        """Attend a chunk of coroutines until `end`, and return False when their thread was abandoned."""
        waited = asyncio.wrap_future(end)
        while not await self._attend(chunk, waited):
            left = clinging(chunk, self.runner.running(chunk))
            if await self.runner.drop(chunk, flight):
                continue
            if said := self.runner.abandon_loop(chunk, flight, left):
                self.settler.last_error = said
            settlement = chunk.give_up()
            # Outcomes first, then the messages given back: one that ends in between is in both, and the first counts.
            await self.settler.settle(chunk)
            await self.settler.send(chunk, settlement or chunk.nothing())
            return False
        return True

    async def _emptied(self, run: bytes) -> bool:
        """Return whether no message of a run is left that this slot does not have."""
        if any(chunk.run == run and chunk.todo for chunk in self._hand.chunks):
            return False
        answers = await asyncio.gather(*(calls.WatchCall(run).ask(shard.call) for shard in self._shards.values()))
        lanes = [progress.lane for progress, _ in answers]
        return all(lane.sealed and not lane.counts[State.READY] for lane in lanes)


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


def _described(chunk: Chunk, index: int, document: str, now: float) -> RunningMessage:
    """Return a message of a chunk as views have it, with how long what runs there has been seen."""
    since = now if chunk.seen is None else chunk.seen[1]
    return RunningMessage(chunk.lease.shard, chunk.run, chunk.id_at(index), document, now - since, chunk.step_of(index))
