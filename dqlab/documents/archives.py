"""Compressed files and archives: their members, and reading one of them (gzip, bz2, xz and Zstandard; zip and tar).

Owns how these formats are recognised, which errors mean damaged bytes, which archives this process keeps open with
their directories, and which members are documents. The standard library reads the formats, Zstandard since Python 3.14;
before that, a package is imported when the first such file is opened.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import sys
import tarfile
import tempfile
import threading
import warnings
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO, NamedTuple, Protocol, Self, cast

from dqlab.documents.kept_open import KeptOpen, at_let_go
from dqlab.documents.parts import Member, Reference, file_name
from dqlab.documents.refusals import note_read
from dqlab.documents.signatures import head_of, kind_of
from dqlab.documents.storage import Guarded, Stamp, local_path, local_stamp, open_binary, place_of, stamp_of
from dqlab.errors import (
    ArchiveUnreadable,
    DocumentChanged,
    DocumentDamaged,
    DocumentEncrypted,
    DqlabWarning,
    ExtraMissing,
    in_words,
)
from dqlab.numbers import many

__all__ = [
    "ENDINGS",
    "FoundMember",
    "compression_in",
    "damage",
    "decompressor",
    "find_member",
    "is_damage",
    "members",
    "open_member",
    "read_member",
    "unpacked",
]

ENDINGS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
"""Compression by the ending of a file name."""
KEPT = 8
"""Archives that a process keeps open."""
IN_MEMORY = 64 << 20
"""Bytes; larger members of a compressed tar are unpacked to an unnamed temporary file instead of memory."""
_ENCRYPTED = 0x1
_ZIP = (b"PK\3\4", b"PK\5\6")
_NAMED = 3
"""Omitted members that a warning names."""
_GONE = "is not in the archive any more"


# --- compression ---


def compression_of(reference: Reference) -> str | None:
    """Return "gzip", "bzip2", "xz" or "zstd" by the ending of a document's name, or None."""
    name = file_name(reference)
    return next((kind for ending, kind in ENDINGS.items() if name.endswith(ending)), None)


def compression_in(stream: BinaryIO) -> str | None:
    """Return how a file is compressed by its first bytes, or None, and leave the stream at its start."""
    return kind if (kind := kind_of(head_of(stream))) in ENDINGS.values() else None


def decompressor(stream: BinaryIO, kind: str) -> BinaryIO:
    """Return a stream of the decompressed bytes, whose `close` leaves the given stream open."""
    match kind:
        case "gzip":
            return cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))
        case "bzip2":
            return cast(BinaryIO, bz2.BZ2File(stream))
        case "zstd":
            return cast(BinaryIO, _zstd().ZstdFile(stream))
    return cast(BinaryIO, lzma.LZMAFile(stream))


def unpacked(reference: Reference, stream: BinaryIO) -> BinaryIO:
    """Return a stream that closes the given one, and decompresses it if its first bytes, or its name, ask for that."""
    # By its name, too: a compressed file that has lost its first bytes is damaged, and no text.
    if (kind := compression_in(stream) or compression_of(reference)) is None:
        return stream
    return cast(BinaryIO, io.BufferedReader(Damageable(decompressor(stream, kind), reference.key, below=stream)))


def _zstd() -> Any:
    try:
        if sys.version_info >= (3, 14):
            import compression.zstd as zstd
        else:
            import backports.zstd as zstd
    except ImportError as error:
        what, install = "files compressed with Zstandard", "'dqlab[documents]'"
        raise ExtraMissing(what=what, missing="backports.zstd", python=sys.executable, install=install) from error
    return zstd


# --- damage ---


_DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, struct.error)


def is_damage(error: BaseException) -> bool:
    """Return whether an error means bytes that the format does not allow, or an unsupported compression method."""
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return error.errno is None and str(error) == "Invalid data stream"  # of bz2
    if type(error).__name__ == "ZstdError":  # by name, to avoid importing its module
        return True
    return isinstance(error, (*_DAMAGE, NotImplementedError))


@contextmanager
def damage(document: str | int) -> Iterator[None]:
    """Turn errors that mean damage into `DocumentDamaged` of this document."""
    try:
        yield
    except Exception as error:
        if not is_damage(error):
            raise
        raise DocumentDamaged(document=document, reason=in_words(error)) from error


class Damageable(Guarded):
    """A stream that reports damage with the document's key, and closes `below`, which it reads from, with itself."""

    def __init__(
        self, stream: BinaryIO, document: str | int, keeps: object = None, below: BinaryIO | None = None
    ) -> None:
        super().__init__(stream, partial(damage, document))
        # An archive closes its file when it is no longer referenced, so the stream must keep it alive.
        self._keeps, self._below = keeps, below

    def close(self) -> None:
        """Close the stream inside, and the one it reads from."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._keeps = None
                if self._below is not None:
                    self._below.close()


# --- members ---


class FoundMember(NamedTuple):
    """A member that can be a document."""

    path: str
    """The member's name as a relative path, without "." and empty parts."""
    version: str
    """Checksum and size in a zip; the stamp of the archive in a tar."""
    size: int | None
    """Bytes; None for a hard link, whose target has the bytes."""
    member: Member


class _Archive(Protocol):
    stamp: Stamp

    def members(self) -> Iterator[FoundMember]:
        """Yield members in the order of the archive."""
        ...

    def open(self, reference: Reference, member: Member) -> BinaryIO:
        """Open a member."""
        ...

    def close(self) -> None:
        """Close the archive."""
        ...


class _Zip:
    """A zip with its directory, which several slots may read at once."""

    def __init__(self, where: str, stream: BinaryIO, stamp: Stamp) -> None:
        self.where, self.stamp = where, stamp
        # Pass an open file, not a name: zipfile closes a file that it opened when its count of users, which is not
        # thread-safe, reaches 0. With a file, each member has its own position, so slots can read side by side.
        self._zip = zipfile.ZipFile(stream)
        self._close = weakref.finalize(self, stream.close)

    def members(self) -> Iterator[FoundMember]:
        left_out: list[str] = []
        for info in self._zip.infolist():
            if info.is_dir() or stat.S_ISLNK(info.external_attr >> 16):
                continue
            path = _relative(info.filename)
            if path is None:
                left_out.append(info.filename)
                continue
            repeated = self._zip.getinfo(info.filename) is not info
            member = Member(path if path == info.filename else info.filename, info.header_offset if repeated else -1)
            yield FoundMember(path, _checksum(info), info.file_size, member)
        _warn(self.where, left_out)

    def open(self, reference: Reference, member: Member) -> BinaryIO:
        info = self._info(reference, member)
        if info.flag_bits & _ENCRYPTED:
            raise DocumentEncrypted(document=reference.key, where=self.where)
        return cast(BinaryIO, self._zip.open(info))

    def _info(self, reference: Reference, member: Member) -> zipfile.ZipInfo:
        try:
            found = self._zip.getinfo(member.name)
        except KeyError:
            raise DocumentChanged(document=reference.key, was=reference.version, now=_GONE) from None
        if member.offset >= 0 and found.header_offset != member.offset:
            same = (info for info in self._zip.infolist() if info.filename == member.name)
            found = next((info for info in same if info.header_offset == member.offset), found)
        if reference.version and _checksum(found) != reference.version:
            raise DocumentChanged(document=reference.key, was=reference.version, now=_checksum(found))
        return found

    def close(self) -> None:
        self._close()


def _checksum(info: zipfile.ZipInfo) -> str:
    return f"{info.CRC:08x}-{info.file_size}"


class _Tar:
    """A tar whose decompressor, if any, keeps its position, so that members read in order need no restart."""

    def __init__(self, where: str, stream: BinaryIO, stamp: Stamp, kind: str | None) -> None:
        self.where, self.stamp, self._kind = where, stamp, kind
        self._stream = _decompressed(stream, kind)
        self._lock = threading.RLock()
        self._targets: dict[str, int] | None = None
        """Offsets of the targets of hard links, by name; None until the first hard link is opened."""
        self._tar = tarfile.open(fileobj=self._stream, mode="r:")  # noqa: SIM115 - open as long as the archive is kept
        self._close = weakref.finalize(self, stream.close)

    def members(self) -> Iterator[FoundMember]:
        """Yield members from a pass over the whole archive."""
        left_out: list[str] = []
        # Opens the file again: a pass through `self._stream` would move the position of a reader.
        for info in _headers(self.where):
            if not (info.isreg() or info.islnk()):
                continue
            path = _relative(info.name)
            if path is None:
                left_out.append(info.name)
                continue
            name = path if path == info.name else info.name
            size = None if info.islnk() else info.size
            yield FoundMember(path, self.stamp.version, size, Member(name, info.offset))
        _warn(self.where, left_out)

    def open(self, reference: Reference, member: Member) -> BinaryIO:
        # A tar has no checksums of its members, so the version of each is the stamp of the archive.
        if reference.version and reference.version != self.stamp.version:
            raise DocumentChanged(document=reference.key, was=reference.version, now=self.stamp.version)
        with self._lock:
            info = self._header(member.offset)
            if info.name != member.name:
                raise DocumentChanged(document=reference.key, was=reference.version, now=_GONE)
            if info.islnk():
                info = self._target(reference, info.linkname)
            stream = cast(BinaryIO, self._tar.extractfile(info))
            if self._kind is not None:
                # Read to the end under the lock: two readers of one decompressor would make each other restart it.
                return self._unpacked(stream, info.size)
        return cast(BinaryIO, _Apart(self._tar, info, self._lock))

    def _header(self, offset: int) -> tarfile.TarInfo:
        self._stream.seek(offset)
        return tarfile.TarInfo.fromtarfile(self._tar)

    def _target(self, reference: Reference, name: str) -> tarfile.TarInfo:
        if self._targets is None:
            self._targets = {}
            for info in _headers(self.where):
                if info.isreg():
                    self._targets[info.name] = info.offset
                elif info.islnk() and info.linkname in self._targets:
                    self._targets[info.name] = self._targets[info.linkname]
        if name not in self._targets:
            raise DocumentDamaged(document=reference.key, reason=f"it is a link to {name!r}, which the archive lacks")
        return self._header(self._targets[name])

    def _unpacked(self, stream: BinaryIO, size: int) -> BinaryIO:
        if size <= IN_MEMORY:
            return io.BytesIO(stream.read())
        kept = tempfile.TemporaryFile()  # noqa: SIM115 - closed by its reader
        try:
            while block := stream.read(1 << 20):
                kept.write(block)
            kept.seek(0)
        except BaseException:
            kept.close()
            raise
        return cast(BinaryIO, kept)

    def close(self) -> None:
        self._close()


class _Apart:
    """A member of an uncompressed tar, with its own position in the file that slots share."""

    def __init__(self, tar: tarfile.TarFile, info: tarfile.TarInfo, lock: Any) -> None:
        self._stream = cast(BinaryIO, tar.extractfile(info))
        self._lock = lock

    def read(self, size: int = -1) -> bytes:
        # Only `read` moves the shared file; `seek` sets the position of this member.
        with self._lock:
            return self._stream.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()


def _headers(where: str) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of a tar from its start, and raise if it is truncated."""
    with open_binary(where) as below, _decompressed(below, kind := compression_in(below)) as stream:
        tar = tarfile.open(fileobj=stream, mode="r:")  # noqa: SIM115 - it owns nothing but the stream
        while (info := tar.next()) is not None:
            # tarfile would keep every header, a kilobyte each.
            cast(Any, tar).members.clear()
            yield info
        # tarfile treats an unreadable header, and the end of the file, as the end of the archive.
        stream.seek(cast(Any, tar).offset)
        end = stream.read(tarfile.BLOCKSIZE)
        if len(end) < tarfile.BLOCKSIZE or end.strip(b"\0"):
            raise tarfile.ReadError("the archive is cut off, or damaged, behind that")
        # Read on to the end: only there does the decompressor compare the checksum that reveals damaged members.
        while kind is not None and stream.read(1 << 20):
            pass


def _decompressed(stream: BinaryIO, kind: str | None) -> BinaryIO:
    return stream if kind is None else decompressor(stream, kind)


def _is_zip(stream: BinaryIO) -> bool:
    # `is_zipfile` looks at the end of the file, which also matches a tar whose last member is a zip. A truncated zip
    # has only its head, and must be reported as a damaged zip.
    head = stream.read(262)
    found = head.startswith(_ZIP) or (head[257:] != b"ustar" and zipfile.is_zipfile(stream))
    stream.seek(0)
    return found


def _relative(name: str) -> str | None:
    """Return a member's name as a relative path, or None if it leads out of the archive."""
    # Members are not unpacked to paths, but users use keys as paths later on.
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        return None
    return name if "" not in parts and "." not in parts else "/".join(part for part in parts if part not in ("", "."))


def _warn(where: str, left_out: list[str]) -> None:
    if left_out:
        named = ", ".join(map(repr, left_out[:_NAMED])) + (", ..." if len(left_out) > _NAMED else "")
        warnings.warn(
            f"{many(len(left_out), 'member')} of {where!r} left out: their names lead out of the archive ({named})",
            DqlabWarning,
            stacklevel=2,
        )


# --- archives that this process keeps open ---


class _OpenArchive(NamedTuple):
    """An open archive."""

    archive: _Archive
    identity: tuple[int, ...] | None
    """Identity, size and time of the file at its path when it was opened; None for a URL."""

    def close(self) -> None:
        self.archive.close()


_kept: KeptOpen[_OpenArchive] = KeptOpen(KEPT)


@at_let_go
def _let_go() -> None:
    _kept.clear()


def _opened(where: str) -> _Archive:
    """Return an archive with its directory, opened once per process, and again if another file is now at its path."""
    place = place_of(where)
    found = _kept.get(place, lambda: _open(where))
    if found.identity is not None and found.identity != _identity_at(where):
        _kept.forget(place)
        found = _kept.get(place, lambda: _open(where))
    return found.archive


def _open(where: str) -> _OpenArchive:
    local = local_path(where) is not None
    stream = open_binary(where)
    try:
        if local:
            status = os.fstat(stream.fileno())
            stamp, identity = local_stamp(status), _identity(status)
        else:
            stamp, identity = stamp_of(where), None
        kind = compression_in(stream)
        if kind is None and _is_zip(stream):
            archive: _Archive = _Zip(where, stream, stamp)
        else:
            archive = _Tar(where, stream, stamp, kind)
        if not local:
            note_read(where)
        return _OpenArchive(archive, identity)
    except BaseException:
        stream.close()
        raise


def _identity_at(where: str) -> tuple[int, ...]:
    return _identity(os.stat(cast(str, local_path(where))))


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def members(where: str) -> Iterator[FoundMember]:
    """Yield the members of an archive that can be documents, without folders, symbolic links and devices."""
    listed = 0
    try:
        for member in _opened(where).members():
            yield member
            listed += 1
    except Exception as error:
        if not is_damage(error):
            raise
        raise ArchiveUnreadable(archive=where, reason=in_words(error), listed=listed) from error


def open_member(reference: Reference, member: Member) -> BinaryIO:
    """Open a member, or raise a `DocumentError` if it is damaged, encrypted, or not the one that was listed."""
    with damage(reference.key):
        archive = _opened(reference.where)
        stream = archive.open(reference, member)
    return cast(BinaryIO, io.BufferedReader(Damageable(stream, reference.key, archive)))


def read_member(reference: Reference, member: Member) -> bytes:
    """Return the bytes of a member, faster than through a stream, with the errors of `open_member`."""
    with damage(reference.key):
        archive = _opened(reference.where)
        with archive.open(reference, member) as stream:
            return stream.read()


def find_member(reference: Reference, member: Member) -> FoundMember:
    """Return a member as it is in the archive now, or raise `DocumentChanged` if none has its name."""
    found = [each for each in members(reference.where) if each.member.name == member.name]
    if not found:
        raise DocumentChanged(document=reference.key, was=reference.version, now=_GONE)
    return next((each for each in found if each.member.offset == member.offset), found[-1])
