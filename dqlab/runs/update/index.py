"""Which documents a run has, as hashes: the same few bytes for each, however long its key and its version are.

A key is found by 96 bits, so that two of them are not taken for one. Hashes are those of this process, which nobody can
foresee.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dqlab.documents import label_of

if TYPE_CHECKING:
    from dqlab.runs.reading.results import Results

_LOW = 0xFFFFFFFF
LISTED, KEPT = 1, 2
"""Notes of a document that an input has, and of one that keeps its result."""
_UNKNOWN = hash("")


class Index:
    """Positions of a run's results by key, with their versions, and what was noted of each."""

    def __init__(self, results: Results, trusted: Callable[[str], str] | None = None) -> None:
        # trusted: returns what of a version is compared, by default all of it.
        self.keyed = True
        count = self.count = len(results)
        self._keys, self._more = array("q", [0]) * count, array("I", [0]) * count
        """Hashes of each key, and the lower half of another one of it."""
        self._versions, self._codes = array("q", [0]) * count, dict[str, int]()
        self._made = array("H", [0]) * count
        """The number of the code that made each result."""
        self.noted = bytearray(count)
        for at, keys, versions, code in results.identities():
            if keys is None:
                self.keyed = False
                return
            if "\0" in "".join(keys):
                keys = [str(label_of(key)) for key in keys]
            stop = at + len(keys)
            self._keys[at:stop] = array("q", map(hash, keys))
            self._more[at:stop] = array("I", [_other(key) for key in keys])
            self._versions[at:stop] = array("q", map(hash, versions if trusted is None else map(trusted, versions)))
            self._made[at:stop] = array("H", [self._codes.setdefault(code, len(self._codes))]) * len(keys)
        self.twice = self._filled()

    def _filled(self) -> list[int]:
        """Fill the table by which positions are found, and return those whose key another one has."""
        keys, more, twice = self._keys, self._more, list[int]()
        # Open addressing: a dictionary of as many numbers would take a hundred bytes for each.
        mask = self._mask = (1 << (2 * self.count).bit_length()) - 1
        table = self._table = array("i", [-1]) * (mask + 1)
        for at, hashed in enumerate(keys):
            slot = hashed & mask
            while (other := table[slot]) >= 0:
                if keys[other] == hashed and more[other] == more[at]:
                    twice.append(at)
                slot = slot + 1 & mask
            table[slot] = at
        return twice

    def find(self, key: str) -> int:
        """Return the position of a key, or -1."""
        keys, table, mask, hashed = self._keys, self._table, self._mask, hash(key)
        slot = hashed & mask
        while (at := table[slot]) >= 0 and not (keys[at] == hashed and self._more[at] == _other(key)):
            slot = slot + 1 & mask
        return at

    def same(self, at: int, version: str) -> bool | None:
        """Return whether the document at a position has this version, None where one of them is unknown."""
        known = self._versions[at]
        return known == hash(version) if version and known != _UNKNOWN else None

    def unlisted(self) -> Iterator[int]:
        """Yield the positions of which nothing was noted."""
        at = -1
        while (at := self.noted.find(0, at + 1)) >= 0:
            yield at

    def kept_by_code(self) -> Counter[str]:
        """Return how many of the documents that were noted as kept each code made."""
        if len(self._codes) < 2:
            return Counter({code: self.noted.count(KEPT) for code in self._codes})
        numbers = Counter(number for number, noted in zip(self._made, self.noted, strict=True) if noted == KEPT)
        return Counter({code: numbers[number] for code, number in self._codes.items()})

    def examples(self) -> dict[str, int]:
        """Return for each code the position of a result that it made."""
        return {code: self._made.index(number) for code, number in self._codes.items()}


def _other(key: str) -> int:
    return hash(f"{key}\0") & _LOW
