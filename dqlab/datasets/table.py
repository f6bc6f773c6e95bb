"""A run's results as a lazy table, which reads nothing until it is asked, then one page at a time; and SQL over it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dqlab.datasets.columns import pandas_of
from dqlab.datasets.lineage import KEY, ORDINAL, check_columns
from dqlab.datasets.rows import SAMPLE, Rows, Shape, warn_of_rest
from dqlab.errors import BadOption, DqlabWarning, ExtraMissing, UsageError
from dqlab.imports import import_whole
from dqlab.numbers import few_of, many
from dqlab.texts import one_line
from dqlab.user_frames import level_of_user
from dqlab.waits import shown


class Source(Protocol):
    """Provides the rows of a run."""

    @property
    def name(self) -> str:
        """Name of the run."""
        ...

    @property
    def reasoned(self) -> bool:
        """Whether documents without a result are among the rows, with their reasons."""
        ...

    @property
    def lined(self) -> bool:
        """Whether rows have the columns `ROW_LINEAGE`."""
        ...

    @property
    def declared(self) -> Sequence[Mapping[str, Any]]:
        """Columns of `schemas` that its code versions declare."""
        ...

    def count(self) -> int:
        """Return the present number of rows."""
        ...

    def now(self) -> Source:
        """Return a source of the present rows only."""
        ...

    def rows(self, most: int | None = None) -> Iterator[Rows]:
        """Yield pages of the present rows in the order of the input; the caller needs only `most` rows."""
        ...


class Reading:
    """One pass over all rows, whose types widen on the way, so that `shape` has the final schema only at the end."""

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
    """The results of a run as a table, also while the run continues; `run.table()` returns it.

    Nothing is read until you ask for it. Each reading has the results that exist when it begins, in the order of the
    input, and holds one page of them as Python objects. Any library that reads Arrow can read it:
    ``polars.DataFrame(table)``, ``duckdb.sql("from table")``, ``pyarrow.table(table)``.

    The class in the function's return annotation defines the columns and their types, or else the first 1,000 values.
    The columns ``_key``, ``_ordinal``, ``_version``, ``_code``, ``_seconds``, ``_attempts``, ``_consumer`` and ``_at``
    show where a row comes from. Values that do not fit their column, and columns that appear later, are in ``_rest``,
    as JSON; objects that JSON cannot hold either are in neither. Reading them warns. `to_arrow`, `to_pandas` and
    `to_parquet` widen types for later values, for example from whole numbers to floats; a stream (`to_reader`,
    `to_batches`, `__arrow_c_stream__`) keeps its first schema.

    Parameters
    ----------
    source : Source
        Provides the rows.
    place : callable, optional
        Returns in words where they are stored, beside the queue.
    """

    def __init__(self, source: Source, place: Callable[[], str] = str) -> None:
        self._source, self._place = source, place
        self._known: Shape | None = None

    def __repr__(self) -> str:
        return f"<RunTable of {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # TypeError, as pickle expects of an object that cannot be pickled.
        raise TypeError("this object cannot be pickled; take along table.to_arrow()")

    @property
    def name(self) -> str:
        """Name of the run."""
        return self._source.name

    @property
    def schema(self) -> Any:
        """The present `pyarrow.Schema`; reads the first 1,000 values."""
        return self.shape().schema

    @property
    def columns(self) -> list[str]:
        """Names of its columns."""
        return list(self.schema.names)

    def count(self) -> int:
        """Return the present number of rows, without reading any."""
        return self._source.count()

    def place(self) -> str:
        """Return in words how many files of a sink contain the rows, their size and place; "" without a sink."""
        return self._place()

    def now(self) -> RunTable:
        """Return a table of the present rows, which does not get later ones."""
        table = RunTable(self._source.now(), self._place)
        table._known = self._known
        return table

    def in_rest(self) -> int:
        """Return how many rows have values in ``_rest``; reads all rows."""
        reading = self.reading()
        for _ in reading:
            pass
        return reading.shape.in_rest

    def head(self, n: int = 10) -> Any:
        """Return the first rows as a `pyarrow.Table`.

        Parameters
        ----------
        n : int, default 10
            Maximum number of rows.
        """
        n = max(0, n)
        shape, batches = self._first(n)
        return pa.Table.from_batches([shape.recast(batch) for batch in batches], shape.schema).slice(0, n)

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows as `pyarrow.RecordBatch` with one schema, one for each page of results.

        Parameters
        ----------
        columns : sequence of str, optional
            Only these, in this order.
        """
        wanted = self._wanted(columns)
        return self._batches(self.shape().copied(), wanted)

    def to_reader(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows as a `pyarrow.RecordBatchReader`, which fetches them as it is read, and warns at its end.

        Parameters
        ----------
        columns : sequence of str, optional
            Only these, in this order.
        """
        wanted, shape = self._wanted(columns), self.shape().copied()
        return pa.RecordBatchReader.from_batches(shape.schema_of(wanted), self._batches(shape, wanted))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows as a `pyarrow.Table`, in memory.

        Parameters
        ----------
        columns : sequence of str, optional
            Only these, in this order; reading does not keep the others.

        Raises
        ------
        ColumnNotFound
            There is no such column.
        ResultUnreadable
            A result cannot be unpickled here.
        """
        wanted = self._wanted(columns)
        found, shape = self._read(wanted)
        warn_of_rest(self.name, shape, wanted)
        return found

    def _read(self, wanted: list[str] | None = None) -> tuple[Any, Shape]:
        """Return the rows as an Arrow table, with the wanted columns alone, and their final shape."""
        reading = self.reading()
        batches = [
            batch if wanted is None else batch.select([name for name in wanted if name in batch.schema.names])
            for batch in reading
        ]
        shape = reading.shape
        recast = [shape.recast(batch, wanted) for batch in batches]
        self._known = shape.copied()
        return pa.Table.from_batches(recast, shape.schema_of(wanted)), shape

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return the rows as a pandas DataFrame, with the columns of `to_arrow`.

        A column with nulls and whole numbers above 2^53 has the type object, because floats would round them.

        Parameters
        ----------
        columns : sequence of str, optional
            Only these, in this order; reading does not keep the others.
        """
        return pandas_of(self.to_arrow(columns))

    def reading(self) -> Reading:
        """Return one pass over all rows, with a schema that may widen on the way."""
        return Reading(self._source, self.shape().copied())

    def query(self, sql: str) -> Any:
        """Return the result of a query over the table ``results``, which has the present rows; see `Run.query`."""
        return query(self.now(), sql, "use run.query; run.table().query has only the results")

    # --- known columns ------------------------------------------------------------------------------

    def shape(self) -> Shape:
        """Return the known columns and types, after reading again if fewer than 1,000 values were seen."""
        if self._known is None or self._known.seen < SAMPLE:
            return self._first(0)[0].copied()
        return self._known

    def _first(self, n: int) -> tuple[Shape, list[Any]]:
        """Learn the columns from the first values, and return the shape and batches of at least `n` rows."""
        source = self._source.now()  # asks only once which results there are
        shape = Shape(reasoned=source.reasoned, lined=source.lined)
        for columns in source.declared:
            shape.declare(columns)
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

    def _batches(self, shape: Shape, wanted: list[str] | None) -> Iterator[Any]:
        try:
            for rows in self._source.rows():
                for batch in shape.batches(rows, widen=False):
                    yield batch if wanted is None else batch.select(wanted)
        finally:  # also if the reader stops early
            warn_of_rest(self.name, shape, wanted)


# --- SQL, through DuckDB, which is optional ---

_ALL = re.compile(r"(?<!\()\*")
"""Matches ``*`` for all columns, but not ``count(*)``."""
_RESULTS, _SOURCE = (re.compile(rf"\b{name}\b", re.IGNORECASE) for name in ("results", "source"))
_SHOWN = 12
"""Columns of a table that an error lists."""
_KEY_ALONE = "key"
"""Second name of the column ``_key`` in SQL, so that results and source join by ``using (key)``."""


class QueryError(UsageError):
    """A query fails, because it is not SQL or names something that does not exist."""

    text = "the query over run {run!r} failed: {reason}. Nothing was changed. Tables and columns: {known}."


def query(results: RunTable, sql: str, source: RunTable | str) -> Any:
    """Return the result of a query over the tables ``results`` and ``source`` as a pandas DataFrame."""
    # `source` is a text, why there is no table, if the run's input is not available here.
    if not isinstance(sql, str) or not sql.strip():
        problem = "is not a query. Write one as a text: 'select * from results'."
        raise BadOption(option="sql", value=sql, problem=problem)
    with ExtraMissing.without("duckdb", what="queries of results", extra="lab,tables"):
        import_whole("duckdb", "pandas")  # pandas too, or DuckDB would raise its own error for it
    import duckdb

    tables = {"results": results}
    if _SOURCE.search(sql):
        if isinstance(source, str):
            raise UsageError(
                reason=f"the query names the table source, and the input of run {results.name!r} cannot be read here: "
                f"{source}. Nothing was read. Map the same documents under the run's name in this process, or join "
                "with a table of your own: run.join(frame, on='key')."
            )
        tables["source"] = source
    read = {name: table._read() for name, table in tables.items()}
    with duckdb.connect() as connection:
        for name, (rows, _) in read.items():
            connection.register(name, _keyed(rows))
        try:
            frame = _frame(connection.sql(sql), results.name)
        except duckdb.Error as error:
            known = "; ".join(
                f"{name} ({few_of(_keyed(rows).column_names, _SHOWN)})" for name, (rows, _) in read.items()
            )
            reason = one_line(error, 400).rstrip(".!? ")
            raise QueryError(run=results.name, reason=reason, known=known) from None
    shape = read["results"][1]
    named = [name for name in shape.schema.names if name.lower() in sql.lower()]
    warn_of_rest(results.name, shape, None if _ALL.search(sql) else named)
    if "source" in read and _RESULTS.search(sql) and ORDINAL not in sql:
        _warn_of_keys(results.name, read["source"][0].column(KEY))
    return frame


def _keyed(rows: Any) -> Any:
    """Return a table with a column ``key`` if it has none."""
    has = _KEY_ALONE in {name.lower() for name in rows.column_names}
    return rows if has else rows.add_column(0, _KEY_ALONE, rows.column(KEY))


def _warn_of_keys(run: str, keys: Any) -> None:
    """Warn about a key of several documents, whose rows a join by key multiplies."""
    counts = keys.value_counts()
    again = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(again):
        said = (
            f"run {run!r}: key {again[0].as_py()!r} belongs to more than one document, so rows that the query joins "
            "by it come once for each of them. Join by the position in the input, which never repeats: using "
            "(_ordinal)."
        )
        warnings.warn(said, DqlabWarning, stacklevel=level_of_user())


def _frame(found: Any, run: str) -> Any:
    """Return a query's result as a pandas DataFrame."""
    if found is None:
        reason = "it returns no rows; write one that does: select ... from results"
        raise QueryError(run=run, reason=reason, known="results")
    table = found.arrow()
    table = table.read_all() if isinstance(table, pa.RecordBatchReader) else table
    for at, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            table = table.set_column(at, field.name, _number(table.column(at)))
    return pandas_of(table)


def _number(column: Any) -> Any:
    """Return decimals, which DuckDB has for sums and fractions, as numbers that are equal, or unchanged."""
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            made = column.cast(kind)
            if made.cast(column.type).equals(column):
                return made
    return column
