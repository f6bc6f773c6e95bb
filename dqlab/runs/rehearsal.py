"""`Rehearsal`: what a sample of a run says about all documents, and `Marks`, what its user says about the sample."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dqlab import numbers
from dqlab.clock import SystemClock
from dqlab.cluster.transport.orders import Judge
from dqlab.cluster.transport.reports import Progress
from dqlab.cluster.transport.sealed import SealError, make_sealer
from dqlab.config import check_count
from dqlab.errors import BadOption
from dqlab.imports import import_whole
from dqlab.numbers import many
from dqlab.rules.flow import CALLS, FlowTerms
from dqlab.rules.ranges import Ranges
from dqlab.runs.failures import DeadLetter, Failures
from dqlab.runs.reading.dataframes import frame_of, index_of
from dqlab.runs.submit.elements import key_of
from dqlab.runs.submit.sampling import Drawn
from dqlab.runs.terms import moment_of
from dqlab.stats.runs import RunStats, Spend, setup_words
from dqlab.stats.sample import FEW, Interval, Measured, Pick, Sample, Seen, share_of, sum_over, wilson
from dqlab.texts import one_line

if TYPE_CHECKING:
    import pandas as pd

    from dqlab.runs.run import Run

HOUR = 3600.0
LEAST_NAMED = 0.01
"""Hours, and prices, below which these are not told apart."""
START = 1.0
"""Seconds that submitting and settling may add to a run."""


@dataclass(frozen=True)
class Tried:
    """One document of a sample, and what became of it."""

    key: Any
    ordinal: int
    weight: int
    stratum: str
    """"small", "middle" or "large", or "" where all documents weigh the same."""
    outcome: str
    """"done" or "failed", or "none" if it was cancelled or lost."""
    seconds: float = math.nan
    """How long the last attempt took, NaN where that is unknown."""
    attempts: int = 1
    nbytes: float = math.nan
    """Bytes of its result, pickled; NaN with a sink."""
    value: Any = None
    error: str = ""


@dataclass(frozen=True)
class Estimate:
    """What all documents of a run will take.

    Attributes
    ----------
    documents, slots : int
        Documents of the whole run, and how many run at once.
    worker_hours : Interval
        Hours in the function, over all slots.
    seconds : Interval
        From start to end.
    bound : str
        What limits that: "computing", what a service allows, or a limit or the budget of the run, which more slots do
        not raise.
    price : Interval or None
        Worker-hours times the rate, None without a rate.
    nbytes : Interval or None
        Bytes of the results in the queue, None with a sink.
    peak : int or None
        The most bytes of memory of a consumer's processes, as measured once a second; None if it is not known.
    setup : float
        Seconds in which a slot makes the objects of the function, once: a class, or what `setup` names. They are part
        of `seconds`, not of `worker_hours`.
    needed : int or None
        Slots that end in time, with `by`; None if no number of them does.
    by : float or None
        Seconds until `by`.
    """

    documents: int
    slots: int
    worker_hours: Interval
    seconds: Interval
    price: Interval | None
    nbytes: Interval | None
    rate: float | None = None
    bound: str = "computing"
    peak: int | None = None
    setup: float = 0.0
    needed: int | None = None
    by: float | None = None

    def __str__(self) -> str:
        time, parts = self.seconds, []
        if self.by is not None:
            slots = many(self.needed, "slot") + " to be done" if self.needed else "no number of slots ends"
            parts.append(f"{slots} in {numbers.duration(self.by)}")
        if time.n < FEW:
            took = f"between {numbers.duration(time.low)} and {numbers.duration(time.high)}"
        else:
            took = numbers.duration(time.likely)
            took += f" ({numbers.duration(time.low)} to {numbers.duration(time.high)})"
        parts.append(f"{took} on {many(self.slots, 'slot')}, bound by {self.bound}")
        parts.append(f"{_range(self.worker_hours)} worker-hours")
        if self.price is not None:
            parts.append(f"costs {_range(self.price)} at {self.rate:g} a worker-hour")
        if self.nbytes is not None:
            parts.append(f"results {numbers.size(round(self.nbytes.likely))}")
        if self.peak:
            parts.append(f"peak {numbers.size(self.peak)} a process")
        if setup := setup_words(self.setup):
            parts.append(setup)
        return f"whole run: {' · '.join(parts)}"


@dataclass(frozen=True, slots=True)
class _Held:
    """What limits and the budget of a run let through, as far as the sample shows what a document spends."""

    a_second: float = math.inf
    """Documents."""
    limit: str = ""
    """The limit that allows no more, in words."""
    paid: float = math.inf
    """Documents that the budget pays for."""

    @classmethod
    def by(cls, flow: FlowTerms, shards: int, stats: RunStats) -> _Held:
        spend = stats.spend or Spend()
        each = {unit: amount / max(1, stats.counts.worked) for unit, amount in spend.spent.items()} | {CALLS: 1.0}
        limits = []
        for rate in flow.rates:
            a_second, what = shards * rate.amount / rate.period, "" if rate.unit == CALLS else f" {rate.unit}"
            if of_one := each.get(rate.unit):
                limits.append((a_second / of_one, f"its limit of {numbers.rate(a_second * 60)}{what} a minute"))
        whole, unit = spend.budget or (math.inf, "")
        return cls(*min(limits, default=(math.inf, "")), whole / each[unit] if each.get(unit) else math.inf)


class Rehearsal:
    """What a sample of a run's documents says about the run.

    Attributes
    ----------
    tried : tuple of Tried
        The documents of the sample, in the order of the input.
    total : int or None
        Documents of the whole input; None for an iterator.
    """

    def __init__(
        self, run: Run, drawn: Drawn, tried: tuple[Tried, ...], *, slots: int, held: _Held, took: float | None
    ) -> None:
        self._run, self._drawn, self._slots, self._held, self._took = run, drawn, slots, held, took
        self._bound = "computing"
        self._peak: int | None = None
        self._setup = 0.0
        self.tried, self.total = tried, drawn.sample.total

    @classmethod
    def of(cls, run: Run, drawn: Drawn, progress: Progress) -> Rehearsal:
        """Gather what became of the sample of a run, given the progress with what its shards cover."""
        covered = Ranges(span for shard in progress.shards for span in shard.covered)
        results = run.results_at([(pick.at, pick.at + 1) for pick in drawn.sample.picks if pick.at in covered])
        values = {ordinal: rest for ordinal, *rest in results.made()}
        ids = [id for ordinal, id in run.failures().places() if ordinal in drawn.ordinals]
        letters = {letter.ordinal: letter for letter in run.failures().named(ids)}
        sized = None if results.in_sink else make_sealer()
        tried = tuple(
            _tried(pick, drawn.sample.strata[pick.stratum].name, values.get(pick.at), letters.get(pick.at), sized)
            for pick in drawn.sample.picks
        )
        stats = run.stats()
        took = stats.elapsed if progress.rehearsed else None  # afterwards, it is the time of the whole run
        flow = FlowTerms.of(progress.record.flow or {})
        slots = max(1, progress.consumers)
        if flow.adaptive is not None:  # how many calls a service takes is not seen in a few
            slots = flow.adaptive.max * len(progress.shards)
        held = _Held.by(flow, len(progress.shards), stats)
        made = cls(run, drawn, tried, slots=slots, held=held, took=took)
        made._bound = "computing" if flow.adaptive is None else "what its service allows"
        here = [consumer for consumer in run.snapshot().consumers if consumer.queue == run.queue]
        made._peak = max((each.peak or 0 for each in here), default=0) or None
        made._setup = stats.setup
        return made

    @property
    def sample(self) -> Sample:
        """The documents that were drawn, and the strata of all documents."""
        return self._drawn.sample

    @property
    def failures(self) -> Failures:
        """The run's failures, as `Run.failures` returns them."""
        return self._run.failures()

    @property
    def table(self) -> pd.DataFrame:
        """A row for each document of the sample: what it weighs, what became of it, and its result."""
        import_whole("pandas")
        columns = ["stratum", "weight", "outcome", "seconds", "attempts", "value", "error"]
        rows = [{name: getattr(each, name) for name in columns} for each in self.tried]
        frame: pd.DataFrame = frame_of(rows, index_of([each.key for each in self.tried]), columns)
        return frame

    def estimate(
        self, slots: int | None = None, rate: float | None = None, *, by: str | datetime | None = None
    ) -> Estimate | None:
        """Estimate what the whole run takes, or return None if that is unknown.

        Documents that failed count as if they took as long as those that were done, since a corrected function runs
        them. The intervals contain the true value in nine of ten cases; from fewer than ten documents, they are only
        the range of what was seen.

        Parameters
        ----------
        slots : int, optional
            Documents that run at once. Default: the slots that serve the queue now, or with `by`, those that are
            needed; for a coroutine function that finds out what its service allows, the most calls that it makes at
            once.
        rate : float, optional
            What a worker-hour costs, in any currency.
        by : str or datetime, optional
            When all is to be done, such as "18:00" or "2026-12-01 08:00". `needed` then says how many slots it takes,
            so that it ends later in one of twenty cases, and `bound` what binds where more slots do not help.

        Returns
        -------
        Estimate or None
            None for an iterator, and where no document of the sample is done.

        Raises
        ------
        BadOption
            `slots` is below 1, `rate` is not a number of at least 0, or `by` is no time to come.

        Examples
        --------
        >>> print(run.rehearsal.estimate(slots=128, rate=0.04))  # doctest: +SKIP
        whole run: 1 h 35 min (1 h 20 min to 1 h 52 min) on 128 slots, bound by computing · 171 to 239 worker-hours ...
        >>> run.rehearsal.estimate(by="18:00").needed  # doctest: +SKIP
        96
        """
        if slots is not None:
            check_count("slots", slots)
        number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if rate is not None and not (number and 0 <= rate < math.inf):
            raise BadOption(option="rate", value=rate, problem="is what a worker-hour costs, a number of 0 or more.")
        within = None
        if by is not None:
            now = SystemClock().wall()
            within = moment_of(by, now, "by") - now
            if within <= 0:
                raise BadOption(option="by", value=str(by), problem="is in the past.")
        work = self._sum("seconds")
        if self.total is None or work is None:
            return None
        needed = None
        if within is not None:
            needed = self._needed(work, within)
            slots = slots or needed
        slots = min(slots or self._slots, self.total)
        ends, bound = self._ends(work, slots)
        hours = work.times(1 / HOUR)
        price = None if rate is None else hours.times(rate)
        bytes_ = self._sum("nbytes")
        return Estimate(
            self.total, slots, hours, ends, price, bytes_, rate, bound, self._peak, self._setup, needed, within
        )

    def _ends(self, work: Interval, slots: int) -> tuple[Interval, str]:
        """Return the seconds that all documents take on so many slots, and what binds them."""
        # The last documents run when no others wait any more: a run never ends before the longest of them.
        longest = max(each.seconds for each in self._measured("seconds"))
        ends = Interval(
            max(work.low / slots, longest),
            max(work.likely / slots, longest),
            work.high / slots + longest * (1 - 1 / slots) + START + self._setup,
            work.n,
        )
        assert self.total is not None, "asked by `estimate`"
        least, held = self.total / self._held.a_second, self._held
        bound = self._bound
        if least > ends.likely:
            ends, bound = replace(ends, low=least, likely=least, high=max(least, ends.high)), held.limit
        if held.paid < self.total:
            bound = f"its budget, which pays for about {many(round(held.paid), 'document')}"
        return ends, bound

    def _needed(self, work: Interval, within: float) -> int | None:
        """Return the least slots that end within some seconds, or None if no number of them does."""
        assert self.total is not None, "asked by `estimate`"
        low, high = 1, self.total
        if self._ends(work, high)[0].high > within:
            return None
        while low < high:  # more slots never take longer
            middle = (low + high) // 2
            low, high = (low, middle) if self._ends(work, middle)[0].high <= within else (middle + 1, high)
        return low

    def text(self, rate: float | None = None) -> str:
        """Return in lines what became of the sample, what the whole run takes, and how much of it was found right."""
        marks = self._run.marks
        said = [f"marked: {marks}"] if len(marks) else []
        return "\n".join([self._what_happened(), self._what_comes(rate), *said])

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _what_happened(self) -> str:
        outcomes = Counter(each.outcome for each in self.tried)
        sample = self._drawn.sample
        strata = Counter(each.stratum for each in self.tried if each.stratum)
        if self.total is None:
            drawn = ""
        elif sample.groups:
            drawn = f", drawn by row groups from {len({pick.group for pick in sample.picks})} of {sample.groups:,}"
        else:
            drawn = ", drawn from the whole input"
        named = ", ".join(f"{n} {name}" for name, n in sorted(strata.items(), key=lambda one: _ORDER.index(one[0])))
        by = f" ({named})" if named else ""
        parts = [f"{outcomes['done']} done"]
        if outcomes["failed"]:
            parts.append(f"{outcomes['failed']} failed ({_worst(self.tried)})")
        if outcomes["none"]:
            parts.append(f"{outcomes['none']} without a result")
        if again := sum(each.attempts > 1 for each in self.tried if each.outcome == "done"):
            parts.append(f"{again} of those done at a second attempt or later")
        took = "" if self._took is None else f" in {numbers.duration(self._took)}"
        return f"rehearsed {self._drawn}{drawn}{by}{took}: {', '.join(parts)}"

    def _what_comes(self, rate: float | None) -> str:
        estimate = self.estimate(rate=rate)
        if estimate is not None:
            return str(estimate)
        known = [each.seconds for each in self._measured("seconds")]
        if not known:
            return "whole run: no estimate, since no document of the sample is done"
        each = numbers.duration(sum(known) / len(known))
        why = "an iterator does not say how many documents follow"
        return f"whole run: no estimate, since {why}; these took {each} each"

    def _measured(self, name: str) -> Iterator[Tried]:
        """Yield the documents that are done and have a known value."""
        return (each for each in self.tried if each.outcome == "done" and not math.isnan(getattr(each, name)))

    def _sum(self, name: str) -> Interval | None:
        """Estimate the sum of a value over all documents."""
        picks = {pick.at: pick for pick in self._drawn.sample.picks}
        measured = [
            Measured(getattr(each, name), each.weight, picks[each.ordinal].stratum, picks[each.ordinal].group)
            for each in self._measured(name)
        ]
        return sum_over(measured, self._drawn.sample.strata)


_ORDER = ("small", "middle", "large")


def _tried(pick: Pick, stratum: str, made: list[Any] | None, letter: DeadLetter | None, sized: Any) -> Tried:
    """Return what became of one document."""
    about = key_of(pick.element, pick.at), pick.at, pick.weight, stratum
    if letter is not None:
        at = f" ({letter.at})" if letter.at else ""
        error = one_line(f"{letter.error}: {letter.message}", 300) + at
        return Tried(*about, "failed", attempts=letter.deliveries, error=error)
    if made is None:
        return Tried(*about, "none")
    value, seconds, attempts = made
    return Tried(*about, "done", seconds, attempts or 1, _size_of(value, sized), value)


def _size_of(value: Any, sized: Any) -> float:
    try:
        return math.nan if sized is None else float(len(sized(value)))
    except SealError:  # such as the error that stands for a result that cannot be read here
        return math.nan


def _worst(tried: tuple[Tried, ...]) -> str:
    """Return the failure that most documents have, and how many others there are."""
    errors = Counter(each.error for each in tried if each.outcome == "failed")
    (error, _), others = errors.most_common(1)[0], len(errors) - 1
    return one_line(error, 120) + (f", and {many(others, 'other')}" if others else "")


def _range(interval: Interval) -> str:
    """Spell a range of plain numbers in two digits or more."""
    if interval.high < LEAST_NAMED:
        return f"under {LEAST_NAMED}"
    low, high = _number(interval.low), _number(interval.high)
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


class Marks:
    """Which results of a run's sample are right and which are wrong, in the judgement of its users.

    The queue keeps them with the run: who maps the same documents again has them too.

    Examples
    --------
    >>> run.marks.right("a.pdf", "b.pdf").wrong("c.pdf")  # doctest: +SKIP
    2 of 3 right: 21 to 94 %
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def right(self, *keys: Any) -> Marks:
        """Mark results of the sample as right, by the keys of their documents, or positions without keys.

        Raises
        ------
        BadOption
            A document is not in the sample, or not done. Nothing was marked.
        """
        return self._mark(keys, right=True)

    def wrong(self, *keys: Any) -> Marks:
        """Mark results of the sample as wrong; see `right`."""
        return self._mark(keys, right=False)

    def forget(self, *keys: Any) -> Marks:
        """Take marks back; see `right`."""
        return self._mark(keys, right=None)

    def to_dict(self) -> dict[Any, bool]:
        """Return the marks, True for right, by the keys of documents."""
        marks = self._ordinals()
        return {each.key: marks[each.ordinal] for each in self._run.rehearsal.tried if each.ordinal in marks}

    @property
    def share(self) -> tuple[float, float]:
        """Between which shares of all results are right, with a probability of 95 %; (0, 1) without marks."""
        marks, rehearsal = self._ordinals(), self._run.rehearsal
        if not marks:
            return 0.0, 1.0
        if rehearsal.total is None:  # of an iterator nobody knows how many follow
            return wilson(sum(marks.values()) / len(marks), len(marks))
        found = _share(rehearsal, marks)
        return found.low, found.high

    def __len__(self) -> int:
        return len(self._ordinals())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_dict())

    def __repr__(self) -> str:
        marks = self._ordinals()
        low, high = self.share
        said = f"{sum(marks.values())} of {len(marks)} right"
        return f"{said}: {100 * low:.0f} to {100 * high:.0f} %" if marks else "no result is marked"

    def _ordinals(self) -> dict[int, bool]:
        return {ordinal: bool(right) for ordinal, right in self._run._progress().record.marks}

    def _mark(self, keys: tuple[Any, ...], *, right: bool | None) -> Marks:
        done = {each.key: each.ordinal for each in self._run.rehearsal.tried if each.outcome == "done"}
        for key in keys:
            if not isinstance(key, Hashable) or key not in done:
                problem = (
                    "is no document of the sample that is done: run.rehearsal.table lists them. Nothing was marked."
                )
                raise BadOption(option="key", value=one_line(key, 80), problem=problem)
        if keys:
            self._run.handle.link.sync(
                self._run.handle.order(Judge(self._run.id, [[done[key], right] for key in keys]))
            )
        return self


def _share(rehearsal: Rehearsal, marks: dict[int, bool]) -> Interval:
    """Return the share of all results that are right, as far as each stratum has marks."""
    sample = rehearsal.sample
    seen: list[Seen] = []
    for at, stratum in enumerate(sample.strata):
        groups: dict[Hashable, list[int]] = {}
        for pick in sample.picks:
            if pick.stratum == at and pick.at in marks:
                group = groups.setdefault(pick.group, [0, 0])
                group[0] += 1
                group[1] += marks[pick.at]
        seen.append(Seen(stratum.count, tuple((n, hits) for n, hits in groups.values())))
    return share_of(seen)
