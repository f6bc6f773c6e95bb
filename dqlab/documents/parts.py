"""What readers know of a document: where it lies, and which part of that file it is.

Owns the small tuples that travel in a `Document`, and `Reference`, the `Document` as its readers see it: they stand
below it, since it calls them. Does not know how parts are read.
"""

from __future__ import annotations

import reprlib
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeAlias


class Row(NamedTuple):
    """A row of a Parquet file."""

    group: int
    """The row group, from 0."""
    at: int
    """The row's position in its group, from 0."""
    columns: int = 0
    """The chosen columns: bit n for column n of the file, or 0 for all. Names would be too long for each message."""
    added: tuple[tuple[str, Any], ...] = ()
    """Columns that the file lacks, with the values of its folders, or None for those of other files."""
    stamp: str | None = None
    """The version of its file; None where that of the document is the same."""


class Line(NamedTuple):
    """A record in a file of lines, compressed or not."""

    offset: int
    """In the decompressed file, as `length`."""
    length: int
    form: str = ""
    """Empty for JSON. For CSV the delimiter and then the encoding; the first record of the file has the names."""


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    offset: int = -1
    """Offset of its header in the uncompressed archive. In a zip -1, because the directory finds members by name,
    unless several members have that name."""


class Inline(NamedTuple):
    """A row that exists only in its message."""

    names: tuple[Any, ...]
    """Labels of the columns, which are usually texts."""
    values: tuple[Any, ...] | int
    """One per name. An int is the size of a row that is too large for a message: it is sent without values, and fails
    when it is read."""

    def __repr__(self) -> str:
        return f"Inline(names={reprlib.repr(self.names)}, values={reprlib.repr(self.values)})"


class PageRange(NamedTuple):
    """Some pages of a document, from `first` up to `stop`, counted from 0."""

    first: int
    stop: int
    within: Member | None = None
    """The member that has the pages, if they are in an archive."""
    of: int = 0
    """Pages of the whole document; 0 if unknown."""


Part: TypeAlias = Row | Line | Member | Inline | PageRange

PARTS = (Row, Line, Member, Inline, PageRange)
"""All kinds of parts; `sealed_key` opens only references that hold these."""


# --- references ---


class Reference(Protocol):
    """A `Document` as its readers see it."""

    @property
    def key(self) -> str | int:
        """Its name among the documents of its input."""

    @property
    def version(self) -> str:
        """What changes when its contents do."""

    @property
    def where(self) -> str:
        """The path or URL of its file."""

    @property
    def size(self) -> int | None:
        """Bytes, if they are known."""

    @property
    def part(self) -> Part | None:
        """The part of the file that it is, or None for the whole."""

    def open(self) -> BinaryIO:
        """Return its contents as a stream."""


def file_name(reference: Reference) -> str:
    """Return the name that shows a document's format, in lower case."""
    part = reference.part.within if isinstance(reference.part, PageRange) else reference.part
    if isinstance(part, Member):
        return part.name.lower()
    if part is not None:
        return ""  # a row or a record: the name of its file does not show its format
    # One URL may name a member of an archive: zip://package/module.py::https://host/package.zip
    name = reference.where.partition("::")[0].lower()
    # In the URL of a web server, the first "?" begins a query, such as the signature of a link.
    return name.partition("?")[0] if name.startswith(("http://", "https://")) else name


def is_whole_file(reference: Reference) -> bool:
    """Return whether a document's bytes are a whole file, rather than something in it."""
    part = reference.part
    return part is None or (isinstance(part, PageRange) and part.within is None)


def is_pdf(reference: Reference) -> bool:
    """Return whether a document is named as a PDF, or is some pages of one."""
    return isinstance(reference.part, PageRange) or file_name(reference).endswith(".pdf")
