"""Neighbours of an input that differ in one number: one message stands for all of them, however many they are."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from dqlab.documents.document import Document, RowAt, made_rows
from dqlab.documents.parts import Row
from dqlab.frame import Numbered
from dqlab.texts import kept

__all__ = ["Numbers", "Rows", "Span", "opened", "spans_of"]

_MARKS = 0x11223344, 0x55667788
"""Numbers that a pickle holds as four bytes, and that differ in each of these."""
_MOST = 1 << 31
"""A pickle holds smaller numbers as four bytes."""
_AT_ONCE, _MADE_AT_ONCE = 1 << 16, 1 << 10
"""Numbers of a span, and rows that are made at once."""


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
        for at in range(0, self.count, _MADE_AT_ONCE):
            some = min(_MADE_AT_ONCE, self.count - at)
            yield from made_rows(self.name, self.before + at, self.where, self.version, self._part(at), some)

    def _part(self, at: int) -> Row:
        return Row(self.group, at, self.columns, self.added)

    def messages(self, seal: Callable[[object], bytes]) -> Numbered:
        """Return their messages."""
        about = self.name, self.where, self.version, self.before
        return _numbered(lambda at: seal(RowAt(*about, self._part(at))), 0, self.count)

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
    """Return the elements of an input that is no listing, with spans in place of those that one message stands for."""
    if type(elements) is range and elements.step == 1 and elements.start >= 0 and elements.stop <= _MOST:
        return (Numbers(elements[at : at + _AT_ONCE]) for at in range(0, len(elements), _AT_ONCE))
    return elements


def opened(messages: Numbered) -> list[Any] | None:
    """Return the elements of a span by one pickle for all, or None if each message must be opened by itself."""
    try:
        first = pickle.loads(next(iter(messages)))
    except Exception:  # noqa: BLE001 - each message fails by itself then, with the same error
        return None
    if type(first) is int:
        return list(range(first, first + len(messages)))
    if type(first) is not Document or type(first.part) is not Row:
        return None
    name, _, position = first.key.rpartition(":")
    return made_rows(name, int(position), first.where, first.version, first.part, len(messages))


def _numbered(seal: Callable[[int], bytes], first: int, count: int) -> Numbered:
    """Return messages by a function that seals each number."""
    one, other = map(seal, _MARKS)
    at = next(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return Numbered(one[:at], one[at + 4 :], first, count)
