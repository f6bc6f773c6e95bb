"""The terms of a run: what users say about its pace, its order and the delivery of its messages."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from datetime import time as time_of_day
from typing import Any, Literal, TypeAlias

from dqlab.cluster.transport.isolation import Isolation, is_coroutine
from dqlab.config import check_count, check_name, seconds
from dqlab.datasets.sinks import Sink
from dqlab.errors import BadOption
from dqlab.rules.budget import Budget, Stop
from dqlab.rules.flow import CALLS, Adaptive, Cap, FlowTerms, RateLimit, Share
from dqlab.rules.retry import Retry

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kM]?)\s*(?:/|\s+per\s+)\s*([a-z]+)\s*")
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)([kM]?)\s+([^\W\d]\w*)\s*")
_TIMES = {"k": 1e3, "M": 1e6, "": 1.0}
_PERIODS = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_PERIODS |= {"d": 86400.0, "day": 86400.0}
_WRITTEN = "is written like '500/min', '20/s' or '10k/hour'."


@dataclass(frozen=True, init=False)
class Limit:
    """So many calls, and so much of other units, in a time, for all runs of a queue that name it.

    Parameters
    ----------
    name : str
        Runs of one queue with limits of this name share one. If they give different rates, the last one holds for all.
    **rates : str
        How much in which time, such as ``calls="500/min"``; the time is s, min, h or d. Other units than calls are
        those that `dqlab.spend` names, such as ``tokens="200k/min"``: for a call in flight, what 95 % of the last 200
        calls have cost is put aside, and the first call runs alone. So a time has more than its limit at most by what
        the calls in flight cost besides what was put aside for them.

    Raises
    ------
    BadOption
        There is no rate, or one is not such a rate, or is not above zero.

    Examples
    --------
    >>> openai = dq.Limit("openai", calls="500/min", tokens="200k/min")
    >>> run = lab.map(ask, papers, limit=openai)
    >>> other = lab.map(summarise, papers, limit=openai)
    """

    name: str
    rates: Mapping[str, str]

    def __init__(self, name: str, **rates: str) -> None:
        check_name(name, kind="limit")
        _rates_of(rates)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "rates", rates)


Concurrency: TypeAlias = Literal["auto"] | int | Adaptive
LimitOption: TypeAlias = str | Mapping[str, str] | Limit
BudgetOption: TypeAlias = str | Budget


def _rates_of(rates: object, name: str = "") -> tuple[RateLimit, ...]:
    """Return the rates of a limit by unit, or raise BadOption."""
    if not (isinstance(rates, Mapping) and rates and all(str(unit).isidentifier() for unit in rates)):
        raise BadOption(
            option="limit", value=rates, problem="names no unit: {'calls': '500/min', 'tokens': '200k/min'}."
        )
    return tuple(_rate_of(rate, name, unit) for unit, rate in rates.items())


def _rate_of(text: object, name: str, unit: str) -> RateLimit:
    """Return a rate that is written as "500/min", or raise BadOption."""
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[3] not in _PERIODS:
        raise BadOption(option="limit", value=text, problem=_WRITTEN)
    amount = float(found[1]) * _TIMES[found[2]]
    if not 0 < amount < math.inf:
        raise BadOption(option="limit", value=text, problem="has to be above zero: pause the run with run.pause().")
    return RateLimit(amount, _PERIODS[found[3]], name, unit)


def shared_rates(limit: LimitOption, shards: int) -> tuple[RateLimit, ...]:
    """Return the part of a limit that each of a queue's shards keeps to, or raise BadOption."""
    name, rates = (limit.name, limit.rates) if isinstance(limit, Limit) else ("", limit)
    units = _rates_of(rates if isinstance(rates, Mapping) else {CALLS: rates}, name)
    return tuple(replace(rate, amount=rate.amount / shards) for rate in units)


def shared_budget(budget: BudgetOption, shards: int) -> Budget:
    """Return the part of a budget that each of a queue's shards keeps to, or raise BadOption."""
    if not isinstance(budget, Budget):
        found = _AMOUNT.fullmatch(budget) if isinstance(budget, str) else None
        if found is None:
            problem = "is written like '20 eur': a number, and a unit that dq.spend names."
            raise BadOption(option="budget", value=budget, problem=problem)
        budget = Budget(float(found[1]) * _TIMES[found[2]], found[3])
    return replace(budget, amount=budget.amount / shards)


def shared_cap(cap: object, shards: int) -> Cap:
    """Return the part of a cap that each of a queue's shards keeps to, or raise BadOption."""
    if not (isinstance(cap, Mapping) and len(cap) == 1):
        raise BadOption(option="cap", value=cap, problem="is one key and how many calls at once: {'host': 4}.")
    whole = Cap(*next(iter(cap.items())))
    if whole.most < shards:
        problem = f"is below the {shards} shards of the queue, which divide it: take a queue with one shard."
        raise BadOption(option="cap", value=cap, problem=problem)
    return replace(whole, most=whole.most // shards)


def flow_terms(
    fn: Callable[..., Any],
    *,
    concurrency: Concurrency | None,
    limit: LimitOption | None,
    budget: BudgetOption | None = None,
    cap: Mapping[str, int] | None = None,
    shards: int,
    default: bool,
    each: int = 1,
) -> FlowTerms | None:
    """Return the terms of each of a run's shards, or None if nothing holds it back.

    With `default`, a coroutine function finds out by itself how many calls its service allows. Shards count documents;
    a call takes `each` of them.
    """
    if concurrency is None and default and is_coroutine(fn):
        concurrency = "auto"
    adaptive = most = None
    if concurrency == "auto":
        adaptive = Adaptive()
    elif isinstance(concurrency, Adaptive):
        adaptive = concurrency
    elif concurrency is not None:
        check_count("concurrency", concurrency)
        most = math.ceil(concurrency * each / shards)
    if adaptive is not None and shards != each:
        parts = (max(1, number * each // shards) for number in (adaptive.min, adaptive.start, adaptive.max))
        adaptive = Adaptive(*parts)
    rates = () if limit is None else shared_rates(limit, shards)
    part = None if cap is None else shared_cap(cap, shards)
    purse = None if budget is None else shared_budget(budget, shards)
    terms = FlowTerms(adaptive, most, rates, purse, cap=part)
    return None if terms == FlowTerms() else terms


LONGEST = 366 * 86400.0
_TIME_WRITTEN = "is a datetime, or written like '18:00' or '2026-11-30 18:00'."


def share_of(weight: float, priority: int, delay: float | str | None, at: str | datetime | None) -> Share | None:
    """Return what a run gets of the consumers' time, None if that is as usual, or raise BadOption."""
    if delay is not None and at is not None:
        raise BadOption(option="delay", value=delay, problem="says the same as `at`: give one of them.")
    now, starts, given = time.time(), 0.0, delay if at is None else at
    if delay is not None:
        starts = now + seconds(delay, name="delay")
    elif at is not None:
        starts = moment_of(at, now, "at")
    if given is not None and not now <= starts <= now + LONGEST:
        problem = "has to be within a year from now." if starts > now else "is in the past; now is the default."
        raise BadOption(option="delay" if at is None else "at", value=str(given), problem=problem)
    share = Share(weight, priority, starts if starts > now else 0.0)
    return None if share == Share() else share


def moment_of(at: Any, now: float, option: str) -> float:
    """Return seconds since 1970 of a datetime, or of what is written as one or as the next such time of day."""
    try:
        if isinstance(at, datetime):
            return at.timestamp()
        if ":" in at[:3]:
            today = datetime.fromtimestamp(now).astimezone().date()
            day = datetime.combine(today, time_of_day.fromisoformat(at.rjust(5, "0")))
            return (day if day.timestamp() > now else day + timedelta(days=1)).timestamp()
        return datetime.fromisoformat(at).timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        raise BadOption(option=option, value=at, problem=_TIME_WRITTEN) from None


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What the keywords of `map` say."""

    retry: Retry | None
    """None: the queue's."""
    process: Isolation | None
    """None: it runs in threads."""
    needs: Mapping[str, float]
    """Amounts of resources that a slot must have."""
    flow: FlowTerms | None
    """None: nothing holds it back."""
    stop: Stop | None
    """None: it never pauses itself because documents fail."""
    sink: Sink | None
    """None: the queue keeps its results."""

    def record(self) -> dict[str, Any]:
        """Return what a run's record says of them, without what is as usual."""
        record: dict[str, Any] = {"needs": dict(self.needs)} if self.needs else {}
        record |= {} if self.stop is None else {"stop_if": self.stop.limit, "stop_despite": self.stop.despite}
        record |= {} if self.process is None else {"process": self.process.record()}
        record |= {} if self.flow is None else {"flow": self.flow.record()}
        return record | ({} if self.sink is None else {"sink": self.sink.record()})
