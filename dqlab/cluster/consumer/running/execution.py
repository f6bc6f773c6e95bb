"""Run a function over a chunk, in a thread that owns nothing else.

Here users' bytes are opened and users' code runs. Whatever happens here becomes an outcome of one message: an
argument that cannot be opened, an exception, `sys.exit`, a result that cannot be pickled.
"""

from __future__ import annotations

import concurrent.futures
import math
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from types import AsyncGeneratorType, CoroutineType, MethodType
from typing import TYPE_CHECKING, Any, Protocol, cast

from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.outcomes import UNDECIDED, Done
from dqlab.cluster.consumer.running.yielding import collected, is_yielded, seal_yielded
from dqlab.cluster.transport.isolation import is_coroutine
from dqlab.cluster.transport.sealed import SealError, make_sealer, open_value
from dqlab.cluster.transport.wire import pack
from dqlab.documents import Document, Labelled
from dqlab.documents.document import sealed_document, sealed_key
from dqlab.documents.servers import ServerBusy, is_refusal, refused_call, what_passes
from dqlab.documents.storage import local_path, read_before
from dqlab.errors import MessageError, ResultRefused, ResultTooLarge
from dqlab.failures.failure import Failure, retryable
from dqlab.frame import Kind, Outcome
from dqlab.plan import Plan
from dqlab.printed import Ring
from dqlab.rules.deliveries import ONLY
from dqlab.rules.retry import Later
from dqlab.stats.counts import StopReason

if TYPE_CHECKING:
    import asyncio  # at run time only where coroutines run: without it, a slot's process starts in half the time

ACK = Outcome.ACK


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a failure happened, for its record."""

    consumer: str
    worker: str
    result_max: int


LARGEST_ROW = 512 << 20
"""Most bytes of a result that a sink accepts."""


@dataclass(frozen=True, slots=True)
class Work:
    """A function that is opened and ready to run."""

    call: Callable[..., Any]
    """Takes what the message's `Kind` names: the element, the arguments of the call, or the value."""
    code: str = ""
    """Short code version, for failures."""
    rows: bool = False
    """Results go into a sink and may be large."""
    plan: Plan | None = None
    """How to call it, unless as a plain function."""

    @property
    def is_coroutine(self) -> bool:
        """Whether calls return awaitables that an event loop must run."""
        return is_coroutine(self.call)

    def sealer(self, most: int) -> Callable[[object], bytes]:
        """Return what seals results of up to `most` bytes, as they are or as rows of their class."""
        if self.plan is None or self.plan.returns is None:
            return make_sealer(partial(seal_yielded, most=most))
        row, seal = self.plan.returns.row, make_sealer()
        return lambda result: seal_yielded(result, most, row) if is_yielded(result) else seal(row(result))

    def most(self, origin: Origin) -> int:
        """Return the most bytes that a result may have."""
        # Results for a sink do not pass through the queue, so its limit does not apply to them.
        return max(origin.result_max, LARGEST_ROW) if self.rows else origin.result_max


class Queued(Protocol):
    """The part of a `Chunk` that `run_calls` uses, which a process implements for messages that come one by one."""

    running: int | None
    """The message that runs."""
    document: tuple[int, str] | None
    """Position and key of the document that began last."""
    stopped: bool
    """No more messages may be taken."""
    began: float
    """When the first message began, seconds of `time.perf_counter`."""

    @property
    def waits(self) -> bool:
        """Whether taking a message may wait for it, which is not part of the message's time."""

    @property
    def kind(self) -> Kind:
        """What the payloads are."""

    def read_on(self, document: Document) -> None:
        """Note that the function of a document behind a URL begins: those that follow may be read meanwhile."""

    def rest(self) -> None:
        """Note that no message is left."""

    def ring_at(self, index: int) -> Ring | None:
        """Return where to write what a message prints, or None where nothing is kept."""

    def note_step(self, index: int, number: int, total: int) -> None:
        """Note how far a message's function is in its document, 0 for nowhere; a `total` of 0 is not known."""

    @property
    def once(self) -> Mapping[int, Mapping[bytes, bytes]]:
        """The answers that messages keep, by position and call."""

    def place_of(self, index: int, given: Sequence[Any]) -> int | None:
        """Return the position of the message that a call with these arguments is for, or None if nothing says it."""

    def pay(self, index: int, amounts: Mapping[str, float]) -> None:
        """Note what a message has spent."""

    def keep(self, index: int, answers: Mapping[bytes, bytes]) -> None:
        """Keep answers for a message until it has a result."""

    @property
    def todo(self) -> Any:
        """The messages to run, with `popleft`."""

    @property
    def done(self) -> Any:
        """Takes outcomes: others than results whole, by `append`, results as their columns, the payload last."""

    @property
    def ended(self) -> Any:
        """When each message ended; written before its outcome is in `done`, which another thread reads."""

    @property
    def versions(self) -> Any:
        """The versions of documents, written before their outcomes too."""

    @property
    def cancelled(self) -> Collection[int | None]:
        """The messages that are not to run, or whose results are dropped."""

    def messages(self) -> Any:
        """Return the bytes of each message."""

    def opening(self) -> tuple[Callable[[Any], Any], Any]:
        """Return a function that opens a message, and what it takes for each."""


running: ContextVar[tuple[Queued, int | None] | None] = ContextVar("dqlab_running", default=None)
"""The chunk that runs in this context, and the message's position; None stands for the chunk's `running`."""


def cancelled() -> bool:
    """Return whether the message that runs here was cancelled.

    Slow functions should call it now and then; their results after a cancel are dropped. Messages that run in a process
    need not call it: their process is killed. Outside a message it returns False.

    Examples
    --------
    >>> def index(document):
    ...     for page in pages(document):
    ...         if dq.cancelled():
    ...             return None
    ...         add(page)
    """
    here = message_here()
    return here is not None and here[1] in here[0].cancelled


def message_here() -> tuple[Queued, int | None] | None:
    """Return the chunk that runs in this context and the position of its message, or None outside a message."""
    # Where coroutines run, `chunk.running` is the message that has run longest: only the context knows the caller's.
    here = running.get()
    if here is None:
        return None
    chunk, index = here
    return chunk, chunk.running if index is None else index


_active: dict[Queued, bool] = {}
"""The chunks that run in this process, and whether each runs one message after another."""


def alone() -> tuple[Queued, int | None] | None:
    """Return the one chunk that runs in this process and its message, or None where several messages may run."""
    # A copy, in one step: other threads change it.
    running_here = list(_active.items())
    if len(running_here) != 1 or not running_here[0][1]:
        return None
    chunk = running_here[0][0]
    return chunk, chunk.running


_forked = False
"""Whether this process is a copy that a function made by forking."""
_CAME_BACK = (
    b"dqlab: a function forked, and returned or raised in the child too. The child ends here; the message's outcome is "
    b"that of the parent. End children with os._exit().\n"
)


def _note_fork() -> None:
    global _forked
    here = running.get()
    if here is not None:  # a function has forked; a nursery forks workers too, but outside a message
        _forked = True
        here[0].stopped = True  # so that `run_calls` leaves its loop and reaches `end_if_forked`


os.register_at_fork(after_in_child=_note_fork)


def end_if_forked() -> None:
    """End this process if a function has made it by forking and has returned in it too."""
    # The chunk and the pipes or sockets for its outcomes belong to the original process. A copy that continued would
    # run messages twice and write its outcomes between the others.
    if _forked:
        os.write(2, _CAME_BACK)
        os._exit(1)


def opened(message: bytes) -> tuple[str | int | None, Any, str]:
    """Return the key of a message's document, None if it has none, its value, and its document's version."""
    key, value = None, open_value(message)
    if type(value) is Labelled:
        key, value = value.label, value.value
    if type(value) is Document:
        return value.key if key is None else key, value, value.version
    return key, value, ""


def run_chunk(chunk: Chunk, work: Work, origin: Origin) -> None:
    """Run the chunk's messages one after another until none is left."""
    chunk.begin()
    _active[chunk] = True
    try:
        run_calls(chunk, work, origin)
    finally:
        _active.pop(chunk, None)
        chunk.end()


def fail_all(chunk: Queued, error: BaseException, origin: Origin) -> None:
    """Fail every message left in the chunk, for example when its function cannot be opened."""
    while (index := take(chunk)) is not None:
        _fail(chunk, index, error, origin)


def fail_taken(chunk: Chunk, error: BaseException, origin: Origin) -> None:
    """Fail the messages that have begun and will get no outcome."""
    for index in chunk.taken():
        _fail(chunk, index, error, origin)


def _fail(chunk: Queued, index: int, error: BaseException, origin: Origin) -> None:
    key = sealed_key(chunk.messages()[index]) if chunk.kind is Kind.ELEMENT else None
    chunk.done.append(failed(index, error, origin, "", key, 0.0))


HALT = "halt"
"""Where the payload of an undecided outcome says why its run has to pause: a `StopReason`, and the words."""


def take(chunk: Queued) -> int | None:
    """Take the next message of a chunk, or return None."""
    try:
        return None if chunk.stopped else chunk.todo.popleft()
    except IndexError:
        return None


def run_calls(chunk: Queued, work: Work, origin: Origin) -> None:  # noqa: C901, PLR0915 - a call more costs each message
    """Run a function over the messages left in a chunk, one after another."""
    # A million messages pass through this loop: every name in it is local, and one more call would cost each of them.
    done, take, call, (load, messages) = chunk.done, chunk.todo.popleft, work.call, chunk.opening()
    note_position, note_key, finish = done.positions.append, done.keys.append, done.payloads.append
    cancelled, ended, waits, spread = chunk.cancelled, chunk.ended, chunk.waits, chunk.kind is Kind.CALL
    clock, limit = time.perf_counter, work.most(origin)
    seal = work.sealer(limit)
    running.set((chunk, None))
    now = chunk.began = clock()
    while not chunk.stopped:
        try:
            chunk.running = index = take()
        except IndexError:
            break
        if cancelled and index in cancelled:
            ended[index] = now
            done.append((index, Outcome.RETURN, b"", None))
            continue
        key = None
        if waits:
            now = clock()
        try:
            value = load(messages[index])
            if spread:
                args, named = value
                result = call(*args, **named)
            else:
                kind = type(value)
                if kind is Document:
                    key = value.key
                    chunk.document = index, value.key
                    chunk.versions[index] = value.version
                    if "://" in value.where:
                        chunk.read_on(value)
                elif kind is Labelled:
                    key, value = value.label, value.value
                    if type(value) is Document:
                        chunk.versions[index] = value.version
                result = call(value)
                if key is not None and type(result) is MethodType:
                    check_called(result, value)
            payload = seal(result)
            if len(payload) > limit:
                raise ResultTooLarge(size=len(payload), limit=limit)
        except BaseException as error:  # noqa: BLE001 - sys.exit in a function fails its message, not the worker
            raised = _refusal(result, error.reason) if type(error) is SealError else error
            outcome = failed(index, raised, origin, work.code, key, clock() - now)
            now = ended[index] = clock()
            done.append(outcome)
        else:
            # Before `finish`: the event loop reads `ended` as soon as the outcome is there. The clock is read once for
            # each message: the next one begins where this one ends.
            now = ended[index] = clock()
            note_position(index)
            note_key(key)
            finish(payload)
    end_if_forked()
    chunk.rest()
    chunk.running = None
    running.set(None)


@dataclass(eq=False)
class Flight:
    """A chunk on its way through `Coroutines`."""

    chunk: Chunk
    work: Work
    thread: object = None
    """The `CoroutineThread` that runs it."""
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
        _active[flight.chunk] = False
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
        self._end(flight)

    def _begin(self) -> None:
        import asyncio

        self._free -= 1
        task = asyncio.get_running_loop().create_task(self._run_messages(), name="dqlab-coroutines")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def clear(self) -> None:
        """Begin no more messages."""
        for flight in self._waiting:
            _active.pop(flight.chunk, None)
        self._waiting.clear()

    async def _run_messages(self) -> None:
        """Run one message after another until none waits."""
        import asyncio

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
            self._end(flight)
        self._free += 1

    def _next(self) -> tuple[Flight, int] | None:
        while self._waiting:
            flight = self._waiting[0]
            index = take(flight.chunk)
            if not flight.chunk.todo or index is None:
                self._waiting.popleft()
                resolve(flight.begun)
                if index is None:
                    self._end(flight)
            if index is not None:
                return flight, index
        return None

    def _end(self, flight: Flight) -> None:
        if flight.begun.done() and not flight.tasks:
            _active.pop(flight.chunk, None)
            resolve(flight.ended)

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


def resolve(future: concurrent.futures.Future[None]) -> None:
    """End the wait for a future."""
    if not future.done():
        future.set_result(None)


def seal_result(result: Any, seal: Callable[[object], bytes], limit: int) -> bytes:
    """Return a result as bytes, or raise why it cannot be kept."""
    try:
        payload = seal(result)
    except SealError as error:
        raise _refusal(result, error.reason) from error
    if len(payload) > limit:
        raise ResultTooLarge(size=len(payload), limit=limit)
    return payload


def check_called(result: MethodType, value: Any) -> None:
    """Refuse a method of the element as a result, as when `doc.text` is returned instead of `doc.text()`."""
    # A bound method can be pickled, so nothing else would notice.
    if result.__self__ is value:
        method = result.__name__
        raise ResultRefused(
            reason=f"the function returned the method {method} of its document without calling it, so there is no "
            f"result. Write {method}(), with the parentheses."
        )


def _refusal(result: Any, reason: str) -> ResultRefused:
    """Return the error of a result that cannot be pickled, and close the coroutines in it."""
    # Python would warn about coroutines that were never awaited.
    kind = type(result)
    inside = result.values() if kind is dict else result if kind in (list, tuple, set) else [result]
    parts = [part for part in inside if type(part) is CoroutineType]
    for part in parts:
        part.close()
    if not parts:
        return ResultRefused(
            reason=f"the result, of type {kind.__name__}, cannot be pickled: {reason}. It was not kept. Return plain "
            "data instead."
        )
    call = parts[0].__name__
    return ResultRefused(
        reason=f"the function called {call}(), a coroutine function, and returned its coroutine without awaiting it, "
        f"so there is no result. Define the function with `async def`, and write `return await {call}(...)` in it, or "
        "`return await asyncio.gather(*coroutines)`."
    )


def failed(index: int, error: BaseException, origin: Origin, code: str, key: str | int | None, held: float) -> Done:
    """Return the outcome of a message that ended with an exception after `held` seconds."""
    describe = partial(
        Failure.from_exception,
        key=None if key is None else str(key),
        code=code,
        consumer=origin.consumer,
        worker=origin.worker,
        when=time.time(),
        seconds=held,
        # Not `isinstance`: an exception of a user may raise when it is asked for its `__class__`.
        after=cast("ServerBusy", error).after if issubclass(type(error), ServerBusy) else 0.0,
    )
    try:
        if isinstance(error, Later):
            return index, Outcome.NACK, repr(error.fields["seconds"]).encode() + ONLY * error.only_me, key
        failure = describe(error, passing=what_passes(error))
        outcome = Outcome.FAIL if retryable(error) else Outcome.REJECT
        # A storage may have refused the document: `consumer.refusals` decides the outcome. It tries the file that was
        # read last, which only the process that ran the function knows.
        if key is not None and is_refusal(error) and (here := running.get()) is not None:
            refused = sealed_document(here[0].messages()[index])
            if refused is not None and local_path(refused.where) is None:
                return index, UNDECIDED, pack({"before": read_before(refused.where)}, failure.to_bytes()), key
        answer = refused_call(error)
        if answer is not None and answer.after == math.inf:
            why = f"the service that it calls refuses it: {answer.said}. Mend that"
            return index, UNDECIDED, pack({HALT: [StopReason.CALLS_REFUSED, why]}, failure.to_bytes()), key
        if answer is not None:
            return index, Outcome.REFUSED, f"{answer.after!r} {answer.said}".encode(), key
    except BaseException as defect:  # noqa: BLE001 - describing an exception runs its code, which may raise anything
        # Raised from here, it would end the chunk, and the message would stay leased without an outcome.
        why = type(defect).__name__
        told = RuntimeError(f"the exception cannot be described: reading it raised {why}")
        failure, outcome = replace(describe(told), error=_CLASS_NAME(type(error))), Outcome.FAIL
    return index, outcome, failure.to_bytes(), key


_CLASS_NAME: Callable[[type], str] = type.__dict__["__name__"].__get__
"""Reads the name of a class, even where its metaclass overrides that attribute."""


def refuse_value(value: object) -> None:
    """Raise MessageError for a plain value that reaches a consumer without a function for it."""
    raise MessageError(
        reason=f"a value of type {type(value).__name__} reached a consumer without its own process_item. It is kept "
        "as a dead letter. Subclass ConsumerBaseClass and define process_item, or use pool.submit(function, value)."
    )
