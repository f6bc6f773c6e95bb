"""What readers of formats raise on damaged bytes, as one error that names the document.

Owns which exceptions mean damage; errors of disks and networks pass through unchanged.
"""

from __future__ import annotations

import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import BadGzipFile
from typing import Any, BinaryIO

from dqlab.errors import DocumentDamaged, in_words

__all__ = ["Guarded", "damage", "is_damage"]

_KINDS = (EOFError, BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, struct.error)


def is_damage(error: BaseException) -> bool:
    """Return whether an error is about bytes that a format does not allow; unknown compression counts, too."""
    if isinstance(error, OSError) and not isinstance(error, BadGzipFile):
        return error.errno is None and str(error) == "Invalid data stream"  # of bz2
    return isinstance(error, (*_KINDS, NotImplementedError))


@contextmanager
def damage(document: str | int) -> Iterator[None]:
    """Raise what means damage as `DocumentDamaged` of that document."""
    try:
        yield
    except Exception as error:
        if not is_damage(error):
            raise
        raise DocumentDamaged(document=document, reason=in_words(error)) from error


class Guarded(io.RawIOBase):
    """A stream whose damage is reported with the document's name.

    Parameters
    ----------
    stream : file
        Closed with this.
    document : str
        The key.
    keeps : object
        What has to live as long as the stream does: its archive.
    below : file, optional
        What the stream reads from, closed with it.
    """

    def __init__(
        self, stream: BinaryIO, document: str | int, keeps: object = None, below: BinaryIO | None = None
    ) -> None:
        super().__init__()
        self._stream, self._document, self._keeps, self._below = stream, document, keeps, below

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return whether the stream inside can seek."""
        return self._stream.seekable()

    def readinto(self, buffer: Any) -> int:
        """Read as much as is there, at most one buffer."""
        with damage(self._document):
            data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        """Read the rest."""
        with damage(self._document):
            return self._stream.read()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; backwards in something compressed begins again at its start."""
        with damage(self._document):
            return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Return the place."""
        return self._stream.tell()

    def close(self) -> None:
        """Close the stream inside."""
        if not self.closed:
            try:
                self._stream.close()
            finally:
                super().close()
                self._keeps = None
                if self._below is not None:
                    self._below.close()
