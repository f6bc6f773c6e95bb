"""A run's results as a lazy table: nothing is read before it is asked for, and then a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dqlab.datasets.lineage import check_columns
from dqlab.datasets.plain import EXACT
from dqlab.datasets.rows import SAMPLE, Rows, Shape, warn_of_rest
from dqlab.datasets.sql import query
from dqlab.numbers import many
from dqlab.waits import shown

__all__ = ["Reading", "RunTable", "Source"]


class Source(Protocol):
    """Where the rows of a run come from."""

    @property
    def name(self) -> str:
        """Name of the run."""
        ...

    @property
    def reasoned(self) -> bool:
        """Whether documents without a result are among the rows, with the reason."""
        ...

    @property
    def lined(self) -> bool:
        """Whether rows know by whom and when they were made, as results do."""
        ...

    def count(self) -> int:
        """Return how many rows there are now."""
        ...

    def now(self) -> Source:
        """Return a source of the rows that there are now, and of no more."""
        ...

    def rows(self, most: int | None = None) -> Iterator[Rows]:
        """Yield pages of the rows that there are now, in the order of the input; `most` bounds how many are needed."""
        ...


def _has_large(column: Any) -> bool:
    """Return whether numbers with a point, which pandas makes of whole ones beside nulls, would round one of them."""
    if pa.types.is_list(column.type):
        return _has_large(pc.list_flatten(column))
    if pa.types.is_struct(column.type):
        return any(map(_has_large, column.flatten()))
    if not pa.types.is_integer(column.type) or not column.null_count:
        return False
    ends = pc.min_max(column).as_py()
    return ends["max"] is not None and (ends["min"] < -EXACT or ends["max"] > EXACT)


class Reading:
    """One pass over all rows. Types widen as they must, so the schema is that of `shape` when it is over."""

    def __init__(self, source: Source, shape: Shape) -> None:
        self._source, self.shape = source, shape

    def __iter__(self) -> Iterator[Any]:
        count = 0
        with shown(f"reading {many(self._source.count(), 'result')} of run {self._source.name!r}") as wait:
            for rows in self._source.rows():
                yield from self.shape.batches(rows, widen=True)
                count += len(rows)
                wait.step(f"{count:,} read")


class RunTable:
    """The results of a run as a table, also while the run goes on; what `run.table()` returns.

    Nothing is read until it is asked for. Each reading has the results that are there when it begins, in the order of
    the input, and holds one page of them as Python objects. Whatever reads Arrow reads it:
    ``polars.DataFrame(table)``, ``duckdb.sql("from table")``, ``pyarrow.table(table)``.

    Columns are those of the first 1,000 values, and of their types, and those that say where a row comes from:
    ``_key``, ``_ordinal``, ``_version``, ``_code``, ``_seconds``, ``_attempts``, ``_consumer`` and ``_at``. What does
    not fit a column, and columns that come later, stand in ``_rest``, as JSON. `to_arrow`, `to_pandas` and `to_parquet`
    widen types for what comes later, as from whole numbers to numbers with a point; a stream (`to_reader`,
    `to_batches`, `__arrow_c_stream__`) keeps the schema that it began with.

    Parameters
    ----------
    source : Source
        Gives the rows.
    place : callable, optional
        Returns in words where they are stored, beside the queue.
    """

    def __init__(self, source: Source, place: Callable[[], str] = str) -> None:
        self._source, self._place = source, place
        self._known: Shape | None = None

    def __repr__(self) -> str:
        return f"<RunTable of {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("it stays in the process that made it; take along table.to_arrow()")  # pickle asks for it

    @property
    def name(self) -> str:
        """Name of the run."""
        return self._source.name

    @property
    def schema(self) -> Any:
        """Its schema as it is known now, a `pyarrow.Schema`; reads the first 1,000 values."""
        return self.shape().schema

    @property
    def columns(self) -> list[str]:
        """Names of its columns."""
        return list(self.schema.names)

    def count(self) -> int:
        """Return how many rows there are now, without reading any."""
        return self._source.count()

    def place(self) -> str:
        """Return in words where a sink has the rows, in how many files, of how many bytes; "" without a sink."""
        return self._place()

    def now(self) -> RunTable:
        """Return a table of the rows that there are now, which stays at those."""
        table = RunTable(self._source.now(), self._place)
        table._known = self._known
        return table

    def in_rest(self) -> int:
        """Return how many rows have something in ``_rest``; reads all of them."""
        reading = self.reading()
        for _ in reading:
            pass
        return reading.shape.in_rest

    def head(self, n: int = 10) -> Any:
        """Return the first rows as a `pyarrow.Table`.

        Parameters
        ----------
        n : int, default 10
            How many at most.
        """
        n = max(0, n)
        shape, batches = self._first(n) if self._learns else (self.shape().copied(), None)
        if batches is None:
            batches, left = list[Any](), n
            for rows in self._source.rows(left) if left else ():
                batches += shape.batches(rows.cut(0, left), widen=True)
                left -= min(left, len(rows))
                if not left:
                    break
        return pa.Table.from_batches([shape.recast(batch) for batch in batches], shape.schema).slice(0, n)

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield its rows as `pyarrow.RecordBatch` of one schema, one page of results each.

        Parameters
        ----------
        columns : sequence of str, optional
            These alone, in this order.
        """
        shape, wanted = self._stream(columns)
        return self._batches(shape, wanted)

    def to_reader(self, columns: Sequence[str] | None = None) -> Any:
        """Return its rows as a `pyarrow.RecordBatchReader`, which reads as it is read, and warns at its end.

        Parameters
        ----------
        columns : sequence of str, optional
            These alone, in this order.
        """
        shape, wanted = self._stream(columns)
        schema = shape.schema if wanted is None else pa.schema([shape.schema.field(name) for name in wanted])
        return pa.RecordBatchReader.from_batches(schema, self._batches(shape, wanted))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self, columns: Sequence[str] | None = None) -> Any:
        """Return its rows as a `pyarrow.Table`, in memory.

        Parameters
        ----------
        columns : sequence of str, optional
            Only these, in this order; the others are not kept while it reads.

        Raises
        ------
        ColumnUnknown
            There is no such column.
        ResultUnreadable
            A result cannot be unpickled here.
        """
        wanted = self._wanted(columns)
        reading = self.reading()
        batches = [batch if wanted is None else batch.select(_there(batch, wanted)) for batch in reading]
        shape = reading.shape
        recast = [shape.recast(batch, wanted) for batch in batches]
        self._known = shape.copied()
        warn_of_rest(self.name, shape, wanted)
        return pa.Table.from_batches(recast, shape.schema_of(wanted))

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return its rows as a pandas DataFrame, with the columns that `to_arrow` has.

        A column with nulls and whole numbers above 2^53 is one of objects: as numbers with a point they would change.

        Parameters
        ----------
        columns : sequence of str, optional
            Only these, in this order; the others are not kept while it reads.
        """
        table = self.to_arrow(columns)
        rounded = [name for name in table.column_names if _has_large(table[name])]
        exact = {name: table[name].to_pandas(integer_object_nulls=True) for name in rounded}
        frame = table.to_pandas(self_destruct=True, split_blocks=True)
        for name, column in exact.items():
            frame[name] = column
        return frame

    def reading(self) -> Reading:
        """Return one pass over all rows, with a schema that may widen on the way."""
        return Reading(self._source, self.shape().copied())

    def batches_of(self, shape: Shape) -> Iterator[Any]:
        """Yield its rows as batches of the schema that a shape has; what does not fit it goes into the rest."""
        for rows in self._source.rows():
            yield from shape.batches(rows, widen=False)

    def query(self, sql: str) -> Any:
        """Return what a query over the table ``results``, the rows that there are now, finds; see `Run.query`."""
        return query(self.now(), sql, "run.query has it, and run.table().query has results alone")

    # --- what it knows of its columns ---------------------------------------------------------------

    def shape(self) -> Shape:
        """Return the columns and types that are known; they are looked up again until 1,000 values were seen."""
        if self._learns or self._known is None:
            self._first(0)
        assert self._known is not None
        return self._known

    @property
    def _learns(self) -> bool:
        """Whether it has not seen as many values as its columns come from."""
        return self._known is None or self._known.seen < SAMPLE

    def _first(self, n: int) -> tuple[Shape, list[Any]]:
        """Learn the columns from the first values; return the shape of as many rows or of `n`, and these as batches."""
        source = self._source.now()  # one question which results there are
        shape = Shape(reasoned=source.reasoned, lined=source.lined)
        left, batches = max(n, SAMPLE), list[Any]()
        for rows in source.rows(left):
            batches += shape.batches(rows.cut(0, left), widen=True)
            left -= min(left, len(rows))
            if not left:
                break
        self._known = shape.copied()
        return shape, batches

    def _wanted(self, columns: Sequence[str] | None) -> list[str] | None:
        if columns is None:
            return None
        wanted = [columns] if isinstance(columns, str) else list(columns)
        check_columns(wanted, self.columns, self.name)
        return wanted

    def _stream(self, columns: Sequence[str] | None) -> tuple[Shape, list[str] | None]:
        wanted = self._wanted(columns)
        return self.shape().copied(), wanted

    def _batches(self, shape: Shape, wanted: list[str] | None) -> Iterator[Any]:
        try:
            for batch in self.batches_of(shape):
                yield batch if wanted is None else batch.select(wanted)
        finally:  # also where it is not read to its end
            warn_of_rest(self.name, shape, wanted)


def _there(batch: Any, wanted: Sequence[str]) -> list[str]:
    """Return the columns of a batch that are wanted; in an early one some may not be there yet."""
    names = set(batch.schema.names)
    return [name for name in wanted if name in names]
