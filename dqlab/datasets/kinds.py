"""Types of columns: that of a value, one that two have in common, and whether a value fits exactly.

Arrow converts in silence where it can: bytes become text, a time loses its zone, 1.0 becomes 1. Here a type has those
values alone that come back equal.
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
"""Fields of a nested dict above which it is not a type: words of a text are values, not columns."""
_EXACT_SINGLE = 2**24
"""Up to here each whole number is one with a point in 32 bits; Arrow refuses larger ones, also those that are."""
_DEEPEST = 32
"""Lists and dicts inside each other that a type has: Parquet is written with more, and not read with 50."""


def kind_of(value: Any, deepest: int = _DEEPEST) -> Kind | None:
    """Return the type of a column that has this value, or None: no column can have it."""
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
    """Return how many digits stand before and behind the point; negative for what is not a number."""
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
    """Return the type of an array of numbers of numpy with one dimension, or None."""
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
    """Return a type that has the values of both, or None.

    Whole numbers and numbers with a point join as the latter; whole ones above 2^53 then fit no longer.
    """
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
    """Return whether a plain scalar comes back equal from a column of this type, neither a list nor a struct."""
    check = check_of(kind)
    return value is None or (check is not None and check(value))


def check_of(kind: Kind) -> Callable[[Any], bool] | None:
    """Return a function from a plain scalar to whether a column has it as it is; None: it has nothing but null."""
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
    except (OverflowError, ValueError):  # the first or the last hours that a datetime can name
        return False
    return True


def _encodes(text: str) -> bool:
    """Return whether a text is valid Unicode, which alone Arrow keeps."""
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
