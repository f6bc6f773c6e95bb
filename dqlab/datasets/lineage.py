"""Columns that say where a row comes from, and their names."""

from __future__ import annotations

from collections.abc import Sequence

from dqlab.errors import ColumnUnknown
from dqlab.texts import one_line

__all__ = ["BARE", "CODE", "ERROR", "KEY", "LINEAGE", "NOTHING", "ORDINAL", "REST", "ROW_LINEAGE", "check_columns"]

KEY, ORDINAL, CODE, ERROR, REST = "_key", "_ordinal", "_code", "_error", "_rest"
LINEAGE = (KEY, ORDINAL, "_version", CODE, "_seconds", "_attempts", "_consumer", "_at", ERROR, REST)
"""Names that no column of a user gets in a table of Arrow: theirs have an underscore more behind."""
ROW_LINEAGE = ("_version", CODE, "_seconds", "_attempts", "_consumer", "_at")
"""What a row has besides key and position; the consumer that made it knew them."""
NOTHING, BARE = "nothing", "bare"
"""Kinds of values that are not rows, as parts of a sink have them: None, and others."""
NAMED = 20
"""Columns that an error names."""


def check_columns(columns: Sequence[str], known: Sequence[str], run: str) -> None:
    """Refuse columns that are not there.

    Raises
    ------
    ColumnUnknown
        One is not there; it names those that are.
    """
    for column in columns:
        if column not in known:
            more = f" and {len(known) - NAMED:,} more" if len(known) > NAMED else ""
            listed = ", ".join(one_line(each, 60) for each in known[:NAMED]) + more
            raise ColumnUnknown(run=run, column=column, known=listed)
