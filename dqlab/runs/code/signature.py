"""Whether a function can be called with a document, or other arguments, as far as its signature shows otherwise."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from dqlab.errors import BadOption
from dqlab.numbers import many
from dqlab.texts import one_line

__all__ = ["check_function", "check_takes", "check_takes_one", "own_signature"]


def check_function(value: object, call: str, *, option: str = "fn") -> None:
    """Refuse what cannot be called; most often it is what a call of the function returned.

    Parameters
    ----------
    call : str
        How the function is passed, with `{fn}` in the place of its name: ``map({fn}, documents)``.

    Raises
    ------
    BadOption
        It is not a function.
    """
    if callable(value):
        return
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        kind, name = "coroutine" if inspect.iscoroutine(value) else "generator", value.__name__
        name = name if name.isidentifier() else "fn"
        was = f"is a {kind}, which a call of {name} made, and not a function"
    else:
        was, name = "is not a function", "fn"
    problem = f"{was}. Pass the function itself, not what a call of it returns: {call.format(fn=name)}. "
    raise BadOption(option=option, value=value, problem=f"{problem}Nothing was submitted.")


def check_takes_one(fn: Callable[..., Any]) -> None:
    """Refuse a function, a method or a partial of these that one positional argument certainly cannot be bound to.

    All others are let through: classes and callables of other kinds may have a signature that is not theirs.

    Raises
    ------
    BadOption
        Every call would be a `TypeError`.
    """
    signature = own_signature(fn)
    if signature is None:
        return
    try:
        signature.bind(None)
    except TypeError as error:
        problem = (
            f"cannot be called with one document: {_with_parameters(error, signature)} Nothing was submitted. Map a "
            "function of one argument; bind the others with functools.partial(fn, name=value), or pass each document "
            "as one tuple, which the function unpacks."
        )
        raise BadOption(option="fn", value=fn, problem=problem) from None


def check_takes(
    fn: Callable[..., Any],
    signature: inspect.Signature | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    position: int,
) -> None:
    """Refuse a single call whose arguments certainly cannot be bound to its function.

    Parameters
    ----------
    signature : Signature or None
        That of `own_signature`.
    position : int
        Of the call among those that are put together.

    Raises
    ------
    BadOption
        The call would be a `TypeError`.
    """
    if signature is None:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        many_arguments = many(len(args) + len(kwargs), "argument")
        problem = (
            f"cannot be called with the {many_arguments} of call {position}: {_with_parameters(error, signature)} "
            "Nothing was submitted. Pass the arguments that it takes: submit(fn, *args, **kwargs), or (fn, args, "
            "kwargs) in batch_submit."
        )
        raise BadOption(option="fn", value=fn, problem=problem) from None


def own_signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function, a method or a partial of these; None if it may not be what a call binds."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    own = inner.__func__ if isinstance(inner, MethodType) else inner
    if not isinstance(own, FunctionType) or hasattr(own, "__signature__"):
        return None
    try:
        # Not that of what a decorator wraps: the wrapper may add arguments.
        return inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _with_parameters(error: TypeError, signature: inspect.Signature) -> str:
    return f"{error}. Its parameters are {one_line(str(signature), 100)}."
