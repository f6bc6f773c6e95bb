"""How results were made, as columns: from settlements, or from the rows of a sink.

A page of results comes in pieces, each with a `Lineage`; `Gathered` makes arrays of those of many. Loads
neither pyarrow nor pandas before arrays are asked for.
"""

from __future__ import annotations

import datetime
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, groupby, repeat
from typing import Any, Protocol

from dqlab.datasets.lineage import CODE, ROW_LINEAGE
from dqlab.frame import Made
from dqlab.texts import shown

__all__ = ["Gathered", "Lineage", "MadeRows", "SinkLineage", "Unrecorded", "lineage_of"]

SECONDS, AT, ATTEMPTS = "_seconds", "_at", "_attempts"
UNKNOWN = -(2**63)
"""A time that is not known; numpy calls it NaT."""
_NAN = float("nan")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class Lineage(Protocol):
    """How some neighbouring results were made."""

    def __len__(self) -> int: ...

    def cut(self, start: int, stop: int) -> Lineage:
        """Return that of those from one position to before another."""
        ...

    def runs(self, name: str) -> Iterable[tuple[Any, int]]:
        """Return a column of texts or of attempts as runs of equal values, None where it is not known: (value, n)."""
        ...

    def seconds(self) -> array[float]:
        """Return how long each took, NaN where it is not known."""
        ...

    def moments(self) -> array[int]:
        """Return when each was made, microseconds since 1970 UTC; `UNKNOWN` where it is not known."""
        ...


class MadeRows:
    """That of results whose settlement has it; nothing of it is opened before a column is asked for."""

    __slots__ = ("_made", "_start", "_stop")

    def __init__(self, made: Made, start: int, stop: int) -> None:
        self._made, self._start, self._stop = made, start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    def cut(self, start: int, stop: int) -> MadeRows:
        """Return that of those from one position to before another."""
        return MadeRows(self._made, self._start + start, self._start + stop)

    def runs(self, name: str) -> Iterable[tuple[Any, int]]:
        """Return a column as runs of equal values."""
        made, start, stop = self._made, self._start, self._stop
        if name == ATTEMPTS:
            return made.attempts(start, stop)
        if name == "_version":
            return [(shown(version) or None, n) for version, n in made.versions(start, stop)]
        return [(shown(made.code if name == CODE else made.consumer) or None, stop - start)]

    def seconds(self) -> array[float]:
        """Return how long each took."""
        return array("d", self._made.seconds(self._start, self._stop))

    def moments(self) -> array[int]:
        """Return when each was made."""
        at, ages = round(self._made.at * 1e6), self._made.ages(self._start, self._stop)
        if ages is None:
            return array("q", [at]) * len(self)
        return array("q", [at - round(age * 1e6) if -1e9 < age < 1e9 else UNKNOWN for age in ages])


class SinkLineage:
    """That of rows of a sink, which stands in their parts."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def cut(self, start: int, stop: int) -> SinkLineage:
        """Return that of those from one position to before another."""
        return SinkLineage(self._rows[start:stop])

    def runs(self, name: str) -> Iterable[tuple[Any, int]]:
        """Return a column as runs of equal values."""
        return ((value, sum(1 for _ in alike)) for value, alike in groupby(row.get(name) for row in self._rows))

    def seconds(self) -> array[float]:
        """Return how long each took."""
        found = (row.get(SECONDS) for row in self._rows)
        return array("d", (_NAN if each is None else each for each in found))

    def moments(self) -> array[int]:
        """Return when each was made."""
        found = (row.get(AT) for row in self._rows)
        return array("q", (UNKNOWN if each is None else (each - _EPOCH) // _MICROSECOND for each in found))


class Unrecorded:
    """That of results of a log from before it was recorded; and of documents that have none.

    Parameters
    ----------
    count : int
    code : str, optional
        The code version that made all results of the run.
    """

    __slots__ = ("_code", "_count")

    def __init__(self, count: int, code: str | None = None) -> None:
        self._count, self._code = count, code

    def __len__(self) -> int:
        return self._count

    def cut(self, start: int, stop: int) -> Unrecorded:
        """Return that of those from one position to before another."""
        return Unrecorded(stop - start, self._code)

    def runs(self, name: str) -> Iterable[tuple[Any, int]]:
        """Return one run without a value, but for the code."""
        return [(self._code if name == CODE else None, self._count)]

    def seconds(self) -> array[float]:
        """Return as many NaN."""
        return array("d", [_NAN]) * self._count

    def moments(self) -> array[int]:
        """Return as many unknown times."""
        return array("q", [UNKNOWN]) * self._count


def lineage_of(rows: Sequence[Mapping[str, Any]], made: Lineage | None) -> Lineage:
    """Return the lineage of rows of a sink: the settlement's, where the sink of a user's own returns values alone."""
    if made is not None and not any(value is not None for row in rows for value in row.values()):
        return made
    return SinkLineage(rows)


class Gathered:
    """Columns of lineage of results in their order, as they come; it keeps nothing but their values.

    Parameters
    ----------
    names : collection of str, optional
        Those of `ROW_LINEAGE` that are wanted.
    """

    def __init__(self, names: Collection[str] = ROW_LINEAGE) -> None:
        self.names = [name for name in ROW_LINEAGE if name in names]
        self._runs = {name: _Runs() for name in self.names if name not in (SECONDS, AT)}
        self._seconds, self._moments = array("d"), array("q")

    def add(self, lineage: Lineage) -> None:
        """Add that of the next results."""
        for name, runs in self._runs.items():
            runs.add(lineage.runs(name))
        if SECONDS in self.names:
            self._seconds += lineage.seconds()
        if AT in self.names:
            self._moments += lineage.moments()

    def arrow(self) -> dict[str, Any]:
        """Return the columns as arrays of Arrow."""
        import pyarrow as pa
        import pyarrow.compute as pc

        made: dict[str, Any] = {}
        for name, runs in self._runs.items():
            kind = pa.int64() if name == ATTEMPTS else pa.string()
            if len(runs.values) == 1 and runs.values[0] is not None:
                made[name] = pa.repeat(pa.scalar(runs.values[0], kind), runs.lengths[0])
            else:
                made[name] = pa.array(runs.listed(), kind)
        if SECONDS in self.names:
            column = pa.Array.from_buffers(pa.float64(), len(self._seconds), [None, pa.py_buffer(self._seconds)])
            made[SECONDS] = pc.if_else(pc.is_nan(column), None, column)
        if AT in self.names:
            numbers = pa.Array.from_buffers(pa.int64(), len(self._moments), [None, pa.py_buffer(self._moments)])
            known = pc.if_else(pc.equal(numbers, UNKNOWN), None, numbers)
            made[AT] = known.cast(pa.timestamp("us", tz="UTC"))
        return made

    def pandas(self, name: str, index: Any) -> Any:
        """Return a column as a `pandas.Series` with an index."""
        import numpy as np
        import pandas as pd

        if name == SECONDS:
            return pd.Series(np.frombuffer(self._seconds, np.float64).copy(), index)
        if name == AT:
            moments = np.frombuffer(self._moments, np.int64).copy().view("datetime64[us]")
            return pd.Series(moments, index).dt.tz_localize("UTC")
        runs = self._runs[name]
        if name != ATTEMPTS:
            return pd.Series(runs.listed(), index, dtype=None if runs.values else object)
        if None in runs.values:
            return pd.Series(runs.listed(), index, dtype="Int64")
        return pd.Series(np.repeat(np.array(runs.values, np.int64), np.array(runs.lengths, np.int64)), index)


class _Runs:
    """A column as runs of equal values: a tuple for each would take 56 bytes more."""

    __slots__ = ("lengths", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.lengths = array("q")

    def add(self, runs: Iterable[tuple[Any, int]]) -> None:
        values, lengths = self.values, self.lengths
        for value, n in runs:
            if values and values[-1] == value:
                lengths[-1] += n
            else:
                values.append(value)
                lengths.append(n)

    def listed(self) -> list[Any]:
        """Return the value of each row."""
        return list(chain.from_iterable(map(repeat, self.values, self.lengths)))
