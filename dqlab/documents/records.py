"""Records of JSON lines and CSV files as documents: what a client lists.

Owns naming records by their place, and examining them: their hash, and their key if a column has it. Values are read
where functions run, by `lines`.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from dqlab.documents.document import Document, made
from dqlab.documents.folders import Files, ListedFile
from dqlab.documents.keys import Keys, check_columns, key_of_row
from dqlab.documents.lines import Header, Record, header_of, open_lines, records, version_of_record
from dqlab.documents.parts import Line
from dqlab.documents.sources import Look
from dqlab.errors import BadOption

__all__ = ["Records", "csv_form"]


class Records:
    """All records of some files.

    Parameters
    ----------
    files : str, path, or iterable of them
        See `Files`.
    key : str or None
        The name of the value that is the key.
    form : str
        As in `Line`.
    label : str
        The name of the constructor.
    storage : str
        The name of options of file systems.
    """

    repeats = True

    def __init__(self, files: Any, key: Any, form: str, label: str, storage: str = "") -> None:
        self._key, self._form = key, form
        self._files = Files(files, "CSV" if form else "JSON lines", storage)
        words = [self._files.label, *([] if key is None else [f"key={key!r}"])]
        self.label = f"Documents.{label}({', '.join(words)})"
        assert self._files.first is not None, "or it had raised NoFiles"
        for _ in self._of_file(self._files.first):  # a wrong name is found here, not when others are on their way
            break

    def looks(self) -> Iterator[Look]:
        """Name the records, reading one file at a time."""
        keys = Keys(self._keys) if self._key is not None else None
        for file in self._files:
            for header, position, record in self._of_file(file):
                yield partial(self._look, file, header, position, record, keys)

    def documents(self) -> Iterator[Document]:
        """List the records; the same as all looks, for a little less."""
        keys = Keys(self._keys) if self._key is not None else None
        for file in self._files:
            for header, position, record in self._of_file(file):
                yield self._look(file, header, position, record, keys)

    def _of_file(self, file: ListedFile) -> Iterator[tuple[Header, int, Record]]:
        with open_lines(file.where, self._form) as stream:
            header = header_of(stream, self._form, file.where)
            if self._form and self._key is not None:
                check_columns([self._key], header.names, file.where)
            for position, record in enumerate(records(stream, self._form, header.size, file.where)):
                yield header, position, record

    def _look(self, file: ListedFile, header: Header, position: int, record: Record, keys: Keys | None) -> Document:
        key = self._key_of(file, header, position, record)
        if keys is not None:
            keys.add(key)
        size = len(record.raw)
        part = Line(record.offset, size, self._form)
        return made(key, file.where, version_of_record(record.raw, header), size, part)

    def _key_of(self, file: ListedFile, header: Header, position: int, record: Record) -> str | int:
        """Return a record's key. One that cannot be read is called by its place: it fails by that name, alone."""
        place = f"{file.name}:{position}"
        if self._key is None:
            return place
        if record.cells is not None:
            at = header.names.index(self._key)
            return record.cells[at] if at < len(record.cells) else place
        try:
            values = json.loads(record.raw.decode("utf-8"))
        except (ValueError, RecursionError):
            return place
        if type(values) is not dict:
            return place
        return key_of_row(values.get(self._key), self._key, file.where, position)

    def _keys(self) -> Iterator[tuple[str | int, str]]:
        for file in self._files:
            for header, position, record in self._of_file(file):
                yield self._key_of(file, header, position, record), f"{file.name}:{position}"


def csv_form(delimiter: Any, encoding: Any) -> str:
    """Return how a CSV file is read, as `Line` has it.

    Raises
    ------
    BadOption
        The delimiter is not one character, or the encoding is unknown, or has line ends of several bytes.
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        problem = "is not one character that can stand between cells. Nothing was listed. Pass ',' or ';' or '\\t'."
        raise BadOption(option="delimiter", value=delimiter, problem=problem)
    try:
        plain = "a,\n".encode(encoding) == b"a,\n"
        name = codecs.lookup(encoding).name
        if name == "utf-8-sig":  # a mark at the head of a file is taken off anyway
            plain, name = True, "utf-8"
    except (LookupError, TypeError, ValueError):
        raise BadOption(
            option="encoding", value=encoding, problem="is not a text encoding of Python. Nothing was listed."
        ) from None
    if not plain:
        problem = "has line ends of its own. Nothing was listed. Convert the file to UTF-8 first."
        raise BadOption(option="encoding", value=encoding, problem=problem)
    return f"{delimiter}{name}"
