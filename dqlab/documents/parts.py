"""Where a document lies inside its file, for documents that are less than a whole file.

Owns the small tuples that travel in a `Document`. Knows nothing of how they are read: each kind has its reader, which
`readers` finds by the tuple's type, so that a process imports a library when it opens the first document that needs it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

__all__ = ["PARTS", "Inline", "Line", "Member", "PageRange", "Part", "Row"]


class Row(NamedTuple):
    """A row of a Parquet file.

    Attributes
    ----------
    group : int
        The row group, from 0.
    index : int
        The row's place in its group, from 0.
    columns : tuple of str
        The columns to read; empty for all.
    """

    group: int
    index: int
    columns: tuple[str, ...] = ()


class Line(NamedTuple):
    """A record in a file of lines, compressed or not.

    Attributes
    ----------
    offset, length : int
        Bytes in the decompressed file.
    names : tuple of str
        The columns of a CSV file; empty for JSON, whose records name their own.
    dialect : str
        Delimiter of a CSV file; empty for JSON.
    """

    offset: int
    length: int
    names: tuple[str, ...] = ()
    dialect: str = ""


class Member(NamedTuple):
    """A file in an archive.

    Attributes
    ----------
    name : str
        Its name in the archive.
    offset : int
        Where its data begin in the uncompressed archive, for tar; -1 for zip, whose directory has it.
    """

    name: str
    offset: int = -1


class Inline(NamedTuple):
    """A row that exists nowhere but in its message.

    Attributes
    ----------
    names : tuple of str
    values : tuple
    """

    names: tuple[str, ...]
    values: tuple[Any, ...]


class PageRange(NamedTuple):
    """Some pages of a document, from `first` up to `stop`, counted from 0; `within` is where the document lies.

    Attributes
    ----------
    first, stop : int
    within : Member or None
    """

    first: int
    stop: int
    within: Member | None = None


Part: TypeAlias = Row | Line | Member | Inline | PageRange

PARTS = (Row, Line, Member, Inline, PageRange)
"""All kinds; `sealed_key` opens references that hold these, and nothing else."""
