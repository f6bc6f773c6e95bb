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
import stat
import struct
import sys
import tarfile
import threading
import warnings
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

from dqlab.documents.formats import head_of, kind_of
from dqlab.documents.kept_open import Forward, KeptOpen, Piece, at_let_go
from dqlab.documents.parts import Member, Reference, file_name
from dqlab.documents.storage import (
    Guarded,
    Stamp,
    copied,
    local_path,
    open_binary,
    place_of,
    stamp_of,
    stamp_of_open,
)
from dqlab.errors import (
    DocumentChanged,
    DocumentDamaged,
    DocumentEncrypted,
    DqlabWarning,
    ExtraMissing,
    InputUnreadable,
    WrongKind,
    in_words,
)
from dqlab.numbers import few_of, many
from dqlab.user_frames import level_of_user

ENDINGS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
"""Compression by the ending of a file name."""
KEPT = 8
"""Archives that a process keeps open."""
IN_MEMORY = 64 << 20
"""Bytes; larger members of a compressed tar are unpacked to an unnamed temporary file instead of memory."""
RECENT = 16 << 20
"""Bytes that a compressed tar keeps of what it unpacked last, as slots read almost in order."""
_PIECE = 1 << 18
_ENCRYPTED = 0x1
_METHODS: dict[int, str] = cast(Any, zipfile).compressor_names
_UNZIP = "7z to unpack the archive, and list the files with from_glob or pack them again"
_GONE = "is not in the archive any more"


# --- compression ---


def compression_of(reference: Reference) -> str | None:
    """Return "gzip", "bzip2", "xz" or "zstd" by the ending of a document's name, or None."""
    return ENDINGS.get(f".{file_name(reference).rpartition('.')[2]}")


def compression_in(stream: BinaryIO) -> str | None:
    """Return how a file is compressed by its first bytes, or None, and leave the stream at its start."""
    return kind if (kind := kind_of(head_of(stream))) in ENDINGS.values() else None


def decompressor(stream: BinaryIO, kind: str) -> BinaryIO:
    """Return a stream of the decompressed bytes, whose `close` leaves the given stream open."""
    library: Any = load_zstandard() if kind == "zstd" else {"gzip": gzip, "bzip2": bz2, "xz": lzma}[kind]
    opened = library.open(stream)
    if kind in ("bzip2", "xz"):
        # Python would take a damaged stream behind the first, as pbzip2 writes many, for the end of the file.
        opened._buffer.raw._trailing_error = ()
    return cast(BinaryIO, opened)


def unpacked(reference: Reference, stream: BinaryIO) -> BinaryIO:
    """Return a stream that closes the given one, and decompresses it if its first bytes, or its name, ask for that."""
    # By its name, too: a compressed file that has lost its first bytes is damaged, and no text.
    if (kind := compression_in(stream) or compression_of(reference)) is None:
        return stream
    return cast(BinaryIO, io.BufferedReader(Damageable(decompressor(stream, kind), reference.key, below=stream)))


def unpacked_data(reference: Reference, data: bytes) -> bytes:
    """Return what `unpacked` reads of these bytes."""
    if kind_of(data) not in ENDINGS.values() and compression_of(reference) is None:
        return data
    return unpacked(reference, io.BytesIO(data)).read()


def load_zstandard() -> Any:
    """Return the module that reads Zstandard, or raise `ExtraMissing`."""
    with ExtraMissing.without("backports.zstd", what="files compressed with Zstandard", extra="documents"):
        if sys.version_info >= (3, 14):
            import compression.zstd as zstd
        else:
            import backports.zstd as zstd
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
    size: int
    """Bytes."""
    member: Member


class _Zip:
    """A zip with its directory, which several slots may read at once."""

    def __init__(self, where: str, stream: BinaryIO, stamp: Stamp) -> None:
        self.where, self.stamp = where, stamp
        # Pass an open file, not a name: zipfile closes a file that it opened when its count of users, which is not
        # thread-safe, reaches 0. With a file, each member has its own position, so slots can read side by side.
        self._zip = zipfile.ZipFile(stream)
        weakref.finalize(self, stream.close)

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
        _warn_of(self.where, left_out)

    def open(self, reference: Reference, member: Member) -> BinaryIO:
        info = self._info(reference, member)
        if info.flag_bits & _ENCRYPTED:
            raise DocumentEncrypted(document=reference.key, where=self.where)
        try:
            return cast(BinaryIO, self._zip.open(info))
        except NotImplementedError as error:
            number = info.compress_type
            kind = f"compressed by {_METHODS.get(number, f'method {number}')}"
            asked = "reading it"
            raise WrongKind(key=reference.key, kind=kind, asked=asked, instead=_UNZIP) from error

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


def _checksum(info: zipfile.ZipInfo) -> str:
    return f"{info.CRC:08x}-{info.file_size}"


class _Tar:
    """A tar whose decompressor, if any, keeps its position, so that members read in order need no restart."""

    def __init__(self, where: str, stream: BinaryIO, stamp: Stamp, packed: str | None) -> None:
        self.where, self.stamp, self.packed = where, stamp, packed
        self._stream = stream
        if packed is not None:
            self._stream = cast(BinaryIO, _Recent(decompressor(stream, packed)))
        self._lock = threading.RLock()
        self._tar = tarfile.open(fileobj=self._stream, mode="r:")  # noqa: SIM115 - open as long as the archive is kept
        weakref.finalize(self, stream.close)

    def members(self) -> Iterator[FoundMember]:
        """Yield members from a pass over the whole archive."""
        left_out: list[str] = []
        # Opens the file again: a pass through `self._stream` would move the position of a reader.
        for info in _headers(self.where):
            if not (info.isreg() or info.islnk()):
                continue
            path = _relative(info.name)
            if path is None or info.islnk():
                left_out.append(info.name)
                continue
            name = path if path == info.name else info.name
            yield FoundMember(path, self.stamp.version, info.size, Member(name, info.offset))
        _warn_of(self.where, left_out)

    def open(self, reference: Reference, member: Member) -> BinaryIO:
        # A tar has no checksums of its members, so the version of each is the stamp of the archive.
        if reference.version and reference.version != self.stamp.version:
            raise DocumentChanged(document=reference.key, was=reference.version, now=self.stamp.version)
        with self._lock:
            info = self._header(member.offset)
            if info.name != member.name or not info.isreg():
                raise DocumentChanged(document=reference.key, was=reference.version, now=_GONE)
            stream = cast(BinaryIO, self._tar.extractfile(info))
            if self.packed is not None:
                # Read to the end under the lock: two readers of one decompressor would make each other restart it.
                return copied(stream, IN_MEMORY)
        # Each stream has a position of its own in the file that slots share.
        return cast(BinaryIO, Guarded(stream, lambda: cast(Any, self._lock)))

    def _header(self, offset: int) -> tarfile.TarInfo:
        self._stream.seek(offset)
        return tarfile.TarInfo.fromtarfile(self._tar)


class _Recent:
    """A decompressor that keeps its last bytes, so that going back a little needs no restart."""

    def __init__(self, stream: BinaryIO) -> None:
        self._pieces = Forward(partial(_pieces, stream), RECENT)
        self._at = 0

    def read(self, size: int) -> bytes:
        found = bytearray()
        with suppress(IndexError):
            while (left := size - len(found)) > 0:
                piece = self._pieces.at(self._at)
                at = self._at - piece.start
                found += piece.held[at : at + left]
                self._at = min(self._at + left, piece.stop)
        return bytes(found)

    def seek(self, offset: int) -> int:
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at


def _pieces(stream: BinaryIO) -> Iterator[Piece[bytes]]:
    at = 0
    # Seek each time: another iterator may have moved the stream, and staying costs nothing. `read1`,
    # because `read` would lose what comes before an error.
    while stream.seek(at) == at and (data := cast(Any, stream).read1(_PIECE)):
        yield Piece(at, at + len(data), data, len(data))
        at += len(data)


def _headers(where: str) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of a tar, raise if it is truncated, and warn if it has no end, or two."""
    with (
        open_binary(where) as below,
        _decompressed(below, compression_in(below)) as stream,
        tarfile.open(fileobj=stream, mode="r:") as tar,
    ):
        while (info := tar.next()) is not None:
            # tarfile would keep every header, a kilobyte each.
            cast(Any, tar).members.clear()
            yield info
        # tarfile treats an unreadable header, and the end of the file, as the end of the archive.
        at = end = stream.seek(cast(Any, tar).offset)
        while (block := stream.read(tarfile.BLOCKSIZE)) and not block.strip(b"\0"):
            at += len(block)
        # Go to the end in any case: only there does a decompressor compare the checksum, which
        # reveals damaged members.
        behind = stream.seek(0, io.SEEK_END) - at
        if behind and at == end:
            raise tarfile.ReadError("the archive is cut off, or damaged, behind that")
        if behind:
            _warn(_MORE.format(where=where, behind=many(behind, "byte")))
        elif at - end < 2 * tarfile.BLOCKSIZE:
            _warn(_ENDLESS.format(where=where))


_ENDLESS = (
    "tar {where!r} has no end mark. Its members are listed, but if its transfer ended early, "
    "others are missing: compare its size with that of the original."
)
_MORE = (
    "tar {where!r} has {behind} behind its end mark. Like tar, dqlab does not list "
    "members there. Unpack it with tar --extract --ignore-zeros, and list the files with from_glob."
)


def _decompressed(stream: BinaryIO, kind: str | None) -> BinaryIO:
    return stream if kind is None else decompressor(stream, kind)


def _plain(name: str) -> str:
    """Return a member's name without "." and empty parts."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _relative(name: str) -> str | None:
    """Return a member's name as a relative path, or None if it leads out of the archive."""
    # Members are not unpacked to paths, but users use keys as paths later on.
    return None if name.startswith("/") or ".." in name.split("/") else _plain(name)


def _warn(text: str) -> None:
    warnings.warn(text, DqlabWarning, stacklevel=level_of_user())


def _warn_of(where: str, left_out: list[str]) -> None:
    if left_out:
        named = few_of([repr(name) for name in left_out])
        found = many(len(left_out), "member")
        _warn(f"{found} of {where!r} left out: hard links, or names that lead out of the archive ({named})")


# --- archives that this process keeps open ---


_Archive: TypeAlias = _Zip | _Tar
_kept: KeptOpen[_Archive] = KeptOpen(KEPT)


@at_let_go
def _let_go() -> None:
    _kept.clear()


def _opened(where: str) -> _Archive:
    """Return an archive with its directory, opened once per process, and again if another file is now at its path."""
    place = place_of(where)
    found = _kept.get(place, lambda: _open(where))
    if local_path(where) is not None and found.stamp != stamp_of(where):
        _kept.forget(place)
        found = _kept.get(place, lambda: _open(where))
    return found


def _open(where: str) -> _Archive:
    stream = open_binary(where)
    try:
        return _archive(where, stream, stamp_of_open(where, stream) if local_path(where) else stamp_of(where))
    except BaseException:
        stream.close()
        raise


def archive_unreadable(
    where: str,
    reason: str,
    listed: int = 0,
) -> InputUnreadable:
    """Return the error for an archive whose directory cannot be read after so many members."""
    left = f"{many(listed, 'document')} of it came before that, and no more will."
    hint = "Look at the file: copy it again, list it with dq.Documents([path]), or pack what is in it as a zip"
    return InputUnreadable(what=f"archive {where!r}", reason=reason, left=left, hint=hint, listed=listed)


def _archive(where: str, stream: BinaryIO, stamp: Stamp) -> _Archive:
    head = head_of(stream)
    kind = kind_of(head)
    packed = kind if kind in ENDINGS.values() else None
    # A zip is known by its end, for a program may stand before it. Look at the start first: another
    # archive may end with a zip, and a truncated zip must be reported as a damaged one.
    known = packed or kind in ("tar", "7z", "rar")
    if kind == "zip" or (not known and zipfile.is_zipfile(stream)):
        return _Zip(where, stream, stamp)
    stream.seek(0)
    try:
        return _Tar(where, stream, stamp, packed)
    except tarfile.ReadError:
        stream.seek(0)
        if kind_of(head_of(_decompressed(stream, packed))) == "tar":
            raise  # a damaged one
        found = kind or ("of no known kind" if head else "empty")
        reason = f"it is {found}, neither a zip nor a tar"
        raise archive_unreadable(where, reason) from None


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
        raise archive_unreadable(where, in_words(error), listed) from error


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
