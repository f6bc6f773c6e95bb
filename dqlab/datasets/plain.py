"""Turns users' values into plain Python: numpy and pandas scalars, enums, dataclasses and subclasses lose their class.

Owns which values are equal. Knows nothing of Arrow; uses numpy and pandas only for their own values, so they are loaded
already.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import uuid
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import PurePath
from typing import Any

from dqlab.imports import loaded
from dqlab.texts import said_by, shown

EXACT = 2**53
"""Each whole number up to here is exact as a float."""
_PLAIN = frozenset(
    {
        type(None), bool, int, float, str, bytes, dict, list,
        datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal,
    }
)  # fmt: skip
"""Types of plain data."""


def _day(value: datetime.date) -> datetime.date:
    return datetime.date(value.year, value.month, value.day)


_EXACTLY: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__index__),
    (float, float.__float__),
    (str, str.__str__),
    (bytes, bytes),
    (datetime.datetime, lambda each: datetime.datetime.combine(_day(each), each.timetz())),
    (datetime.date, _day),
    (datetime.time, lambda each: each.replace()),
    (datetime.timedelta, lambda each: datetime.timedelta(each.days, each.seconds, each.microseconds)),
)
"""Turns an instance of a subclass into one of the class itself; datetime before date, which is its base class."""
_encoded = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode  # `json.dumps` makes one for each call


class _Opaque(ValueError):
    """No plain data stands for an object of this class, whose name is the argument."""


def is_pydantic(kind: type) -> bool:
    """Return whether a class is a Pydantic model."""
    pydantic = loaded("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _has_fields(kind: type) -> bool:
    """Return whether a class is a dataclass, an attrs class or a Pydantic model."""
    return dataclasses.is_dataclass(kind) or hasattr(kind, "__attrs_attrs__") or is_pydantic(kind)


def row_of(value: Any) -> dict[Any, Any] | None:
    """Return the columns of a mapping, a named tuple or an object of a class of fields, or None for any other value."""
    if type(value) is dict:
        return value
    if type(value) in _PLAIN:
        return None
    if isinstance(value, Mapping | tuple) or _has_fields(type(value)):
        with suppress(Exception):  # a user's class may raise anything, and is then no row
            made = plain(value)
            return made if type(made) is dict else None
    return None


def even_columns(rows: Sequence[Mapping[Any, Any]]) -> dict[Any, list[Any]] | None:
    """Return the values of rows by key, or None unless all are dicts with the same keys."""
    if set(map(type, rows)) != {dict} or set(map(len, rows)) != {len(rows[0])}:
        return None
    try:
        return {name: list(map(itemgetter(name), rows)) for name in rows[0]}
    except KeyError:
        return None


def plain(value: Any) -> Any:  # noqa: C901 - one line for each kind of value
    """Return a value as one of the types `_PLAIN`, or unchanged if none of them can hold it exactly."""
    # Shallow: elements of lists and values of dicts stay as they are. What plain Python cannot hold exactly stays too,
    # such as nanoseconds and numbers of more than 64 bits.
    if type(value) in _PLAIN:
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return dict(value)
    if _has_fields(kind := type(value)):
        if is_pydantic(kind):
            return {**value.__dict__, **(value.__pydantic_extra__ or {})}
        named = dataclasses.fields(value) if dataclasses.is_dataclass(kind) else kind.__attrs_attrs__
        return {field.name: getattr(value, field.name) for field in named}
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return list(value) if names is None else dict(zip(names, value, strict=True))
    if isinstance(value, list | array | deque):
        return list(value)
    numpy, pandas = loaded("numpy"), loaded("pandas")
    if pandas is not None:
        if value is pandas.NaT or value is pandas.NA:
            return None
        if isinstance(value, pandas.Timestamp):
            return value if value.nanosecond else value.to_pydatetime()
        if isinstance(value, pandas.Timedelta):
            return value if value.nanoseconds else value.to_pytimedelta()
        if isinstance(value, pandas.Index):
            return value.tolist()
        if isinstance(value, pandas.Series):  # a list has no labels
            return value.tolist() if value.index.equals(pandas.RangeIndex(len(value))) else value
    if numpy is not None:
        if isinstance(value, numpy.ndarray):
            return _of_array(value)
        if isinstance(value, numpy.generic):
            return _of_scalar(value, numpy)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    for kind, exactly in _EXACTLY:
        if isinstance(value, kind):
            return exactly(value)
    return value


def deep(value: Any) -> Any:
    """Return a value whose parts at all levels are plain as well, or unchanged if it is no plain data."""
    with suppress(Exception):  # reading a value runs users' code, and circles end in a RecursionError
        return _deep(value)
    return value


def _deep(value: Any) -> Any:
    value = plain(value)
    if type(value) is list:
        return list(map(_deep, value))
    return {name: _deep(each) for name, each in value.items()} if type(value) is dict else value


def _of_array(value: Any) -> Any:
    """Return a numpy array as lists, whose elements are plain Python if that is exact for all."""
    if value.dtype.kind in "biufSUO":
        return value.tolist()
    return plain(value[()]) if value.ndim == 0 else list(value)


def _of_scalar(value: Any, numpy: Any) -> Any:
    """Return a numpy scalar as plain Python, or unchanged if that would change its value."""
    if value.dtype.kind not in "mM":
        made = value.item()
        return value if isinstance(made, numpy.generic | tuple) else made
    if numpy.isnat(value):
        return None
    if value.dtype.kind == "m" and numpy.datetime_data(value.dtype)[0] in ("generic", "Y", "M"):  # of no one length
        return value
    exact = value.astype(f"{value.dtype.kind}8[us]")
    made = exact.item() if exact == value else None
    return made if isinstance(made, datetime.datetime | datetime.timedelta) else value


def name_of(key: Any) -> str:
    """Return the name of a key's column, which is its text as valid Unicode."""
    return shown(key if type(key) is str else said_by(key))


def parted(values: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return values by name as JSON, "" if there is none, and by name the class of those that it cannot represent."""
    # Times are ISO 8601, `Decimal` its digits, NaN and the infinities "NaN", "Infinity" and "-Infinity", bytes
    # ``{"base64": ...}``. Users' files have these forms: keep them.
    with suppress(Exception):  # find out below which value is not finite, too deep, or no plain data
        return _encoded({name: _jsonable(value) for name, value in values.items()}), {}
    made, opaque = dict[str, Any](), dict[str, str]()
    for name, value in values.items():
        try:
            _encoded(worded := _worded(_jsonable(value)))
        except Exception as error:  # noqa: BLE001 - reading a value runs users' code
            opaque[name] = error.args[0] if isinstance(error, _Opaque) else type(value).__name__
        else:
            made[name] = worded
    return _encoded(made) if made else "", opaque


def _worded(value: Any) -> Any:
    """Return a value for JSON with texts for NaN and the infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return list(map(_worded, value))
    return {name: _worded(each) for name, each in value.items()} if isinstance(value, dict) else value


def _jsonable(value: Any) -> Any:
    value = plain(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list):
        return [_jsonable(each) for each in value]
    if isinstance(value, dict):
        named = {key if type(key) is str else said_by(key): _jsonable(each) for key, each in value.items()}
        return named if len(named) == len(value) else [[_jsonable(key), _jsonable(each)] for key, each in value.items()]
    return _text(value)


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return [_jsonable(each) for each in value]
    numpy = loaded("numpy")
    is_scalar = numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind != "V"
    if is_scalar or isinstance(value, complex | decimal.Decimal | datetime.timedelta | uuid.UUID | PurePath):
        return str(value)
    raise _Opaque(type(value).__name__)
