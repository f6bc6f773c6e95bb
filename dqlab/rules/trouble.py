"""What is remembered of messages that failed, were given back or lost their consumer.

Messages that just run have no record here; one byte says all about them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dqlab.failures.records import StoredRecord

__all__ = ["DeadLetter", "Death", "Receipt", "Trouble"]

_HISTORY = 8

Receipt: TypeAlias = tuple[int, int]
"""Epoch and lease id of a delivery."""


class Death(NamedTuple):
    """An earlier death of a message that was retried since."""

    reason: str
    failure: StoredRecord
    deliveries: int
    exceptions: int

    def opened(self) -> Death:
        """Return it with its record as the consumer sent it."""
        return self._replace(failure=bytes(self.failure))


class DeadLetter(NamedTuple):
    """A message that is delivered no more, and why.

    Attributes
    ----------
    id, ordinal : int
        The message, and its position in the run's input.
    reason : str
        Which limit it met.
    failure : bytes
        The record its last exception left, opaque here; empty when it never raised.
    deliveries, exceptions : int
        Counted deliveries, and those that raised, since the last retry by hand.
    history : tuple of Death
        Its earlier deaths, oldest first; the last eight.
    """

    id: int
    ordinal: int
    reason: str
    failure: bytes
    deliveries: int
    exceptions: int
    history: tuple[Death, ...]


@dataclass(slots=True)
class Trouble:
    """Counts of one message.

    Attributes
    ----------
    receipt : (int, int) or None
        The delivery counted last; it is never counted twice.
    due : int
        When a delayed message is ready again, monotonic microseconds.
    filed : int
        Where a dead message is in the lane's `DeadIndex`; 0 = nowhere.
    """

    deliveries: int = 0
    exceptions: int = 0
    reason: str = ""
    failure: StoredRecord = b""
    receipt: Receipt | None = None
    due: int = 0
    history: tuple[Death, ...] = ()
    filed: int = field(default=0, compare=False, repr=False)

    @property
    def unanswered(self) -> int:
        """Deliveries that counted and did not raise: ended by death or expiry."""
        return self.deliveries - self.exceptions

    def start_anew(self) -> None:
        """Move the counts to the history, before a retry by hand."""
        death = Death(self.reason, self.failure, self.deliveries, self.exceptions)
        self.history = (*self.history, death)[-_HISTORY:]
        self.deliveries = self.exceptions = 0
        self.reason, self.failure = "", b""

    def letter(self, id: int, ordinal: int) -> DeadLetter:
        """Return what is known, for people."""
        history = tuple(death.opened() for death in self.history)
        return DeadLetter(id, ordinal, self.reason, bytes(self.failure), self.deliveries, self.exceptions, history)
