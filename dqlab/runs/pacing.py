"""What users say about the pace of a run, as the terms that its shards keep to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from dqlab.cluster.transport.isolation import is_coroutine
from dqlab.config import check_count, check_name
from dqlab.errors import BadOption
from dqlab.rules.budget import Budget
from dqlab.rules.flow import Adaptive, FlowTerms, RateLimit

__all__ = ["BudgetOption", "Concurrency", "Limit", "LimitOption", "flow_terms", "shared_budget", "shared_rate"]

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kM]?)\s*(?:/|\s+per\s+)\s*([a-z]+)\s*")
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)([kM]?)\s+([^\W\d]\w*)\s*")
_TIMES = {"k": 1e3, "M": 1e6, "": 1.0}
_PERIODS = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_PERIODS |= {"d": 86400.0, "day": 86400.0}
_WRITTEN = "is written like '500/min', '20/s' or '10k/hour'."


@dataclass(frozen=True)
class Limit:
    """So many calls in a time, for all runs of a queue that name it.

    Parameters
    ----------
    name : str
        Runs of one queue with limits of this name share one. If they give different rates, the last one holds for all.
    calls : str
        How many calls in which time, such as "500/min"; the time is s, min, h or d.

    Raises
    ------
    BadOption
        `calls` is not such a rate, or is not above zero.

    Examples
    --------
    >>> openai = dq.Limit("openai", calls="500/min")
    >>> run = lab.map(ask, papers, limit=openai)
    >>> other = lab.map(summarise, papers, limit=openai)
    """

    name: str
    calls: str

    def __post_init__(self) -> None:
        check_name(self.name, kind="limit")
        rate_of(self.calls)


Concurrency: TypeAlias = Literal["auto"] | int | Adaptive
LimitOption: TypeAlias = str | Limit
BudgetOption: TypeAlias = str | Budget


def rate_of(text: object, name: str = "") -> RateLimit:
    """Return a rate that is written as "500/min", or raise BadOption."""
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[3] not in _PERIODS:
        raise BadOption(option="limit", value=text, problem=_WRITTEN)
    calls = float(found[1]) * _TIMES[found[2]]
    if not 0 < calls < math.inf:
        raise BadOption(option="limit", value=text, problem="has to be above zero: pause the run with run.pause().")
    return RateLimit(calls, _PERIODS[found[3]], name)


def shared_rate(limit: LimitOption, shards: int) -> RateLimit:
    """Return the part of a limit that each of a queue's shards keeps to, or raise BadOption."""
    rate = rate_of(limit.calls, limit.name) if isinstance(limit, Limit) else rate_of(limit)
    return replace(rate, calls=rate.calls / shards)


def shared_budget(budget: BudgetOption, shards: int) -> Budget:
    """Return the part of a budget that each of a queue's shards keeps to, or raise BadOption."""
    if not isinstance(budget, Budget):
        found = _AMOUNT.fullmatch(budget) if isinstance(budget, str) else None
        if found is None:
            problem = "is written like '20 eur': a number, and a unit that dq.spend names."
            raise BadOption(option="budget", value=budget, problem=problem)
        budget = Budget(float(found[1]) * _TIMES[found[2]], found[3])
    return replace(budget, amount=budget.amount / shards)


def flow_terms(
    fn: Callable[..., Any],
    *,
    concurrency: Concurrency | None,
    limit: LimitOption | None,
    budget: BudgetOption | None = None,
    shards: int,
    default: bool,
) -> FlowTerms | None:
    """Return the terms of each of a run's shards, or None if nothing holds it back.

    With `default`, a coroutine function finds out by itself how many calls its service allows.
    """
    if concurrency is None and default and is_coroutine(fn):
        concurrency = "auto"
    adaptive = most = rate = None
    if concurrency == "auto":
        adaptive = Adaptive()
    elif isinstance(concurrency, Adaptive):
        adaptive = concurrency
    elif concurrency is not None:
        check_count("concurrency", concurrency)
        most = math.ceil(concurrency / shards)
    if adaptive is not None and shards > 1:
        parts = (max(1, number // shards) for number in (adaptive.min, adaptive.start, adaptive.max))
        adaptive = Adaptive(*parts)
    if limit is not None:
        rate = shared_rate(limit, shards)
    terms = FlowTerms(adaptive, most, rate, None if budget is None else shared_budget(budget, shards))
    return None if terms == FlowTerms() else terms
