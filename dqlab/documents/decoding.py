"""Decodes bytes into text: finds the encoding, and extracts what a page of HTML shows.

Owns the order in which encodings are tried: a byte order mark, the declaration of a Python source or an HTML page,
UTF-8, and then detection. charset-normalizer and selectolax are imported with the first document that needs them.
"""

from __future__ import annotations

import codecs
import re
from tokenize import detect_encoding
from typing import Any

from dqlab.errors import ExtraMissing

__all__ = ["decode_html", "decoded", "detected", "marked", "source_encoding", "text_of_html"]

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: this mark begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
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
    return next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None)


def decoded(data: bytes) -> tuple[str, str]:
    """Return a text and its encoding, or raise a `UnicodeDecodeError` whose reason says what to do."""
    encoding = marked(data) or "utf-8"
    try:
        return data.decode(encoding), encoding
    except UnicodeDecodeError as error:
        if encoding != "utf-8" or _is_damaged(data):
            raise _with(error, f"The rest is {encoding}. {_ADVICE}") from None
        try:
            found = detected(data)
        except ExtraMissing as missing:
            way = f"To have encodings detected: pip install {missing.install}. Or: {_ADVICE[0].lower()}{_ADVICE[1:]}"
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
    try:
        from charset_normalizer import from_bytes
    except ImportError as error:
        what = "texts in other encodings than UTF-8"
        raise ExtraMissing.of(error, "charset_normalizer", what=what, extra="documents") from error
    if b"\0" in data[:4096]:  # UTF-16 without a mark is rare, pictures and programs are common
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


def source_encoding(head: tuple[bytes, bytes]) -> str:
    """Return the encoding that the first two lines of a Python source declare (PEP 263)."""
    lines = list(head)
    mark = codecs.BOM_UTF8 if lines[0].startswith(codecs.BOM_UTF8) else b""
    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
    # Hide other bytes in these lines from `detect_encoding`, which would raise a SyntaxError without a position. When
    # the text is read, they raise a UnicodeDecodeError, or are handled as `errors` asks.
    plain = [re.sub(rb"[\x80-\xff]", b"?", line) for line in lines]
    heads = iter([mark + plain[0], plain[1]])
    return detect_encoding(lambda: next(heads, b""))[0]


# --- pages of HTML ---------------------------------------------------------------------------


_UNSEEN = ("script", "style", "noscript", "template", "head", "svg", "iframe", "object")
_BLOCKS = (
    "address,article,aside,blockquote,br,caption,dd,details,div,dl,dt,fieldset,figcaption,figure,footer,form,h1,h2,h3,h4,h5,h6,"
    "header,hr,li,main,nav,ol,option,p,pre,section,summary,table,td,th,tr,ul"
)
_END = "\x1e"
"""Marks the ends of lines; newlines cannot, because white space in the source only separates words."""
_META = re.compile(rb"<meta[^>]+?charset\s*=\s*[\"']?\s*([\w.:+-]+)", re.IGNORECASE)
_DECLARED_WITHIN = 4096
"""Bytes in which a declared encoding is looked for; the standard says 1,024, but some pages put a licence before it."""
_AS_BROWSERS = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030"}
"""Encodings that browsers replace by a superset."""


def text_of_html(source: str) -> str:
    """Return what a page shows, a line per paragraph, heading, item or cell, without tags, scripts and comments."""
    tree = _parser()(source)
    tree.strip_tags(list(_UNSEEN))
    body = tree.body
    if body is None:
        return ""
    for block in body.css(_BLOCKS):
        block.insert_before(_END)
        block.insert_after(_END)
    lines = (" ".join(line.split()) for line in body.text(separator="").split(_END))
    return "\n".join(line for line in lines if line)


def _parser() -> Any:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as error:
        raise ExtraMissing.of(error, "selectolax", what="pages of HTML", extra="documents") from error
    return LexborHTMLParser


def decode_html(data: bytes) -> tuple[str, str]:
    """Return a page's source and its encoding, with U+FFFD for what cannot be decoded, as in a browser."""
    declared = marked(data) or _declared(data)
    for encoding in (declared, "utf-8"):
        if encoding is not None:
            try:
                return data.decode(encoding), encoding
            except UnicodeDecodeError:
                pass
    try:
        found = declared or detected(data) or "cp1252"
    except ExtraMissing:
        found = "cp1252"
    return data.decode(found, "replace"), found


def _declared(data: bytes) -> str | None:
    match = _META.search(data[:_DECLARED_WITHIN])
    if match is None:
        return None
    try:
        name = codecs.lookup(match[1].decode("ascii", "replace")).name
    except LookupError:
        return None
    if name.startswith(("utf-16", "utf-32")):
        return "utf-8"  # as the standard says: a declaration that is readable as ASCII cannot be in UTF-16
    return _AS_BROWSERS.get(name, name)
