"""Chooses what is leased next: the lane, by the turns of people and of their runs, and its messages, from the front."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from dqlab.rules.batches import Batch
from dqlab.rules.flow import Share
from dqlab.rules.lane import Lane
from dqlab.rules.leases import LeasedPiece
from dqlab.rules.ranges import Ranges
from dqlab.rules.states import State

FIRST_BATCH = 16
"""Messages leased at a time before their cost is known."""
FIRST_SHARE = 32
"""Of messages with pages, at most one in 32 is leased at a time then: sixteen of forty books may be all the long ones.
Without pages more are better: consumers read ahead of remote documents within one lease."""
QUANTUM_S = 0.1
"""Seconds of credit that a key with the weight 1 gets each time."""

Key = TypeVar("Key", bound=Hashable)


class Turns(Generic[Key]):
    """Deficit round robin over time used, by weight: the credit of each key, in seconds.

    A lease charges its estimate; its settle corrects that to the time really used. A key is served while its credit is
    above zero; when no key with work has any left, all of them get as many quanta at once as the first of them needs,
    each times its weight.

    M. Shreedhar and G. Varghese, "Efficient Fair Queuing Using Deficit Round-Robin", IEEE/ACM Transactions
    on Networking 4(3), 1996.
    """

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


class Fairness:
    """The turns of people and of the lanes of each, and the mean cost of a message in each lane."""

    __slots__ = ("_cost", "_in_bytes", "_lanes", "_people", "_person", "_priority", "_weight")

    def __init__(self) -> None:
        self._people: Turns[str] = Turns()
        self._lanes: dict[str, Turns[bytes]] = {}
        """By person."""
        self._person: dict[bytes, str] = {}
        """Of each run; "" for plain puts, which people share."""
        self._weight: dict[bytes, float] = {}
        self._priority: dict[bytes, int] = {}
        """Of runs whose record has terms, else 0; so too their weights, else 1."""
        self._cost: dict[bytes, float] = {}
        self._in_bytes: set[bytes] = set()

    def weighs_bytes(self, run: bytes) -> None:
        """Note that the weights of a lane are bytes."""
        # Bytes tell less about how long a message takes than pages do, see `batch`.
        self._in_bytes.add(run)

    def belongs(self, run: bytes, person: str) -> None:
        """Note whose lane it is."""
        self._person[run] = person

    def share(self, run: bytes, share: Share) -> None:
        """Give a lane this share from now on."""
        self._weight[run], self._priority[run] = share.weight, share.priority

    def choose(self, ready: Sequence[bytes]) -> bytes:
        """Return the lane to serve next, among those that have something to lease, always in the same order."""
        lines: dict[str, list[bytes]] = {}
        for run in ready:
            lines.setdefault(self._person.get(run, ""), []).append(run)
        person = self._people.choose(sorted(lines), {})
        runs = lines[person]
        if self._priority and len(runs) > 1:
            first = max(self._priority.get(run, 0) for run in runs)
            runs = [run for run in runs if self._priority.get(run, 0) == first]
        return self._turns(person).choose(runs, self._weight)

    def charge(self, run: bytes, seconds: float) -> None:
        """Subtract time from the credit of a lane and its person, or give it back if it is negative."""
        person = self._person.get(run, "")
        self._people.charge(person, seconds)
        self._turns(person).charge(run, seconds)

    def _turns(self, person: str) -> Turns[bytes]:
        turns = self._lanes.get(person)
        if turns is None:
            turns = self._lanes[person] = Turns()
        return turns

    def price(self, run: bytes, n: int) -> float:
        """Return the estimate for each of `n` messages, seconds."""
        cost = self._cost.get(run)
        # Before the first settle, one quantum for all of them.
        return QUANTUM_S / n if cost is None else cost

    def cost(self, run: bytes) -> float | None:
        """Return the mean seconds a message of the lane takes, or None before the first settle."""
        return self._cost.get(run)

    def batch(self, run: bytes, budget: float, weighted: int = 0) -> int:
        """Return how many messages of the lane take about `budget` seconds, and few while that is unknown."""
        cost = self._cost.get(run)
        if cost is None:
            # `weighted` = how many are ready, if they have weights.
            few = FIRST_BATCH < weighted < FIRST_BATCH * FIRST_SHARE and run not in self._in_bytes
            return max(1, weighted // FIRST_SHARE) if few else FIRST_BATCH
        return max(1, int(budget / max(cost, 1e-7)))

    def learn(self, run: bytes, busy_s: float, n: int) -> None:
        """Move the lane's mean cost towards the cost of `n` messages."""
        mean = busy_s / n
        known = self._cost.get(run, mean)
        # One slow message weighs less than many.
        self._cost[run] = known + n / (n + FIRST_BATCH) * (mean - known)

    def forget(self, run: bytes) -> None:
        """Forget a lane."""
        self._turns(self._person.pop(run, "")).forget(run)
        for known in (self._weight, self._priority, self._cost):
            known.pop(run, None)
        self._in_bytes.discard(run)


def serves(has: Mapping[str, float], needs: Mapping[str, float]) -> bool:
    """Return whether a slot that has so much of each resource can run messages that need these amounts."""
    return all(amount <= has.get(name, 0.0) for name, amount in needs.items())


def suspect_is_first(lane: Lane) -> bool:
    """Return whether the front-most ready message of a lane is a suspect."""
    suspect, ready = lane.suspects.first, lane.ready.first
    return suspect is not None and (ready is None or suspect < ready)


def pick_suspect(lane: Lane) -> list[LeasedPiece]:
    """Take the first suspect out of the lane, alone."""
    first = lane.suspects.first
    assert first is not None, "asked only when there is a suspect"
    return _take(lane, lane.batches.covering(first, first + 1))


def pick(lane: Lane, n: int, max_bytes: int, slot: str = "") -> list[LeasedPiece]:
    """Take up to `n` ready messages of up to `max_bytes` out of the lane, at least one, and no suspects."""
    taken: list[tuple[Batch, int, int]] = []
    # What it takes is ready until all of it was found: `_take` comes last.
    # From the front, or from a group that suits the consumer's slot.
    for lo, hi in lane.ready if lane.groups is None else lane.groups.among(slot, lane.ready, n):
        for batch, a, b in lane.batches.covering(lo, min(hi, lo + n)):
            fit = batch.fit(a, b, max_bytes)
            # At least one, however large, or it would never be leased.
            if fit == 0 and not taken:
                fit = 1
            if fit:
                taken.append((batch, a, a + fit))
                n -= fit
                max_bytes -= batch.nbytes(a, a + fit)
            if a + fit < b:
                return _take(lane, taken)
        if n <= 0:
            break
    return _take(lane, taken)


def pick_again(
    lane: Lane, ids: Ranges, *, suspects: bool, lease_id: int | None = None, orphan: Ranges | None = None
) -> tuple[list[LeasedPiece], list[tuple[int, int]]]:
    """Take ready messages with these ids out of the lane, and return them and the ids that are not ready any more."""
    pieces: list[LeasedPiece] = []
    # With `suspects`, also what is to be leased alone. `lease_id` is the lease that takes them again: not what was
    # retried by hand since. With `orphan`, only the ids that this lease holds.
    # Left in the end: ids that are leased to others, settled or cancelled.
    others = Ranges(ids)
    for lo, hi in ids:
        for batch, a, b, state in lane.stretches(lo, hi):
            first, start, stop = batch.first, batch.first + a, batch.first + b
            if orphan is not None:
                hits = list(orphan.overlap(start, stop))
            elif state is State.READY:
                parts = [(start, stop)] if lease_id is None else lane.answerable(start, stop, lease_id)
                hits = parts if suspects else [hit for part in parts for hit in lane.ready.overlap(*part)]
                for x, y in parts:
                    others.discard(x, y)
            else:
                continue
            for x, y in hits:
                others.discard(x, y)
                # At once: a frame to which nothing has happened is a new object at each look, and only what is taken
                # is kept.
                pieces += _take(lane, [(batch, x - first, y - first)])
    return pieces, list(others)


def _take(lane: Lane, taken: Iterable[tuple[Batch, int, int]]) -> list[LeasedPiece]:
    pieces: list[LeasedPiece] = []
    for batch, a, b in taken:
        lane.move(batch, a, b, State.LEASED)
        first = batch.first
        pieces.extend(
            LeasedPiece(first, lo - first, hi - lo, batch.ordinal + lo - first, function)
            for lo, hi, function in lane.overrides.split(first + a, first + b)
        )
    return pieces
