"""Listings made from another listing: fewer documents, in another order, or in parts.

Owns what each of them keeps in memory, and that each pass yields the same documents. Documents keep their keys and
versions, so that a user can attach to a run over them. Does not know how the source lists them.
"""

from __future__ import annotations

import heapq
import warnings
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import islice, pairwise
from operator import index
from typing import Any, SupportsIndex, cast

from dqlab.conditions import Condition, Fields, condition_of
from dqlab.documents import pdf
from dqlab.documents.archives import RECENT, reads_forward
from dqlab.documents.document import Document
from dqlab.documents.parts import Inline, Member, PageRange
from dqlab.documents.sources import Look, Source
from dqlab.errors import BadOption, DqlabWarning
from dqlab.numbers import many
from dqlab.texts import kept, one_line
from dqlab.user_frames import level_of_user

__all__ = ["FIELDS", "LongestFirst", "Sample", "Split", "Where"]

EXAMINED = 10_000
"""Documents that are examined, at most, to explain why none meets a condition."""
FIELDS = Fields(
    {"key": str, "size": int, "pages": int, "version": str, "where": str},
    lambda document, name: (
        str(document.key) if name == "key" else getattr(document, "page_count" if name == "pages" else name)
    ),
    "condition",
)
"""What `Documents.where` may name."""


def _documents(source: Source) -> Iterator[Document]:
    return (document for look in source.looks() if (document := look()) is not None)


def _whole(value: object) -> int | None:
    """Return a whole number of any type as an int, or None for anything else."""
    with suppress(TypeError):
        return None if isinstance(value, bool) else index(cast(SupportsIndex, value))
    return None


def _itself(document: Document) -> Document:
    return document


class Where:
    """The documents that meet a condition, examined one by one (see `Documents.where`)."""

    def __init__(self, source: Source, condition: str | Callable[[Document], object]) -> None:
        self._meets = condition_of(condition, FIELDS)
        named = repr(condition) if isinstance(condition, str) else getattr(condition, "__qualname__", "...")
        self.source, self.repeats, self.label = source, source.repeats, f"{source.label}.where({named})"

    def looks(self) -> Iterator[Look]:
        """Examine the documents, and name those that meet the condition."""
        return (partial(_itself, document) for document in _documents(self.source) if self._meets(document))

    def why_none(self) -> str:
        """Explain why none of the first documents meets the condition, or return "" if one does or there are none."""
        # Only for sources that repeat: this pass would use up an iterator.
        first, examined, pages = None, 0, False
        for document in islice(_documents(self.source), EXAMINED):
            if self._meets(document):
                return ""
            first = document if first is None else first
            examined += 1
            pages = pages or document.page_count is not None
        if first is None:
            return ""
        of = f"the first {many(examined, 'document')}" if examined == EXAMINED else many(examined, "document")
        if not isinstance(self._meets, Condition):
            return f"none of {of} matches the function of where()."
        said = f"none of {of} matches {one_line(self._meets.text, 200)}."
        if self._meets.names:
            said += f" Of the first, {self._meets.values(first)}."
        if "pages" in self._meets.names and not pages:
            said += " docs.probe(lab) counts the pages of PDFs."
        return said


class _Weights:
    """The lengths of documents, in pages or bytes."""

    def __init__(self) -> None:
        self._pages, self._sizes = array("d"), array("d")
        self._known_pages = self._known_bytes = 0.0

    def add(self, document: Document) -> None:
        pages, size = document.page_count, document.size
        self._pages.append(-1.0 if pages is None else pages)
        self._sizes.append(-1.0 if size is None else size)
        # A page range has the size of its whole file, which would make its pages look too large.
        if pages is not None and size is not None and not isinstance(document.part, PageRange):
            self._known_pages += pages
            self._known_bytes += size

    def all(self) -> array[float]:
        """Return a weight for each document in order, or -1 where neither pages nor size are known."""
        # Where only the size is known, estimate pages by the pages per byte of the documents that have both, so that
        # a listing with some page counts still has one order.
        rate = self._known_pages / self._known_bytes if self._known_bytes and self._known_pages else 1.0
        pairs = zip(self._pages, self._sizes, strict=True)
        return array("d", (pages if pages >= 0 else size * rate if size >= 0 else -1.0 for pages, size in pairs))

    def sizes(self) -> array[float]:
        return self._sizes


class LongestFirst:
    """The documents, longest first (see `Documents.longest_first`), held in memory while they are listed."""

    def __init__(self, source: Source) -> None:
        self.source, self.repeats, self.label = source, source.repeats, f"{source.label}.longest_first()"

    def looks(self) -> Iterator[Look]:
        """Examine all documents, then name them by descending length."""
        documents, weights = [], _Weights()
        for document in _documents(self.source):
            documents.append(document)
            weights.add(document)
        long = weights.all()
        # `reverse` keeps equally long documents in the order of the source.
        order = sorted(range(len(documents)), key=long.__getitem__, reverse=True)
        parts = ((each.where, getattr(each.part, "within", each.part)) for each in documents)
        far = {where for where, part in parts if isinstance(part, Member) and part.offset > RECENT}
        if order != sorted(order) and (where := next(filter(reads_forward, sorted(far)), None)):
            warnings.warn(_RESTARTS.format(where=where), DqlabWarning, stacklevel=level_of_user())
        return (partial(_itself, documents[at]) for at in order)


_RESTARTS = (
    "longest_first() leaves the order of {where!r}, a compressed tar, which is decompressed from "
    "its start again each time a consumer goes back in it: all members are read, but slowly. Leave "
    "longest_first() out, or unpack the tar and list its files with dq.Documents.from_glob."
)


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

    def looks(self) -> Iterator[Look]:
        """Examine all documents, then name those that were drawn, in the order of the source."""
        if self.repeats:
            # List the source twice instead of holding its documents: eight bytes per document identify the drawn ones.
            numbers, weights = array("Q"), _Weights()
            for document in _documents(self.source):
                numbers.append(self._number(document))
                weights.add(document)
            drawn = self._drawn(numbers, weights)
            return self._named(_documents(self.source), drawn)
        held, weights = list(_documents(self.source)), _Weights()
        for document in held:
            weights.add(document)
        return self._named(iter(held), self._drawn(array("Q", map(self._number, held)), weights))

    def _named(self, documents: Iterator[Document], drawn: dict[int, int]) -> Iterator[Look]:
        for document in documents:
            number = self._number(document)
            if drawn.get(number):
                drawn[number] -= 1
                yield partial(_itself, document)

    def _number(self, document: Document) -> int:
        # Leave out the values of a row: some, such as pictures, differ between two readings, and so would the sample.
        place = "" if isinstance(document.part, Inline) else document.part
        # Users repeat their samples: any change of this text would draw other documents.
        text = f"{self._seed}\0{document.key}\0{document.where}\0{place}"
        return int.from_bytes(blake2b(kept(text), digest_size=8).digest(), "big")

    def _drawn(self, numbers: array[int], weights: _Weights) -> dict[int, int]:
        """Return the numbers that were drawn, each with how many drawn documents have it."""
        total, drawn = len(numbers), dict[int, int]()
        n = min(self._n, total)
        if self._by is None:
            chosen: Any = heapq.nsmallest(n, numbers)
        else:
            long = weights.all() if self._by == "pages" else weights.sizes()
            order = array("Q", sorted(range(total), key=lambda at: (long[at], numbers[at])))
            cuts = [total * stratum // n for stratum in range(n + 1)] if n else []
            chosen = (min(numbers[at] for at in order[lo:hi]) for lo, hi in pairwise(cuts))
        for number in chosen:
            drawn[number] = drawn.get(number, 0) + 1
        return drawn


class Split:
    """PDFs in parts of at most `pages` pages, and all other documents unchanged."""

    def __init__(self, source: Source, pages: int) -> None:
        number = _whole(pages)
        if number is None or number < 1:
            raise BadOption(option="pages", value=pages, problem="is not a number of pages. Pass an int, 1 or more.")
        self.source, self.repeats, self.label = source, source.repeats, f"{source.label}.split(pages={number})"
        self._pages = number

    def looks(self) -> Iterator[Look]:
        """Examine the documents, open PDFs whose number of pages is unknown, and name the parts."""
        for document in _documents(self.source):
            for part in self._parts(document):
                yield partial(_itself, part)

    def _parts(self, document: Document) -> Iterator[Document]:
        if not pdf.is_pdf_here(document):
            yield document
            return
        count = document.page_count or pdf.count_pages(document)
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
