"""Rows of frames in memory as documents: pandas, polars, Arrow.

Owns reading a frame piece by piece, what its values become, and the version of a row. Imports none of these libraries,
because the process that made a frame has imported its library.

In a pandas frame, None, NaN, NaT and NA all mean that a value is missing. They become None, as in the Parquet file that
pandas would write. polars and Arrow distinguish null from NaN, and so do their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

from dqlab.documents.document import Document, largest_row, made
from dqlab.documents.keys import KEYS_OF_FRAME, Keys, check_columns, chosen, content_of, key_of_row
from dqlab.documents.parquet import OTHER_REASONS, plain_values
from dqlab.documents.parts import Inline
from dqlab.errors import BadOption, RecordInvalid, in_words
from dqlab.imports import loaded

ROWS_AT_ONCE = 1000
"""Rows that become Python objects at once, as long as they have no more values than `VALUES_AT_ONCE`."""
VALUES_AT_ONCE = 200_000
_tuple = tuple.__new__


@dataclass(frozen=True)
class Table:
    """How to read a frame."""

    kind: str
    """Names the frame in errors."""
    names: list[Any]
    """Labels of its columns."""
    read: Callable[[int, int, Sequence[int]], Iterator[list[Any]]]
    """Takes (start, stop) and positions of columns; yields a list of values for each of these."""
    index: Callable[[int, int], list[Any]] | None
    """Takes (start, stop); returns the labels of these rows. None if rows have no labels."""
    count: int
    """Rows."""
    index_name: Any = None
    """The name of the index; passed as `key`, it means that labels are the keys."""
    first: int | None = None
    """The label of the first row if the following ones count up from it, so that labels may be mere positions."""


class FrameRows:
    """All rows of one frame, or of several in order."""

    repeats = True

    def __init__(
        self,
        tables: Callable[[], Iterable[Table]],
        key: Any,
        columns: Any,
        kind: str,
        label: str,
        *,
        by_index: bool = False,
    ) -> None:
        # `tables` returns the frames again each time. `key` is the label of the column with the keys, or None for the
        # index of pandas, or else positions. With `by_index`, labels are the keys even if the index is the default one.
        self._tables, self._key, self._columns = tables, key, chosen(columns)
        self._by_index = by_index
        words = [f"<{kind}>", *([] if key is None else [f"key={key!r}"])]
        words += [] if self._columns is None else [f"columns={self._columns!r}"]
        self.label, self._where = f"Documents.{label}({', '.join(words)})", f"<{kind}>"

    @classmethod
    def of(cls, table: Table, key: Any, columns: Any, kind: str, label: str) -> FrameRows:
        """Return the rows of one frame, whose column names are checked now."""
        if key is not None and key == table.index_name and key not in table.names:
            key = None
        rows = cls(lambda: (table,), key, columns, kind, label)
        rows._check(table)
        return rows

    def documents(self) -> Iterator[Document]:
        """List the rows, turning a thousand at a time into Python objects."""
        # Rows are numbered across frames while each has the default index, or continues that of the one before. After
        # the first frame with labels of its own, such as a filtered partition, the labels of all frames are the keys,
        # and could equal positions that were keys before.
        before, labelled, keys = 0, self._by_index, Keys(KEYS_OF_FRAME)
        for table in self._tables():
            if not labelled and table.index is not None and table.first not in (0, before) and table.count:
                labelled = True
                keys.seen.update(range(before))
            yield from self._rows_of(table, before, keys, labelled=labelled and table.index is not None)
            before += table.count

    def count(self) -> int:
        """Return the number of rows."""
        return sum(table.count for table in self._tables())

    def _rows_of(self, table: Table, before: int, keys: Keys, *, labelled: bool) -> Iterator[Document]:
        names, positions = self._check(table)
        about = content_of(names)
        seed, limit = blake2b(about, digest_size=16), largest_row() - len(about)
        step = max(1, min(ROWS_AT_ONCE, VALUES_AT_ONCE // max(1, len(names))))
        for start in range(0, table.count, step):
            stop, first = min(start + step, table.count), before + start
            numbers: Sequence[Any] = range(first, before + stop)
            rows = list(zip(*_columns(table, start, stop, positions, first), strict=True)) or [()] * len(numbers)
            named = numbers
            if self._key is not None:
                (named,) = _columns(table, start, stop, (table.names.index(self._key),), first)
            elif labelled:
                named = cast(Any, table.index)(start, stop)
            for position, key, row in zip(numbers, named, rows, strict=True):
                if named is not numbers:
                    column = "index" if self._key is None else self._key
                    keys.add(key_of_row(key, column, self._where, position, KEYS_OF_FRAME), f"row {position}")
                content, hashed = content_of(row), seed.copy()
                hashed.update(content)
                sent = row if len(content) <= limit else len(content)  # without values that do not fit into a message
                yield made(key, "", hashed.hexdigest(), None, _tuple(Inline, (names, sent)))

    def _check(self, table: Table) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Return the names of the chosen columns, and their positions in the frame."""
        names = table.names if self._columns is None else self._columns
        check_columns([*names, *([] if self._key is None else [self._key])], table.names, table.kind)
        return tuple(names), tuple(map(table.names.index, names))


def _columns(table: Table, start: int, stop: int, positions: Sequence[int], first: int) -> list[list[Any]]:
    """Return the values of some columns, or raise `RecordInvalid` if Python cannot hold one of them."""
    reading, columns = table.read(start, stop, positions), list[list[Any]]()
    for position in positions:
        try:
            columns.append(next(reading))
        except OTHER_REASONS:
            raise
        except Exception as error:
            name, last = table.names[position], first + stop - start - 1
            raise RecordInvalid(
                reason=f"a value of column {name!r}, in rows {first:,} to {last:,}, is one that Python cannot "
                f"hold: {in_words(error)}. The rows before them were listed, and those that were submitted go on. "
                "Correct the value, or choose other columns with columns=[...], and map the rows again.",
                column=name,
            ) from error
    return columns


# --- frames ---------------------------------------------------------------------------------


def rows_of_frame(frame: Any, key: Any, columns: Any) -> FrameRows:
    """Return the rows of a frame in memory."""
    return FrameRows.of(table_of(frame), key, columns, type(frame).__name__, "from_frame")


def rows_of_dask(collection: Any, key: Any, columns: Any) -> FrameRows:
    """Return the rows of a Dask DataFrame, or of a bag of dicts, computed partition by partition."""
    kind = type(collection).__name__
    if not hasattr(collection, "__dask_graph__") or not hasattr(collection, "to_delayed"):
        problem = "is not a DataFrame or bag of Dask. Nothing was listed. A frame in memory: dq.Documents.from_frame."
        raise BadOption(option="collection", value=kind, problem=problem)

    def tables() -> Iterator[Table]:
        for delayed in collection.to_delayed():
            part = delayed.compute()
            yield (
                _of_records(list(part)) if isinstance(part, Iterable) and not hasattr(part, "iloc") else table_of(part)
            )

    names, by_index = getattr(collection, "columns", None), False
    if names is not None:
        by_index = key is not None and key not in list(names) and key == collection.index.name
        key = None if by_index else key
        wanted = [*(chosen(columns) or ()), *([] if key is None else [key])]
        check_columns(wanted, list(names), "dask DataFrame")
    return FrameRows(tables, key, columns, kind, "from_dask", by_index=by_index)


def rows_of_hf(dataset: Any, key: Any, columns: Any) -> FrameRows:
    """Return the rows of a Hugging Face dataset, which reads slices of its Arrow files."""
    kind, names = type(dataset).__name__, getattr(dataset, "column_names", None)
    if not isinstance(names, list) or not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        problem = (
            "has no rows by position. Nothing was listed. Choose a split: dataset['train']; a dataset that is streamed "
            "is mapped as it is: lab.map(function, dataset)."
        )
        raise BadOption(option="dataset", value=kind, problem=problem)

    def read(start: int, stop: int, columns: Sequence[int]) -> Iterator[list[Any]]:
        wanted = [names[at] for at in columns]
        # Select first: slicing all columns would decode pictures and sounds that nobody reads.
        narrow = dataset.select_columns(wanted) if hasattr(dataset, "select_columns") else dataset
        part = narrow[start:stop]
        return (list(part[name]) for name in wanted)

    return FrameRows.of(Table(kind, list(names), read, None, len(dataset)), key, columns, kind, "from_hf")


def _of_records(records: list[Any]) -> Table:
    """Return dicts as a table, with None for names that a dict lacks."""
    for record in records:
        if not isinstance(record, dict):
            problem = (
                "are not dicts, so they have no columns. Nothing more was listed. Make them dicts with "
                "bag.map(lambda x: {'text': x}), or map the values themselves: lab.map(function, values)."
            )
            raise BadOption(option="elements of the bag", value=record, problem=problem)
    names = list(dict.fromkeys(name for record in records for name in record))

    def read(start: int, stop: int, columns: Sequence[int]) -> Iterator[list[Any]]:
        return ([record.get(names[at]) for record in records[start:stop]] for at in columns)

    return Table("bag", names, read, None, len(records))


def table_of(frame: Any) -> Table:
    """Return how to read a frame, or raise `BadOption` with the call to use instead."""
    pandas, polars, arrow = (loaded(name) for name in ("pandas", "polars", "pyarrow"))
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        return _of_pandas(pandas, frame)
    if polars is not None and isinstance(frame, polars.DataFrame):
        return _of_polars(polars, frame)
    if arrow is not None and isinstance(frame, arrow.Table | arrow.RecordBatch):
        return _of_arrow(frame)
    kind = type(frame).__name__
    problem = (
        f"is a {kind}, not a DataFrame of pandas or polars, or an Arrow Table. Nothing was listed. Collect a LazyFrame "
        "first; a frame of Dask: dq.Documents.from_dask; a Series or other values: lab.map(function, values)."
    )
    raise BadOption(option="frame", value=kind, problem=problem)


def _of_arrow(frame: Any) -> Table:
    def read(start: int, stop: int, columns: Sequence[int]) -> Iterator[list[Any]]:
        return (plain_values(frame.column(at).slice(start, stop - start)) for at in columns)

    return Table(type(frame).__name__, list(frame.schema.names), read, None, frame.num_rows)


def _of_polars(polars: Any, frame: Any) -> Table:
    def read(start: int, stop: int, columns: Sequence[int]) -> Iterator[list[Any]]:
        part = frame.slice(start, stop - start)
        try:
            for at in columns:
                yield part.to_series(at).to_list()
        except polars.exceptions.PanicException as error:  # a BaseException that polars raises for distant times
            raise ValueError(str(error)) from error

    return Table("polars DataFrame", list(frame.columns), read, None, frame.height)


def _of_pandas(pandas: Any, frame: Any) -> Table:
    frame = frame.copy(deep=False)  # the user may drop rows from the original while this one is being read
    index = frame.index
    first = index.start if isinstance(index, pandas.RangeIndex) and index.step == 1 else None
    clean = _Cleaner(pandas)

    def read(start: int, stop: int, columns: Sequence[int]) -> Iterator[list[Any]]:
        part = frame.iloc[start:stop]
        return (clean.values(part.iloc[:, at]) for at in columns)

    def labels(start: int, stop: int) -> list[Any]:
        return clean.values(index[start:stop].to_series())

    names = [clean.value(name) for name in frame.columns]
    return Table("pandas DataFrame", names, read, labels, len(frame), index.name, first)


class _Cleaner:
    """Turns values of pandas into plain Python."""

    def __init__(self, pandas: Any) -> None:
        self._pandas = pandas
        self._numpy: Any = loaded("numpy")
        self._missing = (pandas.NA, pandas.NaT)

    def values(self, series: Any) -> list[Any]:
        """Return the values of a column."""
        kind = series.dtype
        values: list[Any] = series.tolist()
        code = getattr(kind, "kind", "O") if isinstance(kind, self._numpy.dtype) else "O"
        if code in "iub":
            return values
        if code == "f":
            return [None if value != value else value for value in values] if series.hasnans else values
        return [value if type(value) is str else self.value(value) for value in values]

    def value(self, value: Any) -> Any:
        """Return one value, cleaned also inside lists and dicts."""
        kind = type(value)
        if kind in (str, int, bool, bytes, type(None)):
            return value
        if kind is float:
            return None if value != value else value
        if value is self._missing[0] or value is self._missing[1]:
            return None
        if kind in (list, tuple):
            return kind(map(self.value, value))
        if kind is dict:
            return {self.value(key): self.value(each) for key, each in value.items()}
        pandas, numpy = self._pandas, self._numpy
        if isinstance(value, pandas.Timestamp):
            return value.to_pydatetime(warn=False)
        if isinstance(value, pandas.Timedelta):
            return value.to_pytimedelta()
        if isinstance(value, numpy.ndarray):
            # `tolist` would turn times in nanoseconds into whole numbers; the items of the array keep their type.
            plain = value[()] if value.dtype.kind in "mM" else value.tolist()
            return list(map(self.value, plain)) if value.ndim else self.value(plain)
        if isinstance(value, numpy.datetime64 | numpy.timedelta64):
            found = None if numpy.isnat(value) else value.astype(f"{value.dtype.kind}8[us]").item()
            if type(found) is int:
                raise OverflowError(f"{value} is out of range")
            return found
        if isinstance(value, numpy.generic):
            return self.value(value.item()) if type(value.item()) is not kind else value
        return value
