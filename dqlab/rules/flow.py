"""How fast a lane's messages are leased: so many at once, so many a minute, and none while a server is away.

Everything here counts leases, because a lease is a call: one shard gives them all, so what it decides holds for all
consumers, and ends with the lease where one dies. Pure rules; the time is passed in, in monotonic seconds.

A cap is for messages with one key, such as the host of their documents. A message whose key is at its cap stays ready
in its place, and those behind it are leased.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from dqlab.config import check_count
from dqlab.errors import BadOption
from dqlab.numbers import due
from dqlab.rules.batches import Batches
from dqlab.rules.budget import Budget, Costs, Purse

AHEAD = 10_000
"""Messages that are looked at, from the front, for those whose key is below its cap."""


@dataclass(frozen=True, slots=True)
class Cap:
    """So many calls at once for each value of a key."""

    by: str
    """"host" of a document's URL, or the column of a row that has the value."""
    most: int

    def __post_init__(self) -> None:
        check_count("cap", self.most)
        if not (isinstance(self.by, str) and self.by):
            raise BadOption(option="cap", value=self.by, problem="names no key: {'host': 4}.")


class Caps:
    """What is known of the keys of one lane's messages."""

    def __init__(self, cap: Cap) -> None:
        self.cap = cap
        self.wanted: dict[int, None] = {}
        """Frames whose keys have to be read, by the ids of their first messages, before more is leased."""
        self.full = False
        """Each message that was looked at has a key that is at its cap."""
        self._keys: dict[int, Sequence[str]] = {}

    def know(self, first: int, keys: Sequence[str], stored: Batches) -> None:
        """Note the keys of a frame's messages, and forget those of frames that are gone."""
        self._keys = {frame: known for frame, known in self._keys.items() if stored.at(frame) is not None}
        self._keys[first] = keys
        self.wanted.pop(first, None)

    def free(
        self, ready: Iterable[tuple[int, int]], leased: Iterable[tuple[int, int]], n: int, stored: Batches
    ) -> list[int]:
        """Return the first `n` ready messages, by id, that may be leased besides those that are."""
        self.wanted, self.full = {}, False
        held = Counter(key for key, _ in self._known(leased, stored))
        found: list[int] = []
        if self.wanted:
            return found
        for looked, (key, id) in enumerate(self._known(ready, stored)):
            if held[key] < self.cap.most:
                held[key] += 1
                found.append(id)
            if len(found) == n or looked == AHEAD:
                break
        self.full = not found and not self.wanted
        return found

    def _known(self, ids: Iterable[tuple[int, int]], stored: Batches) -> Iterable[tuple[str, int]]:
        """Yield (key, id), until a frame comes whose keys are not known."""
        for lo, hi in ids:
            for batch, a, b in stored.covering(lo, hi):
                keys = self._keys.get(batch.first)
                if keys is None:
                    self.wanted[batch.first] = None
                    return
                for at in range(a, b):
                    yield keys[at], batch.first + at

    @property
    def words(self) -> str:
        """It in words, as "4 at once by host"."""
        return f"{self.cap.most} at once by {self.cap.by}"


CALLS = "calls"
"""Unit of limits of calls; other units are those that `dqlab.spend` names."""
CALM = 1.0
"""Seconds without a refusal after which a level grows again."""
SEARCH, GROWTH = 0.2, 0.02
"""Shares by which it grows in a second then: after the first cut, made while it rises, and after later ones."""
RECENT = 1.0
"""Seconds over which throughput is measured."""
FIRST_CUT = 0.6
"""Least share of a level that its first cut leaves: while it rises, fewer answers come than could."""
SPARE = 0.95
"""Share of the measured throughput that a cut leaves."""
LATENESS, LATENESS_SHARE = 0.1, 0.01
"""Seconds of calls that a rate saves up, since timers fire late: at most these, and this share of its period."""
MOVES = 20
"""Changes that a flow remembers."""
LAST, ENOUGH, MOST = 24, 20, 0.9
"""Outcomes that an outage is judged by: the last so many, at least so many, and the share of them that failed alike."""
PROBE_FIRST, PROBE_MORE, PROBE_MOST = 1.0, 1.5, 30.0
"""Seconds until the first probe in an outage, the factor of each further wait, and the longest one."""
ALONE_FIRST, ALONE_MOST = 1.0, 60.0
"""Seconds for which nothing is leased after a refusal at the lowest level, doubling, and the longest."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a run gets of the consumers' time, among the runs of its person."""

    weight: float = 1.0
    """Of two runs with weights 3 and 1, the first gets three quarters."""
    priority: int = 0
    """A run is served before all others of its person with a lower one."""
    starts: float = 0.0
    """Nothing of it is leased before that, seconds since 1970; 0 = at once."""

    def __post_init__(self) -> None:
        weight, priority = self.weight, self.priority
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.01 <= weight <= 100:
            raise BadOption(option="weight", value=weight, problem="must be a number from 0.01 to 100.")
        if isinstance(priority, bool) or not isinstance(priority, int) or not -10 <= priority <= 10:
            raise BadOption(option="priority", value=priority, problem="must be a whole number from -10 to 10.")

    @property
    def words(self) -> str:
        """What is not as usual, as "priority 5, weight 3", or ""."""
        parts = [f"priority {self.priority}"] if self.priority else []
        return ", ".join([*parts, f"weight {self.weight:g}"] if self.weight != 1 else parts)

    def starting(self, now: float) -> str:
        """Return when it starts, in words at `now`, seconds since 1970."""
        return f"starts at {due(self.starts, now=now)}"


@dataclass(frozen=True, slots=True)
class Adaptive:
    """How many calls of a run may be in flight at once, found out by what the server refuses.

    It starts low, grows with each answer until the server refuses a call for the first time (status 429, or 503 with
    ``Retry-After``), is cut then to what the server answered, and grows slowly afterwards. All consumers share it.

    Parameters
    ----------
    min : int, default 1
        Never fewer.
    start : int, default 8
        At first.
    max : int, default 200
        Never more.

    Raises
    ------
    BadOption
        Not whole numbers with 1 <= min <= start <= max.

    Examples
    --------
    >>> run = lab.map(ask, papers, concurrency=dq.Adaptive(max=50))
    """

    min: int = 1
    start: int = 8
    max: int = 200

    def __post_init__(self) -> None:
        for name in ("min", "start", "max"):
            check_count(name, getattr(self, name))
        if not self.min <= self.start <= self.max:
            raise BadOption(option="concurrency", value=self, problem="needs min <= start <= max.")


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So much of a unit in so many seconds."""

    amount: float
    period: float
    """Seconds."""
    name: str = ""
    """Lanes of a shard with limits of one name share one bucket; "" is its lane's own."""
    unit: str = CALLS


@dataclass(frozen=True, slots=True)
class FlowTerms:
    """What a run's record says about its flow."""

    adaptive: Adaptive | None = None
    most: int | None = None
    """Calls at once in this shard."""
    rates: tuple[RateLimit, ...] = ()
    """Of this shard, each of another unit."""
    budget: Budget | None = None
    """Of this shard."""
    share: Share | None = None
    """None: as usual."""
    cap: Cap | None = None
    """Of this shard."""

    @property
    def at_once(self) -> int:
        """Most calls at once in this shard, or 0 for any number."""
        return self.most or (0 if self.adaptive is None else self.adaptive.max)

    def record(self) -> dict[str, Any]:
        """Return plain data for a run record."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """Return the terms in a run record."""
        kinds = {"adaptive": Adaptive, "budget": Budget, "share": Share, "cap": Cap}
        parts: dict[str, Any] = {name: kind(**record[name]) for name, kind in kinds.items() if record.get(name)}
        alone = record.get("rate")  # of earlier stores: one, of calls
        rates = [] if alone is None else [RateLimit(alone["calls"], alone["period"], alone["name"])]
        rates += [RateLimit(**rate) for rate in record.get("rates", ())]
        return cls(most=record.get("most"), rates=tuple(rates), **parts)


class Rate:
    """A token bucket that never lets more through in its period than it says.

    A call takes its tokens when it is leased. Of calls that is one; of another unit, nearly the most that the last
    calls have cost, and when the call has ended, the rest is given back, or what was missing is taken. What a lease
    has taken that ends without an outcome stays taken: its calls may have been made.
    """

    def __init__(self, limit: RateLimit, now: float) -> None:
        self.limit, self._tokens, self._at, self._most, self._speed = limit, 0.0, now, 0.0, 0.0
        self.costs = Costs(1.0 if limit.unit == CALLS else None)
        self._size(now)
        self._tokens = self.costs.high or 0.0

    def _size(self, now: float) -> None:
        self._tokens, self._at = self.tokens(now), max(now, self._at)
        # Calls that timers missed are made up for, but only a few, and these are taken off the rate: a full bucket and
        # a period's refill together are what the limit allows. Of whole calls, as those at both ends of a period are in
        # no window together, that is one more, but for what calls may be late.
        amount, period = self.limit.amount, self.limit.period
        late = amount * min(LATENESS_SHARE, LATENESS / period)
        self._most = (self.costs.high or 0.0) + late
        spare = 1 - min(1.0, late) if self.limit.unit == CALLS else 0.0
        self._speed = (
            max(math.floor(amount) + spare - self._most if spare else amount - self._most, amount / 2) / period
        )

    def tune(self, limit: RateLimit, now: float) -> None:
        """Let so much through from now on."""
        self._tokens, self._at = min(self.costs.high or 0.0, self.tokens(now)), max(now, self._at)
        self.limit = limit
        self._size(now)

    def tokens(self, now: float) -> float:
        """Return how much calls that begin now may cost."""
        return min(self._most, self._tokens + max(0.0, now - self._at) * self._speed)

    def room(self, now: float, leased: int) -> int | None:
        """Return how many calls may begin now besides those that are leased, or None for any number."""
        cost = self.costs.high
        if cost is None:
            return 1 - leased  # what the first call costs says how many more there may be
        tokens = self.tokens(now) + 1e-9
        return math.floor(tokens / cost) if cost else None if tokens >= 0 else 0

    def take(self, n: int, now: float) -> float:
        """Note that `n` calls begin, and return what was taken for each."""
        each = self.costs.high or 0.0
        self._tokens, self._at = self.tokens(now) - n * each, max(now, self._at)
        return each

    def settle(self, costs: Sequence[float], taken: float, now: float) -> None:
        """Note what calls have cost for which so much was taken."""
        self._tokens, self._at = self.tokens(now) + taken - sum(costs), max(now, self._at)
        self.costs.add(costs)
        self._size(now)

    def drain(self, now: float) -> None:
        """Let nothing through before its time: nobody knows what was just before."""
        self._tokens, self._at = min(0.0, self.tokens(now)), max(now, self._at)

    def opens(self, now: float) -> float:
        """Return when the next call may begin."""
        return now + max(0.0, (self.costs.high or 0.0) - self.tokens(now)) / self._speed

    @property
    def words(self) -> str:
        """It in words, such as "500 calls in 60 s"."""
        limit = self.limit
        silent = "" if self.costs.high is None or self.costs.high else f", but dq.spend has named no {limit.unit}"
        return f"{limit.amount:,.10g} {limit.unit} in {limit.period:g} s{silent}"


class Level:
    """How many calls may be in flight, between a smallest and a largest number."""

    def __init__(self, terms: Adaptive) -> None:
        self.terms = terms
        self.level = float(terms.start)
        self.refused = 0
        """Calls that were refused."""
        self.cut_at: float | None = None
        """When it was last cut; None: the server has refused nothing yet."""
        self._cuts = 0
        self._episode = 0
        """Leases before this one were granted before the last cut: what they say about the level is known."""
        self._grown_at = 0.0
        self._answers: deque[tuple[float, int]] = deque()
        self._latency = 0.0

    def answered(self, n: int, now: float, *, took: float, busy: bool) -> None:
        """Note `n` answers, `took` seconds after their lease; `busy`: as many calls were in flight as may be."""
        self._answers.append((now, n))
        self._forget_old(now)
        self._latency = took if not self._latency else 0.8 * self._latency + 0.2 * took
        if not busy:
            return  # what is not used is not proven
        if self.cut_at is None:
            self._grow(n / 2)
        elif now - self.cut_at >= CALM:
            since = max(self.cut_at + CALM, self._grown_at)
            self._grow(max(1.0, self.level) * (SEARCH if self._cuts < 2 else GROWTH) * min(1.0, now - since))
            self._grown_at = now

    def _grow(self, by: float) -> None:
        self.level = min(float(self.terms.max), self.level + by)

    def _forget_old(self, now: float) -> None:
        while self._answers and self._answers[0][0] < now - RECENT:
            self._answers.popleft()

    def refuses(self, lease: int, next_lease: int, now: float) -> None:
        """Note a refusal of a call of that lease; `next_lease` is the id of the next one to be granted."""
        self.refused += 1
        if lease < self._episode:
            return
        self._forget_old(now)
        # By Little's law, what the server answers in a second times the seconds of an answer is in flight.
        span = min(RECENT, max(now - self._answers[0][0], self._latency)) if self._answers else RECENT
        fitting = sum(n for _, n in self._answers) / span * self._latency * SPARE
        least = self.level * FIRST_CUT if not self._cuts else float(self.terms.min)
        self.level = max(float(self.terms.min), min(0.9 * self.level, max(least, fitting or self.level / 2)))
        self._episode, self.cut_at = next_lease, now
        self._cuts += 1

    @property
    def whole(self) -> int:
        """Calls that may be in flight."""
        return max(self.terms.min, int(self.level))


@dataclass(slots=True)
class Outage:
    """Whether the last outcomes of a lane say that what it calls is away, and when to try again."""

    outcomes: deque[str] = field(default_factory=lambda: deque(maxlen=LAST))
    """What failed in the last ones, "" for an answer."""
    why: str = ""
    """What fails; "" while nothing does."""
    proven: bool = False
    """A call was answered before: else its address may be wrong, which time does not mend, and `stop_if` judges it."""
    since: float = 0.0
    probe_at: float = 0.0
    _wait: float = PROBE_FIRST

    def fails(self, what: str, now: float) -> bool:
        """Note that a call failed in a way that passes, and return whether there is an outage."""
        self.outcomes.append(what)
        if self.why:
            if now >= self.probe_at:  # the probe failed; earlier calls are only late
                self._wait = min(PROBE_MOST, self._wait * PROBE_MORE)
                self.probe_at = now + self._wait
        elif self.proven and len(self.outcomes) >= ENOUGH and self.outcomes.count(what) >= MOST * len(self.outcomes):
            self.why, self.since, self._wait = what, now, PROBE_FIRST
            self.probe_at = now + self._wait
        return bool(self.why)

    def answers(self, n: int = 1) -> None:
        """Note calls that were answered, however."""
        self.proven = True
        if self.why or (self.outcomes and any(self.outcomes)):
            if self.why:
                self.outcomes.clear()
                self.why = ""
            self.outcomes.extend([""] * min(n, LAST))


class Flow:
    """What holds back the messages of one lane."""

    def __init__(self, terms: FlowTerms, rates: Sequence[Rate] = (), *, proven: bool = False) -> None:
        self.terms = terms
        self.level = None if terms.adaptive is None else Level(terms.adaptive)
        self.rates = rates
        """The buckets of `terms.rates`, which other lanes may share."""
        self.metered = [rate for rate in rates if rate.limit.unit != CALLS]
        """Those that calls pay into when they have ended."""
        self.purse = None if terms.budget is None else Purse(terms.budget)
        self.caps = None if terms.cap is None else Caps(terms.cap)
        self.outage = Outage(proven=proven)
        self.until = 0.0
        """Nothing is leased before that, since a server asked for it."""
        self.asked = ""
        """What it said."""
        self.waiting = 0
        """Leased messages whose calls have ended, and whose rows wait for their part of a sink."""
        self.moves: deque[tuple[float, str]] = deque(maxlen=MOVES)
        """When it changed for which reason, in words."""
        self._alone = ALONE_FIRST

    @property
    def counts_calls(self) -> bool:
        """Whether only so many calls may run at once."""
        return self.level is not None or self.terms.most is not None

    @property
    def limited(self) -> bool:
        """Whether its run has terms."""
        return self.terms != FlowTerms()

    def keeps(self, terms: FlowTerms) -> bool:
        """Return whether it keeps to these terms already."""
        return self.terms == terms and tuple(rate.limit for rate in self.rates) == terms.rates

    def shut(self, now: float) -> bool:
        """Return whether nothing is leased for now, whatever is leased already."""
        return now < self.until or bool(self.outage.why)

    def room(self, now: float, leased: int) -> int | None:
        """Return how many messages may be leased besides those that are, or None for any number."""
        if now < self.until:
            return 0
        if self.outage.why:
            return int(leased <= self.waiting and now >= self.outage.probe_at)
        level = None if self.level is None else self.level.whole
        paid = None if self.purse is None else self.purse.room()
        rooms = [most + self.waiting - leased for most in (self.terms.most, level) if most is not None]
        rooms += [] if paid is None else [paid - leased]  # what rows that wait have cost is not paid yet
        rooms += [most for rate in self.rates if (most := rate.room(now, leased)) is not None]
        return max(0, min(rooms)) if rooms else None

    def opens(self, now: float, leased: int) -> float | None:
        """Return when time alone will make room, or None where it does not."""
        dues = [self.until] if now < self.until else []
        if self.outage.why and leased <= self.waiting:
            dues.append(self.outage.probe_at)
        dues += [rate.opens(now) for rate in self.rates]
        return max((due for due in dues if due > now), default=None)

    def spent_up(self, leased: int) -> bool:
        """Return whether the budget pays for no further call, and none is in flight."""
        return self.purse is not None and leased == 0 and self.purse.room() == 0

    def distrust(self, now: float) -> None:
        """Note that another process may have made calls until now."""
        for rate in self.rates:
            rate.drain(now)

    def take(self, n: int, now: float) -> Mapping[str, float]:
        """Note that `n` messages are leased, and return what was taken for each, by unit."""
        return {rate.limit.unit: rate.take(n, now) for rate in self.rates}

    def settle(self, amounts: Sequence[Mapping[str, float]], taken: Mapping[str, float], n: int, now: float) -> None:
        """Note what calls have cost, when `n` messages are back for each of which so much was taken."""
        for rate in self.metered:
            unit = rate.limit.unit
            rate.settle([spent.get(unit, 0.0) for spent in amounts], n * taken.get(unit, 0.0), now)

    def answered(self, n: int, now: float, *, took: float, in_flight: int) -> None:
        """Note `n` calls that were answered, `took` seconds after their lease, of so many that were under way."""
        if not self.outage.why or now - took >= self.outage.since:  # else it was called before, and is only late
            if self.outage.why:
                self.moves.append((now, f"answers again, after {now - self.outage.since:.0f} s"))
            self.outage.answers(n)
        self._alone = ALONE_FIRST
        if self.level is not None:
            self.level.answered(n, now, took=took, busy=in_flight - self.waiting >= self.level.whole)

    def refused(self, after: float, said: str, now: float, *, lease: int, next_lease: int) -> None:
        """Note that a server refused a call and asks to wait for `after` seconds, 0 where it does not say."""
        self.outage.answers()
        self.asked = said
        if self.level is not None:
            before = self.level.whole
            self.level.refuses(lease, next_lease, now)
            if self.level.whole != before:
                self.moves.append((now, f"{before} -> {self.level.whole} calls at once, refused: {said or 'dq.Later'}"))
        lowest = self.level is None or self.level.whole <= self.level.terms.min
        if not after and lowest and now >= self.until:  # once for all calls that were in flight together
            after, self._alone = self._alone, min(ALONE_MOST, 2 * self._alone)
        if after and now >= self.until:
            self.moves.append((now, f"waits {after:g} s: {said or 'dq.Later'}"))
        self.until = max(self.until, now + after)

    def failed(self, passing: str, now: float) -> bool:
        """Note a call that failed in a way that passes, and return whether that is part of an outage."""
        if self.level is not None and self.level.cut_at is None:
            self.level.cut_at = now  # failures stop its growth, and cut nothing
        known, away = bool(self.outage.why), self.outage.fails(passing, now)
        if away and not known:
            self.moves.append((now, f"calls nothing but a probe: {passing}"))
        return away

    def lose(self, n: int) -> None:
        """Note that `n` calls may have been made that end without an outcome."""
        if self.purse is not None:
            self.purse.lose(n)

    def binds(self, now: float, leased: int) -> str:
        """Return in words what holds it back now, or "" where it would let another message through."""
        if self.shut(now):
            return "the service"
        if self.purse is not None and (most := self.purse.room()) is not None and most <= leased:
            return "the budget"
        for rate in self.rates:
            if rate.room(now, leased) == 0:
                return f"the limit of {rate.limit.unit}"
        if self.caps is not None and self.caps.full:
            return f"the cap by {self.caps.cap.by}"
        if self.level is not None and leased - self.waiting >= self.level.whole:
            return "what the service allows" if self.level.cut_at is not None else "calls at once, which still grow"
        return "concurrency" if self.terms.most is not None and leased - self.waiting >= self.terms.most else ""


def why_shut(flow: Flow, now: float) -> str:
    """Return in words why nothing is leased for now, or ""."""
    outage = flow.outage
    if outage.why:
        failed, wait = outage.outcomes.count(outage.why), max(0.0, outage.probe_at - now)
        again = f"one is tried again in {wait:.0f} s" if wait else "one is tried now"
        return f"{failed} of the last {len(outage.outcomes)} calls failed with {outage.why}; {again}"
    if now < flow.until:
        return f"the service asked to wait, for {flow.until - now:.0f} s more: {flow.asked or 'dq.Later'}"
    return ""


def pace_of(flow: Flow) -> str:
    """Return in words what holds messages back in general, or ""."""
    parts = []
    if flow.level is not None:
        refused = f", {flow.level.refused:,} were refused" if flow.level.refused else ""
        parts.append(f"{flow.level.whole} calls at once{refused}")
    if flow.terms.most is not None:
        parts.append(f"{flow.terms.most} calls at once")
    parts += [] if flow.caps is None else [flow.caps.words]
    parts += [rate.words for rate in flow.rates]
    return "; ".join(parts)
