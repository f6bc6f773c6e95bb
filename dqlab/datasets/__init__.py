"""Results of runs as tables: Arrow, pandas, SQL and Parquet, made from pages of results.

Owns how values become columns, and how columns are written. Knows no run and no cluster: a `table.Source` provides
pages of rows. `columns`, `files`, `rows` and `table` import pyarrow, so import them only for a table, after
`needs_pyarrow`.
"""

from __future__ import annotations

from dqlab.errors import ExtraMissing
from dqlab.imports import import_whole

__all__ = ["needs_pyarrow"]


def needs_pyarrow() -> None:
    """Raise `ExtraMissing` if pyarrow is not installed."""
    with ExtraMissing.without("pyarrow", what="tables of results", extra="tables"):
        import_whole("pyarrow")
