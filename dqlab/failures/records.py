"""Failure records as a shard keeps them, the first of a class whole and the others as differences from it.

A hundred thousand failures of one class have one traceback and a hundred thousand messages and keys.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from typing import TypeAlias

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
