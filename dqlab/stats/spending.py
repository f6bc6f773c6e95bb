"""What the calls of a run have spent, what they will have spent at its end, and what holds them back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dqlab.numbers import duration, minute
from dqlab.stats.counts import RunState

if TYPE_CHECKING:
    from dqlab.stats.runs import RunStats

ENOUGH = 5
"""Documents that ended before what all of them cost is estimated."""
P90 = 1.2816
"""Standard deviations of a normal distribution below which 90 % of it lie."""


@dataclass(slots=True, kw_only=True)
class Spending:
    """What the calls of one lane have spent, and what holds them back."""

    spent: dict[str, float]
    """By unit."""
    spread: dict[str, float]
    """The standard deviation of what the last calls have cost, by unit."""
    level: int | None = None
    """Calls at once that its flow has found out; None where it does not look for them."""
    budget: tuple[float, str] | None = None
    """The amount and the unit of its part of the budget."""
    reserved: float = 0.0
    """What calls in flight may cost, in the unit of the budget."""
    unknown: float = 0.0
    """What calls may have cost that have ended without an outcome, at most, since the shard began."""
    binds: str = ""
    """What holds calls back, in words; "" for computing."""
    moves: list[tuple[float, str]] = field(default_factory=list)
    """When its flow changed, seconds since 1970 UTC, and the reasons in words."""


@dataclass(frozen=True, slots=True)
class Spend:
    """What the calls of a run have spent, as `Run.spend` returns it, and `RunStats.spend` where there is something."""

    spent: dict[str, float] = field(default_factory=dict)
    """By unit, as `dqlab.spend` names it; also "answers paid" and "answers reused" of `dqlab.once`."""
    budget: tuple[float, str] | None = None
    """The amount and the unit of the budget."""
    reserved: float = 0.0
    """What calls in flight may cost, in the unit of the budget."""
    unknown: float = 0.0
    """What calls may have cost, at most, that were cancelled, or whose consumer or process died."""
    in_all: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """What all documents will have spent, by unit: as likely more as less, between the ends of a band of 80 %."""
    lasts: float | None = None
    """Seconds until the budget is spent at the present speed; None if it is `enough`, or nothing says it."""
    binds: str = "computing"
    """What holds the run back now."""
    level: int | None = None
    """Calls at once that were found out, over all shards; None where their number is given, or any."""
    history: tuple[tuple[float, str], ...] = ()
    """Seconds since the calls at once changed or paused, and why."""

    @property
    def enough(self) -> bool:
        """Whether the budget pays for all documents, as far as their cost so far says."""
        return self.budget is not None and self.in_all.get(self.budget[1], (0, math.inf))[1] <= self.budget[0]

    def words(self, at: float) -> str:
        """Return in one line the last change, and what is spent and binds; `at` is now, seconds since 1970 UTC."""
        rows = [(f"at {minute(at - ago)}:", why) for ago, why in self.history[:1]]
        return "; ".join(f"{name} {text}" for name, text in (*rows, *self._rows()))

    def __repr__(self) -> str:
        rows = [*self._rows(), *((f"{duration(ago)} ago", why) for ago, why in self.history)]
        return "\n".join(f"{name:<10} {text}" for name, text in rows)

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("spent", ", ".join(f"{_told(amount)} {unit}" for unit, amount in self.spent.items()) or "nothing")]
        if self.budget is not None:
            amount, unit = self.budget
            also = f", up to {_told(self.unknown)} {unit} unknown" if self.unknown else ""
            ends = "" if self.lasts is None else f", spent in {duration(self.lasts)} at this speed"
            rows.append(("budget", f"{_told(amount)} {unit}" + (", enough" if self.enough else ends)))
            rows.append(("reserved", f"{_told(self.reserved)} {unit}{also}"))
        for each, (low, likely, high) in self.in_all.items():
            rows.append(("in all", f"{_told(likely)} {each} ({_told(low)} to {_told(high)})"))
        return [*rows, ("bound by", self.binds)]


def _told(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 1_000 else f"{amount:.4g}"


def spend_of(parts: Sequence[Spending], stats: RunStats) -> Spend:
    """Return what a run has spent, as its lanes tell."""
    spent: Counter[str] = Counter()
    for part in parts:
        spent.update(part.spent)
    counts, rate = stats.counts, stats.rate
    done = counts.acked + counts.dead
    left = max(counts.left, (stats.total or 0) - done)
    in_all = {}
    for unit, amount in spent.items() if done >= ENOUGH else ():
        if unit.isidentifier():
            spread = max(part.spread.get(unit, 0.0) for part in parts)
            likely, band = amount / done * (done + left), P90 * spread * math.sqrt(left + left * left / done)
            in_all[unit] = max(amount, likely - band), likely, likely + band
    shard = f" (in one of {len(parts)} shards)" if len(parts) > 1 else ""
    bound = Counter(part.binds for part in parts if part.binds)
    binds = "computing" if counts.left else "nothing: it is done"
    if counts.left and (stats.state is RunState.STOPPED or bound):
        binds = stats.why if stats.state is RunState.STOPPED else bound.most_common(1)[0][0]
    budgets, levels = [part.budget for part in parts if part.budget], [part.level for part in parts if part.level]
    spend = Spend(
        dict(spent),
        (sum(amount for amount, _ in budgets), budgets[0][1]) if budgets else None,
        sum(part.reserved for part in parts),
        sum(part.unknown for part in parts),
        in_all,
        None,
        binds,
        sum(levels) or None,
        tuple(sorted((max(0.0, stats.at - at), f"{why}{shard}") for part in parts for at, why in part.moves)),
    )
    if spend.budget is None or spend.budget[1] not in in_all or spend.enough or not rate:
        return spend
    whole, unit = spend.budget
    return replace(spend, lasts=max(0.0, whole - spent[unit]) * done / (spent[unit] * rate))
