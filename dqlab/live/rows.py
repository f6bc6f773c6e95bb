"""Results as rows: the table that shows what columns a run's results have, and the first of them."""

from __future__ import annotations

import reprlib
from typing import Any

from dqlab.datasets.lineage import ROW_LINEAGE
from dqlab.errors import DqlabError, in_words
from dqlab.live.palette import Ink
from dqlab.live.tables import ROWS, Cell, Column, Table
from dqlab.numbers import count, many
from dqlab.texts import one_line

__all__ = ["rows_table"]

COLUMNS = 12
"""Columns shown; the rest is counted."""
LOOKED_AT = 1_000
"""Rows whose rest is counted."""


def rows_table(table: Any) -> Table:
    """Return the columns of results with their types, and the first rows.

    Parameters
    ----------
    table : RunTable
        Its first 1,000 rows are read.
    """
    total, head = table.count(), table.head(LOOKED_AT)
    rest = head.column("_rest")
    made = [name for name in head.schema.names if name in ROW_LINEAGE]
    names = [name for name in head.schema.names if name not in made]
    names = [name for name in names if name != "_rest" or rest.null_count < head.num_rows]
    shown = [name for name in names if name != "_ordinal"][:COLUMNS]
    first = head.slice(0, ROWS).select(shown).to_pylist()
    kinds = tuple(Cell(one_line(head.schema.field(name).type, 40), Ink.QUIET) for name in shown)
    rows = tuple(tuple(_cell(row[name]) for name in shown) for row in first)
    columns = tuple(Column(one_line(name, 40), mono=True) for name in shown)
    notes = _notes(total, head.num_rows, rest, len(names) - 1 - len(shown))
    if made:  # beside values they would take the room of these
        notes.append(f"how each row was made: {', '.join(made)}")
    notes += _where(table)
    return Table(columns, (kinds, *rows), notes=tuple(notes))


def _where(table: Any) -> list[str]:
    """Return where a sink has the rows; rows that were just read are shown also where it does not answer now."""
    try:
        place = table.place()
    except (OSError, DqlabError) as error:
        return [f"their files cannot be listed now: {one_line(in_words(error), 120)}"]
    return [place] if place else []


def _cell(value: Any) -> Cell:
    if value is None:
        return Cell("")
    return Cell(one_line(value if isinstance(value, str) else reprlib.repr(value), 40))


def _notes(total: int, looked: int, rest: Any, hidden: int) -> list[str]:
    notes = [many(total, "row") if total <= ROWS else f"the first {ROWS} of {many(total, 'row')}"]
    if hidden > 0:
        notes.append(f"and {many(hidden, 'column')} more: table.schema")
    odd = looked - rest.null_count
    if odd:
        of = "row" if looked == 1 else f"of the first {many(looked, 'row')}"
        notes.append(f"{count(odd)} {of} {'has' if odd == 1 else 'have'} values in _rest: what fits no column, as JSON")
    return notes
