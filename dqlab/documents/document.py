"""One document: what identifies it, where it is, and how to read it there.

Owns the reference that travels in a message, which reader serves which part, the check that a file is still the one
that was listed, and the pickled form of a reference in logs (`pickles` below). Knows nothing of listings, which decide
key and version, and may leave size and pages unknown.
"""

from __future__ import annotations

import builtins
import io
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import islice, repeat
from numbers import Real
from operator import index
from typing import Any, BinaryIO, Literal, NamedTuple, TextIO, cast, overload

from dqlab.config import nbytes, option
from dqlab.documents import lines, parquet
from dqlab.documents.ahead import ReadAhead, taken
from dqlab.documents.archives import find_member, open_member, read_member, unpacked, unpacked_data
from dqlab.documents.formats import (
    binary_kind,
    decode_html,
    decoded,
    head_of,
    kind_of,
    pages_of_pdf,
    shown,
    text_of_html,
)
from dqlab.documents.keys import check_column
from dqlab.documents.labelled import Labelled
from dqlab.documents.parts import (
    PARTS,
    Inline,
    Line,
    Member,
    PageRange,
    Part,
    Reference,
    Row,
    is_pdf,
    is_whole_file,
)
from dqlab.documents.storage import (
    asked,
    check_stamp,
    check_url,
    has_etag,
    local_path,
    located,
    named,
    note_read,
    open_binary,
    redacted,
    remote,
    remote_stamp,
    stamp_of,
    stamp_of_open,
    storage_of,
    stored,
)
from dqlab.errors import BadOption, DocumentChanged, DocumentError, WrongKind
from dqlab.keywords import SuggestsAttributes, meant
from dqlab.numbers import many

LINES_PER_PAGE = 60
"""Lines that count as one page of plain text."""
_MOST_PAGES = (1 << 32) - 1
"""Frames have 32 bits for the number of pages."""
_MOST_BYTES = (1 << 63) - 1
_ROOM = 1 << 10
"""Bytes reserved in a message for everything but the values of its row."""
SHOWN_WITHIN = 1 << 16
"""Bytes in which the encoding of a text that may have errors shows; if it does not, it is UTF-8."""
DETECTED_WITHIN = 64 << 20
"""Bytes of a text that are held to detect its encoding; a larger one is read as UTF-8 unless an encoding is given."""


@dataclass(frozen=True, slots=True)
class Document(SuggestsAttributes):
    """A reference to one input; a few hundred bytes, whatever the input's size.

    Any process that reaches `where` can open it. Reading raises Python's own errors, such as `FileNotFoundError` if the
    file is gone, another `OSError` if its server is busy, and `UnicodeDecodeError` if it has another encoding; and a
    `DocumentError` if the document has changed since it was listed, is damaged, or is encrypted. A document that is a
    row has values by column: ``document["title"]``, or all of them as `row`.

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
    encoding : str or None
        The encoding with which `text`, `html`, `pages` or `open` last read its text here; None before that. It does not
        travel with the document, and comparisons ignore it.

    Raises
    ------
    BadOption
        A part has an invalid value. Whole numbers of another type, like those of numpy and pandas (3.0), become ints.
    UsageError
        `where` is a URL with a password in it.

    Examples
    --------
    >>> Document("a.pdf", "", "/data/a.pdf", n_pages=3.0).n_pages
    3
    """

    key: Any  # str or int; typed Any, because users' functions for files treat it as a str
    version: str
    where: str
    size: int | None = None
    n_pages: int | None = None
    part: Part | None = field(default=None, repr=False)
    encoding: str | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Check here, where the traceback shows the caller's line: later on, these are columns of numbers without names.
        if not type(self.key) is type(self.version) is type(self.where) is str:
            self._check_texts()
        if "://" in self.where:
            check_url(self.where)
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
        """Return a field that is a count, as an int, or raise `BadOption`."""
        value: Any = getattr(self, part)
        try:
            whole = index(value)
        except TypeError:  # pandas turns a column of whole numbers into floats if one is missing
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
            Bytes as they are stored, or text. Text is decompressed if the file is compressed with gzip, bzip2, xz or
            Zstandard, and every line end becomes a newline.
        encoding : str or None
            For text. None: the encoding that its bytes show (a byte order mark, or the zeros of UTF-16 and UTF-32),
            or utf-8. If neither fits, the most likely encoding, as long as
            charset-normalizer is installed, `errors` is "strict" and the text is at most 64 MiB (for `text`: of any
            size).
        errors : str
            How to handle undecodable bytes, as for the built-in `open`.

        Raises
        ------
        OSError
            The file is gone, or not readable here.
        UnicodeDecodeError
            No encoding was found; for larger texts also later, while reading.
        DocumentError
            The document has changed since it was listed, is damaged, or is encrypted in its archive.
        WrongKind
            Text was asked for, and the first bytes are those of a format that is none, such as a PDF, a docx or a
            picture; or the path leads to a pipe, a socket or a device.
        BadOption
            A mode that writes, an encoding for bytes, or one that Python does not know.

        Examples
        --------
        >>> with document.open("r") as lines:  # doctest: +SKIP
        ...     titles = [line for line in lines if line.startswith("#")]
        """
        if mode not in ("rb", "r", "rt"):
            raise BadOption(option="mode", value=mode, problem="a document is only read. Use 'rb' or 'r'.")
        if mode == "rb" and encoding is not None:
            raise BadOption(option="encoding", value=encoding, problem="bytes have none. Use mode='r'.")
        _check_encoding(encoding)
        stream = self._stream("doc.open()")
        if mode == "rb":
            return stream
        try:
            return self._as_text(unpacked(self, stream), encoding, errors, "doc.open('r')")
        except BaseException:
            stream.close()
            raise

    def text(self, encoding: str | None = None, errors: str = "strict") -> str:
        """Return the contents as text; parameters and errors as for `open`.

        For a PDF, returns the text of its pages, with a form feed between them. A PDF is recognised by its first bytes,
        or by its name.

        Raises
        ------
        UnicodeDecodeError
            No encoding was found, or the bytes do not have the given encoding, and `errors` is "strict".

        Examples
        --------
        >>> words = len(document.text().split())  # doctest: +SKIP
        >>> document.encoding  # doctest: +SKIP
        'cp1252'
        """
        _check_encoding(encoding)
        data = None if is_pdf(self) else self.bytes(decompress=True)
        if data is None or (kind := kind_of(data)) == "pdf":
            return "\f".join(page.text() for page in pages_of_pdf(self, data))
        if encoding is not None or errors != "strict":
            return self._as_text(io.BytesIO(data), encoding, errors, "doc.text()").read()
        if kind is not None:
            _check_text(self, data, "doc.text()")
        text, found = decoded(data)
        self._note(found)
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text

    def html(self, encoding: str | None = None) -> str:
        """Return the visible text of an HTML page, without tags, scripts, styles and comments.

        Parameters
        ----------
        encoding : str or None
            None: the encoding that its bytes show, as for `open`, or the declared one, or utf-8, or the most likely.

        Returns
        -------
        str
            A line for each paragraph, heading, item or cell. White space within them is one space, but `<pre>` keeps
            its lines. XHTML that is well-formed is read as XML, so nothing is lost behind `<title/>`.

        Raises
        ------
        OSError, DocumentError
            As for `open`.
        WrongKind
            The first bytes are those of a PDF, or of another format that is no text.
        ExtraMissing
            selectolax or webencodings is not installed here.

        Examples
        --------
        >>> document.html().splitlines()[:2]  # doctest: +SKIP
        ['Annual report', 'It was a good year.']
        """
        _check_encoding(encoding)
        data = self.bytes(decompress=True)
        _check_text(self, data, "doc.html()")
        source, encoding = decode_html(data) if encoding is None else (data.decode(encoding), encoding)
        self._note(encoding)
        return text_of_html(source)

    def pages(
        self, lines: int = LINES_PER_PAGE, *, encoding: str | None = None, errors: str = "strict"
    ) -> Iterator[Any]:
        """Read the document page by page.

        Parameters
        ----------
        lines : int
            For a text: lines on each page except the last, which has the rest. Joined, the pages are `text()`.
        encoding, errors
            Of a text: as for `open`.

        Returns
        -------
        iterator of Page, or of str
            For a PDF, recognised by its first bytes or its name: its pages, with `number`, `text()` and
            `image(dpi=150)`; for a part from `Documents.split`, the pages of that part. For anything else: texts, at
            least one; an empty document is one empty page.

        Raises
        ------
        BadOption
            `lines` is not a number, or below 1; or Python does not know the encoding.
        WrongKind
            With the first page: the first bytes are those of a format that has no text, such as a docx.
        DocumentDamaged, DocumentEncrypted
            With the first page: the PDF cannot be opened, needs a password, or has no pages.
        ExtraMissing
            With the first page: pypdfium2 is not installed here.

        Examples
        --------
        >>> [page.number for page in document.pages() if "Figure" in page.text()]  # doctest: +SKIP
        [3, 8]
        """
        if not isinstance(lines, int) or lines < 1:
            raise BadOption(option="lines", value=lines, problem="a page has at least one line.")
        _check_encoding(encoding)
        return pages_of_pdf(self) if is_pdf(self) else self._cut(lines, encoding, errors)

    def bytes(self, *, decompress: bool = False) -> builtins.bytes:
        """Return the contents.

        Parameters
        ----------
        decompress : bool
            Whether to decompress a document that is compressed, as `text` does. Default False, because copies,
            checksums and `size` refer to the stored bytes.

        Raises
        ------
        OSError
            The file is gone, or not readable here.
        DocumentError
            It has changed since it was listed, is damaged, or is encrypted in its archive.

        Examples
        --------
        >>> hashlib.sha256(document.bytes()).hexdigest()  # doctest: +SKIP
        """
        if isinstance(self.part, Row | Line | Inline):
            return _line_of(self, "doc.bytes()")
        data = taken(self)
        data = _read_stored(self) if data is None else data
        return unpacked_data(self, data) if decompress else data

    async def abytes(self, *, decompress: bool = False) -> builtins.bytes:
        """Return the contents while other coroutines run; parameters and errors as for `bytes`.

        Reads files behind URLs with the asynchronous method of their file system, if it has one, one for each coroutine
        in parallel; others in threads, a few at a time.

        Examples
        --------
        >>> async def ask(document):
        ...     return await service(await document.abytes())
        """
        import asyncio

        with asked(self.where):
            reading = _begun(self)
            if reading is not None:
                data = await asyncio.wrap_future(reading)
                note_read(self.where)
        if reading is None:
            return await asyncio.to_thread(self.bytes, decompress=decompress)
        return await asyncio.to_thread(unpacked_data, self, data) if decompress else data

    def refreshed(self) -> Document:
        """Return the document with its current version and size.

        For functions that read files repaired after they were listed: reading the listed document raises
        `DocumentChanged`.

        Raises
        ------
        OSError
            The file is gone, or cannot be examined from here.
        DocumentChanged
            Its archive no longer has this member.
        WrongKind
            It is a row of a table, or a record in a file of lines.

        Examples
        --------
        >>> def count(document):
        ...     return len(document.refreshed().text().split())
        """
        if isinstance(self.part, Row | Line | Inline):
            instead = "a listing of the same files again, mapped under another name"
            raise WrongKind(key=self.key, kind=_kind_of(self.part), asked="doc.refreshed()", instead=instead)
        if isinstance(self.part, Member):
            found = find_member(self, self.part)
            return replace(self, version=found.version, size=found.size, n_pages=None, part=found.member)
        if isinstance(self.part, PageRange) and self.part.within is not None:
            found = find_member(self, self.part.within)
            part = self.part._replace(within=found.member)
            return replace(self, version=found.version, size=found.size, part=part)
        version, size = stamp_of(self.where)
        return replace(self, version=version, size=size, n_pages=self.n_pages if self.part is not None else None)

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
        DocumentError
            The row of a frame did not fit into its message.
        RecordInvalid
            Python cannot hold a value: a date after the year 9999, or a text that is not UTF-8.
        FileUnreadable, OSError
            The file is damaged, gone, or not readable here.

        Examples
        --------
        >>> import pandas as pd
        >>> dq.Documents.from_frame(pd.DataFrame({"title": ["On trees"], "pages": [12]}))[0].row
        {'title': 'On trees', 'pages': 12}
        """
        return _row_of(self)

    def __getitem__(self, column: Any) -> Any:
        """Return one value of a row, without reading the other columns of a Parquet file.

        Raises
        ------
        ColumnNotFound
            There is no such column; a `KeyError`. Other errors as for `row`, of this column alone.
        """
        part = self.part
        if type(part) is Row:
            return parquet.cell(self.where, file_version(self), self.key, part, column)
        return _cell_of(self, column)

    # Without these, Python treats an object with `__getitem__` as a sequence, and asks for items 0, 1, 2.
    __iter__ = None
    __contains__ = None

    def _stream(self, asked: str) -> BinaryIO:
        if isinstance(self.part, Row | Line | Inline):
            return io.BytesIO(_line_of(self, asked))
        data = taken(self)
        return _open_stored(self) if data is None else io.BytesIO(data)

    def _cut(self, lines: int, encoding: str | None, errors: str) -> Iterator[Any]:
        with self._stream("doc.pages()") as stored, unpacked(self, stored) as stream:
            if kind_of(head_of(stream)) == "pdf":
                yield from pages_of_pdf(self, stream.read())
                return
            text = self._as_text(stream, encoding, errors, "doc.pages()")
            yield "".join(islice(text, lines))
            while page := "".join(islice(text, lines)):
                yield page

    def _as_text(self, stream: BinaryIO, encoding: str | None, errors: str, asked: str) -> TextIO:
        """Return a stream of text, which closes the given one, or raise `WrongKind`."""
        _check_text(self, head_of(stream), asked)
        found, stream = (encoding, stream) if encoding is not None else self._examined(stream, errors)
        self._note(found)
        return io.TextIOWrapper(stream, found, errors)

    def _examined(self, stream: BinaryIO, errors: str) -> tuple[str, BinaryIO]:
        """Return the encoding of a text, and a stream that is at its start."""
        # Continue from the bytes in hand: seeking back in a compressed stream would decompress it again.
        data = stream.read(DETECTED_WITHIN + 1 if errors == "strict" else SHOWN_WITHIN)
        if errors != "strict" or len(data) > DETECTED_WITHIN:
            stream.seek(0)
            return shown(data) or "utf-8", stream
        stream.close()
        return decoded(data)[1], io.BytesIO(data)

    def _note(self, encoding: str) -> None:
        object.__setattr__(self, "encoding", encoding)

    def __reduce__(self) -> tuple[Any, ...]:
        key, part = self.key, self.part
        if self.n_pages is None and part is not None:
            # Pickled by a function rather than with the class of its part, a reference is half as long, and is read in
            # half the time. Logs contain these forms: see the comment in "pickles".
            if type(part) is Row and self.size is None:
                short = not part.added and part.stamp is None
                return _row, (key, self.where, self.version, *(part[:3] if short else part))
            if type(part) is Line and self.size == part.length:
                return _line, (key, self.where, self.version, *part)
            if type(part) is Inline and self.size is None:
                return _inline, (key, self.where, self.version, *part)
        if not isinstance(key, str):
            return _numbered, (key, self.where, self.version, self.size, self.n_pages, part)
        # Most keys are the end of `where`; sending their length instead saves a third of the reference.
        cut = len(key) if self.where.endswith(key) else key
        state = self.where, cut, self.version, self.size, self.n_pages
        return _revive, state if part is None else (*state, part)


# --- bytes ---


def _open_stored(document: Document) -> BinaryIO:
    member = _member(document)
    if member is not None:
        return open_member(document, member)
    stream = open_binary(document.where)
    try:
        # Others would cost a request for nothing: `check_stamp` compares no other versions of URLs.
        if local_path(document.where) is not None or has_etag(document):
            with redacted():
                check_stamp(document, stamp_of_open(document.where, stream).version)
    except BaseException:
        stream.close()
        raise
    return stream


def _read_stored(document: Document) -> bytes:
    member = _member(document)
    if member is not None:
        return read_member(document, member)
    with _open_stored(document) as stream:
        data = stream.read()
        if local_path(document.where) is not None:
            # Again after reading: only now is it certain that all of the data is from the listed version.
            check_stamp(document, stamp_of_open(document.where, stream).version)
    return data


def reading_ahead(
    run: builtins.bytes, upcoming: Callable[[int], Iterable[builtins.bytes]], first: Document
) -> ReadAhead:
    """Return what reads a slot's next documents ahead, given a function that returns their messages."""
    # Import here what opens the first document. If another thread imported it while the function forks, the child would
    # wait forever for the import locks. A chained URL is left out: opening its file system reads the file below.
    if "::" not in first.where:
        with suppress(Exception):  # the function will meet the same error
            remote(first.where)

    def documents(most: int) -> Iterator[Document]:
        for message in upcoming(most):
            if (found := sealed_document(message)) is not None:
                yield found

    return ReadAhead.of_thread(run, documents, cast(Callable[[Reference], builtins.bytes], _read_early))


def _read_early(document: Document) -> builtins.bytes:
    """Return the stored bytes, by the asynchronous method of a file system that has one: a stream would cost more."""
    reading = _begun(document)
    return _read_stored(document) if reading is None else reading.result()


def _member(document: Document) -> Member | None:
    part = document.part.within if isinstance(document.part, PageRange) else document.part
    return part if isinstance(part, Member) else None


def _begun(document: Document) -> Future[builtins.bytes] | None:
    """Begin to read a file with the asynchronous method of its file system, or return None if it has none."""
    where = document.where
    # Opening the file system of a chained URL, such as zip://a.txt::https://host/b.zip, reads the file below, and would
    # block the event loop.
    if not is_whole_file(document) or local_path(where) is not None or "::" in where:
        return None
    system, path = remote(where)
    if not getattr(system, "async_impl", False):
        return None
    import asyncio

    # On fsspec's own loop, because its sessions must not be used on another.
    return asyncio.run_coroutine_threadsafe(_whole(document, system, path), system.loop)


async def _whole(document: Document, system: Any, path: str) -> bytes:
    """Read a file on its file system's own loop, with one request unless its version must be compared."""
    listed = has_etag(document)
    # Without `end`, s3fs requests the size first.
    cut = {"start": 0, "end": document.size} if listed and document.size else {}

    async def check() -> None:
        system.invalidate_cache(path)
        check_stamp(document, remote_stamp(await system._info(path)).version)

    try:
        data = bytes(await system._cat_file(path, **cut))
    except Exception as error:
        if listed:  # the range is beyond the end of an object that was replaced by a shorter one
            try:
                await check()
            except DocumentChanged:
                raise
            except Exception:  # noqa: BLE001 - the error of the read itself says more
                raise error from None
        raise
    if listed:
        await check()  # after reading, not before: the object may be replaced in between
    return data


# --- rows ---


def file_version(document: Document) -> str:
    """Return the version of the file that a document lies in, as it was listed."""
    stamp: str | None = getattr(document.part, "stamp", None)
    return document.version if stamp is None else stamp


def _row_of(document: Document) -> dict[Any, Any]:
    """Return the values of a row by column, from the reader of its kind of part."""
    part: Any = document.part
    kind = type(part)
    if kind is Row:
        return parquet.row(document.where, file_version(document), document.key, part)
    if kind is Line:
        return lines.row(document.where, document.version, document.key, part)
    if kind is Inline:
        names, values = part
        return dict(zip(names, _sent(document.key, values), strict=True))
    raise WrongKind(key=document.key, kind=_kind_of(part), asked="doc.row", instead=_READ_AS_FILE)


def _cell_of(document: Document, column: Any) -> Any:
    """Return one value of a row."""
    part: Any = document.part
    kind = type(part)
    if kind is Line:
        return lines.cell(document.where, document.version, document.key, part, column)
    if kind is Inline:
        names, values = part
        if column not in names:
            check_column(column, names, "the frame", "read")
        return _sent(document.key, values)[names.index(column)]
    raise WrongKind(key=document.key, kind=_kind_of(part), asked=f"doc[{column!r}]", instead=_READ_AS_FILE)


def _line_of(document: Document, asked: str) -> builtins.bytes:
    """Return the bytes of a record in a file of lines, or raise `WrongKind`."""
    part = document.part
    if type(part) is Line:
        return lines.raw(document.where, document.version, document.key, part)
    raise WrongKind(key=document.key, kind=_kind_of(part), asked=asked, instead="doc.row or doc['column']")


def _check_text(document: Document, head: builtins.bytes, asked: str) -> None:
    """Raise `WrongKind` for a file that no encoding turns into text."""
    if (found := binary_kind(head)) is not None:
        members = "dq.Documents.from_archive(), " if kind_of(head) in ("zip", "tar") else ""
        way = f"{members}doc.bytes() or doc.open() with a library for this format"
        instead = "doc.text() or doc.pages()" if found == "a PDF" else way
        raise WrongKind(key=document.key, kind=found, asked=asked, instead=instead)


_READ_AS_FILE = "doc.text(), doc.bytes() or doc.open()"


def _kind_of(part: Part | None) -> str:
    """Return what a document is, for errors."""
    if type(part) is Row:
        return "a row of a Parquet file"
    if type(part) is Inline:
        return "a row of a frame"
    return "a record in a file" if type(part) is Line else "a file, or a part of one"


def _sent(key: Any, values: Any) -> Any:
    """Return the values of a row, or raise `DocumentError` if they were too large for its message."""
    if isinstance(values, int):
        raise DocumentError(
            reason=f"row {key!r} takes {many(values, 'byte')}, and a message has at most {largest_row():,}. Its values "
            "were not sent; the other rows were. Choose fewer columns with columns=[...], or write the frame to a "
            "Parquet file and use dq.Documents.from_parquet, whose rows are read where they are needed."
        )
    return values


def largest_row() -> int:
    """Return how many bytes the values of a row may take in a message."""
    return nbytes(option("message.max-bytes"), name="dqlab.message.max-bytes") - _ROOM


# --- pickles ---


# Logs of queues contain references by the names of the next seven functions, of the classes in `parts`, and of
# `storage.stored` and `storage.named`; `labelled` finds keys by these names. Renaming or moving one, or changing the
# order of its arguments, makes messages unreadable that were put before.
def _revive(
    where: str, cut: int | str, version: str, size: int | None, n_pages: int | None, part: Part | None = None
) -> Document:
    key = where[len(where) - cut :] if isinstance(cut, int) else cut
    return Document(key, version, where, size, n_pages, part)


# The next four make references by the million, here and where functions run. They write the fields without the checks
# of `Document(...)`, in a third of its time; a new field of `Document` must be set in `made`, too.
_new, _tuple = object.__new__, tuple.__new__
_SLOTS: dict[str, Any] = {field.name: vars(Document)[field.name].__set__ for field in fields(Document)}
# In the order of the fields.
_key, _version, _where, _size, _n_pages, _part, _encoding = _SLOTS.values()


def made(key: str | int, where: str, version: str, size: int | None, part: Part) -> Document:
    """Return a document that is a part of a file, from values that need no check."""
    document = _new(Document)
    _key(document, key)
    _version(document, version)
    _where(document, where)
    _size(document, size)
    _n_pages(document, None)
    _part(document, part)
    _encoding(document, None)
    return document


def _row(key: str | int, where: str, version: str, *part: Any) -> Document:
    return made(key, where, version, None, _tuple(Row, (*part, *((), None)[len(part) - 3 :])))


def made_rows(keys: Sequence[str | int], where: str, versions: Iterable[str], part: Row) -> list[Document]:
    """Return neighbours in a row group from `part` on."""
    group, at, *others = part
    parts = zip(repeat(group), range(at, at + len(keys)), *map(repeat, others), strict=False)
    return _made(keys, repeat(where), versions, repeat(None), map(_tuple, repeat(Row), parts))


def _made(keys: Sequence[str | int], *columns: Iterable[Any]) -> list[Document]:
    """Return documents by the columns of their keys, places, versions, sizes and parts."""
    # Field by field for all of them, in loops of C: a third of the time that `made` needs for one after another.
    documents, none = [*map(_new, repeat(Document, len(keys)))], repeat(None)
    fields = _key, _where, _version, _size, _part, _n_pages, _encoding
    for note, column in zip(fields, (keys, *columns, none, none), strict=True):
        deque(map(note, documents, column), maxlen=0)
    return documents


def place_within(document: Document) -> tuple[str, bool] | None:
    """Return the archive of a document and True, or the folder that its key is below and False, or else None."""
    key, where, part = document.key, document.where, document.part
    if not isinstance(key, str) or document.n_pages is not None:
        return None
    if part is None and where.endswith(key):
        return located(where[: len(where) - len(key)], storage_of(where)), False
    return (where, True) if type(part) is Member else None


def fields_within(document: Document) -> tuple[Any, ...]:
    """Return what differs between documents of one place: key, version, size, and the member with another name."""
    about, part = (document.key, document.version, document.size), document.part
    return about if part is None or part == (document.key, -1) else (*about, *part)


def made_within(place: tuple[str, bool], found: Sequence[tuple[Any, ...]]) -> list[Document]:
    """Return documents of one place by the fields of each."""
    where, archived = place
    keys, versions, sizes = ([each[at] for each in found] for at in range(3))
    if archived:
        parts = [_tuple(Member, each[3:] or (each[0], -1)) for each in found]
        return _made(keys, repeat(where), versions, sizes, parts)
    storage = storage_of(where)
    return _made(keys, [located(where + key, storage) for key in keys], versions, sizes, repeat(None))


def _within(place: tuple[str, bool], _at: int, found: tuple[Any, ...]) -> Document:
    return made_within(place, (found,))[0]


class Within(NamedTuple):
    """Pickles a document of a place so that two differ in a number, and in their fields right behind it: None here."""

    place: tuple[str, bool]
    """As `place_within` returns it."""
    at: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _within, (*self, None)


def _row_at(name: str, where: str, version: str, before: int, *part: Any) -> Document:
    group, columns, added, at, *key = part
    named, stamp = key[0] if key else f"{name}:{before + at}", None
    if type(named) is tuple:
        (named, version), stamp = named, version
    return made(named, where, version, None, _tuple(Row, (group, at, columns, added, stamp)))


class RowAt(NamedTuple):
    """Pickles a row of a Parquet file so that two of a group differ in a number, and in the key right behind it."""

    name: str
    where: str
    version: str
    before: int
    """Rows of the file before its row group."""
    row: Row
    keyed: bool
    """Whether it has a key, and None stands for it, or for both its key and its version; otherwise its position in the
    file names it."""

    def __reduce__(self) -> tuple[Any, ...]:
        group, at, columns, added, _ = self.row
        key = (None,) if self.keyed else ()
        return _row_at, (self.name, self.where, self.version, self.before, group, columns, added, at, *key)


def _line(key: str | int, where: str, version: str, *part: Any) -> Document:
    return made(key, where, version, part[1], _tuple(Line, part))


def _inline(key: str | int, where: str, version: str, *part: Any) -> Document:
    return made(key, where, version, None, _tuple(Inline, part))


def _numbered(key: int, where: str, version: str, size: int | None, n_pages: int | None, part: Part | None) -> Document:
    return Document(key, version, where, size, n_pages, part)


_REVIVED = {each.__name__: each for each in (_revive, _row, _row_at, _within, _line, _inline, _numbered)}
_OPENED: dict[tuple[str, str], Any] = {(each.__module__, each.__qualname__): each for each in PARTS}
_OPENED |= {(__name__, name): revived for name, revived in _REVIVED.items()}
_OPENED |= {(each.__module__, each.__qualname__): each for each in (stored, named, Labelled)}
"""Globals that a pickled reference may name."""


def sealed_key(payload: builtins.bytes | memoryview) -> str | int | None:
    """Return the key of a pickled `Document`, or a label, or None for anything else."""
    found = _sealed(payload)
    return found.label if type(found) is Labelled else found.key if type(found) is Document else None


def sealed_document(payload: builtins.bytes | memoryview) -> Document | None:
    """Return a pickled `Document`, labelled or not, without running a user's code, or None for anything else."""
    found = sealed_plainly(payload)
    return found if type(found) is Document else None


def sealed_plainly(payload: builtins.bytes | memoryview) -> Any:
    """Return a pickled value without its label if it opens without a user's code, else None."""
    found = _sealed(payload)
    return found.value if type(found) is Labelled else found


def _sealed(payload: builtins.bytes | memoryview) -> Any:
    try:
        return _DocumentOnly(io.BytesIO(payload)).load()
    except Exception:  # noqa: BLE001 - any payload may come here, also one that is no reference
        return None


class _DocumentOnly(pickle.Unpickler):
    """Opens pickles that name nothing but `Document` and its parts, so that no user's code runs."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OPENED:
            return _OPENED[module, name]
        raise pickle.UnpicklingError(f"{module}.{name}")


def _check_encoding(encoding: Any) -> None:
    """Raise `BadOption`, with a similar name, for an encoding that Python does not know, unless it is None."""
    try:
        "".encode("utf-8" if encoding is None else encoding)  # refuses base64, too, which makes no text
    except (LookupError, TypeError, ValueError):
        from encodings.aliases import aliases

        hint = meant(encoding, aliases) if isinstance(encoding, str) else ""
        examples = " Examples: 'utf-8', 'latin-1', 'cp1252'."
        problem = f"is not a text encoding of Python. Nothing was read.{hint or examples}"
        raise BadOption(option="encoding", value=encoding, problem=problem) from None
