"""`Lost`: the lost documents of a run, as ranges of ordinals, with their keys if the input can be read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, overload

from dqlab.documents import Document, Documents, Labelled
from dqlab.rules.ranges import Ranges

__all__ = ["AbsentDocument", "CancelledDocument", "Lost", "LostDocument", "key_of", "repeats", "why_empty"]

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


class Lost(Sequence[Any]):
    """The lost documents of a run, in order: (ordinal, key), or ordinals if the input cannot be read again.

    Keys are read from the input each time. The key of an element that is not a `Document` is its ordinal, as in
    `Results.keys`.

    Attributes
    ----------
    ranges : tuple of (int, int)
        Half-open ranges of ordinals.
    """

    def __init__(self, name: str, ranges: Iterable[tuple[int, int]], elements: Iterable[Any] | None) -> None:
        self.name = name
        self.ranges = tuple((lo, hi) for lo, hi in ranges)
        self._starts = list(accumulate((hi - lo for lo, hi in self.ranges), initial=0))
        self._elements = elements if elements is not None and repeats(elements) else None

    def __repr__(self) -> str:
        spans = ", ".join(f"{lo}" if hi == lo + 1 else f"{lo}-{hi - 1}" for lo, hi in self.ranges[:5])
        more = ", …" if len(self.ranges) > 5 else ""
        return f"<{len(self):,} lost documents of {self.name!r}{': ' if spans else ''}{spans}{more}>"

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def ordinals(self) -> Iterator[int]:
        """Yield positions in the run's input, one after another."""
        return (ordinal for lo, hi in self.ranges for ordinal in range(lo, hi))

    def __iter__(self) -> Iterator[Any]:
        if self._elements is None:
            return self.ordinals
        if isinstance(self._elements, Sequence):
            return self._looked_up(self._elements)
        return self._read(self._elements)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            wanted = range(*index.indices(len(self)))
            head = list(islice(self, max(wanted, default=-1) + 1))
            return [head[at] for at in wanted]
        return next(islice(self, range(len(self))[index], None))

    def items(self) -> Iterator[tuple[int, Any]]:
        """Yield (ordinal, key); if the input cannot be read again, the key is the ordinal."""
        return iter(self) if self._elements is not None else ((ordinal, ordinal) for ordinal in self.ordinals)

    def first(self, n: int) -> list[Any]:
        """Return the keys of the first `n`, or their ordinals if reading the input for them would take long."""
        ordinals = list(islice(self.ordinals, n))
        if self._elements is None or (ordinals and not self._is_near(ordinals[-1])):
            return ordinals
        try:
            return [key for _, key in islice(self, n)]
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - an input that cannot be read any more must not hide what was lost
            return ordinals

    def _is_near(self, ordinal: int) -> bool:
        direct = isinstance(self._elements, Sequence)
        return direct or ordinal < LOOK_FOR

    def _looked_up(self, elements: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        known = len(elements)  # the input may have shrunk meanwhile: documents behind its end keep their ordinals
        return ((at, key_of(elements[at], at) if at < known else at) for at in self.ordinals)

    def _read(self, elements: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        wanted, given = Ranges(self.ranges), 0
        stop = max((hi for _, hi in self.ranges), default=0)
        for ordinal, element in enumerate(islice(elements, stop)):
            if ordinal in wanted:
                given += 1
                yield ordinal, key_of(element, ordinal)
        # The input has become shorter: the rest has no keys, but must not be missing from the list.
        yield from ((ordinal, ordinal) for ordinal in islice(self.ordinals, given, None))


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
