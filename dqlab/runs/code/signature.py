"""Whether a function can be called with one document, as far as its signature shows that it cannot."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from dqlab.errors import BadOption
from dqlab.texts import one_line

__all__ = ["check_takes_one"]


def check_takes_one(fn: Callable[..., Any]) -> None:
    """Refuse a function, a method or a partial of these that one positional argument certainly cannot be bound to.

    All others are let through: classes and callables of other kinds may have a signature that is not theirs.

    Raises
    ------
    BadOption
        Every call would be a `TypeError`.
    """
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    own = inner.__func__ if isinstance(inner, MethodType) else inner
    if not isinstance(own, FunctionType) or hasattr(own, "__signature__"):
        return
    try:
        # Not that of what a decorator wraps: the wrapper may add arguments.
        signature = inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(None)
    except TypeError as error:
        problem = (
            f"cannot be called with one document: {error}. Its parameters are {one_line(str(signature), 100)}. Nothing "
            "was submitted. Map a function of one argument; bind the others with functools.partial(fn, name=value), or "
            "pass each document as one tuple, which the function unpacks."
        )
        raise BadOption(option="fn", value=fn, problem=problem) from None
