"""Files with one record per line, JSON or CSV, compressed or not: how their bytes become records.

Owns where a record ends, what its values are, and the files that a process keeps open. Knows nothing of listings. A
record's version is a hash of its bytes and of the header before the records, so that the old records of a log keep
their versions when it grows.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import threading
import weakref
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import Any, BinaryIO, NamedTuple, cast

from dqlab.documents.archives import compression_in, decompressor, is_damage
from dqlab.documents.formats import binary_kind, head_of, marked
from dqlab.documents.kept_open import Forward, KeptOpen, Piece, at_let_go
from dqlab.documents.keys import check_column
from dqlab.documents.parts import Line
from dqlab.documents.storage import is_of_server, local_path, open_binary, place_of, words_of_server
from dqlab.errors import DocumentChanged, FileUnreadable, RecordInvalid, in_words
from dqlab.numbers import many

BLOCK = 256 << 10
"""Bytes that are decompressed at once."""
BLOCKS_KEPT = 16
"""Decompressed blocks that are kept."""
LONGEST_CELL = 256 << 20
"""Characters of a CSV cell, at most: an unclosed quote turns the rest of the file into one cell."""


class Header(NamedTuple):
    """What precedes the records of a file."""

    names: tuple[str, ...]
    """Columns; empty for JSON."""
    size: int
    """Bytes before the first record."""
    seed: Any
    """A hash of the header, which the versions of records continue; None for JSON."""
    form: str
    """As that of `Line`, with the delimiter that the file itself names."""


class Record(NamedTuple):
    """A record as it is listed."""

    offset: int
    raw: bytes
    """Its bytes without the line end."""
    stop: int
    """Offset of the next record."""
    cells: list[str] | None = None
    """For CSV only."""


def row(where: str, version: str, key: Any, part: Line) -> dict[str, Any]:
    """Return the values of a record, or raise `DocumentChanged` if another record is there now."""
    return _parsed(where, version, key, part)


def cell(where: str, version: str, key: Any, part: Line, column: Any) -> Any:
    """Return one value of a record, with the errors of `row` and `ColumnNotFound`."""
    place = place_of(where), part.offset, version, part.form
    if getattr(_last, "place", None) != place:
        _last.values, _last.place = _parsed(where, version, key, part), place
    values: dict[str, Any] = _last.values
    if column not in values:
        check_column(column, tuple(values), where, "read")
    return values[column]


_last = threading.local()
"""The record that this thread parsed last, because functions read one value after another."""


def raw(where: str, version: str, key: Any, part: Line) -> bytes:
    """Return a record's bytes without the line end, with the errors of `row` except `RecordInvalid`."""
    now = "unknown"
    for again in (False, True):
        file = _FILES.get((place_of(where), part.form), partial(_LinesFile, where, part.form))
        try:
            found = file.read(part.offset, part.length)
        except FileUnreadable:
            if again:
                raise
        else:
            now = version_of_record(found, file.header)
            if len(found) == part.length and (not version or now == version):
                return found
        # The file may have been replaced, or have grown, since it was opened here: open it again, once.
        _FILES.forget((place_of(where), part.form))
    raise DocumentChanged(document=key, was=version, now=now, way=DocumentChanged.OF_ROW)


def _parsed(where: str, version: str, key: Any, part: Line) -> dict[str, Any]:
    found = raw(where, version, key, part)
    opened = partial(_LinesFile, where, part.form)
    names = _FILES.get((place_of(where), part.form), opened).header.names if part.form else ()
    try:
        return values_of(found, names, part.form)
    except _Invalid as error:
        raise RecordInvalid(
            reason=f"document {key!r}, {many(part.length, 'byte')} from byte {part.offset:,} of {where!r}, {error}. It "
            "has no values; the other records of the file are not touched by this. Its text is there as doc.text(). "
            "Correct the file, map it again.",
            key=key,
        ) from error.__cause__


# --- what bytes mean ------------------------------------------------------------------------


class _Invalid(ValueError):
    """A record is invalid, with the reason for users."""


def values_of(found: bytes, names: tuple[str, ...], form: str) -> dict[str, Any]:
    """Return the values in a record's bytes, or raise `_Invalid`."""
    try:
        text = found.decode(form[1:] or "utf-8")
    except UnicodeDecodeError as error:
        other = f" (another one: {_WITH_ENCODING})" if form else ""
        raise _Invalid(f"is not text in {error.encoding}{other}: {error.reason} at its byte {error.start:,}") from error
    if not form:
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _Invalid(f"is not JSON: {in_words(error)}") from error
        if type(values) is not dict:
            whole = f"; {_WHOLE.format(where='PATH')}" if type(values) is list else ""
            raise _Invalid(f"is a JSON {type(values).__name__}, not an object with names{whole}")
        return values
    try:
        cells = next(csv.reader(io.StringIO(text, newline="\n"), delimiter=form[0], strict=True), [])
    except csv.Error as error:
        raise _Invalid(f"is not CSV: {error}. {_WITH_QUOTES}") from error
    if len(cells) != len(names):
        raise _Invalid(f"has {many(len(cells), 'cell')}, and the first line of the file {len(names):,}")
    return dict(zip(names, cells, strict=True))


def in_another_encoding(found: str, record: Record, form: str) -> bool:
    """Return whether a text from a listed record contains bytes that are not in the encoding of its file."""
    # U+FFFD may also be in the file itself, so decode again without "replace".
    if "\ufffd" not in found:
        return False
    try:
        record.raw.removeprefix(BOM_UTF8).decode(form[1:])
    except UnicodeDecodeError:
        return True
    return False


def version_of_record(found: bytes, header: Header) -> str:
    """Return the version of a record."""
    if header.seed is None:
        return blake2b(found, digest_size=8).hexdigest()
    hashed = header.seed.copy()
    hashed.update(found)
    return cast(str, hashed.hexdigest())


def header_of(stream: BinaryIO, form: str, where: str) -> Header:
    """Read what precedes the records, and leave the stream at the first record."""
    try:
        head = cast(io.BufferedReader, stream).peek(64)
    except Exception as error:
        if not is_damage(error):
            raise
        raise _damaged(where, form, error) from error
    if not form:
        mark = len(BOM_UTF8) if head.startswith(BOM_UTF8) else 0
        stream.read(mark)
        if _ONE_DOCUMENT.match(head, mark):
            reason = "it is one JSON document over several lines, and JSON lines have a record in each"
            raise FileUnreadable(where=where, form="JSON lines", reason=reason, hint=_WHOLE.format(where=repr(where)))
        return Header((), mark, None, form)
    if (excel := _OF_EXCEL.match(head)) is not None:
        form = excel[1].decode() + form[1:]
    for record in records(stream, form, len(stream.read(excel.end() if excel else 0)), where):
        if record.cells is _BROKEN:
            lone = b"\r" in record.raw
            reason = "its lines end with a carriage return alone" if lone else "quotes in its first line do not pair up"
            raise FileUnreadable(where=where, form="CSV", reason=reason, hint=_WITH_NEWLINES if lone else _WITH_QUOTES)
        first = record.raw.removeprefix(BOM_UTF8).decode(form[1:], "replace").removeprefix("\ufeff")
        if in_another_encoding(first, record, form):
            reason, hint = f"its first line is not text in {form[1:]}", f"Name the encoding it has: {_WITH_ENCODING}"
            raise FileUnreadable(where=where, form="CSV", reason=reason, hint=hint)
        return Header(_column_names(record.cells or []), record.stop, blake2b(record.raw, digest_size=8), form)
    raise FileUnreadable(
        where=where, form="CSV", reason="it is empty, and has no first line with names", hint=_WITH_NAMES
    )


def _column_names(cells: list[str]) -> tuple[str, ...]:
    """Return names that differ, from the cells of the first line, as pandas makes them."""
    given, found, numbers = set(cells), dict[str, int](), Counter[str]()
    for at in sorted(range(len(cells)), key=lambda at: not cells[at]):  # those without a name last
        name = new = cells[at] or f"Unnamed: {at}"
        while new in found or (new != name and new in given):
            numbers[name] += 1
            new = f"{name}.{numbers[name]}"
        found[new] = at
    return tuple(sorted(found, key=found.__getitem__))


_OF_EXCEL = re.compile(rb'(?:\xef\xbb\xbf)?"?sep=([^"\r\n\x80-\xff])"?\r?\n', re.IGNORECASE)
"""The first line of a file whose delimiter Excel must not guess."""
_ONE_DOCUMENT = re.compile(rb"\s*[\[{][ \t\r]*\n")
"""The first line of an indented JSON document; no record is just a bracket."""
_WHOLE = "Read it as a whole: dq.Documents.from_frame(pd.read_json({where})), or map the list that json.load returns"
_WITH_NEWLINES = "Convert its line ends to newlines, for example with tr '\\r' '\\n' < old.csv > new.csv"
_WITH_ENCODING = "from_csv(..., encoding='latin-1')"
_WITH_QUOTES = (
    "CSV doubles quotes within quotes. For a file with backslashes before them, or with quotes that quote nothing: "
    "dq.Documents.from_frame(pd.read_csv(PATH, escapechar='\\\\', doublequote=False)), or quoting=csv.QUOTE_NONE"
)
_WITH_NAMES = "Give it a first line with the names of its columns, or leave it out of the pattern"


def records(stream: BinaryIO, form: str, at: int, where: str) -> Iterator[Record]:
    """Yield the records of a stream that is at byte `at`, without blank lines."""
    size = _size_of(stream)  # before reading, to notice a file that another program truncates meanwhile
    try:
        yield from _json_records(stream, at) if not form else _csv_records(stream, form, at)
        if size is not None and (end := stream.tell()) < size:
            reason = f"it ended at byte {end:,} of {size:,} that it had before: it was written again while it was read"
            hint = "If another program writes it, wait until it is whole; then map it again"
            raise FileUnreadable(where=where, form=called(form), reason=reason, hint=hint)
    except Exception as error:
        if not is_damage(error):
            raise
        raise _damaged(where, form, error) from error


def _size_of(stream: BinaryIO) -> int | None:
    """Return the size of a file, or None if it is unknown or compressed."""
    if isinstance(stream, _Decompressed):
        return None  # the decompressor reports a truncated file itself
    raw = getattr(stream, "raw", stream)
    if isinstance(raw, io.FileIO):
        return os.fstat(raw.fileno()).st_size
    details = getattr(raw, "details", None)
    return details.get("size") if isinstance(details, Mapping) else None


def _json_records(stream: BinaryIO, at: int) -> Iterator[Record]:
    for line in stream:
        found = line.strip(b" \t\r\n")
        if found:
            yield Record(at + line.index(found[:1]), found, at + len(line))
        at += len(line)


_BROKEN: list[str] = []
"""Stands for the cells of a line that is not CSV; compared by identity, because a blank line has no cells either."""


def _csv_records(stream: BinaryIO, form: str, at: int) -> Iterator[Record]:
    # Only the parser knows where a record ends: it takes another line while a quoted cell is open. `taken` has the
    # bytes of the lines that it has taken for the current record.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))
    taken: list[bytes] = []
    encoding = form[1:]
    named = at > 0

    def lines() -> Iterator[str]:
        for line in stream if not named else ():
            taken.append(line)
            # With a byte order mark before it, the parser would treat the quotes of a quoted name as part of the name.
            yield line.removeprefix(BOM_UTF8).decode(encoding, "replace").removeprefix("\ufeff")
            if named:
                break
        for line in stream:
            taken.append(line)
            # Do not raise here: a record in another encoding fails alone, when a function reads it.
            yield line.decode(encoding, "replace")

    # Strict, or a quote that does not end where its cell does would change the cell, or join rows, in silence.
    reader = csv.reader(lines(), delimiter=form[0], strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error:
            cells = _BROKEN if taken else None
        if cells is None:
            return
        whole = b"".join(taken)
        taken.clear()
        found = whole.removesuffix(b"\n").removesuffix(b"\r")
        if cells or cells is _BROKEN:
            named = True
            yield Record(at, found, at + len(whole), cells)
        at += len(whole)


# --- files ----------------------------------------------------------------------------------


def open_lines(where: str, form: str) -> BinaryIO:
    """Open a file at its start, decompressed according to its first bytes, whatever its name."""
    stream = open_binary(where)
    try:
        if not isinstance(stream, io.BufferedReader):
            stream = cast(BinaryIO, io.BufferedReader(cast(Any, stream)))
        kind = compression_in(stream)
        if kind is not None:
            return cast(BinaryIO, _Decompressed(decompressor(stream, kind), stream))
        head = head_of(stream)
        wide = {"utf-16": "text in UTF-16", "utf-32": "text in UTF-32"}.get(marked(head) or "")
        if (found := wide or binary_kind(head)) is not None:
            hint = "Leave it out of the pattern, or convert it first: lines are read as they are, or from gzip, "
            hint += "bzip2, xz and Zstandard"
            raise FileUnreadable(where=where, form=called(form), reason=f"it is {found}", hint=hint)
        return stream
    except BaseException:
        stream.close()
        raise


class _Decompressed(io.BufferedReader):
    """A decompressed stream that also closes the compressed one."""

    def __init__(self, opened: Any, stream: BinaryIO) -> None:
        super().__init__(opened, BLOCK)
        self._compressed = stream

    def close(self) -> None:
        super().close()
        self._compressed.close()


class _LinesFile:
    """A file whose records are read by offset, usually in order."""

    def __init__(self, where: str, form: str) -> None:
        self._lock = threading.Lock()
        stream = open_lines(where, form)
        try:
            self.header = header_of(stream, form, where)
        except BaseException:
            stream.close()
            raise
        self._forward: Forward[bytes] | None = None
        self._stream: BinaryIO | None = None
        self._local = False
        if isinstance(stream, _Decompressed):
            stream.close()
            self._forward = Forward(partial(_blocks, where, form), BLOCK * BLOCKS_KEPT)
        else:
            self._stream, self._local = stream, local_path(where) is not None
            weakref.finalize(self, stream.close)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from an offset on, or fewer at the end of the file."""
        if self._forward is not None:
            return self._joined(self._forward, offset, length)
        assert self._stream is not None
        # `pread` has no shared position, so slots need no lock; a remote stream has one.
        if self._local:
            return os.pread(self._stream.fileno(), length, offset)
        with self._lock:
            self._stream.seek(offset)
            return self._stream.read(length)

    def _joined(self, forward: Forward[bytes], offset: int, length: int) -> bytes:
        parts, stop = [], offset + length
        while offset < stop:
            try:
                piece = forward.at(offset)
            except IndexError:
                break
            parts.append(piece.held[offset - piece.start : stop - piece.start])
            offset = piece.stop
        return b"".join(parts)


def _blocks(where: str, form: str) -> Iterator[Piece[bytes]]:
    at = 0
    with open_lines(where, form) as stream:
        try:
            while block := cast(Any, stream).read1(BLOCK):
                yield Piece(at, at + len(block), block, len(block))
                at += len(block)
        except Exception as error:
            if not is_damage(error):
                raise
            raise _damaged(where, form, error) from error


_FILES: KeptOpen[_LinesFile] = KeptOpen(16)


@at_let_go
def _let_go() -> None:
    _FILES.clear()


def called(form: str) -> str:
    """Return the name of a form of lines in errors."""
    return "CSV" if form else "JSON lines"


@contextmanager
def listed(where: str, called: str) -> Iterator[None]:
    """Turn errors of a server while a file is listed into `FileUnreadable`."""
    # For listings only: where functions run, such an error stays as it is, because a retry can help.
    try:
        yield
    except Exception as error:
        if not is_of_server(error, where):
            raise
        reason = words_of_server(error)
        raise FileUnreadable(where=where, form=called, reason=reason, hint=FileUnreadable.OF_SERVER) from error


def _damaged(where: str, form: str, error: BaseException) -> FileUnreadable:
    hint = "It was cut off, or is still being written. Fetch or write it again, or leave it out of the pattern"
    return FileUnreadable(where=where, form=called(form), reason=in_words(error), hint=hint)
