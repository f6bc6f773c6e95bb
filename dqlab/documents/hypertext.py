"""The text of an HTML page as a reader sees it, by selectolax.

Owns which encoding a page is in and where its lines end. selectolax is imported with the first page.
"""

from __future__ import annotations

import codecs
import re
import sys
from typing import Any

from dqlab.documents.encodings import detected, marked
from dqlab.errors import ExtraMissing

__all__ = ["decode_html", "text_of_html"]

_UNSEEN = ("script", "style", "noscript", "template", "head", "svg", "iframe", "object")
_BLOCKS = (
    "address,article,aside,blockquote,br,caption,dd,details,div,dl,dt,fieldset,figcaption,figure,footer,form,h1,h2,h3,h4,h5,h6,"
    "header,hr,li,main,nav,ol,option,p,pre,section,summary,table,td,th,tr,ul"
)
_END = "\x1e"
"""Marks the ends of lines among white space of the source, which separates words only."""
_META = re.compile(rb"<meta[^>]+?charset\s*=\s*[\"']?\s*([\w.:+-]+)", re.IGNORECASE)
_DECLARED_WITHIN = 4096
"""Bytes in which a page declares its encoding; the standard asks for 1,024, and pages put licences before it."""
_AS_BROWSERS = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030"}
"""Encodings that browsers take for a larger one that holds them."""


def text_of_html(source: str) -> str:
    """Return what a page shows: no tags, scripts, styles or comments; a line for each paragraph, heading, item or cell.

    Raises
    ------
    ExtraMissing
        selectolax is not installed here.
    """
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
        missing = error.name or "selectolax"
        raise ExtraMissing(
            what="pages of HTML", missing=missing, python=sys.executable, install="'dqlab[documents]'"
        ) from error
    return LexborHTMLParser


def decode_html(data: bytes) -> tuple[str, str]:
    """Return a page's source and its encoding: by its mark, its declaration, as UTF-8, or by what its bytes look like.

    As in a browser, what cannot be decoded becomes U+FFFD.
    """
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
        return "utf-8"  # a declaration that could be read says that it is not
    return _AS_BROWSERS.get(name, name)
