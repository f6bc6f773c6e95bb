"""Rows of documents: a dict, or one value of it, whatever the document is a part of.

Owns which reader serves which part. The readers import what they need when the first document needs it.
"""

from __future__ import annotations

from typing import Any

from dqlab.documents import lines, tables
from dqlab.documents.keys import check_column
from dqlab.documents.parts import Inline, Line, Part, Row
from dqlab.errors import RowTooLarge, WrongKind

__all__ = ["cell", "kind_of", "line", "row"]


def row(key: Any, version: str, where: str, part: Part | None) -> dict[Any, Any]:
    """Return the values of a document that is a row, by column."""
    kind = type(part)
    if kind is Row:
        return tables.row(where, version, key, part)  # type: ignore[arg-type]
    if kind is Line:
        return lines.row(where, version, key, part)  # type: ignore[arg-type]
    if kind is Inline:
        names, values = part  # type: ignore[misc]
        return dict(zip(names, _there(key, values), strict=True))
    raise WrongKind(key=key, kind=kind_of(part), asked="doc.row", instead="doc.text(), doc.bytes() or doc.open()")


def cell(key: Any, version: str, where: str, part: Part | None, column: Any) -> Any:
    """Return one value of a document that is a row."""
    kind = type(part)
    if kind is Row:
        return tables.cell(where, version, key, part, column)  # type: ignore[arg-type]
    if kind is Line:
        return lines.cell(where, version, key, part, column)  # type: ignore[arg-type]
    if kind is Inline:
        names, values = part  # type: ignore[misc]
        if column not in names:
            check_column(column, names, "the frame", "read")
        return _there(key, values)[names.index(column)]
    instead = "doc.text(), doc.bytes() or doc.open()"
    raise WrongKind(key=key, kind=kind_of(part), asked=f"doc[{column!r}]", instead=instead)


def line(key: Any, version: str, where: str, part: Part, asked: str) -> bytes:
    """Return the bytes of a document that is a record in a file of lines.

    Raises
    ------
    WrongKind
        It is a row, which has values and no bytes of its own.
    """
    if type(part) is Line:
        return lines.raw(where, version, key, part)
    raise WrongKind(key=key, kind=kind_of(part), asked=asked, instead="doc.row or doc['column']")


def kind_of(part: Part | None) -> str:
    """Return in words what a document is."""
    if type(part) is Row:
        return "a row of a Parquet file"
    if type(part) is Inline:
        return "a row of a frame"
    return "a record in a file" if type(part) is Line else "a file, or a part of one"


def _there(key: Any, values: tuple[Any, ...] | int) -> tuple[Any, ...]:
    if isinstance(values, int):
        from dqlab.documents.frames import largest_row

        raise RowTooLarge(key=key, size=values, limit=largest_row())
    return values
