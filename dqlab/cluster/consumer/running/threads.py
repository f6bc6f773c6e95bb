"""The threads of a slot in which users' code runs: one call after another, or many coroutines on an event loop.

The event loop outlives chunks, so that the last coroutines of one chunk and the first of the next one run together.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import AsyncGeneratorType, MethodType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from dqlab.cluster.consumer.running.chunk import Chunk, Done
from dqlab.cluster.consumer.running.execution import (
    Origin,
    Work,
    check_called,
    collected,
    failed,
    opened,
    seal_result,
    take,
)
from dqlab.cluster.consumer.running.here import active, end_if_forked, running
from dqlab.frame import Kind, Outcome
from dqlab.printed import Ring

if TYPE_CHECKING:
    from dqlab.cluster.consumer.running.batches import Batches

P = ParamSpec("P")
T = TypeVar("T")


class SlotThread(Executor):
    """One daemon thread that runs calls one after another, whatever exceptions reach it between them."""

    # Not a `ThreadPoolExecutor`: libraries such as `stopit` raise an exception in a function's thread from outside, and
    # it may arrive when the function has ended. It would end the pool's thread, and later calls would never run.

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._submitted = threading.Semaphore(0)
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call and return its future."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        self._calls.append((future, partial(fn, *args, **kwargs)))
        self._submitted.release()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        return future

    def close(self) -> None:
        """Accept no more calls, and let the thread end after the last one."""
        self._closed = True
        self._submitted.release()

    def _work(self) -> None:
        while self._calls or not self._closed:
            try:
                self._run()
            except BaseException as error:  # noqa: BLE001 - raised here from outside, for a call that has ended
                self._break(error)

    def _run(self) -> None:
        """Run the first call."""
        # The call stays in the queue until it has ended: an exception from outside may come between any two lines, and
        # must leave no call without an outcome.
        if not self._calls:
            self._submitted.acquire()
            return
        future, call = self._calls[0]
        if not future.done() and future.set_running_or_notify_cancel():
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - for the caller
                future.set_exception(error)
            else:
                future.set_result(result)
        self._calls.popleft()

    def _break(self, error: BaseException) -> None:
        """Fail the call that was running, if any."""
        # A call that has not begun stays first, and `_work` runs it next.
        if self._calls and self._calls[0][0].running():
            future, _ = self._calls.popleft()
            broken = RuntimeError(f"{type(error).__name__} was raised in its thread")
            broken.__cause__ = error
            future.set_exception(broken)


@dataclass(eq=False)
class Flight:
    """A chunk on its way through `Coroutines`."""

    chunk: Chunk
    work: Work
    thread: CoroutineThread | None = None
    begun: concurrent.futures.Future[None] = field(default_factory=concurrent.futures.Future)
    """Done when no message is left to begin."""
    ended: concurrent.futures.Future[None] = field(default_factory=concurrent.futures.Future)
    """Done when, after that, no message runs any more."""
    messages: list[bytes] = field(default_factory=list)
    tasks: dict[int, Any] = field(default_factory=dict)
    """The tasks or batches of running messages, by position, oldest first; None while one waits for its batch."""

    def ring_at(self, index: int) -> Ring | None:
        """Return what a running message has printed, None for nothing."""
        return self.chunk.output.get(index)

    def take(self) -> int | None:
        """Take the next message, and note when none is left to begin."""
        index = take(self.chunk)
        if index is None or not self.chunk.todo:
            _resolve(self.begun)
        return index

    def end(self) -> None:
        """Note the end of a chunk without messages left."""
        if self.begun.done() and not self.tasks:
            active.pop(self.chunk, None)
            _resolve(self.ended)


class Coroutines:
    """Runs coroutine functions on one event loop, at most `concurrency` at a time across chunks."""

    # No lock: every method runs on that loop. `CoroutineThread` calls them from other threads by
    # `call_soon_threadsafe`.

    def __init__(self, concurrency: int, origin: Origin) -> None:
        self._free, self._concurrency, self._origin = concurrency, concurrency, origin
        self._waiting: deque[Flight] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.abandoned: set[asyncio.Task[None]] = set()
        """Tasks that were cancelled and still run."""
        self._counted = 0.0
        """The moment up to which the loop's time is charged to chunks, each at the end of a message."""

    def add(self, flight: Flight) -> None:
        """Begin a chunk's messages behind those of earlier chunks, as soon as there is room."""
        flight.messages = flight.chunk.messages()
        active[flight.chunk] = False
        self._waiting.append(flight)
        if self._free == self._concurrency:  # the loop was idle, and that time belongs to no chunk
            self._counted = time.perf_counter()
        for _ in range(min(self._free, flight.chunk.count)):
            self._begin()

    def abandon(self, flight: Flight) -> None:
        """Cancel the coroutines of a chunk's cancelled messages and begin others in their place."""
        # Without waiting for their ends: a coroutine may ignore its `CancelledError`. `_run_messages` drops its outcome
        # then, since its task has left `tasks`.
        for index in [index for index in flight.tasks if index in flight.chunk.cancelled]:
            task = flight.tasks.pop(index)
            assert task is not None, "it runs"
            task.cancel()
            self.abandoned.add(task)
            task.add_done_callback(self.abandoned.discard)
            self._free += 1
            self._begin()
        flight.chunk.running = next(iter(flight.tasks), None)
        flight.end()

    def _begin(self) -> None:
        self._free -= 1
        task = asyncio.get_running_loop().create_task(self._run_messages(), name="dqlab-coroutines")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def clear(self) -> None:
        """Begin no more messages."""
        for flight in self._waiting:
            active.pop(flight.chunk, None)
        self._waiting.clear()

    async def _run_messages(self) -> None:
        """Run one message after another until none waits."""
        task = asyncio.current_task()
        assert task is not None, "only tasks run coroutines"
        while (taken := self._next()) is not None:
            flight, index = taken
            chunk = flight.chunk
            flight.tasks[index] = task
            chunk.running = next(iter(flight.tasks))  # the one that has run longest
            if index in chunk.cancelled:
                done: Done = index, Outcome.RETURN, b"", None
            else:
                done = await self._run(flight, index)
                end_if_forked()
            if flight.tasks.pop(index, None) is not task:
                return  # it was abandoned, and another task has its place
            chunk.running = next(iter(flight.tasks), None)
            chunk.done.append(done)
            now = time.perf_counter()
            chunk.spend(now - self._counted)
            self._counted = now
            flight.end()
        self._free += 1

    def _next(self) -> tuple[Flight, int] | None:
        while self._waiting:
            flight = self._waiting[0]
            index = flight.take()
            if flight.begun.done():
                self._waiting.popleft()
            if index is not None:
                return flight, index
            flight.end()
        return None

    async def _run(self, flight: Flight, index: int) -> Done:
        key, started, origin, chunk = None, time.perf_counter(), self._origin, flight.chunk
        running.set((chunk, index))
        try:
            key, value, version = opened(flight.messages[index])
            if version:
                chunk.versions[index] = version
            call = flight.work.call
            made = call(*value[0], **value[1]) if chunk.kind is Kind.CALL else call(value)
            most = flight.work.most(origin)
            result = await (collected(made, most) if type(made) is AsyncGeneratorType else made)
            if key is not None and type(result) is MethodType:
                check_called(result, value)
            payload = seal_result(result, flight.work.sealer(most), most)
            now = time.perf_counter()
            chunk.took[index], chunk.ended[index] = now - started, now
            return index, Outcome.ACK, payload, key
        except BaseException as error:  # noqa: BLE001 - sys.exit in a coroutine fails its message, not the loop
            return failed(index, error, origin, flight.work.code, key, time.perf_counter() - started)


def _resolve(future: concurrent.futures.Future[None]) -> None:
    """End the wait for a future."""
    if not future.done():
        future.set_result(None)


class CoroutineThread:
    """Runs `Coroutines`, or `Batches`, until it is closed."""

    def __init__(self, name: str, coroutines: Coroutines | Batches) -> None:
        self._coroutines = coroutines
        self._loop = asyncio.new_event_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._closing = False
        thread = SlotThread(name)
        self._ended = thread.submit(self._live)
        thread.close()

    def add(self, flight: Flight) -> Flight:
        """Begin a chunk's messages as soon as there is room, from any thread and in its context."""
        flight.thread = self
        self._loop.call_soon_threadsafe(self._coroutines.add, flight)
        return flight

    @property
    def abandoned(self) -> int:
        """Number of cancelled coroutines that still run."""
        return len(self._coroutines.abandoned)

    def abandon(self, flight: Flight) -> concurrent.futures.Future[None]:
        """Drop a chunk's cancelled coroutines, and return a future that resolves unless one blocks the loop."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def abandon() -> None:
            self._coroutines.abandon(flight)
            done.set_result(None)

        self._loop.call_soon_threadsafe(abandon)
        return done

    @property
    def lives(self) -> bool:
        """Whether the thread is alive."""
        return not self._ended.done()

    def close(self) -> None:
        """Begin no more coroutines and cancel those that run."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        self._coroutines.clear()
        if not self._closed.done():
            self._closed.set_result(None)

    def _live(self) -> None:
        # The runner cancels at its end the tasks that are left, and closes the loop.
        with asyncio.Runner(loop_factory=lambda: self._loop):
            while not (self._closed.done() or self._loop.is_closed()):
                with suppress(BaseException):  # a user's task may call sys.exit or stop the loop; others continue
                    self._loop.run_until_complete(self._closed)
