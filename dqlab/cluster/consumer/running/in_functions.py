"""What the functions of users call while they run: how far they are, what they cost, and what they keep."""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from hashlib import blake2b
from operator import length_hint
from types import CodeType, FunctionType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from dqlab.cluster.consumer.running.here import Queued, message_here, message_near
from dqlab.cluster.transport.sealed import SealError, open_value, seal_value
from dqlab.config import nbytes
from dqlab.documents.formats import Page
from dqlab.documents.servers import asked_wait
from dqlab.errors import BadOption, Reject
from dqlab.rules.retry import Later

P = ParamSpec("P")
T = TypeVar("T")
MOST = 256 << 10
"""Most bytes of the answers of one document that are kept, unless `max_bytes` says another."""
_PLAIN = (str, int, float, complex, bool, bytes, type(None))


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
    return here is not None and here[0].is_cancelled(here[1])


def spend(**amounts: float) -> None:
    """Say what the call for this document has cost, by unit: of money, of tokens, or of anything else.

    Amounts of one document add up. A run with ``budget=`` counts those of its unit, also of documents that fail then;
    one with ``limit=`` counts those of the limit's units. In a batch, an amount is that of all documents of the call,
    in equal parts. Outside a message of a run it does nothing.

    Parameters
    ----------
    **amounts : float
        By unit, each 0 or more.

    Raises
    ------
    Reject
        An amount is not a number, or is below 0. The document fails, and is not called again for more.

    Examples
    --------
    >>> async def ask(document):
    ...     reply = await call_the_model(document["text"])
    ...     dq.spend(tokens=reply.usage.total_tokens, eur=reply.cost)
    ...     return reply.text
    """
    for unit, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < math.inf:
            raise Reject(f"dq.spend({unit}={amount!r}): not a number of 0 or more, and not counted")
    here = message_here()
    if here is not None:
        here[0].pay(here[1], amounts)


def track(iterable: Iterable[T], total: int | None = None) -> Iterator[T]:
    """Yield the items of an iterable, and show in views of the run how far its function is in its document.

    Views name the documents that run for long, as do `unacked` and `attention`: with this they also say "page 12 of
    300". Outside a message of a run it only yields the items.

    Parameters
    ----------
    iterable : iterable
        Such as the pages of a document.
    total : int, optional
        How many items there are. Default: its length, where it has one; for pages of a PDF, the pages of the file.

    Yields
    ------
    object
        The items.

    Raises
    ------
    BadOption
        `total` is not a number, or below 0.

    Examples
    --------
    >>> def read(document):
    ...     return [page.text() for page in dq.track(document.pages())]
    """
    if total is not None and (type(total) is not int or total < 0):
        raise BadOption(option="total", value=total, problem="is how many items there are, 0 or more.")
    return _tracked(iterable, length_hint(iterable) if total is None else total)


def _tracked(iterable: Iterable[T], total: int) -> Iterator[T]:
    here = message_near()
    try:
        for number, item in enumerate(iterable, 1):
            if here is not None:
                step = (item.number, item.of) if isinstance(item, Page) else (number, total)
                here[0].note_step(here[1], *step)
            yield item
    finally:
        if here is not None:
            here[0].note_step(here[1], 0, 0)


def later_from(response: Any, *, default: float | str = 1.0, only_me: bool = False) -> Later:
    """Return the `Later` to raise for an answer of a service that says when to call again.

    It reads ``Retry-After``, ``retry-after-ms``, and the ``...ratelimit...reset...`` headers in use, of the limits of
    which nothing is left. Errors that clients raise themselves need none of this: they are understood as they are.

    Parameters
    ----------
    response : object
        With ``headers``, as a response or an error of httpx, aiohttp, requests, openai or anthropic; or the headers.
    default : float or str, default 1 s
        For how long where it does not say.
    only_me : bool, default False
        As in `Later`.

    Returns
    -------
    Later

    Raises
    ------
    BadOption
        `default` is not a duration, is below zero, or above 30 days.

    Examples
    --------
    >>> raise dq.later_from({"Retry-After": "7"})
    Traceback (most recent call last):
    dqlab.rules.retry.Later: not now; try again in 7 s
    """
    return Later(asked_wait(response) or default, only_me=only_me)


class _Own(threading.local, Generic[T]):
    def __init__(self, make: Callable[[], T]) -> None:
        self.make = make
        self.made: tuple[Any, T] | None = None

    def __call__(self) -> T:
        import asyncio  # here: a process that only runs functions starts in half the time without it

        loop = asyncio._get_running_loop()
        if self.made is None or self.made[0] is not loop:
            self.made = loop, self.make()
        return self.made[1]

    def __reduce__(self) -> tuple[Callable[[Callable[[], T]], Callable[[], T]], tuple[Callable[[], T]]]:
        return per_consumer, (self.make,)


def per_consumer(make: Callable[[], T], /) -> Callable[[], T]:
    """Return a function that returns each consumer's own object, which it makes at the consumer's first call.

    Consumers of one process have an event loop each, and a client of one loop does not work in another one, so a client
    must be in no variable of a module and in no `functools.cache`. With ``concurrency=``, each thread of a plain
    function has its own object. If the object has to be closed at the end, let ``setup=`` of the run make it instead.

    Parameters
    ----------
    make : callable
        Makes the object, without arguments. Its errors are those of the call.

    Returns
    -------
    callable
        Returns the object.

    Examples
    --------
    >>> @dq.per_consumer
    ... def client():
    ...     return httpx.AsyncClient()
    >>> async def ask(paper):
    ...     return (await client().get(paper["url"])).text
    """
    return _Own(make)


@overload
def once(*, max_bytes: int | str = MOST) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
@overload
def once(fn: Callable[P, T], /) -> Callable[P, T]: ...
@overload
def once(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T: ...
def once(fn: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function, or return the answer that it gave for the same document and arguments before.

    An answer is kept while its document has no result: through retries after a failure, refusals, the death of its
    consumer after it was settled, and ``run.retry(fn=...)`` with other code of the caller. So a mended parser does not
    pay for its answers again. An edited `fn`, one whose helpers or constants of the same module were edited, and other
    arguments are called anew. Failures are not kept.

    Parameters
    ----------
    fn : callable
        A function or a coroutine function. Alone, as in ``@dq.once``, the function that does this is returned.
    *args, **kwargs
        What it is called with: values that can be compared by their contents. In a batch, one of them is the document
        that the answer is kept with.
    max_bytes : int or str, default 256 KiB
        Most bytes of all answers kept for one document. Only as ``@dq.once(max_bytes="1 MB")``, without a function.

    Returns
    -------
    object
        The answer; of a coroutine function an awaitable of it.

    Raises
    ------
    Reject
        Arguments that cannot be compared, an answer that cannot be pickled, answers of more than `max_bytes` for one
        document, or a call of a batch with none of its documents. The document fails.
    BadOption
        `max_bytes` is no size, or another option was given without a function.

    Examples
    --------
    >>> async def extract(document):
    ...     answer = await dq.once(ask_the_model, document["text"])
    ...     return parse(answer)
    """
    if fn is None:
        other = next((name for name in kwargs if name != "max_bytes"), None)
        if other is not None:
            raise BadOption(option=other, value=kwargs[other], problem="is for a function, and there is none.")
        return functools.partial(_decorated, most=nbytes(kwargs.get("max_bytes", MOST), name="max_bytes"))
    return _answer(fn, args, kwargs, MOST) if args or kwargs else _decorated(fn, MOST)


def _decorated(fn: Callable[..., Any], most: int) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _answer(fn, args, kwargs, most)

    # What asks whether the function is a coroutine function must not be told otherwise.
    return inspect.markcoroutinefunction(call) if hasattr(inspect, "markcoroutinefunction") else call


def _answer(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], most: int) -> Any:
    here = message_here()
    if here is None:
        return fn(*args, **kwargs)
    chunk, place = here[0], here[0].place_of(here[1], [*args, *kwargs.values()])
    if place is None:
        raise Reject("dq.once does not know whose answer this is: in a batch, call the function with the document")
    key = _key(fn, args, kwargs)
    kept = chunk.once.get(place, {}).get(key)
    if inspect.iscoroutinefunction(fn):
        return _awaited(fn(*args, **kwargs) if kept is None else None, kept, chunk, place, key, most)
    return _keep(chunk, place, key, fn(*args, **kwargs), most) if kept is None else _reused(chunk, place, kept)


async def _awaited(
    call: Awaitable[Any] | None, kept: bytes | None, chunk: Queued, place: int, key: bytes, most: int
) -> Any:
    if call is not None:
        return _keep(chunk, place, key, await call, most)
    assert kept is not None, "it is called unless its answer is kept"
    return _reused(chunk, place, kept)


def _reused(chunk: Queued, place: int, kept: bytes) -> Any:
    chunk.pay(place, {"answers reused": 1.0})
    return open_value(kept)


def _keep(chunk: Queued, place: int, key: bytes, answer: Any, most: int) -> Any:
    try:
        sealed = seal_value(answer)
    except SealError as error:
        raise Reject(f"dq.once cannot keep the answer: {error.reason}") from error
    if sum(map(len, chunk.once.get(place, {}).values())) + len(sealed) > most:
        raise Reject(
            f"dq.once keeps {most:,} bytes of answers for one document, and this would be more: set max_bytes="
        )
    chunk.keep(place, {key: sealed})
    chunk.pay(place, {"answers paid": 1.0})
    return answer


def _key(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    from dask.base import tokenize  # here: a process that only runs functions does not need Dask

    digest = blake2b(digest_size=16)
    for part in _described(fn, set()):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    try:
        digest.update(tokenize(args, kwargs, ensure_deterministic=True).encode())
    except Exception as error:
        raise Reject(f"dq.once cannot compare the arguments: {error}") from error
    return digest.digest()


def _described(fn: Any, seen: set[int]) -> Iterator[str]:
    """Yield what a function does: its code, and what it reads of its module as far as that is plain or a function."""
    if not isinstance(fn, FunctionType):
        yield f"{type(fn).__module__}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
        return
    if id(fn) in seen:
        return
    seen.add(id(fn))
    yield fn.__qualname__
    names: set[str] = set()
    for code in _codes(fn.__code__):
        yield code.co_code.hex()
        yield repr([const for const in code.co_consts if isinstance(const, _PLAIN)])
        yield repr((code.co_names, code.co_varnames))
        names.update(code.co_names)
    read = {name: fn.__globals__[name] for name in sorted(names) if name in fn.__globals__}
    read |= dict(zip(fn.__code__.co_freevars, (_cell(cell) for cell in fn.__closure__ or ()), strict=True))
    for name, value in [*read.items(), ("defaults", fn.__defaults__), ("named defaults", fn.__kwdefaults__)]:
        if isinstance(value, FunctionType) and value.__module__ == fn.__module__:
            yield from _described(value, seen)
        elif isinstance(value, ModuleType):
            yield f"{name} {value.__name__}"
        elif isinstance(value, (*_PLAIN, tuple, list, dict, set, frozenset)):
            yield f"{name} {sorted(map(repr, value)) if isinstance(value, set | frozenset) else value!r}"


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
