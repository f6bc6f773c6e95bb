"""Where the chunks of a slot run: in its thread, on event loops in threads of their own, or in processes.

Since a thread cannot be killed, one whose function ignores a cancel is abandoned, and another one takes its place.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dqlab.cluster.consumer.devices import Equipment
from dqlab.cluster.consumer.hand import Hand, Stage
from dqlab.cluster.consumer.process.slot_process import BatchProcess, SlotProcess
from dqlab.cluster.consumer.refusals import Refusals
from dqlab.cluster.consumer.running.batches import Batches, BatchFlight
from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.execution import Origin, Work, fail_all, refuse_value, run_chunk
from dqlab.cluster.consumer.running.functions import (
    FunctionCache,
    Objects,
    Setup,
    SetupFailed,
    halt_all,
    makes_objects,
)
from dqlab.cluster.consumer.running.here import note_output
from dqlab.cluster.consumer.running.one_batch import one_by_one
from dqlab.cluster.consumer.running.threads import Coroutines, CoroutineThread, Flight, SlotThread
from dqlab.cluster.transport.isolation import is_coroutine
from dqlab.cluster.transport.sealed import settings_in
from dqlab.errors import MessageError
from dqlab.frame import Kind
from dqlab.plan import Batch, Plan, called

logger = logging.getLogger("dqlab.consumer")

KILLED_IN = 2.0
"""Seconds to wait for the end of a slot's process."""
FREE_S = 1.0
"""Seconds that the event loop of coroutines may take to drop one, until its thread is abandoned."""
COROUTINE, BATCH = "a coroutine", "a batch"
COROUTINES_AHEAD = 4
"""Coroutines to lease for each that runs at a time: they wait together, so their mean cost is a poor measure."""


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
    values: Callable[[], Work] = lambda: Work(refuse_value)
    """Makes the function for plain values: a custom consumer's `process_item`."""
    calls: Callable[[Work, Chunk], Work] | None = None
    """Makes the function that replaces a call's own."""
    prepare: Callable[[], object] | None = None
    """Called in the slot's thread before a chunk runs."""
    memory: int | None = None
    """Bytes at which the worker's nanny ends it, and so the process of a suspect."""


class Runner:
    """The threads and processes of one slot, and what was made in them."""

    def __init__(
        self,
        options: SlotOptions,
        functions: FunctionCache,
        hand: Hand,
        refusals: Refusals,
        equipment: Equipment,
        emptied: Callable[[bytes], Coroutine[Any, Any, bool]],  # whether nothing more is to come of a run
    ) -> None:
        self.options, self._functions, self._hand, self._refusals = options, functions, hand, refusals
        self._equipment, self._emptied, self._name = equipment, emptied, f"dq-{hand.name}"
        self._thread = SlotThread(self._name)
        self._loops: dict[str, CoroutineThread] = {}
        """The threads with event loops, by what one of their messages is called."""
        self.batches: Batches | None = None
        self._abandoned: list[tuple[str, asyncio.Future[Any] | CoroutineThread]] = []
        """Cancelled messages that still run: their names, and the threads that they hold."""
        self.flights: dict[Chunk, Flight] = {}
        self._renewed = lambda: refusals.renewed
        self.process = SlotProcess(options.origin, equipment, self._renewed)
        self.processes = [self.process]
        self._objects = Objects()
        self._setup: Setup | None = None
        self._context = contextvars.copy_context()

    @property
    def setups(self) -> list[Setup]:
        """How long it took to make the objects of the functions that run here."""
        batches = None if self.batches is None else self.batches.setup
        here = [self._setup, batches, *(process.setup for process in self.processes)]
        return [each for each in here if each is not None]

    @property
    def abandoned(self) -> list[str]:
        """Names of cancelled messages whose functions still run here."""
        self._abandoned = [kept for kept in self._abandoned if _runs(kept[1])]
        dropped = [name for name, thread in self._loops.items() for _ in range(thread.abandoned)]
        return [name for name, _ in self._abandoned] + dropped

    def running(self, chunk: Chunk) -> list[int | None]:
        """Return the positions of a chunk's messages that run."""
        flight = self.flights.get(chunk)
        return [chunk.running] if flight is None else list(flight.tasks)

    def lives(self, flight: Flight) -> bool:
        """Return whether the thread of a flight was not abandoned."""
        return flight.thread in self._loops.values()

    def disturbs(self, chunk: Chunk, blob: bytes | None) -> bool:
        """Return whether a chunk would replace objects that coroutines of another run use."""
        makes = self._objects.made and blob is not None and makes_objects(blob)
        return bool(makes and any(other.run != chunk.run for other in self.flights))

    def run(self, chunk: Chunk, blob: bytes | None) -> asyncio.Future[Flight | None]:
        """Run a chunk, and return the future of its flight, None where it has run in the slot's thread."""
        self._loop = loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, self._context.run, self._execute, chunk, blob)

    def fits_child(self, chunk: Chunk, blob: bytes | None) -> asyncio.Future[bool]:
        """Return whether a chunk calls a plain function, which may run in another process."""
        return asyncio.get_running_loop().run_in_executor(self._thread, self._fits_child, chunk, blob)

    def _fits_child(self, chunk: Chunk, blob: bytes | None) -> bool:
        own = self.options
        if blob is None or chunk.kind is Kind.VALUE or own.calls is not None or own.prepare is not None:
            return False
        with suppress(BaseException):  # `_execute` opens it again, and fails the message
            work = self._functions.open(chunk.frames[0].function, blob)
            return not (is_coroutine(called(work.call)) if chunk.kind is Kind.ELEMENT else work.is_coroutine)
        return False

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
                work = self.options.values()
            else:
                if blob is None:
                    raise MessageError(reason="the queue no longer has its function. Retry the run with fn=.")
                batch = Plan.of(plan, {}).batch if chunk.kind is Kind.ELEMENT and self.options.calls is None else None
                if batch is not None and not chunk.lease.suspect:
                    return self._add_to_batches(chunk, blob, batch)
                if chunk.lease.process is not None and self.options.calls is None:
                    self._hand.at_least = 1
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
        if COROUTINE not in self._loops:
            runs = Coroutines(concurrency, self.options.origin)
            self._loops[COROUTINE] = CoroutineThread(f"{self._name}-coroutines", runs)
        return self._loops[COROUTINE].add(Flight(chunk, work))

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
            process = BatchProcess(origin, self._equipment, self._renewed)
            self.processes = [self.process, process]
            name = f"{self._name}-batches"

            def emptied(run: bytes) -> concurrent.futures.Future[bool]:
                return asyncio.run_coroutine_threadsafe(self._emptied(run), self._loop)

            self.batches = batches = Batches(name, self.options.concurrency, origin, process, emptied)
            self._loops[BATCH] = CoroutineThread(f"{name}-loop", batches)
        self._hand.at_least = min(batches.at_least(flight), self.options.batch)
        return self._loops[BATCH].add(flight)

    # --- what does not end ----------------------------------------------------------------------

    def abandon_thread(self, chunk: Chunk, running: asyncio.Future[Any]) -> str:
        """Leave the slot's thread to a function that does not end; return what to say of it."""
        self._thread.close()
        self._thread = SlotThread(self._name)
        self._objects.leave()
        self._objects = Objects()  # that function may still use the ones before
        self._context = self._context.copy()  # a context cannot be entered twice, and that function is still in it
        if self.process.child is not None:  # the thread that started the process owns it: Linux kills it with that one
            self._thread.submit(self.process.close)
            self.process = SlotProcess(self.options.origin, self._equipment, self._renewed)
            self.processes[0] = self.process
        return self._note_abandoned(chunk.name_of(chunk.running) if chunk.running is not None else "?", running, chunk)

    async def drop(self, chunk: Chunk, flight: Flight) -> bool:
        """Have an event loop drop the cancelled messages of a chunk, and return whether it could."""
        if flight.thread is None or not self.lives(flight):
            return False
        freed = asyncio.wrap_future(flight.thread.abandon(flight))
        await asyncio.wait((freed,), timeout=FREE_S)
        return freed.done()

    def abandon_loop(self, chunk: Chunk, flight: Flight, left: list[int]) -> str:
        """Leave a thread with an event loop to a coroutine that blocks it; return what to say of it, "" if it was."""
        name = next((name for name, thread in self._loops.items() if thread is flight.thread), None)
        if name is None:
            return ""
        thread = self._loops.pop(name)
        if name == BATCH:
            self.batches, self.processes = None, [self.process]
        else:
            self._objects = Objects()
        thread.close()
        for other, its in self.flights.items():
            if its.thread is thread:  # the slot gives back what of it has not ended
                other.stopped = True
        return self._note_abandoned(", ".join(map(chunk.name_of, left)) or "a coroutine", thread, chunk)

    def _note_abandoned(self, name: str, thread: asyncio.Future[Any] | CoroutineThread, chunk: Chunk) -> str:
        self._abandoned.append((name, thread))
        words = "event=thread_abandoned slot=%s lease=%s message=%s threads=%d"
        # No warning: views and the doctor name it.
        logger.info(words, self._hand.name, chunk.lease.id, name, len(self._abandoned))
        return f"{name} still runs after its cancellation; its thread was abandoned"

    async def stop(self) -> None:
        """End the threads and processes."""
        if not self.process.stopping:  # unless this is the second stop
            self.process.stopping = True
            # In the slot's thread, behind what runs there: only that thread starts and ends processes.
            ended = asyncio.wrap_future(self._thread.submit(self._close))
            self._thread.close()
            if self.process.child is not None or self._objects.made:
                await asyncio.wait((ended,), timeout=KILLED_IN)
        for thread in self._loops.values():
            thread.close()
        if self.batches is not None:
            await asyncio.wait((asyncio.wrap_future(self.batches.closed),), timeout=KILLED_IN)

    def _close(self) -> None:
        """End the process and the objects that the slot's thread has made."""
        self.process.close()
        self._objects.close()


def _runs(thread: asyncio.Future[Any] | CoroutineThread) -> bool:
    """Return whether an abandoned thread still runs."""
    return thread.lives if isinstance(thread, CoroutineThread) else not thread.done()
