"""Arguments and attributes that are not there raise an error that suggests what was meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from dqlab.errors import NoAttribute, UnknownOption, WrongArguments

__all__ = ["SuggestsAttributes", "call_of", "checks_keywords", "documented_as"]

P = ParamSpec("P")
R = TypeVar("R")

_OF_A_QUEUE = frozenset(
    {
        "concurrency",
        "durable",
        "early_ack",
        "max_bytes",
        "max_deliveries",
        "maxsize",
        "n_queues",
        "served",
        "visibility_timeout",
    }
)
"""Options of `Lab.queue` that are looked for in `map`, which is called with the queue made."""


_FILTERED = (
    "Filter the table, run.failures().to_frame().query({value!r}), or the letters: "
    "[letter for letter in run.failures() if ...]. run.retry(where=...) sends some of them again."
)


def documented_as(other: Callable[..., object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Append the docstring of another function with the same parameters, without its summary, to a function's."""

    def document(function: Callable[P, R]) -> Callable[P, R]:
        summary, rest = inspect.cleandoc(function.__doc__ or ""), inspect.cleandoc(other.__doc__ or "")
        function.__doc__ = f"{summary}\n{rest.partition(chr(10))[2]}"
        return function

    return document


def checks_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Raise `UnknownOption` for a keyword that a function does not have, `WrongArguments` for others; if it is public.

    Python's own TypeError makes no guess before 3.13, and is shown with our frame.
    """
    signature = inspect.signature(function)
    known = [name for name in signature.parameters if name != "self"]
    called = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise UnknownOption(function=called, option=name, hint=_hint(called, name, kwargs[name], known))
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise WrongArguments(function=called, reason=str(error), usage=_usage(called, signature)) from None
        return function(*args, **kwargs)

    return checked


def call_of(kind: type, name: str) -> str:
    """Return an attribute of a class as it is written behind its object: ``submit(...)``; "" if it has none."""
    found = getattr(kind, name, None)
    return "" if found is None else f"{name}(...)" if callable(found) else name


class SuggestsAttributes:
    """Answers a public name that is not there with the one that was meant; IPython does not show Python's guess."""

    if not TYPE_CHECKING:  # else every name would pass the type checker

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if hasattr(kind, name):
                return object.__getattribute__(self, name)  # a property raised: once more, for its own error
            if name.startswith("_"):
                raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
            near = get_close_matches(name, [known for known in dir(kind) if not known.startswith("_")], n=1)
            hint = self._elsewhere(name) or (f"Did you mean {near[0]}?" if near else "dir(...) lists what it has.")
            raise NoAttribute(what=kind.__name__, attribute=name, hint=hint)

    def _elsewhere(self, name: str) -> str:
        """Return where an attribute is that is looked for here; "" where that is not known."""
        return ""


def _hint(called: str, name: str, value: Any, known: list[str]) -> str:
    if name in _OF_A_QUEUE and called.endswith(".map"):
        made = f"lab.queue(NAME, {name}={brief(value)}).map(fn, documents)"
        return f"It is an option of the queue, given when the queue is made: {made}."
    if name == "retries" and "retry" in known and type(value) is int:
        return f"Did you mean retry=dq.Retry({value})?"
    if called == "Run.failures" and name == "where":
        return _FILTERED.format(value=value)
    if not known:
        return "It takes no arguments."
    near = get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]}=?" if near else f"There are: {', '.join(known)}."


def _usage(called: str, signature: inspect.Signature) -> str:
    """Return a call with the arguments that have no name or no default: ``Lab.map(fn, documents, ...)``."""
    needed = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.name != "self" and parameter.kind is not parameter.KEYWORD_ONLY
    ]
    more = ["..."] if len(needed) < len(signature.parameters.keys() - {"self"}) else []
    return f"{called}({', '.join([*needed, *more])})"
