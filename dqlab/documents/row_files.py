"""Rows of files as documents: what a client lists of Parquet, JSON lines and CSV.

Owns naming rows by their position, and examining them: their key if a column has it, and the hash of a record.
`parquet` and `lines` read the values where functions run.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, takewhile
from typing import Any, BinaryIO
from urllib.parse import unquote

from dqlab.documents.document import Document, made
from dqlab.documents.folders import Files, ListedFile
from dqlab.documents.keys import KEYS_OF_FILES, Keys, check_column, check_columns, chosen, key_of_row, versions_of
from dqlab.documents.lines import (
    Header,
    Record,
    called,
    header_of,
    in_another_encoding,
    listed,
    open_lines,
    records,
    version_of_record,
)
from dqlab.documents.parquet import OTHER_REASONS, ParquetTable, plain_values
from dqlab.documents.parts import Line
from dqlab.documents.spans import Rows
from dqlab.documents.storage import stamp_of
from dqlab.errors import BadOption, DocumentChanged, DocumentError, in_words

# --- Parquet ---------------------------------------------------------------------------------


KEYS_AT_ONCE = 4000
"""Keys that are read at once, some full frames of them."""
ALL = "*"
"""Stands for all columns of a row, as its version."""


class ParquetRows:
    """All rows of some Parquet files, with their keys from the column `key`, and only `columns`, or all for None.

    Their versions are hashes of what they have in the columns `version`, or those of their files for None.
    """

    repeats = True

    def __init__(self, files: Any, key: Any, columns: Any, version: Any = None, storage: str = "") -> None:
        self._key, self._columns = key, chosen(columns)
        self._version: Any = [version] if isinstance(version, str) and version != ALL else version
        self._version = ALL if version == ALL else chosen(self._version, "version")
        if version is not None and key is None:
            problem = "needs key=: without it, rows are known by their positions. Nothing was listed."
            raise BadOption(option="version", value=version, problem=problem)
        self._files, self.storage = Files(files, "Parquet", storage, hidden=(".", "_")), storage
        words = [self._files.label]
        words += [f"key={key!r}"] if key is not None else []
        words += [f"columns={self._columns!r}"] if self._columns is not None else []
        words += [f"version={version!r}"] if version is not None else []
        self.label = f"Documents.from_parquet({', '.join(words)})"
        self.place = self._files.first.where
        self._numbers = _of_folders(self._files.names())
        # Open the first file now, to find a wrong name before half of the rows are submitted.
        self._names = [*self._names_in(self._files.first), *self._numbers]
        self._check_chosen(self.place)

    def _names_in(self, file: ListedFile) -> list[str]:
        table = self._open(file)
        table.close()
        return table.names

    def _check_chosen(self, where: str) -> None:
        """Raise `ColumnNotFound` for a chosen column that no file has."""
        unknown, files = set(self._columns or ()) - set(self._names), iter(self._files)
        while unknown and (file := next(files, None)) is not None:
            unknown -= set(self._names_in(file))
        for name in filter(unknown.__contains__, self._columns or ()):
            check_column(name, self._names, where, "submitted")

    def count(self) -> int:
        """Return the number of rows from the files' footers."""
        total = 0
        for file in self._files:
            table = self._open(file)
            total += sum(table.group_rows)
            table.close()
        return total

    def documents(self) -> Iterator[Document]:
        """List the rows from the files' footers, with one file open at a time."""
        return chain.from_iterable(self.spans())

    def spans(self) -> Iterator[Rows]:
        """List neighbours."""
        known = Keys()
        for file, table, rows in self._opened():
            if self._key is not None:
                yield from self._keyed(file, table, rows, known)
            elif rows.count:
                yield rows

    def _keyed(self, file: ListedFile, table: ParquetTable, rows: Rows, known: Keys) -> Iterator[Rows]:
        """List the rows of a group by their keys, and maybe with versions of their own."""
        at, names = 0, list[str]()
        if self._version is not None:
            names = list(table.chosen(rows.columns)) if self._version == ALL else self._version
        for found, batch in self._keys_of_group(file, table, rows.group, rows.before, names):
            versions, first = None, at
            if self._version is not None:
                values = {name: _values(batch, name, file.where) for name in names}
                if self._version == ALL:
                    values |= {name: [value] * batch.num_rows for name, value in rows.added}
                versions = versions_of(values)
            for keys in known.noted(found, file.name, rows.before + at):
                its = versions and versions[at - first : at - first + len(keys)]
                yield replace(rows, count=len(keys), keys=keys, at=at, versions=its)
                at += len(keys)

    def _opened(self) -> Iterator[tuple[ListedFile, ParquetTable, Rows]]:
        """List the row groups."""
        for file in self._files:
            table = self._open(file)
            try:
                mask, added, before = self._mask(table), self._added(file, table), 0
                for group, count in enumerate(table.group_rows):
                    yield file, table, Rows(*file, before, group, count, mask, added)
                    before += count
            finally:
                table.close()

    def _open(self, file: ListedFile) -> ParquetTable:
        """Open a file, and check that it has the chosen columns."""
        with listed(file.where, "Parquet"):
            table = ParquetTable(file.where)
        try:
            wanted = table.names if self._columns is None else filter(set(table.names).__contains__, self._columns)
            needed = [self._key, *(() if self._version in (None, ALL) else self._version)]
            check_columns([*wanted, *(needed if self._key is not None else ())], table.names, file.where)
        except BaseException:
            table.close()
            raise
        return table

    def _mask(self, table: ParquetTable) -> int:
        if self._columns is None:
            return 0
        names = set(self._columns)
        # 0 would stand for all columns; a bit that no column has stands for none.
        return sum(1 << at for at, name in enumerate(table.names) if name in names) or 1 << len(table.names)

    def _added(self, file: ListedFile, table: ParquetTable) -> tuple[tuple[str, Any], ...]:
        """Return the columns that a file lacks, with the values of its folders, or None."""
        there, values = set(table.names), _folder_values(file.name)
        # A folder may have come since the first listing, whose types stay.
        numbers = {name for name, value in values.items() if self._numbers.get(name) and _is_whole(value)}
        lacks = [name for name in self._columns or self._names if name not in there]
        return tuple((name, int(values[name] or 0) if name in numbers else values.get(name)) for name in lacks)

    def _keys_of_group(
        self, file: ListedFile, table: ParquetTable, group: int, at: int, more: Sequence[str] = ()
    ) -> Iterator[tuple[list[str | int], Any]]:
        """Yield the keys of a row group with their batch, which also has columns `more`; raise for an invalid key."""
        for batch in self._batches_of_group(file, table, group, at, more):
            keys = _values(batch, self._key, file.where)
            good = keys if _USABLE.issuperset(map(type, keys)) else list(takewhile(_is_usable, keys))
            if good:
                yield good, batch
            at += len(good)
            for key in islice(keys, len(good), None):
                key_of_row(key, self._key, file.where, at)

    def _batches_of_group(
        self, file: ListedFile, table: ParquetTable, group: int, position: int, more: Sequence[str]
    ) -> Iterator[Any]:
        with listed(file.where, "Parquet"):
            names = list(dict.fromkeys((self._key, *more)))
            for batch in table.batches(group, names, None if more else KEYS_AT_ONCE):
                # After each batch: the keys of a file that was replaced must not go with the version that was listed.
                now = stamp_of(file.where).version
                if now != file.version:
                    row, was = f"{file.name}:{position}", file.version
                    raise DocumentChanged(document=row, was=was, now=now, way=DocumentChanged.OF_ROW)
                yield batch
                position += batch.num_rows


_USABLE = frozenset({str, int})
"""Types of keys."""


def _is_usable(key: Any) -> bool:
    return type(key) in _USABLE


def _values(batch: Any, name: str, where: str) -> list[Any]:
    """Return the values of a column that makes keys or versions, or raise `DocumentError`."""
    try:
        return plain_values(batch.column(batch.schema.names.index(name)))
    except OTHER_REASONS:
        raise
    except Exception as error:
        problem = f"column {name!r} of {where!r} has a value that Python cannot hold: {in_words(error)}"
        left = "The rows before it were listed, and those that were submitted go on."
        raise DocumentError(reason=f"{problem}. {left} {KEYS_OF_FILES}") from error


_INT32 = range(-(1 << 31), 1 << 31)
_NULL = "__HIVE_DEFAULT_PARTITION__"


def _folder_values(path: str) -> dict[str, str | None]:
    """Return columns and values in the names of folders, such as year=2024, Hive's partitions."""
    found: dict[str, str | None] = {}
    for name, equals, value in (folder.partition("=") for folder in path.split("/")[:-1]):
        if equals:
            found.setdefault(unquote(name), None if unquote(value) == _NULL else unquote(value))
    return found


def _of_folders(paths: Iterable[str]) -> dict[str, bool]:
    """Return the columns in the names of folders, and whether whole numbers are all their values."""
    found: dict[str, bool] = {}
    for name, value in chain.from_iterable(_folder_values(path).items() for path in paths):
        found[name] = found.get(name, True) and (value is None or _is_whole(value))
    return found


def _is_whole(value: str | None) -> bool:
    return value is not None and re.fullmatch("-?[0-9]+", value) is not None and int(value) in _INT32


# --- JSON lines and CSV ----------------------------------------------------------------------


class Records:
    """All records of some files, with their keys from the value named `key`, and the `form` of `Line`."""

    repeats = True

    def __init__(self, files: Any, key: Any, form: str, label: str, storage: str = "") -> None:
        self._key, self._form = key, form
        self._files, self.storage = Files(files, "CSV" if form else "JSON lines", storage), storage
        words = [self._files.label, *([] if key is None else [f"key={key!r}"])]
        self.label = f"Documents.{label}({', '.join(words)})"
        self.place = self._files.first.where
        where = self._files.first.where
        # Read the header of the first file now, to find a wrong name before records are submitted.
        with listed(where, called(form)), open_lines(where, form) as stream:
            self._header(stream, self._files.first)

    def documents(self) -> Iterator[Document]:
        """List the records, with one file open at a time."""
        keys = Keys()
        for file in self._files:
            for header, position, record in self._of_file(file):
                key = self._key_of(file, header, position, record)
                if self._key is not None:
                    keys.add(key, f"{file.name}:{position}")
                size = len(record.raw)
                part = Line(record.offset, size, header.form)
                yield made(key, file.where, version_of_record(record.raw, header), size, part)

    def _of_file(self, file: ListedFile) -> Iterator[tuple[Header, int, Record]]:
        with listed(file.where, called(self._form)), open_lines(file.where, self._form) as stream:
            header = self._header(stream, file)
            for position, record in enumerate(records(stream, header.form, header.size, file.where)):
                yield header, position, record

    def _header(self, stream: BinaryIO, file: ListedFile) -> Header:
        """Read what precedes the records, and check that there is a column with the keys."""
        header = header_of(stream, self._form, file.where)
        if self._form and self._key is not None:
            check_columns([self._key], header.names, file.where)
        return header

    def _key_of(self, file: ListedFile, header: Header, position: int, record: Record) -> str | int:
        """Return a record's key, or its position if the key cannot be read."""
        # A record whose key is unreadable gets its position as key, so that it alone fails, when a function reads it.
        place = f"{file.name}:{position}"
        if self._key is None:
            return place
        if record.cells is not None:
            at = header.names.index(self._key)
            key = record.cells[at] if at < len(record.cells) else place
            return place if in_another_encoding(key, record, self._form) else key
        try:
            values = json.loads(record.raw.decode("utf-8"))
        except (ValueError, RecursionError):
            return place
        if type(values) is not dict:
            return place
        return key_of_row(values.get(self._key), self._key, file.where, position)


def csv_form(delimiter: Any, encoding: Any) -> str:
    """Return the form of a CSV file for `Line`, or raise `BadOption` if newline is not byte 10 in its encoding."""
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        problem = "is not one character that can stand between cells. Nothing was listed. Pass ',' or ';' or '\\t'."
        raise BadOption(option="delimiter", value=delimiter, problem=problem)
    try:
        plain = "a,\n".encode(encoding) == b"a,\n"
        name = codecs.lookup(encoding).name
        if name == "utf-8-sig":  # a byte order mark at the start is removed in any case
            plain, name = True, "utf-8"
    except (LookupError, TypeError, ValueError):
        raise BadOption(
            option="encoding", value=encoding, problem="is not a text encoding of Python. Nothing was listed."
        ) from None
    if not plain:
        problem = "has line ends of its own. Nothing was listed. Convert the file to UTF-8 first."
        raise BadOption(option="encoding", value=encoding, problem=problem)
    return f"{delimiter}{name}"
