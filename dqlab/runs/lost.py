"""Documents without a result: what stands for them, and their keys if the input can be read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dqlab.documents import Document, Documents, Labelled
from dqlab.errors import users_code
from dqlab.rules.ranges import Ranges

LOOK_FOR = 10_000
"""Documents of a listing that are read at most to name the first lost ones in an error."""


@dataclass(frozen=True, slots=True)
class AbsentDocument:
    """Stands for a document that will never have a result, in results read with ``errors="return"``.

    Attributes
    ----------
    ordinal : int
        The document's position in the run's input.
    key : str or int
        The document's key, or its ordinal if the input cannot be read again.
    """

    ordinal: int
    key: Any


@dataclass(frozen=True, slots=True)
class LostDocument(AbsentDocument):
    """A document whose message or result is gone.

    Attributes
    ----------
    reason : str
        How the document was lost.
    """

    reason: str

    def __str__(self) -> str:
        return f"{self.key}: lost: {self.reason}"


@dataclass(frozen=True, slots=True)
class CancelledDocument(AbsentDocument):
    """A document that was cancelled or purged before it had a result."""

    def __str__(self) -> str:
        return f"{self.key}: cancelled"


def keys_at(ranges: Iterable[tuple[int, int]], elements: Iterable[Any] | None) -> Iterator[tuple[int, Any]]:
    """Yield (ordinal, key) of the documents in half-open ranges; the key is the ordinal where the input has none."""
    spans, given = Ranges(ranges), 0
    if elements is not None and repeats(elements):
        stop = max((hi for _, hi in spans), default=0)
        for ordinal, element in enumerate(islice(elements, stop)):
            if ordinal in spans:
                given += 1
                yield ordinal, key_of(element, ordinal)
    # An input that has become shorter must not hide the rest.
    left = (ordinal for lo, hi in spans for ordinal in range(lo, hi))
    yield from ((ordinal, ordinal) for ordinal in islice(left, given, None))


def first_keys(ranges: Iterable[tuple[int, int]], elements: Iterable[Any] | None, n: int) -> list[Any]:
    """Return the keys of the first `n` documents in ranges, or their ordinals if finding the keys would take long."""
    spans = Ranges(ranges)
    ordinals = list(islice((ordinal for lo, hi in spans for ordinal in range(lo, hi)), n))
    if not ordinals or ordinals[-1] >= LOOK_FOR:
        return ordinals
    with users_code:  # an input that cannot be read any more must not hide what was lost
        return [key for _, key in keys_at(((ordinal, ordinal + 1) for ordinal in ordinals), elements)]
    return ordinals


def key_of(element: Any, ordinal: int) -> Any:
    """Return the key of an element's result, which is the ordinal for an element without a key."""
    if type(element) is Labelled:
        return element.label
    return element.key if type(element) is Document else ordinal


def why_empty(elements: Iterable[Any]) -> str:
    """Return what to do about an input without elements, as a sentence without its full stop."""
    if isinstance(elements, Iterator):
        kind = type(elements).__name__
        article = "an" if kind[0].lower() in "aeiou" else "a"
        return f"Make the input again: {article} {kind} yields its elements only once"
    if isinstance(elements, Documents) and (none := elements.why_none()):
        return none[0].upper() + none[1:].removesuffix(".")
    return "Check its path or pattern"


def repeats(elements: Iterable[Any]) -> bool:
    """Return whether the elements can be read more than once."""
    return elements.repeats if isinstance(elements, Documents) else not isinstance(elements, Iterator)
