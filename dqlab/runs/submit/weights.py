"""What a document weighs in progress bars and estimates: its pages, else its bytes, else 1.

A run has one unit, so it is decided for the whole input, before its first document is listed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dqlab.documents.choosing import LongestFirst, Sample, Where
from dqlab.documents.document import Document
from dqlab.documents.listing import Documents
from dqlab.documents.parts import Member
from dqlab.documents.sources import Given, Glob, Source, Unpacked, Window

BYTES = "bytes"
_MOST = (1 << 32) - 1
"""Largest weight that fits the 32 bits of a frame; larger documents weigh as much."""


def unit_of(elements: Any) -> str:
    """Return "bytes" if all documents of an input have sizes and none has pages, else ""."""
    # A listing is judged by its source: looking at its documents would list the storage.
    if isinstance(elements, Documents):
        return BYTES if _is_sized(elements._source) else ""
    return BYTES if _are_sized(elements) else ""


def _is_sized(source: Source) -> bool:
    """Return whether the source of a listing gives a size with each document, and pages with none."""
    while isinstance(source, Window | Where | Sample | LongestFirst):
        source = source.source
    if isinstance(source, Given):
        return _are_sized(source.iterable)
    return isinstance(source, Unpacked) or (isinstance(source, Glob) and source.sized)


def _are_sized(elements: Any) -> bool:
    return type(elements) in (list, tuple) and bool(elements) and all(map(_has_size, elements))


def _has_size(element: Any) -> bool:
    whole = type(element) is Document and (element.part is None or type(element.part) is Member)
    return whole and element.size is not None and not element.page_count


def weigher(unit: str, first: Any) -> Callable[[Any], int] | None:
    """Return the function that weighs the elements of a run, given its unit and first element, or None."""
    if unit == BYTES:
        return _bytes_of
    return _pages_of if type(first) is Document and first.page_count else None


# At least 1: documents without weight would vanish from bars and estimates before they are done.
def _bytes_of(element: Any) -> int:
    return min(max((type(element) is Document and element.size) or 1, 1), _MOST)


def _pages_of(element: Any) -> int:
    return (type(element) is Document and element.page_count) or 1
