"""Listings made from another listing: fewer documents, in another order, or in parts.

Owns what each of them keeps in memory, and that each pass yields the same documents. Documents keep their keys and
versions, so that a user can attach to a run over them. Does not know how the source lists them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from itertools import chain, pairwise
from operator import index
from typing import Any, Protocol, SupportsIndex, TypeAlias, cast

from dqlab.conditions import Fields, condition_of
from dqlab.documents.document import Document
from dqlab.documents.parts import Inline, Member, PageRange
from dqlab.documents.pdf import count_pages, is_pdf_here
from dqlab.documents.sources import Source
from dqlab.errors import BadOption, RunExists
from dqlab.texts import kept

FIELDS = Fields(
    {"key": str, "size": int, "pages": int, "version": str, "where": str},
    lambda document, name: (
        str(document.key) if name == "key" else getattr(document, "page_count" if name == "pages" else name)
    ),
    "condition",
)
"""What `Documents.where` may name."""


def _whole(value: object) -> int | None:
    """Return a whole number of any type as an int, or None for anything else."""
    with suppress(TypeError):
        return None if isinstance(value, bool) else index(cast(SupportsIndex, value))
    return None


class Where:
    """The documents that meet a condition, examined one by one (see `Documents.where`)."""

    def __init__(self, source: Source, condition: str | Callable[[Document], object]) -> None:
        self._meets = condition_of(condition, FIELDS)
        self.named = repr(condition) if isinstance(condition, str) else getattr(condition, "__qualname__", "...")
        self.source, self.repeats, self.label = source, source.repeats, f"{source.label}.where({self.named})"

    def documents(self) -> Iterator[Document]:
        """List the documents that meet the condition."""
        return filter(self._meets, self.source.documents())


def _lengths(documents: Sequence[Document]) -> list[float]:
    """Return the pages of each document, or -1 where neither its pages nor its size are known."""
    known_pages = known_bytes = 0
    for document in documents:
        # A page range has the size of its whole file, which would make its pages look too large.
        pages, size = document.page_count, document.size
        if pages is not None and size is not None and not isinstance(document.part, PageRange):
            known_pages += pages
            known_bytes += size
    # Where only the size is known, estimate pages by the pages per byte of the documents that have both, so that a
    # listing with some page counts still has one order.
    rate = known_pages / known_bytes if known_bytes and known_pages else 1.0
    return [_size_of(document) * rate if document.page_count is None else document.page_count for document in documents]


def _size_of(document: Document) -> float:
    return -1.0 if document.size is None else document.size


class LongestFirst:
    """The documents, longest first (see `Documents.longest_first`), held in memory while they are listed."""

    def __init__(self, source: Source) -> None:
        self.source, self.repeats, self.label = source, source.repeats, f"{source.label}.longest_first()"

    def documents(self) -> Iterator[Document]:
        """List all documents by descending length."""
        documents = list(self.source.documents())
        long = _lengths(documents)
        # `reverse` keeps equally long documents in the order of the source.
        order = sorted(range(len(documents)), key=long.__getitem__, reverse=True)
        return map(documents.__getitem__, order)


class Sample:
    """A reproducible sample, drawn evenly from short to long documents (see `Documents.sample`).

    Each document gets a number from its key and the seed. Sorted by length, the documents are cut into `n` strata, and
    the one with the lowest number is drawn from each.
    """

    def __init__(self, source: Source, n: int, by: str | None, seed: int) -> None:
        number, drawn = _whole(n), _whole(seed)
        if number is None or number < 0:
            raise BadOption(option="n", value=n, problem="is not a number of documents. Pass an int, 0 or more.")
        if by not in ("pages", "size", None):
            raise BadOption(option="by", value=by, problem="write 'pages', 'size' or None.")
        if drawn is None:
            raise BadOption(option="seed", value=seed, problem="is not a whole number.")
        more = (f", by={by!r}" if by else "") + (f", seed={drawn}" if drawn else "")
        self.source, self.repeats, self.label = source, source.repeats, f"{source.label}.sample({number}{more})"
        self._n, self._by, self._seed = number, by, drawn

    def documents(self) -> Iterator[Document]:
        """List the documents that were drawn, in the order of the source."""
        documents = list(self.source.documents())
        total, n = len(documents), min(self._n, len(documents))
        numbers = list(map(self._number, documents))
        if self._by is None:
            return map(documents.__getitem__, sorted(heapq.nsmallest(n, range(total), numbers.__getitem__)))
        long = _lengths(documents) if self._by == "pages" else list(map(_size_of, documents))
        order = sorted(range(total), key=lambda at: (long[at], numbers[at]))
        cuts = [total * stratum // n for stratum in range(n + 1)] if n else []
        drawn = (min(order[lo:hi], key=numbers.__getitem__) for lo, hi in pairwise(cuts))
        return map(documents.__getitem__, sorted(drawn))

    def _number(self, document: Document) -> int:
        # Leave out the values of a row: some, such as pictures, differ between two readings, and so would the sample.
        place = "" if isinstance(document.part, Inline) else document.part
        # Users repeat their samples: any change of this text would draw other documents.
        text = f"{self._seed}\0{document.key}\0{document.where}\0{place}"
        return int.from_bytes(blake2b(kept(text), digest_size=8).digest(), "big")


class Split:
    """PDFs in parts of at most `pages` pages, and all other documents unchanged."""

    def __init__(self, source: Source, pages: int) -> None:
        number = _whole(pages)
        if number is None or number < 1:
            raise BadOption(option="pages", value=pages, problem="is not a number of pages. Pass an int, 1 or more.")
        self.source, self.repeats, self.label = source, source.repeats, f"{source.label}.split(pages={number})"
        self._pages = number

    def documents(self) -> Iterator[Document]:
        """List the parts, and open PDFs whose number of pages is unknown."""
        return chain.from_iterable(map(self._parts, self.source.documents()))

    def _parts(self, document: Document) -> Iterator[Document]:
        if not is_pdf_here(document):
            yield document
            return
        count = document.page_count or count_pages(document)
        if count is None:
            yield document  # the function that reads it gets the error
            return
        whole = document.part
        first, within = (whole.first, whole.within) if isinstance(whole, PageRange) else (0, whole)
        assert within is None or isinstance(within, Member), "PDFs are files, members of archives, or pages of these"
        if count <= self._pages:
            yield replace(document, n_pages=count)
            return
        key = str(document.key)
        name = key.rpartition("#p")[0] if isinstance(whole, PageRange) else key
        pages = whole.of or whole.stop if isinstance(whole, PageRange) else count
        for lo in range(first, first + count, self._pages):
            hi = min(lo + self._pages, first + count)
            yield replace(
                document, key=f"{name}#p{lo + 1}-{hi}of{pages}", n_pages=hi - lo, part=PageRange(lo, hi, within, pages)
            )


# --- pages that are counted where functions run ---


_Name: TypeAlias = tuple[str, str, str, int]


class ProbingLab(Protocol):
    """What can count pages, which is a `Lab` or a `QueuePool`."""

    def map(self, fn: Callable[[Any], Any], documents: Iterable[Any], *, name: str, on_existing: Any) -> Any:
        """Start a run, or attach to the one of that name."""
        ...


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
