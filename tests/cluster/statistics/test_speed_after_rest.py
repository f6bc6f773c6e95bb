"""A run that rested goes on at the speed it had: its estimate is right or not known yet, and never boldly wrong.

A run of constant speed is played to the collector as actors report it: every 250 ms while something changes, and not
at all while nothing does. The clock is moved by hand.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.cluster.statistics.collector import Collector
from dqlab.stats import ConsumerStats, RunState, RunStats
from dqlab.stats.eta import Effort
from dqlab.testing import FakeClock
from tests.cluster.reports import consumer_report, lane_report, shard_report
from tests.kit.sampled import examples

EVERY = 0.25
SECONDS = 0.1
"""Seconds of a slot that each document takes."""


class Play:
    """One run over `slots` consumers of one slot each."""

    def __init__(self, documents: int = 10_000, slots: int = 2) -> None:
        self.clock = FakeClock()
        self.collector = Collector(clock=self.clock)
        self.documents, self.slots = documents, slots
        self.begun = self.clock.wall()
        self.done, self.effort = 0.0, Effort()
        self.by: dict[int, int] = {}
        self.waits = documents
        """Documents that were submitted, or not delayed."""
        self.report()

    @property
    def speed(self) -> float:
        return self.slots / SECONDS

    def report(self, *, works: bool = True, shard: dict[str, Any] | None = None, **lane: Any) -> None:
        """Send how it stands now."""
        done = int(self.done)
        leased = self.slots if works and done < self.waits else 0
        for number in range(self.slots):
            mine = self.by.get(number, 0)
            busy = mine * SECONDS
            held = {"leased": leased // self.slots if leased else 0}
            self.collector.take(consumer_report("a", number, done=mine, units=mine, busy=busy, **held))
        sealed = lane.get("sealed", True)
        total = self.documents if sealed else None
        counts = [self.waits - done - leased, self.documents - self.waits if sealed else 0, leased, done, 0, 0, 0]
        stands = {"counts": counts, "total": total, "started": self.begun, "effort": self.effort.to_list()} | lane
        self.collector.take(shard_report("a", lane_report("r", **stands), **(shard or {})))

    def work(self, seconds: float, **lane: Any) -> None:
        """Let it work, and report four times a second."""
        for _ in range(round(seconds / EVERY)):
            self.clock.advance(EVERY)
            before = int(self.done)
            self.done = min(self.done + self.speed * EVERY, self.waits)
            for at in range(before, int(self.done)):
                self.effort.add(SECONDS, 1, 1)
                self.by[at % self.slots] = self.by.get(at % self.slots, 0) + 1
            self.report(**lane)

    def rest(self, seconds: float, **stands: Any) -> None:
        """Keep it from work for some seconds: one report at their start, one at their end."""
        self.report(works=False, **stands)
        self.clock.advance(seconds)
        self.report()

    def scale(self, slots: int, after: float) -> None:
        """Take all consumers away, and come back with so many."""
        self.collector.forget([f"consumer/a/{number}" for number in range(self.slots)])
        self.clock.advance(after)
        self.slots, self.by = slots, {}
        self.report()

    @property
    def run(self) -> RunStats:
        return self.collector.snapshot("a", "r").runs[0]

    @property
    def consumers(self) -> list[ConsumerStats]:
        return list(self.collector.snapshot("a", "r").consumers)

    @property
    def ends_in(self) -> float | None:
        eta = self.run.eta
        return None if eta is None else eta.p50 - self.clock.wall()

    @property
    def ends_truly_in(self) -> float:
        return (self.documents - self.done) / self.speed


PAUSED = {"paused": True}
RESTS: list[Any] = [
    pytest.param(PAUSED, id="a person pauses the run"),
    pytest.param({"halted": "more than 5 % failed"}, id="the run pauses itself"),
    pytest.param({"stopped": True}, id="no room for results"),
    pytest.param({"shard": {"state": "paused"}}, id="its queue is paused"),
    pytest.param({"shard": {"short": "the disk is full"}}, id="its store confirms nothing"),
]


@pytest.mark.parametrize("rest", RESTS)
def test_two_seconds_after_a_rest_a_young_run_has_an_estimate_that_leaves_the_rest_out(rest: dict[str, Any]) -> None:
    """It said 27 minutes where one was left, in a band of one minute, two seconds after a pause."""
    play = Play(documents=1680)
    play.work(22)
    play.rest(60, **rest)
    play.work(2)

    assert play.ends_in == pytest.approx(play.ends_truly_in, rel=0.1)
    assert play.run.rate == pytest.approx(20, rel=0.1)
    assert not any(each.slow for each in play.consumers)
    assert len({each.rate for each in play.consumers}) == 1  # of the last minute, rest and all, as the queue's own

    play.work(10)

    assert play.ends_in == pytest.approx(play.ends_truly_in, rel=0.1)


def test_the_time_in_which_a_run_was_paused_is_known_beside_its_speed_over_all_of_it() -> None:
    """ "Speed, whole run" was 4 documents/s after a night of pause, and nothing said why."""
    play = Play(documents=400)
    play.work(10)
    play.rest(600, **PAUSED)
    play.work(5)
    play.rest(30, halted="more than 5 % failed")
    play.rest(5, shard={"short": "the disk is full"})
    play.work(5, ended=play.clock.wall() + 5)

    run = play.run
    assert run.state is RunState.DONE
    assert run.paused == pytest.approx(630)
    assert run.mean_rate == pytest.approx(400 / 655, rel=0.01)


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_after_a_scale_from_nothing_the_estimate_is_that_of_the_consumers_there_are(slots: int) -> None:
    """The speed of before says how fast a consumer is, and the number of consumers is known at once."""
    play = Play(slots=2)
    play.work(40)
    play.scale(slots, after=60)
    play.work(2)

    assert play.ends_in == pytest.approx(play.ends_truly_in, rel=0.15)


@pytest.mark.parametrize("meanwhile", [0, 600], ids=["all stood still", "consumers went on"])
def test_time_in_which_the_scheduler_was_stopped_counts_in_no_speed(meanwhile: int) -> None:
    """A stopped kernel reads all reports of a minute at once when it goes on; they are no burst, and no standstill."""
    play = Play()
    for _ in range(160):
        play.collector.look()
        play.work(EVERY)
    play.clock.advance(60)
    for _ in range(meanwhile // 20):
        for at in range(20):
            play.effort.add(SECONDS, 1, 1)
            play.by[at % play.slots] += 1
        play.done += 20
        play.report()
    for _ in range(20):
        play.collector.look()
        play.work(EVERY)

    assert play.ends_in == pytest.approx(play.ends_truly_in, rel=0.1)
    assert play.run.rate == pytest.approx(20, rel=0.1)
    assert not any(each.slow for each in play.consumers)
    assert len({each.rate for each in play.consumers}) == 1  # of the last minute, rest and all, as the queue's own


def test_a_queue_that_was_paused_is_empty_when_it_would_have_been() -> None:
    """Plain messages have no estimate of a run; the time until they are done comes from the queue's speed alone."""
    collector, clock = Collector(clock=FakeClock()), FakeClock()
    collector.known.clock = clock
    collector.take(consumer_report("a", leased=1))
    done = 0
    for second in range(66):
        if second:
            clock.advance(60 if second == 61 else 1)
            done += 0 if second == 61 else 10
        lane = lane_report(None, sealed=False, counts=[2000 - done - 1, 0, 1, done, 0, 0, 0])
        state = "paused" if second == 60 else "running"
        collector.take(shard_report("a", lane, state=state, lag=5.0))

    queue = collector.snapshot().queues[0]

    assert queue.out_rate == pytest.approx(40 / 60, rel=0.05)  # what has left in the last minute
    assert queue.empty_in == pytest.approx((2000 - done) / 10, rel=0.05)


rests = st.tuples(st.floats(0.5, 50), st.floats(0.3, 400), st.sampled_from([case.values[0] for case in RESTS]))


@pytest.mark.long
@settings(max_examples=examples(15), deadline=None)
@given(st.lists(rests, min_size=1, max_size=4), st.sampled_from([1, 3]))
def test_whatever_the_pauses_the_estimate_is_right_or_not_known_yet(
    rests: list[tuple[float, float, dict[str, Any]]], slots: int
) -> None:
    """Five seconds after each resume of a run of constant speed."""
    play = Play(documents=60_000, slots=slots)
    for works, seconds, rest in rests:
        play.work(works)
        play.rest(seconds, **rest)
        play.work(5)

        assert play.run.state is RunState.RUNNING
        assert play.ends_in is None or play.ends_in == pytest.approx(play.ends_truly_in, rel=0.3)


@pytest.mark.parametrize("rest", [2, 600])
@pytest.mark.parametrize("weights", [None, 3])
def test_the_speed_after_a_retry_has_its_first_burst_and_nothing_from_before(rest: float, weights: int | None) -> None:
    """93 documents that were settled in 3 s were 3.04/s: the first report after the retry had most of them."""
    clock = FakeClock()
    collector = Collector(clock=clock)

    def report(ready: int, acked: int, dead: int, revived: int) -> None:
        counts = [ready, 0, 0, acked, dead, 0, 0]
        again = [revived, revived * (weights or 0)]
        units = None if weights is None else [weights * count for count in counts]
        lane = lane_report("r", counts=counts, units=units, revived=again, total=5000, sealed=True)
        collector.take(shard_report("a", lane))
        collector.take(consumer_report("a", leased=min(1, ready)))
        collector.snapshot()

    report(5000, 0, 0, 0)
    clock.advance(1)
    report(0, 0, 5000, 0)
    clock.advance(rest)
    report(7, 80, 4913, 100)
    clock.advance(2)
    report(1, 85, 4914, 100)

    run = collector.snapshot("a", "r").runs[0]

    assert run.rate == pytest.approx(99 / 3, rel=0.02)
    assert run.units_rate == (None if weights is None else pytest.approx(weights * 99 / 3, rel=0.02))
    assert sum(each or 0.0 for each in collector.history(60, "a", whole=True).out_rate) == pytest.approx(
        99 + (5000 if rest < 60 else 0), abs=0.5
    )


def test_what_failed_in_the_last_minute_still_has_when_its_run_is_dropped() -> None:
    """`%dq history` said "last 60 s 0, most 27 per minute"."""
    collector, clock = Collector(clock=FakeClock()), FakeClock()
    collector.known.clock = clock

    def report(*lanes: tuple[str, int, int]) -> None:
        made = [
            lane_report(name, counts=[0, 0, 0, acked, dead, 0, 0], failed=dead, total=acked + dead, sealed=True)
            for name, acked, dead in lanes
        ]
        collector.take(shard_report("a", *made))

    report(("kept", 0, 0), ("dropped", 0, 0))
    clock.advance(10)
    report(("kept", 100, 3), ("dropped", 400, 27))
    clock.advance(10)
    report(("kept", 100, 3))
    clock.advance(10)
    report(("kept", 160, 3))

    now = collector.history(60, "a").now

    assert 60 * (now.failure_rate or 0.0) == pytest.approx(30, abs=0.01)
    assert 30 * (now.out_rate or 0.0) == pytest.approx(100 + 3 + 400 + 27 + 60, abs=0.01)
