"""When a run pauses itself: its budget is spent, with what its calls have cost, or its documents fail."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import pstdev

import msgpack

from dqlab.config import check_count
from dqlab.errors import BadOption
from dqlab.frame import Settlement

SPENT = "spent"
"""Name of the side column of settlements with what messages have spent."""
RECENT = 200
"""Calls whose costs say what the next one may cost."""
HIGH = 0.95
"""Share of them that cost no more than what is reserved for the next one."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that the calls of a run may cost together.

    For each call in flight, `reserve` is put aside, so that the budget is never exceeded if no call costs more. Calls
    say with `dqlab.spend` what they have cost. When the rest pays for no further call, the run pauses itself.

    Parameters
    ----------
    amount : float
        Above zero.
    unit : str
        As `dqlab.spend` names it, such as "eur".
    reserve : float, optional
        The most that one call costs. Default: what 95 % of the last 200 calls have cost; the first call runs alone.

    Raises
    ------
    BadOption
        `amount` or `reserve` is no number above zero, or `unit` is not a name.

    Examples
    --------
    >>> run = lab.map(ask, papers, budget=dq.Budget(20, "eur", reserve=0.02))
    """

    amount: float
    unit: str
    reserve: float | None = None

    def __post_init__(self) -> None:
        for option, value in (("amount", self.amount), ("reserve", self.reserve)):
            given = value is not None or option == "amount"
            if given and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf):
                raise BadOption(option=option, value=value, problem="must be a number above zero.")
        if not (isinstance(self.unit, str) and self.unit.isidentifier()):
            raise BadOption(option="unit", value=self.unit, problem="must be a name, such as 'eur'.")


class Costs:
    """What the last calls have cost, and with that, what the next one may cost."""

    def __init__(self, high: float | None = None) -> None:
        self._last: deque[float] = deque(maxlen=RECENT)
        self._high, self._sorted = high, True

    def add(self, costs: Sequence[float]) -> None:
        """Note what calls have cost."""
        if costs:
            self._last.extend(costs)
            self._sorted = False

    @property
    def high(self) -> float | None:
        """What nearly all of them have cost at most, or None where nothing says it."""
        if not self._sorted:
            self._high, self._sorted = sorted(self._last)[math.ceil(HIGH * len(self._last)) - 1], True
        return self._high

    @property
    def spread(self) -> float:
        """The standard deviation of what they have cost."""
        return pstdev(self._last) if self._last else 0.0


class Purse:
    """What is left of a budget."""

    # Reserved is the number of live leases times what a call may cost, and never a counter of its own: after a takeover
    # it is right by itself.
    def __init__(self, budget: Budget, spent: float = 0.0) -> None:
        self.budget = budget
        self.spent = spent
        self.costs = Costs()
        self.unknown = 0.0
        """What calls may have cost that have ended without an outcome, at most."""

    def pay(self, cost: float) -> None:
        """Note what a call has cost."""
        self.spent += cost
        self.costs.add([cost])

    def lose(self, n: int) -> None:
        """Note that `n` calls may have cost what nobody says."""
        self.unknown += n * (self.reserved or 0.0)

    def follow(self, before: Purse) -> None:
        """Go on from another budget of the same unit."""
        if self.budget.unit == before.budget.unit:
            self.costs, self.unknown = before.costs, before.unknown

    @property
    def reserved(self) -> float | None:
        """What the next call may cost, or None where nothing says it."""
        return self.costs.high if self.budget.reserve is None else self.budget.reserve

    def room(self) -> int | None:
        """Return how many calls may be in flight, or None for any number."""
        left, reserved = self.budget.amount - self.spent, self.reserved
        if left <= 0:
            return 0
        if reserved is None:
            return 1  # what the first call costs says how many more there may be
        return int((left + 1e-9) / reserved) if reserved else None

    @property
    def words(self) -> str:
        """What is spent, as "3.2 of 20 eur spent"."""
        return f"{self.spent:,.4g} of {self.budget.amount:,.4g} {self.budget.unit} spent"


def amounts_of(settlement: Settlement, places: Iterable[int]) -> Iterator[dict[str, float]]:
    """Yield what the messages at some places of a settlement have spent, by unit."""
    rider = settlement.riders.get(SPENT)
    for place in places:
        entry = rider.get(place) if rider is not None else None
        yield {} if entry is None else msgpack.unpackb(entry)


AUTO = 100
"""Documents that have failed, if none has succeeded, at which a run pauses itself unless a user says otherwise."""
FEWEST = 200
"""Documents that have ended before a share of them is judged: of a few, any share may fail by chance."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The failures at which a run pauses itself."""

    limit: int | float
    """Documents, or as a float their share of those that have ended."""
    despite: bool
    """Also if others have succeeded."""

    def due(self, *, dead: int, acked: int) -> bool:
        """Return whether so many documents have failed for good, beside those that have succeeded."""
        if isinstance(self.limit, float):
            return dead + acked >= FEWEST and dead >= self.limit * (dead + acked)
        return dead >= self.limit and (self.despite or not acked)

    def over(self, *, acked: int) -> bool:
        """Return whether it can never be due any more."""
        return acked > 0 and not self.despite


def as_stop(given: object) -> Stop | None:
    """Return what a user's `stop_if` means, or raise `BadOption`."""
    if given is None:
        return None
    if given == "auto":
        return Stop(AUTO, despite=False)
    if isinstance(given, float) and 0.0 < given < 1.0:
        return Stop(given, despite=True)
    if isinstance(given, int) and not isinstance(given, bool):
        check_count("stop_if", given)
        return Stop(given, despite=True)
    problem = (
        "is a number of documents, their share, as 0.05 for 5 %, 'auto', or None for never. Nothing was submitted."
    )
    raise BadOption(option="stop_if", value=given, problem=problem)
