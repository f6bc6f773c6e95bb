"""Filters of failures: ``error == 'KeyError' and deliveries < 3``.

Owns the fields of a failure that a filter may name; the language is that of `conditions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dqlab.conditions import Field, Fields, compile_condition
from dqlab.errors import BadOption

__all__ = ["FIELDS", "compile_where"]

FIELDS: Mapping[str, type[str] | type[int]] = {
    "error": str,
    "message": str,
    "key": str,
    "deliveries": int,
    "version": str,
    "at": str,
    "fingerprint": str,
}
"""What a filter may name, and whether it is text or a number. `key` may be None; of ordinals it is their digits."""

_MEANT = {
    "attempts": "deliveries",
    "code": "version",
    "doc": "key",
    "document": "key",
    "exception": "error",
    "function": "at",
    "type": "error",
}


def compile_where(where: str | Callable[[Any], object]) -> Callable[[Any], bool]:
    """Return a filter as a function of one failure.

    Parameters
    ----------
    where : str or callable
        An expression over `FIELDS`, see `compile_condition`. A callable gets the failure itself; what it returns
        counts as true or false.

    Returns
    -------
    callable
        Takes a mapping with the fields, or an object that has them as attributes.

    Raises
    ------
    BadOption
        Anything else; the error names the piece, its character (from 1), and what may have been meant.
    """
    if isinstance(where, str):
        return compile_condition(where, _FAILURES)
    if not callable(where):
        raise BadOption(option="where", value=where, problem="neither an expression nor a callable.")
    return lambda failure: bool(where(failure))


def _getter(name: str) -> Callable[[Any], Any]:
    def get(failure: Any) -> Any:
        return failure[name] if isinstance(failure, Mapping) else getattr(failure, name)

    def key(failure: Any) -> str | None:
        found = get(failure)
        return found if found is None else str(found)

    return key if name == "key" else get


_FAILURES = Fields(
    {name: Field(kind, _getter(name)) for name, kind in FIELDS.items()}, _MEANT, example="error == 'KeyError'"
)
