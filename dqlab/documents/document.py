"""One document: what identifies it, where it is, and how to read it there.

Owns the reference that travels in a message. Knows nothing of listings: the listing decides
key and version, and may leave size and pages unknown.
"""

from __future__ import annotations

import builtins
import io
import pickle
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice
from numbers import Real
from operator import index
from tokenize import detect_encoding
from typing import Any, BinaryIO, Literal, TextIO, overload

from dqlab.documents import rows
from dqlab.documents.labelled import key_text
from dqlab.documents.parts import PARTS, Inline, Line, Part, Row
from dqlab.documents.places import open_binary
from dqlab.errors import BadOption

__all__ = ["LINES_PER_PAGE", "Document", "made", "sealed_key"]

LINES_PER_PAGE = 60
"""What counts as a page of plain text, lines."""
_MOST_PAGES = (1 << 32) - 1
"""Limit of the 32 bits that frames have for it."""
_MOST_BYTES = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Document:
    """A reference to one input; a few hundred bytes, whatever the input's size.

    It can be opened in any process that reaches `where`. Reading raises what Python raises:
    `FileNotFoundError` when the file is gone, `UnicodeDecodeError` when it is in another encoding.
    One that is a row has values by column: ``document["title"]``, `row`.

    Attributes
    ----------
    key : str or int
        The name of the document in results and failures; usually a relative path with "/". Rows of tables may have
        whole numbers.
    version : str
        Changes when the contents do: the store's etag, or size and modification time. Empty when unknown.
    where : str
        An absolute path, or an fsspec URL.
    size : int or None
        Bytes; None when unknown.
    n_pages : int or None
        Pages, if its listing knows them; read them as `page_count`. At most 4,294,967,295.
    part : Row, Line, Member, Inline, PageRange or None
        Where the document lies inside the file at `where`; None for the whole file.

    Raises
    ------
    BadOption
        A part has an invalid value. Whole numbers of another type, as numpy and pandas have them (3.0), become ints.

    Examples
    --------
    >>> Document("a.pdf", "", "/data/a.pdf", n_pages=3.0).n_pages
    3
    """

    key: Any  # str, or int: what is written for files alone takes it for a text
    version: str
    where: str
    size: int | None = None
    n_pages: int | None = None
    part: Part | None = None

    def __post_init__(self) -> None:
        # Checked here, where the traceback has the caller's line: further on they are columns of numbers without names.
        if not type(self.key) is type(self.version) is type(self.where) is str:
            self._check_texts()
        size, n_pages = self.size, self.n_pages
        if size is not None and not (type(size) is int and 0 <= size <= _MOST_BYTES):
            object.__setattr__(self, "size", self._whole("size", _MOST_BYTES))
        if n_pages is not None and not (type(n_pages) is int and 0 <= n_pages <= _MOST_PAGES):
            object.__setattr__(self, "n_pages", self._whole("n_pages", _MOST_PAGES))

    def _check_texts(self) -> None:
        for part in ("key", "version", "where"):
            value = getattr(self, part)
            whole = part == "key" and type(value) is int and self.part is not None
            if not (isinstance(value, str) or whole):
                raise BadOption(option=f"{part} of a document", value=value, problem="is not a string.")

    def _whole(self, part: str, most: int) -> int:
        """Return a part that is a count, as an int."""
        value: Any = getattr(self, part)
        try:
            whole = index(value)
        except TypeError:  # pandas makes floats of a column in which one number is missing
            if not (isinstance(value, Real) and float(value).is_integer()):
                problem = "is not a whole number. Pass None where it is unknown."
                raise BadOption(option=f"{part} of document {self.key!r}", value=value, problem=problem) from None
            whole = int(float(value))
        if not 0 <= whole <= most:
            problem = f"is not between 0 and {most:,}. Pass None where it is unknown."
            raise BadOption(option=f"{part} of document {self.key!r}", value=value, problem=problem)
        return whole

    @property
    def page_count(self) -> int | None:
        """Number of pages; None when unknown."""
        return self.n_pages

    @overload
    def open(self, mode: Literal["rb"] = ..., encoding: None = ...) -> BinaryIO: ...
    @overload
    def open(self, mode: Literal["r", "rt"], encoding: str | None = ..., *, errors: str = ...) -> TextIO: ...
    def open(
        self, mode: Literal["rb", "r", "rt"] = "rb", encoding: str | None = None, *, errors: str = "strict"
    ) -> BinaryIO | TextIO:
        """Open the document for reading; close it, or use it in a `with`.

        Parameters
        ----------
        mode : {"rb", "r", "rt"}
            Bytes, or text with any line end turned into a newline.
        encoding : str or None
            For text. None: utf-8; for Python sources (.py, .pyi) the encoding of their coding line.
        errors : str
            What to do with undecodable bytes, as for the built-in `open`.

        Raises
        ------
        OSError
            The file is gone, or not readable here.
        SyntaxError
            The coding line of a Python source names no known encoding.
        BadOption
            A mode that writes, or an encoding for bytes.
        """
        if mode not in ("rb", "r", "rt"):
            raise BadOption(option="mode", value=mode, problem="a document is only read. Use 'rb' or 'r'.")
        if mode == "rb" and encoding is not None:
            raise BadOption(option="encoding", value=encoding, problem="bytes have none. Use mode='r'.")
        stream = self._stream("doc.open()")
        if mode == "rb":
            return stream
        try:
            return io.TextIOWrapper(stream, encoding or self._encoding(stream), errors)
        except BaseException:
            stream.close()
            raise

    def text(self, encoding: str | None = None, errors: str = "strict") -> str:
        """Return the contents as text; parameters and errors as for `open`.

        Raises
        ------
        UnicodeDecodeError
            The bytes are in another encoding, and `errors` is "strict".
        """
        with self.open("r", encoding, errors=errors) as stream:
            return stream.read()

    def pages(
        self, lines: int = LINES_PER_PAGE, *, encoding: str | None = None, errors: str = "strict"
    ) -> Iterator[str]:
        """Read the text page by page, holding one page at a time.

        Parameters
        ----------
        lines : int
            Lines on each page but the last, which has the rest. Joined, the pages are `text()`.
        encoding, errors
            As for `open`.

        Returns
        -------
        iterator of str
            At least one page: an empty document is one empty page.

        Raises
        ------
        BadOption
            `lines` is below 1.
        """
        if lines < 1:
            raise BadOption(option="lines", value=lines, problem="a page has at least one line.")
        return self._cut(lines, encoding, errors)

    def bytes(self) -> builtins.bytes:
        """Return the contents, unchanged.

        Raises
        ------
        OSError
            The file is gone, or not readable here.
        """
        with self.open("rb") as stream:
            return stream.read()

    @property
    def row(self) -> dict[Any, Any]:
        """The values of a row of a table, or of a record of JSON or CSV, by column; a new dict each time.

        Raises
        ------
        WrongKind
            The document is a file, or another part of one.
        DocumentChanged
            The file has changed since the document was listed.
        RecordInvalid
            The line is not JSON, or has more or fewer cells than the file has columns.
        RowTooLarge
            The row of a frame did not fit into its message.
        FileUnreadable, OSError
            The file is damaged, gone, or not readable here.

        Examples
        --------
        >>> import pandas as pd
        >>> dq.Documents.from_frame(pd.DataFrame({"title": ["On trees"], "pages": [12]}))[0].row
        {'title': 'On trees', 'pages': 12}
        """
        return rows.row(self.key, self.version, self.where, self.part)

    def __getitem__(self, column: Any) -> Any:
        """Return one value of a row; of a Parquet file, columns that nobody asks for are not read.

        Raises
        ------
        ColumnNotFound
            There is no such column; a `KeyError`. Other errors as for `row`.
        """
        return rows.cell(self.key, self.version, self.where, self.part, column)

    # Without these Python takes what has values by name for a sequence, and asks for number 0, 1, 2.
    __iter__ = None
    __contains__ = None

    def _stream(self, asked: str) -> BinaryIO:
        if self.part is None:
            return open_binary(self.where)
        return io.BytesIO(rows.line(self.key, self.version, self.where, self.part, asked))

    def _cut(self, lines: int, encoding: str | None, errors: str) -> Iterator[str]:
        with self.open("r", encoding, errors=errors) as stream:
            page = "".join(islice(stream, lines))
            yield page
            while page := "".join(islice(stream, lines)):
                yield page

    def _encoding(self, stream: BinaryIO) -> str:
        # One URL may name a member of an archive: zip://package/module.py::https://host/package.zip
        if any(part.endswith((".py", ".pyi")) for part in self.where.split("::")):
            return _source_encoding(stream)
        return "utf-8"

    def __reduce__(self) -> tuple[Any, ...]:
        key, part = self.key, self.part
        if self.n_pages is None and part is not None:
            # Without the names of a class for its part a row's reference is half as long, and read in half the time.
            if type(part) is Row and self.size is None:
                return _row, (key, self.where, self.version, *part)
            if type(part) is Line and self.size == part.length:
                return _line, (key, self.where, self.version, *part)
            if type(part) is Inline and self.size is None:
                return _inline, (key, self.where, self.version, *part)
        if not isinstance(key, str):
            return _numbered, (key, self.where, self.version, self.size, self.n_pages, part)
        # Keys are mostly the end of `where`: sending their length saves a third of the reference.
        cut = len(key) if self.where.endswith(key) else key
        state = self.where, cut, self.version, self.size, self.n_pages
        return _revive, state if part is None else (*state, part)


def _revive(
    where: str, cut: int | str, version: str, size: int | None, n_pages: int | None, part: Part | None = None
) -> Document:
    key = where[len(where) - cut :] if isinstance(cut, int) else cut
    return Document(key, version, where, size, n_pages, part)


# A million references are made by the next four, here and where functions run: they write the fields of objects that
# need no check, in a third of the time of `Document(...)`.
_new, _tuple = object.__new__, tuple.__new__
_SLOTS: dict[str, Any] = {field.name: vars(Document)[field.name].__set__ for field in fields(Document)}
_key, _version, _where, _size, _n_pages, _part = _SLOTS.values()


def made(key: str | int, where: str, version: str, size: int | None, part: Part) -> Document:
    """Return a document that is a part of a file, of values that need no check."""
    document = _new(Document)
    _key(document, key)
    _version(document, version)
    _where(document, where)
    _size(document, size)
    _n_pages(document, None)
    _part(document, part)
    return document


def _row(key: str | int, where: str, version: str, *part: Any) -> Document:
    return made(key, where, version, None, _tuple(Row, part))


def _line(key: str | int, where: str, version: str, *part: Any) -> Document:
    return made(key, where, version, part[1], _tuple(Line, part))


def _inline(key: str | int, where: str, version: str, *part: Any) -> Document:
    return made(key, where, version, None, _tuple(Inline, part))


def _numbered(key: int, where: str, version: str, size: int | None, n_pages: int | None, part: Part | None) -> Document:
    return Document(key, version, where, size, n_pages, part)


_REVIVED = {each.__name__: each for each in (_revive, _row, _line, _inline, _numbered)}
_OPENED: dict[tuple[str, str], Any] = {(each.__module__, each.__qualname__): each for each in PARTS}
_OPENED |= {(__name__, name): revived for name, revived in _REVIVED.items()}
"""What a pickled reference may name."""


def sealed_key(payload: builtins.bytes | memoryview) -> str | None:
    """Return the key of a pickled `Document` as a settlement has it; None for anything else.

    Runs no code but dqlab's.
    """
    try:
        found = _DocumentOnly(io.BytesIO(payload)).load()
    except Exception:  # noqa: BLE001 - whatever it is, it is not one of our references
        return None
    if type(found) is not Document:
        return None
    return found.key if isinstance(found.key, str) else key_text(found.key)


class _DocumentOnly(pickle.Unpickler):
    """Opens pickles that name `Document`, its parts and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OPENED:
            return _OPENED[module, name]
        raise pickle.UnpicklingError(f"{module}.{name}")


def _source_encoding(stream: BinaryIO) -> str:
    """Return the encoding a Python source declares (PEP 263), leaving the stream at its start."""
    lines = [stream.readline(), stream.readline()]
    stream.seek(0)
    mark = BOM_UTF8 if lines[0].startswith(BOM_UTF8) else b""
    lines[0] = lines[0].removeprefix(BOM_UTF8)
    # Detection alone would turn other bytes in these lines into a SyntaxError without a position;
    # hidden from it, they raise UnicodeDecodeError when read, or are handled as `errors` asks.
    plain = [re.sub(rb"[\x80-\xff]", b"?", line) for line in lines]
    heads = iter([mark + plain[0], plain[1]])
    return detect_encoding(lambda: next(heads, b""))[0]
