"""Errors for names that do not exist, which suggest the one that was meant."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from dqlab.errors import NoAttribute
from dqlab.errors.rendering import rendered
from dqlab.user_frames import is_own

P = ParamSpec("P")
R = TypeVar("R")

_ALIKE, _LONGER = 0.75, 2
"""How alike two names must be, and letters by which one may be longer, lest "progress" means "purge"."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the name that is most like a word, or "" if none is."""
    names = {name.lower(): name for name in known if abs(len(name) - len(word)) <= _LONGER}
    return next((names[near] for near in get_close_matches(word.lower(), names, n=1, cutoff=_ALIKE)), "")


def meant(word: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'parse'?`` for the nearest name, or ""."""
    return f" Did you mean {near!r}?" if (near := nearest(word, known)) else ""


def check_call(signature: inspect.Signature, *args: Any, **options: Any) -> None:
    """Raise Python's TypeError for arguments that a signature does not have, shown in notebooks without our frames."""
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        vars(error)["_render_traceback_"] = partial(rendered, error)  # for IPython's showtraceback
        raise


def takes_same(
    other: Callable[Concatenate[Any, P], R],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Give a method the parameters of another one that it passes them to, and its docstring below the own summary."""
    signature = inspect.signature(other)

    def document(method: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        @wraps(method)
        def checked(*args: Any, **options: Any) -> R:
            check_call(signature, *args, **options)
            return method(*args, **options)

        summary, rest = inspect.cleandoc(method.__doc__ or ""), inspect.cleandoc(other.__doc__ or "")
        checked.__doc__ = f"{summary}\n{rest.partition(chr(10))[2]}"
        vars(checked)["__signature__"] = signature  # for help and completion
        return checked

    return document


class SuggestsAttributes:
    """Suggests the public name that was meant for one that does not exist, as IPython hides Python's guess."""

    __slots__ = ()

    if not TYPE_CHECKING:  # else every name would pass the type checker

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if hasattr(kind, name):
                return object.__getattribute__(self, name)  # a property raised AttributeError: read it again to show it
            if name.startswith("_"):
                raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
            near = nearest(name, (known for known in dir(kind) if not known.startswith("_")))
            hint = f"Did you mean {near}?" if near else "dir(...) lists what it has."
            raise NoAttribute(what=kind.__name__, attribute=name, problem=f"has no {name!r}", hint=hint)


class KeepsAttributes:
    """Refuses to let users set a public name of an object."""

    # Python accepts any name: without this, ``run.timeout = 5`` changes nothing, in silence.
    __slots__ = ()

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            being_made = name in getattr(type(self), "__dataclass_fields__", {}) and name not in self.__dict__
            # A function may take the place of a method.
            public = not name.startswith("_") and not callable(value)
            # The caller's own frame decides whose code this is: with a wrapper around this method it would be ours.
            if public and not being_made and not is_own(sys._getframe(1).f_code.co_filename):
                hint = "Nothing was changed; keep what is yours in a variable of its own."
                what = f"{type(self).__name__}.{name}"
                raise NoAttribute(what=what, attribute=name, problem="cannot be set", hint=hint)
            object.__setattr__(self, name, value)
