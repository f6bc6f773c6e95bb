"""Counts the pages of PDFs where functions run, and lists documents with the counts.

Owns the run that counts, and which of its results a listing takes. Knows no cluster: a lab is anything that maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias

from dqlab.documents.document import Document
from dqlab.documents.parts import Member, PageRange
from dqlab.documents.pdf import count_pages, is_pdf_here
from dqlab.documents.sources import Source
from dqlab.errors import RunExists, UsageError
from dqlab.numbers import few_of
from dqlab.texts import kept

__all__ = ["Probed", "ProbingLab", "counted", "lacks_pages", "note_labs", "the_lab"]


_Name: TypeAlias = tuple[str, str, str, int]


class ProbingLab(Protocol):
    """What can count pages, which is a `Lab` or a `QueuePool`."""

    def map(self, fn: Callable[[Any], Any], documents: Iterable[Any], *, name: str, on_existing: Any) -> Any:
        """Start a run, or attach to the one of that name."""
        ...


def _none() -> Sequence[Any]:
    return ()


_open_labs: Callable[[], Sequence[Any]] = _none
"""Returns the labs that are open in this process; set by `note_labs`, since this module stands below labs."""
NAMED = 5
"""Labs that an error names, at most."""


def note_labs(open_labs: Callable[[], Sequence[Any]]) -> None:
    """Set the function that returns the labs that are open in this process."""
    global _open_labs
    _open_labs = open_labs


def the_lab() -> ProbingLab:
    """Return the only lab that is open in this process, or raise `UsageError`."""
    labs = _open_labs()
    if len(labs) == 1:
        lab: ProbingLab = labs[0]
        return lab
    if labs:
        names = few_of([repr(lab.name) for lab in labs], NAMED)
        reason, hint = f"{len(labs)} are open here: {names}", "Name the variable of one of them: docs.probe(lab)"
    else:
        reason, hint = "none is open here", "Write lab = dq.connect(), then docs.probe(lab)"
    raise UsageError(reason=f"probe() runs on the consumers of a lab, and {reason}. Nothing was done. {hint}.")


class Probed:
    """A source whose PDFs get the page counts of an earlier run, unless they have changed since."""

    def __init__(self, source: Source, pages: Mapping[_Name, int]) -> None:
        self.source, self.repeats, self.label = source, source.repeats, f"{source.label}.probe()"
        self._pages = pages

    def documents(self) -> Iterator[Document]:
        """List the documents of the source with their pages."""
        for document in self.source.documents():
            pages = self._pages.get(_name(document)) if lacks_pages(document) else None
            yield document if pages is None else replace(document, n_pages=pages)


def _name(document: Document) -> _Name:
    """Return what distinguishes a document from all others."""
    # With the offset: in a tar, members of one name have the same version, which is their archive's.
    part = document.part
    return str(document.key), document.version, document.where, part.offset if isinstance(part, Member) else -1


def lacks_pages(document: Document) -> bool:
    """Return whether a document is a PDF whose number of pages is unknown."""
    return document.n_pages is None and not isinstance(document.part, PageRange) and is_pdf_here(document)


def counted(lab: ProbingLab, documents: Iterable[Document], label: str) -> dict[_Name, int]:
    """Count pages in a run over PDFs, or take the counts of an earlier run with this label if nothing has changed."""
    name = f"count-pages-{blake2b(kept(label), digest_size=4).hexdigest()}"
    try:
        # Skip errors: a PDF that cannot be opened, or kills its process, gives its reason when a function reads it.
        found = lab.map(_pages, documents, name=name, on_existing="attach").results(errors="skip")
    except RunExists:  # files were added, changed or removed, or dqlab was updated
        found = lab.map(_pages, documents, name=name, on_existing="new").results(errors="skip")
    return {name: pages for name, pages in found if pages is not None}


def _pages(document: Document) -> tuple[_Name, int | None]:
    return _name(document), count_pages(document)
