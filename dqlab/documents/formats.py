"""What bytes of a file mean: the encoding of a text, what a page of HTML shows, pages of PDFs; kinds by first bytes.

Owns the order in which encodings are tried: what the bytes show (a byte order mark, escape sequences, zeros), the
declaration of a Python source or an HTML page, UTF-8, and then detection; and the lock around PDFium, which two threads
must not call at a time: runs over PDFs use processes, where no slot waits for it. charset-normalizer, selectolax,
webencodings and pypdfium2 are imported with the first document that needs them.
"""

from __future__ import annotations

import codecs
import io
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, TypeVar

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
from dqlab.imports import import_whole
from dqlab.numbers import many

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
# After UTF-32, because one of its marks begins with one of these.
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_WIDE = {"_0_0": "utf-16-le", "0_0_": "utf-16-be", "_000": "utf-32-le", "000_": "utf-32-be"}
"""Encodings without a mark, by which of four bytes are below 32, hence no letters, in most of a text."""
_EXAMINED = 4096
"""Bytes that are examined for these."""
_COMMONEST = "cp1252"
_LETTERS = frozenset("àâäáãåæçéèêëíìîïñóòôöõøœúùûüÿßšž" + "ÀÂÄÁÃÅÆÇÉÈÊËÍÌÎÏÑÓÒÔÖÕØŒÚÙÛÜŸŠŽ")
"""Accented letters of Western Europe, without Icelandic ones: Turkish encodings have other letters at their bytes."""
_INSIDE = frozenset("’‘–—…ªº·\xa0\xad")
_SIGNS = _INSIDE | frozenset("“”„‚•†‡‰‹›€™¡¿«»£¢¥©®§¶°±²³¹µ¼½¾×÷¨´¸")
"""Signs of Windows-1252. Only those of `_INSIDE` stand between two letters; any other sign there means that the text is
in another encoding."""
_FEW = 4
"""Letters per accented letter, at least, in a text of a Western European language."""
_ENOUGH = 64 * 1024
"""Characters that are examined."""
_SURER = 0.1
"""Coherence by which another encoding must win over Windows-1252 for a text that reads well in the latter."""
_OF_MAINFRAMES = ["cp037", "cp1026", "cp1140", "cp273", "cp424", "cp500", "cp875"]
"""Encodings that turn any short text into another plausible short text."""
_RATIO = 4
"""Valid non-ASCII characters per invalid one, from which on a text counts as damaged UTF-8."""
_ADVICE = "Pass encoding=, or errors='replace', or read document.bytes()"


def marked(head: bytes) -> str | None:
    """Return the encoding that a byte order mark names, or None without a mark."""
    return next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), None)


def shown(data: bytes) -> str | None:
    """Return the encoding that a mark or zeros show, although the bytes may be valid UTF-8, too."""
    return marked(data) or _wide(data)


def _wide(data: bytes) -> str | None:
    head = data[:_EXAMINED]
    if b"\0" not in head:  # of spaces and ends of lines
        return None
    signs = [len(head[at::4].translate(None, bytes(range(32)))) for at in range(4)]
    return _WIDE.get("".join("_" if sign * 8 > len(head) else "0" for sign in signs))


def decoded(data: bytes) -> tuple[str, str]:
    """Return a text and its encoding, or raise a `UnicodeDecodeError` whose reason says what to do."""
    encoding = shown(data) or "utf-8"
    try:
        return data.decode(encoding), encoding
    except UnicodeDecodeError as error:
        if encoding != "utf-8" or _is_damaged(data):
            raise _with(error, f"The rest is {encoding}. {_ADVICE}") from None
        try:
            found = detected(data)
        except ExtraMissing as missing:
            way = f"To have encodings detected: {missing.install}. Or: {_ADVICE[0].lower()}{_ADVICE[1:]}"
            raise _with(error, way) from None
        if found is None:
            raise _with(error, f"No other encoding is likely either. {_ADVICE}") from None
        return data.decode(found), found


def _is_damaged(data: bytes) -> bool:
    """Return whether bytes are UTF-8 with a few errors."""
    # Such a text must not be detected: any other encoding would decode all of it, to garbage and without an error.
    text = data.decode("utf-8", "replace")
    bad = text.count("\ufffd")
    good = len(text) - len(text.encode("ascii", "ignore")) - bad
    return good >= _RATIO * bad


def _with(error: UnicodeDecodeError, advice: str) -> UnicodeDecodeError:
    return UnicodeDecodeError(error.encoding, error.object, error.start, error.end, f"{error.reason}. {advice}")


def detected(data: bytes) -> str | None:
    """Return the most likely encoding of a text that is not UTF-8, or None if none is likely."""
    what = "texts in other encodings than UTF-8"
    with ExtraMissing.without("charset_normalizer", what=what, extra="documents"):
        from charset_normalizer import from_bytes
    if b"\0" in data[:_EXAMINED]:  # UTF-16 of Chinese without a mark is rare, pictures and programs are common
        return None
    likely = from_bytes(data, cp_exclusion=_OF_MAINFRAMES)
    best = likely.best()
    named = (match for match in likely if _COMMONEST in match.could_be_from_charset)
    western = max((match.coherence for match in named), default=0.0)
    if _reads_well_as_western(data) and (best is None or best.coherence < western + _SURER):
        return _COMMONEST  # otherwise “costs” £5 becomes "costs Ł5", as in Polish, or a text of DOS
    if best is None:
        return None
    # Among equally likely encodings the package picks the first in the alphabet, and would read French as Czech.
    equal = (match for match in likely if (match.chaos, match.coherence) == (best.chaos, best.coherence))
    return _COMMONEST if any(_COMMONEST in match.could_be_from_charset for match in equal) else best.encoding


def _reads_well_as_western(data: bytes) -> bool:
    """Return whether a text in Windows-1252 has signs and accented letters only where Western European languages do."""
    try:
        text = data.decode(_COMMONEST)[:_ENOUGH]
    except UnicodeDecodeError:
        return False
    letters = accented = 0
    for before, sign, after in zip(" " + text, text, text[1:] + " ", strict=False):
        letters += sign.isalpha()
        if sign.isascii():
            if sign < " " and sign not in "\t\n\r\f":
                return False
            continue
        if sign in _LETTERS:
            accented += 1
        elif sign not in _SIGNS or (sign not in _INSIDE and before.isalpha() and after.isalpha()):
            return False
    return accented * _FEW <= letters


# --- pages of HTML ---------------------------------------------------------------------------


_UNSEEN = ("script", "style", "noscript", "template", "head", "svg", "iframe", "object")
_BLOCKS = (
    "address,article,aside,blockquote,br,caption,dd,details,div,dl,dt,fieldset,figcaption,figure,footer,form,h1,h2,h3,h4,h5,h6,"
    "header,hr,li,main,nav,ol,option,p,pre,section,summary,table,td,th,tr,ul"
)
_END = "\x1e"
"""Marks the ends of lines; newlines cannot, because white space in the source only separates words."""
_KEPT = "\x02"
"""Marks lines whose white space is kept."""
_XML = re.compile(r"\A[\s\ufeff]*<\?xml\s(?:[^>]*?\sencoding\s*=\s*[\"']([\w.:-]+))?")
_OF_HTML = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)(\w+);")
"""Matches entities that XML does not know."""
_AS_BROWSERS = {"gbk": "gb18030", "replacement": "utf-8", "x-user-defined": "cp1252"}
_AS_BROWSERS |= {"utf-16le": "utf-8", "utf-16be": "utf-8"}  # what is readable as ASCII is not in UTF-16
"""Decoders that the standard names for an encoding, where Python has none of that name or a smaller one."""
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\s;\"']+)", re.IGNORECASE)
_DECLARED_WITHIN = 4096
"""Bytes in which a declared encoding is looked for; the standard says 1,024, but some pages put a licence before it."""


def text_of_html(source: str) -> str:
    """Return what a page shows, a line per paragraph, heading, item or cell, without tags, scripts and comments."""
    parser, _ = load_html_parser()
    tree = parser(_as_html(source))
    tree.strip_tags(list(_UNSEEN))
    body = tree.body
    if body is None:
        return ""
    inside = {node.mem_id: node for pre in body.css("pre") for node in pre.traverse(include_text=True)}  # each once
    for node in inside.values():
        if node.tag == "-text":
            *ended, rest = node.text_content.split("\n")
            node.replace_with("".join(f"{line}{_KEPT}{_END}" for line in ended) + (rest and rest + _KEPT))
    for block in body.css(_BLOCKS):
        block.insert_before(_END)
        block.insert_after(_END)
    lines = (line if _KEPT in line else " ".join(line.split()) for line in body.text(separator="").split(_END))
    return "\n".join(line.replace(_KEPT, "") for line in lines if line).strip("\n")


def _as_html(source: str) -> str:
    """Return XHTML as HTML, where `<title/>` would begin a title that never ends, and anything else unchanged."""
    head = source[:_DECLARED_WITHIN]
    if _XML.match(head) is None and "http://www.w3.org/1999/xhtml" not in head:
        return source
    from html import escape, unescape
    from xml.etree import ElementTree

    try:
        plain = _OF_HTML.sub(lambda it: it[0] if f"<!ENTITY {it[1]} " in head else escape(unescape(it[0])), source)
        root = ElementTree.fromstring(plain.lstrip("\ufeff \t\r\n"))
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
        return ElementTree.tostring(root, "unicode", "html")
    except (ElementTree.ParseError, RecursionError):  # written for the parsers of browsers, or to exhaust ours
        return source


def load_html_parser() -> tuple[Any, Any]:
    """Return the parser of HTML, and the function that finds an encoding by its label, or raise `ExtraMissing`."""
    with ExtraMissing.without("selectolax", what="pages of HTML", extra="documents"):
        from selectolax.lexbor import LexborHTMLParser
        from webencodings import lookup
    return LexborHTMLParser, lookup


def decode_html(data: bytes) -> tuple[str, str]:
    """Return a page's source and its encoding, with U+FFFD for what cannot be decoded, as in a browser."""
    declared = shown(data) or _declared(data)
    for encoding in filter(None, (declared, "utf-8")):
        with suppress(UnicodeDecodeError):
            return data.decode(encoding), encoding
    with suppress(ExtraMissing):
        declared = declared or detected(data)
    found = declared or "cp1252"
    return data.decode(found, "replace"), found


def _declared(data: bytes) -> str | None:
    """Return the encoding that an XML declaration, or the first element of <meta> with a known one, declares."""
    parser, lookup = load_html_parser()
    head = data[:_DECLARED_WITHIN].decode("latin-1")
    labels = _XML.findall(head)
    for named in (meta.attributes for meta in parser(head).css("meta")):  # finds none in comments and scripts
        labels.append(named.get("charset"))
        if (named.get("http-equiv") or "").lower() == "content-type":
            labels += _CHARSET.findall(named.get("content") or "")
    found = (encoding for encoding in map(lookup, filter(None, labels)) if encoding is not None)
    return next((_AS_BROWSERS.get(each.name, each.codec_info.name) for each in found), None)


# --- what a file is, by its first bytes ---


HEAD = 512
"""Bytes from the start of a file that `kind_of` looks at, at most."""
# A text may begin with any letters, so a signature has a byte that no text has, or many letters.
_SIGNATURES = {
    rb"\x1f\x8b": "gzip",
    rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)": "bzip2",
    rb"\xfd7zXZ\0": "xz",
    rb"\(\xb5/\xfd": "zstd",
    rb"PK(?:\x03\x04|\x05\x06|\x07\x08)": "zip",  # with members, without any, made in pieces
    rb"7z\xbc\xaf\x27\x1c": "7z",
    rb"Rar!\x1a\x07": "rar",
    rb".{257}ustar": "tar",
    rb"(?:\xef\xbb\xbf)?\s*%PDF-\d": "pdf",
    rb"(?:\xef\xbb\xbf)?\s*(?i:<!doctype html|<html)": "html",
    rb"(?:\xef\xbb\xbf)?\s*<\?xml": "xml",
    rb"PAR1[\0-\x08\x0e-\x1f]": "a Parquet file",
    rb"ARROW1\0": "an Arrow file",
    rb"SQLite format 3\0": "a database of SQLite",
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a file of an older Office (doc, xls, ppt, msg)",
    rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|II\*\0|MM\0\*|RIFF.{4}WEBP|BM.{4}\0{4}": "a picture",
    rb"RIFF.{4}(?:WAVE|AVI )|ID3[\x02-\x04]|OggS\0|fLaC\0|\x1aE\xdf\xa3|\0\0\0.ftyp": "a recording",
    rb"\x7fELF|MZ[^\n]{0,60}\0|[\xce\xcf]\xfa\xed\xfe|\xca\xfe\xba\xbe|\0asm": "a program",
}
_WORDS = {"pdf": "a PDF", "zip": "a zip archive, as docx, xlsx, pptx, odt and epub are"}
_ANY = re.compile(b"|".join(b"(%s)" % signature for signature in _SIGNATURES), re.DOTALL)
_KINDS = (None, *_SIGNATURES.values())


def head_of(stream: BinaryIO) -> bytes:
    """Return the first bytes of a stream, and leave it at its start."""
    stream.seek(0)
    head = stream.read(HEAD)
    stream.seek(0)
    return head


def kind_of(head: bytes) -> str | None:
    r"""Return what a file is by its first bytes, or None if they are no signature, as for plain text.

    Examples
    --------
    >>> [kind_of(head) for head in (b"%PDF-1.7", b"\r\n<!DOCTYPE html>", b"Hello")]
    ['pdf', 'html', None]
    """
    found = _ANY.match(head, 0, HEAD)
    return _KINDS[found.lastindex or 0] if found is not None else None


def binary_kind(head: bytes) -> str | None:
    r"""Return what a file is in words, or None if it may be text, such as HTML.

    Examples
    --------
    >>> [binary_kind(head) for head in (b"PAR1\x15", b"\x7fELF", b"<html>")]
    ['a Parquet file', 'a program', None]
    """
    kind = kind_of(head)
    if kind is None or kind in ("html", "xml"):
        return None
    return kind if kind.startswith("a ") else _WORDS.get(kind, f"packed as {kind}")


# --- pages of PDFs, by PDFium ---

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
            import_whole("PIL.Image")  # PDFium's pictures become Pillow's
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


def pages_of_pdf(reference: Reference, data: bytes | None = None) -> Iterator[Page]:
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
