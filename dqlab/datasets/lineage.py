"""Names of the columns that show where a row comes from."""

from __future__ import annotations

from collections.abc import Sequence

from dqlab.errors import ColumnNotFound
from dqlab.texts import one_line

KEY, ORDINAL, CODE, ERROR, REST = "_key", "_ordinal", "_code", "_error", "_rest"
LINEAGE = (KEY, ORDINAL, "_version", CODE, "_seconds", "_attempts", "_consumer", "_at", ERROR, REST)
"""Names that no column of a user gets in an Arrow table; a user's column of that name gets one more underscore."""
ROW_LINEAGE = ("_version", CODE, "_seconds", "_attempts", "_consumer", "_at")
"""Columns that only the consumer that made a row knows."""
NAMED = 20
"""Columns that an error names."""


def check_columns(columns: Sequence[str], known: Sequence[str], run: str) -> None:
    """Raise `ColumnNotFound`, which names the known columns, for a column that is not among them."""
    for column in columns:
        if column not in known:
            more = f" and {len(known) - NAMED:,} more" if len(known) > NAMED else ""
            listed = ", ".join(one_line(each, 60) for each in known[:NAMED]) + more
            raise ColumnNotFound(where=run, column=column, hint="", done="returned", known=listed)
