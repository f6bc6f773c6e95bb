"""What a file is, by its first bytes.

Owns the one table of signatures. Does not open files, and does not know what follows from the kind of one.
"""

from __future__ import annotations

__all__ = ["HEAD", "kind_of"]

HEAD = 512
"""Bytes from the start of a file that `kind_of` looks at, at most."""
_SIGNATURES = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"(\xb5/\xfd": "zstd",
    b"PK\3\4": "zip",
    b"PK\5\6": "zip",  # one without members
    b"PK\7\x08": "zip",  # one that was made in pieces
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"%PDF-": "pdf",
}
_MARKUP = {b"<!doctype html": "html", b"<html": "html", b"<?xml": "xml"}


def kind_of(head: bytes) -> str | None:
    r"""Return what a file is by its first bytes, or None if they are no signature, as for plain text.

    Examples
    --------
    >>> [kind_of(head) for head in (b"%PDF-1.7", b"\r\n<!DOCTYPE html>", b"Hello")]
    ['pdf', 'html', None]
    """
    if head[257:262] == b"ustar":
        return "tar"
    found = next((kind for first, kind in _SIGNATURES.items() if head.startswith(first)), None)
    markup = head[:HEAD].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return found or next((kind for first, kind in _MARKUP.items() if markup.startswith(first)), None)
