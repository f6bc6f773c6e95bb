"""Pandas tables of results, including texts that are not valid Unicode, which pandas' own text type refuses."""

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
    """Return keys as an index named ``key``, with objects if a key is not valid Unicode."""
    import pandas as pd

    try:
        return pd.Index(keys, name="key")
    except UnicodeEncodeError:
        return pd.Index(keys, name="key", dtype=object)


def frame_of(rows: Sequence[Mapping[Any, Any]], index: Any, columns: list[str] | None = None) -> Any:
    """Return rows as a table, with a column of objects where a fitting type would refuse or round a value."""
    import pandas as pd

    rows = list(rows)
    try:  # not from_records: if all labels of the index are also columns, it takes the index for their names
        frame = pd.DataFrame(rows, index=index, columns=columns)
        for at, key in enumerate(frame.columns):  # by position: a name may be a tuple
            # pandas makes floats of integers beside a missing value: above 2**53 they would become other numbers.
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
    """Return a column of objects with a fitting type, or unchanged if that type cannot hold all values exactly."""
    try:
        made = column.infer_objects()
    except UnicodeEncodeError:
        return column
    return column if _may_round(made) and _rounds(column) else made


def _may_round(column: Any) -> bool:
    return column.dtype == "float64" and bool((column.abs() >= EXACT).any())


def _rounds(values: Iterable[Any]) -> bool:
    """Return whether a float cannot represent some integer among the values exactly."""
    return any(
        isinstance(value, Integral) and abs(int(value)) > EXACT and int(float(value)) != value for value in values
    )


def series_of(values: Any, index: Any) -> Any:
    """Return values as a column with a fitting type, or with objects if a value is not valid Unicode."""
    import pandas as pd

    try:
        return pd.Series(values, index)
    except UnicodeEncodeError:
        return pd.Series(values, index, dtype=object)


class EvenRows:
    """Rows that all have the same columns with one plain type each, held as columns."""

    # Most results are rows like these. As Python objects a small row takes 400 bytes, here a number takes eight.

    def __init__(self) -> None:
        self._columns: dict[Any, list[Any]] = {}
        self._types: dict[Any, type] = {}
        self._keys: list[Any] = []
        """Arrays of positions, and lists of keys."""

    def add(self, *parts: Sequence[Any] | Alike) -> bool:
        """Add all rows of the parts, or none if they differ from the earlier rows; return whether they were added."""
        # Nothing is stored before all parts fit: the caller adds the whole page elsewhere if one does not.
        made, types = list[dict[Any, Any]](), self._types
        for rows in parts:
            found = _columns_of(rows.columns) if isinstance(rows, Alike) else _columns_of_rows(rows)
            if found is None:
                return False
            here = {name: kind for name, (kind, _) in found.items()}
            types = types or here
            if list(here.items()) != list(types.items()):  # as lists: columns in another order are another table
                return False
            made.append({name: array for name, (_, array) in found.items()})
        self._types = types
        for columns in made:
            for name, array in columns.items():
                self._columns.setdefault(name, []).append(array)
        return True

    def add_keys(self, keys: list[Any] | None, ordinals: Sequence[int]) -> None:
        """Add the keys of the rows that were added last, which are their ordinals if `keys` is None."""
        import numpy as np

        self._keys.append(np.array(ordinals, np.int64) if keys is None else keys)

    def frame(self) -> Any:
        """Return a DataFrame of all rows by key, or None without rows or if a name is not valid Unicode."""
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
        # Built with numbers as names, named afterwards: pandas may take other names for several levels.
        frame = pd.DataFrame(dict(enumerate(joined.values())), index=index, copy=False)
        frame.columns = names
        return frame

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Yield (key, row) in the order in which they were added."""
        names = list(self._columns)
        for at, keys in enumerate(self._keys):
            columns = (_listed(parts[at]) for parts in self._columns.values())
            rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
            yield from zip(_listed(keys), rows, strict=True)


_Columns: TypeAlias = dict[Any, tuple[type, Any]]
"""The type and the values of each column, by name."""
_KINDS = {"i": int, "f": float, "b": bool}


def _columns_of(given: Mapping[str, Any]) -> _Columns | None:
    """Return columns that were read without their rows, or None if a text is not valid Unicode."""
    made: _Columns = {}
    for name, column in given.items():
        kind = str if isinstance(column, list) else _KINDS[column.dtype.kind]
        array = _array_of(column, str) if isinstance(column, list) else column
        if array is None:
            return None
        made[name] = kind, array
    return made


def _columns_of_rows(rows: Sequence[Any]) -> _Columns | None:
    """Return the columns of rows, or None unless all rows have the same columns with one plain type each."""
    # `type`, not isinstance: True is an int, and a subclass of dict or str would lose what makes it one.
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
    """Return whether some name of a column is no text, or not valid Unicode."""
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
    """Return values of one plain type as an array, or texts as a pandas Series, or None for other values."""
    import numpy as np
    import pandas as pd

    if kind is int:
        try:
            return np.array(column, np.int64)
        except OverflowError:  # beyond 64 bits
            return None
    if kind is float or kind is bool:
        return np.array(column, kind)
    if kind is not str:
        return None
    try:
        if len(set(column)) * 2 < len(column):  # a pandas without its compact text type keeps objects: share equal ones
            one = dict(zip(column, column, strict=True))
            column = list(map(one.get, column))
        return pd.Series(column)
    except UnicodeEncodeError:
        return None
