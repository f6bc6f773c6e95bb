"""Each figure names what it is of, and figures of one frame agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from bokeh.models import Div

from dqlab import numbers
from dqlab.live.panels.scene import Readings, scene
from dqlab.live.run_rows import runs_in_order
from dqlab.numbers import due, soon
from dqlab.stats import Counts, Eta, History, QueueStats, RunState, Unacked, total_queue
from dqlab.testing import FakeClock
from tests.sampled import mostly_slow

Open = Callable[..., Any]


def summary(page: Any) -> str:
    return page.doc.get_model_by_name("summary").text


def answer(page: Any, name: str) -> str:
    return page.doc.get_model_by_name(f"{name}-answer").text


def words(page: Any) -> str:
    return "\n".join(model.text for model in page.doc.select({"type": Div}))


@pytest.mark.long
def test_figures_say_whether_they_are_of_a_run_a_queue_or_all(open_page: Open, feed: Any) -> None:
    """ "Dead 323" of the newest run stood above "690 dead" of the queue."""
    now = feed.now
    older = replace(now.runs[0], name="older", counts=Counts(acked=10, dead=478), ended=now.at - 60)
    queue = replace(now.queues[0], counts=Counts(ready=15_846, dead=690))
    feed.change(runs=(now.runs[0], older, *now.runs[1:]), queues=(queue, *now.queues[1:]))

    said = summary(open_page(queue="pages"))
    assert "Figures of run <b>parse-invoices</b> on queue <b>pages</b>, one of 2 runs" in said
    assert "<small>documents</small></div>" in said
    assert "690 in queue" in said
    assert "messages" not in said
    assert "Figures of queue <b>default</b>" in summary(open_page(queue="default"))
    assert "Figures of <b>all queues</b>" in summary(open_page())


def test_runs_that_are_not_listed_are_counted_wherever_runs_are(open_page: Open, feed: Any) -> None:
    """Of 38 runs the page named "one of 20 runs" and "1 running, 19 done" above "and 30 more"."""
    now = feed.now
    ended = [
        replace(now.runs[0], name=f"row-{at}", state=RunState.DONE, ended=now.at - 60, eta=None, counts=Counts(acked=9))
        for at in range(19)
    ]
    failed = replace(ended[0], name="last-dead", counts=Counts(acked=8, dead=82))
    queue = replace(now.totals, counts=Counts(ready=9, dead=485), runs=38, failed_runs=9, dead_at_rest=485)
    feed.change(
        runs=(now.runs[0], failed, *ended[1:]),
        runs_total=38,
        of_queue="",
        of_run="",
        totals=queue,
        queues=(replace(queue, name="pages", state=now.queues[0].state),),
        failures=replace(now.failures, dead=485),
    )

    page = open_page()
    assert answer(page, "runs").endswith(", 18 more")
    assert "and 30 more" in words(page)
    way = next(line for line in words(page).splitlines() if "All 485 dead" in line)
    assert "last-dead" in way
    assert "and of 8 more runs" in way, "these two have 85 of 485"
    assert "one of 38 runs" in summary(open_page(queue="pages"))


def test_one_of_something_is_singular(open_page: Open, feed: Any) -> None:
    """ "1 documents" looks like a defect, and makes the figure beside it look like one."""
    run = replace(feed.now.runs[0], counts=Counts(leased=1, acked=8, dead=1), units=None)
    feed.change(runs=(run,), units="documents")

    said = summary(open_page(queue="pages"))
    assert said.count("<small>document</small>") == 3
    assert "<small>documents</small>" not in said


def test_bytes_that_are_left_are_a_size(open_page: Open, feed: Any) -> None:
    """Beside the documents that are left, and as a speed."""
    units = Counts(ready=1_200_000_000, acked=2_200_000_000)
    run = replace(feed.now.runs[0], units=units, weighed_in="bytes", units_rate=12_345_678.0)
    feed.change(runs=(run,), units="documents")

    said = summary(open_page(queue="pages"))
    assert "1.2 GB</div>" in said
    assert "<small>MB/s</small>" in said


def test_one_page_that_is_left_is_singular(open_page: Open, feed: Any) -> None:
    """The sibling of "1 documents", below it."""
    run = replace(feed.now.runs[0], counts=Counts(leased=1, acked=8), units=Counts(leased=1, acked=99))
    feed.change(runs=(run,))

    assert "1 page</div>" in summary(open_page(queue="pages"))


def test_idle_consumers_of_all_queues_are_not_those_of_a_run(open_page: Open, feed: Any) -> None:
    """ "Consumers 2, 75 % idle" stood above one busy and one idle consumer; the share was that of all four."""
    feed.change(runs=feed.now.runs[:1], of_queue="")

    assert "% idle in all queues" in summary(open_page())
    assert "% idle</div>" in summary(open_page(queue="pages"))


def test_run_that_waits_for_its_last_document_says_so(open_page: Open, feed: Any) -> None:
    """ "not known yet" sounds as if it came by itself; the widget says what the end waits for."""
    run = replace(feed.now.runs[0], counts=Counts(leased=1, acked=8), units=None, eta=None, why="")
    feed.change(runs=(run,))

    assert "when 1 document ends" in summary(open_page(queue="pages"))


def test_all_queues_are_empty_at_the_end_of_the_last_run(open_page: Open, feed: Any) -> None:
    """Until when is asked first, and was blank for all queues."""
    queues = feed.now.queues
    last = replace(queues[1], empty_in=900.0)
    feed.change(of_queue="", queues=(queues[0], last, *queues[2:]), totals=total_queue((queues[0], last, *queues[2:])))

    said = summary(open_page())
    assert "14:37<small>in 15 min</small>" in said
    assert "without embed and index" in said


def test_failures_of_all_queues_are_drawn_per_minute(open_page: Open, feed: Any) -> None:
    """With more than one queue the chart was empty, under "1,021 in the last minute"."""
    past: History = feed.past
    mark = feed.now.failures.classes[0].fingerprint

    def history(span: float, queue: str = "", run: str = "") -> History:
        return replace(past, classes={mark: (0, 0, 5)} if queue else {})

    feed.history = history
    feed.change(of_queue="")
    page = open_page("failures")

    assert page.panels[0]._source.data["failed"].tolist() == [10.0]  # both queues with dead messages
    assert "scale 0\N{EN DASH}10" in words(page)


@pytest.mark.parametrize("seconds", [0, 1, 30, 59])
def test_failures_are_drawn_in_the_minute_of_the_clock_in_which_they_came(
    open_page: Open, feed: Any, seconds: int
) -> None:
    """In minutes that end now they were drawn up to a minute early, before their documents were submitted."""
    past: History = feed.past
    end = past.end // 60 * 60 + seconds
    mark = feed.now.failures.classes[0].fingerprint
    feed.past = replace(past, t0=past.t0 + end - past.end, classes={mark: (0, 3, 5)})
    page = open_page("failures", queue="pages")

    drawn = page.panels[0]._source.data
    zone = scene(feed.now, feed.past, 300.0, "pages", "").zone
    sides = [
        (x / 1000 - zone - end + seconds - width / 2000, x / 1000 - zone - end + seconds + width / 2000)
        for x, width in zip(drawn["x"], drawn["width"], strict=True)
    ]
    assert drawn["failed"].tolist() == [3.0, 5.0]
    (before, until), (begun, now) = sides
    assert (before, until) == (pytest.approx(-54, abs=0.5), pytest.approx(-6, abs=0.5))
    assert now == pytest.approx(min(54, seconds), abs=0.5)
    assert begun == pytest.approx(6, abs=0.5) if seconds > 15 else now - begun > 0


def test_what_was_read_in_an_earlier_minute_is_of_that_minute(feed: Any) -> None:
    """Figures per minute are read every few seconds: those of the minute before moved into the next."""
    end = feed.past.end // 60 * 60 + 59.0
    feed.past = replace(feed.past, t0=feed.past.t0 + end - feed.past.end, classes={"a": (1, 5)})

    readings = Readings(feed, FakeClock())

    assert readings.classes(["pages"], end) == {"a": (1, 5)}
    assert readings.classes(["pages"], end + 2.0) == {"a": (1, 5, 0)}


def test_deliveries_are_not_said_to_be_of_a_limit_that_the_run_may_not_have(open_page: Open) -> None:
    """A document was dead after "2 of 5"."""
    assert " of 5" not in words(open_page("failures"))


def test_throughput_sums_up_the_queue_and_not_one_of_its_runs(open_page: Open, feed: Any) -> None:
    """Consumers serve all runs of their queue."""
    run = replace(feed.now.runs[0], rate=1.0, consumers=1, counts=Counts(leased=1))
    other = replace(run, name="other", units_rate=49.0)
    queue = replace(feed.now.queues[0], out_rate=40.0, units_rate=500.0, consumers=8)
    consumers = tuple(replace(each, rate=3.0) for each in feed.now.consumers)
    feed.change(runs=(run, other), queues=(queue, *feed.now.queues[1:]), consumers=consumers, consumers_total=8)
    page = open_page("throughput", queue="pages")

    said = page.panels[0]._chart.right.text.rpartition('class="r all"')[2]
    assert "<b>500</b>" in said
    assert "<b>24.0</b>" in said
    assert "all 8" in page.panels[0]._chart.left.text


@pytest.mark.parametrize(
    "left", [4.64, 33.3]
)  # less, as failed deliveries are retried, or more, as a run was cancelled
def test_the_sum_of_consumers_is_that_of_their_rows(open_page: Open, feed: Any, left: float) -> None:
    """It was what had left the queue: 4.64 below 2.86 and 2.95, and 33.3 after a run was cancelled."""
    consumers = tuple(
        replace(feed.now.consumers[0], name=f"c{at}", rate=rate, units_rate=rate)
        for at, rate in enumerate((2.86, 2.95))
    )
    queue = replace(feed.now.queues[0], out_rate=left, units_rate=5.81, consumers=2)
    feed.change(units="documents", queues=(queue, *feed.now.queues[1:]), consumers=consumers, consumers_total=2)

    said = open_page("throughput", queue="pages").panels[0]._chart.right.text.rpartition('class="r all"')[2]

    assert "<b>5.81</b>" in said


def test_what_consumers_hold_adds_up_to_its_sum(open_page: Open, feed: Any) -> None:
    """1, 2, 0 and 0 stood above the queue's count of 4: one message was under way."""
    consumers = tuple(
        replace(feed.now.consumers[0], name=f"c{at}", leased=leased) for at, leased in enumerate((1, 2, 0, 0))
    )
    queue = replace(feed.now.queues[0], counts=Counts(leased=4), consumers=4)
    feed.change(units="documents", queues=(queue, *feed.now.queues[1:]), consumers=consumers, consumers_total=4)
    feed.past = replace(feed.past, consumers={}, idle={})

    table = open_page("throughput", queue="pages").panels[0]._chart.right.text

    *rows, total = re.findall(r'<span>(?:<span class="mut">)?(\d+)(?:</span>)?</span></div>', table)
    assert sorted(rows) == ["0", "0", "1", "2"]
    assert total == "3"


def test_consumers_without_work_are_not_the_slowest(open_page: Open, feed: Any) -> None:
    """Those of an empty queue filled the rows, and hid the slow one."""
    idle = tuple(
        replace(each, name=f"i{at}", queue="default", units_rate=0.0, rate=0.0, leased=0, slow=False, busy_share=0.0)
        for at, each in enumerate(feed.now.consumers)
    )
    feed.change(of_queue="", consumers=(*idle, *feed.now.consumers), consumers_total=16)
    feed.past = replace(feed.past, consumers={}, idle={})
    left = open_page("throughput").panels[0]._chart.left.text

    assert left.index("<b>c5</b>") < left.index("<b>c0</b>") < left.index("<b>i0</b>")


def test_a_consumer_with_a_stuck_document_is_busy_and_amber(open_page: Open, feed: Any) -> None:
    """It was "idle 100 %", as it had finished nothing."""
    stuck = replace(feed.now.consumers[0], name="c9", busy_share=0.0, slow=False, leased=1, oldest_age=360.0)
    stuck = replace(stuck, stuck=True)
    feed.change(consumers=(stuck,))
    feed.past = replace(feed.past, consumers={}, idle={})
    chart = open_page("throughput", queue="pages").panels[0]._chart

    assert 'class="g slow"' in chart.left.text
    assert "100 %" not in chart.right.text.partition('class="r all"')[0]


@pytest.mark.parametrize(
    ("live", "garbage", "said"),
    [
        (60, 40, "40 % garbage · compacts itself above 50 %"),
        (20, 80, "80 % garbage, more than 50 % · compacts itself at the next checkpoint"),
    ],
)
def test_garbage_above_the_limit_says_why_it_is_still_there(
    open_page: Open, feed: Any, live: int, garbage: int, said: str
) -> None:
    """ "80 % garbage · compacts itself above 50 %" contradicted itself."""
    feed.change(storage=replace(feed.now.storage, live=live, garbage=garbage, compact_above=0.5))

    assert answer(open_page(queue="pages"), "storage") == said


def test_ages_that_no_message_has_are_not_drawn(open_page: Open, feed: Any) -> None:
    """Each empty bin had a sliver of amber; and a range names both units."""
    bins = (0, 0, 0, 0, 0, 0, 3, 2, 0, 1, 0)
    feed.change(unacked=Unacked(age_bins=bins, total=6, timeout=60.0))
    data = open_page("unacked", queue="pages").panels[0]._bars.data

    assert list(data["held"]) == [3, 2, 1]
    assert list(data["range"]) == ["30 s\N{EN DASH}1 min", "1 min\N{EN DASH}2 min", "4 min\N{EN DASH}8 min"]


def test_a_panel_alone_names_its_queue(open_page: Open) -> None:
    """A tab of JupyterLab has no control that does."""
    assert answer(open_page("depth", queue="pages"), "depth").endswith(" · queue pages")
    assert answer(open_page("depth"), "depth").endswith(" · all queues")


def test_totals_end_with_the_last_queue_that_has_an_end() -> None:
    """A queue that is empty has no say in it, nor has one without an estimate."""
    left, counts = Counts(ready=3), Counts()
    queues = [QueueStats("a", "running", left, empty_in=30.0), QueueStats("b", "paused", left)]

    assert total_queue([*queues, QueueStats("c", "empty", counts, empty_in=99.0)]).empty_in == 30.0
    assert total_queue(queues[1:]).empty_in is None


def test_few_documents_that_failed_name_how_many_there_are_and_the_way_to_all(
    open_page: Open, feed: Any, clock: Any
) -> None:
    """Four of 59 dead documents were listed, without a traceback, and without a word about the others."""
    said = words(open_page("failures", queue="pages"))
    assert "All 212 dead documents, with tracebacks: " in said
    assert ">%dq failed parse-invoices</code>" in said
    assert "the Failures tab of JupyterLab" in said

    failures = replace(feed.now.failures, classes_total=11)
    feed.change(failures=failures, runs=())
    clock.now += 1
    said = words(open_page("failures", queue="pages"))
    assert "and 7 more classes" in said
    assert "lab.queue(&#x27;pages&#x27;).dead()" in said


def test_an_ended_run_has_its_speed_over_the_whole_run(open_page: Open, feed: Any) -> None:
    """The speed of its last minute stood there as if it went on."""
    run = feed.now.runs[0]
    done = replace(
        run, state=RunState.DONE, ended=run.started + 1000.0, counts=Counts(acked=500), units=Counts(acked=9000),
        eta=None, rate=23.9, units_rate=451.0,
    )  # fmt: skip
    feed.change(runs=(done,))

    said = summary(open_page(queue="pages", run=done.name))
    assert "Speed, whole run" in said
    assert "9.00<small>pages/s" in said
    assert "0.50 documents/s" in said
    assert "451" not in said


def test_lines_of_several_runs_are_read_one_by_one(open_page: Open, feed: Any) -> None:
    """ "next: %dq failed fourth %dq failed rechnungen" was read, and typed, as one line."""
    run = replace(feed.now.runs[0], state=RunState.DONE, ended=feed.now.at, counts=Counts(dead=3))
    runs = tuple(replace(run, name=each) for each in ("fourth", "third"))
    feed.change(attention=(), attention_total=0, runs=runs, of_queue="", of_run="")
    page = open_page()
    both = re.compile(r">%dq failed fourth</code> · <code[^>]*>%dq failed third</code>")

    assert both.search(page.doc.get_model_by_name("needs").text)
    assert both.search(words(page).partition("with tracebacks:")[2])


def test_what_needs_the_user_names_what_to_type_next(open_page: Open, feed: Any, clock: Any) -> None:
    """A page without buttons named what is wrong, and left to the reader what to do about it."""
    said = open_page().doc.get_model_by_name("needs").text
    assert "next: " in said
    assert ">%dq failed parse-invoices</code>" in said
    assert ">lab.queue(&#x27;pages&#x27;).unacked()</code>" in said

    run = replace(feed.now.runs[0], name="two words", state=RunState.DONE, ended=feed.now.at, counts=Counts(dead=3))
    feed.change(attention=(), attention_total=0, runs=(run,))
    clock.now += 1
    assert ">%dq failed &#x27;two words&#x27;</code>" in open_page().doc.get_model_by_name("needs").text


@pytest.mark.parametrize("left", mostly_slow([31.0, 100.0, 115.0, 170.0, 1_790.0], 31.0, 115.0))
def test_an_end_is_rounded_alike_by_tile_row_and_widget(open_page: Open, feed: Any, left: float) -> None:
    """A tile had "00:43 in 1 min" where the row below it had "in 115 s", and the sidebar 00:44."""
    run = feed.now.runs[0]
    now = 60.0 * (run.at // 60) + 7
    run = replace(run, at=now, eta=Eta(now + left - 1, now + left, now + left + 1))
    feed.change(at=now, runs=(run,), queues=(replace(feed.now.queues[0], empty_in=left), *feed.now.queues[1:]))

    tile = summary(open_page(queue="pages"))
    assert f"<small>in {soon(left)}</small>" in tile
    assert due(now + left, now=now) in tile
    assert runs_in_order((run,))[0].end == f"in {soon(left)}"
    assert f"empty about {due(now + left, now=now)}" in answer(open_page(queue="pages"), "depth")


def test_a_run_that_ended_on_another_day_has_its_date(open_page: Open, feed: Any) -> None:
    """It was the time of day alone, as if it were of today."""
    now = feed.now
    yesterday = now.at - 86_400
    old = replace(now.runs[0], state=RunState.DONE, started=yesterday - 60, ended=yesterday, eta=None)
    feed.change(runs=(old,), runs_total=1)

    page = open_page(queue="pages")

    assert numbers.date(yesterday) in summary(page)
    listed = page.panels[0].table(scene(feed.now, feed.past, 1800.0, "pages", ""))
    assert numbers.instant(yesterday - 60, now=now.at) in [cell.text for row in listed.rows for cell in row]
