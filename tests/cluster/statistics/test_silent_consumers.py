"""A worker that is stopped, or whose host is, reports nothing: what its consumers were doing is not what they do."""

from __future__ import annotations

import pytest

from dqlab.stats import RunState, Severity
from dqlab.stats.eta import Effort
from tests.cluster.reports import lane_report
from tests.cluster.statistics.test_collector import Hall, counts, kinds


def at_work(hall: Hall, consumers: int = 1) -> None:
    """Report for half a minute a run that goes on."""
    begun, effort = hall.clock.wall(), Effort()
    for second in range(30):
        acked = 20 * second
        lane = lane_report(
            "r",
            counts=counts(2000 - acked, leased=20, acked=acked),
            total=2020,
            started=begun,
            effort=effort.to_list(),
        )
        hall.shard("a", lane)
        for number in range(consumers):
            hall.consumer("a", 2 * number, leased=10, busy=float(second), oldest=["x.pdf", 0.05, lane.run])
        for _ in range(20):
            effort.add(0.05, 1, 1)
        hall.after(1)
    hall.collector.look()
    hall.collector.hear({})


def silent(hall: Hall, *workers: str, seconds: float) -> None:
    """Let time pass in which some workers send no heartbeat."""
    for _ in range(int(seconds)):
        hall.after(1)
        hall.collector.look()
        silent_for = hall.clock.monotonic() - hall.since
        hall.collector.hear(dict.fromkeys(workers, silent_for))


def test_a_run_whose_only_consumer_is_silent_waits_and_has_no_end(hall: Hall) -> None:
    """For 110 s views showed it as running, and at each look as done "in 45 to 75 s"."""
    at_work(hall)
    assert hall.see("a", "r").runs[0].eta is not None
    hall.since = hall.clock.monotonic()
    heard = hall.clock.wall()
    silent(hall, "w-0", seconds=20)

    snapshot = hall.see("a", "r")
    (run,), (queue,), (consumer,) = snapshot.runs, snapshot.queues, snapshot.consumers

    assert (run.state, run.consumers, run.rate, run.eta) == (RunState.WAITING, 0, None, None)
    assert run.unanswered
    assert run.why.startswith("no consumer answers since ")
    assert run.why.endswith(": c0 on worker w-0")
    assert (queue.state, queue.why, queue.empty_in) == ("waiting", run.why, None)
    assert consumer.silent == pytest.approx(20.0)
    assert hall.clock.wall() - heard == pytest.approx(20.0)


def test_it_needs_the_user_after_30_s_though_all_is_leased_or_no_lease_is(hall: Hall) -> None:
    """After the leases had ended it was "Needs you 0, nothing now", and "no consumer" never came."""
    at_work(hall)
    hall.since = hall.clock.monotonic()
    silent(hall, "w-0", seconds=29)
    assert kinds(hall.see()) == []
    silent(hall, "w-0", seconds=2)

    (need,) = hall.see().attention

    assert (need.kind, need.severity, need.subject) == ("no-answer", Severity.PROBLEM, "a")
    assert need.text.startswith("has no consumer that answers since ")
    assert need.detail == "c0 on worker w-0 silent for 31 s · 1,440 messages left"
    hall.shard("a", lane_report("r", counts=counts(leased=20, acked=2000), total=2020, started=1.0))
    silent(hall, "w-0", seconds=2)
    assert kinds(hall.see()) == ["no-answer"]


def test_one_silent_consumer_of_two_is_named_and_the_run_goes_on(hall: Hall) -> None:
    at_work(hall, 2)
    hall.since = hall.clock.monotonic()
    silent(hall, "w-1", seconds=35)

    snapshot = hall.see("a", "r")

    assert (snapshot.runs[0].state, snapshot.runs[0].consumers) == (RunState.RUNNING, 1)
    assert [(need.kind, need.subject, need.text) for need in snapshot.attention] == [
        ("silent", "c2", "has not answered for 35 s")
    ]


def test_a_consumer_that_answers_again_works_again(hall: Hall) -> None:
    at_work(hall)
    hall.since = hall.clock.monotonic()
    silent(hall, "w-0", seconds=40)
    silent(hall, seconds=1)

    snapshot = hall.see("a", "r")

    assert (snapshot.runs[0].state, snapshot.runs[0].why) == (RunState.RUNNING, "")
    assert kinds(snapshot) == []


def test_silence_that_is_the_schedulers_own_counts_for_nothing(hall: Hall) -> None:
    """It was stopped, or its machine was asleep: no heartbeat was read meanwhile."""
    at_work(hall)
    hall.after(50)
    hall.collector.look()
    hall.collector.hear({"w-0": 50.0})

    assert hall.see("a", "r").runs[0].state is RunState.RUNNING


def test_functions_that_hold_the_interpreter_for_long_do_not_make_their_worker_silent(hall: Hall) -> None:
    """Documents of 12 s each, in native code: no heartbeat comes while one runs, and the run goes on."""
    effort = Effort()
    for _ in range(20):
        effort.add(12.0, 1, 1)
    hall.shard("a", lane_report("r", counts=counts(99, leased=1, acked=20), total=120, effort=effort.to_list()))
    hall.consumer("a", 0, leased=1)
    hall.collector.look()
    hall.since = hall.clock.monotonic()
    silent(hall, "w-0", seconds=15)

    assert hall.see("a", "r").runs[0].state is RunState.RUNNING
