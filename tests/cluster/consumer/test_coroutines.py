"""Coroutine functions on a slot: always as many in flight as allowed, whatever lease they came with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dqlab.cluster.consumer.runner import SlotOptions
from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.running.execution import Origin, Work
from dqlab.cluster.consumer.running.functions import FunctionCache
from dqlab.cluster.consumer.running.threads import Coroutines, Flight
from dqlab.cluster.consumer.slot import Slot
from dqlab.cluster.transport.sealed import open_value, seal_value
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Settlement
from dqlab.rules.states import State
from tests.cluster.transport.test_parking import DeskActor, options

pytestmark = pytest.mark.lowest

ORIGIN = Origin("consumer/q/0", "worker", 1 << 20)


class Counter:
    """How many coroutines run now, and how many did at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def __enter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def __exit__(self, *exc: object) -> None:
        self.now -= 1


class Latch:
    """Holds coroutines of another thread's loop until it is opened."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened = False

    async def wait(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not self._opened:
            await self._event.wait()

    def open(self) -> None:
        self._opened = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._event.set)


class NearRef:
    """A queue actor in this very event loop; notes what is called."""

    def __init__(self, actor: DeskActor) -> None:
        self.actor = actor
        self.calls: list[tuple[str, bytes]] = []

    async def call(self, function: str, body: bytes | Callable[[], bytes], *, timeout: float = 10.0) -> bytes:
        body = body() if callable(body) else body
        self.calls.append((function, body))
        answer: bytes = await getattr(self.actor, function)(body)
        return answer

    def count(self, function: str) -> int:
        return sum(name == function for name, _ in self.calls)


class Bench:
    """One slot and the queue it serves."""

    def __init__(self, actor: DeskActor, ref: NearRef | None = None) -> None:
        self.actor, self.ref = actor, ref or NearRef(actor)
        self.slot: Slot

    async def put(self, values: list[Any]) -> None:
        frame = Frame.encode([seal_value(value) for value in values], kind=Kind.VALUE)
        await self.actor.put(pack({"frames": 1, "wait": 0.0}, frame))

    def counts(self) -> list[int]:
        return list(self.actor.shard.lanes[NO_ID].counts)

    async def until(self, state: State, n: int) -> None:
        """Wait until so many messages are in a state."""
        await asyncio.wait_for(self.actor._changed.until(lambda: self.counts()[state] >= n, 20.0), 20)
        assert self.counts()[state] == n, self.counts()

    async def values(self) -> list[Any]:
        """Return the results so far, by position."""
        _, parts = unpack(await self.actor.page(pack({"run": NO_ID, "lo": 0, "hi": 1 << 40})))
        return [open_value(entry) for part in parts for entry in Settlement.decode(bytes(part)).entries()]


@asynccontextmanager
async def bench(
    function: Callable[[Any], Any],
    *,
    concurrency: int = 2,
    batch: int = 100,
    early: bool = False,
    ref: type[NearRef] = NearRef,
    **changed: Any,
) -> AsyncIterator[Bench]:
    actor = DeskActor("q", 0, 1, options() | changed)
    await actor.start(pack({}))
    here = Bench(actor, ref(actor))
    chosen = SlotOptions(
        batch=batch, early=early, concurrency=concurrency, origin=ORIGIN, values=lambda: Work(function)
    )
    refs: dict[int, Any] = {0: here.ref}
    here.slot = Slot("consumer/q/0#0", refs, chosen, FunctionCache(), lambda: None)
    here.slot.start()
    try:
        yield here
    finally:
        await here.slot.stop()
        await actor.hand_over(pack({}))


async def until(condition: Callable[[], Any]) -> None:
    """Wait for what another thread does."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - nothing rings across threads
            await asyncio.sleep(0.001)


def chunk_of(n: int) -> Chunk:
    frame = Frame.decode(Frame.encode([seal_value(i) for i in range(n)], kind=Kind.VALUE))
    return Chunk(Lease(0, 1, 1, 60.0), [0], [frame])


def outcomes(chunk: Chunk) -> dict[int, Outcome]:
    return {index: outcome for index, outcome, _, _ in chunk.done}


# --- on one loop ----------------------------------------------------------------------------


def test_next_chunk_begins_when_the_first_of_the_one_before_ends() -> None:
    """One slow coroutine leaves all other places to those who come."""

    async def scenario() -> tuple[int, bool, bool, int]:
        slow, counter = asyncio.Event(), Counter()

        async def work(x: int) -> int:
            with counter:
                await (slow.wait() if x == 0 else asyncio.sleep(0))
            return x

        coroutines = Coroutines(2, ORIGIN)
        first, second = Flight(chunk_of(3), Work(work)), Flight(chunk_of(3), Work(work))
        second.chunk.todo.popleft()
        coroutines.add(first)
        coroutines.add(second)
        await asyncio.wrap_future(second.ended)
        before = first.ended.done()
        slow.set()
        await asyncio.wrap_future(first.ended)
        return len(second.chunk.done), first.begun.done(), before, counter.most

    assert asyncio.run(scenario()) == (2, True, False, 2)


def test_cancelled_message_is_returned_and_not_run() -> None:
    """The order came while it waited for its turn."""
    ran: list[int] = []

    async def work(x: int) -> None:
        ran.append(x)

    async def scenario() -> Chunk:
        flight = Flight(chunk_of(3), Work(work))
        flight.chunk.cancel([(1, 2)])
        Coroutines(1, ORIGIN).add(flight)
        await asyncio.wait_for(asyncio.wrap_future(flight.ended), 5)
        return flight.chunk

    chunk = asyncio.run(scenario())

    assert ran == [0, 2]
    assert outcomes(chunk) == {0: Outcome.ACK, 1: Outcome.RETURN, 2: Outcome.ACK}


def test_busy_time_of_chunks_that_overlap_adds_up_to_the_time_that_passed() -> None:
    """Else a consumer would be busy for more than a second a second, and its lane charged for it."""

    async def scenario() -> tuple[float, float]:
        async def work(x: int) -> None:
            await asyncio.sleep(0.02)

        loop, coroutines = asyncio.get_running_loop(), Coroutines(10, ORIGIN)
        flights = [Flight(chunk_of(5), Work(work)) for _ in range(3)]
        began = loop.time()
        for flight in flights:
            coroutines.add(flight)
        for flight in flights:
            await asyncio.wrap_future(flight.ended)
        return sum(flight.chunk.busy_s for flight in flights), loop.time() - began

    busy, passed = asyncio.run(scenario())

    assert busy == pytest.approx(passed, rel=0.2)


def test_a_chunk_names_the_coroutine_that_has_run_longest_and_none_when_all_have_ended() -> None:
    """Consumers held the one that began last for ever, with buttons to give up what had long been settled."""

    async def scenario() -> list[int | None]:
        first, coroutines = asyncio.Event(), Coroutines(2, ORIGIN)
        seen: list[int | None] = []

        async def work(x: int) -> None:
            seen.append(flight.chunk.running)
            if x == 0:
                await first.wait()
            elif x == 3:
                first.set()

        flight = Flight(chunk_of(4), Work(work))
        coroutines.add(flight)
        await asyncio.wrap_future(flight.ended)
        return [*seen, flight.chunk.running]

    assert asyncio.run(scenario()) == [0, 0, 0, 0, None]


# --- on a slot ------------------------------------------------------------------------------


def test_finished_coroutines_are_settled_while_a_slow_one_of_their_lease_runs() -> None:
    """Their results can be read, and a crash cannot take them back."""

    async def scenario() -> list[int]:
        gate = Latch()

        async def work(x: int) -> None:
            if x == 1:
                await gate.wait()

        async with bench(work, concurrency=3) as here:
            await here.put(list(range(3)))
            await here.until(State.ACKED, 2)
            counts = here.counts()
            gate.open()
            return counts

    counts = asyncio.run(scenario())

    assert (counts[State.LEASED], counts[State.DEAD]) == (1, 0)


class SlowToSettle(NearRef):
    """A queue actor whose log takes its time: settlements wait until `released`."""

    def __init__(self, actor: DeskActor) -> None:
        super().__init__(actor)
        self.asked, self.released = asyncio.Event(), asyncio.Event()

    async def call(self, function: str, body: bytes | Callable[[], bytes], *, timeout: float = 10.0) -> bytes:
        if function == "settle":
            self.asked.set()
            await self.released.wait()
        return await super().call(function, body, timeout=timeout)


def test_a_shard_that_settles_slowly_costs_no_lease_of_another_one() -> None:
    """What waits in the inbox was delivered a second time, elsewhere, and ran twice."""
    latch = threading.Event()

    def work(x: int) -> int:
        if x == 1:
            latch.wait(20)
        return x

    async def scenario() -> None:
        async with bench(work, visibility_timeout=0.6) as here:
            slow = DeskActor("q", 1, 1, options() | {"visibility_timeout": 0.6})
            await slow.start(pack({}))
            ref = SlowToSettle(slow)
            here.slot._shards[1] = ref  # type: ignore[assignment]
            here.slot._tasks.insert(0, asyncio.create_task(here.slot._park(1, ref)))  # type: ignore[arg-type]
            try:
                frame = Frame.encode([seal_value(x) for x in (0, 1)], kind=Kind.VALUE)
                await slow.put(pack({"frames": 1, "wait": 0.0}, frame))
                await asyncio.wait_for(ref.asked.wait(), 20)
                await here.put([2])
                await until(lambda: here.ref.count("renew") >= 6)
                assert here.counts()[State.LEASED] == 1
                assert ref.count("renew") >= 3
            finally:
                latch.set()
                ref.released.set()
            await here.until(State.ACKED, 1)

    asyncio.run(scenario())


class BrokenOnce(NearRef):
    """Answers the first renewal with an error that nothing expects."""

    async def call(self, function: str, body: bytes | Callable[[], bytes], *, timeout: float = 10.0) -> bytes:
        answer = await super().call(function, body, timeout=timeout)
        if function == "renew" and self.count("renew") == 1:
            raise RuntimeError("what nothing expects")
        return answer


def test_a_renewal_that_fails_unexpectedly_is_not_the_last() -> None:
    """The lease would run out under a function that still runs."""

    async def scenario() -> int:
        gate = Latch()

        async def work(x: int) -> None:
            await gate.wait()

        async with bench(work, visibility_timeout=0.3, ref=BrokenOnce) as here:
            await here.put([0])
            await until(lambda: here.ref.count("renew") >= 4)
            leased = here.counts()[State.LEASED]
            gate.open()
            await here.until(State.ACKED, 1)
            return leased

    assert asyncio.run(scenario()) == 1


def test_what_has_not_begun_is_given_back_when_the_slot_stops() -> None:
    """It belongs to others at once; what runs may end first."""

    async def scenario() -> tuple[list[int], list[int]]:
        gate, begun = Latch(), []

        async def work(x: int) -> None:
            begun.append(x)
            await gate.wait()

        async with bench(work, concurrency=2) as here:
            await here.put(list(range(20)))
            await until(lambda: len(begun) == 2)
            stopping = asyncio.create_task(here.slot.stop())
            await until(lambda: here.counts()[State.LEASED] == 2)
            gate.open()
            await stopping
            return here.counts(), begun

    counts, begun = asyncio.run(scenario())

    assert len(begun) == 2
    assert (counts[State.ACKED], counts[State.READY], counts[State.LEASED]) == (2, 18, 0)


def test_early_acked_messages_begin_no_sooner_than_there_is_room_for_them() -> None:
    """At most once: what is said to have begun is lost when the consumer dies."""

    async def scenario() -> list[bool]:
        gate = Latch()

        async def work(x: int) -> None:
            await gate.wait()

        async with bench(work, concurrency=1, batch=2, early=True) as here:
            await here.put(list(range(6)))
            await until(lambda: len(here.actor.shard.leases) == 2 and here.slot.runner.flights)
            early = [lease.early for lease in here.actor.shard.leases.values()]
            gate.open()
            await here.until(State.ACKED, 6)
            return early

    assert asyncio.run(scenario()) == [True, False]


def test_calls_run_beside_coroutines_that_wait() -> None:
    """A queue with functions of both kinds: neither waits for the other's slow ones."""

    async def scenario() -> list[int]:
        gate = Latch()

        async def waits(x: int) -> None:
            await gate.wait()

        async with bench(waits, batch=1) as here:
            await here.put([0])
            await until(lambda: here.slot.runner.flights)
            here.slot.options.values = lambda: Work(lambda x: x)
            await here.put([1, 2, 3])
            await here.until(State.ACKED, 3)
            counts = here.counts()
            gate.open()
            return counts

    assert asyncio.run(scenario())[State.LEASED] == 1
