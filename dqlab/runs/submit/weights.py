"""What a document weighs in bars and estimates: its pages where they are known, else its bytes, else 1.

Owns which of these a whole input is weighed in, decided before its first document is listed: a run counts one unit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dqlab.documents.choosing import LongestFirst, Sample, Where
from dqlab.documents.document import Document
from dqlab.documents.listing import Documents
from dqlab.documents.parts import Member
from dqlab.documents.sources import Given, Glob, Source, Unpacked, Window

__all__ = ["BYTES", "unit_of", "weigher"]

BYTES = "bytes"
_MOST = (1 << 32) - 1
"""Limit of the 32 bits that frames have for a weight: what is larger weighs as much."""


def unit_of(elements: Any) -> str:
    """Return "bytes" of an input whose documents all have sizes and no pages; "" of any other.

    Costs no look at a listing, and one at each document of a list.
    """
    if isinstance(elements, Documents):
        return BYTES if _is_sized(elements._source) else ""
    return BYTES if _are_sized(elements) else ""


def _is_sized(source: Source) -> bool:
    """Return whether what a listing is read from gives a size with each document, and pages with none."""
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
    """Return what weighs each element of a run with that unit and first element; None where nothing does.

    Nothing weighs less than 1: what is left would vanish from bars and estimates before it is done.
    """
    if unit == BYTES:
        return _bytes_of
    return _pages_of if type(first) is Document and first.page_count else None


def _bytes_of(element: Any) -> int:
    return min(max((type(element) is Document and element.size) or 1, 1), _MOST)


def _pages_of(element: Any) -> int:
    return (type(element) is Document and element.page_count) or 1
