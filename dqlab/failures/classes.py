"""Failures of one class: exact counts, and records kept as their difference from the first of the class.

Standard library only. It knows no retries or states: the rules decide what is dead and what is retried.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from dqlab.failures.failure import Failure, common_message
from dqlab.texts import brief

_MAX_SAMPLE = 300
_NO_SAMPLE = ("", "", "", None)


class FailureClass(NamedTuple):
    """The failures of one class that still stand."""

    fingerprint: str
    error: str
    """Class of the exception of one of these failures, whose `message`, `at` and `key` follow."""
    message: str
    """The text of that failure, with ``<n>`` for addresses, numbers and paths in which the failures differ."""
    at: str
    dead: int
    """Messages of this class that are dead."""
    retrying: int
    """Messages of this class that will be delivered again."""
    first: float
    """When the first one failed, in seconds since 1970-01-01 UTC, or 0 where that is not known."""
    last: float
    """When the last one failed, likewise."""
    key: str | None
    failed: int = 0
    """Deliveries that ended in this class, over all time."""
    codes: tuple[str, ...] = ()
    """Short code versions of the functions that failed."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return self._asdict()


class OtherClasses(NamedTuple):
    """Sums over the classes that are not shown."""

    classes: int
    dead: int
    retrying: int


@dataclass(slots=True, eq=False)
class _Row:
    fingerprint: str
    first: float
    last: float
    dead: int = 0
    retrying: int = 0
    failed: int = 0
    sample: tuple[str, str, str, str | None] = _NO_SAMPLE
    """error, message, at, key"""
    parts: dict[str, _Part] = field(default_factory=dict)
    """The row's messages by code version."""

    @property
    def count(self) -> int:
        return self.dead + self.retrying

    def public(self) -> FailureClass:
        error, message, at, key = self.sample
        counts = self.dead, self.retrying, self.first, self.last
        return FailureClass(self.fingerprint, error, message, at, *counts, key, self.failed, tuple(self.parts))


@dataclass(slots=True, eq=False)
class _Part:
    """The messages of one class that last failed in one code version."""

    row: _Row
    code: str
    count: int = 0


class FailureClasses:
    """The failed messages of one lane, counted exactly by class."""

    def __init__(self, described: int = 64) -> None:
        self._limit = described
        self.failed = 0
        """Deliveries that failed, over all classes and all time."""
        # Functions may fail in a new way on every document: only the largest classes, at the time of their last
        # failure, keep a sample to be shown, and the others are bare counts.
        self._described: dict[str, _Row] = {}
        self._bare: dict[str, _Row] = {}
        self._dead: dict[int, _Part] = {}
        self._retrying: dict[int, _Part] = {}

    def __len__(self) -> int:
        """Return the number of classes with messages that are dead or will be retried."""
        return len(self._bare) + sum(row.count > 0 for row in self._described.values())

    @property
    def dead(self) -> int:
        """Dead messages over all classes."""
        return len(self._dead)

    @property
    def retrying(self) -> int:
        """Messages that failed and will be delivered again, over all classes."""
        return len(self._retrying)

    def add(self, failure: Failure, *, dead: bool, ordinal: int) -> None:
        """Count the failure of a message, and move a message that failed before to this failure's class."""
        mark = failure.fingerprint
        row = self._described.get(mark) or self._bare.get(mark) or _Row(mark, failure.when, failure.when)
        row.last = max(row.last, failure.when)
        row.failed += 1
        self.failed += 1
        if dead:
            row.dead += 1
        else:
            row.retrying += 1
        part = row.parts.setdefault(failure.code, _Part(row, failure.code))
        part.count += 1
        # Only now: a message that fails again in its own class must not bring the row or part to 0 in between.
        self._take_off(self._dead, ordinal)
        self._take_off(self._retrying, ordinal)
        (self._dead if dead else self._retrying)[ordinal] = part
        self._seat(row, failure)

    def settled_well(self, first: int, n: int = 1) -> None:
        """Forget `n` neighbours from ordinal `first` that are acked, cancelled or purged."""
        for states in (self._dead, self._retrying):
            for ordinal in _present(states, first, n):
                self._take_off(states, ordinal)

    def retried(self, first: int, n: int = 1) -> None:
        """Forget the dead messages among `n` neighbours, which a user retries."""
        for ordinal in _present(self._dead, first, n):
            self._take_off(self._dead, ordinal)

    def top(self, n: int = 8) -> tuple[FailureClass, ...]:
        """Return at most `n` classes, the most dead first, then the most retrying, then the latest."""
        rows = [row for row in self._described.values() if row.count]
        rows.sort(key=lambda row: (-row.dead, -row.retrying, -row.last, row.fingerprint))
        return tuple(row.public() for row in rows[:n])

    def other(self, n: int = 8) -> OtherClasses:
        """Return the sums over the classes that `top(n)` leaves out."""
        shown = self.top(n)
        dead, retrying = sum(row.dead for row in shown), sum(row.retrying for row in shown)
        return OtherClasses(len(self) - len(shown), self.dead - dead, self.retrying - retrying)

    def _take_off(self, states: dict[int, _Part], ordinal: int) -> None:
        part = states.pop(ordinal, None)
        if part is None:
            return
        row = part.row
        part.count -= 1
        if not part.count:
            del row.parts[part.code]
        if states is self._dead:
            row.dead -= 1
        else:
            row.retrying -= 1
        if not row.count:
            self._bare.pop(row.fingerprint, None)

    def _seat(self, row: _Row, failure: Failure) -> None:
        """Keep a sample of a row's failures if the row is among the largest."""
        mark = row.fingerprint
        if row.count == 1:  # earlier failures were retried or ended well: nothing of them stands
            row.sample, row.first = _NO_SAMPLE, failure.when
        if mark in self._described and row.sample is not _NO_SAMPLE:
            error, message, at, key = row.sample
            newer = brief(failure.message, _MAX_SAMPLE)
            if newer != message:  # the first message alone would look as if all had failed on its page or file
                row.sample = error, common_message(message, newer), at, key
            return
        if mark not in self._described and len(self._described) >= self._limit:
            smallest = min(self._described.values(), key=lambda other: (other.count, other.last))
            if smallest.count >= row.count:
                self._bare[mark] = row
                return
            del self._described[smallest.fingerprint]
            smallest.sample = _NO_SAMPLE
            if smallest.count:
                self._bare[smallest.fingerprint] = smallest
        self._bare.pop(mark, None)
        row.sample = (
            failure.error,
            brief(failure.message, _MAX_SAMPLE),
            failure.at,
            failure.key and brief(failure.key, _MAX_SAMPLE),
        )
        self._described[mark] = row


def _present(states: dict[int, _Part], first: int, n: int) -> list[int]:
    if n < len(states):  # the shorter loop: a range may have a million messages, or a run a million failures
        return [ordinal for ordinal in range(first, first + n) if ordinal in states]
    return [ordinal for ordinal in states if first <= ordinal < first + n]


_SAMPLES = 256
_FIELD = b'"fingerprint":"'
_AFTER = re.compile(rb',"after":([^,}]+)')
"""Matches no text of a user, in which each quote has a backslash before it."""
_PASSING = re.compile(rb',"passing":"([^"\\\\]*)"')
_DIGITS = 8
_NARROWEST, _WIDEST = 9, 15
"""Smallest and largest window of deflate, as powers of two: a narrow one takes a tenth of the time."""


class AlikeRecord:
    """A record as its difference from another one, which ``bytes(record)`` restores byte for byte."""

    __slots__ = ("_difference", "_sample")

    def __init__(self, sample: bytes, difference: bytes) -> None:
        self._sample, self._difference = sample, difference

    @property
    def sample(self) -> bytes:
        """The other record, of the same class."""
        return self._sample

    def __bytes__(self) -> bytes:
        # The widest window reads records packed with any narrower one, so the window's size need not be kept.
        return zlib.decompressobj(-_WIDEST, self._sample).decompress(self._difference)


StoredRecord: TypeAlias = bytes | AlikeRecord
"""Both are opened with ``bytes(record)``."""


class FailureRecords:
    """Finds what new records share with an earlier one of their class, for the `samples` classes that failed last."""

    def __init__(self, samples: int = _SAMPLES) -> None:
        self._limit = samples
        self._samples: OrderedDict[bytes, bytes] = OrderedDict()

    def keep(self, record: bytes) -> StoredRecord:
        """Return a record in the form to store, unchanged where it shares too little with its sample."""
        at = record.find(_FIELD) + len(_FIELD)  # found, not parsed: JSON costs more than the rest of this
        if at < len(_FIELD):
            return record
        mark = record[at : at + _DIGITS]
        sample = self._samples.get(mark)
        if sample is not None:
            self._samples.move_to_end(mark)
            difference = _difference(sample, record)
            if 2 * len(difference) < len(record):
                return AlikeRecord(sample, difference)
        self._samples[mark] = record
        while len(self._samples) > self._limit:
            self._samples.popitem(last=False)
        return record


NO_ANSWER = "no-answer"
"""The fingerprint where there is no record, because the consumer died or a user gave the document up."""


def fingerprint_of(record: StoredRecord) -> str:
    """Return the fingerprint in a stored record without opening the record, or `NO_ANSWER` if it has none."""
    # A record and its sample have one fingerprint: the sample was found by it.
    said = record.sample if isinstance(record, AlikeRecord) else record
    at = said.rfind(_FIELD) + len(_FIELD)
    end = said.find(b'"', at) if at >= len(_FIELD) else -1
    return said[at:end].decode("ascii", "replace") if end >= 0 else NO_ANSWER


def asked_wait(record: bytes) -> bytes:
    """Return the seconds, as ASCII, for which a record says to wait, or b"" if it does not."""
    found = _AFTER.search(record)
    return b"" if found is None else found[1]


def passing_of(record: bytes) -> str:
    """Return what a record says of a failure that passes by itself, such as "503", or "" if it does not pass."""
    found = _PASSING.search(record)
    return "" if found is None else found[1].decode("ascii", "replace")


def _difference(sample: bytes, record: bytes) -> bytes:
    window = max(_NARROWEST, min(_WIDEST, (len(sample) + len(record)).bit_length()))
    deflate = zlib.compressobj(1, zlib.DEFLATED, -window, window - 7, zlib.Z_DEFAULT_STRATEGY, sample)
    return deflate.compress(record) + deflate.flush()


keep = FailureRecords().keep
"""Shared by the shards of a process: records do not change, and their classes are the same everywhere."""
