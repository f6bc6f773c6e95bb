"""What readers need of a document: where it lies, and which version of it was listed.

Exists so that readers know nothing of `Document`, which calls them.
"""

from __future__ import annotations

import re
from typing import Protocol

from dqlab.documents.compressed import ENDINGS
from dqlab.documents.parts import Member, PageRange, Part
from dqlab.errors import DocumentChanged

__all__ = ["Reference", "check_stamp", "compression_of", "file_name", "has_etag", "is_pdf", "is_whole_file"]


class Reference(Protocol):
    """A `Document`, as its readers see it."""

    @property
    def key(self) -> str | int: ...  # noqa: D102

    @property
    def version(self) -> str: ...  # noqa: D102

    @property
    def where(self) -> str: ...  # noqa: D102

    @property
    def size(self) -> int | None: ...  # noqa: D102

    @property
    def part(self) -> Part | None: ...  # noqa: D102


def file_name(reference: Reference) -> str:
    """Return the name that shows a document's format, in lower case."""
    part = reference.part.within if isinstance(reference.part, PageRange) else reference.part
    if isinstance(part, Member):
        return part.name.lower()
    if part is not None:
        return ""  # a row, or a record: what its file is called says nothing of it
    # One URL may name a member of an archive: zip://package/module.py::https://host/package.zip
    return reference.where.partition("::")[0].lower()


def is_whole_file(reference: Reference) -> bool:
    """Return whether a document's bytes are those of a file, rather than of something in it."""
    part = reference.part
    return part is None or (isinstance(part, PageRange) and part.within is None)


def is_pdf(reference: Reference) -> bool:
    """Return whether a document is named as a PDF, or is some pages of one."""
    return isinstance(reference.part, PageRange) or file_name(reference).endswith(".pdf")


def compression_of(reference: Reference) -> str | None:
    """Return how a document is compressed, by its name: "gzip", "bz2" or "xz"; None for any other."""
    name = file_name(reference)
    return next((kind for ending, kind in ENDINGS.items() if name.endswith(ending)), None)


_ETAG = re.compile(r"[0-9a-f]{32}(?:-\d+)?")
"""The version of an object of S3: an MD5, also of several parts. Times of other stores differ in precision between a
listing and an object, so they are not compared."""


def has_etag(reference: Reference) -> bool:
    """Return whether a document's version is the ETag that its listing gave it."""
    return reference.size is not None and _ETAG.fullmatch(reference.version) is not None


def check_stamp(reference: Reference, now: str) -> None:
    """Compare the stamp of a file with that of its listing; versions that users have made are not compared.

    Raises
    ------
    DocumentChanged
        They differ.
    """
    was = reference.version
    # A listing's version begins with the size that it noted, too. A user's own "2024-01" does not, but by chance.
    if was == now or reference.size is None:
        return
    if re.fullmatch(rf"{reference.size}-(-?\d+)", was) or (has_etag(reference) and _ETAG.fullmatch(now)):
        raise DocumentChanged(document=reference.key, was=was, now=now)
