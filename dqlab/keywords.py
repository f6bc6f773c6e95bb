"""Errors for arguments and attributes that do not exist, which suggest the one that was meant."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from dqlab.errors import NoAttribute, NotSettable, UnknownOption, WrongArguments, WrongUse
from dqlab.user_frames import is_own

__all__ = [
    "IsNoSequence",
    "KeepsAttributes",
    "SuggestsAttributes",
    "SuggestsNames",
    "call_of",
    "checks_keywords",
    "checks_making",
    "documented_as",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

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

_OWNERS = frozenset({"self", "cls"})
"""Parameters that the caller does not write."""
_OF_TEXTS = frozenset({"encoding", "errors"})
"""Options of reading a document that are looked for where documents are listed."""
_OF_DOCUMENTS = frozenset({"key", "size", "pages", "version", "where"})
"""What a condition on documents can name."""


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
    """Make a public function raise `UnknownOption` for an unknown keyword, and `WrongArguments` for other mistakes."""
    # Python's own TypeError suggests nothing before 3.13, and its traceback shows our frame.
    signature = inspect.signature(function)
    known = [name for name in signature.parameters if name not in _OWNERS]
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


def checks_making(kind: type[T], usage: Callable[[Any], str]) -> type[T]:
    """Make a class raise `UnknownOption` and `WrongArguments` when it is called with arguments that do not fit."""
    make = kind.__init__
    signature = inspect.signature(make)
    known = [name for name in signature.parameters if name not in _OWNERS]

    @wraps(make)
    def checked(*args: Any, **kwargs: Any) -> None:
        try:  # arguments are checked only once Python has refused them, so that making many objects stays cheap
            make(*args, **kwargs)
        except TypeError as error:
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                pass
            else:
                raise  # the arguments fit: the error is about a value
            first = next(iter([*args[1:], *kwargs.values()]), None)
            for name in kwargs:
                if name not in known:
                    hint = f"There are: {', '.join(known)}. Make it with: {usage(first)}."
                    raise UnknownOption(function=kind.__name__, option=name, hint=hint) from None
            raise WrongArguments(function=kind.__name__, reason=_bare(error), usage=usage(first)) from None

    kind.__init__ = checked  # type: ignore[method-assign]
    return kind


def _bare(error: TypeError) -> str:
    """Return what Python found wrong, without the function's name."""
    return str(error).partition("() ")[2] or str(error)


def call_of(kind: type, name: str) -> str:
    """Return an attribute of a class as it is written after its object (``submit(...)``), or "" if it has none."""
    found = getattr(kind, name, None)
    return "" if found is None else f"{name}(...)" if callable(found) else name


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
            near = get_close_matches(name, [known for known in dir(kind) if not known.startswith("_")], n=1)
            hint = self._elsewhere(name) or (f"Did you mean {near[0]}?" if near else "dir(...) lists what it has.")
            raise NoAttribute(what=kind.__name__, attribute=name, hint=hint)

    def _elsewhere(self, name: str) -> str:
        """Return where an attribute is that users look for here, or "" where that is not known."""
        return ""


class SuggestsNames(type):
    """Suggests the public name of a class that was meant, as `SuggestsAttributes` does for its objects."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
            near = get_close_matches(name, [known for known in dir(cls) if not known.startswith("_")], n=1)
            hint = cls.__dict__.get("_names_elsewhere", {}).get(name)
            hint = hint or (f"Did you mean {near[0]}?" if near else f"dir({cls.__name__}) lists what it has.")
            raise NoAttribute(what=cls.__name__, attribute=name, hint=hint)


class KeepsAttributes:
    """Refuses to let users set a public name that an object does not have or that is read-only."""

    # Python accepts any name: without this, ``run.timeout = 5`` changes nothing, in silence.
    __slots__ = ()
    _read_only: ClassVar[Mapping[str, str]] = {}
    """Attributes that users can only read, and what to write instead of setting them."""

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            kind = type(self)
            is_there = name in self.__dict__
            # The caller's own frame decides whose code this is: with a wrapper around this method it would be ours.
            if (
                not name.startswith("_")
                and not is_own(sys._getframe(1).f_code.co_filename)
                and (is_there or name not in getattr(kind, "__dataclass_fields__", {}))
            ):
                found = getattr(kind, name, None)
                only_read = name in self._read_only or (isinstance(found, property) and found.fset is None)
                a_method = callable(found) and not callable(value)  # a function may take its place
                if only_read or a_method or not (is_there or hasattr(kind, name)):
                    problem = "is only read" if only_read else "is a method" if a_method else "is not there"
                    way = self._read_only.get(name) or self._set_elsewhere(name)
                    raise NotSettable(what=kind.__name__, attribute=name, problem=problem, way=way)
            object.__setattr__(self, name, value)

    def _set_elsewhere(self, name: str) -> str:
        """Return how to set what such a name stands for."""
        return "dir(...) lists what it has. Keep what is yours in a variable of its own"


class IsNoSequence:
    """Refuses `len`, an index and a loop with what to write instead, and counts as true, as any object does."""

    __slots__ = ()

    def _instead(self, use: str) -> tuple[str, str, str]:
        """Return what this is, why the use ("len", "loop" or an index) is wrong, and what to write."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # else the type checker would take it for a sequence
        # Python would otherwise ask `__len__`, and ``if run:`` would raise.
        def __bool__(self) -> bool:
            return True

        def __len__(self) -> int:
            raise self._wrong("len")

        def __getitem__(self, index: Any) -> Any:
            raise self._wrong(_bracketed(index))

        def __iter__(self) -> Any:
            raise self._wrong("loop")

        def __contains__(self, value: Any) -> bool:
            raise self._wrong("loop")

        def _wrong(self, use: str) -> WrongUse:
            what, problem, hint = self._instead(use)
            return WrongUse(what=what, problem=problem, hint=hint)


def _bracketed(index: Any) -> str:
    """Format an index as it stands between brackets."""
    if isinstance(index, slice) and index.step is None:
        return ":".join("" if end is None else brief(end) for end in (index.start, index.stop))
    return brief(index)


def _hint(called: str, name: str, value: Any, known: list[str]) -> str:
    if name in _OF_A_QUEUE and called.endswith(".map"):
        made = f"lab.queue(NAME, {name}={brief(value)}).map(fn, documents)"
        return f"It is an option of the queue, given when the queue is made: {made}."
    if name == "retries" and "retry" in known and type(value) is int:
        return f"Did you mean retry=dq.Retry({value})?"
    if called == "Run.failures" and name == "where":
        return _FILTERED.format(value=value)
    if called == "Documents.where" and name in _OF_DOCUMENTS:
        return f"Write the condition as a text: docs.where({f'{name} == {brief(value)}'!r})."
    if called.startswith("Documents") and name in _OF_TEXTS and name not in known:
        return f"The function says how a text is read: doc.text({name}={brief(value)})."
    if called == "Documents.from_glob" and name == "recursive":
        return "Two stars match any number of folders: from_glob('folder/**/*.txt')."
    if not known:
        return "It takes no arguments."
    near = get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]}=?" if near else f"There are: {', '.join(known)}."


def _usage(called: str, signature: inspect.Signature) -> str:
    """Return a call with the arguments that have no name or no default, as in ``Lab.map(fn, documents, ...)``."""
    needed = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.name not in _OWNERS and parameter.kind is not parameter.KEYWORD_ONLY
    ]
    more = ["..."] if len(needed) < len(signature.parameters.keys() - _OWNERS) else []
    return f"{called}({', '.join([*needed, *more])})"
