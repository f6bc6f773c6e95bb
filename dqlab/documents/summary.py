"""What is in a listing, as far as that is known within a moment: counts, sizes, pages, formats, what cannot be read.

Owns how long looking takes: a thread lists, and what it has found when time is up is the summary. Draws nothing.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass, field

from dqlab.documents.archives import ENDINGS
from dqlab.documents.document import Document
from dqlab.documents.listing import Documents
from dqlab.documents.parts import Inline, Line, PageRange, Row, file_name
from dqlab.documents.storage import local_path
from dqlab.errors import in_words

__all__ = ["PATIENCE", "Summary", "summarize"]

PATIENCE = 2.0
"""Seconds until what was counted so far is shown."""
SHOWN = 5
NAMED = 3
"""Documents that cannot be read and are named."""


@dataclass(slots=True)
class Summary:
    """A listing, looked at.

    Attributes
    ----------
    label : str
        The calls that made it.
    first : list of Document
        The first five.
    count : int
        Documents, as far as they were counted.
    size : int
        Bytes of those whose size is known; a file that comes in parts counts once.
    sized, paged : int
        Documents whose size and whose number of pages is known.
    pages : int
        Pages of these.
    formats : Counter
        Documents by the ending of their name, such as "pdf"; "" for none.
    unreadable : int
        Documents that cannot be examined or read from here.
    named : list of str
        Keys of the first of these.
    linked : int
        Documents whose file is listed already under another name: links lead to it.
    links : list of str
        Keys of the first of these.
    whole : bool
        Whether everything was counted.
    repeats : bool
        Whether it can be listed more than once; nothing was counted if not.
    error : str
        What ended the listing.
    none : str
        Which condition of `Documents.where` no document meets, and what there is; "" otherwise.
    """

    label: str
    first: list[Document] = field(default_factory=list)
    count: int = 0
    size: int = 0
    sized: int = 0
    pages: int = 0
    paged: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    named: list[str | int] = field(default_factory=list)
    linked: int = 0
    links: list[str | int] = field(default_factory=list)
    whole: bool = False
    repeats: bool = True
    error: str = ""
    none: str = ""
    _files: set[tuple[int, int]] = field(default_factory=set, repr=False)
    _places: set[int] = field(default_factory=set, repr=False)

    def add(self, document: Document) -> None:
        """Count one more."""
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
        if self._is_there(document):
            self.linked += 1
            if len(self.links) < NAMED:
                self.links.append(document.key)
        self.count += 1

    def _is_first(self, document: Document) -> bool:
        """Return whether no other part of a document's file was counted; note it."""
        if not isinstance(document.part, PageRange):
            return True
        place = hash((document.where, document.part.within))
        known = place in self._places
        self._places.add(place)
        return not known

    def _is_there(self, document: Document) -> bool:
        """Return whether the file of a document was counted under another name; note it."""
        path = local_path(document.where) if document.part is None else None
        try:
            about = None if path is None else os.stat(path)
        except OSError:
            return False
        if about is None or not about.st_ino:
            return False
        file = about.st_dev, about.st_ino
        known = file in self._files
        self._files.add(file)
        return known


def summarize(documents: Documents, patience: float = PATIENCE) -> Summary:
    """Look at a listing for some seconds at most, without an error and without using it up.

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
        except Exception as error:  # noqa: BLE001 - shown below what was found before it
            with lock:
                summary.error = "" if stop.is_set() else in_words(error)
        finally:
            ended.set()

    threading.Thread(target=look, name="dqlab-summary", daemon=True).start()
    ended.wait(patience)
    with lock:  # whatever the thread finds from now on, this summary stays as it is
        stop.set()
    return summary


def format_of(document: Document) -> str:
    """Return the ending of a document's name: "pdf", "txt.gz"; "" if it has none; "row" of what has columns."""
    if isinstance(document.part, Row | Line | Inline):
        return "row"
    name = file_name(document).rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    if dot and f".{ending}" in ENDINGS and "." in stem:
        return f"{stem.rpartition('.')[2]}.{ending}"
    return ending if dot and stem and len(ending) <= 8 else ""


def _is_readable(document: Document) -> bool:
    if isinstance(document.part, Inline):
        return True
    path = local_path(document.where)
    if path is not None:
        return os.access(path, os.R_OK)
    return document.size is not None or bool(document.version)
