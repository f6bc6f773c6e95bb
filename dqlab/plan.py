"""`Plan`: how consumers call a function, besides the function itself.

It travels beside the function in its blob: small settings as plain data, objects as one pickle.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import FunctionType
from typing import Any, Self

from dqlab.errors import BadOption

__all__ = ["GIVEN", "Plan", "called", "is_model", "planned"]

GIVEN = ("init", "setup", "returns")
"""Fields that hold users' objects: they travel as a pickle, and are part of the code version. All others are settings,
which travel as plain data, and are no part of it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How consumers call a function; it is false with None in each field: as a plain function of one document."""

    init: Mapping[str, Any] | None = None
    """The arguments of a class, of which a slot makes one object, and calls that; see `is_model`."""
    setup: Mapping[str, Callable[[], Any]] | None = None
    """Makers of the objects that each call gets as keywords; a slot calls each of them once."""
    returns: Any = None
    """The `datasets.schemas.Typed` of its results."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], given: Mapping[str, Any]) -> Self:
        """Return the plan of these settings and objects; what a newer version has sent is left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in {**settings, **given}.items() if name in known})

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, as plain data."""
        settings = {name: value for name, value in self._set.items() if name not in GIVEN}
        # Whoever writes rows need not open the class, which may import a user's modules.
        return settings if self.returns is None else {**settings, "columns": self.returns.fields}

    @property
    def given(self) -> dict[str, Any]:
        """The objects that travel along, by field."""
        return {name: value for name, value in self._set.items() if name in GIVEN}

    @property
    def _set(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def __bool__(self) -> bool:
        return bool(self._set)


def is_model(fn: object) -> bool:
    """Return whether a function is a class whose objects are called, and not the class itself."""
    # A class without a `__call__` of its own, as `str` or a dataclass, is called with each document.
    if not issubclass(type(fn), type):
        return False
    kinds: tuple[type, ...] = type.__dict__["__mro__"].__get__(fn)
    return any(type(vars(kind).get("__call__")) is FunctionType for kind in kinds)


def called(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is called with each document: of a class whose objects are called, their `__call__`."""
    model: Any = fn
    return model.__call__ if is_model(fn) else fn


def planned(
    fn: Callable[..., Any],
    *,
    init: Any = None,
    setup: Any = None,
    returns: Any = None,
) -> Plan:
    """Return the plan that the keywords of `map` ask for, or raise BadOption; nothing was submitted then."""
    for option, value in (("init", init), ("setup", setup)):
        if value is not None and not (isinstance(value, Mapping) and all(map(_is_name, value))):
            raise BadOption(
                option=option, value=value, problem="must be a dict whose keys are names. Nothing was submitted."
            )
    if init is not None and not is_model(fn):
        problem = (
            "needs a class as fn, whose objects are called: class Embed, with __init__ and __call__. Arguments of a "
            "function: functools.partial(fn, name=value). Nothing was submitted."
        )
        raise BadOption(option="init", value=init, problem=problem)
    for name, make in (setup or {}).items():
        if not callable(make):
            problem = f"{name!r} is no function that makes the object. Nothing was submitted."
            raise BadOption(option="setup", value=make, problem=problem)
    if is_model(fn):
        _check_init(fn, init or {})
    init = dict(init or {}) if is_model(fn) else None
    return Plan(init=init, setup=dict(setup) if setup else None, returns=returns)


def _is_name(key: object) -> bool:
    return isinstance(key, str) and key.isidentifier()


def _check_init(fn: Callable[..., Any], init: Mapping[str, Any]) -> None:
    """Raise BadOption for arguments with which an object of a class certainly cannot be made."""
    try:
        inspect.signature(fn).bind(**init)
    except ValueError:  # it has no signature to look at
        return
    except TypeError as error:
        problem = (
            f"{fn.__name__} cannot be made with them: {error}. Pass all: init={{'name': value}}. Nothing was submitted."
        )
        raise BadOption(option="init", value=dict(init), problem=problem) from None
