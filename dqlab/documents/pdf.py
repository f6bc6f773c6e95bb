"""Pages of PDFs: their number, text and picture, by PDFium.

Owns the lock around PDFium, which two threads must not call at a time, and the closing of files. Runs over PDFs use
processes, where no slot waits for the lock. pypdfium2 is imported when the first PDF is opened.
"""

from __future__ import annotations

import io
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from dqlab.documents.decoding import head_of, kind_of
from dqlab.documents.parts import PageRange, Reference, is_pdf, is_whole_file
from dqlab.documents.storage import local_path
from dqlab.errors import (
    BadOption,
    DocumentChanged,
    DocumentDamaged,
    DocumentEncrypted,
    DqlabError,
    ExtraMissing,
    PageFailed,
    in_words,
)
from dqlab.numbers import many

T = TypeVar("T")
POINTS = 72
"""Points per inch; a PDF measures in points."""
_lock = threading.RLock()
"""Held around every call of PDFium, also when garbage collection closes a file, in any thread. Reentrant, because a
collection may run in a thread that holds the lock."""


def _unnoted(number: int) -> None:
    """Note nothing."""


note_page: Callable[[int], object] = _unnoted
"""Notes the page that PDFium works on, and 0 afterwards; set by processes, since a page may crash PDFium."""


class Page:
    """A page of a PDF.

    Attributes
    ----------
    number : int
        Its number in the whole file, from 1.
    of : int
        Pages in the whole file.

    Notes
    -----
    The file stays open as long as one of its pages is in use, and is read when its text or picture is requested.

    Examples
    --------
    >>> for page in document.pages():  # doctest: +SKIP
    ...     print(page.number, len(page.text()))
    """

    def __init__(self, pdf: _Pdf, number: int) -> None:
        self._pdf, self.number, self.of = pdf, number, pdf.count

    def __repr__(self) -> str:
        return f"<page {self.number} of {self._pdf.key!r}>"

    def text(self) -> str:
        """Return the text of the page, lines ended by a newline; "" for a scan without text.

        Raises
        ------
        PageFailed
            The page cannot be read.

        Examples
        --------
        >>> words = sum(len(page.text().split()) for page in document.pages())  # doctest: +SKIP
        """
        return self._pdf.on_page(self.number, _text)

    def image(self, dpi: float = 150) -> Any:
        """Return a picture of the page, as a `PIL.Image.Image` in RGB.

        Parameters
        ----------
        dpi : float
            Pixels per inch: 150 is legible, 300 suits text recognition.

        Raises
        ------
        PageFailed
            The page cannot be drawn.
        ExtraMissing
            Pillow is not installed here.
        BadOption
            `dpi` is not above 0.

        Examples
        --------
        >>> next(document.pages()).image(dpi=72).size  # doctest: +SKIP
        (595, 842)
        """
        if not dpi > 0:
            raise BadOption(option="dpi", value=dpi, problem="a picture has more than 0 pixels an inch.")
        with ExtraMissing.without("pillow", what="pictures of pages", extra="documents"):
            import PIL.Image  # noqa: F401 - PDFium's pictures become Pillow's
        return self._pdf.on_page(self.number, lambda page: page.render(scale=dpi / POINTS).to_pil().convert("RGB"))


def _text(page: Any) -> str:
    inside = page.get_textpage()
    try:
        return str(inside.get_text_bounded()).replace("\r\n", "\n").replace("\r", "\n")
    finally:
        inside.close()


class _Pdf:
    """An open PDF, which is closed when nothing refers to it."""

    def __init__(self, reference: Reference, data: bytes | None = None) -> None:
        self.key = reference.key
        pdfium = load_pdfium()
        with reference.open() if data is None else io.BytesIO(data) as stream:
            # Given a path, PDFium reads only what it needs.
            path = local_path(reference.where) if data is None and is_whole_file(reference) else None
            given = path if path is not None else stream.read()
            with _lock:
                # PDFium refuses a PDF without pages, but sets no error, and would leave that of the call before.
                pdfium.raw.FPDF_LoadDocument(b"", None)
                try:
                    self._document = pdfium.PdfDocument(given)
                except pdfium.PdfiumError as error:
                    raise _unopened(reference, pdfium.raw, error) from error
                # Runs before the finalizer of pypdfium2, which would close the document without our lock.
                weakref.finalize(self, _close, self._document)
                self.count = len(self._document)
        if not self.count:
            raise DocumentDamaged(document=self.key, reason="it has no pages")

    def on_page(self, number: int, do: Callable[[Any], T]) -> T:
        """Return the result of a function of a page, and close the page."""
        with _lock:
            try:
                note_page(number)
                page = self._document[number - 1]
                try:
                    return do(page)
                finally:
                    page.close()
                    note_page(0)
            except DqlabError:
                raise
            except Exception as error:
                raise PageFailed(document=self.key, page=number, reason=in_words(error)) from error


def _close(document: Any) -> None:
    with _lock:
        document.close()


def _unopened(reference: Reference, raw: Any, error: BaseException) -> DqlabError:
    code = raw.FPDF_GetLastError()
    if code in (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY):
        return DocumentEncrypted(document=reference.key, where=reference.where)
    return DocumentDamaged(document=reference.key, reason=in_words(error))


def load_pdfium() -> Any:
    """Return PDFium, or raise `ExtraMissing`."""
    with ExtraMissing.without("pypdfium2", what="PDFs", extra="documents"):
        import pypdfium2
    return pypdfium2


def pages(reference: Reference, data: bytes | None = None) -> Iterator[Page]:
    """Yield the pages of a PDF, or of a page range of one, opening the file with the first page if `data` is None."""
    pdf = _Pdf(reference, data)
    part = reference.part
    first, stop = (part.first, part.stop) if isinstance(part, PageRange) else (0, pdf.count)
    if isinstance(part, PageRange) and part.of not in (0, pdf.count):
        was, now = (f"a PDF of {many(count, 'page')}" for count in (part.of, pdf.count))
        raise DocumentChanged(document=reference.key, was=was, now=now, way=DocumentChanged.OF_PARTS)
    for number in range(first + 1, stop + 1):
        if number > pdf.count:
            raise PageFailed(document=reference.key, page=number, reason=f"the file has {pdf.count} pages")
        yield Page(pdf, number)


def is_pdf_here(reference: Reference) -> bool:
    """Return whether a document is a PDF by its name or, if it is a file of this machine, by its first bytes."""
    if reference.part is None and not is_pdf(reference) and local_path(reference.where) is not None:
        with suppress(DqlabError, OSError), reference.open() as stream:  # what reads it raises the same error
            return kind_of(head_of(stream)) == "pdf"
    return is_pdf(reference)


def count_pages(reference: Reference) -> int | None:
    """Return how many pages a PDF has, or None if it cannot be opened."""
    with suppress(DqlabError, OSError):  # the function that reads it raises the same error
        return _Pdf(reference).count
    return None
