"""What readers know of a document: where it lies, and its part of the file there if it is less than a whole file.

Owns the small tuples that travel in a `Document`, and `Reference`, which is a `Document` as its readers see it: they
stand below it, since it calls them. Knows nothing of how parts are read.
"""

from __future__ import annotations

import reprlib
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeAlias

__all__ = [
    "PARTS",
    "Inline",
    "Line",
    "Member",
    "PageRange",
    "Part",
    "Reference",
    "Row",
    "file_name",
    "is_pdf",
    "is_whole_file",
]


class Row(NamedTuple):
    """A row of a Parquet file.

    Attributes
    ----------
    group : int
        The row group, from 0.
    at : int
        The row's place in its group, from 0.
    columns : int
        The chosen columns, bit n for column n of the file; 0 for all. Ten thousand names would make a message of a row.
    """

    group: int
    at: int
    columns: int = 0


class Line(NamedTuple):
    """A record in a file of lines, compressed or not.

    Attributes
    ----------
    offset, length : int
        Bytes in the decompressed file.
    form : str
        Empty for JSON; for CSV the delimiter and, behind it, the encoding. The file's first record has the names.
    """

    offset: int
    length: int
    form: str = ""


class Member(NamedTuple):
    """A file in an archive.

    Attributes
    ----------
    name : str
        Its name in the archive.
    offset : int
        Where its header begins in the uncompressed archive. -1 for what the directory of a zip finds by its name: all
        but members of one name, where it separates them.
    """

    name: str
    offset: int = -1


class Inline(NamedTuple):
    """A row that exists nowhere but in its message.

    Attributes
    ----------
    names : tuple
        Labels of the columns; texts, mostly.
    values : tuple or int
        One for each name; a `Torn` if some of them cannot be read. An int in their place: the bytes of a row that is
        too large for a message, which is sent without them and fails when it is opened.
    """

    names: tuple[Any, ...]
    values: tuple[Any, ...] | int

    def __repr__(self) -> str:
        return f"Inline(names={reprlib.repr(self.names)}, values={reprlib.repr(self.values)})"


class PageRange(NamedTuple):
    """Some pages of a document, from `first` up to `stop`, counted from 0; `within` is where the document lies.

    Attributes
    ----------
    first, stop : int
    within : Member or None
    of : int
        How many pages the document has; 0 where that is not known.
    """

    first: int
    stop: int
    within: Member | None = None
    of: int = 0


Part: TypeAlias = Row | Line | Member | Inline | PageRange

PARTS = (Row, Line, Member, Inline, PageRange)
"""All kinds; `sealed_key` opens references that hold these, and nothing else."""


# --- references ---


class Reference(Protocol):
    """A `Document`, as its readers see it."""

    @property
    def key(self) -> str | int: ...  # noqa: D102

    @property
    def version(self) -> str: ...  # noqa: D102

    @property
    def where(self) -> str: ...  # noqa: D102

    @property
    def size(self) -> int | None: ...  # noqa: D102

    @property
    def part(self) -> Part | None: ...  # noqa: D102

    def open(self) -> BinaryIO: ...  # noqa: D102


def file_name(reference: Reference) -> str:
    """Return the name that shows a document's format, in lower case."""
    part = reference.part.within if isinstance(reference.part, PageRange) else reference.part
    if isinstance(part, Member):
        return part.name.lower()
    if part is not None:
        return ""  # a row, or a record: what its file is called says nothing of it
    # One URL may name a member of an archive: zip://package/module.py::https://host/package.zip
    name = reference.where.partition("::")[0].lower()
    # Of a web server what follows the first "?" is a query, such as the signature of a link.
    return name.partition("?")[0] if name.startswith(("http://", "https://")) else name


def is_whole_file(reference: Reference) -> bool:
    """Return whether a document's bytes are those of a file, rather than of something in it."""
    part = reference.part
    return part is None or (isinstance(part, PageRange) and part.within is None)


def is_pdf(reference: Reference) -> bool:
    """Return whether a document is named as a PDF, or is some pages of one."""
    return isinstance(reference.part, PageRange) or file_name(reference).endswith(".pdf")
