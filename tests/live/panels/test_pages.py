"""What pages of panels say, in each state of the world, and what they must never say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from bokeh.document import Document
from bokeh.models import DataTable

from dqlab.live.panels.page import APPLICATIONS, PANELS
from dqlab.live.panels.scene import WHOLE, Request, request
from dqlab.stats import Attention, ClassStats, Counts, Held, History, Mark, RunState, Severity, Snapshot
from tests.kit.logs import lines_of
from tests.live.panels.conftest import cells, titles, words

pytestmark = pytest.mark.lowest

EVIL = '<script>alert("$$x$$")</script>'
Open = Callable[..., Any]


def named(page: Any, name: str) -> Any:
    return page.doc.get_model_by_name(name)


@pytest.mark.long
@pytest.mark.parametrize("names", [tuple(PANELS), *((name,) for name in PANELS)])
def test_each_page_has_all_the_roots_its_template_places(open_page: Open, names: tuple[str, ...]) -> None:
    """A page whose template and models disagree is a white one."""
    roots = {root.name for root in open_page(*names, theme="dark").doc.roots}

    assert roots == {*names, "where", "needs", "summary", "stamp", "queues", "spans"}


def test_figures_name_the_run_the_queue_or_all_queues_that_they_are_of(open_page: Open) -> None:
    """ "Dead 323" of the newest run stood above "690 dead" of the queue."""
    said = named(open_page(queue="pages"), "summary").text

    assert said.index("run parse-invoices") < said.index("315,894") < said.index("queue pages") < said.index("16,057")
    assert "<h2>all queues</h2>" in named(open_page(), "summary").text


def test_names_and_messages_of_users_stay_text(open_page: Open, feed: Any) -> None:
    """A queue named like a script must not run in the browser of a user who looks at it."""
    now: Snapshot = feed.now
    evil: ClassStats = replace(now.failures.classes[0], error=EVIL, message=EVIL)
    feed.change(
        lab=EVIL,
        units=EVIL,
        attention=(Attention(Severity.PROBLEM, "failing", EVIL, EVIL, EVIL, queue=EVIL, run=EVIL),),
        queues=(replace(now.queues[0], name=EVIL, why=EVIL), *now.queues),
        runs=tuple(replace(run, name=EVIL, why=EVIL) for run in now.runs),
        consumers=tuple(replace(each, name=f"{EVIL}{at}", worker=EVIL) for at, each in enumerate(now.consumers)),
        unacked=replace(now.unacked, oldest=(Held(EVIL, 300.0, 5.0, document=EVIL),)),
        failures=replace(now.failures, classes=(evil,)),
    )
    feed.past = replace(feed.past, consumers={}, marks=(Mark(feed.past.end - 60, EVIL, 3, EVIL),))

    page = open_page(queue=EVIL)

    assert "<script" not in words(page)
    assert words(page).count("&lt;script") > 10
    tables = list(page.doc.select({"type": DataTable}))
    assert any(EVIL in column for table in tables for column in table.source.data.values())
    templates = [column.formatter.template for table in tables for column in table.columns]
    assert not any("<%=" in template for template in templates), "cells are escaped in the browser"


def test_an_empty_lab_has_axes_and_one_sentence_in_each_panel(open_page: Open, feed: Any, caplog: Any) -> None:
    """A white rectangle could as well be a broken one."""
    feed.now, feed.past = Snapshot(at=feed.now.at, seq=1), History(t0=feed.now.at, step=1.0)

    with caplog.at_level(logging.ERROR):
        said = words(open_page())

    for sentence in (
        "No message has come in this window",
        "No consumer works here",
        "No message has failed in this window",
        "No message is held by a consumer",
        "Nothing has been mapped here yet",
        "Queues here are transient",
    ):
        assert sentence in said
    assert not lines_of(caplog)


def test_without_dqlab_a_page_says_what_to_do() -> None:
    """The pages exist before anybody has connected."""

    class Bare:
        plugins: Mapping[str, Any] = MappingProxyType({})
        address = "tcp://10.0.0.1:8786"

    doc = Document()

    assert APPLICATIONS["/dq"](Bare(), {"prefix": "/"}, doc) is None

    said = doc.template_variables["absent"]
    assert "dqlab is not on this scheduler yet" in said
    assert "tcp://10.0.0.1:8786" in said


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, Request()),
        ({"theme": [b"dark"], "queue": [b"q"], "run": [b"r"], "wall": [b"1"]}, Request("dark", "q", "r", wall=True)),
        ({"span": [b"7200"]}, Request(span=7200.0)),
        ({"span": [b"run"]}, Request(span=WHOLE)),
        ({"span": [b"1e99"]}, Request(span=86_400.0)),
        ({"span": [b"nan"], "theme": [b"\xff"], "wall": [b"0"]}, Request()),
    ],
)  # fmt: skip
def test_addresses_are_read_and_nonsense_in_them_is_passed_over(
    query: dict[str, list[bytes]], expected: Request
) -> None:
    """Addresses are typed by hand, and kept in bookmarks for years."""
    assert request(query) == expected


def test_what_is_not_listed_is_counted(open_page: Open, feed: Any, crowd: Any) -> None:
    """A list that is cut without a word is taken for the whole."""
    failures = replace(crowd.now.failures, classes_total=len(crowd.now.failures.classes) + 7)
    feed.now = replace(crowd.now, runs_total=38, failures=failures)
    feed.past = crowd.past

    page = open_page()

    assert cells(page, "consumers")[-1][:2] == ["all 200", "and 192 more consumers"]
    assert cells(page, "classes")[-1][1] == "and 7 more classes"
    assert titles(page)["Runs"].endswith(", 33 more")
    assert "and 33 more: %dq runs" in words(page)


@pytest.mark.long
def test_a_run_with_dead_documents_is_never_green(open_page: Open, feed: Any) -> None:
    """From afar a green tick stood for 10,000 dead of 10,000."""
    base = replace(feed.now.runs[-1], state=RunState.DONE, total=10_000)
    counts = {"clean": Counts(acked=10_000), "some": Counts(acked=9_999, dead=1), "all": Counts(dead=10_000)}
    feed.change(of_queue="", of_run="", runs=tuple(replace(base, name=name, counts=c) for name, c in counts.items()))

    page = open_page("runs")
    data = page.panels[0].rows.source.data

    assert dict(zip(data["t0"], zip(data["t1"], data["i1"], strict=True), strict=True)) == {
        "clean": ("done", "ok"), "some": ("some dead", "bad"), "all": ("all dead", "bad")
    }  # fmt: skip


def test_what_needs_the_user_names_what_to_type_next(open_page: Open, feed: Any, clock: Any) -> None:
    """At the end of all runs the page said that nothing was to be done, with 10,001 dead."""
    page = open_page()
    said = named(page, "needs").text
    assert "Needs you 3" in said
    assert "next: <code>%dq failed parse-invoices</code>" in said
    assert "<code>lab.queue(&#x27;pages&#x27;).unacked()</code>" in said

    run = replace(feed.now.runs[0], name="two words", state=RunState.DONE, ended=feed.now.at, counts=Counts(dead=3))
    feed.change(attention=(), attention_total=0, runs=(run,), queues=feed.now.queues[:1])
    clock.now += 1
    page.update()

    assert "<code>%dq failed &#x27;two words&#x27;</code>" in named(page, "needs").text


def test_failures_name_how_many_are_dead_and_the_way_to_all(open_page: Open, feed: Any, clock: Any) -> None:
    """Four of 59 dead documents were listed, without a traceback, and without a word about the others."""
    page = open_page("failures", queue="pages")
    assert "212 dead documents, with tracebacks: <code>%dq failed parse-invoices</code>" in words(page)

    feed.change(runs=())
    clock.now += 1
    page.update()

    assert "<code>lab.queue(&#x27;pages&#x27;).dead()</code>" in words(page)


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

    drawn = page.panels[0].source.data
    lefts = (drawn["x"] - drawn["width"] / 2 - page.stage.range.end) / 1000
    assert drawn["failed"].tolist() == [0.0, 3.0, 5.0]
    assert lefts[1:].tolist() == [pytest.approx(-54 - seconds, abs=0.5), pytest.approx(6 - seconds, abs=0.5)]


def test_failures_of_all_queues_are_added_up(open_page: Open, feed: Any) -> None:
    """With more than one queue the chart was empty, under "1,021 in the last minute"."""
    past: History = feed.past
    mark = feed.now.failures.classes[0].fingerprint

    def history(span: float, queue: str = "", run: str = "") -> History:
        return replace(past, classes={mark: (0, 0, 5)} if queue else {})

    feed.history = history
    feed.change(of_queue="")

    assert open_page("failures").panels[0].source.data["failed"].tolist() == [0.0, 0.0, 10.0]


def test_consumers_in_trouble_come_first_and_no_row_moves_for_its_speed(open_page: Open, feed: Any, clock: Any) -> None:
    """A row that moves away under the pointer is read wrongly."""
    page = open_page("throughput", queue="pages")
    before = [row[0] for row in cells(page, "consumers")]
    feed.change(consumers=tuple(reversed(feed.now.consumers)))
    clock.now += 1
    page.update()

    assert before == ["c5", "c0", "c1", "c2", "c3", "c4", "c6", "c7", "all 8"]
    assert [row[0] for row in cells(page, "consumers")] == before


def test_nothing_is_changed_when_nothing_has_changed(open_page: Open, clock: Any) -> None:
    """A page that somebody forgot in a tab costs nothing."""
    page = open_page(queue="pages")
    for _ in range(10):
        clock.now += 1
        page.update()

    assert page.sent == []


def test_sessions_share_what_they_read(open_page: Open, feed: Any, clock: Any) -> None:
    """Ten tabs on one view cost the collector as much as one."""
    pages = [open_page("depth", queue="pages") for _ in range(5)] + [open_page("depth", queue="ocr")]
    feed.snapshots.clear()
    feed.histories.clear()
    for _ in range(2):
        clock.now += 1
        feed.change(at=feed.now.at + 1)
        for page in pages:
            page.update()

    assert (len(feed.snapshots), len(feed.histories)) == (4, 4)


def test_another_queue_and_another_span_are_shown_at_once(open_page: Open, feed: Any) -> None:
    """A choice that takes effect a second later is pressed twice."""
    page = open_page()
    named(page, "queues").value = "ocr"
    named(page, "spans").active = 0

    assert feed.histories[-1] == (300.0, "ocr", "")
    assert "<h2>queue ocr</h2>" in named(page, "summary").text
    assert page.stage.range.end - page.stage.range.start == pytest.approx(300_000)


def test_a_feed_that_fails_is_said_once_and_found_again(open_page: Open, feed: Any, clock: Any, caplog: Any) -> None:
    """Old numbers must not pose as new ones, and the log is no place for the same line every second."""
    page = open_page()
    feed.error = RuntimeError("closed")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.now += 1
            page.update()

    assert len(lines_of(caplog)) == 1
    assert named(page, "stamp").text == "No answer since 14:22:07"

    feed.error = None
    feed.change(at=feed.now.at + 3)
    clock.now += 1
    page.update()

    assert named(page, "stamp").text == "live 14:22:10"
