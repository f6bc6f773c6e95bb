"""SQL over the results of a run, through DuckDB, which is optional."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dqlab.datasets.columns import pandas_of
from dqlab.datasets.lineage import KEY, ORDINAL
from dqlab.datasets.rows import Shape, warn_of_rest
from dqlab.errors import BadOption, DqlabWarning, ExtraMissing, UsageError
from dqlab.imports import import_whole
from dqlab.numbers import few_of
from dqlab.texts import one_line
from dqlab.user_frames import level_of_user

_ALL = re.compile(r"(?<!\()\*")
"""Matches ``*`` for all columns, but not ``count(*)``."""
_RESULTS, _SOURCE = (re.compile(rf"\b{name}\b", re.IGNORECASE) for name in ("results", "source"))
_SHOWN = 12
"""Columns of a table that an error lists."""
_KEY_ALONE = "key"
"""Second name of the column ``_key`` in SQL, so that results and source join by ``using (key)``."""


class QueryError(UsageError):
    """A query fails, because it is not SQL or names something that does not exist."""

    text = "the query over run {run!r} failed: {reason}.{hint} Nothing was changed. Tables and columns: {known}."


class Table(Protocol):
    """What SQL reads, such as a `RunTable`."""

    @property
    def name(self) -> str:
        """Name of the run."""
        ...

    def shape(self) -> Shape:
        """Return its columns and types."""
        ...

    def batches_of(self, shape: Shape) -> Iterator[Any]:
        """Yield its rows as batches with the schema of a shape."""
        ...


class _Stream:
    """A table for DuckDB with one schema for all readings, and with a column ``key`` if it has none."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._shape: Shape = table.shape()
        names = {name.lower() for name in self._shape.schema.names}
        self._keyed = _KEY_ALONE not in names
        self.error: BaseException | None = None
        self.read = self._shape
        """The shape after the reading."""
        self.keys: list[Any] = []
        """The keys, as arrays."""

    @property
    def names(self) -> list[str]:
        """The columns that a query can name."""
        return list(self._schema().names)

    def _schema(self) -> Any:
        schema = self._shape.schema
        return schema.insert(0, pa.field(_KEY_ALONE, schema.field(KEY).type)) if self._keyed else schema

    def _batches(self) -> Iterator[Any]:
        schema = self._schema()
        try:
            self.read, self.keys = self._shape.copied(), []
            for batch in self._table.batches_of(self.read):
                self.keys.append(batch.column(KEY))
                columns = [batch.column(KEY)] if self._keyed else []
                yield pa.RecordBatch.from_arrays([*columns, *batch.columns], schema=schema)
        except BaseException as error:
            self.error = error  # DuckDB keeps only the text; `query` raises the error itself
            raise

    def reader(self) -> Any:
        """Return a reader that begins at the first row."""
        return pa.RecordBatchReader.from_batches(self._schema(), self._batches())


def query(results: Table, sql: str, source: Table | str) -> Any:
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
    streams = {name: _Stream(table) for name, table in tables.items()}
    with duckdb.connect() as connection:
        try:
            for name, stream in streams.items():
                # Copied: a query may name a table twice, and a stream is read once.
                connection.register(f"{name}_stream", stream.reader())
                connection.execute(f"create temp table {name} as select * from {name}_stream")
            frame = _frame(connection.sql(sql), results.name)
        except duckdb.Error as error:
            for stream in streams.values():
                if stream.error is not None:
                    raise stream.error from None
            raise _refused(results.name, str(error), streams) from None
    read = streams["results"].read
    named = [name for name in read.schema.names if name.lower() in sql.lower()]
    warn_of_rest(results.name, read, None if _ALL.search(sql) else named)
    if "source" in streams and _RESULTS.search(sql) and ORDINAL not in sql:
        _warn_of_keys(results.name, streams["source"].keys)
    return frame


def _warn_of_keys(run: str, keys: list[Any]) -> None:
    """Warn about a key of several documents, whose rows a join by key multiplies."""
    counts = pa.chunked_array(keys or [[]]).value_counts()
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
        reason, hint = "it returns no rows", " Write one that does: select ... from results."
        raise QueryError(run=run, reason=reason, hint=hint, known="results")
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


def _refused(run: str, said: str, streams: Mapping[str, _Stream]) -> QueryError:
    """Return the error for a query that DuckDB refused, with the tables and columns that exist."""
    known = "; ".join(f"{name} ({few_of(stream.names, _SHOWN)})" for name, stream in streams.items())
    return QueryError(run=run, reason=one_line(said, 400).rstrip(".!? "), hint="", known=known)
