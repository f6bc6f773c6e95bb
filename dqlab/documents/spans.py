"""Neighbours of an input that differ in one number: one message stands for all of them, however many they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from dqlab.documents.document import Document, RowAt
from dqlab.documents.parts import Row
from dqlab.frame import Numbered
from dqlab.texts import kept

__all__ = ["Numbers", "Rows", "Span", "spans_of"]

_MARKS = 0x11223344, 0x55667788
"""Numbers that a pickle holds as four bytes, none of which is equal."""
_MOST = 1 << 31
"""A pickle holds smaller numbers as four bytes."""
_AT_ONCE = 1 << 16
"""Elements of a span: enough to be cheap, and few enough that their digest can be held."""


class Span(Protocol):
    """Some neighbours of an input."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]:
        """Yield the elements."""

    def messages(self, seal: Callable[[object], bytes]) -> Numbered:
        """Return their messages."""

    def digested(self, lo: int, hi: int, seal: Callable[[object], bytes]) -> list[bytes]:
        """Return what the digest of the input has for elements `lo` to `hi`."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one row group that are named by their position in the file."""

    name: str
    where: str
    version: str
    before: int
    """Rows of the file before its row group."""
    group: int
    count: int
    columns: int = 0
    """As in `Row`."""
    added: tuple[tuple[str, Any], ...] = ()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Document]:
        return map(self._at, range(self.count))

    def _at(self, at: int) -> Document:
        return self._row(at).document()

    def _row(self, at: int) -> RowAt:
        return RowAt(self.name, self.where, self.version, self.before, Row(self.group, at, self.columns, self.added))

    def messages(self, seal: Callable[[object], bytes]) -> Numbered:
        """Return their messages."""
        return _numbered(lambda at: seal(self._row(at)), 0, self.count)

    def digested(self, lo: int, hi: int, seal: Callable[[object], bytes]) -> list[bytes]:
        """Return what the digest of the input has for rows `lo` to `hi`."""
        name, version = self.name, self.version or self.where
        return [kept(f"{name}:{at}\0{version}\n") for at in range(self.before + lo, self.before + hi)]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers."""

    numbers: range

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def messages(self, seal: Callable[[object], bytes]) -> Numbered:
        """Return their messages."""
        return _numbered(seal, self.numbers.start, len(self.numbers))

    def digested(self, lo: int, hi: int, seal: Callable[[object], bytes]) -> list[bytes]:
        """Return what the digest of the input has for numbers `lo` to `hi`."""
        return list(map(seal, self.numbers[lo:hi]))


def spans_of(elements: Iterable[Any]) -> Iterable[Any]:
    """Return the elements of an input, with a `Span` in place of those that one message can stand for."""
    if type(elements) is range and elements.step == 1 and elements.start >= 0 and elements.stop <= _MOST:
        return (Numbers(elements[at : at + _AT_ONCE]) for at in range(0, len(elements), _AT_ONCE))
    spans: Callable[[], Iterable[Any]] | None = getattr(elements, "_spans", None)
    return elements if spans is None else spans()


def _numbered(seal: Callable[[int], bytes], first: int, count: int) -> Numbered:
    """Return messages by a function that seals each number."""
    one, other = map(seal, _MARKS)
    at = next(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return Numbered(one[:at], one[at + 4 :], first, count)
