"""Pandas tables of results, including texts that are not valid Unicode, which pandas' own text type refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from numbers import Integral
from typing import Any

from dqlab.datasets.plain import EXACT, even_columns, row_of
from dqlab.datasets.yielded import exploded, spread

_NUMBERS = {int: "int64", float: "float64", bool: "bool"}
_DECLARED = {
    "bool": "bool",
    "int64": "int64",
    "double": "float64",
    "timestamp[us]": "datetime64[us]",
    "timestamp[us, UTC]": "datetime64[us, UTC]",
    "duration[us]": "timedelta64[us]",
}
"""Types in pandas, by the names of `datasets.schemas`, of columns that hold no objects."""


def index_of(keys: Sequence[Any]) -> Any:
    """Return keys as an index named ``key``, with objects if a key is not valid Unicode."""
    import pandas as pd

    try:
        return pd.Index(keys, name="key")
    except UnicodeEncodeError:
        return pd.Index(keys, name="key", dtype=object)


def series_of(values: Any, index: Any) -> Any:
    """Return values as a column with a fitting type, or with objects if that type would refuse or round a value."""
    import pandas as pd

    try:
        made = pd.Series(values, index)
    except UnicodeEncodeError:
        return pd.Series(values, index, dtype=object)
    # pandas makes floats of integers beside a missing value: above 2**53 they would become other numbers.
    return pd.Series(values, index, dtype=object) if _may_round(made) and _rounds(values) else made


def _may_round(column: Any) -> bool:
    return column.dtype == "float64" and bool((column.abs() >= EXACT).any())


def _rounds(values: Iterable[Any]) -> bool:
    """Return whether a float cannot represent some integer among the values exactly."""
    return any(
        isinstance(value, Integral) and abs(int(value)) > EXACT and int(float(value)) != value for value in values
    )


def frame_of(rows: Sequence[Mapping[Any, Any]], index: Any, columns: Sequence[str] | None = None) -> Any:
    """Return rows as a table, with these columns or all."""
    names = dict.fromkeys(chain.from_iterable(rows)) if columns is None else columns
    return _framed({name: series_of([row.get(name, math.nan) for row in rows], index) for name in names}, index)


def empty_frame(declared: Iterable[Mapping[str, Any]], columns: Sequence[Any] | None = None) -> Any:
    """Return a table without rows that has declared columns, or these columns."""
    import pandas as pd

    kinds = {name: column for each in declared for name, column in each.items()}
    of = {name: _DECLARED.get(column, object) if isinstance(column, str) else object for name, column in kinds.items()}
    frame = _framed({name: pd.Series([], dtype=kind) for name, kind in of.items()}, index_of([]))
    return frame if columns is None else frame.reindex(columns=columns)


def _framed(columns: Mapping[Any, Any], index: Any) -> Any:
    """Return columns by name as a table."""
    import pandas as pd

    # Built with numbers as names, named afterwards: pandas may take other names, such as tuples, for several levels.
    frame = pd.DataFrame(dict(enumerate(columns.values())), index=index, copy=False)
    try:
        frame.columns = pd.Index(list(columns), tupleize_cols=False)
    except UnicodeEncodeError:
        frame.columns = pd.Index(list(columns), dtype=object, tupleize_cols=False)
    return frame


class FrameRows:
    """Gathers results as the columns of a table, page by page.

    A dict, or an object of a class of fields, is a row; any other value is in a column ``value``, and None, as a result
    that is missing, is an empty row. Without any row, what replaces a missing result is in that column, too.
    """

    # Most results have the same columns with one plain type each. As Python objects a small row takes 400 bytes, here
    # a number takes eight.

    def __init__(self, replaces: Callable[[Any], bool] | None, only: Sequence[Any] | None = None) -> None:
        self._replaces, self._only = replaces, None if only is None else frozenset(only)
        self._columns: dict[Any, list[Any]] = {}
        """Arrays, and lists of values."""
        self._keys: list[Any] = []
        """Arrays of positions, and lists of keys."""
        self._count, self.has_dicts = 0, False
        self._parts: list[Any] = []
        """How many rows each result has, as arrays."""
        self._replaced: dict[int, Any] = {}
        self.reasons: list[str | None] = []
        """Why documents have no result, if these are among the rows."""
        self.others: dict[Any, None] = {}
        """Columns that were not asked for."""

    def add(self, values: Sequence[Any], keys: Sequence[Any] | None, ordinals: Sequence[int]) -> None:
        """Add results, whose keys are their ordinals if `keys` is None; of a generator, each row is one."""
        import numpy as np

        several = exploded(values)
        self._parts.append(np.ones(len(values), np.int64) if several is None else np.array(several[1], np.int64))
        if several is not None:
            values, counts = several
            keys = None if keys is None else list(spread(keys, counts))
            ordinals = list(spread(ordinals, counts)) if ordinals else ordinals
        if keys is None:
            positions = np.arange(ordinals.start, ordinals.stop) if isinstance(ordinals, range) else ordinals
        self._keys.append(np.asarray(positions, np.int64) if keys is None else keys)
        columns = even_columns(values) if self._replaces is None and len(values) else None
        if columns is None:
            rows = list(map(self._row, values))
            names = dict.fromkeys(chain.from_iterable(rows))
            columns = {name: [row.get(name, math.nan) for row in rows] for name in names if self._wants(name)}
        else:
            self.has_dicts = True
        for name, new in columns.items():
            if self._wants(name):
                before = [[math.nan] * self._count] if self._count else []
                self._columns.setdefault(name, before).append(_compact(new))
        self._count += len(values)
        for column in (column for name, column in self._columns.items() if name not in columns):
            column.append([math.nan] * len(values))

    def _wants(self, name: Any) -> bool:
        if self._only is None or name in self._only:
            return True
        self.others[name] = None
        return False

    def _row(self, value: Any) -> Mapping[Any, Any]:
        bad = self._replaces is not None and self._replaces(value)
        row = None if bad else row_of(value)
        if self._replaces is not None:
            self.reasons.append(str(value) if bad else None)
        self.has_dicts = self.has_dicts or row is not None
        if bad and not self.has_dicts:
            self._replaced[len(self.reasons) - 1] = value
        return {} if bad or value is None else {"value": value} if row is None else row

    def repeated(self, column: Any) -> Any:
        """Return an array or a Series of one value for each result with one for each row."""
        import numpy as np

        return column.repeat(np.concatenate([*self._parts, np.array([], np.int64)]))

    def frame(self) -> Any:
        """Return all rows by key."""
        import numpy as np
        import pandas as pd

        if all(isinstance(key, np.ndarray) for key in self._keys):
            index = pd.Index(np.concatenate([*self._keys, np.array([], np.int64)]), name="key")
        else:
            index = index_of(list(chain.from_iterable(map(_listed, self._keys))))
        if not self.has_dicts and self._only is None:
            column = self._columns.setdefault("value", [[None] * self._count])
            if self._replaced:
                values = list(chain.from_iterable(map(_listed, column)))
                self._columns["value"] = [[self._replaced.get(at, value) for at, value in enumerate(values)]]
        return _framed({name: _joined(column, index) for name, column in self._columns.items()}, index)


def _compact(column: list[Any]) -> Any:
    """Return values of one plain type as an array, or texts as a pandas Series, or other values unchanged."""
    import numpy as np
    import pandas as pd

    # `type`, not isinstance: True is an int, and a subclass of str would lose what makes it one.
    kinds = set(map(type, column))
    kind = kinds.pop() if len(kinds) == 1 else None
    try:
        if kind in _NUMBERS:
            return np.array(column, _NUMBERS[kind])
        if kind is not str:
            return column
        if len(set(column)) * 2 < len(column):  # a pandas without its compact text type keeps objects: share equal ones
            one = dict(zip(column, column, strict=True))
            column = list(map(one.__getitem__, column))
        return pd.Series(column)
    except (OverflowError, UnicodeEncodeError):  # beyond 64 bits, or not valid Unicode
        return column


def _joined(parts: Sequence[Any], index: Any) -> Any:
    import numpy as np
    import pandas as pd

    if all(isinstance(part, np.ndarray) and part.dtype == parts[0].dtype for part in parts):
        return np.concatenate(parts)
    if all(isinstance(part, pd.Series) for part in parts):
        return pd.concat(parts, ignore_index=True).array
    return series_of(list(chain.from_iterable(map(_listed, parts))), index)


def _listed(values: Any) -> Iterable[Any]:
    return values if isinstance(values, list | range) else values.tolist()
