"""How many messages of a lane with one key, such as the host of their documents, may be leased at once.

What is leased is counted from the live leases each time, and never kept: it is right after a takeover, and a consumer
that dies holds nothing. A message whose key is at its cap stays ready in its place, and those behind it are leased.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dqlab.config import check_count
from dqlab.errors import BadOption
from dqlab.rules.batches import Batches

AHEAD = 10_000
"""Messages that are looked at, from the front, for those whose key is below its cap."""


@dataclass(frozen=True, slots=True)
class Cap:
    """So many calls at once for each value of a key."""

    by: str
    """"host" of a document's URL, or the column of a row that has the value."""
    most: int

    def __post_init__(self) -> None:
        check_count("cap", self.most)
        if not (isinstance(self.by, str) and self.by):
            raise BadOption(option="cap", value=self.by, problem="names no key: {'host': 4}.")


class Caps:
    """What is known of the keys of one lane's messages."""

    def __init__(self, cap: Cap) -> None:
        self.cap = cap
        self.wanted: dict[int, None] = {}
        """Frames whose keys have to be read, by the ids of their first messages, before more is leased."""
        self.full = False
        """Each message that was looked at has a key that is at its cap."""
        self._keys: dict[int, Sequence[str]] = {}

    def know(self, first: int, keys: Sequence[str], stored: Batches) -> None:
        """Note the keys of a frame's messages, and forget those of frames that are gone."""
        self._keys = {frame: known for frame, known in self._keys.items() if stored.at(frame) is not None}
        self._keys[first] = keys
        self.wanted.pop(first, None)

    def free(
        self, ready: Iterable[tuple[int, int]], leased: Iterable[tuple[int, int]], n: int, stored: Batches
    ) -> list[int]:
        """Return the first `n` ready messages, by id, that may be leased besides those that are."""
        self.wanted, self.full = {}, False
        held = Counter(key for key, _ in self._known(leased, stored))
        found: list[int] = []
        if self.wanted:
            return found
        for looked, (key, id) in enumerate(self._known(ready, stored)):
            if held[key] < self.cap.most:
                held[key] += 1
                found.append(id)
            if len(found) == n or looked == AHEAD:
                break
        self.full = not found and not self.wanted
        return found

    def _known(self, ids: Iterable[tuple[int, int]], stored: Batches) -> Iterable[tuple[str, int]]:
        """Yield (key, id), until a frame comes whose keys are not known."""
        for lo, hi in ids:
            for batch, a, b in stored.covering(lo, hi):
                keys = self._keys.get(batch.first)
                if keys is None:
                    self.wanted[batch.first] = None
                    return
                for at in range(a, b):
                    yield keys[at], batch.first + at

    @property
    def words(self) -> str:
        """It in words, as "4 at once by host"."""
        return f"{self.cap.most} at once by {self.cap.by}"
