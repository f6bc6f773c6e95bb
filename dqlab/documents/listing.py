"""Listings of documents: what `map` iterates over.

Owns the public face: making a listing, iterating, counting and slicing it. Holds no documents and
no contents; the sources provide them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import index as as_index
from typing import Any, overload

from dqlab.documents.document import Document
from dqlab.documents.frames import FrameRows
from dqlab.documents.parquet import ParquetRows
from dqlab.documents.pattern import parse
from dqlab.documents.records import Records, csv_form
from dqlab.documents.sources import Given, Glob, Source, Window, stdlib
from dqlab.errors import BadOption, DqlabError, LengthUnknown, in_words

__all__ = ["Documents", "parsed_natively"]


_NOT_A_PATTERN = "is not a path or URL. Files that are known one by one: Documents(paths)."


class Documents:
    """A lazy listing of documents, recreated each time it is iterated.

    Parameters
    ----------
    iterable : iterable or callable
        Paths, fsspec URLs or `Document`; or a function without arguments that returns an iterable
        of them. An iterator is taken too, but gives its documents only once.
    key : callable or None
        From an element to the key of its document, a string. None: the path or URL as given, with
        "/" between its parts. Keys may repeat; results are told apart by their position.

    Notes
    -----
    An element that cannot be examined from here is listed with version "" and size None, and fails
    when it is opened. Each URL costs one request to its store; a `Document` costs nothing.

    Raises
    ------
    BadOption
        Neither iterable nor callable, or a single path.
    NotADocument
        While iterating: an element is something else.
    DocumentsUsedUp
        When an iterator is iterated a second time.
    """

    __slots__ = ("_source",)
    _source: Source

    def __init__(
        self, iterable: Iterable[Any] | Callable[[], Iterable[Any]], key: Callable[[Any], str] | None = None
    ) -> None:
        self._source = Given(iterable, key)

    @classmethod
    def stdlib(cls) -> Documents:
        """List the Python sources of the standard library: some 700 documents of 60-line pages.

        Tests and installed packages are left out. Keys are paths relative to the library's folder,
        such as "json/decoder.py"; `page_count` is known.

        Raises
        ------
        FolderNotFound
            This Python came without its sources.
        """
        return cls._of(stdlib())

    @classmethod
    def from_glob(cls, pattern: str | os.PathLike[str]) -> Documents:
        """List the files that match a pattern, in the order of their keys.

        Parameters
        ----------
        pattern : str or path
            A local path or an fsspec URL ("s3://bucket/**/*.pdf"). ``*``, ``?`` and ``[...]`` match
            within one name, ``**`` any number of folders; names that begin with a dot only match
            when the pattern has the dot. Links are followed.

        Returns
        -------
        Documents
            Possibly empty. Keys are paths relative to the folder before the first wildcard; versions
            are the store's etag, or size and modification time.

        Raises
        ------
        FolderNotFound
            That folder does not exist.
        BadOption
            It is not a path; it names a folder, or has ".." after a wildcard; or its file system cannot be listed.
        ImportError
            The file system behind a URL is not installed.
        """
        if not isinstance(pattern, str | os.PathLike):
            raise BadOption(option="pattern", value=pattern, problem=_NOT_A_PATTERN)
        text = os.fspath(pattern)
        try:
            folder, below = parse(text)
            return cls._of(Glob(folder, below, f"Documents.from_glob({text!r})"))
        except (DqlabError, ImportError):
            raise
        except Exception as error:
            problem = f"cannot be listed: {in_words(error)}. Check its scheme, host and path. Nothing was listed."
            raise BadOption(option="pattern", value=text, problem=problem) from error

    @classmethod
    def from_parquet(cls, files: Any, key: str | None = None, columns: Iterable[str] | None = None) -> Documents:
        return cls._of(ParquetRows(files, key, columns))

    @classmethod
    def from_frame(cls, frame: Any, key: Any = None, columns: Iterable[Any] | None = None) -> Documents:
        return cls._of(FrameRows(frame, key, columns))

    @classmethod
    def from_jsonl(cls, files: Any, key: str | None = None) -> Documents:
        return cls._of(Records(files, key, "", "from_jsonl"))

    @classmethod
    def from_csv(cls, files: Any, key: str | None = None, *, delimiter: str = ",", encoding: str = "utf-8") -> Documents:
        return cls._of(Records(files, key, csv_form(delimiter, encoding), "from_csv"))

    @classmethod
    def _of(cls, source: Source) -> Documents:
        listing = cls.__new__(cls)
        listing._source = source
        return listing

    def __iter__(self) -> Iterator[Document]:
        """List the documents; those deleted before they are examined are left out."""
        if isinstance(self._source, ParquetRows):
            return self._source.documents()
        return (document for look in self._source.looks() if (document := look()) is not None)

    @property
    def repeats(self) -> bool:
        """Whether they can be listed more than once; False when they come from an iterator."""
        return self._source.repeats

    def __len__(self) -> int:
        """Count the documents by listing them, without examining any.

        Raises
        ------
        LengthUnknown
            They come from an iterator, which counting would use up.
        """
        if not self.repeats:
            raise LengthUnknown()
        return sum(1 for _ in self._source.looks())

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Documents: ...
    def __getitem__(self, index: int | slice) -> Document | Documents:
        """Return a part, listed when it is iterated; or one document, listed now.

        Raises
        ------
        BadOption
            The index counts from the end, which a lazy listing does not know.
        IndexError
            There are fewer documents.
        """
        if isinstance(index, slice):
            start, step = _position(index.start, 0), _position(index.step, 1)
            stop = None if index.stop is None else _position(index.stop, 0)
            if step == 0:
                raise BadOption(option="step", value=0, problem="a slice steps forward.")
            return self._of(Window(self._source, start, stop, step))
        position = _position(index, 0)
        for document in islice(self[position:], 1):
            return document
        raise IndexError(f"{self!r} has no document {position}")

    def __repr__(self) -> str:
        """Show where the documents come from, without listing them; for a glob, whether there are any."""
        source = self._source
        if isinstance(source, Glob):
            with suppress(DqlabError):  # the folder is gone; listing will say so
                return source.label if next(source.looks(), None) else f"{source.label}: 0 documents"
        return source.label


def _position(value: Any, default: int) -> int:
    position = default if value is None else as_index(value)
    if position < 0:
        problem = "a lazy listing has no end to count from. Use list(documents) first."
        raise BadOption(option="index", value=position, problem=problem)
    return position


NATIVE = (".pdf",)
"""Suffixes of their names, in lower case."""


def parsed_natively(documents: Any) -> bool:
    """Return whether the first document is of such a kind; False for what can be iterated only once."""
    first = None
    if isinstance(documents, Documents):
        with suppress(DqlabError, OSError, LookupError):  # iterating raises it again
            first = documents[0] if documents.repeats else None
    elif isinstance(documents, Sequence) and documents:
        first = documents[0]
    return isinstance(first, Document) and first.where.partition("::")[0].lower().endswith(NATIVE)
