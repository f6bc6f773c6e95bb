"""What the scheduler makes of reports: every number that views draw, from clocks moved by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dqlab.cluster.statistics.collector import Collector, thresholds
from dqlab.errors import BadOption, MessageTimeout
from dqlab.failures.failure import class_name
from dqlab.stats import RunState, Severity, Snapshot
from dqlab.stats.attention import Thresholds
from dqlab.stats.eta import Effort
from dqlab.testing import FakeClock
from tests.cluster.reports import consumer_report, failure_class, lane_report, shard_report


class Hall:
    """A collector and its clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.collector = Collector(clock=self.clock)
        self.since = 0.0
        self.worked: dict[int, int] = {}

    def shard(self, queue: str = "pages", *lanes: dict[str, Any], **more: Any) -> None:
        self.collector.take(shard_report(queue, *lanes, **more))

    def consumer(self, queue: str = "pages", number: int = 0, **more: Any) -> None:
        self.collector.take(consumer_report(queue, number, **more))

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def see(self, queue: str = "", run: str = "") -> Snapshot:
        snapshot = self.collector.snapshot(queue, run)
        assert Snapshot.from_dict(json.loads(json.dumps(snapshot.to_dict()))).to_dict() == snapshot.to_dict()
        return snapshot


def counts(ready: int = 0, delayed: int = 0, leased: int = 0, acked: int = 0, dead: int = 0) -> list[int]:
    return [ready, delayed, leased, acked, dead, 0, 0]


def kinds(snapshot: Snapshot) -> list[str]:
    return [need.kind for need in snapshot.attention]


# --- sums -----------------------------------------------------------------------------------


def test_shards_lanes_and_queues_add_up(hall: Hall) -> None:
    hall.shard("a", lane_report("one", counts=counts(1, acked=2)), lane_report("two", counts=counts(4)), shard=0)
    hall.shard("a", lane_report("one", counts=counts(8)), shard=1)
    hall.shard("b", lane_report("three", counts=counts(16, dead=5)))

    snapshot = hall.see()

    assert {queue.name: queue.counts.ready for queue in snapshot.queues} == {"a": 13, "b": 16}
    assert snapshot.totals.counts.ready == 29
    assert snapshot.totals.counts.dead == snapshot.failures.dead == 5
    assert {run.name: run.counts.all for run in snapshot.runs} == {"one": 11, "two": 4, "three": 21}


def test_the_report_of_an_older_epoch_is_passed_over(hall: Hall) -> None:
    """It comes from one that was presumed dead, and replaced."""
    hall.shard("a", lane_report("r", counts=counts(5)), epoch=2)
    hall.shard("a", lane_report("r", counts=counts(99)), epoch=1)

    assert hall.see().totals.counts.ready == 5


def test_a_snapshot_of_a_queue_has_its_consumers_leases_and_failures_alone(hall: Hall) -> None:
    for queue, dead in (("a", 1), ("b", 2)):
        classes = [failure_class(dead=dead, failed=dead)]
        hall.shard(
            queue, lane_report(f"run-{queue}", counts=counts(9, dead=dead), classes=classes), held=[[1, 50, 60, 3]]
        )
        hall.consumer(queue, dead)

    snapshot = hall.see("b")

    assert snapshot.failures.dead == 2
    assert [consumer.name for consumer in snapshot.consumers] == ["c2"]
    assert snapshot.unacked.total == 3
    assert snapshot.queues_total == 2
    assert hall.see().unacked.total == 6


def test_failure_classes_name_the_versions_that_made_them(hall: Hall) -> None:
    """Of a run that has v2 by now, at work or at rest, as its own class and as one of its queue."""
    dead = [failure_class("old", dead=1), failure_class("both", dead=2, codes=["a41f9c", "b00000"])]
    codes = [["parse", "a41f9c"], ["parse", "b00000"]]
    for ended in (None, 5.0):
        lane = lane_report("r", counts=counts(dead=3), classes=dead, codes=codes, ended=ended)
        hall.shard("a", lane)

        shown = hall.see("a", "r")
        for classes in (shown.runs[0].classes, shown.failures.classes, hall.see("a").failures.classes):
            assert {each.fingerprint: each.versions for each in classes} == {
                "old": ("parse v1",),
                "both": ("parse v1", "parse v2"),
            }


def test_failure_classes_are_listed_for_the_run_that_was_asked_for(hall: Hall) -> None:
    """Those of twenty runs would make the Snapshot large, and nobody reads them there."""
    hall.shard("a", lane_report("r", counts=counts(dead=1), classes=[failure_class(dead=1, failed=4)]))

    assert hall.see().runs[0].classes == ()
    assert hall.see().runs[0].classes_total == 1
    assert [entry.failed for entry in hall.see("a", "r").runs[0].classes] == [4]


def test_documents_that_fail_most_come_first(hall: Hall) -> None:
    failing = [["a.pdf", "KeyError", 2, 7], ["b.pdf", class_name(MessageTimeout), 5, None]]
    hall.shard("a", lane_report("r", failing=failing))

    first, second = hall.see().failures.documents

    assert (first.key, first.error, first.deliveries, first.limit) == ("b.pdf", "MessageTimeout", 5, 5)
    assert (second.key, second.pages) == ("a.pdf", 7)


# --- time -----------------------------------------------------------------------------------


def test_ages_of_leases_grow_between_reports(hall: Hall) -> None:
    """A consumer that hangs reports nothing; its lease gets older all the same."""
    lane = lane_report("r", counts=[0, 0, 2, 0, 0, 0, 0])
    hall.shard("a", lane, held=[[0.5, 59.5, 60, 2]], oldest=[["consumer/a/5#0", 0.5, 59.5, 2, 3, 1]])
    hall.consumer("a", 5, leased=2, oldest=["ledger.pdf", 0.4])
    assert hall.see("a").unacked.age_bins[0] == 2
    hall.after(40)

    unacked = hall.see("a").unacked

    assert unacked.age_bins[6] == 2
    assert unacked.ending_20s == 2
    assert unacked.oldest_delivery == pytest.approx(40.5)
    assert unacked.oldest[0].age == pytest.approx(40.4)
    (held,) = unacked.oldest
    assert (held.consumer, held.document, held.renewals) == ("c5", "ledger.pdf", 3)
    assert held.ends_in == pytest.approx(19.5)
    assert hall.see("a").consumers[0].oldest_age == pytest.approx(40.4)


def test_redeliveries_are_those_of_the_last_ten_minutes(hall: Hall) -> None:
    hall.shard("a", redelivered=100, leases_lost=10)
    hall.after(1)
    hall.shard("a", redelivered=107, leases_lost=11)
    seen = hall.see("a").unacked
    hall.after(1000)
    hall.shard("a", redelivered=107, leases_lost=11)

    assert (seen.redelivered_10m, seen.leases_lost_10m) == (7, 1)
    assert hall.see("a").unacked.redelivered_10m == 0


def test_history_says_what_happened_and_when(hall: Hall) -> None:
    for second in range(0, 600, 5):
        hall.shard("a", lane_report("r", counts=counts(600 - second, acked=second)))
        hall.after(5)

    history = hall.collector.history(300, "a", "r")

    assert history.step == 1
    assert len(history.ready) == 301
    assert history.ready[-1] == history.units_left[-1] == 5
    assert history.ready[0] == pytest.approx(305, abs=5)
    assert sum(rate or 0 for rate in history.out_rate) == pytest.approx(300, abs=6)


def test_failures_are_counted_by_minute_and_class(hall: Hall) -> None:
    hall.shard("a", lane_report("r", classes=[failure_class("k", failed=3)]))
    hall.after(120)
    hall.shard("a", lane_report("r", classes=[failure_class("k", failed=8)]))

    assert hall.collector.history(600, "a").classes["k"][-3:] == (3, 0, 5)


# --- the end of a run -----------------------------------------------------------------------


def test_the_estimate_is_pages_left_over_the_speed(hall: Hall) -> None:
    begun, effort = hall.clock.wall(), Effort()
    for second in range(61):
        hall.shard(
            "a",
            lane_report(
                "r",
                counts=counts(1000 - second, acked=second),
                units=counts(4000 - 4 * second, acked=4 * second),
                total=1000,
                started=begun,
                effort=effort.to_list(),
            ),
        )
        hall.consumer("a", 0, leased=1, busy=float(second))
        effort.add(1.0, 4, 1)
        hall.after(1)

    eta = hall.see("a", "r").runs[0].eta

    assert eta is not None
    assert eta.p50 - hall.clock.wall() == pytest.approx(940, rel=0.05)
    assert eta.p10 <= eta.p50 <= eta.p90


@pytest.mark.parametrize(
    "more", [{"paused": True}, {"sealed": False}, {"started": 1e12}], ids=["paused", "open", "young"]
)
def test_there_is_no_estimate_while_it_would_mislead(hall: Hall, more: dict[str, Any]) -> None:
    effort = Effort()
    for _ in range(50):
        effort.add(1.0, 1, 1)
    lane = lane_report("r", counts=counts(50, acked=50), total=100, effort=effort.to_list())
    hall.consumer("a")
    hall.shard("a", lane)
    hall.after(60)
    hall.shard("a", replace(lane, **more))

    assert hall.see("a", "r").runs[0].eta is None


def nearly_done(hall: Hall, *, held: float, ready: int = 0, seconds: float = 1.0) -> Snapshot:
    """Return a snapshot of a run of 101 documents that has held the last one for some seconds."""
    begun, effort = hall.clock.wall(), Effort()
    for acked in range(101 - ready):
        lane = lane_report(
            "r",
            counts=counts(100 - acked, leased=1, acked=acked),
            total=101,
            started=begun,
            effort=effort.to_list(),
        )
        hall.shard("a", lane)
        hall.consumer("a", 0, leased=1, busy=hall.clock.wall() - begun, oldest=["last.pdf", held, lane.run])
        effort.add(seconds, 1, 1)
        hall.after(1)
    return hall.see("a", "r")


def test_a_run_that_waits_for_a_stuck_document_has_no_end(hall: Hall) -> None:
    """Beside "Waiting for 1 document, on c0 for 74 s" stood "Done in 1 s, 80 % sure": by what the others took."""
    snapshot = nearly_done(hall, held=74.0)

    assert snapshot.consumers[0].run == snapshot.runs[0].name
    assert snapshot.runs[0].eta is None
    assert snapshot.queues[0].empty_in is None


def test_an_estimate_leaves_out_how_long_a_stuck_document_was_held(hall: Hall) -> None:
    """52 documents that were retried behind one, at 29 a second, would be done "in 9 min"; they were in two seconds."""
    nearly_done(hall, held=74.0)
    begun, effort = hall.clock.wall() - 101, Effort()
    for _ in range(100):
        effort.add(1.0, 1, 1)
    for settled in range(65):
        retried = max(0, settled - 60)
        if retried:
            effort.add(1.0, 1, 1)
        some = counts(54 - retried, leased=1, acked=101 + retried) if retried else counts(0, leased=1, acked=100)
        lane = lane_report("r", counts=some, total=156, started=begun, effort=effort.to_list())
        hall.shard("a", lane)
        age = 1.0 if retried else 74.0 + settled
        hall.consumer("a", 0, leased=1, busy=100.0 + retried, oldest=["last.pdf", age, lane.run])
        eta = hall.see("a", "r").runs[0].eta
        hall.after(1)

    assert eta is not None
    assert eta.p50 - hall.clock.wall() == pytest.approx(50, rel=0.2)


@pytest.mark.parametrize(
    ("more", "stuck"),
    [({"held": 74.0}, True), ({"held": 30.0}, False), ({"held": 74.0, "ready": 4}, False)],
    ids=["alone", "for a while", "others wait"],
)
def test_a_run_that_has_nothing_left_but_a_document_that_needs_the_user_is_stuck(
    hall: Hall, more: dict[str, Any], stuck: bool
) -> None:
    """Each view judged by itself: beside "c0 held one document" the row of its run was that of a healthy one."""
    snapshot = nearly_done(hall, **more)

    assert snapshot.runs[0].stuck is stuck
    assert snapshot.consumers[0].stuck is (more["held"] > 60) is ("held" in kinds(snapshot))


def test_the_estimate_contains_a_document_that_is_held_for_long_while_others_wait(hall: Hall) -> None:
    """ "Done in 4 s" stood beside a document that had been held for six minutes."""
    run = nearly_done(hall, held=360.0, ready=4).runs[0]

    assert run.eta is not None
    ends = [end - hall.clock.wall() for end in (run.eta.p10, run.eta.p50, run.eta.p90)]
    assert ends == pytest.approx([40.0, 360.0, 3240.0], rel=0.05)


# --- what needs somebody --------------------------------------------------------------------


def test_work_that_is_not_taken_needs_the_user_after_30_s(hall: Hall) -> None:
    hall.shard("a", lane_report("r", counts=counts(5)), lag=1.0)
    assert kinds(hall.see()) == []
    hall.after(30)

    (need,) = hall.see().attention

    assert (need.kind, need.subject, need.action) == ("no-consumer", "a", "scale")
    assert hall.see().queues[0].why == "no consumer"
    assert hall.see().runs[0].state is RunState.WAITING


def test_a_consumer_far_below_the_median_is_slow_once_it_has_settled_in(hall: Hall) -> None:
    hall.shard("a", lane_report("r", counts=counts(500)))
    for second in (0, 20, 40):
        for number, speed in enumerate((60, 66, 63, 14)):
            hall.consumer("a", number, units=speed * second, leased=3)
        hall.after(20)
        if second == 0:
            assert kinds(hall.see()) == []

    snapshot = hall.see("a")

    assert [consumer.name for consumer in snapshot.consumers if consumer.slow] == ["c3"]
    assert "slow" in kinds(snapshot)
    assert snapshot.consumers[0].name == "c3"


def at_work(hall: Hall, seconds: int, *, held: bool = False) -> None:
    """Let three consumers do ten documents a second each; with `held`, the second one runs one document throughout."""
    for second in range(seconds):
        for number in range(3):
            if not (held and number == 1):
                hall.worked[number] = hall.worked.get(number, 0) + 10
            oldest = ("#77", second + 1.0) if held and number == 1 else None
            hall.consumer("a", number, units=hall.worked[number], leased=3, oldest=oldest)
        hall.after(1)


@pytest.mark.parametrize("rest", [0, 20, 90])
def test_a_consumer_whose_document_was_taken_from_it_is_not_slow_by_that_document(hall: Hall, rest: int) -> None:
    """After a stuck document was given up, and a rest, it was slow: "does 0.07/s, median 0.07/s"."""
    hall.shard("a", lane_report("r", counts=counts(500, leased=9)))
    at_work(hall, 40)
    at_work(hall, 50, held=True)
    hall.consumer("a", 1, units=hall.worked[1], leased=3)  # not yet remembered
    hall.after(0.25)
    hall.collector.took("consumer/a/1", "stuck.pdf")
    for number in range(3):
        hall.consumer("a", number, units=hall.worked[number], leased=0)
    hall.after(rest)

    for _ in range(40):
        at_work(hall, 1)
        assert not any(each.slow for each in hall.see("a").consumers)


def test_a_consumer_is_slow_by_the_speeds_that_are_shown(hall: Hall) -> None:
    """It was slow by its speed at work, and what was shown were speeds of the last minute, all alike."""
    hall.shard("a", lane_report("r", counts=counts(500, leased=9)))
    at_work(hall, 60)
    at_work(hall, 50, held=True)
    for number in range(3):
        hall.consumer("a", number, units=hall.worked[number], leased=0)
    hall.after(90)
    at_work(hall, 2)

    snapshot = hall.see("a")

    assert len({each.units_rate for each in snapshot.consumers}) == 1
    assert not any(each.slow for each in snapshot.consumers)


def held(snapshot: Snapshot) -> list[str | None]:
    """Return the documents that some view shows as held."""
    shown = [each.document for each in snapshot.consumers] + [each.document for each in snapshot.unacked.oldest]
    return [*filter(None, shown), *(need.detail for need in snapshot.attention if need.kind == "held")]


def test_a_document_that_was_taken_from_its_consumer_is_not_held_any_more(hall: Hall) -> None:
    """For 5 s after it was given up it "was held for 3 min 22 s", with a button to give it up."""
    hall.shard(
        "a", lane_report("r", counts=counts(ready=5, leased=3)), oldest=[("consumer/a/5#0", 90.0, 50.0, 1, 3, 1)]
    )
    hall.consumer("a", 5, leased=3, oldest=["stuck.pdf", 90.0])
    hall.after(1)
    assert held(hall.see("a")) == ["stuck.pdf"] * 3

    hall.collector.took("consumer/a/5", "stuck.pdf")
    assert held(hall.see("a")) == []
    hall.consumer("a", 5, leased=3, oldest=["stuck.pdf", 91.5])  # the function goes on for a while
    assert held(hall.see("a")) == []
    assert hall.see("a").consumer_troubles == ""

    hall.after(70)
    hall.consumer("a", 5, leased=3, oldest=["stuck.pdf", 65.0])  # and then the consumer gets it a second time
    assert held(hall.see("a")) == ["stuck.pdf"] * 3


def test_a_held_document_has_one_age_everywhere(hall: Hall) -> None:
    """It was held for six minutes as what needs the user, and for seven in the table below: since its delivery."""
    stuck, young = ("consumer/a/5#0", 420.0, 50.0, 1, 30, 1), ("consumer/a/6#0", 500.0, 50.0, 90, 30, 1)
    unknown = ("consumer/a/7#0", 430.0, 50.0, 2, 30, 1)
    hall.shard("a", lane_report("r", counts=counts(leased=93)), oldest=[stuck, young, unknown])
    hall.consumer("a", 5, leased=1, oldest=["acme/ledger.pdf", 360.0])
    hall.consumer("a", 6, leased=90, oldest=["b.pdf", 2.0])
    hall.after(70)

    snapshot = hall.see("a")

    (need,) = (need for need in snapshot.attention if need.subject == "c5")
    ages = [(held.document, round(held.age)) for held in snapshot.unacked.oldest]
    assert need.text == "held one document for 7 min 10 s"
    assert ages == [(None, 500), ("acme/ledger.pdf", 430), ("b.pdf", 72)]
    assert {each.document: each.oldest_age for each in snapshot.consumers if each.document} == dict(ages[1:])
    assert round(snapshot.unacked.oldest_delivery or 0) == 570


def test_a_failure_class_that_is_new_since_the_last_cell_needs_the_user(hall: Hall) -> None:
    hall.collector.mark("retry, parse v4", cell=15, queue="a")
    hall.after(10)
    first = hall.clock.wall()
    entry = failure_class(dead=1, failed=1, first=first, last=first)
    hall.shard("a", lane_report("r", counts=counts(5, acked=5000, dead=1), classes=[entry], total=5006))
    hall.consumer("a")

    (need,) = hall.see("a", "r").attention

    assert (need.severity, need.kind, need.action) == (Severity.PROBLEM, "failing", "retry")
    assert need.subject == "1 dead"
    assert "parse v1" in need.detail


def test_a_failure_class_of_a_hundredth_needs_the_user_and_a_smaller_one_does_not(hall: Hall) -> None:
    classes = [failure_class("large", dead=20, failed=20), failure_class("small", dead=5, failed=5)]
    hall.shard("a", lane_report("r", counts=counts(5, acked=1000, dead=25), classes=classes, total=1030))
    hall.consumer("a")

    assert [need.target for need in hall.see("a", "r").attention] == ["large"]


@pytest.mark.parametrize(("where", "kind"), [("short", "no-room"), ("failure", "store")])
def test_a_run_whose_store_confirms_nothing_waits_and_says_why(hall: Hall, where: str, kind: str) -> None:
    """It looked as if it ran, for ever."""
    hall.shard("a", lane_report("r", counts=[5, 0, 0, 0, 0, 0, 0]), **{where: "no room in /store."})
    hall.consumer("a", 0)

    seen = hall.see()

    assert (seen.runs[0].state, seen.runs[0].why) == ("waiting", "no room in /store.")
    assert (seen.queues[0].state, seen.queues[0].why) == ("waiting", "no room in /store.")
    assert kinds(seen)[0] == kind


def test_who_paused_a_queue_is_said(hall: Hall) -> None:
    hall.shard("a", lane_report("r", counts=counts(5)), state="paused")
    hall.collector.mark("pause", queue="a", by="by ana, 13:34")

    assert (hall.see().queues[0].state, hall.see().queues[0].why) == ("paused", "by ana, 13:34")


# --- size -----------------------------------------------------------------------------------


def test_a_snapshot_of_100_queues_and_200_consumers_stays_under_40_kB(hall: Hall) -> None:
    for number in range(100):
        classes = [failure_class(f"{number:08}", message="'total' is missing " * 10, dead=5, failed=9)]
        run = lane_report(
            f"parse-{number}", counts=counts(10**6, 10, 10, 10**6, 9), units=counts(10**7), classes=classes
        )
        hall.shard(f"queue-{number:03}", run, held=[[1.5, 58.5, 60, 9]], lag=12.345678)
    for number in range(200):
        hall.consumer(f"queue-{number % 100:03}", number, units=1, oldest=["a/long/path/to/a/document.pdf", 3.3])
    hall.after(61)

    snapshot = hall.see()

    assert len(json.dumps(snapshot.to_dict())) <= 40_000
    assert snapshot.queues_total == len(snapshot.queues) == 100
    assert snapshot.consumers_total == 200
    assert snapshot.totals.counts.ready == 10**8


def test_a_queue_of_a_run_that_was_submitted_whole_will_be_empty(hall: Hall) -> None:
    """All came within a moment, but nothing more will."""
    hall.consumer("a")
    for done in (0, 10, 20):
        lane = lane_report("r", counts=counts(ready=100 - done, acked=done))
        hall.shard("a", lane if done else lane_report("r"), lag=5.0)
        hall.after(1)

    queue = hall.see().queues[0]

    assert not queue.never_empty
    assert queue.empty_in == pytest.approx(80 / 6.7, rel=0.05)


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ({}, RunState.RUNNING),
        ({"counts": counts(acked=95, dead=5), "ended": 4.0}, RunState.DONE),
        ({"paused": True}, RunState.PAUSED),
        ({"stopped": True}, RunState.STOPPED),
    ],
)
def test_only_a_run_that_goes_on_has_the_speed_of_the_last_minute(
    hall: Hall, end: dict[str, Any], state: RunState
) -> None:
    """A run that had paused itself in the night showed the speed of the minute before it until the morning."""
    hall.consumer("a")
    for done in (0, 10, 20):
        lane = {"counts": counts(ready=95 - done, leased=5, acked=done)} | (end if done == 20 else {})
        hall.shard("a", lane_report("r", **lane))
        hall.after(1)

    run = hall.see("a", "r").own_run
    assert run is not None
    assert (run.state, run.rate is not None) == (state, state is RunState.RUNNING)


def test_a_queue_whose_run_is_held_up_does_not_run_and_has_no_end(hall: Hall) -> None:
    """The run waited for its sink, without an end, and beside it its queue was running, and empty in 15 s."""
    hall.consumer("a")
    for done in (0, 10, 20):
        more = {"held": "no space left"} if done == 20 else {}
        hall.shard("a", lane_report("r", counts=counts(ready=95 - done, leased=5, acked=done), **more), lag=5.0)
        hall.after(1)

    (queue,), (run,) = hall.see().queues, hall.see().runs
    assert (run.state, run.eta) == (RunState.WAITING, None)
    assert (queue.state, queue.why, queue.empty_in) == ("waiting", "sink refuses", None)


@pytest.mark.parametrize(
    ("lanes", "state", "why"),
    [
        ([("a", True, 5)], "waiting", "a is paused"),
        ([("a", True, 5), ("b", True, 1)], "waiting", "its runs are paused"),
        ([("a", True, 5), ("b", False, 1)], "running", ""),
        ([("a", True, 5), (None, False, 1)], "running", ""),
        ([("a", True, 0)], "empty", ""),
    ],
)
def test_a_queue_in_which_all_that_is_left_is_paused_does_not_run(
    hall: Hall, lanes: list[tuple[str | None, bool, int]], state: str, why: str
) -> None:
    """Its consumers had nothing to do, and it was shown as running."""
    hall.consumer("a")
    hall.shard("a", *(lane_report(name, counts=counts(ready=n, acked=9), paused=held) for name, held, n in lanes))

    assert (hall.see().queues[0].state, hall.see().queues[0].why) == (state, why)


def test_a_queue_into_which_more_is_put_than_leaves_will_never_be_empty(hall: Hall) -> None:
    hall.consumer("a")
    for second in range(4):
        hall.shard("a", lane_report(None, sealed=False, counts=counts(ready=10 * second, acked=5 * second)), lag=5.0)
        hall.after(1)

    queue = hall.see().queues[0]

    assert queue.never_empty
    assert queue.empty_in is None


def test_what_is_gone_is_forgotten(hall: Hall) -> None:
    """A notebook that maps and drops a thousand runs a day must not fill the scheduler's memory."""
    hall.shard("a", lane_report("one"), lane_report("two"))
    hall.consumer("a", 0)
    hall.after(2)
    hall.shard("a", lane_report("two"))
    hall.collector.forget(["consumer/a/0"])

    assert [run.name for run in hall.see().runs] == ["two"]
    assert len(hall.collector.known.of("a").runs) == 1
    assert not hall.collector.known.host_rings
    assert not hall.collector.known.consumers


# --- what may be configured -----------------------------------------------------------------


def test_thresholds_are_durations_and_shares() -> None:
    assert thresholds({"held": "2m", "slow": 0.5}) == Thresholds(held=120.0, slow=0.5)
    assert thresholds({}) == Thresholds()


@pytest.mark.parametrize(
    ("spoken", "said"),
    [({"hold": 1}, "There are: no-consumer"), ({"slow": 3}, "from 0 to 1"), ({"lag": "x"}, "not a duration")],
)
def test_a_threshold_that_is_none_is_named(spoken: dict[str, Any], said: str) -> None:
    with pytest.raises(BadOption, match=said) as caught:
        thresholds(spoken)

    assert f"dqlab.attention.{next(iter(spoken))}" in str(caught.value)


@pytest.mark.parametrize("ahead", [40.0, 2_000.0, 30 * 86_400.0])
def test_clock_that_was_ahead_for_one_report_costs_the_charts_nothing_else(hall: Hall, ahead: float) -> None:
    """A month ahead used to leave every chart empty for a month."""
    for n in range(60):
        hall.shard("a", lane_report("r", counts=counts(ready=100 - n, acked=n)))
        hall.consumer("a", units=n, done=n)
        hall.after(1)
    hall.clock.set_wall(hall.clock.wall() + ahead)
    hall.shard("a", lane_report("r", counts=counts(ready=40, acked=60)))
    hall.see("a")
    hall.clock.set_wall(hall.clock.wall() - ahead)
    for n in range(61, 90):
        hall.shard("a", lane_report("r", counts=counts(ready=100 - n, acked=n)))
        hall.after(1)

    for history in (hall.collector.history(60, "a"), hall.collector.history(60), hall.collector.history(60, "a", "r")):
        assert None not in history.ready
        assert history.ready[-1] == 11
        assert sum(rate or 0 for rate in history.out_rate) == pytest.approx(60, abs=2)
    assert hall.collector.history(60, "a", "r").units_left[-1] is not None


# --- figures beside a history -----------------------------------------------------------------


def burst(hall: Hall, queue: str = "a") -> None:
    """Send reports of 400 messages that are put in one second and settled in the next four, a hundred in each."""
    hall.shard(queue, lane_report("r", counts=counts(400)))
    for second in range(1, 5):
        hall.after(1)
        hall.shard(queue, lane_report("r", counts=counts(400 - 100 * second, acked=100 * second)))


@pytest.mark.parametrize("span", [30, 300, 1800, 7200, 86400])
@pytest.mark.parametrize("queue", ["a", ""])
@pytest.mark.parametrize("later", [0, 5, 45])
def test_figures_beside_a_history_are_those_of_now_and_the_largest_whatever_its_span(
    hall: Hall, span: float, queue: str, later: float
) -> None:
    """An empty queue had "now 324" for ten seconds, and 400 messages came at "most 0" a second."""
    hall.shard("b", lane_report("s"))
    hall.after(20.3)
    hall.collector.snapshot()
    burst(hall)
    hall.after(later)

    if later < 30 or span > 45:
        history = hall.collector.history(span, queue, whole=True)
        (stats,) = (each for each in hall.collector.snapshot().queues if each.name == "a")
        assert (history.now.waiting, history.now.unacked) == (0, 0)
        assert history.ready[-1] == 0
        assert (history.most.waiting, history.most.in_rate, history.most.out_rate) == (400, 400, 100)
        assert history.now.in_rate == pytest.approx(stats.in_rate or 0.0)
        assert history.now.out_rate == pytest.approx(stats.out_rate or 0.0)
        for rates in (history.in_rate, history.out_rate):
            assert sum(rate or 0 for rate in rates) * history.step == pytest.approx(400)


@pytest.mark.parametrize("queue", ["a", ""])
def test_failures_of_the_last_minute_are_a_count_also_of_a_young_queue(hall: Hall, queue: str) -> None:
    """100 deliveries had failed in all, within 26 s: "last 60 s 232, most 232 per minute"."""
    hall.shard("a", lane_report("r"))
    for failed in (50, 100):
        hall.after(13)
        hall.shard("a", lane_report("r", counts=counts(dead=failed), failed=failed))

    now = hall.collector.history(60, queue, whole=True).now.failure_rate

    assert now is not None
    assert 60 * now == pytest.approx(100)


def test_what_had_failed_in_a_reopened_queue_did_not_fail_now(hall: Hall) -> None:
    """All failures of last week were drawn in the minute in which the queue was opened again."""
    old = [failure_class("k", failed=61)]
    hall.shard("a", lane_report("r", classes=old), epoch=2)
    assert sum(hall.collector.history(600, "a").classes["k"]) == 0
    hall.after(60)

    hall.shard("a", lane_report("r", classes=[failure_class("k", failed=63), failure_class("new", failed=4)]), epoch=2)

    classes = hall.collector.history(600, "a").classes
    assert (classes["k"][-2:], classes["new"][-2:]) == ((0, 2), (0, 4))


def test_what_a_shard_held_that_is_reopened_after_another_did_not_come_in(hall: Hall) -> None:
    lanes = [lane_report("r", counts=counts(500, acked=700, dead=61), classes=[failure_class("k", failed=61)])]
    hall.consumer("a")
    hall.shard("a", *lanes, epoch=2, shard=0)
    hall.after(0.1)
    hall.shard("a", *lanes, epoch=2, shard=1)
    hall.after(3)

    history = hall.collector.history(60, "a", whole=True)
    (queue,) = hall.see("a").queues
    assert (history.most.in_rate, history.most.out_rate, sum(history.classes["k"])) == (0, 0, 0)
    assert (queue.in_rate, queue.out_rate, hall.see("a", "r").runs[0].rate) == (0, 0, 0)
