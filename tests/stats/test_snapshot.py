"""The arithmetic behind every view: a figure that is wrong here is wrong everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.stats import (
    Blocked,
    ClassStats,
    ConsumerStats,
    Counts,
    History,
    Meter,
    QueueStats,
    RunState,
    RunStats,
    Severity,
    Snapshot,
    StopReason,
    run_state,
    total_counts,
    total_queue,
)
from dqlab.stats.attention import QueueFacts, Thresholds, brief, find, find_leaving
from tests.golden.make_snapshot import every_field

GOLDEN = Path(__file__).parents[1] / "golden" / "snapshot.json"
SHARES = json.loads(GOLDEN.with_name("shares.json").read_text(encoding="utf-8"))
"""What a run is, its plain data, and its share: TypeScript's tests read them too."""

amounts = st.integers(0, 10**9)
counts = st.builds(Counts, amounts, amounts, amounts, amounts, amounts, amounts, amounts)


def test_the_fields_that_the_extension_is_tested_with_are_all_there_are() -> None:
    """The golden Snapshot leaves out what is at its default: six fields were sent for months and read by no view."""
    known = json.loads(GOLDEN.with_name("every_field.json").read_text(encoding="utf-8"))

    assert known == every_field(), "a field was added or removed: python -m tests.golden.make_snapshot"


@given(counts)
def test_every_message_is_left_or_settled(these: Counts) -> None:
    """Progress bars are drawn from both; a state in neither would never reach the end."""
    assert these.left + these.settled == these.all
    assert sum(these.shares.values()) == pytest.approx(1.0 if these.all else 0.0)


@given(st.lists(counts, max_size=5))
def test_counts_of_shards_add_up_by_state(shards: list[Counts]) -> None:
    """A queue's figures are the sum of its shards', in any number."""
    total = total_counts(shards)

    assert total.acked == sum(shard.acked for shard in shards)
    assert total.all == sum(shard.all for shard in shards)


def test_share_reaches_one_only_when_nothing_is_left() -> None:
    """ "100 %" while the last document runs is the classic lie of progress bars."""
    nearly = RunStats("r", "q", RunState.RUNNING, Counts(leased=1, acked=10**9), total=10**9 + 1)
    done = RunStats("r", "q", RunState.DONE, Counts(acked=10**9 + 1), total=10**9 + 1)

    assert nearly.share is not None
    assert nearly.share < 1
    assert done.share == 1


@pytest.mark.parametrize(("run", "share"), [case[1:] for case in SHARES], ids=[case[0] for case in SHARES])
def test_share_is_the_one_of_the_sidebar(run: dict[str, Any], share: float | None) -> None:
    """One cancelled run was at 5.3 % in one view, and at 100 % in another."""
    (read,) = Snapshot.from_dict({"at": 0, "seq": 0, "runs": [{"name": "r", "queue": "q", **run}]}).runs

    assert read.share == (None if share is None else pytest.approx(share))


def test_progress_counts_pages_where_they_are_known() -> None:
    """One book of 900 pages is not as far as one leaflet."""
    run = RunStats("r", "q", RunState.RUNNING, Counts(1, acked=1), units=Counts(ready=900, acked=100), total=2)

    assert run.unit == "pages"
    assert run.share == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("state", "given"),
    [
        (RunState.DONE, {"counts": Counts(acked=2, dead=1), "sealed": True}),
        (RunState.DONE, {"counts": Counts(), "sealed": True}),
        (RunState.CANCELLED, {"counts": Counts(acked=2, cancelled=1), "sealed": True}),
        (RunState.INCOMPLETE, {"counts": Counts(acked=2), "sealed": True, "incomplete": True}),
        (RunState.STOPPED, {"counts": Counts(ready=1), "sealed": True, "stopped": True, "paused": True}),
        (RunState.PAUSED, {"counts": Counts(ready=1), "sealed": True, "paused": True, "served": True}),
        (RunState.WAITING, {"counts": Counts(ready=1), "sealed": True, "served": False}),
        (RunState.RUNNING, {"counts": Counts(ready=1), "sealed": True, "served": True}),
        (RunState.SUBMITTING, {"counts": Counts(ready=1), "sealed": False, "served": True}),
        (RunState.SUBMITTING, {"counts": Counts(), "sealed": False, "served": False}),
    ],
)
def test_run_state_says_what_stops_it_first(state: RunState, given: dict[str, object]) -> None:
    """One word must be the one a person acts upon: no room beats paused beats no consumer beats running."""
    assert run_state(**given) is state  # type: ignore[arg-type]


def test_time_between_an_end_and_a_retry_does_not_count() -> None:
    """A night between the run and its retry says nothing about how fast it is."""
    run = RunStats("r", "q", RunState.DONE, Counts(acked=100), started=10.0, ended=1020.0, idle=1000.0)

    assert run.elapsed == 10.0
    assert run.mean_rate == 10.0


def test_meter_takes_a_total_that_was_not_fed_for_one_that_stood_still() -> None:
    """A run that is retried hours after its end has the speed of the last minute, not of those hours."""
    meter = Meter(window=60)
    meter.feed(0.0, 100.0)
    meter.feed(7200.0, 100.0)
    meter.feed(7206.0, 160.0)

    assert meter.rate(7206.0) == pytest.approx(1.0)
    assert meter.growth(7206.0) == pytest.approx(60.0)


def test_meter_gives_the_rate_of_the_last_minute() -> None:
    """An old burst must not make today's trickle look fast."""
    meter = Meter(window=60)
    for second in range(301):
        meter.feed(float(second), min(second, 100) * 10)

    assert meter.rate(50.0 + 250) == 0.0


def test_meter_size_does_not_grow_with_its_feed() -> None:
    """Ten thousand reports in a second are one point."""
    meter = Meter(window=60)
    for n in range(100_000):
        meter.feed(n / 1000, n)

    assert len(meter._points) <= 63
    assert meter.rate(100.0) == pytest.approx(1000, rel=0.05)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 1000)), min_size=2, max_size=50))
def test_rate_is_never_negative(steps: list[tuple[float, int]]) -> None:
    """Totals only grow, so whatever the rhythm of reports, a rate is zero or more."""
    meter, at, total = Meter(), 0.0, 0
    for seconds, more in steps:
        at, total = at + seconds, total + more
        meter.feed(at, total)
        rate = meter.rate(at)
        assert rate is None or rate >= 0


def test_golden_snapshot_turns_into_json_and_back_unchanged() -> None:
    """Widget, panels and server read this JSON; a field that changes needs a new schema number."""
    golden = json.loads(GOLDEN.read_text())
    data = golden[0] if isinstance(golden, list) else golden

    snapshot = Snapshot.from_dict(data)

    assert json.loads(json.dumps(snapshot.to_dict())) == data


def test_totals_sum_what_is_listed() -> None:
    """The first line of the queue table is the sum of the others."""
    queues = tuple(
        QueueStats(name, "running", Counts(ready=n, acked=10 * n), lag=float(n), in_rate=float(n) if n > 1 else None)
        for n, name in enumerate("abc", start=1)
    )

    totals = total_queue(queues)

    assert (totals.counts.ready, totals.counts.acked, totals.lag, totals.in_rate) == (6, 60, 3.0, 5.0)


def test_snapshot_has_which_queue_is_deepest_most_dead_and_needs_the_user() -> None:
    """Views draw these and compute nothing."""
    snapshot = Snapshot.from_dict(json.loads(GOLDEN.read_text()))

    assert snapshot.deepest == 41_200
    assert (snapshot.dead_queues, snapshot.most_dead) == (2, snapshot.queue("pages"))
    assert snapshot.fastest_units_rate == 71.0


@pytest.mark.parametrize(
    ("leave", "within", "said"),
    [(3, 240.0, "3 of 20 workers leave in 4 min"), (1, 0.0, "1 of 20 workers leaves now")],
)
def test_workers_whose_jobs_end_need_the_user(leave: int, within: float, said: str) -> None:
    (need,) = find_leaving(leave, 20, within)

    assert f"{need.subject} {need.text}" == said
    assert brief(need) == "workers leave"
    assert find_leaving(0, 20, 0.0) == []


def test_idle_of_all_consumers_agrees_with_the_idle_of_each() -> None:
    """A consumer that has had one document for a minute was busy with it, in its own row and in the sum below."""
    stuck = ConsumerStats("c0", "pages", "1", leased=1, busy_share=0.0, oldest_age=75.0, document="a.pdf")
    other = ConsumerStats("c1", "pages", "2", busy_share=0.8)
    snapshot = Snapshot(at=0.0, seq=0, busy_share=0.4, consumers=(stuck, other), consumers_total=2)

    assert [stuck.idle_share, other.idle_share] == [0.0, pytest.approx(0.2)]
    assert snapshot.idle_share == pytest.approx(0.1)


def test_no_consumer_holds_what_its_queue_knows_as_settled() -> None:
    """A document that was given up is dead at once, while its function may still run: there is nothing to give up."""
    queue = QueueStats("pages", "empty", Counts(acked=8, dead=1))
    consumer = ConsumerStats("c1", "pages", "2", leased=1, busy_share=0.0, oldest_age=67.0, document="#777")

    assert not find([QueueFacts(queue, consumers=(consumer,))], Thresholds())


def test_functions_that_run_on_after_they_were_given_up_are_named_with_their_consumer() -> None:
    """A thread cannot be killed: only its worker can be restarted, and a person decides that."""
    facts = QueueFacts(QueueStats("pages", "running", Counts()), runs_on={"c1": ["a.txt", "b.txt"]})

    [need] = find([facts], Thresholds())

    assert (need.subject, need.text, need.action) == ("c1", "still runs 2 functions given up", "doctor")
    assert need.detail.startswith("a.txt, b.txt;")


def test_a_queue_that_was_filled_at_once_falls_soon_after() -> None:
    """Over a minute it would be said to grow while everybody sees it fall."""
    past = History(t0=0.0, step=5.0, in_rate=(None, 800.0, 0.0, 0.0, 0.0, 0.0), out_rate=(None, 90.0, *(100.0,) * 4))

    assert past.net_rate() == (-100.0, 20.0)
    assert past.net_rate(over=60.0) == (-100.0, 20.0)
    assert History(t0=0.0, step=5.0).net_rate() is None


@pytest.mark.parametrize(
    ("came", "left", "net", "over"),
    [
        pytest.param([0.0] * 11 + [181.0] + [0.0] * 8, [0.0] * 12 + [9.0] * 8, -9.0, 8.0, id="a batch came 8 s ago"),
        pytest.param([0.0] * 3 + [658.0] + [0.0] * 16, [0.0] * 20, 0.0, 16.0, id="and is paused"),
        pytest.param([0.0] * 17 + [200.0] + [0.0] * 2, [5.0] * 20, 5.0, 20.0, id="it came just now"),
        pytest.param([9.0, 0.0] * 10, [4.0] * 20, 0.5, 20.0, id="they come one by one"),
        pytest.param([0.0] * 20, [4.0] * 20, -4.0, 20.0, id="nothing came"),
        pytest.param([2.0] * 3, [1.0] * 3, 1.0, 3.0, id="it is young"),
    ],
)
def test_whether_a_queue_grows_is_judged_since_the_last_message_came(
    came: list[float], left: list[float], net: float, over: float
) -> None:
    """It "grew by 5.50 messages/s, last 20 s" while it drained, and by 32.9 while it was paused."""
    past = History(t0=0.0, step=1.0, in_rate=tuple(came), out_rate=tuple(left))

    assert past.net_rate() == (net, over)


def test_a_run_whose_sink_refuses_rows_needs_a_user() -> None:
    """A disk fills up in the night; in the morning the view shows it at once, with the reason."""
    why = "its rows cannot be written to out/: No space left on device"
    run = RunStats("parse", "pages", RunState.WAITING, Counts(ready=5), why=why, blocked=Blocked.RESULTS)

    [need] = find([QueueFacts(QueueStats("pages", "running", run.counts), runs=(run,))], Thresholds())

    assert (need.kind, need.severity, need.run) == ("sink", Severity.PROBLEM, "parse")
    assert "No space left" in need.detail


def test_what_is_offered_for_a_run_that_paused_itself_fits_its_reason() -> None:
    """A button that goes on would fail the rest of the documents as well, where a function is what is wrong."""
    ways = {StopReason.ALL_FAILED: "retry", StopReason.RESULTS_FULL: "resume", StopReason.REFUSED: "resume"}
    for reason, action in ways.items():
        run = RunStats("typo", "pages", RunState.STOPPED, Counts(ready=5, dead=100), stop=reason)
        [need] = find([QueueFacts(QueueStats("pages", "paused", run.counts), runs=(run,))], Thresholds())
        assert (need.kind, need.action, need.run) == ("stopped", action, "typo")


def test_run_that_puts_its_documents_off_forever_needs_the_user() -> None:
    """Nothing failed, nothing waited for a consumer, and nothing would ever end."""

    def needs(**more: Any) -> list[str]:
        given = {"counts": Counts(delayed=12), "total": 12, "at": 90.0, "rate": 0.0}
        run = RunStats("asks", "pages", RunState.RUNNING, **{**given, **more})
        scene = QueueFacts(QueueStats("pages", "running", run.counts, consumers=2), runs=(run,), at=run.at)
        return [f"{found.subject} {found.text} {found.detail}" for found in find([scene], Thresholds())]

    assert needs() == ["12 documents put off by their function with dq.Later, and no document ended in the last 1 min"]
    assert needs(rate=0.1) == []
    assert needs(at=30.0) == []
    assert needs(retrying=12) == []
    assert needs(counts=Counts(delayed=1, leased=2)) == [], "it waits for those that run"


@pytest.mark.parametrize(("dead", "retrying", "amount"), [(61, 4, 61), (0, 4, 4)])
def test_what_needs_a_user_counts_the_documents_that_its_subject_names(dead: int, retrying: int, amount: int) -> None:
    """A view that was told to leave it out notices by the count that it grows."""
    failing = ClassStats("7b", "KeyError", "'total'", "totals:12", dead, retrying, first=5.0, last=9.0)
    run = RunStats("parse", "pages", RunState.RUNNING, Counts(acked=100, dead=dead), classes=(failing,))
    [need] = find([QueueFacts(QueueStats("pages", "running", run.counts), runs=(run,), at=10.0)], Thresholds())

    assert need.amount == amount
    assert need.subject.startswith(str(amount))


def test_code_with_which_everything_failed_has_to_change_whether_the_run_paused_itself_or_ended() -> None:
    """Of fewer than a hundred documents a run does not pause itself."""
    stopped = RunStats("r", "q", RunState.STOPPED, Counts(ready=5, dead=100), stop=StopReason.ALL_FAILED)
    ended = RunStats("r", "q", RunState.DONE, Counts(dead=60), total=60)

    assert stopped.all_failed
    assert ended.all_failed
    assert not RunStats("r", "q", RunState.DONE, Counts(acked=1, dead=59), total=60).all_failed
    assert not RunStats("r", "q", RunState.RUNNING, Counts(ready=1, dead=59), total=60).all_failed
    assert not RunStats("r", "q", RunState.CANCELLED, Counts(cancelled=60), total=60).all_failed
