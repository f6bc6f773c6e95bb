"""Neighbours of an input that differ in one number, and maybe in their keys: one message stands for all of them."""

from __future__ import annotations

import pickle
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import repeat
from time import monotonic
from typing import Any, TypeAlias

from dqlab.documents.document import (
    Document,
    RowAt,
    Within,
    fields_within,
    made_rows,
    made_within,
    place_within,
)
from dqlab.documents.parts import Row
from dqlab.frame import Numbered
from dqlab.texts import EXACT, kept

_MARKS = 0x11223344, 0x55667788
"""Numbers that a pickle holds as four bytes, and that differ in each of these."""
_LONG, _LONG_BYTES = pickle.LONG1 + b"\x08", 10
"""How a number of eight bytes begins in a pickle, and its bytes there."""
_MOST = 1 << 31
"""A pickle holds smaller numbers as four bytes."""
_AT_ONCE, _MADE_AT_ONCE = 1 << 16, 1 << 10
"""Numbers of a span, and rows that are made at once."""
_LISTED, _SOON_S = 1000, 0.05
"""Documents of a listing that share a span, at most, and seconds in which they were found."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Neighbours in one row group."""

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
    keys: Sequence[str | int] | None = None
    """Their names; None where these are their positions in the file."""
    at: int = 0
    """The position of the first one in its group."""
    versions: Sequence[str] | None = None
    """Those of rows that have versions of their own, besides keys."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Document]:
        for lo in range(0, self.count, _MADE_AT_ONCE):
            keys = self._keys(lo, min(lo + _MADE_AT_ONCE, self.count))
            yield from made_rows(keys, self.where, self._versions(lo), self._part(self.at + lo))

    def _keys(self, lo: int, hi: int) -> Sequence[str | int]:
        if self.keys is not None:
            return self.keys[lo:hi]
        first = self.before + self.at
        return _positions(self.name, first + lo, first + hi)

    def _versions(self, lo: int) -> Iterable[str]:
        return repeat(self.version) if self.versions is None else self.versions[lo : lo + _MADE_AT_ONCE]

    def _part(self, at: int) -> Row:
        return Row(self.group, at, self.columns, self.added, None if self.versions is None else self.version)

    def messages(self, seal: Callable[[object], bytes]) -> Numbered:
        """Return their messages."""
        about = self.name, self.where, self.version, self.before
        messages = _numbered(lambda at: seal(RowAt(*about, self._part(at), self.keys is not None)), self.at, self.count)
        if self.keys is None:
            return messages
        return _beside(messages, self.keys if self.versions is None else zip(self.keys, self.versions, strict=True))

    def digested(self, lo: int, hi: int, seal: Callable[[object], bytes]) -> list[bytes]:
        """Return what the digest of the input has for rows `lo` to `hi`."""
        if self.versions is not None:
            pairs = zip(self._keys(lo, hi), self.versions[lo:hi], strict=True)
            return [f"{key}\0{version}\n".encode("utf-8", EXACT) for key, version in pairs]
        end = f"\0{self.version or self.where}\n"
        return [f"{key}{end}".encode("utf-8", EXACT) for key in self._keys(lo, hi)]

    def heavy(self, lo: int, hi: int) -> Iterable[Any]:
        """Return an element for each from `lo` to `hi` that weighs as much."""
        return repeat(next(iter(replace(self, count=1))), hi - lo)


@dataclass(frozen=True, slots=True)
class Listed:
    """Members of one archive, or files below one folder."""

    place: tuple[str, bool]
    """As `place_within` returns it."""
    documents: Sequence[Document]

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def messages(self, seal: Callable[[object], bytes]) -> Numbered:
        """Return their messages."""
        messages = _numbered(lambda at: seal(Within(self.place, at)), 0, len(self))
        return _beside(messages, map(fields_within, self.documents))

    def digested(self, lo: int, hi: int, seal: Callable[[object], bytes]) -> list[bytes]:
        """Return what the digest of the input has for documents `lo` to `hi`."""
        return [kept(f"{document.key}\0{document.version or document.where}\n") for document in self.documents[lo:hi]]

    def heavy(self, lo: int, hi: int) -> Iterable[Any]:
        """Return documents `lo` to `hi`."""
        return self.documents[lo:hi]


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

    def heavy(self, lo: int, hi: int) -> Iterable[Any]:
        """Return numbers `lo` to `hi`."""
        return self.numbers[lo:hi]


Span: TypeAlias = Rows | Listed | Numbers
"""Some neighbours of an input."""


def grouped(documents: Iterable[Document]) -> Iterator[Document | Listed]:
    """Yield the documents of a listing, neighbours of one place that were found soon after each other as spans."""
    place: Any = None
    group, since = list[Document](), 0.0
    try:
        for document in documents:
            its = place_within(document)
            if group and (its != place or len(group) >= _LISTED or monotonic() > since + _SOON_S):
                yield Listed(place, group)
                group = []
            if its is None:
                yield document
                continue
            if not group:
                place, since = its, monotonic()
            group.append(document)
    except Exception:
        if group:  # those before the error are put, as one by one
            yield Listed(place, group)
        raise
    if group:
        yield Listed(place, group)


def spans_of(elements: Iterable[Any]) -> Iterable[Any]:
    """Return the elements of an input that is no listing, with spans in place of those that one message stands for."""
    if type(elements) is range and elements.step == 1 and elements.start >= 0 and elements.stop <= _MOST:
        return (Numbers(elements[at : at + _AT_ONCE]) for at in range(0, len(elements), _AT_ONCE))
    return elements


def opened(messages: Numbered) -> Sequence[Any] | None:
    """Return the elements of a span by a pickle for all, or None if each message must be opened by itself."""
    try:
        first = pickle.loads(next(iter(messages)))
        beside = pickle.loads(b"\x80\x02(" + messages.column + b"t.")
    except Exception:  # noqa: BLE001 - each message fails by itself then, with the same error
        return None
    if type(first) is int:
        return range(first, first + len(messages))
    if type(first) is not Document:
        return None
    if type(first.part) is not Row:
        place = place_within(first)
        return made_within(place, beside) if place is not None and beside else None
    keys: Sequence[Any] = beside
    versions: Iterable[str] = repeat(first.version)
    if first.part.stamp is not None:
        keys, versions = zip(*beside, strict=True)
    elif not keys:
        name, _, position = first.key.rpartition(":")
        keys = _positions(name, int(position), int(position) + len(messages))
    return made_rows(keys, first.where, versions, first.part)


def _beside(messages: Numbered, values: Iterable[Any]) -> Numbered:
    """Return messages with the pickle of a value in place of None at their end."""
    values = list(values)
    with suppress(struct.error):  # whole numbers of eight bytes, all at once
        numbers, column = struct.pack(f"<{len(values)}q", *values), bytearray(_LONG_BYTES * len(values))
        for at, byte in enumerate(_LONG):
            column[at::_LONG_BYTES] = bytes([byte]) * len(values)
        for at in range(8):
            column[at + len(_LONG) :: _LONG_BYTES] = numbers[at::8]
        sizes = array("I", [_LONG_BYTES]) * len(values)
        return replace(messages, suffix=messages.suffix[1:], column=bytes(column), sizes=sizes)
    sealed = [pickle.dumps(value, 2)[2:-1] for value in values]  # without what begins and ends a pickle
    sizes = array("I", map(len, sealed))
    return replace(messages, suffix=messages.suffix[1:], column=b"".join(sealed), sizes=sizes)


def _positions(name: str, first: int, stop: int) -> list[str]:
    return [f"{name}:{number}" for number in range(first, stop)]


def _numbered(seal: Callable[[int], bytes], first: int, count: int) -> Numbered:
    """Return messages by a function that seals each number."""
    # Without the length that pickles of some bytes begin with: keys differ in theirs.
    one, other = (sealed[:2] + sealed[11:] if sealed[2:3] == pickle.FRAME else sealed for sealed in map(seal, _MARKS))
    at = next(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return Numbered(one[:at], one[at + 4 :], first, count)
