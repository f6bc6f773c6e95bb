"""Run a function over a chunk, in a thread that owns nothing else.

The only place where users' bytes are opened and users' code runs. Whatever happens here becomes
an outcome of one message: an argument that cannot be opened, an exception, `sys.exit`, a result
that cannot be pickled.
"""

from __future__ import annotations

import concurrent.futures
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from types import CoroutineType, MethodType
from typing import TYPE_CHECKING, Any, Protocol

from dqlab.cluster.consumer.running.chunk import UNDECIDED, Chunk, Done
from dqlab.cluster.transport.isolation import is_coroutine
from dqlab.cluster.transport.sealed import SealError, make_sealer, open_value, seal_value
from dqlab.cluster.transport.wire import pack
from dqlab.documents import Document, Labelled, key_text, label_of
from dqlab.documents.document import sealed_key
from dqlab.documents.refusals import is_refusal, last_read
from dqlab.errors import NotACall, NotAwaited, NotCalled, ResultNotPicklable, ResultTooLarge
from dqlab.failures.failure import Failure, retryable
from dqlab.frame import Kind, Outcome
from dqlab.rules.retry import Later

if TYPE_CHECKING:
    import asyncio  # at run time where coroutines are: a process that runs only calls starts in half the time

ACK = Outcome.ACK

__all__ = [
    "Coroutines",
    "Flight",
    "Origin",
    "Queued",
    "Work",
    "cancelled",
    "check_called",
    "end_if_forked",
    "fail_all",
    "fail_taken",
    "failed",
    "run_calls",
    "run_chunk",
]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a failure happened, for its record."""

    consumer: str
    worker: str
    result_max: int


LARGEST_ROW = 512 << 20
"""Bytes of a result that a sink takes."""


@dataclass(frozen=True, slots=True)
class Work:
    """A function that was opened, ready to run.

    Attributes
    ----------
    call : callable
        Takes, depending on `Kind`, the element, or (args, kwargs), or the value.
    code : str
        Short code version, for failures.
    rows : bool
        Its results go into a sink, and may be large.
    """

    call: Callable[..., Any]
    code: str = ""
    rows: bool = False

    @property
    def is_coroutine(self) -> bool:
        """Whether calls return awaitables that an event loop must run."""
        return is_coroutine(self.call)

    def most(self, origin: Origin) -> int:
        """Return the most bytes of a result; those that go into a sink do not pass through the queue."""
        return max(origin.result_max, LARGEST_ROW) if self.rows else origin.result_max


class _Left(Protocol):
    def popleft(self) -> int: ...


class _Ended(Protocol):
    def append(self, done: Done, /) -> None: ...


class _Numbers(Protocol):
    def __setitem__(self, index: int, value: float, /) -> None: ...


class _Texts(Protocol):
    def __setitem__(self, index: int, value: str, /) -> None: ...


class _Payloads(Protocol):
    def __getitem__(self, index: int, /) -> bytes: ...


class Queued(Protocol):
    """What `run_calls` needs of a `Chunk`; a process that runs messages one by one has something like it.

    Attributes
    ----------
    todo, done
        Where messages are taken from, and where their outcomes are put.
    cancelled : collection of int
        Positions of cancelled messages.
    stopped : bool
        No more messages may be taken.
    running : int or None
        The message that is being run.
    document : (int, str) or None
        Position and key of the document that began last.
    began : float
        When the first message was begun, seconds of `time.perf_counter`.
    ended, versions
        By message, when it ended and which version its document has; both are noted before the outcome is put into
        `done`. A message begins when the one before it ends.
    waits : bool
        Taking a message may wait for it; that wait does not count as time of the message.
    read_on, rest : callable
        Called with a document behind a URL before its function, and when no message is left; what comes behind it may
        be read meanwhile.
    """

    running: int | None
    document: tuple[int, str] | None
    stopped: bool
    began: float

    @property
    def waits(self) -> bool: ...  # noqa: D102

    @property
    def kind(self) -> Kind: ...  # noqa: D102

    def read_on(self, document: Document) -> None: ...  # noqa: D102

    def rest(self) -> None: ...  # noqa: D102

    @property
    def todo(self) -> _Left: ...  # noqa: D102

    @property
    def done(self) -> _Ended: ...  # noqa: D102

    @property
    def ended(self) -> _Numbers: ...  # noqa: D102

    @property
    def versions(self) -> _Texts: ...  # noqa: D102

    @property
    def cancelled(self) -> Collection[int | None]: ...  # noqa: D102

    def messages(self) -> _Payloads:
        """Return what holds each message's bytes."""


running: ContextVar[tuple[Queued, int | None] | None] = ContextVar("dqlab_running", default=None)
"""The chunk that runs in this context, and the message's position; None: the chunk's `running`."""


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
    """Return the chunk that runs in this context and the position of its message; None outside of a message.

    Of several coroutines, `chunk.running` names the one that has run longest: only the context knows which one asks.
    """
    here = running.get()
    if here is None:
        return None
    chunk, index = here
    return chunk, chunk.running if index is None else index


_forked = False
"""Whether this process is a copy that a function made of its process by forking."""
_CAME_BACK = (
    b"dqlab: a function forked, and returned or raised in the child too. The child ends here; the message's outcome is "
    b"that of the parent. End children with os._exit().\n"
)


def _note_fork() -> None:
    global _forked
    here = running.get()
    if here is not None:  # the function that runs here forked; workers are forked too, before they run any
        _forked = True
        here[0].stopped = True


os.register_at_fork(after_in_child=_note_fork)


def end_if_forked() -> None:
    """End a copy of the process that a function forked, when the function comes back in it.

    The chunk, its messages and the pipes or sockets for its outcomes belong to the original: a copy that went on would
    run messages twice and mix its outcomes among those of others.
    """
    if _forked:
        os.write(2, _CAME_BACK)
        os._exit(1)


def run_chunk(chunk: Chunk, work: Work, origin: Origin, concurrency: int) -> None:
    """Run every message of the chunk that is not taken away; return when none is left.

    Parameters
    ----------
    concurrency : int
        How many coroutines run at a time, for coroutine functions.
    """
    if work.is_coroutine:
        import asyncio

        asyncio.run(_run_coroutines(chunk, work, origin, concurrency))
        return
    chunk.begin()
    try:
        run_calls(chunk, work, origin)
    finally:
        chunk.end()


def fail_all(chunk: Queued, error: BaseException, origin: Origin) -> None:
    """Fail every message left in the chunk: its function cannot be opened here."""
    messages, is_element = chunk.messages(), chunk.kind is Kind.ELEMENT
    while (index := _take(chunk)) is not None:
        key = sealed_key(messages[index]) if is_element else None
        chunk.done.append(failed(index, error, origin, "", key, 0.0))


def fail_taken(chunk: Chunk, error: BaseException, origin: Origin) -> None:
    """Fail the messages that were begun and have no outcome: what ran them ended in between."""
    messages, is_element = chunk.messages(), chunk.kind is Kind.ELEMENT
    for index in chunk.taken():
        key = sealed_key(messages[index]) if is_element else None
        chunk.done.append(failed(index, error, origin, "", key, 0.0))


def _take(chunk: Queued) -> int | None:
    try:
        return None if chunk.stopped else chunk.todo.popleft()
    except IndexError:
        return None


def run_calls(chunk: Queued, work: Work, origin: Origin) -> None:  # noqa: C901, PLR0915 - a call more costs each message
    """Run a function over what is left of a chunk, one message after another."""
    # A million messages go through this loop: everything it needs is a local name.
    take, finish, call, messages = chunk.todo.popleft, chunk.done.append, work.call, chunk.messages()
    cancelled, clock, load, seal, limit = (
        chunk.cancelled,
        time.perf_counter,
        pickle.loads,
        make_sealer(),
        work.most(origin),
    )
    spread, ended, waits = chunk.kind is Kind.CALL, chunk.ended, chunk.waits
    running.set((chunk, None))
    now = chunk.began = clock()
    while not chunk.stopped:
        try:
            index = take()
        except IndexError:
            break
        if cancelled and index in cancelled:
            ended[index] = now
            finish((index, Outcome.RETURN, b"", None))
            continue
        key = None
        if waits:
            now = clock()
        chunk.running = index
        try:
            value = load(messages[index])
            if spread:
                result = call(*value[0], **value[1])
            else:
                kind = type(value)
                if kind is Document:
                    key = key_text(value.key)
                    chunk.document = index, value.key
                    chunk.versions[index] = value.version
                    if "://" in value.where:
                        chunk.read_on(value)
                elif kind is Labelled:
                    key, value = key_text(value.label), value.value
                    if type(value) is Document:
                        chunk.versions[index] = value.version
                result = call(value)
                if key is not None and type(result) is MethodType:
                    check_called(result, value)
            payload = seal(result)
            if len(payload) > limit:
                raise ResultTooLarge(size=len(payload), limit=limit)
        except SealError as error:
            outcome = failed(index, _refusal(result, error.reason), origin, work.code, key, clock() - now)
            now = ended[index] = clock()
            finish(outcome)
        except BaseException as error:  # noqa: BLE001 - sys.exit in a function fails its message, not the worker
            outcome = failed(index, error, origin, work.code, key, clock() - now)
            now = ended[index] = clock()
            finish(outcome)
        else:
            # One reading of the clock a message, and one number kept: where this ends, the next one begins.
            now = ended[index] = clock()
            finish((index, ACK, payload, key))
    end_if_forked()
    chunk.rest()
    chunk.running = None
    running.set(None)


async def _run_coroutines(chunk: Chunk, work: Work, origin: Origin, concurrency: int) -> None:
    import asyncio

    flight = Flight(chunk, work)
    Coroutines(concurrency, origin).add(flight)
    await asyncio.wrap_future(flight.ended)


@dataclass(eq=False)
class Flight:
    """A chunk on its way through `Coroutines`.

    Attributes
    ----------
    begun : Future
        Done when none of its messages is left to begin.
    ended : Future
        Done when none of them runs any more either.
    """

    chunk: Chunk
    work: Work
    thread: object = None
    """Where it runs."""
    begun: concurrent.futures.Future[None] = field(default_factory=concurrent.futures.Future)
    ended: concurrent.futures.Future[None] = field(default_factory=concurrent.futures.Future)
    messages: list[bytes] = field(default_factory=list)
    hands: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    """What runs each of its messages that has begun and not ended, by position."""

    @property
    def spread(self) -> bool:
        """Whether a message holds the arguments of a call."""
        return self.chunk.kind is Kind.CALL


class Coroutines:
    """Calls of coroutine functions on one event loop, at most `concurrency` at a time.

    Whenever one ends, the next message begins, be it of the same chunk or of the next: a slow one
    holds back no other. Everything here runs on that loop.
    """

    def __init__(self, concurrency: int, origin: Origin) -> None:
        self._free, self._concurrency, self._origin = concurrency, concurrency, origin
        self._waiting: deque[Flight] = deque()
        self._hands: set[asyncio.Task[None]] = set()
        self.abandoned: set[asyncio.Task[None]] = set()
        """Tasks that were cancelled, and run anyway."""
        self._counted = 0.0
        """Up to when the loop's time was charged to the chunks of messages that ended."""

    def add(self, flight: Flight) -> None:
        """Begin a chunk's messages as soon as there is room for them, behind those of earlier chunks."""
        flight.messages = flight.chunk.messages()
        self._waiting.append(flight)
        if self._free == self._concurrency:
            self._counted = time.perf_counter()
        for _ in range(min(self._free, flight.chunk.count)):
            self._begin()

    def abandon(self, flight: Flight) -> None:
        """Cancel what runs of a chunk's cancelled messages, and begin others in their place without waiting for them.

        Their outcomes are dropped: a coroutine may ignore its `CancelledError`.
        """
        for index in [index for index in flight.hands if index in flight.chunk.cancelled]:
            hand = flight.hands.pop(index)
            hand.cancel()
            self.abandoned.add(hand)
            hand.add_done_callback(self.abandoned.discard)
            self._free += 1
            self._begin()
        flight.chunk.running = next(iter(flight.hands), None)
        self._end(flight)

    def _begin(self) -> None:
        import asyncio

        self._free -= 1
        task = asyncio.get_running_loop().create_task(self._hand(), name="dqlab-coroutines")
        self._hands.add(task)
        task.add_done_callback(self._hands.discard)

    def clear(self) -> None:
        """Begin nothing more."""
        self._waiting.clear()

    async def _hand(self) -> None:
        """Run one message after another until none waits."""
        import asyncio

        hand = asyncio.current_task()
        assert hand is not None, "only tasks run coroutines"
        while (taken := self._next()) is not None:
            flight, index = taken
            chunk = flight.chunk
            flight.hands[index] = hand
            chunk.running = next(iter(flight.hands))  # the one that has run longest
            if index in chunk.cancelled:
                done: Done = index, Outcome.RETURN, b"", None
            else:
                done = await self._run(flight, index)
                end_if_forked()
            if flight.hands.pop(index, None) is not hand:
                return  # abandoned
            chunk.running = next(iter(flight.hands), None)
            chunk.done.append(done)
            now = time.perf_counter()
            chunk.spend(now - self._counted)
            self._counted = now
            self._end(flight)
        self._free += 1

    def _next(self) -> tuple[Flight, int] | None:
        while self._waiting:
            flight = self._waiting[0]
            index = _take(flight.chunk)
            if not flight.chunk.todo or index is None:
                self._waiting.popleft()
                _resolve(flight.begun)
                if index is None:
                    self._end(flight)
            if index is not None:
                return flight, index
        return None

    def _end(self, flight: Flight) -> None:
        if flight.begun.done() and not flight.hands:
            _resolve(flight.ended)

    async def _run(self, flight: Flight, index: int) -> Done:
        key, started, origin, chunk = None, time.perf_counter(), self._origin, flight.chunk
        running.set((chunk, index))
        try:
            value = open_value(flight.messages[index])
            if type(value) is Document:
                key = key_text(value.key)
                chunk.versions[index] = value.version
            elif type(value) is Labelled:
                key, value = key_text(value.label), value.value
                if type(value) is Document:
                    chunk.versions[index] = value.version
            call = flight.work.call
            result = await (call(*value[0], **value[1]) if flight.spread else call(value))
            if key is not None and type(result) is MethodType:
                check_called(result, value)
            payload = _seal(result, flight.work.most(origin))
            now = time.perf_counter()
            chunk.took[index], chunk.ended[index] = now - started, now
            return index, Outcome.ACK, payload, key
        except BaseException as error:  # noqa: BLE001 - sys.exit in a coroutine fails its message, not the loop
            return failed(index, error, origin, flight.work.code, key, time.perf_counter() - started)


def _resolve(future: concurrent.futures.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _seal(result: Any, limit: int) -> bytes:
    try:
        payload = seal_value(result)
    except SealError as error:
        raise _refusal(result, error.reason) from error
    if len(payload) > limit:
        raise ResultTooLarge(size=len(payload), limit=limit)
    return payload


def check_called(result: MethodType, value: Any) -> None:
    """Refuse `doc.text` where `doc.text()` was meant: it can be pickled, so it would be a result."""
    if result.__self__ is value:
        raise NotCalled(method=result.__name__)


def _refusal(result: Any, reason: str) -> ResultNotPicklable:
    """Return the error of a result that cannot be pickled; close coroutines, about which Python would warn."""
    kind = type(result)
    parts = [result] if kind is CoroutineType else []
    if kind in (list, tuple, set):
        parts = [part for part in result if type(part) is CoroutineType]
    elif kind is dict:
        parts = [part for part in result.values() if type(part) is CoroutineType]
    for part in parts:
        part.close()
    if not parts:
        return ResultNotPicklable(type=kind.__name__, reason=reason)
    call, alone = parts[0].__name__, kind is CoroutineType
    way = f"{call}(...)" if alone else "asyncio.gather(*coroutines)"
    return NotAwaited(
        type=kind.__name__, reason=reason, call=call, place="" if alone else f" in a {kind.__name__}", way=way
    )


def failed(index: int, error: BaseException, origin: Origin, code: str, key: str | None, held: float) -> Done:
    """Return the outcome of a message that ended in an exception, after so many seconds.

    Where a storage may have refused the document, the outcome is undecided. Its payload holds the failure and the files
    that were read last, from which `consumer.refusals` decides what becomes of the message.
    """
    describe = partial(
        Failure.from_exception,
        key=None if key is None else str(label_of(key)),
        code=code,
        consumer=origin.consumer,
        worker=origin.worker,
        when=time.time(),
        seconds=held,
    )
    try:
        if isinstance(error, Later):
            return index, Outcome.NACK, repr(error.fields["seconds"]).encode(), key
        failure = describe(error)
        outcome = Outcome.FAIL if retryable(error) else Outcome.REJECT
        if key is not None and is_refusal(error) and running.get() is not None:
            return index, UNDECIDED, pack({"outcome": outcome, "read": last_read()}, failure.to_bytes()), key
    except BaseException as defect:  # noqa: BLE001 - code of the exception ran: its attributes, its class, its parts
        # Raised from here it would end the chunk, and the message would stay leased without an outcome.
        why = type(defect).__name__
        told = RuntimeError(f"the exception cannot be described: reading it raised {why}")
        failure, outcome = replace(describe(told), error=_CLASS_NAME(type(error))), Outcome.FAIL
    return index, outcome, failure.to_bytes(), key


_CLASS_NAME: Callable[[type], str] = type.__dict__["__name__"].__get__
"""The name of a class, past whatever its metaclass makes of that attribute."""


def refuse_value(value: object) -> None:
    """Stand in for a function where plain values reach a consumer that only runs calls."""
    raise NotACall(type=type(value).__name__)
