"""Checks by its signature whether a function can be called with a document, or with other arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from dqlab.errors import BadOption
from dqlab.numbers import many
from dqlab.plan import Plan, called, is_model
from dqlab.texts import one_line


def check_function(value: object, *, option: str = "fn") -> None:
    """Raise BadOption for a value that cannot be called."""
    if callable(value):
        return
    problem = "is not a function. Pass the function itself, not what a call of it returns. Nothing was submitted."
    raise BadOption(option=option, value=value, problem=problem)


def check_takes_one(fn: Callable[..., Any], plan: Plan | None = None) -> None:
    """Raise BadOption for a function, method or partial that certainly cannot take one positional argument."""
    signature = own_signature(called(fn))
    if signature is None:  # let through: classes and other callables may show a signature that is not their own
        return
    names = (plan.setup or {}) if plan is not None else {}
    try:
        signature.bind(*([None] * (1 + is_model(fn))), **dict.fromkeys(names))
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
    """Raise BadOption for a single call whose arguments certainly cannot be bound, naming its `position`."""
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
    """Return the signature of a function, method or partial, or None if calls may bind by another one."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    own = inner.__func__ if isinstance(inner, MethodType) else inner
    if not isinstance(own, FunctionType) or hasattr(own, "__signature__"):
        return None
    try:
        # Not the signature of the wrapped function: the wrapper may add arguments.
        return inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _with_parameters(error: TypeError, signature: inspect.Signature) -> str:
    return f"{error}. Its parameters are {one_line(str(signature), 100)}."
