"""What the rules require of the store behind them.

The rules own states; a journal owns bytes. It gives each frame a place, opaque to the rules, and gets every change of
state, so that a store can record those that a replay after a crash could not repeat by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Protocol

from dqlab.frame import Frame, Settlement
from dqlab.rules.deliveries import Settled
from dqlab.rules.lane import Changes
from dqlab.rules.leases import Lease
from dqlab.rules.result_index import Stretch


class Op(StrEnum):
    """Names of orders, as `Ledger.order` executes them."""

    # Logs hold these values: none ever changes.
    OPEN = "open"
    SEAL = "seal"
    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"
    CANCEL = "cancel"
    PURGE = "purge"
    RETRY = "retry"
    ADOPT = "adopt"
    RETRIES = "retries"
    REOPEN = "reopen"
    DROP = "drop"
    FORGET = "forget"
    HALT = "halt"
    WHY = "why"
    SUBMITTED = "submitted"
    FLOW = "flow"
    JUDGE = "judge"
    UNIQUE = "unique"


class Journal(Changes, Protocol):
    """Keeps frames and records what becomes of them."""

    def room(self, nbytes: int) -> bool:
        """Return whether a frame of `nbytes` bytes can be kept."""

    def put(self, frame: Frame, first: int) -> int:
        """Keep a frame whose first message gets the id `first`, and return its place."""

    def forgot(self, results: Iterable[Stretch]) -> None:
        """Record that results are not needed any more."""

    # Called before each change, so nothing changes that cannot be recorded: the rules cannot undo a change. An admitted
    # change is recorded, even if room runs out in between.
    def admit(self, nbytes: int = 0) -> None:
        """Raise the reason if a record of at most `nbytes` bytes cannot be written now."""

    # Executing an order may add a little to `meta`, such as the time, so an implementation leaves room for that.
    def admit_order(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> None:
        """Raise the reason if an order cannot be recorded."""

    def settled(self, settlement: Settlement, settled: Settled) -> list[Stretch]:
        """Record a settlement that changed something, and return where its results are."""

    def ordered(self, op: Op, run: bytes | None, meta: dict[str, Any]) -> None:
        """Record an executed order."""

    def begun(self, lease: Lease) -> None:
        """Record that the messages of a lease must never be delivered again."""

    def function(self, hash: bytes, blob: bytes) -> None:
        """Keep a function, or raise `PutError`."""

    def noted(self) -> None:
        """Record what else has moved since the last record."""
