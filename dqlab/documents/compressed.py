"""What is compressed by gzip, bzip2 or xz, as a stream of what is inside; the standard library decompresses.

Owns the names of the three. A stream that goes back begins again at its start.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
from typing import BinaryIO, cast

__all__ = ["ENDINGS", "MAGIC", "decompressor"]

ENDINGS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz"}
"""By how the name of a file ends."""
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "xz"}
"""By how a file begins."""


def decompressor(stream: BinaryIO, kind: str) -> BinaryIO:
    """Return a stream of what is inside; closing it leaves the one below open."""
    match kind:
        case "gzip":
            return cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))
        case "bz2":
            return cast(BinaryIO, bz2.BZ2File(stream))
    return cast(BinaryIO, lzma.LZMAFile(stream))
