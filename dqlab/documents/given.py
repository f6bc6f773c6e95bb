"""Documents that the user names: paths, URLs, or documents made before.

Owns what an element may be and which key it gets. Knows nothing of patterns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from dqlab.documents.document import Document
from dqlab.documents.places import UNKNOWN, Stamp, local_path, stamp_of
from dqlab.documents.sources import Look
from dqlab.errors import BadOption, DocumentsUsedUp, NotADocument

__all__ = ["Given"]


class Given:
    """Elements of an iterable, of one iterator, or of the iterables a function returns.

    Parameters
    ----------
    iterable : iterable, iterator or callable
        What gives the elements; a callable is called again for each pass.
    key : callable or None
        From an element to its key.

    Raises
    ------
    BadOption
        Neither iterable nor callable, or a single path.
    """

    def __init__(self, iterable: Any, key: Callable[[Any], object] | None) -> None:
        if isinstance(iterable, str | bytes | os.PathLike | Document):
            problem = "one document is not a listing. Pass a list, or use Documents.from_glob(pattern)."
            raise BadOption(option="iterable", value=iterable, problem=problem)
        if not isinstance(iterable, Iterable) and not callable(iterable):
            problem = f"a {type(iterable).__name__} cannot be iterated. Pass paths, URLs or documents."
            raise BadOption(option="iterable", value=iterable, problem=problem)
        self._iterable, self._key = iterable, key
        self.repeats = not isinstance(iterable, Iterator)
        self._used_up = False

    @property
    def label(self) -> str:
        """The type of what was given, or the function's name."""
        given = self._iterable
        if isinstance(given, Iterable):
            return f"Documents(<{type(given).__name__}>)"
        return f"Documents({getattr(given, '__qualname__', type(given).__name__)})"

    def looks(self) -> Iterator[Look]:
        """Name the elements, in the order they come."""
        if self._used_up:
            raise DocumentsUsedUp(kind=type(self._iterable).__name__)
        self._used_up = not self.repeats
        elements = self._iterable if isinstance(self._iterable, Iterable) else self._iterable()
        return (partial(self._look, position, element) for position, element in enumerate(elements))

    def _look(self, position: int, element: Any) -> Document:
        document = _document(element, position)
        if self._key is None:
            return document
        key = self._key(element)
        if not isinstance(key, str):
            problem = f"gave a {type(key).__name__} for element {position}, not a string."
            raise BadOption(option="key", value=self._key, problem=problem)
        return replace(document, key=key)


def _document(element: Any, position: int) -> Document:
    if isinstance(element, Document):
        return element
    place = os.fspath(element) if isinstance(element, str | os.PathLike) else None
    if not isinstance(place, str):
        raise NotADocument(position=position, type=type(element).__name__)
    path = local_path(place)
    version, size = _stamp(place)
    return Document(place if path is None else place.replace(os.sep, "/"), version, path or place, size)


def _stamp(place: str) -> Stamp:
    # What this process cannot look at, the consumers perhaps can; and if they cannot either, one
    # failed message with the operating system's own words is worth more than an ended submission.
    try:
        return stamp_of(place)
    except OSError:
        return UNKNOWN
