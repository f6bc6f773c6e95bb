"""What holds a lane's messages back: a level that servers set, rates, outages, and pauses that services ask for."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.failures.failure import Failure
from dqlab.frame import Outcome
from dqlab.rules.budget import SPENT, Budget
from dqlab.rules.flow import Adaptive, Flow, FlowTerms, Rate, RateLimit
from dqlab.rules.states import State
from tests.rules.conftest import RUN
from tests.rules.test_halting import Halting

ACK, FAIL, NACK, REFUSED = Outcome.ACK, Outcome.FAIL, Outcome.NACK, Outcome.REFUSED
AWAY = Failure("E", "503", "", "", "d2c81e07", None, "", "c", "w", 0.0, 0.0, passing="503").to_bytes()
ADAPTIVE = FlowTerms(adaptive=Adaptive())


class Service:
    """A service that allows `rate` calls a second and a burst, and is away for a while; a lane calls it until all is
    done, in simulated time."""

    def __init__(
        self,
        terms: FlowTerms,
        *,
        n: int,
        rate: float = 200.0,
        burst: float = 20.0,
        answers_in: float = 0.05,
        away: tuple[float, float] = (0.0, 0.0),
        seed: int = 0,
    ) -> None:
        self.rate, self.burst, self.answers_in, self.away, self.random = rate, burst, answers_in, away, Random(seed)
        self.flow = Flow(terms, [Rate(limit, 0.0) for limit in terms.rates])
        self.n, self.todo, self.done, self.refused, self.dead, self.calls_away = n, deque(range(n)), 0, 0, 0, 0
        self.began: list[float] = []
        self._tokens, self._at, self._leased, self._numbers = burst, 0.0, 0, count()
        self._failed: dict[int, int] = {}
        self._events: list[tuple[float, int, str, tuple[int, int, float]]] = []

    def run(self) -> float:
        """Return when all calls had an outcome."""
        now, leases = 0.0, count(1)
        self._at_time(0.0, "look")
        while self.done + self.dead < self.n:
            assert self._events, "time alone must bring it on"
            now, _, what, (id, lease, since) = heapq.heappop(self._events)
            if what == "call":
                self._call(now, id, lease, since)
                continue
            if what == "again":
                self.todo.append(id)
            elif what != "look":
                self._leased -= 1
                self._end(now, what, id, lease, since, next(leases))
            room = self.flow.room(now, self._leased)
            fit = min(len(self.todo), 100 if room is None else room)
            if fit:
                self.flow.take(fit, now)
                self._leased, number = self._leased + fit, next(leases)
                for _ in range(fit):
                    self._at_time(now + self.random.uniform(0.002, 0.006), "call", self.todo.popleft(), number, now)
            elif self.todo and (opens := self.flow.opens(now, self._leased)) is not None:
                self._at_time(opens + 0.001, "look")
        return now

    def _at_time(self, at: float, what: str, *about: Any) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), what, about or (0, 0, 0.0)))

    def _call(self, now: float, id: int, lease: int, since: float) -> None:
        self.began.append(now)
        if self.away[0] <= now < self.away[1]:
            self.calls_away += 1
            self._at_time(now + 0.008, "away", id, lease, since)
            return
        self._tokens, self._at = min(self.burst, self._tokens + (now - self._at) * self.rate), now
        if self._tokens >= 1:
            self._tokens -= 1
            self._at_time(now + self.answers_in * self.random.uniform(0.9, 1.2) + 0.004, "answer", id, lease, since)
        else:
            self._at_time(now + 0.008, "no", id, lease, since)

    def _end(self, now: float, what: str, id: int, lease: int, since: float, following: int) -> None:
        if what == "answer":
            self.done += 1
            self.flow.answered(1, now, took=now - since, in_flight=self._leased + 1)
        elif what == "no":
            self.refused += 1
            self.todo.appendleft(id)
            self.flow.refused(0.0, "429", now, lease=lease, next_lease=following)
        elif self.flow.failed("503", now):
            self.todo.appendleft(id)
        else:
            self._failed[id] = self._failed.get(id, 0) + 1
            self.dead += self._failed[id] > 3
            if self._failed[id] <= 3:
                self._at_time(now + self.random.uniform(0, 2.0 ** (self._failed[id] - 1)), "again", id, 0, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_calls_find_out_by_themselves_what_a_service_allows(seed: int) -> None:
    """A hundred calls at once cost 5,769 refusals and 720 dead documents of 2,000."""
    service = Service(ADAPTIVE, n=2000, seed=seed)

    assert service.run() < 1.15 * (2000 - 20) / 200
    assert (service.dead, service.done) == (0, 2000)
    assert service.refused <= 60


@pytest.mark.parametrize(("rate", "answers_in", "n"), [(200.0, 0.5, 4000), (2000.0, 0.05, 40_000), (20.0, 1.0, 2000)])
def test_a_slow_or_a_generous_service_is_used_too(rate: float, answers_in: float, n: int) -> None:
    """It needs a hundred calls at once, and the first refusal comes while the level still rises."""
    service = Service(ADAPTIVE, n=n, rate=rate, answers_in=answers_in)

    assert service.run() < 1.5 * (n - 20) / rate
    assert service.refused <= 60


@pytest.mark.parametrize("seconds", [10.0, 30.0])
def test_an_outage_costs_no_document_and_few_calls(seconds: float) -> None:
    """A server that was down for 30 s left 4,133 of 5,000 documents dead, after 16,526 calls."""
    service = Service(ADAPTIVE, n=5000, away=(5.0, 5.0 + seconds))

    ended = service.run()
    assert service.dead == 0
    assert service.calls_away <= 60
    assert ended < 1.15 * (5000 - 20) / 200 + seconds + 0.5 * seconds, "it goes on soon after the end of the outage"


@given(st.floats(0.5, 1e5), st.floats(0.5, 1e5), st.lists(st.tuples(st.floats(0, 30), st.integers(1, 9)), max_size=200))
def test_no_window_has_more_calls_than_the_rate_allows(
    calls: float, period: float, asks: list[tuple[float, int]]
) -> None:
    """Whenever callers come, and however late timers fire."""
    rate, now, began = Rate(RateLimit(calls, period), 0.0), 0.0, []
    for wait, wanted in asks:
        now += wait
        given = min(wanted, int(rate.tokens(now) + 1e-9))
        rate.take(given, now)
        began += [now] * given
        assert rate.opens(now) >= now
    for start, at in enumerate(began):
        inside = sum(at <= other < at + period for other in began[start:])
        assert inside <= max(1, calls)


@given(
    amount=st.floats(1, 1e4),
    low=st.floats(0.001, 0.2),
    spread=st.floats(0, 0.2),
    asks=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 9), st.floats(0, 1), st.floats(0, 9)), max_size=150),
)
def test_no_window_costs_more_than_the_limit_but_by_what_was_put_aside_too_little(
    amount: float, low: float, spread: float, asks: list[tuple[float, int, float, float]]
) -> None:
    """Calls of one price never do; and a call costs what it says when it has ended."""
    rate, now, period = Rate(RateLimit(amount, 60.0, unit="tokens"), 0.0), 0.0, 60.0
    began, flying, missed = list[tuple[float, float]](), list[tuple[float, int, float, float]](), 0.0
    for wait, wanted, share, lasts in asks:
        now += wait
        for each in [each for each in flying if each[0] <= now]:
            flying.remove(each)
            rate.settle([each[2]] * each[1], each[1] * each[3], now)
        n, cost = min(wanted, rate.room(now, sum(each[1] for each in flying)) or 0), amount * (low + share * spread)
        if n > 0:
            taken = rate.take(n, now)
            missed += n * abs(cost - taken)
            began.append((now, n * cost))
            flying.append((now + lasts, n, cost, taken))
    for at, _ in began:
        inside = sum(cost for other, cost in began if at <= other < at + period)
        assert inside <= amount * (1 + 1e-9) + missed


def test_a_limit_of_tokens_is_used_and_kept_from_the_first_call_on(desk: Any) -> None:
    """Calls of 100 tokens, 6,000 a minute: one a second, and what a consumer had that died stays taken."""
    queue, leases = desk(500, FlowTerms(rates=(RateLimit(6000, 60.0, unit="tokens"),))), deque[tuple[float, Any]]()
    began: list[float] = []
    for tick in range(3000):
        queue.clock.advance(0.1)
        if leases and leases[0][0] <= tick:
            lease = leases.popleft()[1]
            spent = {at: msgpack.packb({"tokens": 100}) for at in range(len(queue.ids(lease)))}
            queue.settle(lease, *[ACK] * len(spent), riders={SPENT: spent})
        lease = queue.shard.lease("c", 50)
        if lease is not None:
            began += [tick / 10] * len(queue.ids(lease))
            if tick == 1500:
                queue.shard.release("c")
                leases.clear()
            else:
                leases.append((tick + 20, lease))
    inside = [sum(at <= other < at + 60 for other in began) for at in began]

    assert max(inside) <= 60
    assert len(began) > 0.95 * 300 - 5


def test_a_limit_of_what_no_call_names_is_told(desk: Any) -> None:
    """It would hold nothing back in silence."""
    queue = desk(9, FlowTerms(rates=(RateLimit(6000, 60.0, unit="tokens"),)))
    assert leased(queue) == 1, "what a call costs is not known"
    queue.shard.release("c")
    queue.ack(queue.lease(1))

    assert leased(queue) == 8
    assert queue.ledger.book(RUN).report(RUN, 0.0).pace == "6,000 tokens in 60 s, but dq.spend has named no tokens"


def test_another_limit_keeps_what_was_found_out(desk: Any) -> None:
    """The level that a service allows, and what calls cost."""
    both = FlowTerms(adaptive=Adaptive(), rates=(RateLimit(60, 60.0),))
    queue = desk(9, both)
    queue.shard.lanes[RUN].flow.level.level = 3.0
    queue.ledger.order("flow", RUN, {"flow": replace(both, rates=(RateLimit(30, 60.0),)).record()})

    assert queue.shard.lanes[RUN].flow.level.whole == 3


def test_terms_of_earlier_stores_are_read() -> None:
    """They have one limit, of calls."""
    record = {"rate": {"calls": 5.0, "period": 60.0, "name": "llm"}}

    assert FlowTerms.of(record) == FlowTerms(rates=(RateLimit(5.0, 60.0, "llm"),))


def leased(desk: Halting, n: int = 1000) -> int:
    lease = desk.shard.lease("c", n)
    return 0 if lease is None else len(desk.ids(lease))


@pytest.fixture
def desk() -> Iterator[Callable[..., Halting]]:
    def make(n: int, terms: FlowTerms | None = None) -> Halting:
        desk = Halting(0, retries=3)
        if terms is not None:
            desk.ledger.order("flow", RUN, {"flow": terms.record()})
        desk.put(n)
        return desk

    return make


def settle(desk: Halting, n: int, outcome: Outcome, payload: bytes) -> None:
    desk.ledger.settle(desk.settlement(desk.lease(n), [outcome] * n, payloads=[payload] * n))


def test_a_refused_call_is_no_attempt_and_everybody_waits_as_long_as_was_asked(desk: Any) -> None:
    """Its message is first again, with all its tries."""
    queue = desk(9)
    settle(queue, 2, REFUSED, b"30.0 429 slow down")

    assert queue.counts() == {State.READY: 9}
    assert not queue.shard.lanes[RUN].trouble
    assert leased(queue) == 0
    assert queue.shard.next_deadline() == queue.clock.monotonic() + 30.0
    queue.clock.advance(30.0)
    assert leased(queue) == 9


def test_no_more_is_leased_than_may_be_in_flight(desk: Any) -> None:
    """Whoever asks, and a settlement makes room again."""
    queue = desk(99, FlowTerms(most=5))
    first = queue.lease(3)

    assert (leased(queue), leased(queue)) == (2, 0)
    queue.ack(first)
    assert leased(queue) == 3


def test_failures_in_an_outage_are_nobodys_attempt_and_one_call_probes(desk: Any) -> None:
    """Until the service answers; and then all goes on."""
    queue = desk(201)
    queue.ack(queue.lease(1))
    for lease in [queue.lease(24), queue.lease(24)]:
        queue.settle(lease, *[FAIL] * 24, payloads=[AWAY] * 24)
    tried = len(queue.shard.lanes[RUN].trouble)

    assert tried < 24, "what fails after the outage was known is not counted"
    assert leased(queue) == 0
    queue.clock.advance(1.0)
    probe = queue.lease(100)
    assert len(queue.ids(probe)) == 1
    assert leased(queue) == 0, "one probe at a time"
    queue.ack(probe)
    assert leased(queue) > 100
    assert len(queue.shard.lanes[RUN].trouble) in (tried, tried - 1), "the probe may have been one of them"


def test_an_answer_to_a_call_from_before_an_outage_does_not_end_it(desk: Any) -> None:
    """It says nothing about the service of now, and all would be called in vain again."""
    queue = desk(99)
    queue.ack(queue.lease(1))
    before, failing = queue.lease(1), queue.lease(30)
    queue.clock.advance(0.5)
    queue.settle(failing, *[FAIL] * 30, payloads=[AWAY] * 30)
    queue.clock.advance(0.4)
    queue.ack(before)

    assert leased(queue) == 0


def test_calls_that_are_refused_together_wait_once(desk: Any) -> None:
    """Each of a hundred doubled the wait of those before it."""
    queue = desk(99)
    settle(queue, 50, REFUSED, b"0.0 429")

    assert queue.shard.next_deadline() == queue.clock.monotonic() + 1.0


def test_a_service_that_never_answered_is_no_outage(desk: Any) -> None:
    """Its address may be wrong: the run would wait for ever, where `stop_if` says what fails."""
    queue = desk(100)
    settle(queue, 50, FAIL, AWAY)

    assert leased(queue) == 50
    assert len(queue.shard.lanes[RUN].trouble) == 50


def test_documents_that_fail_in_other_ways_make_no_outage(desk: Any) -> None:
    """`stop_if` judges those: time does not mend them."""
    queue = desk(100)
    settle(queue, 50, FAIL, AWAY.replace(b'"503"}', b'""}'))

    assert leased(queue) == 50


@pytest.mark.parametrize("outcome", [ACK, FAIL])
def test_a_call_that_was_answered_raises_the_level_whatever_the_function_makes_of_it(desk: Any, outcome: int) -> None:
    """A function that failed for half of its documents took three times as long as one that did not."""
    queue = desk(99, ADAPTIVE)
    start = queue.shard.lanes[RUN].flow.level.whole
    settle(queue, start, outcome, AWAY.replace(b'"503"}', b'""}'))

    assert queue.shard.lanes[RUN].flow.level.whole == start + start // 2


@pytest.mark.parametrize(
    ("terms", "payload", "now"),
    [
        (ADAPTIVE, b"30.0", 0),
        (ADAPTIVE, b"30.0 only", 8),
        (None, b"30.0", 9),
    ],
)
def test_later_holds_all_of_a_limited_run_unless_it_is_about_one_message(
    desk: Any, terms: FlowTerms | None, payload: bytes, now: int
) -> None:
    """A busy service is busy for everybody; in a run without terms nothing but the message waits, as ever."""
    queue = desk(10, terms)
    settle(queue, 1, NACK, payload)

    assert leased(queue) == now


def test_lanes_that_name_one_limit_share_it(desk: Any) -> None:
    """Two runs that call one service are one customer there."""
    queue, other = desk(50, FlowTerms(rates=(RateLimit(60, 60.0, "llm"),))), b"another-run-----"
    queue.ledger.open(
        {
            "run": other,
            "record": {"name": "o", "codes": [], "flow": {"rate": {"calls": 60.0, "period": 60.0, "name": "llm"}}},
        }
    )
    queue.put(50, run=other)
    began = 0
    for _ in range(300):
        queue.clock.advance(0.1)
        began += leased(queue)

    assert 27 <= began <= 31


def test_a_flow_says_what_holds_it_back_and_what_it_has_changed(desk: Any) -> None:
    """With the reasons, and no more of them than one can read."""
    queue = desk(99, FlowTerms(adaptive=Adaptive(), rates=(RateLimit(6000, 60.0),)))
    flow = queue.shard.lanes[RUN].flow
    assert flow.binds(queue.clock.monotonic(), 0) == ""
    leased(queue)
    assert flow.binds(queue.clock.monotonic(), 1) == "the limit of calls"
    queue.clock.advance(60.0)
    assert flow.binds(queue.clock.monotonic(), 8) == "calls at once, which still grow"
    for _ in range(50):
        settle(queue, 1, REFUSED, b"30.0 429 slow down")
        assert flow.binds(queue.clock.monotonic(), 0) == "the service"
        queue.clock.advance(30.0)

    assert [why for _, why in flow.moves][-1] == "waits 30 s: 429 slow down"
    assert len(flow.moves) == 20
    assert flow.binds(queue.clock.monotonic(), 8) == "what the service allows"


def test_eight_consumers_use_a_limit_and_no_minute_has_more_whoever_dies(desk: Any) -> None:
    """500 a minute, with calls that take five seconds."""
    queue, random = desk(5000, FlowTerms(rates=(RateLimit(500, 60.0),))), Random(1)
    began, flying = list[float](), deque[tuple[float, Any]]()
    for tick in range(2400):
        queue.clock.advance(0.05)
        consumer = f"c{tick % 8}"
        while flying and flying[0][0] <= tick:
            lease = flying.popleft()[1]
            if lease.id in queue.shard.leases:
                queue.shard.settle(queue.settlement(lease, [ACK] * len(queue.ids(lease))))
        if random.random() < 0.01:
            queue.shard.release(consumer)
        lease = queue.shard.lease(consumer, 20)
        if lease is not None:
            began += [tick / 20] * len(queue.ids(lease))
            flying.append((tick + 100, lease))
    inside = [bisect_left(began, at + 60) - place for place, at in enumerate(began)]

    assert max(inside) <= 500
    assert len(began) >= 0.98 * 500 * 120 / 60


def test_a_limit_of_less_than_a_call_in_a_leases_time_costs_no_delivery(desk: Any) -> None:
    """Messages wait for it in the queue and not with a consumer, and the shard wakes in time."""
    queue, began = desk(3, FlowTerms(rates=(RateLimit(1, 86_400.0),))), list[float]()
    while (lease := queue.shard.lease("c", 9)) is not None:
        began.append(queue.clock.monotonic())
        queue.ack(lease)
        queue.clock.advance((queue.shard.next_deadline() or began[-1]) - began[-1])

    assert len(began) == 3
    assert 86_400 <= began[-1] - began[-2] < 86_400 * 1.02
    assert queue.shard.leases_lost == 0


@pytest.mark.parametrize("jump", [-86_400.0, -1.0, 86_400.0])
def test_a_clock_that_jumps_lets_no_more_through_than_a_burst(jump: float) -> None:
    """And backwards, it lets through what it would have."""
    rate, now = Rate(RateLimit(500, 60.0), 0.0), 0.0
    for _ in range(100):
        now += 1.0
        rate.take(rate.room(now, 0) or 0, now)
    now += jump

    assert (rate.room(now, 0) or 0) <= 1 + 500 * 0.1 / 60
    assert rate.opens(now) >= now
    passed = 0
    for _ in range(60 if jump > 0 else 0):
        now += 1.0
        n = rate.room(now, 0) or 0
        rate.take(n, now)
        passed += n
    assert passed <= 500


def test_the_last_rate_of_a_name_holds_for_all_that_name_it(desk: Any) -> None:
    """Two runs may give it another one."""
    queue, other = desk(5, FlowTerms(rates=(RateLimit(60, 60.0, "llm"),))), b"another-run-----"
    flow = FlowTerms(rates=(RateLimit(6, 60.0, "llm"),)).record()
    queue.ledger.open({"run": other, "record": {"name": "o", "codes": [], "flow": flow}})

    assert queue.ledger.book(RUN).report(RUN, 0.0).pace == "6 calls in 60 s"


def test_rows_that_wait_for_their_part_of_a_sink_are_no_calls(desk: Any) -> None:
    """Others begin meanwhile, and what they have cost is still reserved."""
    queue = desk(99, FlowTerms(most=5, budget=Budget(8, "eur", reserve=1)))
    first = queue.lease(5)
    assert leased(queue) == 0
    queue.shard.note_answered(first.id, 4)
    second = queue.lease(9, consumer="dies")
    assert len(queue.ids(second)) == 3, "the budget pays for eight"
    queue.shard.note_answered(second.id, 3)
    queue.ack(first)
    assert queue.shard.lanes[RUN].flow.waiting == 3
    queue.shard.release("dies")

    assert queue.shard.lanes[RUN].flow.waiting == 0
    assert sum(leased(queue) for _ in range(9)) == 5


def test_a_level_learns_when_calls_are_answered_and_once_where_their_rows_wait(desk: Any) -> None:
    """The wait for a part says nothing about the service."""
    queue = desk(99, ADAPTIVE)
    lease = queue.lease(8)
    queue.clock.advance(0.1)
    queue.shard.note_answered(lease.id, 8)
    level = queue.shard.lanes[RUN].flow.level
    assert level.whole == 12
    queue.clock.advance(5.0)
    queue.ack(lease)

    assert level.whole == 12
    assert level._latency == pytest.approx(0.1)
