"""Fills the batches of one slot from its chunks, across leases and shards, and runs them; see `one_batch`.

Every method runs on the event loop of a `CoroutineThread`, in the place of `Coroutines`. Coroutine functions run there
too; others in a thread of their own, since they may start event loops, or in a process, which that thread feeds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

from dqlab.cluster.consumer.running.chunk import UNDECIDED, Chunk, Done
from dqlab.cluster.consumer.running.execution import Origin, failed
from dqlab.cluster.consumer.running.functions import Objects, Setup, SetupFailed, halted
from dqlab.cluster.consumer.running.one_batch import InARow, OneBatch, shared
from dqlab.cluster.consumer.running.threads import Flight, SlotThread
from dqlab.frame import Outcome
from dqlab.plan import AUTO, Batch
from dqlab.printed import Ring

ASK_S = 0.1, 1.0
"""Seconds until a batch that is not full asks the queue whether more is to come, and between two questions."""
Place: TypeAlias = tuple["BatchFlight", int]
_Key: TypeAlias = tuple[tuple[bytes, bytes], bool, str]
MOST_FORMING = 16
"""Most batches that are filled at a time, where documents of a batch share a value; then the oldest one runs."""


FIRST, ON_GPU = 16, 32
"""Sizes with which "auto" begins."""
LARGEST, BETTER, LONG_S = 4096, 1.1, 5.0
"""Where "auto" stops: at a size, at less gain in documents per second, and at calls as long as this."""
CALLS, ENOUGH_S = 3, 1.0
"""Calls, or seconds in them, after which a size is judged."""


class Size:
    """The size of a function's batches in one slot."""

    def __init__(self, batch: Batch, *, gpu: bool = False) -> None:
        first = ON_GPU if gpu else FIRST
        self.now = first if batch.size == AUTO else int(batch.size)
        self._climbs = batch.size == AUTO and not gpu
        self._calls = self._documents = 0
        self._seconds = self._before = 0.0

    def ran(self, documents: int, seconds: float) -> None:
        """Note a call that succeeded, and climb if full batches of this size bring more documents through."""
        if not self._climbs or documents < self.now:
            return
        self._calls += 1
        self._documents += documents
        self._seconds += seconds
        if self._calls < CALLS and self._seconds < ENOUGH_S:
            return
        rate = self._documents / max(self._seconds, 1e-9)
        if rate < BETTER * self._before:
            self.now, self._climbs = self.now // 2, False
        elif self.now >= LARGEST or self._seconds / self._calls > LONG_S:
            self._climbs = False
        else:
            self.now, self._before = 2 * self.now, rate
        self._calls = self._documents = self._seconds = 0

    def shrink(self, documents: int) -> None:
        """Note that so many documents were too many, and climb no more."""
        self.now, self._climbs = max(1, min(self.now, documents) // 2), False


class Remote(Protocol):
    """Runs batches in a process, which `close` ends in the thread that started it, once `stopping` is set."""

    stopping: bool

    def run_batch(self, one: OneBatch, chunk: Chunk, blob: bytes) -> None:
        """Run a batch, with what its chunk tells of the run."""

    def close(self) -> None:
        """End the process."""


@dataclass(eq=False)
class BatchFlight(Flight):
    """A chunk whose messages run in batches."""

    batch: Batch = field(default_factory=Batch)
    blob: bytes = b""
    wide: bool = False
    """It has a coroutine function, so several batches run at a time."""
    remote: bool = False

    def __post_init__(self) -> None:
        self.function = self.chunk.frames[0].function
        self.group = self.function, self.chunk.run
        """What its batches have in common."""

    def ring_at(self, index: int) -> Ring | None:
        """Return what the batch of a running message has printed."""
        one = self.tasks.get(index)
        return None if one is None else one.printed

    def finish(self, done: Done) -> None:
        """Give a message its outcome, unless it has one."""
        if done[0] in self.tasks:
            del self.tasks[done[0]]
            self.chunk.done.append(done)
            self.end()


@dataclass
class Filled:
    """How large and how full the batches of a run's function are in one slot."""

    size: Size
    row: InARow = field(default_factory=InARow)
    calls: int = 0
    documents: int = 0


@dataclass(eq=False)
class _Forming:
    """A batch that is filled, runs, or waits for that."""

    places: list[Place] = field(default_factory=list)
    nbytes: int = 0
    until: float = 0.0
    """When it runs though it is not full, in seconds of the event loop."""
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None

    @property
    def flight(self) -> BatchFlight:
        return self.places[0][0]

    def drop_cancelled(self) -> None:
        """Give cancelled messages their outcome, and keep the others."""
        gone = {(flight, index) for flight, index in self.places if index in flight.chunk.cancelled}
        for flight, index in gone:
            flight.finish((index, Outcome.RETURN, b"", None))
        self.places = [place for place in self.places if place not in gone]


class Batches:
    """Runs the batches of one slot: one at a time, or `concurrency` of a coroutine function."""

    def __init__(
        self,
        name: str,
        concurrency: int,
        origin: Origin,
        remote: Remote,
        emptied: Callable[[bytes], concurrent.futures.Future[bool]],  # whether nothing more is to come of a run
    ) -> None:
        self._name, self._concurrency, self._origin = name, concurrency, origin
        self._remote, self._emptied = remote, emptied
        self._thread, self._objects = SlotThread(name), Objects()
        self._waiting: deque[BatchFlight] = deque()
        self._forming: dict[_Key, _Forming] = {}
        """By group, those of retried messages apart: what failed before may fail again, and would cost others calls;
        and by the value that documents share."""
        self._ready: deque[_Forming] = deque()
        self._running: set[_Forming] = set()
        self.filled: dict[tuple[bytes, bytes], Filled] = {}
        """By function and run, of the newest."""
        self.setup: Setup | None = None
        self.abandoned: set[asyncio.Future[None]] = set()
        """Batches with cancelled messages that still run."""
        self.closed: concurrent.futures.Future[None] = concurrent.futures.Future()
        """Done when its process and objects have ended."""

    def at_least(self, flight: BatchFlight) -> int:
        """Return how many messages keep this slot busy, from any thread."""
        filled = self.filled.get(flight.group)
        now = filled.size.now if filled is not None else FIRST
        more = len(self._forming) if flight.batch.key is not None else 0
        return now * (2 * (self._concurrency if flight.wide else 1) + more)

    # --- as `Coroutines` ------------------------------------------------------------------------

    def add(self, flight: Flight) -> None:
        """Take a chunk's messages behind those of earlier chunks, as soon as a batch needs them."""
        assert isinstance(flight, BatchFlight), "only chunks of batches come here"
        flight.messages = flight.chunk.messages()
        self._waiting.append(flight)
        self._fill()

    def abandon(self, flight: Flight) -> None:
        """Let go of a chunk's cancelled messages; others of their batches run again."""
        for key in list(self._forming):
            self._complete(key)
        for batch in self._ready:
            batch.drop_cancelled()
        self._ready = deque(batch for batch in self._ready if batch.places)
        for batch in list(self._running):
            if not any(its is flight and index in its.chunk.cancelled for its, index in batch.places):
                continue
            self._running.discard(batch)
            assert batch.task is not None, "it runs"
            self.abandoned.add(batch.task)
            batch.task.add_done_callback(self.abandoned.discard)
            if batch.flight.wide:
                batch.task.cancel()
            else:  # its thread is busy: another one goes on, with objects of its own
                self._thread.close()
                self._objects.leave()
                self._thread, self._objects = SlotThread(self._name), Objects()
            batch.drop_cancelled()
            for place in reversed(batch.places):
                self._put(*place, first=True)
        self._fill()

    def clear(self) -> None:
        """Begin no more batches, and end what was made for them."""
        self._waiting.clear()
        self._ready.clear()
        self._forming.clear()
        self._remote.stopping = True
        self._thread.submit(self._close)
        self._thread.close()

    def _close(self) -> None:
        try:
            self._remote.close()
            self._objects.close()
        finally:
            self.closed.set_result(None)

    # --- filling --------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Take messages while a batch could run with them, and start those that are ready."""
        while True:
            if self._ready and self._has_room(self._ready[0].flight):
                self._start(self._ready.popleft())
            elif not self._ready and self._waiting and self._has_room(self._waiting[0]):
                self._take(self._waiting[0])
            else:
                break

    def _has_room(self, flight: BatchFlight) -> bool:
        # Batches of two functions never run together: a slot keeps the objects of one function only.
        if any(batch.flight.function != flight.function for batch in self._running):
            return False
        return len(self._running) < (self._concurrency if flight.wide else 1)

    def _take(self, flight: BatchFlight) -> None:
        index = flight.take()
        if flight.begun.done():
            self._waiting.popleft()
        if index is not None:
            flight.tasks[index] = None
            if index in flight.chunk.cancelled:
                flight.finish((index, Outcome.RETURN, b"", None))
            else:
                self._put(flight, index)
        flight.end()

    def _put(self, flight: BatchFlight, index: int, *, first: bool = False) -> None:
        """Put a message into the batch that is being filled, which may complete it or an earlier one."""
        for other in [other for other in self._forming if other[0] != flight.group]:
            self._complete(other)  # of another run: it need not wait for this one
        key = self._key(flight, index)
        nbytes, most = flight.chunk.nbytes_at(index), flight.batch.max_bytes
        forming = self._forming.get(key)
        if forming is not None and most is not None and forming.nbytes + nbytes > int(most):
            self._complete(key)
            forming = None
        if forming is None:
            forming = self._begin(key, flight)
        forming.places.insert(0 if first else len(forming.places), (flight, index))
        forming.nbytes += nbytes
        if len(forming.places) >= self._filled(flight).size.now:
            self._complete(key)

    def _key(self, flight: BatchFlight, index: int) -> _Key:
        by = flight.batch.key
        value = "" if by is None else shared(flight.messages[index], by)
        return flight.group, flight.chunk.attempts.get(index, 1) > 1, value

    def _begin(self, key: _Key, flight: BatchFlight) -> _Forming:
        if len(self._forming) >= MOST_FORMING:
            self._complete(next(iter(self._forming)))
        until = asyncio.get_running_loop().time() + float(flight.batch.max_wait)
        forming = self._forming[key] = _Forming(until=until)
        self._look_in(ASK_S[0], key, forming)
        return forming

    def _due(self, key: _Key, forming: _Forming) -> None:
        if self._forming.get(key) is forming:
            self._complete(key)
            self._fill()

    def _look_in(self, seconds: float, key: _Key, forming: _Forming) -> None:
        loop = asyncio.get_running_loop()
        forming.timer = loop.call_at(min(loop.time() + seconds, forming.until), self._look, key, forming)

    def _look(self, key: _Key, forming: _Forming) -> None:
        """Run a batch that has waited for long enough; else ask the queue whether it still has to wait."""
        loop = asyncio.get_running_loop()
        if loop.time() >= forming.until:
            self._due(key, forming)
            return
        self._look_in(ASK_S[1], key, forming)
        if not self._waiting:

            def answered(answer: concurrent.futures.Future[bool]) -> None:
                if not answer.cancelled() and answer.exception() is None and answer.result() and not loop.is_closed():
                    loop.call_soon_threadsafe(self._due, key, forming)

            self._emptied(forming.flight.chunk.run).add_done_callback(answered)

    def _complete(self, key: _Key) -> None:
        forming = self._forming.pop(key)
        if forming.timer is not None:
            forming.timer.cancel()
        self._ready.append(forming)

    def _filled(self, flight: BatchFlight) -> Filled:
        filled = self.filled.get(flight.group)
        if filled is None:
            if len(self.filled) >= KEPT:
                del self.filled[next(iter(self.filled))]
            gpu = bool((flight.chunk.lease.process or {}).get("gpus"))
            filled = self.filled[flight.group] = Filled(Size(flight.batch, gpu=gpu))
        return filled

    # --- running --------------------------------------------------------------------------------

    def _start(self, batch: _Forming) -> None:
        batch.drop_cancelled()
        if not batch.places:
            return
        self._running.add(batch)
        for flight, index in batch.places:
            flight.chunk.running = index if flight.chunk.running is None else flight.chunk.running
        batch.task = asyncio.get_running_loop().create_task(self._run(batch), name="dqlab-batch")

    async def _run(self, batch: _Forming) -> None:
        flight, places = batch.flight, batch.places
        messages = [each.messages[index] for each, index in places]
        one = OneBatch(messages, self._origin, self._filled(flight).row)
        one.logs = flight.chunk.logs
        for each, index in places:
            each.tasks[index] = one
        one.once = {at: each.chunk.once[index] for at, (each, index) in enumerate(places) if index in each.chunk.once}
        one.cancelled_places = lambda: [at for at, (f, index) in enumerate(places) if index in f.chunk.cancelled]
        try:
            if flight.remote:
                await self._here(self._remote.run_batch, one, flight.chunk, flight.blob)
            else:
                ready = partial(self._objects.ready, flight.function, flight.work, flight.chunk.leased_at)
                if flight.wide:
                    await one.run_coroutine(await self._here(ready))
                else:
                    await self._here(lambda: one.run(ready()))
        except SetupFailed as wrong:
            payload = halted(wrong, self._origin)
            one.done = [(place, UNDECIDED, payload, None) for place in range(len(messages))]
        except Exception as error:  # noqa: BLE001 - a defect of ours, or raised in the thread from outside
            ended = {place for place, *_ in one.done}
            left = [place for place in range(len(messages)) if place not in ended]
            one.done += [failed(place, error, self._origin, flight.work.code, None, 0.0) for place in left]
        if batch in self._running:  # else it was abandoned
            self._settle(batch, one)

    def _here(self, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call something in the thread of plain functions, in a context of its own."""
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(self._thread, context.run, call, *arguments)

    def _settle(self, batch: _Forming, one: OneBatch) -> None:
        """Give each message its outcome."""
        self._running.discard(batch)
        first, filled, now = batch.flight, self._filled(batch.flight), time.perf_counter()
        filled.row = one.row
        if one.too_many:
            filled.size.shrink(one.too_many)
        for documents, each in one.calls:
            filled.calls, filled.documents = filled.calls + 1, filled.documents + documents
            filled.size.ran(documents, each)
        if setup := self._objects.seconds(first.function):
            self.setup = first.chunk.run, setup
        for place, amounts in one.spent.items():
            flight, index = batch.places[place]
            flight.chunk.pay(index, amounts)
        for place, answers in one.once.items():
            flight, index = batch.places[place]
            flight.chunk.keep(index, answers)
        for place, outcome, payload, key in one.done:
            flight, index = batch.places[place]
            flight.chunk.took[index], flight.chunk.ended[index] = one.took.get(place, 0.0), now
            if one.printed is not None:
                flight.chunk.output[index] = one.printed
            if version := one.versions.get(place):
                flight.chunk.versions[index] = version
            flight.finish((index, outcome, payload, key))
        for flight, n in Counter(flight for flight, _ in batch.places).items():
            flight.chunk.running = None
            flight.chunk.spend((now - one.began) * n / len(batch.places))
        for place in one.alone:
            self._ready.append(_Forming([batch.places[place]]))
        for place in reversed(one.again):
            self._put(*batch.places[place], first=True)
        self._fill()


KEPT = 16
"""For so many runs a slot keeps how full their batches were, and a consumer how long their set-up took."""
