"""Which documents a run has, as hashes: the same few bytes for each, however long its key and its version are.

A key is found by 96 bits, and by 128 bits together with an equal version: two of them are not taken for one. Hashes are
those of this process, which nobody can foresee.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from dqlab.documents import label_of

if TYPE_CHECKING:
    from dqlab.runs.reading.results import Results

_LOW, _KEPT = 0xFFFFFFFF, 2


class Index:
    """Positions of a run's results by key and version."""

    def __init__(self, results: Results, trusted: Callable[[str], str] | None = None) -> None:
        # trusted: returns what of a version is compared, by default all of it.
        self.keyed = True
        count = self.count = len(results)
        self._keys, self._more = array("q", bytes(8 * count)), array("I", bytes(4 * count))
        """Hashes of each key, and the lower half of those of each key without a version."""
        self._both = array("q", bytes(8 * count))
        """Hashes of each key with its version."""
        self._codes: dict[str, int] = {}
        self._made = array("H", bytes(2 * count))
        """The number of the code that made each result."""
        self._listed = bytearray(count)
        for at, keys, versions, code in results.identities():
            if keys is None:
                self.keyed = False
                return
            if "\0" in "".join(keys):
                keys = [str(label_of(key)) for key in keys]
            versions = versions if trusted is None else list(map(trusted, versions))
            stop = at + len(keys)
            bare = list(map("\0".join, zip(keys, repeat(""))))
            self._keys[at:stop] = array("q", map(hash, keys))
            self._more[at:stop] = array("I", [hash(text) & _LOW for text in bare])
            self._both[at:stop] = array("q", map(hash, map(str.__add__, bare, versions)))
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

    def find(self, key: str, version: str, other: str = "") -> tuple[int, bool | None]:
        """Return the position of a key, or -1, and whether its version is one of these, None where it is unknown."""
        keys, table, mask, hashed = self._keys, self._table, self._mask, hash(key)
        slot = hashed & mask
        while (at := table[slot]) >= 0:
            if keys[at] == hashed:
                both, bare = self._both[at], hash(f"{key}\0")
                if version and both == hash(f"{key}\0{version}"):
                    return at, True
                if self._more[at] == bare & _LOW:
                    return at, None if both == bare or not version else both == hash(f"{key}\0{other}")
            slot = slot + 1 & mask
        return -1, None

    def note(self, at: int) -> bool:
        """Note that an input has the document at a position, and return whether that was noted before."""
        before, self._listed[at] = self._listed[at], 1
        return bool(before)

    def keep(self, at: int) -> None:
        """Note that a document which an input has keeps its result."""
        self._listed[at] = _KEPT

    def unlisted(self) -> Iterator[int]:
        """Yield the positions of which nothing was noted."""
        at = -1
        while (at := self._listed.find(0, at + 1)) >= 0:
            yield at

    def kept_by_code(self) -> Counter[str]:
        """Return how many of the documents that were noted as kept each code made."""
        if len(self._codes) < 2:
            return Counter({code: self._listed.count(_KEPT) for code in self._codes})
        numbers = Counter(number for number, noted in zip(self._made, self._listed, strict=True) if noted == _KEPT)
        return Counter({code: numbers[number] for code, number in self._codes.items()})

    def examples(self) -> dict[str, int]:
        """Return for each code the position of a result that it made."""
        return {code: self._made.index(number) for code, number in self._codes.items()}
