"""Run a function over a chunk, in a thread that owns nothing else.

Here users' bytes are opened and users' code runs. Whatever happens here becomes an outcome of one message: an
argument that cannot be opened, an exception, `sys.exit`, a result that cannot be pickled.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import CoroutineType, GeneratorType, MethodType
from typing import Any, cast

from dqlab.cluster.consumer.running.chunk import UNDECIDED, Chunk, Done
from dqlab.cluster.consumer.running.here import Queued, active, end_if_forked, running
from dqlab.cluster.transport.isolation import is_coroutine
from dqlab.cluster.transport.sealed import SealError, make_sealer, open_value, seal_value
from dqlab.cluster.transport.wire import pack
from dqlab.datasets.yielded import Yielded
from dqlab.documents import Document, Labelled
from dqlab.documents.document import sealed_document, sealed_key
from dqlab.documents.servers import ServerBusy, is_refusal, refused_call, what_passes
from dqlab.documents.storage import local_path, read_before
from dqlab.errors import MessageError, ResultRefused, ResultTooLarge
from dqlab.failures.failure import Failure, retryable
from dqlab.frame import Kind, Outcome
from dqlab.plan import Plan
from dqlab.rules.deliveries import ONLY
from dqlab.rules.retry import Later
from dqlab.stats.counts import StopReason


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
    active[chunk] = True
    try:
        run_calls(chunk, work, origin)
    finally:
        active.pop(chunk, None)
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


_LOOK = 64
"""Rows after which their bytes are measured for the first time, then at each doubling: most documents have fewer."""


class _Collecting:
    """Rows so far; too many of them raise `ResultTooLarge` before they fill the memory, as of a loop without end."""

    def __init__(self, most: int) -> None:
        self.rows, self._most = Yielded(), most
        self._measured = self._nbytes = 0

    def add(self, row: Any) -> None:
        rows = self.rows
        rows.append(row)
        if len(rows) >= _LOOK and len(rows) >= 2 * self._measured:
            self._nbytes += len(seal_value(rows[self._measured :]))
            self._measured = len(rows)
            if self._nbytes > self._most:
                raise ResultTooLarge(size=self._nbytes, limit=self._most)


def is_yielded(result: object) -> bool:
    """Return whether a result is, or has, the rows that a function yields."""
    return type(result) is GeneratorType or type(result) is Yielded


def seal_yielded(result: Any, most: int, row: Callable[[Any], Any] | None = None) -> bytes:
    """Return as bytes a result that plain pickle refuses: the rows of a generator, each as `row` makes it."""
    if not is_yielded(result):
        return seal_value(result)
    made = _Collecting(most)
    with closing(result) if type(result) is GeneratorType else nullcontext():
        for each in result:
            made.add(each if row is None else row(each))
    return seal_value(made.rows)


async def collected(rows: AsyncGenerator[Any, Any], most: int) -> Yielded:
    """Return the rows of an asynchronous generator."""
    made = _Collecting(most)
    async with aclosing(rows):
        async for row in rows:
            made.add(row)
    return made.rows


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
