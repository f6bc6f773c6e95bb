"""The actors that lease messages and run functions, or a class of users, in one or more slots on one worker."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import psutil
from distributed import get_worker

from dqlab.clock import SystemClock
from dqlab.cluster.consumer.devices import Equipment, Numbers, devices_here
from dqlab.cluster.consumer.process.slot_process import SlotProcess
from dqlab.cluster.consumer.refusals import Refusals
from dqlab.cluster.consumer.runner import SlotOptions
from dqlab.cluster.consumer.running.batches import KEPT
from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.execution import Origin, Work
from dqlab.cluster.consumer.running.functions import FunctionCache
from dqlab.cluster.consumer.running.here import message_here
from dqlab.cluster.consumer.sink_writing import Sinks
from dqlab.cluster.consumer.slot import Slot
from dqlab.cluster.transport.calls import CloseCall, Done, PrintedCall, ReclaimCall, RunningAnswer, RunningNowCall
from dqlab.cluster.transport.internals import NoSuchActor, memory_limit
from dqlab.cluster.transport.ref import Ref
from dqlab.cluster.transport.reports import ConsumerReport, Reporter, Running
from dqlab.cluster.transport.sealed import open_value
from dqlab.cluster.transport.wire import pack
from dqlab.errors import BadOption

LOOK_AT_MEMORY_EVERY = 1.0
"""Seconds between two measurements of the memory of a consumer's processes."""
DEFAULT_YOUNG, YOUNG = 700, 2000
"""New containers that start the garbage collector: the defaults of Python before 3.14, and of 3.14. Each outcome is a
container, and with 700 the collector takes 7 to 11 % of the time of a run whose functions only return small rows."""
SWITCH_INTERVAL_S = 1e-3
"""Seconds that a thread keeps the GIL: with Python's 5 ms, calls to this worker take 6-14 ms while a function computes;
with 1 ms they take 2 ms."""


class MemoryUse:
    """The memory of this process and of its slots' processes, measured at most once a second."""

    def __init__(self) -> None:
        self._own: psutil.Process | None = None
        self._looked, self._nbytes = float("-inf"), 0
        self.peak = 0
        """Most bytes that were measured so far."""

    def now(self, at: float, processes: Sequence[SlotProcess]) -> int:
        """Return the resident bytes at `at`, in seconds of a monotonic clock."""
        if at - self._looked >= LOOK_AT_MEMORY_EVERY:
            self._own = self._own or psutil.Process()
            self._looked = at
            self._nbytes = self._own.memory_info().rss + sum(process.memory() for process in processes)
            self.peak = max(self.peak, self._nbytes)
        return self._nbytes


class ConsumerActor:
    """A consumer of one queue, registered as "consumer/QUEUE/NUMBER"."""

    # `shards` is how many shards the queue has. `options` are {slots, batch, early, concurrency, result_max}.
    def __init__(self, name: str, queue: str, shards: int, options: dict[str, Any]) -> None:
        self.name, self.queue, self._shards, self._options = name, queue, shards, dict(options)
        self.closed = self._begun = False
        self._slots: list[Slot] = []
        self._setups: dict[bytes, float] = {}
        """Seconds of set-up of the runs that had objects made here last."""
        self._memory = MemoryUse()
        self._clock = SystemClock()
        self._worker_name = ""

    async def start(self, body: bytes) -> bytes:
        """Begin to lease, or raise NoSuchActor if the actor was closed before."""
        # Not in the constructor, which Dask calls in a thread without the event loop.
        devices = devices_here()
        if self.closed:  # its worker leaves; no await here, or it would begin after its end
            raise NoSuchActor(self.name)
        worker = get_worker()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        _collect_less_often()
        self._worker_name = str(worker.name)
        self._reporter = Reporter(worker, self.report)
        options = self._options
        origin = Origin(self.name, self._worker_name, options["result_max"])
        # Never more slots than the worker has threads; the coroutines are divided among them.
        slots = min(options["slots"] or worker.state.nthreads, worker.state.nthreads)
        given = SlotOptions(
            batch=options["batch"],
            early=options["early"],
            concurrency=max(1, options["concurrency"] // slots),
            origin=origin,
            memory=memory_limit(worker),
        )
        slot_options = self._prepared(given)
        functions, sinks = FunctionCache(), Sinks(self.name, f"worker {self._worker_name}", origin)
        refusals = Refusals(self.name, f"worker {self._worker_name}")
        refs = {
            index: Ref(f"queue/{self.queue}/{index}", worker, introduce=partial(self._introduction, index))
            for index in range(self._shards)
        }
        if slot_options.calls is not None:  # its own functions run in its worker's process, which has its devices
            devices = []
        self._numbers = Numbers(slots if devices else 0, self.queue, worker.scheduler.address)
        numbers = self._numbers.taken or range(slots)
        self._slots = [
            Slot(
                f"{self.name}#{place}",
                refs,
                slot_options,
                functions,
                self._reporter.touch,
                sinks,
                refusals,
                Equipment.of(devices, numbers[place], worker.state.total_resources, place),
            )
            for place in range(slots)
        ]
        sinks.busy = lambda: any(slot.busy for slot in self._slots)
        self._sinks = sinks
        self._begun = True
        for slot in self._slots:
            slot.start()
        self._reporter.touch()
        return pack({"slots": len(self._slots)})

    def _introduction(self, shard: int) -> bytes:
        """Pack the messages in hand of all slots for a shard that was recreated."""
        return ReclaimCall(self.name, [held for slot in self._slots for held in slot.held(shard)]).pack()

    def _prepared(self, options: SlotOptions) -> SlotOptions:
        """Return the options of slots that run a class of users."""
        return options

    async def stats(self, body: bytes) -> bytes:
        """Return the totals that are reported to the scheduler."""
        return pack(self.report().to_wire())

    async def running(self, body: bytes) -> bytes:
        """Return what has run longest in each slot, or all of one name."""
        asked, now = RunningNowCall.unpack(body)[0], asyncio.get_running_loop().time()
        if asked.document:
            return RunningAnswer([each for slot in self._slots for each in slot.running(asked.document, now)]).pack()
        return RunningAnswer([runs for slot in self._slots if (runs := slot.longest(now)) is not None]).pack()

    async def printed(self, body: bytes) -> bytes:
        """Return what a document that runs now has printed so far."""
        asked, _ = PrintedCall.unpack(body)
        found = (
            logs for slot in self._slots if (logs := slot.printed(asked.run, asked.document, asked.seconds)) is not None
        )
        return Done().pack(*(logs.to_bytes() for logs in found))

    async def report_due(self, body: bytes) -> bytes:
        """Report at once what changed since the last report."""
        self._reporter.send_due()
        return pack({})

    def report(self) -> ConsumerReport:
        """Return absolute totals of this consumer."""
        slots = self._slots
        now = asyncio.get_running_loop().time()
        for run, seconds in (each for slot in slots for each in slot.runner.setups):
            self._setups[run] = max(seconds, self._setups.pop(run, 0.0))
        while len(self._setups) > KEPT:
            del self._setups[next(iter(self._setups))]
        running = [runs for slot in slots if (runs := slot.longest(now)) is not None]
        oldest = max(running, key=lambda runs: runs.seconds, default=None)
        return ConsumerReport(
            name=self.name,
            queue=self.queue,
            host=self._worker_name,
            at=self._clock.wall(),
            slots=len(slots),
            chunk=max((slot.chunk for slot in slots), default=0) or None,
            leased=sum(slot.in_hand for slot in slots),
            done=sum(slot.settler.done for slot in slots),
            units=sum(slot.settler.units for slot in slots),
            busy=sum(slot.settler.busy_s for slot in slots),
            oldest=oldest and Running(oldest.document, oldest.seconds, oldest.run.hex(), oldest.step),
            rss=self._memory.now(now, [process for slot in slots for process in slot.runner.processes]),
            peak=self._memory.peak,
            setups=[[run.hex(), seconds] for run, seconds in self._setups.items()],
            abandoned=[name for slot in slots for name in slot.runner.abandoned],
            batches=[
                [run.hex(), filled.size.now, filled.calls, filled.documents]
                for slot in slots
                if slot.runner.batches is not None
                for (_, run), filled in list(slot.runner.batches.filled.items())
                if filled.calls
            ],
            last_error=next((slot.settler.last_error for slot in slots if slot.settler.last_error), None),
        )

    async def close(self, body: bytes) -> bytes:
        """Lease no more, settle, give messages back, and return the last totals."""
        if not self._begun:
            self.closed = True
            return pack(self.report().to_wire())
        # Seconds that messages which have begun may still take.
        patience = CloseCall.unpack(body)[0].patience if body else 0.0
        await asyncio.gather(*(slot.stop(patience) for slot in self._slots))
        self._sinks.close()
        self._numbers.give_back()
        self._reporter.close()
        self.closed = True
        return pack(self.report().to_wire())


def _collect_less_often() -> None:
    """Start the garbage collector only after `YOUNG` new containers, unless a user has set a threshold."""
    first, *others = gc.get_threshold()
    if first == DEFAULT_YOUNG:
        gc.set_threshold(YOUNG, *others)


class Message:
    """A function and its arguments. Calling the message calls the function.

    Parameters
    ----------
    func : callable
        What is called.
    *args, **kwargs
        What it is called with.

    Attributes
    ----------
    id : int or None
        The message's id once it was delivered; None before.

    Raises
    ------
    BadOption
        `func` is not callable.
    """

    def __init__(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        if not callable(func):
            raise BadOption(option="func", value=func, problem="is not a function.")
        self.func, self.args, self.kwargs = func, args, kwargs
        self.id: int | None = None

    def __repr__(self) -> str:
        name = getattr(self.func, "__qualname__", type(self.func).__qualname__)
        return f"<Message {name}(...): {'not delivered' if self.id is None else self.id}>"

    def __call__(self) -> Any:
        """Call the function and return its result, which for a coroutine function is an awaitable."""
        return self.func(*self.args, **self.kwargs)


class PreparedConsumer(ConsumerActor):
    """Makes a user's object in the thread of each slot before anything runs there; calls run as they are."""

    # `options` are those of `ConsumerActor` and `sealed`, the user's class.
    def __init__(self, name: str, queue: str, shards: int, options: dict[str, Any]) -> None:
        super().__init__(name, queue, shards, options)
        self._sealed: bytes = options["sealed"]
        self._here = threading.local()

    def _prepared(self, options: SlotOptions) -> SlotOptions:
        return replace(options, prepare=self._consumer)

    def _consumer(self) -> Any:
        """Return this thread's object, which the first call makes."""
        # One object for each slot, so that no two threads ever use the same one. The class stays sealed until then: one
        # that cannot be imported or made fails messages, and never the worker.
        consumer = getattr(self._here, "consumer", None)
        if consumer is None:
            consumer = open_value(self._sealed)()
            consumer.name = self.name
            self._here.consumer = consumer
        return consumer


class CustomConsumer(PreparedConsumer):
    """Calls `process_item` of a user's object with each value that was put, or with a `Message` for a call."""

    def _prepared(self, options: SlotOptions) -> SlotOptions:
        options = super()._prepared(options)
        return replace(options, values=lambda: Work(self._consumer().process_item), calls=self._as_message)

    def _as_message(self, work: Work, chunk: Chunk) -> Work:
        """Return a function that passes the chunk's calls to `process_item`, each as one `Message`."""
        process_item, func = self._consumer().process_item, work.call

        def message(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message:
            delivered = Message(func, *args, **kwargs)
            here = message_here()
            assert here is not None, "only a message's run calls this"
            delivered.id = chunk.id_at(here[1])
            return delivered

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await process_item(message(args, kwargs))

        def called(*args: Any, **kwargs: Any) -> Any:
            return process_item(message(args, kwargs))

        return Work(awaited if inspect.iscoroutinefunction(process_item) else called, work.code)
