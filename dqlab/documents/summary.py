"""What is in a listing, as far as it is known after a moment: counts, sizes, pages, formats, unreadable documents.

Owns how long counting takes: a thread lists, and the summary is what it has found when time is up. Draws nothing.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass, field

from dqlab.documents.archives import ENDINGS, load_zstandard
from dqlab.documents.decoding import load_html_parser
from dqlab.documents.document import Document
from dqlab.documents.listing import Documents
from dqlab.documents.parts import Inline, Line, PageRange, Row, file_name
from dqlab.documents.pdf import load_pdfium
from dqlab.documents.storage import local_path
from dqlab.errors import ExtraMissing, in_words

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
