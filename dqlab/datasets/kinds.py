"""Types of columns: the type of a value, the common type of two, and whether a value fits a type exactly.

Arrow converts silently where it can: bytes become text, a time loses its zone, 1.0 becomes 1. Here a value fits a type
only if it comes back equal.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from dqlab.datasets.plain import EXACT, plain

__all__ = ["NULL", "Kind", "check_of", "join", "kind_of"]

Kind: TypeAlias = Any
"""A `pyarrow.DataType`; pyarrow has no type hints."""

NULL = pa.null()
_UTC = datetime.UTC
_INT64 = pa.int64()
_DOUBLE = pa.float64()
_BY_TYPE: dict[type, Kind] = {
    type(None): NULL,
    bool: pa.bool_(),
    int: _INT64,
    float: _DOUBLE,
    str: pa.string(),
    bytes: pa.binary(),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
}
_NAIVE, _AWARE = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
_MOST_DIGITS = 38
_MOST_FIELDS = 1_000
"""Fields of a nested dict, at most; a larger one, such as a count of words, fits no column."""
_EXACT_SINGLE = 2**24
"""Each whole number up to here is exact as a 32-bit float; Arrow refuses larger ones, even exact ones."""
_DEEPEST = 32
"""Nested lists and dicts of a type, at most; pyarrow writes Parquet with more, and cannot read it with 50."""


def kind_of(value: Any, deepest: int = _DEEPEST) -> Kind | None:
    """Return the type of a column for this value, or None if no column can hold it."""
    value = plain(value)
    made = _BY_TYPE.get(type(value))
    if made is not None:
        return made if fits(value, made) else None
    if type(value) is datetime.datetime:
        made = _NAIVE if value.tzinfo is None else _AWARE
        return made if fits(value, made) else None
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if isinstance(value, list) and deepest:
        return _list(value, deepest - 1)
    if isinstance(value, dict) and deepest:
        return _struct(value, deepest - 1)
    return None


def _decimal(value: decimal.Decimal) -> Kind | None:
    whole, scale = _digits(value)
    return pa.decimal128(max(1, whole + scale), scale) if 0 <= whole + scale <= _MOST_DIGITS else None


def _digits(value: decimal.Decimal) -> tuple[int, int]:
    """Return the number of digits before and after the point, or negative ones for NaN and infinities."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return -1, -1
    return max(0, len(digits) + exponent), max(0, -exponent)


def _list(values: list[Any], deepest: int) -> Kind | None:
    kinds = set(map(type, values))
    if len(kinds) == 1 and kinds <= {bool, float}:
        return pa.list_(_BY_TYPE[kinds.pop()])
    inner: Kind | None = NULL
    for value in values:
        made = kind_of(value, deepest)
        inner = None if made is None else join(inner, made)
        if inner is None:
            return None
    return pa.list_(inner)


def _struct(values: dict[Any, Any], deepest: int) -> Kind | None:
    if not values or len(values) > _MOST_FIELDS:  # Parquet has no struct without fields
        return None
    fields = []
    for name, value in values.items():
        made = kind_of(value, deepest)
        if made is None or type(name) is not str or not _encodes(name):
            return None
        fields.append((name, made))
    return pa.struct(fields)


def kind_of_array(value: Any) -> Kind | None:
    """Return the type of a one-dimensional numpy array of numbers, or None."""
    dtype = value.dtype
    if (
        value.ndim != 1
        or dtype.kind not in "biuf"
        or not dtype.isnative
        or dtype.itemsize > 8
        or str(dtype) == "float16"
    ):
        return None
    return pa.list_(pa.from_numpy_dtype(dtype))


def join(one: Kind, other: Kind) -> Kind | None:
    """Return a type for the values of both types, or None."""
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    is_list, is_struct, is_int = pa.types.is_list, pa.types.is_struct, pa.types.is_integer
    if is_list(one) and is_list(other):
        inner = join(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    if is_struct(one) and is_struct(other):
        return _joined_structs(one, other)
    if is_int(one) and is_int(other):
        return None if pa.uint64() in (one, other) else _INT64
    # Integers above 2^53 then no longer fit, and go into the rest.
    if (is_int(one) or pa.types.is_floating(one)) and (is_int(other) or pa.types.is_floating(other)):
        return None if pa.uint64() in (one, other) else _DOUBLE
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale
        return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else None
    return None


def _joined_structs(one: Kind, other: Kind) -> Kind | None:
    fields = {field.name: field.type for field in one}
    for field in other:
        made = join(fields.get(field.name, NULL), field.type)
        if made is None:
            return None
        fields[field.name] = made
    return pa.struct(list(fields.items())) if len(fields) <= _MOST_FIELDS else None


def fits(value: Any, kind: Kind) -> bool:
    """Return whether a plain scalar comes back equal from a column of this type, which is neither list nor struct."""
    check = check_of(kind)
    return value is None or (check is not None and check(value))


def check_of(kind: Kind) -> Callable[[Any], bool] | None:
    """Return a function that checks whether a plain scalar fits a column, or None if only null fits."""
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if pa.types.is_signed_integer(kind) else (0, 2**bits)
        return lambda value: type(value) is int and low <= value < high
    if pa.types.is_float32(kind):
        return lambda value: (
            abs(value) <= _EXACT_SINGLE if type(value) is int else type(value) is float and _is_single(value)
        )
    if pa.types.is_floating(kind):
        return lambda value: type(value) is float or (type(value) is int and _is_double(value))
    if pa.types.is_decimal(kind):
        return lambda value: _has_digits(value, kind.precision - kind.scale, kind.scale)
    if pa.types.is_timestamp(kind):
        return _is_naive if kind.tz is None else _is_aware
    return _CHECKS.get(kind.id)


def _is_double(value: int) -> bool:
    try:
        return int(float(value)) == value and abs(value) <= EXACT
    except OverflowError:
        return False


def _is_single(value: float) -> bool:
    try:
        return value != value or struct.unpack("f", struct.pack("f", value))[0] == value
    except OverflowError:
        return False


def _has_digits(value: Any, whole: int, scale: int) -> bool:
    if not isinstance(value, decimal.Decimal):
        return False
    needed, behind = _digits(value)
    return 0 <= needed <= whole and 0 <= behind <= scale


def _is_naive(value: Any) -> bool:
    return type(value) is datetime.datetime and value.tzinfo is None


def _is_aware(value: Any) -> bool:
    if type(value) is not datetime.datetime or value.tzinfo is None:
        return False
    try:
        value.astimezone(_UTC)
    except (OverflowError, ValueError):  # within hours of the first or last datetime, which UTC may exceed
        return False
    return True


def _encodes(text: str) -> bool:
    """Return whether a text is valid Unicode, which Arrow requires."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_CHECKS: dict[int, Callable[[Any], bool]] = {
    pa.bool_().id: lambda value: type(value) is bool,
    pa.string().id: lambda value: type(value) is str and _encodes(value),
    pa.binary().id: lambda value: type(value) is bytes,
    pa.date32().id: lambda value: type(value) is datetime.date,
    pa.time64("us").id: lambda value: type(value) is datetime.time and value.tzinfo is None,
    pa.duration("us").id: lambda value: (
        type(value) is datetime.timedelta and abs(value // datetime.timedelta(microseconds=1)) < 2**63
    ),
}
