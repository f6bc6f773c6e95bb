"""How often pages change, and how much: they live on the scheduler's event loop."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import ref

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from bokeh.document import Document
from bokeh.protocol import Protocol

from dqlab.live.panels.page import PANELS, Page
from dqlab.live.panels.scene import WHOLE, Readings, Request
from dqlab.stats import Counts
from tests.logs import lines_of

pytestmark = pytest.mark.lowest

TICK = 0.25
Open = Callable[..., Any]


def live(page: Any, clock: Any, seconds: float) -> list[int]:
    """Let a page live; return how many changes each of its updates sent."""
    sent = []
    for _ in range(round(seconds / TICK)):
        clock.now += TICK
        before = len(page.sent)
        page.update()
        sent.append(len(page.sent) - before)
    return sent


def size(event: Any) -> int:
    """Bytes that a change takes on its way to the browser."""
    message = Protocol().create("PATCH-DOC", [event])
    return len(message.content_json) + sum(len(buffer.to_bytes()) for buffer in message.buffers)


@pytest.mark.long
def test_nothing_is_sent_when_nothing_has_changed(open_page: Open, clock: Any) -> None:
    """A page that somebody forgot in a tab costs nothing."""
    assert sum(live(open_page(queue="pages"), clock, 10)) == 0


@pytest.mark.long
def test_a_page_that_is_not_seen_is_left_as_it_is(open_page: Open, feed: Any, clock: Any) -> None:
    """Twenty tabs lie behind one another: one of them is looked at."""
    page = open_page(queue="pages")
    eyes = page.doc.get_model_by_name("eyes")
    eyes.active = False
    feed.change(at=feed.now.at + 1)
    asked = len(feed.snapshots)
    assert sum(live(page, clock, 10)) == 0
    assert len(feed.snapshots) == asked

    before = len(page.sent)
    eyes.active = True
    assert len(page.sent) > before + 1  # at once, beside the change of the eyes


def test_a_page_changes_once_a_second_and_as_a_whole(open_page: Open, feed: Any, clock: Any) -> None:
    """A figure and the same one in a panel differed for half a second; each change of one is a message."""
    page = open_page(queue="pages")
    run = feed.now.runs[0]
    sent = []
    for at in range(1, 13):
        ready = run.counts.ready - at
        feed.change(runs=(replace(run, counts=replace(run.counts, ready=ready)), *feed.now.runs[1:]))
        sent += live(page, clock, TICK)

    assert len([amount for amount in sent if amount]) == 2


def test_an_update_changes_few_properties_whatever_the_load(open_page: Open, feed: Any, crowd: Any, clock: Any) -> None:
    """With a hundred queues and two hundred consumers the scheduler is kept no longer than with one."""
    feed.now, feed.past = crowd.now, crowd.past
    page = open_page(span=300.0)
    page.sent.clear()
    most = 0
    for second in range(1, 6):
        points = tuple(float((at + second) % 17) for at in range(300))
        feed.past = replace(
            feed.past,
            t0=feed.past.t0 + 1,
            **dict.fromkeys(("ready", "delayed", "leased", "dead", "live", "garbage"), points),
            consumers=dict.fromkeys(feed.past.consumers, points),
        )
        for quarter in range(4):
            counts = Counts(ready=90_000 - 4 * second - quarter, leased=900)
            feed.change(at=feed.now.at + TICK, totals=replace(feed.now.totals, counts=counts))
            most = max(most, *live(page, clock, TICK))

    assert most <= 24
    assert len(page.sent) <= 5 * 40
    assert sum(map(size, page.sent)) <= 5 * 80_000


def test_panels_after_the_first_are_made_one_by_one(feed: Any, clock: Any) -> None:
    """The first picture waits for none of them, and the scheduler never for more than one."""
    page = Page(Document(), Readings(feed, clock), Request(queue="pages"), list(PANELS), clock)
    roots = {root.name: root for root in page.doc.roots}
    made = []
    for _ in range(len(PANELS) + 1):
        made.append([name for name in PANELS if roots[name].children])
        page.complete()

    assert made == [list(PANELS)[: at + 1] for at in range(len(PANELS))] + [list(PANELS)]
    assert all(roots[f"{name}-answer"].text for name in PANELS)


def test_sessions_share_what_they_read(open_page: Open, feed: Any, clock: Any) -> None:
    """Ten tabs on one view cost the collector as much as one."""
    pages = [open_page("failures", queue="pages") for _ in range(5)] + [open_page("failures", queue="ocr")]
    feed.snapshots.clear()
    feed.histories.clear()

    for _ in range(8):
        feed.change(at=feed.now.at + TICK)
        clock.now += TICK
        for page in pages:
            page.update()

    assert len(feed.snapshots) == 2 * 2
    assert len(feed.histories) == 2 * 2


def test_old_readings_are_dropped(open_page: Open, feed: Any, clock: Any) -> None:
    """Each address typed leaves something behind otherwise."""
    page = open_page("failures")
    for at in range(50):
        page.look(queue=f"q{at}")
        clock.now += 1

    assert len(page._readings._kept) <= 12


@pytest.mark.slow
def test_two_hundred_pages_opened_and_closed_are_all_gone(open_page: Open) -> None:
    """A dashboard on a wall is reloaded for months."""
    opened = [ref(open_page("failures").doc) for _ in range(200)]

    gc.collect()

    assert [page for page in opened if page() is not None] == []


def test_another_queue_and_another_span_are_shown_at_once(open_page: Open, feed: Any) -> None:
    """A choice that takes effect a second later is pressed twice."""
    page = open_page()
    page.doc.get_model_by_name("queues").value = "ocr"
    page.doc.get_model_by_name("spans").active = 0

    assert feed.histories[-1] == (300.0, "ocr", "")
    assert "12 documents" not in page.doc.get_model_by_name("summary").text
    assert "2,948" in page.doc.get_model_by_name("summary").text
    start, end = page._stage.axis.range.start, page._stage.axis.range.end
    assert end - start == pytest.approx(300_000)


def test_the_whole_run_is_shown_from_its_start(open_page: Open, feed: Any) -> None:
    """In full minutes, so that the step of the history stays."""
    open_page(queue="pages", span=WHOLE)

    assert feed.histories[-1] == (1440.0, "pages", "")


@pytest.mark.long
def test_a_young_run_fills_its_charts(open_page: Open, feed: Any, clock: Any) -> None:
    """A tab opened a minute after the start shows that minute, and later half an hour."""
    begun = feed.now.runs[0].started
    for age, span in ((60, 60.0), (700, 720.0), (9000, 1800.0)):
        clock.now += 1
        feed.change(at=begun + age)
        open_page("depth", queue="pages")
        assert feed.histories[-1][0] == span
    open_page(queue="pages")
    assert feed.histories[-1][0] == span
    open_page("depth", queue="default")
    assert feed.histories[-1][0] == 1800.0  # without a run nobody knows since when


@pytest.mark.long
def test_a_held_page_stands_still_and_counts_what_it_misses(open_page: Open, feed: Any, clock: Any) -> None:
    """To read a number it must not run away."""
    page = open_page()
    hold = page.doc.get_model_by_name("hold")
    hold.active = True
    before = page.doc.get_model_by_name("summary").text
    for _ in range(8):
        feed.change(totals=replace(feed.now.totals, counts=Counts(ready=feed.seq)))
        live(page, clock, TICK)

    assert page.doc.get_model_by_name("summary").text == before
    assert "held at 14:22:07" in page.doc.get_model_by_name("stamp").text
    assert hold.label in ("Held, 5 changes missed", "Held, 8 changes missed")

    hold.active = False

    assert hold.label == "Hold"
    assert page.doc.get_model_by_name("summary").text != before


def test_a_feed_that_fails_is_said_once_and_found_again(open_page: Open, feed: Any, clock: Any, caplog: Any) -> None:
    """Old numbers must not pose as new ones, and the log is no place for the same line four times a second."""
    page = open_page()
    feed.error = RuntimeError("closed")
    feed.seq += 1
    with caplog.at_level(logging.ERROR):
        live(page, clock, 3)

    assert len(lines_of(caplog)) == 1
    assert "No answer since 14:22:07" in page.doc.get_model_by_name("stamp").text

    feed.error = None
    feed.change(at=feed.now.at + 3)
    live(page, clock, 1)

    assert "live" in page.doc.get_model_by_name("stamp").text


def test_rows_of_consumers_keep_their_order_for_five_seconds(open_page: Open, feed: Any, clock: Any) -> None:
    """A row that moves away under the pointer is read wrongly."""
    page = open_page("throughput", queue="pages")
    left = page.panels[0]._chart.left
    names = [name for name in ("c5", "c7", "c6") if f"<b>{name}</b>" in left.text]
    first = left.text
    feed.change(at=feed.now.at + 2, consumers=tuple(reversed(feed.now.consumers)))
    live(page, clock, 2)

    assert names == ["c5", "c7", "c6"]
    assert left.text == first

    feed.change(at=feed.now.at + 4)
    live(page, clock, 2)

    assert left.text.index("<b>c0</b>") < left.text.index("<b>c5</b>")
