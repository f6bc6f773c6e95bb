"""Results of runs as tables: Arrow, pandas, SQL and Parquet, made from pages of results.

Owns how values become columns, and what is written of them. Knows no run and no cluster: a `table.Source` gives pages
of rows. All modules but `lineage`, `lineage_columns` and `plain` need pyarrow, so they are imported where a table is
asked for, behind `needs_pyarrow`.
"""

from __future__ import annotations

from dqlab.errors import ExtraMissing
from dqlab.imports import import_whole

__all__ = ["needs_pyarrow"]


def needs_pyarrow() -> None:
    """Raise `ExtraMissing` where pyarrow is not installed."""
    try:
        import_whole("pyarrow")
    except ImportError as error:
        raise ExtraMissing.of(error, "pyarrow", what="tables of results", extra="tables") from error
