"""Named rows whose class cannot be imported: `DataFrame.itertuples` makes a new class for each call.

A pickle would have to carry that class with each row, in 4 kB and 2 ms. Here a row travels as its names and values, and
arrives as a namedtuple of the same name; two calls give the same pickles.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable
from functools import lru_cache
from typing import Any

# Held by a name: the garbage collector clears what `vars` shows of a class that nothing holds.
_OF_NAMEDTUPLES = frozenset(vars(_ANY := namedtuple("_ANY", "")))
_MAIN = ("__main__", "__mp_main__")


def is_homeless(kind: type) -> bool:
    """Return whether a class is a plain namedtuple that cannot be found under its own name."""
    # A class of the notebook stays as it is: functions of the notebook refer to it, for example with isinstance.
    if kind.__bases__ != (tuple,) or kind.__module__ in _MAIN:
        return False
    fields = getattr(kind, "_fields", None)
    if type(fields) is not tuple or not vars(kind).keys() <= _OF_NAMEDTUPLES | set(fields):
        return False
    return getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind


def sealer_for(kind: type, seal: Callable[[object], bytes]) -> Callable[[object], bytes]:
    """Return a function that seals values of exactly this class, by names and values if it is homeless."""
    return (lambda row: seal(_Travelling(row))) if is_homeless(kind) else seal


class _Travelling:
    """Pickles a row as its names and values."""

    __slots__ = ("_row",)

    def __init__(self, row: Any) -> None:
        self._row = row

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduced(self._row)


def _reduced(row: Any) -> tuple[Any, ...]:
    return _row, (type(row).__name__, row._fields, tuple(row))


def _row(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return _class(name, fields)._make(values)


@lru_cache(maxsize=64)
def _class(name: str, fields: tuple[str, ...]) -> Any:
    # Columns may be called "class", or share a name: `rename` gives them the same new names that pandas did.
    arguments: dict[str, Any] = {"rename": True, "module": __name__}
    made: Any = namedtuple(name, fields, **arguments)  # type: ignore[misc]
    setattr(made, "__reduce__", _reduced)  # noqa: B010 - a row that a function returns travels in the same way
    return made
