"""Statistics of one run: its counts, its speed, when it will end, what it spends, and why documents failed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from dqlab.keywords import SuggestsAttributes
from dqlab.numbers import duration, minute
from dqlab.stats.counts import Blocked, Counts, RunState, StopReason

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


NO_ROOM = "no room for more results"
"""First words of the reason of a run that paused itself because its queue can keep no more results."""

SHORTEST = 0.5
"""Seconds from which a run has a mean speed: before, the start of the run is all that is measured."""


@dataclass(frozen=True, slots=True)
class CodeStats:
    """The function that a run uses now."""

    name: str
    short: str = ""
    """The start of its hash."""
    version: int = 1
    """Counts from 1 within the run."""
    cell: int | None = None
    rest: tuple[int, ...] = ()
    """Earlier versions kept by documents that have yet to run, after a retry with other code."""
    did: tuple[int, ...] = ()
    """Documents that each version has acked, the first version first; empty where there is only one."""
    note: str = ""
    """What the retry was for that brought it."""

    @property
    def words(self) -> str:
        """The version and those of the rest, as in "v2, the rest v1"."""
        rest = " and ".join(f"v{each}" for each in self.rest)
        return f"v{self.version}, the rest {rest}" if rest else f"v{self.version}"


@dataclass(frozen=True, slots=True)
class Eta:
    """When a run will probably end, seconds since 1970 UTC."""

    p10: float
    """It ends earlier in one case of ten."""
    p50: float
    p90: float
    """It ends earlier in nine cases of ten."""


@dataclass(frozen=True, slots=True)
class ClassStats:
    """Failures with the same fingerprint."""

    fingerprint: str
    error: str
    message: str
    at: str
    dead: int
    retrying: int
    first: float
    last: float
    """Seconds since 1970 UTC of the first and the last failure."""
    key: str | None = None
    """One of the documents that failed so."""
    failed: int = 0
    """Deliveries that failed so, since the run began."""
    versions: tuple[str, ...] = ()
    """The code that failed so, as in "parse v1"; empty where the function never answered."""


_LEAST_SETUP = 0.1
"""Seconds of set-up below which it is not named."""


def setup_words(seconds: float, words: str = "set-up {} a slot") -> str:
    """Return how long it takes a slot to make its model, "" where nobody would notice."""
    return words.format(duration(seconds)) if seconds >= _LEAST_SETUP else ""


@dataclass(frozen=True, slots=True)
class BatchStats:
    """The batches that the consumers of this instant have run of a run."""

    size: int
    """Documents of a full batch, as it was given or as "auto" has chosen it; the largest of any slot."""
    calls: int
    documents: int
    """Calls that succeeded, and the documents in them."""

    @property
    def mean(self) -> float:
        """Mean documents of a call."""
        return self.documents / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class RunStats(SuggestsAttributes):
    """One run at one instant."""

    name: str
    queue: str
    state: RunState
    counts: Counts
    units: Counts | None = None
    """None where nothing is known of its documents' lengths."""
    why: str = ""
    """What blocks it, paused it, or ended it early."""
    code: CodeStats = field(default_factory=lambda: CodeStats(name="?"))
    total: int | None = None
    """None while submitting."""
    retrying: int = 0
    started: float = 0.0
    ended: float | None = None
    idle: float = 0.0
    """Seconds between an end and the retry that followed it: nothing was asked of the run then."""
    at: float = 0.0
    rate: float | None = None
    units_rate: float | None = None
    """Per second over the last minute in which there was work, as `rate`."""
    consumers: int = 0
    classes: tuple[ClassStats, ...] = ()
    """Only in the run that a Snapshot was asked for with; `classes_total` is in all."""
    classes_total: int = 0
    eta: Eta | None = None
    stop: StopReason | None = None
    """The reason of a run that is STOPPED; `why` has it in words."""
    blocked: Blocked | None = None
    """What keeps it from going on, where that is known; `why` has it in words."""
    pace: str = ""
    """How many calls at once, or in which time, its limits let through, in words; of one shard where it has several."""
    mean_seconds: float | None = None
    """Mean seconds of its documents in the function."""
    owner: str = ""
    """The user who made it, with the notebook it was made in, where these are known."""
    stuck: bool = False
    """Nothing of it waits, and a consumer has held one of its documents for so long that it needs the user."""
    paused: float = 0.0
    """Seconds of `elapsed` in which it was paused, as far as its cluster saw it: the log does not keep them."""
    weighed_in: str = "pages"
    """What `units` count: "pages", or "bytes" where pages are unknown and all sizes are known."""
    batch: BatchStats | None = None
    """None where its function takes single documents, or no batch has run."""
    setup: float = 0.0
    """Seconds in which a slot made its model, or what `setup` names; of the slot where it took longest."""
    spend: Spend | None = None
    """None where calls spend nothing, and nothing holds them back."""

    @property
    def unit(self) -> str:
        """Word for what progress counts, "pages" when they are known, else "bytes", else "documents"."""
        return self.weighed_in if self.units is not None else "documents"

    @property
    def progress(self) -> Counts:
        """The counts that progress is measured in."""
        return self.units if self.units is not None else self.counts

    @property
    def share(self) -> float | None:
        """Settled share, 0 to 1, or None before the total is known."""
        if self.total is None:
            return None
        # 1 only at the true end. What was cancelled never counts: a cancelled run keeps the share that it had reached.
        if self.counts.left == 0 and not self.counts.cancelled:
            return 1.0
        progress = self.progress
        return min((progress.settled - progress.cancelled) / progress.all, 0.999999) if progress.all else 0.0

    @property
    def all_ran(self) -> bool:
        """Every known document has run to its end."""
        return self.counts.settled - self.counts.cancelled >= max(self.total or 0, self.counts.all)

    @property
    def dead_share(self) -> float:
        """Dead documents as a share of those that ran, 0 to 1."""
        # Cancelling the other documents must not change the share.
        ran = self.counts.settled - self.counts.cancelled
        return self.counts.dead / ran if ran else 0.0

    @property
    def elapsed(self) -> float:
        """Seconds from the start to the end, or to this snapshot, without the time between an end and a retry."""
        return max(0.0, (self.ended if self.ended is not None else self.at) - self.started - self.idle)

    @property
    def since_start(self) -> float:
        """Seconds from the start to this snapshot, pauses included."""
        return max(0.0, self.at - self.started)

    @property
    def mean_rate(self) -> float | None:
        """Documents acked or dead per second over the whole run, None before there is a speed."""
        return self.counts.worked / self.elapsed if self.counts.worked and self.elapsed >= SHORTEST else None

    @property
    def mean_units_rate(self) -> float | None:
        """Units of acked and dead documents per second over the whole run, None before there is a speed."""
        if self.units is None or not self.units.worked or self.elapsed < SHORTEST:
            return None
        return self.units.worked / self.elapsed

    @property
    def classes_more(self) -> int:
        """Failure classes beyond those in `classes`."""
        return max(0, self.classes_total - len(self.classes))

    @property
    def dead_more(self) -> int:
        """Dead documents of the classes beyond those in `classes`."""
        return max(0, self.counts.dead - sum(entry.dead for entry in self.classes))

    @property
    def empty(self) -> bool:
        """The input had no documents."""
        # A run that failed before its first document also has a total of 0, and is not empty.
        return self.total == 0 and self.state is not RunState.INCOMPLETE

    @property
    def rehearsed(self) -> bool:
        """A sample of it was submitted, and the rest waits for its user."""
        return self.state is RunState.INCOMPLETE and self.why.startswith("rehearsed ")

    @property
    def finished(self) -> bool:
        """Nothing more will happen by itself."""
        return self.state in (RunState.DONE, RunState.CANCELLED)

    @property
    def resting(self) -> bool:
        """Finished, or the input ended early and all that was submitted is settled."""
        return self.finished or (self.state is RunState.INCOMPLETE and self.counts.left == 0)

    @property
    def unanswered(self) -> bool:
        """It waits because the workers of all its consumers are silent."""
        return self.blocked is Blocked.ANSWER and self.state is RunState.WAITING

    @property
    def unwritten(self) -> bool:
        """It waits for its sink."""
        return self.blocked is Blocked.RESULTS and self.state is RunState.WAITING

    @property
    def unread(self) -> bool:
        """It paused itself because the storage of its documents refuses them."""
        return self.stop is StopReason.REFUSED

    @property
    def held(self) -> bool:
        """It is kept from going on, by a pause of a user or of its own, or because it waits."""
        return self.state in (RunState.PAUSED, RunState.STOPPED, RunState.WAITING)

    @property
    def put_off(self) -> int:
        """Documents that wait because their function put them off with `dq.Later`, a lower bound."""
        # Retries after a failure are delayed too. `retrying` also counts those that are ready by now, so the rest is a
        # lower bound.
        return max(0, self.counts.delayed - self.retrying)

    @property
    def only_put_off(self) -> bool:
        """It goes on, and only documents that were put off wait."""
        return self.state is RunState.RUNNING and self.put_off > 0 and not self.counts.ready

    @property
    def fails_throughout(self) -> bool:
        """It paused itself because its first documents all failed, or too many of them."""
        # The other reasons to pause are a lack of room for results: the code may be right.
        return self.stop is StopReason.ALL_FAILED

    @property
    def all_failed(self) -> bool:
        """Everything that it settled failed, and it paused itself for that, or rests, so its code has to change."""
        return self.fails_throughout or (self.resting and self.counts.dead > 0 and not self.counts.acked)

    @property
    def eta_in(self) -> float | None:
        """Seconds until it will probably end."""
        return None if self.eta is None else max(0.0, self.eta.p50 - self.at)


class RunList(Sequence[RunStats]):
    """Statistics of several runs, as a class of its own because a notebook shows a plain list as text."""

    def __init__(self, runs: Iterable[RunStats] = ()) -> None:
        self._runs = tuple(runs)

    def __len__(self) -> int:
        return len(self._runs)

    @overload
    def __getitem__(self, index: int) -> RunStats: ...
    @overload
    def __getitem__(self, index: slice) -> RunList: ...
    def __getitem__(self, index: int | slice) -> RunStats | RunList:
        return RunList(self._runs[index]) if isinstance(index, slice) else self._runs[index]
