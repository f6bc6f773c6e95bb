"""SQL over the results of a run, by DuckDB, which is optional."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from dqlab.datasets.lineage import KEY
from dqlab.datasets.rows import Shape
from dqlab.errors import ExtraMissing, UsageError

__all__ = ["SourceUnknown", "query"]

_SOURCE = re.compile(r"\bsource\b", re.IGNORECASE)
_KEY_ALONE = "key"
"""Name under which SQL has keys besides ``_key``, so that results and source join by ``using (key)``."""


class SourceUnknown(UsageError):
    """A query names the table `source`, and the input of the run is not here."""

    text = (
        "the query names the table source, and the input of run {run!r} cannot be read here: {why}. Nothing was read. "
        "Map the same documents under the run's name in this process, or join with a table of your own: "
        "run.join(frame, on='key')."
    )


class Table(Protocol):
    """What SQL reads; a `RunTable`."""

    @property
    def name(self) -> str:
        """Name of the run."""
        ...

    def shape(self) -> Shape:
        """Return its columns and types."""
        ...

    def batches_of(self, shape: Shape) -> Iterator[Any]:
        """Yield its rows as batches of the schema that a shape has."""
        ...


class _Stream:
    """A table for DuckDB, which may read it several times: of one schema, with a column ``key`` if it has none."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._shape: Shape = table.shape()
        names = {name.lower() for name in self._shape.schema.names}
        self._keyed = _KEY_ALONE not in names
        self.error: BaseException | None = None

    def _schema(self) -> Any:
        schema = self._shape.schema
        return schema.insert(0, pa.field(_KEY_ALONE, schema.field(KEY).type)) if self._keyed else schema

    def _batches(self) -> Iterator[Any]:
        schema = self._schema()
        try:
            for batch in self._table.batches_of(self._shape.copied()):
                columns = [batch.column(KEY)] if self._keyed else []
                yield pa.RecordBatch.from_arrays([*columns, *batch.columns], schema=schema)
        except BaseException as error:
            self.error = error  # DuckDB keeps its text alone
            raise

    def reader(self) -> Any:
        """Return a reader that begins at the first row."""
        return pa.RecordBatchReader.from_batches(self._schema(), self._batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)


def query(results: Table, sql: str, source: Table | str) -> Any:
    """Return what a query over the tables ``results`` and ``source`` finds, as a pandas DataFrame.

    Parameters
    ----------
    results : Table
    sql : str
    source : Table or str
        The run's input; or why it is not here, in words.

    Raises
    ------
    ExtraMissing
        DuckDB is not installed.
    SourceUnknown
        The query names `source`, which is not here.
    """
    try:
        import duckdb
        import pandas  # noqa: F401 - DuckDB would name it in an error of its own
    except ImportError as error:
        raise ExtraMissing.of(error, "duckdb", what="queries of results", extra="lab,tables") from error
    tables = {"results": results}
    if _SOURCE.search(sql):
        if isinstance(source, str):
            raise SourceUnknown(run=results.name, why=source)
        tables["source"] = source
    streams = {name: _Stream(table) for name, table in tables.items()}
    with duckdb.connect() as connection:
        try:
            for name, stream in streams.items():
                if _reads_once(duckdb.__version__):
                    connection.register(f"{name}_stream", stream.reader())
                    connection.execute(f"create temp table {name} as select * from {name}_stream")
                else:
                    connection.register(name, stream)
            return connection.execute(sql).df()
        except duckdb.Error:
            for stream in streams.values():
                if stream.error is not None:
                    raise stream.error from None
            raise


def _reads_once(version: str) -> bool:
    """Return whether this DuckDB reads a stream once, so that a query that names it twice would fail."""
    return int(version.partition(".")[0]) < 2
