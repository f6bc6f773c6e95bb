"""Run a function over a chunk, in a thread that owns nothing else.

The only place where users' bytes are opened and users' code runs. Whatever happens here becomes
an outcome of one message: an argument that cannot be opened, an exception, `sys.exit`, a result
that cannot be pickled.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from dqlab.cluster.chunk import Chunk, Done
from dqlab.cluster.sealed import SealError, make_sealer, open_value, seal_value
from dqlab.documents import Document
from dqlab.errors import NotACall, ResultNotPicklable, ResultTooLarge
from dqlab.frame import Kind, Outcome
from dqlab.queue.failures import Failure, retryable

ACK = Outcome.ACK

__all__ = ["Origin", "Work", "fail_all", "run_chunk"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a failure happened, for its record."""

    consumer: str
    worker: str
    result_max: int


@dataclass(frozen=True, slots=True)
class Work:
    """A function that was opened, ready to run.

    Attributes
    ----------
    call : callable
        Takes what `Kind` says: the element, or (args, kwargs), or the value.
    code : str
        Short code version, for failures.
    """

    call: Callable[..., Any]
    code: str = ""

    @property
    def is_coroutine(self) -> bool:
        """Whether calls return awaitables that an event loop must run."""
        call = self.call
        return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)


def run_chunk(chunk: Chunk, work: Work, origin: Origin, concurrency: int) -> None:
    """Run every message of the chunk that nobody takes away; returns when none is left.

    Parameters
    ----------
    concurrency : int
        How many coroutines run at a time, for coroutine functions.
    """
    chunk.begin()
    try:
        if work.is_coroutine:
            asyncio.run(_run_coroutines(chunk, work, origin, concurrency))
        else:
            _run_calls(chunk, work, origin)
    finally:
        chunk.end()


def fail_all(chunk: Chunk, error: BaseException, origin: Origin) -> None:
    """Fail every message left in the chunk: its function cannot be opened here."""
    while (index := _take(chunk)) is not None:
        chunk.done.append(_failed(index, error, origin, "", None, 0.0))


def _take(chunk: Chunk) -> int | None:
    try:
        return None if chunk.stopped else chunk.todo.popleft()
    except IndexError:
        return None


def _run_calls(chunk: Chunk, work: Work, origin: Origin) -> None:
    # The loop a million messages go through: everything it needs is a local name.
    take, finish, call, messages = chunk.todo.popleft, chunk.done.append, work.call, chunk.messages()
    cancelled, clock, load, seal, limit = (
        chunk.cancelled,
        time.perf_counter,
        pickle.loads,
        make_sealer(),
        origin.result_max,
    )
    spread = chunk.frames[0].kind is Kind.CALL
    while not chunk.stopped:
        try:
            index = take()
        except IndexError:
            break
        if index in cancelled:
            finish((index, Outcome.RETURN, b"", None))
            continue
        key = None
        started = clock()
        chunk.running = index
        try:
            value = load(messages[index])
            if spread:
                result = call(*value[0], **value[1])
            else:
                if type(value) is Document:
                    key = value.key
                result = call(value)
            payload = seal(result)
            if len(payload) > limit:
                raise ResultTooLarge(size=len(payload), limit=limit)
        except SealError as error:
            refused = ResultNotPicklable(type=type(result).__name__, reason=error.reason)
            finish(_failed(index, refused, origin, work.code, key, clock() - started))
        except BaseException as error:  # noqa: BLE001 - sys.exit in a function fails its message, not the worker
            finish(_failed(index, error, origin, work.code, key, clock() - started))
        else:
            finish((index, ACK, payload, key))
    chunk.running = None


async def _run_coroutines(chunk: Chunk, work: Work, origin: Origin, concurrency: int) -> None:
    messages = chunk.messages()
    spread = chunk.frames[0].kind is Kind.CALL

    async def one(index: int) -> Done:
        key, started = None, time.perf_counter()
        try:
            value = open_value(messages[index])
            key = value.key if type(value) is Document else None
            awaited: Coroutine[Any, Any, Any] = work.call(*value[0], **value[1]) if spread else work.call(value)
            return index, Outcome.ACK, _seal(await awaited, origin.result_max), key
        except BaseException as error:  # noqa: BLE001 - as above
            return _failed(index, error, origin, work.code, key, time.perf_counter() - started)

    async def slot() -> None:
        while (index := _take(chunk)) is not None:
            chunk.running = index
            chunk.done.append((index, Outcome.RETURN, b"", None) if index in chunk.cancelled else await one(index))

    await asyncio.gather(*(slot() for _ in range(min(concurrency, chunk.count))))
    chunk.running = None


def _seal(result: Any, limit: int) -> bytes:
    try:
        payload = seal_value(result)
    except SealError as error:
        raise ResultNotPicklable(type=type(result).__name__, reason=error.reason) from error
    if len(payload) > limit:
        raise ResultTooLarge(size=len(payload), limit=limit)
    return payload


def _failed(index: int, error: BaseException, origin: Origin, code: str, key: str | None, held: float) -> Done:
    failure = Failure.from_exception(
        error, key=key, code=code, consumer=origin.consumer, worker=origin.worker, when=time.time(), seconds=held
    )
    outcome = Outcome.FAIL if retryable(error) else Outcome.REJECT
    return index, outcome, failure.to_bytes(), key


def refuse_value(value: object) -> None:
    """Stand in for a function where plain values reach a consumer that only runs calls."""
    raise NotACall(type=type(value).__name__)
