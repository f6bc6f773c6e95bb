"""Filters of failures, such as ``error == 'KeyError' and deliveries < 3``.

Owns the fields of a failure that a filter may name; `conditions` owns the language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dqlab.conditions import VALUES, Field, Fields, Unmet, compile_condition
from dqlab.errors import BadOption
from dqlab.numbers import count, many
from dqlab.texts import one_line

__all__ = ["FIELDS", "compile_where", "why_none"]

FIELDS: Mapping[str, type[str] | type[int]] = {
    "error": str,
    "message": str,
    "key": str,
    "deliveries": int,
    "version": str,
    "at": str,
    "fingerprint": str,
}
"""The fields that a filter may name, with their types; `key` may be None, and an ordinal as key is its digits."""

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
    """Return a filter as a function of one failure; raise `BadOption`, with the character, for a wrong expression."""
    # A failure is a mapping with `FIELDS`, or an object that has them as attributes; a callable gets the object itself.
    if isinstance(where, str):
        return compile_condition(where, _FAILURES)
    if not callable(where):
        raise BadOption(option="where", value=where, problem="neither an expression nor a callable.")
    return lambda failure: bool(where(failure))


def why_none(
    run: str, failures: Iterable[Any], where: str | Callable[[Any], object] | None, fingerprint: str | None
) -> str:
    """Return in words why a filter matches none of a run's failures, or "" for a run without failures."""
    amount, classes = 0, Counter[tuple[str, str]]()
    unmet = Unmet(where, _FAILURES) if isinstance(where, str) else None
    for failure in failures:
        amount += 1
        classes[_getter("error")(failure), _getter("fingerprint")(failure)] += 1
        if unmet is not None:
            unmet.add(failure)
    if not amount:
        return ""
    asked = [] if where is None else [one_line(where, 200) if isinstance(where, str) else "the function of where="]
    asked += [] if fingerprint is None else [f"fingerprint {one_line(fingerprint)!r}"]
    said = f"no failure of run {run!r} matches {' and '.join(asked)}, so nothing was sent again."
    if unmet is not None and fingerprint is None:
        return f"{said} {unmet.said()}".rstrip()
    there = [
        f"{one_line(error, 60)} {hashed} ({count(times)})" for (error, hashed), times in classes.most_common(VALUES)
    ]
    more = f" and {many(len(classes) - VALUES, 'other')}" if len(classes) > VALUES else ""
    return f"{said} There are: {', '.join(there)}{more}."


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
