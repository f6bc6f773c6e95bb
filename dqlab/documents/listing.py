"""Listings of documents: what `map` iterates over.

Owns the public class: making a listing, iterating, counting and slicing it. Holds no documents and no contents; the
sources provide them.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from operator import index as as_index
from time import monotonic
from typing import Any, Literal, overload

from dqlab.documents.archives import ENDINGS, load_zstandard
from dqlab.documents.document import Document
from dqlab.documents.folders import parse
from dqlab.documents.formats import is_pdf_here, load_html_parser, load_pdfium
from dqlab.documents.frames import FrameRows, rows_of_dask, rows_of_frame, rows_of_hf
from dqlab.documents.parts import Inline, Line, PageRange, Row, file_name
from dqlab.documents.row_files import ParquetRows, Records, csv_form
from dqlab.documents.sources import (
    Given,
    Glob,
    LongestFirst,
    Probed,
    ProbingLab,
    Sample,
    Source,
    Split,
    Unpacked,
    Where,
    Window,
    counted,
    lacks_pages,
    stdlib,
)
from dqlab.documents.spans import grouped
from dqlab.documents.storage import check_options, local_path, spelled_out, storage_of
from dqlab.errors import BadOption, DqlabError, ExtraMissing, LengthUnknown, PositionNotFound, in_words
from dqlab.keywords import SuggestsAttributes
from dqlab.numbers import many

_NOT_A_PATTERN = "is not a path or URL. Files that are known one by one: Documents(paths)."


class Documents(SuggestsAttributes):
    """A lazy listing of documents, recreated each time it is iterated.

    Parameters
    ----------
    iterable : iterable or callable
        Paths, fsspec URLs or `Document`; or a function without arguments that returns an iterable of them. An iterator
        works too, but yields its documents only once.
    key : callable or None
        From an element to the key of its document, a string. None: the path or URL as given, with "/" between its
        parts. Keys may repeat; positions distinguish their results.
    storage_options : dict, str or None
        Options for the file systems behind URLs, here and where functions run, such as
        ``{"endpoint_url": "https://minio.example.org", "key": "env:MINIO_KEY", "secret": "env:MINIO_SECRET"}``. They
        travel with each reference, and are kept in the run's queue. Secrets are looked up where a document is opened:
        "env:NAME" in the environment, "config:NAME" in Dask's config; a string instead of a dict names a section of it.

    Notes
    -----
    An element that cannot be examined from here is listed with version "" and size None, and fails when it is opened.
    Each URL costs one request to its store; a `Document` costs none. If a web server sends nothing for 20 seconds (or
    120, with ``{"client_kwargs": {"timeout": 120}}`` in `storage_options`), the listing issues a warning, and lists the
    server's other URLs without a request, as elements that cannot be examined.

    Raises
    ------
    BadOption
        Neither iterable nor callable, or a single path; or `storage_options` contains values other than text, numbers
        and booleans.
    DocumentError
        When a document is opened or listed: a name in `storage_options` is not set there.
    UsageError
        A secret itself is among `storage_options`; or, while iterating: an element is something else, or an iterator
        is iterated a second time.
    """

    __slots__ = ("_source",)
    _source: Source

    def __init__(
        self,
        iterable: Iterable[Any] | Callable[[], Iterable[Any]],
        key: Callable[[Any], str] | None = None,
        *,
        storage_options: Mapping[str, Any] | str | None = None,
    ) -> None:
        self._source = Given(iterable, key, check_options(storage_options))

    @classmethod
    def stdlib(cls) -> Documents:
        """List the Python sources of the standard library: some 700 documents of 60-line pages.

        Leaves out tests and installed packages. Keys are paths relative to the library's folder, such as
        "json/decoder.py"; `page_count` is known.

        Raises
        ------
        InputNotFound
            This Python came without its sources.

        Examples
        --------
        >>> "json/decoder.py" in [document.key for document in dq.Documents.stdlib()]
        True
        """
        return cls._of(stdlib())

    @classmethod
    def from_glob(
        cls, pattern: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | str | None = None
    ) -> Documents:
        """List the files that match a pattern, in the order of their keys.

        Parameters
        ----------
        pattern : str or path
            A local path or an fsspec URL ("s3://bucket/**/*.pdf"). ``*``, ``?`` and ``[...]`` match
            within one name, ``**`` any number of folders; names that begin with a dot only match
            when the pattern has the dot. Links are followed. In a URL of a web server, the first
            ``?`` begins the query.
        storage_options : dict, str or None
            As for `Documents`.

        Returns
        -------
        Documents
            Possibly empty. Keys are paths relative to the folder before the first wildcard; versions
            are the store's etag, or size and modification time.

        Raises
        ------
        InputNotFound
            That folder does not exist.
        BadOption
            The pattern is not a path, names a folder, or has ".." after a wildcard; or listing its file system fails.
        InputUnreadable
            While iterating: there is no permission to list a folder below it.
        ExtraMissing
            The file system behind a URL is not installed; an `ImportError`.

        Examples
        --------
        >>> papers = dq.Documents.from_glob("papers/**/*.pdf")  # doctest: +SKIP
        """
        if not isinstance(pattern, str | os.PathLike):
            raise BadOption(option="pattern", value=pattern, problem=_NOT_A_PATTERN)
        text = os.fspath(pattern)
        storage = check_options(storage_options)
        try:
            folder, below = parse(text, storage)
            return cls._of(Glob(folder, below, f"Documents.from_glob({text!r})"))
        except (DqlabError, ImportError):
            raise
        except Exception as error:
            problem = f"cannot be listed: {in_words(error)}. Check its scheme, host and path. Nothing was listed."
            raise BadOption(option="pattern", value=text, problem=problem) from error

    @classmethod
    def from_archive(
        cls,
        archive: str | os.PathLike[str],
        pattern: str | None = None,
        *,
        storage_options: Mapping[str, Any] | str | None = None,
    ) -> Documents:
        """List the members of an archive that match a pattern, in the order of the archive.

        Parameters
        ----------
        archive : str or path
            A zip, or a tar, also compressed by gzip, bzip2, xz or Zstandard, recognised by its bytes, not by its name.
            A local path or an fsspec URL. With wildcards, as for `from_glob`: all matching archives.
        pattern : str or None
            Pattern for the names of members, as for `from_glob`: a name that begins with a dot
            matches only a part that does so, too. None: all members, whatever their names.
        storage_options : dict, str or None
            As for `Documents`.

        Returns
        -------
        Documents
            Keys are names in the archive, with "/" between their parts. If `archive` has wildcards, keys begin with its
            path relative to the folder before them. Members with the same name are documents with the same key. `size`
            is the unpacked size of the member; its version is its checksum in a zip, the archive's version in a tar.
            The listing leaves out folders, symbolic links and devices, and, with a warning, hard links and members
            whose name is absolute or contains "..". Encrypted members are listed, and fail when they are opened.

        Raises
        ------
        InputNotFound
            No archive matches.
        BadOption
            `archive` or `pattern` is not a pattern; or the file system cannot be listed.
        ExtraMissing
            The file system behind a URL is not installed; an `ImportError`.
        InputUnreadable
            While iterating: an archive is damaged, or is another kind of file.

        Notes
        -----
        A zip has a directory, which each process reads once. A tar has none: listing reads all of it, and decompresses
        a compressed one. Consumers keep archives open between documents.

        Warns if a tar has no end mark, or if more follows it, such as another tar.

        Examples
        --------
        >>> pages = dq.Documents.from_archive("dump.zip", "**/*.html")  # doctest: +SKIP
        >>> run = lab.map(lambda page: len(page.html().split()), pages)  # doctest: +SKIP
        """
        return cls._of(Unpacked(archive, pattern, check_options(storage_options)))

    # --- listings made from this one; each is lazy, and lists this one again when it is listed

    def where(self, condition: str | Callable[[Document], object]) -> Documents:
        """Return a listing of the documents that meet a condition.

        Parameters
        ----------
        condition : str or callable
            A Python expression over ``key``, ``size`` (bytes), ``pages``, ``version`` and ``where``. Unknown values are
            None, which is neither below nor above any value. Keys that are whole numbers are compared as texts. Or a
            function of a `Document` that returns whether to keep it.

        Raises
        ------
        BadOption
            The expression is invalid, or names no field; while documents are listed: it fails for one of them.

        Examples
        --------
        >>> docs = dq.Documents.stdlib().where("size < 50e3 and 'test' not in key")
        >>> all(document.size < 50_000 for document in docs)
        True
        """
        return self._of(Where(self._source, condition))

    def sample(self, n: int, by: Literal["pages", "size"] | None = None, seed: int = 0) -> Documents:
        """Return a listing of some documents, drawn at random but the same each time.

        Parameters
        ----------
        n : int
            Number of documents; all of them if there are fewer.
        by : {"pages", "size"} or None
            With "pages" or "size", the sample has the same proportions of short, medium and long documents as the
            whole: the documents are sorted by pages (or by bytes where pages are unknown), or by bytes, and cut into
            `n` strata, and one is drawn from each. None: all documents are equally likely.
        seed : int
            Another seed draws others.

        Raises
        ------
        BadOption
            An argument has an invalid value.

        Notes
        -----
        Iterating it holds all references, about 0.5 kB each. Each draw depends on the document's key, so one more file
        leaves most of a sample unchanged.

        Examples
        --------
        >>> docs = dq.Documents.stdlib().sample(30, by="size")
        >>> len(docs), list(docs) == list(docs)
        (30, True)
        """
        return self._of(Sample(self._source, n, by, seed))

    def longest_first(self) -> Documents:
        """Return a listing that begins with the longest documents, so that none of them runs alone at the end.

        Long means many pages, or many bytes if pages are unknown; documents with neither come last. Equally long ones
        keep their order. Iterating it holds all references, about 0.5 kB each.

        Examples
        --------
        >>> pages = [document.page_count for document in dq.Documents.stdlib().longest_first()]
        >>> pages == sorted(pages, reverse=True)
        True
        """
        return self._of(LongestFirst(self._source))

    def split(self, pages: int) -> Documents:
        """Return a listing that splits long PDFs into parts, each a separate document and message.

        Parameters
        ----------
        pages : int
            Maximum pages of a part.

        Returns
        -------
        Documents
            Parts have keys such as "a.pdf#p1-40of57", with pages counted from 1; `document.pages()` yields only theirs,
            and `bytes` the whole file. Shorter PDFs, and documents of other kinds, do not change.

        Raises
        ------
        BadOption
            `pages` is not a whole number above 0.
        ExtraMissing
            While iterating: pypdfium2 is not installed here, and pages must be counted.

        Notes
        -----
        PDFs whose number of pages is unknown are opened here, while they are listed.

        Examples
        --------
        >>> parts = dq.Documents.from_glob("papers/**/*.pdf").split(pages=40)  # doctest: +SKIP
        """
        return self._of(Split(self._source, pages))

    def probe(self, lab: ProbingLab) -> Documents:
        """Count the pages of PDFs on the consumers, and return a listing with the counts.

        Parameters
        ----------
        lab : Lab or QueuePool
            Where to count them. A run counts them, under a name that begins with "count-pages-". It shows its progress,
            and stays where the lab keeps its runs: in the store, if there is one. The same listing reuses the counts,
            unless a file was added, changed or removed since.

        Returns
        -------
        Documents
            The same documents. PDFs that cannot be opened stay without pages, and fail when they are read.

        Raises
        ------
        LengthUnknown
            The documents come from an iterator, which counting would exhaust.
        KeyboardInterrupt
            Ctrl-C stops waiting; the run continues, and another `probe` waits for the rest.

        Examples
        --------
        >>> pdfs = dq.Documents.from_glob("papers/**/*.pdf").probe(lab)  # doctest: +SKIP
        >>> long = pdfs.where("pages > 100").longest_first()  # doctest: +SKIP
        """
        if not self.repeats:
            raise LengthUnknown()
        unknown = self._of(Where(self._source, lacks_pages))
        first = next(iter(unknown), None)
        pages = {}
        if first is not None:
            # All lists have the same label, so add the first place to name the run.
            pages = counted(lab, unknown, f"{self._source.label}\0{first.where}")
        return self._of(Probed(self._source, pages))

    @classmethod
    def from_parquet(
        cls,
        files: Any,
        key: str | None = None,
        columns: Iterable[str] | None = None,
        *,
        version: str | Iterable[str] | None = None,
        storage_options: Mapping[str, Any] | str | None = None,
    ) -> Documents:
        """List the rows of Parquet files, each a document.

        This process reads only footers and the columns of `key` and `version`, while the listing is iterated. Functions
        read values with ``document["column"]`` or ``document.row``; a process decodes a row group once for all
        consecutive rows that it reads, and only the columns that are requested.

        Parameters
        ----------
        files : str, path, or iterable of them
            Paths, fsspec URLs, and patterns as for `from_glob`. A file that several of them match is listed once.
        key : str or None
            The column with the keys, unique texts or whole numbers. None: keys are the file and the row's position in
            it, from 0, such as "papers.parquet:17"; of a list of files with its folder, "2024/papers.parquet:17".
        columns : iterable of str or None
            The columns that rows have, in the file's order. None: all of them.
        version : str, iterable of str or None
            The columns whose values are the version of a row, such as "updated_at"; "*" for all that rows have, which
            takes 2 microseconds a row here. None: the version of a row is that of its file, so `Run.update` runs all
            rows of a file again when one of them has changed. It needs `key`.
        storage_options : dict, str or None
            As for `Documents`.

        Returns
        -------
        Documents
            Versions are the file's etag, or its size and modification time. With `version` they are hashes of values:
            neither the order of rows and columns nor the width of a number counts, and null is the same as a column
            that is not there. `size` and `page_count` are unknown. As in `pyarrow.dataset`, names that begin with "_"
            or "." match only a pattern that does so, too; folders such as ``year=2024/`` below the first wildcard (of
            listed files: in the whole path) are columns, of whole numbers if all their values are; and a column that a
            file lacks is None there if it is in the first file or in `columns`.

        Raises
        ------
        ColumnNotFound, DocumentError
            No file has the column, or the first one has it twice, or lacks the one with the keys. Later files are
            checked when the listing reaches them; an error ends it there.
        FileUnreadable
            A file is not Parquet, or is still being written.
        InputNotFound
            Nothing matches.
        DocumentError
            While iterating: a key is null, is neither text nor whole number, or repeats.
        DocumentChanged
            A file changes while it is listed; or, in the function, after it was listed.
        RecordInvalid
            In the function: Python cannot hold the value that it reads, such as a date after the year 9999. Other
            columns and rows are not affected.
        BadOption, InputUnreadable
            `files` or `columns` has an invalid value; a folder cannot be listed.
        ExtraMissing
            pyarrow, or the file system behind a URL, is not installed.

        Examples
        --------
        >>> import os, pandas as pd
        >>> pd.DataFrame({"id": ["a", "b"], "text": ["one", "two words"]}).to_parquet("papers.parquet")
        >>> papers = dq.Documents.from_parquet("papers.parquet", key="id")
        >>> [(paper.key, len(paper["text"].split())) for paper in papers]
        [('a', 1), ('b', 2)]
        >>> os.remove("papers.parquet")
        """
        return cls._of(ParquetRows(files, key, columns, version, check_options(storage_options)))

    @classmethod
    def from_frame(cls, frame: Any, key: Any = None, columns: Iterable[Any] | None = None) -> Documents:
        """List the rows of a frame in memory, each a document that travels with its values.

        Parameters
        ----------
        frame : pandas.DataFrame, polars.DataFrame, pyarrow.Table or pyarrow.RecordBatch
            Later changes to a pandas frame do not change the documents.
        key : object
            Label of the column with the keys, unique texts or whole numbers. None: the pandas index, unless it is the
            default one; otherwise positions from 0.
        columns : iterable or None
            Labels of the columns that are sent; choose those that the function reads. None: all of them.

        Returns
        -------
        Documents
            Versions are hashes of the rows, so that an edited frame is another input.

        Raises
        ------
        ColumnNotFound, DocumentError, BadOption
            The column is missing, or exists twice; or `frame` is not a frame.
        DocumentError
            While iterating: a key is missing, is neither text nor whole number, or repeats.
        DocumentError
            In the function: the row is above the limit of a message, 1 MiB. Other rows are not affected.
        RecordInvalid
            While iterating: Python cannot hold a value, such as a date after the year 9999.

        Notes
        -----
        Values are plain Python: numpy's scalars and arrays become numbers and lists, times `datetime` to the
        microsecond with their zone, categories their values. Missing values of pandas (None, NaN, NaT, NA) become None,
        as in the Parquet file that it would write; polars and Arrow distinguish null, which becomes None, from NaN,
        which stays.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"id": [7, 8], "text": ["one", None], "year": [1999.0, None]})
        >>> [(row.key, row.row) for row in dq.Documents.from_frame(frame, key="id", columns=["text", "year"])]
        [(7, {'text': 'one', 'year': 1999.0}), (8, {'text': None, 'year': None})]
        """
        return cls._of(rows_of_frame(frame, key, columns))

    @classmethod
    def from_dask(cls, collection: Any, key: Any = None, columns: Iterable[Any] | None = None) -> Documents:
        """List the rows of a Dask DataFrame, or of a bag of dicts, computing one partition at a time.

        Parameters
        ----------
        collection : dask DataFrame or Bag
            Partitions are computed here, with Dask's default scheduler, each time the listing is iterated.
        key, columns
            As for `from_frame`. The default index of a partition does not count: rows are numbered across partitions.
            Once a partition has other labels, as after a filter, the labels of all that follow are the keys.

        Returns
        -------
        Documents
            As for `from_frame`; for a bag, the columns are the keys of all dicts of a partition.

        Raises
        ------
        BadOption
            `collection` is neither of the two; or, while iterating, elements of the bag are not dicts. Others as for
            `from_frame`.

        Examples
        --------
        >>> import dask.bag
        >>> bag = dask.bag.from_sequence([{"id": "a", "n": 1}, {"id": "b", "n": 2}], npartitions=2)
        >>> [(row.key, row["n"]) for row in dq.Documents.from_dask(bag, key="id")]
        [('a', 1), ('b', 2)]
        """
        return cls._of(rows_of_dask(collection, key, columns))

    @classmethod
    def from_hf(cls, dataset: Any, key: str | None = None, columns: Iterable[str] | None = None) -> Documents:
        """List the rows of a Hugging Face dataset, reading it a thousand rows at a time.

        Parameters
        ----------
        dataset : datasets.Dataset
            One split. Values have the dataset's format; pictures and sounds are decoded only if you choose their
            columns.
        key, columns
            As for `from_frame`, without an index.

        Returns
        -------
        Documents
            As for `from_frame`.

        Raises
        ------
        BadOption
            The dataset is streamed, or has several splits. Others as for `from_frame`.

        Examples
        --------
        >>> rows = dq.Documents.from_hf(load_dataset("imdb", split="test"), columns=["text"])  # doctest: +SKIP
        """
        return cls._of(rows_of_hf(dataset, key, columns))

    @classmethod
    def from_jsonl(
        cls, files: Any, key: str | None = None, *, storage_options: Mapping[str, Any] | str | None = None
    ) -> Documents:
        r"""List the lines of files with one JSON object a line, each a document.

        This process reads files to the end while the listing is iterated; it decompresses compressed ones (gzip, bzip2,
        xz, Zstandard, recognised by their bytes and not by their names).

        Parameters
        ----------
        files : str, path, or iterable of them
            Paths, fsspec URLs, and patterns as for `from_glob`. A file that several of them match is listed once.
        key : str or None
            The name whose values are the keys, unique texts or whole numbers. None: keys are the file and the record's
            position in it, from 0, such as "notes.jsonl:17", and no line is parsed here.
        storage_options : dict, str or None
            As for `Documents`.

        Returns
        -------
        Documents
            Versions are hashes of the lines: when a log grows, its old lines keep their versions. `size` is the size of
            the line, in bytes. Blank lines are left out. A line that is not a JSON object has its position as key, and
            fails with `RecordInvalid` when its values are read; others continue.

        Raises
        ------
        FileUnreadable
            A file has another format, or is truncated; the documents before that were listed.
        DocumentError
            While iterating: a record has no key, a key that is neither text nor whole number, or a repeated key.
        InputNotFound, BadOption, InputUnreadable, ExtraMissing
            As for `from_parquet`.

        Examples
        --------
        >>> from pathlib import Path
        >>> _ = Path("notes.jsonl").write_text('{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n')
        >>> notes = dq.Documents.from_jsonl("notes.jsonl", key="id")
        >>> [(note.key, note["n"], note.text()) for note in notes[1:]]
        [('b', 2, '{"id": "b", "n": 2}')]
        >>> Path("notes.jsonl").unlink()
        """
        return cls._of(Records(files, key, "", "from_jsonl", check_options(storage_options)))

    @classmethod
    def from_csv(
        cls,
        files: Any,
        key: str | None = None,
        *,
        delimiter: str = ",",
        encoding: str = "utf-8",
        storage_options: Mapping[str, Any] | str | None = None,
    ) -> Documents:
        r"""List the rows of CSV files whose first line has the names of the columns, each a document.

        Parameters
        ----------
        files, key
            As for `from_jsonl`; CSV has no types, so that all values and keys are texts.
        delimiter : str
            The character between cells. A first line such as ``sep=;``, as Excel reads it, has precedence.
        encoding : str
            Any encoding in which a newline is the byte 10, so not UTF-16 or UTF-32.
        storage_options : dict, str or None
            As for `Documents`.

        Returns
        -------
        Documents
            As for `from_jsonl`. Columns are named as pandas names them: the second "a" is "a.1", a
            first one without a name is "Unnamed: 0". Cells in quotes may hold line ends. A row with
            more or fewer cells than the first line, in another encoding, or with a quote that does
            not end, or ends before its cell, fails with `RecordInvalid` when its values are read;
            others continue. If a key cannot be read, the row has its position as key.

        Raises
        ------
        ColumnNotFound
            The first line lacks the column. Others as for `from_jsonl`; also if the first line is in another encoding.

        Examples
        --------
        >>> from pathlib import Path
        >>> _ = Path("papers.csv").write_text('id,title\na,"On ""trees"",\nabridged"\n')
        >>> dq.Documents.from_csv("papers.csv", key="id")[0].row
        {'id': 'a', 'title': 'On "trees",\nabridged'}
        >>> Path("papers.csv").unlink()
        """
        return cls._of(Records(files, key, csv_form(delimiter, encoding), "from_csv", check_options(storage_options)))

    @classmethod
    def _of(cls, source: Source) -> Documents:
        listing = cls.__new__(cls)
        listing._source = source
        return listing

    def __iter__(self) -> Iterator[Document]:
        """List the documents; those deleted before they are examined are left out."""
        return self._source.documents()

    def _spans(self) -> Iterator[Any]:
        """List the documents, with a `Span` in place of those that one message can stand for."""
        source: Any = self._source
        if hasattr(source, "spans"):
            return iter(source.spans())
        return grouped(self) if hasattr(source, "place") else iter(self)  # one of a user may pause for hours

    def _more_than(self, n: int) -> bool:
        """Return whether there are, as far as a second of listing shows; sources that ask or read first say no."""
        if isinstance(self._source, Given):
            return isinstance(self._source.iterable, Sized) and len(self._source.iterable) > n
        if isinstance(self._source, LongestFirst | Sample | Probed) or isinstance(self._innermost(), Given):
            return False
        until = monotonic() + 1
        for at, _ in enumerate(self):
            if at == n or monotonic() > until:
                return at == n
        return False

    def why_none(self) -> str:
        """Return why there are no documents: a condition of `where` that none meets; else "".

        Examples
        --------
        >>> dq.Documents(["a", "b"]).where("size > 5").why_none()
        "none of the documents matches where('size > 5')."
        """
        for condition in self._conditions() if self.repeats else ():
            none = next(condition.documents(), None) is None
            if none and next(condition.source.documents(), None) is not None:
                return f"none of the documents matches where({condition.named})."
        return ""

    def _innermost(self) -> Any:
        """Return the source that the other sources are made from."""
        *_, innermost = self._sources()
        return innermost

    def _sources(self) -> Iterator[Any]:
        """Yield the source, and those that it is made from, the innermost last."""
        source: Any = self._source
        while source is not None:
            yield source
            source = getattr(source, "source", None)

    @property
    def filtered(self) -> bool:
        """Whether a condition of `where` applies."""
        return next(self._conditions(), None) is not None

    def _conditions(self) -> Iterator[Where]:
        return (source for source in self._sources() if isinstance(source, Where))

    @property
    def source_label(self) -> str:
        """The calls that made the listing; costs nothing."""
        return self._source.label

    @property
    def repeats(self) -> bool:
        """Whether the documents can be listed more than once; False if they come from an iterator."""
        return self._source.repeats

    def __len__(self) -> int:
        """Count the documents by listing them.

        Raises
        ------
        LengthUnknown
            The documents come from an iterator, which counting would exhaust.
        """
        if not self.repeats:
            raise LengthUnknown()
        if isinstance(self._source, ParquetRows | FrameRows):
            return self._source.count()
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Documents: ...
    def __getitem__(self, index: int | slice) -> Document | Documents:
        """Return a slice as a listing, or one document, which is listed now.

        Raises
        ------
        BadOption
            The index counts from the end, which a lazy listing does not know.
        PositionNotFound
            There are fewer documents; an IndexError.
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
        length = many(len(self), "document") if self.repeats else "fewer documents"
        raise PositionNotFound(what=self.source_label, length=length, position=position)

    def __repr__(self) -> str:
        """Return where the documents come from, without listing them, and for a glob whether there are none."""
        source = self._source
        if isinstance(source, Glob):
            with suppress(DqlabError):  # the folder is gone; listing raises the error
                return source.label if next(source.documents(), None) else f"{source.label}: 0 documents"
        return source.label


def _position(value: Any, default: int) -> int:
    position = default if value is None else as_index(value)
    if position < 0:
        problem = "a lazy listing has no end to count from. Use list(documents) first."
        raise BadOption(option="index", value=position, problem=problem)
    return position


def options_of(documents: Any) -> list[str]:
    """Return, as text, the storage options of an input's documents, as far as they are known without listing it."""
    # Options that this misses, such as those of later elements of a list, travel with each reference instead.
    return spelled_out(_storages(documents))


def _storages(documents: Any) -> set[str]:
    if isinstance(documents, Documents):
        source = documents._innermost()
        inside = _storages(source.iterable) if isinstance(source, Given) else set[str]()
        return {getattr(source, "storage", "")} | inside
    first = documents[0] if type(documents) in (list, tuple) and documents else None
    if type(first) is not Document or not storage_of(first.where):
        return set()
    return {storage_of(document.where) for document in documents if type(document) is Document}


def parsed_natively(documents: Any) -> bool:
    """Return whether the first document is a PDF, or part of one, so that its functions run in processes."""
    first = None
    if isinstance(documents, Documents):
        source = documents._source
        # Use the first document of the whole: the first of a sample, or of a sorted listing, is known only after all
        # are listed, and `map` would return only then.
        while isinstance(source, Sample | LongestFirst | Split | Probed):
            source = source.source
        with suppress(DqlabError, OSError, LookupError):  # iterating raises the same error
            first = Documents._of(source)[0] if documents.repeats else None
    elif isinstance(documents, Sequence) and documents:
        first = documents[0]
    return isinstance(first, Document) and is_pdf_here(first)


# --- what is in a listing, as far as it is known after a moment ---

PATIENCE = 2.0
"""Seconds until what was counted so far is shown."""
SHOWN = 5
NAMED = 3
"""Keys of unreadable documents that a summary names."""


@dataclass(slots=True)
class Summary:
    """What was counted in a listing."""

    label: str
    """The calls that made the listing."""
    first: list[Document] = field(default_factory=list)
    """The first five."""
    count: int = 0
    size: int = 0
    """Bytes of documents whose size is known; a file in several parts counts once."""
    sized: int = 0
    """Documents whose size is known."""
    pages: int = 0
    paged: int = 0
    """Documents whose number of pages is known."""
    formats: Counter[str] = field(default_factory=Counter)
    """Documents by `format_of`."""
    unreadable: int = 0
    """Documents that this process cannot examine or read."""
    named: list[str | int] = field(default_factory=list)
    """Keys of the first of these."""
    whole: bool = False
    """Whether everything was counted."""
    repeats: bool = True
    """Whether it can be listed more than once; if not, nothing was counted."""
    error: str = ""
    """The error that ended the listing."""
    none: str = ""
    """Why there are no documents; see `Documents.why_none`."""
    _places: set[int] = field(default_factory=set, repr=False)

    def add(self, document: Document) -> None:
        """Count one more document."""
        if len(self.first) < SHOWN:
            self.first.append(document)
        if document.size is not None:
            self.sized += 1
            self.size += document.size if self._is_first(document) else 0
        if document.page_count is not None:
            self.paged += 1
            self.pages += document.page_count
        self.formats[format_of(document)] += 1
        if not _is_readable(document):
            self.unreadable += 1
            if len(self.named) < NAMED:
                self.named.append(document.key)
        self.count += 1

    def _is_first(self, document: Document) -> bool:
        """Note a document's file, and return whether no other part of it was noted before."""
        if not isinstance(document.part, PageRange):
            return True
        place = hash((document.where, document.part.within))
        known = place in self._places
        self._places.add(place)
        return not known


def summarize(documents: Documents, patience: float = PATIENCE) -> Summary:
    """Count a listing for `patience` seconds at most, without raising and without using it up.

    Examples
    --------
    >>> from dqlab.documents import Documents
    >>> summary = summarize(Documents.stdlib()[:7])
    >>> summary.count, summary.formats, summary.whole
    (7, Counter({'py': 7}), True)
    """
    summary = Summary(documents.source_label, repeats=documents.repeats)
    if not documents.repeats:
        return summary
    ended, stop = threading.Event(), threading.Event()
    lock = threading.Lock()

    def look() -> None:
        try:
            for document in documents:
                with lock:
                    if stop.is_set():
                        return
                    summary.add(document)
            if not summary.count:
                summary.none = documents.why_none()
            summary.whole = not stop.is_set()
        except Exception as error:  # noqa: BLE001 - the summary shows it below what was found before
            with lock:
                summary.error = "" if stop.is_set() else in_words(error)
        finally:
            ended.set()

    threading.Thread(target=look, name="dqlab-summary", daemon=True).start()
    ended.wait(patience)
    with lock:  # the thread may be in the middle of a listing, and must not change the summary from now on
        stop.set()
    return summary


def format_of(document: Document) -> str:
    """Return the ending of a document's name, such as "pdf" or "txt.gz" or "", and "row" for rows and records."""
    if isinstance(document.part, Row | Line | Inline):
        return "row"
    name = file_name(document).rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    if dot and f".{ending}" in ENDINGS and "." in stem:
        return f"{stem.rpartition('.')[2]}.{ending}"
    return ending if dot and stem and len(ending) <= 8 else ""


_READERS = {"htm": load_html_parser, "html": load_html_parser, "pdf": load_pdfium, "zst": load_zstandard}


def lacking(kind: str) -> ExtraMissing | None:
    """Return what reading documents of a format would raise in this process for lack of a package."""
    try:
        for load in filter(None, map(_READERS.get, kind.split("."))):
            load()
    except ExtraMissing as error:
        return error
    return None


def _is_readable(document: Document) -> bool:
    if isinstance(document.part, Inline):
        return True
    path = local_path(document.where)
    if path is not None:
        return os.access(path, os.R_OK)
    return document.size is not None or bool(document.version)
