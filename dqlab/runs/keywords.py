"""Unknown keyword arguments raise an error that suggests the one that was meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

from dqlab.errors import UnknownOption

__all__ = ["checks_keywords", "documented_as"]

P = ParamSpec("P")
R = TypeVar("R")


def documented_as(other: Callable[..., object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Append the docstring of another function with the same parameters, without its summary, to a function's."""

    def document(function: Callable[P, R]) -> Callable[P, R]:
        summary, rest = inspect.cleandoc(function.__doc__ or ""), inspect.cleandoc(other.__doc__ or "")
        function.__doc__ = f"{summary}\n{rest.partition(chr(10))[2]}"
        return function

    return document


def checks_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Raise `UnknownOption` for a keyword that a function does not have; for public functions.

    Python's own TypeError makes no guess before 3.13.
    """
    known = [name for name in inspect.signature(function).parameters if name != "self"]
    called = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]}=?" if near else f"There are: {', '.join(known)}."
                raise UnknownOption(function=called, option=name, hint=hint)
        return function(*args, **kwargs)

    return checked
