"""What the calls of a run have spent, what they will have spent at its end, and what holds them back."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dqlab.numbers import duration
from dqlab.rules.flow import FlowTerms

if TYPE_CHECKING:
    from dqlab.cluster.transport.progress import Progress
    from dqlab.stats.runs import RunStats

__all__ = ["Spend", "spend_of"]

ENOUGH = 5
"""Documents that ended before what all of them cost is estimated."""
P90 = 1.2816
"""Standard deviations of a normal distribution below which 90 % of it lie."""


@dataclass(frozen=True)
class Spend:
    """What the calls of a run have spent, as `Run.spend` returns it."""

    spent: dict[str, float]
    """By unit, as `dqlab.spend` names it; also "answers paid" and "answers reused" of `dqlab.once`."""
    budget: tuple[float, str] | None
    """The amount and the unit of the budget."""
    reserved: float
    """What calls in flight may cost, in the unit of the budget."""
    unknown: float
    """What calls may have cost, at most, that were cancelled, or whose consumer or process died."""
    in_all: dict[str, tuple[float, float, float]]
    """What all documents will have spent, by unit: as likely more as less, between the ends of a band of 80 %."""
    lasts: float | None
    """Seconds until the budget is spent at the present speed; infinite if it is enough, None if nothing says it."""
    binds: str
    """What holds the run back now."""
    history: list[tuple[float, str]]
    """Seconds since the calls at once changed or paused, and why."""

    def __repr__(self) -> str:
        def told(amounts: dict[str, float]) -> str:
            return ", ".join(f"{amount:,.4g} {unit}" for unit, amount in amounts.items()) or "nothing"

        rows = [("spent", told(self.spent))]
        if self.budget is not None:
            amount, unit = self.budget
            also = f", up to {self.unknown:,.4g} {unit} unknown" if self.unknown else ""
            rows.append(("reserved", f"{self.reserved:,.4g} {unit}{also}"))
        for unit, (low, likely, high) in self.in_all.items():
            rows.append(("in all", f"{likely:,.4g} {unit} ({low:,.4g} to {high:,.4g})"))
        if self.budget is not None:
            ends = "" if self.lasts is None else f", spent in {duration(self.lasts)} at this speed"
            rows.append(("budget", f"{amount:,.4g} {unit}" + (", enough" if self.lasts == math.inf else ends)))
        rows.append(("bound by", self.binds))
        rows += [(f"{duration(ago)} ago", why) for ago, why in self.history]
        return "\n".join(f"{name:<10} {text}" for name, text in rows)


def spend_of(progress: Progress, stats: RunStats) -> Spend:
    """Return what a run has spent, as its shards tell."""
    parts = [shard.lane.spending for shard in progress.shards if shard.lane.spending is not None]
    spent: Counter[str] = Counter()
    for part in parts:
        spent.update(part.spent)
    budget = FlowTerms.of(progress.record.flow or {}).budget
    counts, rate = progress.counts, stats.rate
    done = counts.acked + counts.dead
    left = max(counts.left, (progress.total or 0) - done)
    in_all = {}
    for unit, amount in spent.items() if done >= ENOUGH else ():
        if unit.isidentifier():
            spread = max(part.spread.get(unit, 0.0) for part in parts)
            likely, band = amount / done * (done + left), P90 * spread * math.sqrt(left + left * left / done)
            in_all[unit] = max(amount, likely - band), likely, likely + band
    lasts, whole = None, None if budget is None else (budget.amount * len(progress.shards), budget.unit)
    if whole is not None and whole[1] in in_all:
        each = spent[whole[1]] / done
        enough = in_all[whole[1]][1] <= whole[0]
        lasts = math.inf if enough else max(0.0, whole[0] - spent[whole[1]]) / (each * rate) if rate else None
    bound = Counter(part.binds for part in parts if part.binds)
    binds = "computing" if counts.left else "nothing: it is done"
    if counts.left and (progress.halted or bound):
        binds = progress.halted or bound.most_common(1)[0][0]
    return Spend(
        dict(spent),
        whole,
        sum(part.reserved for part in parts),
        sum(part.unknown for part in parts),
        in_all,
        lasts,
        binds,
        sorted((ago, why) for part in parts for ago, why in part.moves),
    )
