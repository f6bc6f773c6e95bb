"""Filters of failures, such as ``error == 'KeyError' and deliveries < 3``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from dqlab.conditions import Fields, condition_of
from dqlab.numbers import count, many
from dqlab.texts import one_line

_SHOWN = 5
"""Most classes that are named where no failure matches."""


def _read(failure: Any, name: str) -> Any:
    value = getattr(failure, name)
    return str(value) if name == "key" and value is not None else value


FIELDS = Fields(
    {
        "error": str,
        "message": str,
        "key": str,
        "deliveries": int,
        "version": str,
        "at": str,
        "fingerprint": str,
    },
    _read,
)
"""The fields that a filter may name; `key` may be None, and an ordinal as key is its digits."""


def compile_where(where: str | Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a filter as a function of one failure, or raise `BadOption`."""
    return condition_of(where, FIELDS)


def why_none(
    run: str, failures: Iterable[Any], where: str | Callable[[Any], object] | None, fingerprint: str | None
) -> str:
    """Return in words why a filter matches none of a run's failures, or "" for a run without failures."""
    classes = Counter((failure.error, failure.fingerprint) for failure in failures)
    if not classes:
        return ""
    asked = [] if where is None else [one_line(where, 200) if isinstance(where, str) else "the function of where="]
    asked += [] if fingerprint is None else [f"fingerprint {one_line(fingerprint)!r}"]
    there = [
        f"{one_line(error, 60)} {hashed} ({count(times)})" for (error, hashed), times in classes.most_common(_SHOWN)
    ]
    more = f" and {many(len(classes) - _SHOWN, 'other')}" if len(classes) > _SHOWN else ""
    matches = f"no failure of run {run!r} matches {' and '.join(asked)}, so nothing was sent again."
    return f"{matches} There are: {', '.join(there)}{more}."
