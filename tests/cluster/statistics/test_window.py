"""In, out and what consumers do are drawn side by side: each is the total of the last minute over that minute."""

from __future__ import annotations

import pytest

from tests.cluster.reports import lane_report
from tests.cluster.statistics.test_collector import Hall, counts, kinds


def step(hall: Hall, *, put: int, done: int, ready: int | None = None, **more: object) -> None:
    """Report a queue of plain puts in which so many came and so many were done in all, by two consumers."""
    hall.shard("a", lane_report(None, sealed=False, counts=counts(put - done, acked=done)), **more)
    for number, part in enumerate((done - done // 3, done // 3)):
        hall.consumer("a", number, done=part, units=part, leased=int(put > done))


def test_rates_of_a_queue_and_its_consumers_are_totals_of_one_minute(hall: Hall) -> None:
    """ "Speed, 60 s: 4.16, in 20.0 messages/s" stood in one figure, and consumers did twice of what left."""
    for second in range(200):
        busy = 600 if second >= 50 else 0
        step(hall, put=busy, done=busy)
        hall.after(1)
    step(hall, put=900, done=900)

    snapshot = hall.see("a")
    (queue,) = snapshot.queues

    assert queue.in_rate == queue.out_rate == pytest.approx(sum(each.rate or 0 for each in snapshot.consumers))
    assert queue.out_rate == pytest.approx(300 / 60)
    assert hall.see().totals.out_rate == queue.out_rate


def test_what_young_consumers_do_adds_up_to_what_leaves_their_queue(hall: Hall) -> None:
    """A consumer that was made three seconds ago had its speed over three seconds, under the label "60 s"."""
    for second in range(121):
        young = max(0, second - 117)  # three more from here on
        hall.shard("a", lane_report(None, sealed=False, counts=counts(9_000, acked=20 * second + 60 * young)))
        hall.consumer("a", 0, done=20 * second, units=20 * second, leased=1)
        for number in range(1, 4) if second >= 117 else ():
            hall.consumer("a", number, done=20 * young, units=20 * young, leased=1)
        hall.after(1)

    snapshot = hall.see("a")

    rates = sorted(each.rate or 0.0 for each in snapshot.consumers)
    assert rates == pytest.approx([1, 1, 1, 20], rel=0.05)
    assert sum(rates) == pytest.approx(snapshot.queues[0].out_rate)
    assert snapshot.queues[0].units_rate == pytest.approx(sum(each.units_rate or 0.0 for each in snapshot.consumers))
    assert snapshot.totals.units_rate == snapshot.queues[0].units_rate == pytest.approx(sum(rates))


def test_almost_nothing_leaves_a_queue_that_has_rested_for_a_minute(hall: Hall) -> None:
    """Four minutes after its last work 42.6 messages left it in a second."""
    for second in range(10):
        step(hall, put=100 * second, done=100 * second)
        hall.after(1)
    hall.after(240)
    step(hall, put=906, done=906)

    snapshot = hall.see("a")

    assert snapshot.queues[0].in_rate == snapshot.queues[0].out_rate == pytest.approx(0.1)
    assert sum(each.rate or 0 for each in snapshot.consumers) == pytest.approx(0.1)


# --- a queue that grows -----------------------------------------------------------------------


def test_one_batch_on_an_idle_lab_is_no_queue_that_grows(hall: Hall) -> None:
    """ "gets 3.00 messages/s and does 1.23, for 5 min" was said of a batch that was six seconds old."""
    step(hall, put=1, done=1)
    hall.after(600)
    step(hall, put=901, done=1, lag=0.1)
    for second in range(1, 7):
        hall.after(1)
        step(hall, put=901, done=1 + 60 * second, lag=float(second))

    assert kinds(hall.see()) == []


@pytest.mark.parametrize("paused", [False, True])
def test_a_queue_that_gets_more_than_it_does_for_minutes_grows_unless_it_is_paused(hall: Hall, paused: bool) -> None:
    for second in range(0, 400, 2):
        step(hall, put=3 * second, done=second, lag=float(second) / 2, state="paused" if paused else "running")
        hall.after(2)

    assert kinds(hall.see()) == ([] if paused else ["growing"])


# --- runs that are not listed -----------------------------------------------------------------


def test_dead_documents_are_counted_of_all_runs_listed_or_not(hall: Hall) -> None:
    """ "40 dead in 20 runs at rest" was said of 50 in 25: more runs are not listed."""
    lanes = [
        lane_report(f"r{number}", counts=counts(acked=8, dead=2), total=10, started=float(number + 1), ended=99.0)
        for number in range(25)
    ]
    cut_off = lane_report("cut-off", counts=counts(acked=1, dead=1), ended=99.0, incomplete="the input broke")
    going = lane_report("going", counts=counts(ready=5, dead=7), started=100.0)
    clean = lane_report("clean", counts=counts(acked=5), total=5, started=101.0, ended=102.0)
    hall.shard("a", *lanes, cut_off, going, clean)
    hall.shard("b", lane_report("other", counts=counts(dead=4), total=4, started=103.0, ended=104.0))

    snapshot = hall.see()
    a, b = snapshot.queue("a"), snapshot.queue("b")

    assert len(snapshot.runs) == 20
    assert a is not None
    assert b is not None
    assert (a.runs, a.failed_runs, a.dead_at_rest) == (28, 26, 51)
    assert (b.runs, b.failed_runs, b.dead_at_rest) == (1, 1, 4)
    totals = snapshot.totals
    assert (totals.runs, totals.failed_runs, totals.dead_at_rest) == (29, 27, 55)
