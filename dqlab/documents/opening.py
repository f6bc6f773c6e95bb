"""Opening a document where it lies: a file, a member of an archive, behind a path or a URL.

Owns which reader a reference takes, decompression, and the check that a file is the one that was listed.
"""

from __future__ import annotations

import io
from typing import BinaryIO, cast

from dqlab.documents.archives import Guarded, compression_of, decompressor, open_member, read_member
from dqlab.documents.parts import Member, PageRange, Reference, is_whole_file
from dqlab.documents.storage import check_stamp, has_etag, local_path, open_binary, redacted, remote, stamp_of_open

__all__ = ["decompressing", "open_raw", "read_raw", "read_remote"]


def open_raw(reference: Reference) -> BinaryIO:
    """Open what is stored, unchanged; of some pages of a PDF, the whole file.

    Raises
    ------
    OSError
        It is gone, or not readable here.
    DocumentError
        It has changed since it was listed, or is damaged or encrypted in its archive.
    """
    member = _member(reference)
    if member is not None:
        return open_member(reference, member)
    stream = open_binary(reference.where)
    if local_path(reference.where) is None and not has_etag(reference):
        return stream  # asking for its stamp may be another request
    try:
        with redacted(reference.where):
            check_stamp(reference, stamp_of_open(reference.where, stream).version)
    except BaseException:
        stream.close()
        raise
    return stream


def read_raw(reference: Reference) -> bytes:
    """Return what is stored, unchanged; raises as `open_raw` does."""
    member = _member(reference)
    if member is not None:
        return read_member(reference, member)
    with open_raw(reference) as stream:
        return stream.read()


def _member(reference: Reference) -> Member | None:
    part = reference.part.within if isinstance(reference.part, PageRange) else reference.part
    return part if isinstance(part, Member) else None


def decompressing(reference: Reference, stream: BinaryIO) -> BinaryIO:
    """Return what a stream holds, decompressed if the document's name ends in .gz, .bz2 or .xz; closes it with that."""
    kind = compression_of(reference)
    if kind is None:
        return stream
    return cast(BinaryIO, io.BufferedReader(Guarded(decompressor(stream, kind), reference.key, below=stream)))


async def read_remote(reference: Reference) -> bytes | None:
    """Read a file by the asynchronous method of its file system; None where it has none."""
    if not is_whole_file(reference) or local_path(reference.where) is not None:
        return None
    system, path = remote(reference.where)
    if not getattr(system, "async_impl", False):
        return None
    import asyncio

    # On fsspec's own loop, where its sessions live: they must not be used on another.
    reading = asyncio.run_coroutine_threadsafe(system._cat_file(path), system.loop)
    return bytes(await asyncio.wrap_future(reading))
