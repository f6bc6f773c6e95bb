"""Whose turn it is: deficit round robin over time used, by weight.

Each key has credit in seconds. A lease charges its estimate; its settle corrects that to the time really used. A key is
served while its credit is above zero; when no key with work has any left, all of them get as many quanta at once as the
first of them needs, each times its weight.

M. Shreedhar and G. Varghese, "Efficient Fair Queuing Using Deficit Round-Robin", IEEE/ACM Transactions
on Networking 4(3), 1996.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dqlab.errors import BadOption
from dqlab.numbers import due

QUANTUM_S = 0.1

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Share:
    """What a run gets of the consumers' time, among the runs of its person."""

    weight: float = 1.0
    """Of two runs with weights 3 and 1, the first gets three quarters."""
    priority: int = 0
    """A run is served before all others of its person with a lower one."""
    starts: float = 0.0
    """Nothing of it is leased before that, seconds since 1970; 0 = at once."""

    def __post_init__(self) -> None:
        weight, priority = self.weight, self.priority
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.01 <= weight <= 100:
            raise BadOption(option="weight", value=weight, problem="must be a number from 0.01 to 100.")
        if isinstance(priority, bool) or not isinstance(priority, int) or not -10 <= priority <= 10:
            raise BadOption(option="priority", value=priority, problem="must be a whole number from -10 to 10.")

    @property
    def words(self) -> str:
        """What is not as usual, as "priority 5, weight 3", or ""."""
        parts = [f"priority {self.priority}"] if self.priority else []
        return ", ".join([*parts, f"weight {self.weight:g}"] if self.weight != 1 else parts)

    def starting(self, now: float) -> str:
        """Return when it starts, in words at `now`, seconds since 1970."""
        return f"starts at {due(self.starts, now=now)}"


class Turns(Generic[Key]):
    """Credit of each key."""

    __slots__ = ("_credit", "_last")

    def __init__(self) -> None:
        self._credit: dict[Key, float] = {}
        self._last: Key | None = None

    def choose(self, ready: Sequence[Key], weights: Mapping[Key, float]) -> Key:
        """Return the key to serve next, among those that have work; a key without a weight has 1."""
        # `ready` has the keys always in the same order, or some would never have their turn. The others lose the
        # credit they saved, and work off their debt.
        credit, last = self._credit, self._last
        if len(ready) == 1 == len(credit) and credit.get(ready[0], 0.0) > 0.0:  # nearly always
            return ready[0]
        at = ready.index(last) if last in ready else 0
        order = [*ready[at:], *ready[:at]]  # from the key served last, which continues while it has credit
        rounds = 0
        if all(credit.get(key, 0.0) <= 0.0 for key in order):
            rounds = min(math.floor(-credit.get(key, 0.0) / (QUANTUM_S * weights.get(key, 1.0))) + 1 for key in order)
            # The key served last has used up its turn.
            order = [*order[1:], order[0]]
        for key in credit.keys() - set(ready):
            credit[key] += rounds * QUANTUM_S * weights.get(key, 1.0)
            if credit[key] >= 0.0:
                del credit[key]  # as if never served: otherwise keys that have ended are looked at forever
        for key in order:
            credit[key] = credit.get(key, 0.0) + rounds * QUANTUM_S * weights.get(key, 1.0)
        # A debt of 1e18 s swallows a quantum, so the richest key stands in where rounding leaves none.
        self._last = next((key for key in order if credit[key] > 0.0), max(order, key=credit.__getitem__))
        return self._last

    def charge(self, key: Key, seconds: float) -> None:
        """Subtract time from a key's credit, or give it back if it is negative."""
        self._credit[key] = self._credit.get(key, 0.0) - seconds

    def forget(self, key: Key) -> None:
        """Forget a key."""
        self._credit.pop(key, None)
