"""Versions of rows by their values, the same in every process."""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from dqlab.errors import in_words


def versions_of(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a hash of the values of each row by column, in whatever order the columns are."""
    names, seeds = tuple(sorted(columns)), dict[tuple[str, ...], Any]()

    def version(row: tuple[Any, ...]) -> str:
        named = names
        if None in row:  # null is the same as a column that is not there, as in the rows that functions get
            named = tuple(name for name, value in zip(names, row, strict=True) if value is not None)
            row = tuple(value for value in row if value is not None)
        if named not in seeds:
            seeds[named] = blake2b(content_of(named), digest_size=8)
        hashed = seeds[named].copy()
        hashed.update(content_of(row))
        return str(hashed.hexdigest())

    return list(map(version, zip(*map(columns.__getitem__, names), strict=True)))


def content_of(values: tuple[Any, ...]) -> bytes:
    """Return values as bytes that are the same in every process."""
    # Not pickle, whose bytes depend on which values happen to be the same object; the same holds for marshal's
    # references, which version 2 does not have.
    try:
        return marshal.dumps(values, 2)
    except ValueError:
        return marshal.dumps(tuple(map(_spelled, values)), 2)


_BY_REPR = (datetime, date, time, timedelta, Decimal)


def _spelled(value: Any) -> Any:
    """Return a value as types that `marshal` can write."""
    kind = type(value)
    if kind in (str, int, float, bool, bytes, complex, type(None)):
        return value
    if kind in (list, tuple):
        return kind.__name__, tuple(map(_spelled, value))
    if kind is dict:
        return "dict", tuple((_spelled(key), _spelled(each)) for key, each in value.items())
    if kind in (set, frozenset):
        return kind.__name__, tuple(sorted(marshal.dumps(_spelled(each), 2) for each in value))
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, _BY_REPR):
        return name, repr(value)
    try:
        return name, pickle.dumps(value, 5)
    except Exception as error:  # noqa: BLE001 - sending it fails, too, with an error that has its position
        return name, in_words(error)
