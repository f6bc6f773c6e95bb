"""Compressed files and archives: what is in them, and reading one member; gzip, bz2, xz and Zstandard, zip and tar.

Owns how these formats are known, which errors mean that their bytes are damaged, the archives that this process keeps
open with their directories, and which of their members are documents. The standard library reads the formats; Zstandard
it reads since Python 3.14, and before that a package that is imported when the first such file is opened.

Members are not unpacked to anywhere, hence a name cannot lead out of a folder; but keys are used as paths later on, so
that members whose names are absolute or have ".." in them are left out, with a warning.
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
    "Damageable",
    "FoundMember",
    "compression_in",
    "compression_of",
    "damage",
    "decompressor",
    "find_member",
    "is_damage",
    "members",
    "open_member",
    "read_member",
]

ENDINGS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
"""By how the name of a file ends."""
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"(\xb5/\xfd": "zstd"}
"""By how a file begins."""
KEPT = 8
"""Archives that a process keeps open."""
IN_MEMORY = 64 << 20
"""Bytes of a member of a compressed tar that are held in memory; more of them in a file without a name."""
_ENCRYPTED = 0x1
_ZIP = (b"PK\3\4", b"PK\5\6")
_NAMED = 3
"""Members left out that a warning names."""
_GONE = "is not in the archive any more"


# --- compression ---


def compression_of(reference: Reference) -> str | None:
    """Return how a document is compressed, by its name: "gzip", "bz2", "xz" or "zstd"; None for any other."""
    name = file_name(reference)
    return next((kind for ending, kind in ENDINGS.items() if name.endswith(ending)), None)


def compression_in(stream: BinaryIO) -> str | None:
    """Return how a file is compressed, by its first bytes; leaves it at its start."""
    if isinstance(stream, io.BufferedReader):  # what a web server gives without a length cannot seek
        head = stream.peek(8)
    else:
        head = stream.read(8)
        stream.seek(0)
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def decompressor(stream: BinaryIO, kind: str) -> BinaryIO:
    """Return a stream of what is inside; closing it leaves the one below open."""
    match kind:
        case "gzip":
            return cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))
        case "bz2":
            return cast(BinaryIO, bz2.BZ2File(stream))
        case "zstd":
            return cast(BinaryIO, _zstd().ZstdFile(stream))
    return cast(BinaryIO, lzma.LZMAFile(stream))


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
    """Return whether an error is about bytes that a format does not allow; unknown compression counts, too."""
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return error.errno is None and str(error) == "Invalid data stream"  # of bz2
    if type(error).__name__ == "ZstdError":  # of a module that is not imported until it is needed
        return True
    return isinstance(error, (*_DAMAGE, NotImplementedError))


@contextmanager
def damage(document: str | int) -> Iterator[None]:
    """Raise what means damage as `DocumentDamaged` of that document."""
    try:
        yield
    except Exception as error:
        if not is_damage(error):
            raise
        raise DocumentDamaged(document=document, reason=in_words(error)) from error


class Damageable(Guarded):
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
        super().__init__(stream, partial(damage, document))
        self._keeps, self._below = keeps, below

    def close(self) -> None:
        """Close the stream inside, and what it reads from."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._keeps = None
                if self._below is not None:
                    self._below.close()


# --- members ---


class FoundMember(NamedTuple):
    """A member that can be a document.

    Attributes
    ----------
    path : str
        Its name as a relative path, without "." and empty parts.
    version : str
        Checksum and size, of a zip; the stamp of the archive, of a tar.
    size : int or None
        Bytes; None for a hard link, whose target has them.
    member : Member
    """

    path: str
    version: str
    size: int | None
    member: Member


class _Archive(Protocol):
    stamp: Stamp

    def members(self) -> Iterator[FoundMember]:
        """Yield members in the order of the archive."""
        ...

    def open(self, reference: Reference, member: Member) -> BinaryIO:
        """Open one of them."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class _Zip:
    """A zip with its directory. Slots may read members side by side: each has its place in the file."""

    def __init__(self, where: str, stream: BinaryIO, stamp: Stamp) -> None:
        self.where, self.stamp = where, stamp
        # Given a file rather than a name, zipfile never closes it by itself: its count of users is not thread-safe.
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
    """A tar and, if it is compressed, a decompressor that stays where it is: members that follow need no new start."""

    def __init__(self, where: str, stream: BinaryIO, stamp: Stamp, kind: str | None) -> None:
        self.where, self.stamp, self._kind = where, stamp, kind
        self._stream = _decompressed(stream, kind)
        self._lock = threading.RLock()
        self._targets: dict[str, int] | None = None
        """By name where members are that hard links lead to; only known once it is needed."""
        self._tar = tarfile.open(fileobj=self._stream, mode="r:")  # noqa: SIM115 - open as long as the archive is kept
        self._close = weakref.finalize(self, stream.close)

    def members(self) -> Iterator[FoundMember]:
        """Pass over the archive, with a file of its own: the place of this one is that of a reader."""
        left_out: list[str] = []
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
                # Two readers of one decompressor would send each other back to its start.
                return self._taken_out(stream, info.size)
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

    def _taken_out(self, stream: BinaryIO, size: int) -> BinaryIO:
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
    """A member of a tar that is not compressed, with a place of its own in the file that slots share."""

    def __init__(self, tar: tarfile.TarFile, info: tarfile.TarInfo, lock: Any) -> None:
        self._stream = cast(BinaryIO, tar.extractfile(info))
        self._lock = lock

    def read(self, size: int = -1) -> bytes:
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
    """Yield the headers of a tar from its start, holding one at a time."""
    with open_binary(where) as below, _decompressed(below, kind := compression_in(below)) as stream:
        tar = tarfile.open(fileobj=stream, mode="r:")  # noqa: SIM115 - it owns nothing but the stream
        while (info := tar.next()) is not None:
            # tarfile keeps all of them, a kilobyte each.
            cast(Any, tar).members.clear()
            yield info
        # tarfile takes a header that it cannot read, and the end of the file, for the end of the archive.
        stream.seek(cast(Any, tar).offset)
        end = stream.read(tarfile.BLOCKSIZE)
        if len(end) < tarfile.BLOCKSIZE or end.strip(b"\0"):
            raise tarfile.ReadError("the archive is cut off, or damaged, behind that")
        # A compressed archive has a checksum at its end, which tells damage of members, and is compared only there.
        while kind is not None and stream.read(1 << 20):
            pass


def _decompressed(stream: BinaryIO, kind: str | None) -> BinaryIO:
    return stream if kind is None else decompressor(stream, kind)


def _is_zip(stream: BinaryIO) -> bool:
    # A zip is known by its end, which a tar has too whose last member is a zip. One that is cut off has its head.
    head = stream.read(262)
    found = head.startswith(_ZIP) or (head[257:] != b"ustar" and zipfile.is_zipfile(stream))
    stream.seek(0)
    return found


def _relative(name: str) -> str | None:
    """Return a member's name as a relative path; None if it leads out of the archive."""
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


# --- The archives that this process keeps open.


class _Seen(NamedTuple):
    """An open archive, and how its path looked when it was opened; None for a URL."""

    archive: _Archive
    seen: tuple[int, ...] | None

    def close(self) -> None:
        self.archive.close()


_kept: KeptOpen[_Seen] = KeptOpen(KEPT)


@at_let_go
def _let_go() -> None:
    _kept.clear()


def _opened(where: str) -> _Archive:
    """Return an archive with its directory; opened once in a process, and again when another file is at its path."""
    place = place_of(where)
    found = _kept.get(place, lambda: _open(where))
    if found.seen is not None and found.seen != _looks(where):
        _kept.forget(place)
        found = _kept.get(place, lambda: _open(where))
    return found.archive


def _open(where: str) -> _Seen:
    local = local_path(where) is not None
    stream = open_binary(where)
    try:
        if local:
            status = os.fstat(stream.fileno())
            stamp, seen = local_stamp(status), _sight(status)
        else:
            stamp, seen = stamp_of(where), None
        kind = compression_in(stream)
        if kind is None and _is_zip(stream):
            archive: _Archive = _Zip(where, stream, stamp)
        else:
            archive = _Tar(where, stream, stamp, kind)
        if not local:
            note_read(where)
        return _Seen(archive, seen)
    except BaseException:
        stream.close()
        raise


def _looks(where: str) -> tuple[int, ...]:
    return _sight(os.stat(cast(str, local_path(where))))


def _sight(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def members(where: str) -> Iterator[FoundMember]:
    """Yield the members of an archive that can be documents: neither folders, nor symbolic links, nor devices."""
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
    """Open a member of an archive; one that is damaged, encrypted or another than was listed is a `DocumentError`."""
    with damage(reference.key):
        archive = _opened(reference.where)
        stream = archive.open(reference, member)
    return cast(BinaryIO, io.BufferedReader(Damageable(stream, reference.key, archive)))


def read_member(reference: Reference, member: Member) -> bytes:
    """Return what is in a member of an archive, faster than through a stream; raises as `open_member` does."""
    with damage(reference.key):
        archive = _opened(reference.where)
        with archive.open(reference, member) as stream:
            return stream.read()


def find_member(reference: Reference, member: Member) -> FoundMember:
    """Return a member as the archive has it now; without one of that name, `DocumentChanged`."""
    found = [each for each in members(reference.where) if each.member.name == member.name]
    if not found:
        raise DocumentChanged(document=reference.key, was=reference.version, now=_GONE)
    return next((each for each in found if each.member.offset == member.offset), found[-1])
