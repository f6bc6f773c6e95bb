"""What a listing reads from, again each time it is iterated: a pattern, elements, archives, or another source.

Owns how documents are named and examined, which costs a stat or more for each, and what a source that chooses from
another one keeps in memory: it lists the same documents in each pass, so that a user can attach to a run over them.
"""

from __future__ import annotations

import heapq
import os
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import chain, islice, pairwise
from operator import index
from pathlib import Path
from typing import Any, Protocol, SupportsIndex, TypeAlias, cast

from dqlab.conditions import Fields, condition_of
from dqlab.documents.archives import members
from dqlab.documents.document import LINES_PER_PAGE, Document
from dqlab.documents.folders import Files, Folder, LocalFolder, Pattern, has_wildcards
from dqlab.documents.formats import count_pages, is_pdf_here
from dqlab.documents.lines import listed
from dqlab.documents.parts import Inline, Member, PageRange
from dqlab.documents.servers import ServerSilent
from dqlab.documents.storage import (
    UNKNOWN,
    Stamp,
    local_path,
    located,
    root_of,
    stamp_of,
    storage_of,
)
from dqlab.errors import (
    BadOption,
    DqlabWarning,
    InputNotFound,
    RunExists,
    UsageError,
    in_words,
)
from dqlab.numbers import many
from dqlab.texts import kept
from dqlab.user_frames import level_of_user


class Source(Protocol):
    """Lists documents, again each time it is read.

    A source made from another one has that as `source`. One whose documents may be behind URLs has `storage`, the name
    of their options (see `storage.check_options`). One that itself lists files has `place`, a path, or a URL in that
    storage.
    """

    @property
    def label(self) -> str:
        """The call that made it, for users, without listing anything."""
        ...

    @property
    def repeats(self) -> bool:
        """Whether it can be read more than once."""
        ...

    def documents(self) -> Iterator[Document]:
        """List the documents, without those that are removed before they are examined."""
        ...


class Glob:
    """The files below a folder that match a pattern."""

    repeats = True

    def __init__(
        self,
        folder: Folder,
        pattern: Pattern,
        label: str,
        *,
        enter: Callable[[str], bool] = lambda name: True,
        finish: Callable[[Document], Document] | None = None,
    ) -> None:
        # `enter` decides by the name of a folder whether to enter it. `finish` completes a document when it is
        # examined, and may open it, for example to count its pages.
        self.label, self.storage, self.place = label, storage_of(folder.where), folder.where
        self._folder, self._pattern, self._enter, self._finish = folder, pattern, enter, finish
        self.sized = folder.sized and finish is None
        """Whether each document has its size, and nothing better that its length is known by."""
        self._check()

    def documents(self) -> Iterator[Document]:
        """List the matching files, in the order of their keys."""
        self._check()
        for found in self._pattern.walk(self._folder, self._enter):
            try:
                version, size = found.entry.stamp()
                document = Document(found.path, version, self._folder.at(found.path), size)
                document = document if self._finish is None else self._finish(document)
            except FileNotFoundError:
                continue
            yield document

    def _check(self) -> None:
        if not self._folder.exists():
            way = "Check the path or URL before the first wildcard; a relative path starts at the current directory."
            raise InputNotFound(reason=f"there is no folder {self._folder.where!r}, so no documents to list. {way}")


class Window:
    """Some positions of another source, by the non-negative `start`, `stop` and `step` of a slice."""

    def __init__(self, source: Source, start: int, stop: int | None, step: int) -> None:
        self.source, self._start, self._stop, self._step = source, start, stop, step
        ends = f"{start or ''}:{'' if stop is None else stop}"
        self.repeats, self.label = source.repeats, f"{source.label}[{ends}{'' if step == 1 else f':{step}'}]"

    def documents(self) -> Iterator[Document]:
        """List the documents inside."""
        return islice(self.source.documents(), self._start, self._stop, self._step)


def misread(elements: Any) -> tuple[str, str]:
    """Return what is wrong with an input that does not iterate over its documents, and its name in the error."""
    kind = type(elements)
    library = kind.__module__.partition(".")[0]
    if isinstance(elements, Mapping):
        problem = "is a mapping, and iterating it gives its keys. Pass list(d) for them, or d.values(), or d.items()."
        return problem, kind.__name__
    # Each process hashes strings in its own way, so the order of a set of them changes. A subclass may have an order.
    if isinstance(elements, set | frozenset) and kind.__iter__ in (set.__iter__, frozenset.__iter__):
        problem = "has no order of its own: it differs between kernels, and results would stand for other documents."
        return f"{problem} Pass sorted(x), or a list.", f"{kind.__name__} of {many(len(elements), 'element')}"
    if hasattr(elements, "columns") and hasattr(elements, "shape"):  # a table of any library
        ways = "Pass dq.Documents.from_frame(df), of Dask from_dask(df), or one column, df['text']."
        return f"iterates as its column names. {ways}", f"{library}.{kind.__name__}"
    if hasattr(elements, "ngroups") and hasattr(elements, "groups"):
        ways = "Pass [(key, table.to_dict('list')) for key, table in groups]."
        return f"iterates as pairs of key and table. {ways}", kind.__name__
    return "", ""


class Given:
    """Elements of an iterable, of an iterator, or of what a function returns, which is called for each pass."""

    def __init__(self, iterable: Any, key: Callable[[Any], object] | None, storage: str = "") -> None:
        if isinstance(iterable, str | bytes | os.PathLike | Document):
            problem = "one document is not a listing. Pass a list, or use Documents.from_glob(pattern)."
            raise BadOption(option="iterable", value=iterable, problem=problem)
        problem, called = misread(iterable)
        if problem:
            raise BadOption(option="iterable", value=called, problem=f"{problem} Nothing was listed.")
        if not isinstance(iterable, Iterable) and not callable(iterable):
            problem = f"a {type(iterable).__name__} cannot be iterated. Pass paths, URLs or documents."
            raise BadOption(option="iterable", value=iterable, problem=problem)
        self.iterable, self._key, self.storage = iterable, key, storage
        self.repeats, kind = not isinstance(iterable, Iterator), type(iterable).__name__
        named = f"<{kind}>" if isinstance(iterable, Iterable) else getattr(iterable, "__qualname__", kind)
        self.label = f"Documents({named})"
        self._used_up = False
        self._silent: set[str] = set()
        """Servers that did not answer during the current listing, and are not asked again."""

    def documents(self) -> Iterator[Document]:
        """List the elements in their own order."""
        if self._used_up:
            problem = f"the {type(self.iterable).__name__} behind these documents can be read once, and has been read."
            way = "a callable that returns a new iterator each time: Documents(make_paths), not Documents(make_paths())"
            raise UsageError(reason=f"{problem} Pass a list, or {way}.")
        self._used_up = not self.repeats
        self._silent.clear()  # the next listing asks again
        elements = self.iterable if isinstance(self.iterable, Iterable) else self.iterable()
        return (self._document(position, element) for position, element in enumerate(elements))

    def _document(self, position: int, element: Any) -> Document:
        document = _document(element, position, self.storage, self._silent)
        if self._key is None:
            return document
        key = self._key(element)
        if not isinstance(key, str):
            problem = f"gave a {type(key).__name__} for element {position}, not a string."
            raise BadOption(option="key", value=self._key, problem=problem)
        return replace(document, key=key)


def _document(element: Any, position: int, storage: str, silent: set[str]) -> Document:
    if isinstance(element, Document):
        return element
    place = os.fspath(element) if isinstance(element, str | os.PathLike) else None
    if not isinstance(place, str):
        kind = type(element).__name__
        raise UsageError(
            reason=f"element {position} is a {kind}, not a path, URL or Document. Documents lists files; to process "
            "other values pass the iterable itself: pool.map(function, values)."
        )
    path = local_path(place)
    where = located(place, storage) if path is None else path
    try:
        version, size = _stamp(where, silent)
    except ValueError as error:
        problem = (
            f"cannot be a path or URL of a document: {in_words(error)}. Those before it were listed, and what was "
            "submitted of them goes on. Check its scheme, host and path."
        )
        raise BadOption(option=f"element {position:,}", value=place, problem=problem) from error
    return Document(place if path is None else place.replace(os.sep, "/"), version, where, size)


def _stamp(place: str, silent: set[str]) -> Stamp:
    # Consumers may reach what this process cannot examine. If they cannot either, one failed message with the operating
    # system's own error is better than a submission that ends here.
    if silent and root_of(place) in silent:
        return UNKNOWN
    try:
        return stamp_of(place)
    except OSError as error:
        if isinstance(error, ServerSilent):
            silent.add(root_of(place))
            warnings.warn(f"{error} {_UNASKED}", DqlabWarning, stacklevel=level_of_user())
        return UNKNOWN


_UNASKED = (
    "Size and version of this document are not known. Other documents of this server are listed the "
    "same way, without asking it again."
)


_TESTS = frozenset({"test", "tests", "idle_test"})


def stdlib() -> Glob:
    """List the sources of the running Python, each with its number of pages."""
    folder = LocalFolder(sysconfig.get_paths()["stdlib"])
    return Glob(folder, Pattern("**/*.py"), "Documents.stdlib()", enter=_is_library, finish=_with_pages)


def _is_library(folder: str) -> bool:
    # Only packages have names that can be imported. This leaves out site-packages, dist-packages, lib-dynload and the
    # build's config-3.12-x86_64-linux-gnu.
    return folder.isidentifier() and folder not in _TESTS


def _with_pages(document: Document) -> Document:
    with document.open() as stream:
        lines = _count_lines(iter(partial(stream.read, 1 << 16), b""))
    return replace(document, n_pages=max(1, -(-lines // LINES_PER_PAGE)))


def _count_lines(chunks: Iterable[bytes]) -> int:
    ended, last = 0, b"\n"
    for chunk in chunks:
        ended, last = ended + chunk.count(b"\n"), chunk
    return ended + (not last.endswith(b"\n"))


# --- members of archives ---------------------------------------------------------------------


class Unpacked:
    """The members that match a pattern, of one archive or of all archives that match another pattern."""

    repeats = True

    def __init__(self, archive: str | os.PathLike[str], pattern: str | None, storage: str = "") -> None:
        if not isinstance(archive, str | os.PathLike):
            raise BadOption(option="archive", value=archive, problem="is not a path or URL of an archive.")
        if pattern is not None and (not isinstance(pattern, str) or not pattern):
            raise BadOption(option="pattern", value=pattern, problem="is not a pattern of names, such as '**/*.html'.")
        text = os.fspath(archive)
        self.label = f"Documents.from_archive({text!r}{'' if pattern is None else f', {pattern!r}'})"
        self._matches = (lambda name: True) if pattern is None else Pattern(pattern).matches
        self._files, self.storage = Files(archive, "an archive", storage), storage
        self._several = has_wildcards(text) and not Path(text).expanduser().is_file()
        self.place = self._files.first.where

    def documents(self) -> Iterator[Document]:
        """List the matching members, archive by archive, in the order in which they are packed."""
        for file in self._files:
            prefix = f"{file.name}/" if self._several else ""
            with listed(file.where, "an archive"):
                for found in members(file.where):
                    if self._matches(found.path):
                        key = prefix + found.path
                        yield Document(key, found.version, file.where, found.size, part=found.member)


# --- listings made from another one: fewer documents, in another order, or in parts ---

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
