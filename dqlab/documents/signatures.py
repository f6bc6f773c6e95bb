"""What a file is, by its first bytes.

Owns the one table of signatures. Does not open files, and does not know what follows from the kind of one.
"""

from __future__ import annotations

import re
from typing import BinaryIO

__all__ = ["HEAD", "binary_kind", "head_of", "kind_of"]

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
