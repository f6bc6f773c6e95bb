"""Outcomes of a chunk's messages, in the order of their ends: a column for each of their parts.

The executor's thread adds outcomes while the event loop reads and replaces earlier ones. A payload is added last, in
one atomic step, and outcomes are counted by payloads, so that a counted one has all its other parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from dqlab.frame import Outcome


class Undecided(IntEnum):
    """The outcome of a delivery whose consumer has not decided on one."""

    UNDECIDED = 255
    """The document's storage may have refused it; `consumer.refusals` reads the payload, and no shard ever gets it."""


UNDECIDED = Undecided.UNDECIDED
Done: TypeAlias = tuple[int, Outcome | Undecided, bytes, str | int | None]
"""One message's outcome: position in the chunk, outcome, payload, the document's key or label."""


class Columns(NamedTuple):
    """Some outcomes, by column."""

    positions: list[int]
    outcomes: list[Outcome | Undecided]
    payloads: list[bytes]
    keys: list[str | int | None]

    @classmethod
    def of(cls, done: Iterable[Done]) -> Columns:
        """Return outcomes by column."""
        return cls(*map(list, zip(*done, strict=True)))

    @classmethod
    def returned(cls, positions: list[int]) -> Columns:
        """Return the outcomes of messages that are given back."""
        n = len(positions)
        return cls(positions, [Outcome.RETURN] * n, [b""] * n, [None] * n)


class Outcomes:
    """The outcomes of one chunk."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.keys: list[str | int | None] = []
        self.payloads: list[bytes] = []
        self._others: dict[int, Outcome | Undecided] = {}
        """Outcomes that are no acks, by their places in the columns."""

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[Done]:
        return zip(*self.columns(0, len(self)), strict=True)

    def __getitem__(self, place: int) -> Done:
        return self.positions[place], self.outcome(place), self.payloads[place], self.keys[place]

    def append(self, done: Done) -> None:
        """Add an outcome."""
        n = len(self.payloads)
        # An exception that was raised in the thread from outside may have come between two columns of a result.
        del self.positions[n:], self.keys[n:]
        index, outcome, payload, key = done
        self.positions.append(index)
        self.keys.append(key)
        if outcome is not Outcome.ACK:
            self._others[n] = outcome
        self.payloads.append(payload)

    def outcome(self, place: int) -> Outcome | Undecided:
        """Return the outcome at a place."""
        return self._others.get(place, Outcome.ACK)

    def columns(self, start: int, stop: int) -> Columns:
        """Return the outcomes at places from `start` to `stop`."""
        stop = min(stop, len(self.payloads))
        outcomes: list[Outcome | Undecided] = [Outcome.ACK] * (stop - start)
        if self._others:
            outcomes = [self.outcome(place) for place in range(start, stop)]
        return Columns(self.positions[start:stop], outcomes, self.payloads[start:stop], self.keys[start:stop])

    def ended(self) -> list[int]:
        """Return the positions of all messages that have an outcome."""
        return self.positions[: len(self.payloads)]

    def decided(self, start: int, stop: int) -> int:
        """Return the place of the first undecided outcome from `start` on, at most `stop`."""
        stop = min(stop, len(self.payloads))
        if not self._others:
            return stop
        return next((place for place in range(start, stop) if self.outcome(place) is UNDECIDED), stop)

    def replace(self, start: int, done: Columns) -> None:
        """Replace the outcomes from `start` on by others of the same messages."""
        stop, outcomes = start + len(done.payloads), done.outcomes
        self.payloads[start:stop], self.keys[start:stop] = done.payloads, done.keys
        if self._others or outcomes.count(Outcome.ACK) < len(outcomes):
            self._others.update(enumerate(outcomes, start))

    def release(self, start: int, stop: int) -> None:
        """Let go of the payloads and keys of some outcomes."""
        self.payloads[start:stop], self.keys[start:stop] = [b""] * (stop - start), [None] * (stop - start)
