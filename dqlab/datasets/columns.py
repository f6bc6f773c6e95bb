"""Builds an Arrow array from the values of one column, with the positions of those that do not fit its type."""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from dqlab.datasets.kinds import Kind, check_of, join, kind_of, kind_of_array
from dqlab.datasets.plain import plain
from dqlab.imports import loaded

__all__ = ["build", "widened"]

_NONE = type(None)
_TAKEN_BY_ARROW: dict[int, set[type]] = {
    pa.bool_().id: {bool, _NONE},
    pa.int64().id: {int, _NONE},
    pa.float64().id: {float, int, _NONE},
    pa.string().id: {str, _NONE},
    pa.binary().id: {bytes, _NONE},
    pa.date32().id: {datetime.date, _NONE},
}
"""Python types, by Arrow type, whose values Arrow converts unchanged or refuses."""
_ALIKE: dict[type, Kind] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}
"""Python types whose values all have the same column type, if they fit any."""
_REFUSALS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeEncodeError)


def widened(values: Sequence[Any], kind: Kind, at: Sequence[int]) -> Kind:
    """Return a type for the values of `kind` and as many of the values at some positions as can be joined with it."""
    chosen = values if len(at) == len(values) else [values[position] for position in at]
    types = set(map(type, chosen)) - {_NONE}
    if len(types) == 1 and (alike := types.pop()) in _ALIKE:  # one value decides for all; most columns end here
        first = next((value for value in chosen if value is not None and kind_of(value) is not None), None)
        return kind if first is None else join(kind, _ALIKE[alike]) or kind
    seen: Kind | None = None
    for value in chosen:
        made = _kind_of(value)
        if made is None or made is seen or (seen is not None and made.equals(seen)):
            continue
        seen = made
        kind = join(kind, made) or kind
    return kind


def _kind_of(value: Any) -> Kind | None:
    made = kind_of_array(value) if _is_array(value) else None
    return kind_of(value) if made is None else made


def _is_array(value: Any) -> bool:
    numpy = loaded("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def build(values: Sequence[Any], kind: Kind) -> tuple[Any, list[int]]:
    """Return an array of a type, and the positions of values that do not fit, and are null in the array."""
    if pa.types.is_null(kind):
        misfits = [at for at, value in enumerate(values) if value is not None and plain(value) is not None]
        return pa.nulls(len(values)), misfits
    if pa.types.is_list(kind):
        return _lists(values, kind)
    if pa.types.is_struct(kind):
        return _structs(values, kind)
    if set(map(type, values)) <= _TAKEN_BY_ARROW.get(kind.id, set()):
        try:
            return pa.array(values, kind), []
        except _REFUSALS:
            pass  # find out one by one below which values do not fit
    check = check_of(kind)
    kept: list[Any] = []
    misfits = []
    for at, value in enumerate(values):
        made = plain(value)
        if made is not None and (check is None or not check(made)):
            misfits.append(at)
            made = None
        kept.append(made)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        kept = [None if value is None else value.astimezone(datetime.UTC) for value in kept]
    return pa.array(kept, kind), misfits


def _lists(values: Sequence[Any], kind: Kind) -> tuple[Any, list[int]]:
    arrays = _of_arrays(values, kind)
    if arrays is not None:
        return arrays, []
    lists: list[Any] = []
    misfits = []
    for at, value in enumerate(values):
        made = plain(value)
        if made is not None and not isinstance(made, list):
            misfits.append(at)
            made = None
        lists.append(made)
    # A list with an element that does not fit is null as a whole: drop it, and build again.
    while True:
        ends = list(accumulate(0 if each is None else len(each) for each in lists))
        inner, wrong = build(list(chain.from_iterable(each for each in lists if each is not None)), kind.value_type)
        if not wrong:
            break
        for at in {bisect_right(ends, position) for position in wrong}:
            lists[at] = None
            misfits.append(at)
    offsets = [None if each is None else end - len(each) for each, end in zip(lists, ends, strict=True)]
    ends_at = pa.array([*offsets, ends[-1] if ends else 0], pa.int32())
    # Pass the type instead of casting: a cast of a list of only nulls loses all of them but one (pyarrow 26).
    return pa.ListArray.from_arrays(ends_at, inner, type=kind), sorted(misfits)


def _of_arrays(values: Sequence[Any], kind: Kind) -> Any:
    """Return numpy arrays that have exactly this type, without an object for each number, or None."""
    numpy = loaded("numpy")
    if numpy is None or set(map(type, values)) != {numpy.ndarray}:
        return None
    dtype = values[0].dtype
    if any(value.ndim != 1 or value.dtype != dtype for value in values):
        return None
    made = kind_of_array(values[0])
    if made is None or not made.equals(kind):
        return None
    offsets = pa.array([0, *accumulate(len(value) for value in values)], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(numpy.concatenate(values)))


def _structs(values: Sequence[Any], kind: Kind) -> tuple[Any, list[int]]:
    fields = list(kind)
    names = {field.name for field in fields}
    rows: list[dict[Any, Any] | None] = []
    misfits = []
    for at, value in enumerate(values):
        made = plain(value)
        if made is not None and (type(made) is not dict or not made.keys() <= names):
            misfits.append(at)
            made = None
        rows.append(made)
    # A row with a field that does not fit is null as a whole: drop it, and build again.
    while True:
        built = [build([None if row is None else row.get(field.name) for row in rows], field.type) for field in fields]
        wrong = {at for _, positions in built for at in positions}
        if not wrong:
            break
        for at in wrong:
            rows[at] = None
        misfits += wrong
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays([column for column, _ in built], fields=fields, mask=mask), sorted(misfits)
