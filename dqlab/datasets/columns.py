"""Turns values into Arrow columns, and finds the values that do not fit the type of their column.

Arrow infers types, and converts silently where it can: text becomes bytes, a time loses its zone, fields of a dict are
left out. Here a value is in a column only if it comes back equal; lists stand for tuples, and null for missing fields.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from dqlab.datasets.plain import EXACT, deep
from dqlab.imports import loaded

Kind: TypeAlias = Any
"""A `pyarrow.DataType`; pyarrow has no type hints."""

NULL, _DOUBLE, _UTC_MOMENT = pa.null(), pa.float64(), pa.timestamp("us", tz="UTC")
_MOST_FIELDS = 1_000
"""Fields of a nested dict, at most; a larger one, such as a count of words, fits no column."""
_DEEPEST = 32
"""Nested lists and dicts, at most; pyarrow writes Parquet with more, and cannot read it with 50."""
_MOST_DIGITS = 38
_NONE = type(None)
_NESTED = (list, tuple, dict)
_FAMILIAR = frozenset(
    {
        *(_NONE, bool, int, float, str, bytes, decimal.Decimal, *_NESTED),
        *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta),
    }
)
_EXACT: dict[int, set[type]] = {
    pa.bool_().id: {bool, _NONE},
    pa.int64().id: {int, _NONE},
    _DOUBLE.id: {float, int, _NONE},
    pa.string().id: {str, _NONE},
    pa.binary().id: {bytes, _NONE},
}
"""Python types, by Arrow type, whose values Arrow converts unchanged or refuses."""
_SIMPLE = frozenset({_NONE, bool, int, float, str, bytes})
_SCALARS = {
    each.id
    for each in (
        *(NULL, pa.bool_(), pa.string(), pa.binary(), pa.date32(), pa.time64("us"), pa.duration("us")),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), _DOUBLE, _UTC_MOMENT, pa.decimal128(1)),
    )
}


def declared_kind(column: Any) -> Kind:
    """Return the type of a column of `schemas`."""
    if column is None or column == {}:
        return NULL
    if isinstance(column, list):
        return pa.list_(declared_kind(column[0]))
    if isinstance(column, dict):
        return pa.struct([(name, declared_kind(each)) for name, each in column.items()])
    if column.startswith("decimal"):
        return pa.decimal128(*map(int, column[8:-1].split(",")))
    return _UTC_MOMENT if column == "timestamp[us, UTC]" else pa.type_for_alias(column)


def fitted(values: Any, kind: Kind, *, widen: bool) -> tuple[Any, Kind, list[int]]:
    """Return a column of values, its type, and the positions of values that do not fit, and are null there."""
    # `kind` is the type of the column so far; with `widen` it may become one that also holds the values before.
    if isinstance(values, pa.Array):
        wider = joined(kind, values.type) if widen else kind
        made = None if wider is None else recast(values, wider)
        if made is not None:
            return made, wider, []
        values = values.to_pylist()
    for form in (list, _deepened):  # as they are, then without the classes of libraries and users
        plain = form(values)
        made = _at_once(plain, None if widen else kind)
        wider = None if made is None else joined(kind, made.type)
        if made is not None and wider is not None and not made.type.equals(wider):
            made = _at_once(plain, wider)
        if made is not None and wider is not None:
            return made, wider, []
    return _one_by_one(plain, kind, widen=widen)


def _deepened(values: Sequence[Any]) -> list[Any]:
    return list(map(deep, values))


def recast(array: Any, kind: Kind) -> Any:
    """Return an array with a type that its own was joined into, or None if a value would change."""
    if array.type.equals(kind):
        return array
    if not kind.equals(joined(kind, array.type)):  # Arrow would read numbers from texts
        return None
    if pa.types.is_nested(kind):
        return _at_once(array.to_pylist(), kind)
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def joined(one: Kind, other: Kind) -> Kind | None:
    """Return a type for the values of both types, or None."""
    # Arrow's own promotion makes bytes of texts, and floats of decimals.
    types = pa.types
    if one.equals(other) or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_list(one) and types.is_list(other):
        inner = joined(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_struct(one) and types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = joined(fields.get(field.name, NULL), field.type)
        return None if None in fields.values() or len(fields) > _MOST_FIELDS else pa.struct(list(fields.items()))
    if types.is_decimal(one) and types.is_decimal(other):
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale
        return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else None
    numbers = [each for each in (one, other) if types.is_integer(each) or types.is_floating(each)]
    if len(numbers) < 2 or pa.uint64() in numbers:
        return None
    return pa.int64() if all(map(types.is_integer, numbers)) else _DOUBLE


def _are_arrays(values: Sequence[Any]) -> bool:
    """Return whether all values are numpy arrays that Arrow takes without an object for each number."""
    numpy = loaded("numpy")
    if numpy is None or set(map(type, values)) - {_NONE} != {numpy.ndarray}:
        return False
    kinds = {(value.ndim, value.dtype) for value in values if value is not None}
    ((dimensions, dtype), *others) = kinds
    numeric = dtype.kind in "biuf" and dtype.isnative and dtype.itemsize <= 8 and dtype != numpy.float16
    return not others and dimensions == 1 and numeric


def _is_safe(values: Sequence[Any]) -> bool:
    """Return whether values have familiar types at all levels, and not too many of these: Arrow crashes on circles."""
    for _ in range(_DEEPEST + 1):
        kinds = set(map(type, values))
        if not kinds <= _FAMILIAR:
            return False
        if kinds.isdisjoint(_NESTED):
            return True
        nested = {id(value): value for value in values if isinstance(value, _NESTED)}
        values = list(chain.from_iterable(_parts(each) for each in nested.values()))
    return False


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _at_once(values: Sequence[Any], kind: Kind | None) -> Any:
    """Return values as an array, of a type if one is given, or None unless each comes back equal."""
    with suppress(Exception):  # values of users may raise anything
        kinds = set(map(type, values))
        if kinds <= _SIMPLE:
            made = pa.array(values, kind)
            return made if kinds <= _EXACT.get(made.type.id, {_NONE}) else None
        if _are_arrays(values):
            made = pa.array(values)
            if kind is None or made.type.equals(kind):
                return made
            values = _deepened(values)
        if not _is_safe(values):
            return None
        made = pa.array(values, kind)
        stored = _stored(made.type)
        if stored is None or (kind is not None and not stored.equals(kind)):
            return None
        if not stored.equals(made.type):
            made = pa.array(values, stored)
        its = _is_exact(values, stored) or all(map(_same, made.to_pylist(), values))
        return made if its else None
    return None


def _stored(kind: Kind, deepest: int = _DEEPEST) -> Kind | None:
    """Return the type of a column of a table for an inferred one, or None if there is none."""
    if pa.types.is_list(kind):
        inner = _stored(kind.value_type, deepest - 1) if deepest else None
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        if not deepest or not 0 < kind.num_fields <= _MOST_FIELDS:  # Parquet has no struct without fields
            return None
        fields = [(field.name, _stored(field.type, deepest - 1)) for field in kind]
        return None if any(inner is None for _, inner in fields) else pa.struct(fields)
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else _UTC_MOMENT
    return kind if kind.id in _SCALARS else None


def _is_exact(values: Sequence[Any], kind: Kind) -> bool:
    """Return whether Arrow converts values to this type unchanged, as their types show without comparing each."""
    types = set(map(type, values))
    if pa.types.is_list(kind):
        there = [value for value in values if value is not None]
        return types <= {list, tuple, _NONE} and _is_exact(list(chain.from_iterable(there)), kind.value_type)
    if pa.types.is_struct(kind):
        there = [value for value in values if value is not None]
        names = [field.name for field in kind]
        if not types <= {dict, _NONE} or not set(chain.from_iterable(there)) <= set(names):
            return False
        return all(_is_exact([each.get(field.name) for each in there], field.type) for field in kind)
    return types <= _EXACT.get(kind.id, {_NONE})


def _same(came: Any, went: Any) -> bool:
    """Return whether a value of a column is the one that went in."""
    if isinstance(came, dict) and isinstance(went, dict):
        return went.keys() <= came.keys() and all(_same(value, went.get(name)) for name, value in came.items())
    if isinstance(came, list) and isinstance(went, list | tuple):
        return len(came) == len(went) and all(map(_same, came, went))
    if isinstance(went, float):
        return isinstance(came, float) and (came == went or (came != came and went != went))
    if isinstance(came, datetime.time) and isinstance(went, datetime.time) and went.tzinfo is not None:
        return False
    kinds = bool, decimal.Decimal
    return all(isinstance(came, kind) == isinstance(went, kind) for kind in kinds) and bool(came == went)


def _one_by_one(values: Sequence[Any], kind: Kind, *, widen: bool) -> tuple[Any, Kind, list[int]]:
    """Do as `fitted`, where a value or two of a column do not fit it."""
    if widen:
        for value in values:
            single = None if value is None else _at_once([value], None)
            wider = None if single is None else joined(kind, single.type)
            kind = kind if wider is None else wider
    misfits = [at for at, value in enumerate(values) if value is not None and _at_once([value], kind) is None]
    left = set(misfits)
    return pa.array([None if at in left else value for at, value in enumerate(values)], kind), kind, misfits


def pandas_of(table: Any) -> Any:
    """Return an Arrow table as a pandas DataFrame, with a column of objects where pandas' floats would round."""
    import pandas as pd

    names = table.column_names
    exact = {at: column for at, column in enumerate(table.columns) if _has_large(column)}
    # By position, because columns of a query may have one name. `self_destruct` frees the columns of the table.
    table = table.rename_columns(list(map(str, range(len(names)))))
    frame = table.to_pandas(self_destruct=True, split_blocks=True)
    for at, column in exact.items():
        frame.isetitem(at, column.to_pandas(integer_object_nulls=True))
    frame.columns = pd.Index(names)
    return frame


def _has_large(column: Any) -> bool:
    """Return whether a whole number would change as a float, which pandas uses for whole numbers beside nulls."""
    if pa.types.is_list(column.type):
        return _has_large(pc.list_flatten(column))
    if pa.types.is_struct(column.type):
        return any(map(_has_large, column.flatten()))
    if not pa.types.is_integer(column.type) or not column.null_count:
        return False
    ends = pc.min_max(column).as_py()
    return ends["max"] is not None and (ends["min"] < -EXACT or ends["max"] > EXACT)
