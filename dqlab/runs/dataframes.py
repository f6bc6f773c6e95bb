"""Pandas tables with any text: pandas' own text type accepts only valid Unicode."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from numbers import Integral
from operator import itemgetter
from typing import Any, TypeAlias

from dqlab.datasets.alike import Alike
from dqlab.datasets.plain import EXACT

__all__ = ["EvenRows", "frame_of", "index_of", "inferred", "series_of"]


def index_of(keys: Sequence[Any]) -> Any:
    """Return keys as an index named ``key``, of objects if one of them is not valid Unicode."""
    import pandas as pd

    try:
        return pd.Index(keys, name="key")
    except UnicodeEncodeError:
        return pd.Index(keys, name="key", dtype=object)


def frame_of(rows: Sequence[Mapping[Any, Any]], index: Any, columns: list[str] | None = None) -> Any:
    """Return rows as a table.

    A column is of objects where one has text that is not valid Unicode, or a whole number that a number with a point
    would round; others are of a fitting type.
    """
    import pandas as pd

    rows = list(rows)
    try:  # not from_records: it takes an index whose labels are all columns for the names of these columns
        frame = pd.DataFrame(rows, index=index, columns=columns)
        for at, key in enumerate(frame.columns):
            if _may_round(frame.iloc[:, at]) and _rounds(row.get(key) for row in rows):
                exact: Any = pd.Series([row.get(key, math.nan) for row in rows], frame.index, dtype=object)
                frame.isetitem(at, exact)
        return frame
    except UnicodeEncodeError:
        names = list(dict.fromkeys(chain.from_iterable(rows))) if columns is None else columns
        named = pd.Index(names, dtype=object, tupleize_cols=False)
        frame = pd.DataFrame(rows, index=index, columns=named, dtype=object)
    for name in frame:
        frame[name] = inferred(frame[name])
    return frame


def inferred(column: Any) -> Any:
    """Return a column of objects as one of a fitting type, or as it is where this cannot have its values."""
    try:
        made = column.infer_objects()
    except UnicodeEncodeError:
        return column
    return column if _may_round(made) and _rounds(column) else made


def _may_round(column: Any) -> bool:
    return column.dtype == "float64" and bool((column.abs() >= EXACT).any())


def _rounds(values: Iterable[Any]) -> bool:
    """Return whether a whole number among some values is none that a number with a point has."""
    return any(
        isinstance(value, Integral) and abs(int(value)) > EXACT and int(float(value)) != value for value in values
    )


def series_of(values: Any, index: Any) -> Any:
    """Return values as a column of objects, if one of them is not valid Unicode, or of a fitting type."""
    import pandas as pd

    try:
        return pd.Series(values, index)
    except UnicodeEncodeError:
        return pd.Series(values, index, dtype=object)


class EvenRows:
    """Rows that all have the same columns, each of one plain type, as columns: a number takes eight bytes.

    As objects of Python a small row takes 400 bytes, and most results are such rows.
    """

    def __init__(self) -> None:
        self._columns: dict[Any, list[Any]] = {}
        self._types: dict[Any, type] = {}
        self._keys: list[Any] = []
        """Arrays of positions, and lists of keys."""

    def add(self, *parts: Sequence[Any] | Alike) -> bool:
        """Add rows, some after others, or none of them when they are not even with those before; return which."""
        made, types = list[dict[Any, Any]](), self._types
        for rows in parts:
            found = _columns_of(rows.columns) if isinstance(rows, Alike) else _columns_of_rows(rows)
            if found is None:
                return False
            here = {name: kind for name, (kind, _) in found.items()}
            types = types or here
            if list(here.items()) != list(types.items()):
                return False
            made.append({name: array for name, (_, array) in found.items()})
        self._types = types
        for columns in made:
            for name, array in columns.items():
                self._columns.setdefault(name, []).append(array)
        return True

    def add_keys(self, keys: list[Any] | None, ordinals: Sequence[int]) -> None:
        """Add the keys of the rows that were added last; None: these are their positions."""
        import numpy as np

        self._keys.append(np.array(ordinals, np.int64) if keys is None else keys)

    def frame(self) -> Any:
        """Return a DataFrame of all rows by key; None without rows, or where a name is not valid Unicode."""
        import numpy as np
        import pandas as pd

        if not self._columns:
            return None
        if all(isinstance(each, np.ndarray) for each in self._keys):
            index = pd.Index(np.concatenate(self._keys), name="key")
        else:
            index = index_of(list(chain.from_iterable(_listed(each) for each in self._keys)))
        joined = {}
        for name, parts in self._columns.items():
            if isinstance(parts[0], np.ndarray):
                joined[name] = np.concatenate(parts)
            else:
                joined[name] = pd.concat(parts, ignore_index=True).array
        # Names that are tuples would make columns of several levels.
        names = pd.Index(list(joined), tupleize_cols=False) if not _odd(joined) else None
        if names is None:
            return None
        frame = pd.DataFrame(dict(enumerate(joined.values())), index=index, copy=False)
        frame.columns = names
        return frame

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Yield (key, row) as they came."""
        names = list(self._columns)
        for at, keys in enumerate(self._keys):
            columns = (_listed(parts[at]) for parts in self._columns.values())
            rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
            yield from zip(_listed(keys), rows, strict=True)


_Columns: TypeAlias = dict[Any, tuple[type, Any]]
"""Of each column the type of its values, and these."""
_KINDS = {"i": int, "f": float, "b": bool}


def _columns_of(given: Mapping[str, Any]) -> _Columns | None:
    """Return columns that were made without their rows; None as below."""
    made: _Columns = {}
    for name, column in given.items():
        kind = str if isinstance(column, list) else _KINDS[column.dtype.kind]
        array = _array_of(column, str) if isinstance(column, list) else column
        if array is None:
            return None
        made[name] = kind, array
    return made


def _columns_of_rows(rows: Sequence[Any]) -> _Columns | None:
    """Return the columns of rows; None when they have others, or values of several types or of another one."""
    if set(map(type, rows)) != {dict} or not rows[0]:
        return None
    names, width = list(rows[0]), len(rows[0])
    if set(map(len, rows)) != {width}:
        return None
    made: _Columns = {}
    for name in names:
        try:
            column = list(map(itemgetter(name), rows))
        except KeyError:
            return None
        kinds = set(map(type, column))
        if len(kinds) != 1:
            return None
        kind = kinds.pop()
        array = _array_of(column, kind)
        if array is None:
            return None
        made[name] = kind, array
    return made


def _odd(names: Mapping[Any, Any]) -> bool:
    """Return whether names of columns are not all texts of valid Unicode."""
    try:
        for name in names:
            if type(name) is not str:
                return True
            name.encode()
    except UnicodeEncodeError:
        return True
    return False


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else values.tolist()


def _array_of(column: list[Any], kind: type) -> Any:
    """Return values of one plain type as an array, or None; text as a column of pandas, which is compact there."""
    import numpy as np
    import pandas as pd

    if kind is int:
        try:
            return np.array(column, np.int64)
        except OverflowError:
            return None
    if kind is float or kind is bool:
        return np.array(column, kind)
    if kind is not str:
        return None
    try:
        if len(set(column)) * 2 < len(column):  # where texts are objects, equal ones are one object
            one = dict(zip(column, column, strict=True))
            column = list(map(one.get, column))
        return pd.Series(column)
    except UnicodeEncodeError:
        return None
