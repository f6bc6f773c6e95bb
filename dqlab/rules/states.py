"""The states of a message and the verdicts on a put."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, IntEnum, auto

_EQUAL_BYTES = re.compile(rb"(.)\1*", re.DOTALL)


class State(IntEnum):
    """Where a message stands, one byte each."""

    # Checkpoints and logs hold these numbers: none ever gets another meaning. `Batch` relies on READY being 0. The
    # first three are alive, and count against the bounds of their lane. A suspect is READY, and listed in
    # `Lane.suspects`.
    READY = 0
    DELAYED = 1
    LEASED = 2
    ACKED = 3
    DEAD = 4
    CANCELLED = 5
    LOST = 6

    alive: bool
    """The message may still be delivered or settled: ready, delayed or leased."""
    final: bool
    """The message's bytes are no longer needed. DEAD is not final: it can be retried."""

    def __init__(self, value: int) -> None:
        self.alive = value <= 2
        self.final = value > 2 and value != 4


ALIVE = tuple(state for state in State if state.alive)
STATES = tuple(State)
"""States by value; a lookup takes a tenth of the time of `State(value)`."""


class Verdict(Enum):
    """The outcome of a put."""

    # The only one that changes anything.
    ACCEPTED = auto()
    DUPLICATE = auto()
    EARLY = auto()
    FULL = auto()
    DRAINING = auto()
    SEALED = auto()
    NO_FUNCTION = auto()
    """Its function is not kept here: the client must send it with the frame."""


def stretches(column: bytes | bytearray, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, stop, value) for each stretch of equal bytes in ``column[lo:hi]``."""
    # A copy: callers change the column during the loop, and get it as it was at the first one. Positions count from the
    # start of `column`, and `hi` may not be beyond its end.
    part = bytes(column[lo:hi])
    if part.count(part[:1]) == len(part) > 0:  # nearly always, and counting is ten times as fast as matching
        yield lo, hi, part[0]
        return
    for match in _EQUAL_BYTES.finditer(part):
        start, stop = match.span()
        yield lo + start, lo + stop, part[start]
