"""Calls that are paid once: their answers are kept with the document until it has a result."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from hashlib import blake2b
from types import CodeType, FunctionType, ModuleType
from typing import Any, ParamSpec, TypeVar, overload

from dqlab.cluster.consumer.running.execution import Queued, message_here
from dqlab.cluster.transport.sealed import SealError, open_value, seal_value
from dqlab.config import nbytes
from dqlab.errors import BadOption, Reject

P = ParamSpec("P")
T = TypeVar("T")
MOST = 256 << 10
"""Most bytes of the answers of one document that are kept, unless `max_bytes` says another."""
_PLAIN = (str, int, float, complex, bool, bytes, type(None))


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
    if here is None or here[1] is None:
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
