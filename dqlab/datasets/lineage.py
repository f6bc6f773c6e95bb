"""Where a row comes from: the names of the columns that show it, and these columns, made from settlements.

A page of results has several pieces, each with a `Lineage`; `Gathered` joins many of them into arrays. Loads neither
pyarrow nor pandas before arrays are requested.
"""

from __future__ import annotations

import datetime
from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, repeat
from typing import Any

from dqlab.documents.keys import check_column
from dqlab.frame import Made
from dqlab.texts import shown

KEY, ORDINAL, CODE, ERROR, REST = "_key", "_ordinal", "_code", "_error", "_rest"
LINEAGE = (KEY, ORDINAL, "_version", CODE, "_seconds", "_attempts", "_consumer", "_at", ERROR, REST)
"""Names that no column of a user gets in an Arrow table; a user's column of that name gets one more underscore."""
ROW_LINEAGE = ("_version", CODE, "_seconds", "_attempts", "_consumer", "_at")
"""Columns that only the consumer that made a row knows."""


def check_columns(columns: Sequence[str], known: Sequence[str], run: str) -> None:
    """Raise `ColumnNotFound`, which names the known columns, for a column that is not among them."""
    for column in columns:
        check_column(column, known, run, "returned")


# --- how results were made, as columns ---

SECONDS, AT, ATTEMPTS = "_seconds", "_at", "_attempts"
UNKNOWN = -(2**63)
"""An unknown time; the value of numpy's NaT."""
_NAN = float("nan")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Lineage:
    """How some consecutive results were made, decoded only when a column is requested."""

    # `made` is None for documents without a result, and for results in a log from before lineage was recorded; `code`
    # is then the version that made all results of the run, if it is known.
    __slots__ = ("_code", "_made", "_start", "_stop")

    def __init__(self, made: Made | None, start: int, stop: int, code: str | None = None) -> None:
        self._made, self._start, self._stop, self._code = made, start, stop, code

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def code(self) -> str | None:
        """Short version of the code that made the results, or None if that is unknown."""
        return self._code if self._made is None else self._made.code

    def cut(self, start: int, stop: int) -> Lineage:
        """Return the lineage of the results from `start` up to `stop`."""
        return Lineage(self._made, self._start + start, self._start + stop, self._code)

    def runs(self, name: str) -> Iterable[tuple[Any, int]]:
        """Return a column of texts or attempts as runs of equal values, (value, length), with None for unknown ones."""
        made, start, stop = self._made, self._start, self._stop
        if made is None:
            return [(self._code if name == CODE else None, len(self))]
        if name == ATTEMPTS:
            return made.attempts(start, stop)
        if name == "_version":
            return [(shown(version) or None, n) for version, n in made.versions(start, stop)]
        return [(shown(made.code if name == CODE else made.consumer) or None, stop - start)]

    def seconds(self) -> array[float]:
        """Return how long each result took, with NaN for unknown ones."""
        if self._made is None:
            return array("d", [_NAN]) * len(self)
        return array("d", self._made.seconds(self._start, self._stop))

    def moments(self) -> array[int]:
        """Return when each result was made, in microseconds since 1970 UTC, or `UNKNOWN`."""
        if self._made is None:
            return array("q", [UNKNOWN]) * len(self)
        at, ages = round(self._made.at * 1e6), self._made.ages(self._start, self._stop)
        if ages is None:
            return array("q", [at]) * len(self)
        return array("q", [at - round(age * 1e6) if -1e9 < age < 1e9 else UNKNOWN for age in ages])


class Gathered:
    """Collects columns of lineage, piece by piece, in the order of the results."""

    def __init__(self, names: Collection[str] = ROW_LINEAGE) -> None:
        self.names = [name for name in ROW_LINEAGE if name in names]
        self._values: dict[str, list[Any]] = {name: [] for name in self.names if name not in (SECONDS, AT)}
        self._seconds, self._moments = array("d"), array("q")

    def add(self, lineage: Lineage) -> None:
        """Add the lineage of the next results."""
        for name, values in self._values.items():
            for value, n in lineage.runs(name):
                values += [value] * n
        if SECONDS in self.names:
            self._seconds += lineage.seconds()
        if AT in self.names:
            self._moments += lineage.moments()

    def arrow(self, counts: Sequence[int] | None = None) -> dict[str, Any]:
        """Return the columns as Arrow arrays, with each result as often as `counts` says, or once."""
        import pyarrow as pa
        import pyarrow.compute as pc

        made = {
            name: pa.array(values, pa.int64() if name == ATTEMPTS else pa.string())
            for name, values in self._values.items()
        }
        if SECONDS in self.names:
            column = pa.Array.from_buffers(pa.float64(), len(self._seconds), [None, pa.py_buffer(self._seconds)])
            made[SECONDS] = pc.if_else(pc.is_nan(column), None, column)
        if AT in self.names:
            numbers = pa.Array.from_buffers(pa.int64(), len(self._moments), [None, pa.py_buffer(self._moments)])
            known = pc.if_else(pc.equal(numbers, UNKNOWN), None, numbers)
            made[AT] = known.cast(pa.timestamp("us", tz="UTC"))
        if counts is not None:
            at = pa.array(chain.from_iterable(map(repeat, range(len(counts)), counts)), pa.int64())
            made = {name: column.take(at) for name, column in made.items()}
        return made

    def pandas(self, name: str, index: Any) -> Any:
        """Return a column as a pandas Series with this index."""
        import numpy as np
        import pandas as pd

        if name == SECONDS:
            # Copy: a view would keep `array` from growing, and change with it.
            return pd.Series(np.frombuffer(self._seconds, np.float64).copy(), index)
        if name == AT:
            moments = np.frombuffer(self._moments, np.int64).copy().view("datetime64[us]")
            return pd.Series(moments, index).dt.tz_localize("UTC")
        values = self._values[name]
        if name == ATTEMPTS:
            return pd.Series(values, index, dtype="Int64" if None in values else "int64")
        return pd.Series(values, index, dtype=None if values else object)
