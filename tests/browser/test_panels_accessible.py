"""The dashboard for people who use a keyboard or a screen reader: rules of axe-core, and what a browser reads out."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from tests.axe import needs_axe, read_out, violations
from tests.browser.panel_pages import NAMES, Feed, crowded
from tests.chromium import needs_chromium

pytestmark = [pytest.mark.browser, needs_chromium, needs_axe, pytest.mark.timeout(180)]

OF_DASK = {
    "image-alt": "pictures in Dask's bar have no text",
    "link-name": "links in Dask's bar are these pictures",
    "list": "Dask's bar has a menu among the items of a list",
    "listitem": "and an item outside of it",
    "region": "Dask's bar is no landmark",
}
"""What Dask's template, in which the dashboard stands, brings along: it is not ours to change."""


def named(page: Any, charts: int) -> None:
    """Wait until the charts have their texts."""
    words = "(least) => document.querySelectorAll('section.card[data-spoken]').length >= least"
    page.wait_for_function(words, arg=charts, timeout=20_000)


def test_a_panel_alone_breaks_no_rule(show: Any) -> None:
    """Its page is all ours."""
    page = show("/individual-dq-runs?theme=light", 1100, 420, charts=1)
    named(page, 1)

    assert violations(page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_each_panel_breaks_no_rule(show: Any, feed: Feed, name: str, theme: str) -> None:
    """In both themes, with its table open, and with names of users of any length."""
    fresh = Feed()
    feed.now, feed.past, feed.seq = fresh.now, fresh.past, feed.seq + 1
    page = show(f"/individual-dq-{name}?theme={theme}", 700, 420, charts=1)
    named(page, 1)
    assert violations(page) == []

    page.get_by_role("button", name="as table").click()
    page.locator("table td").first.wait_for(timeout=10_000)
    crowded(feed)
    page.locator("text=institute").or_(page.locator("table td").first).first.wait_for(timeout=10_000)
    assert violations(page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("wall", ["", "&wall=1"], ids=["desk", "wall"])
def test_the_dashboard_breaks_no_rule(show: Any, feed: Feed, theme: str, wall: str) -> None:
    """The list of queues had no name; what Dask's template brings is listed above."""
    fresh = Feed()
    feed.now, feed.past, feed.seq = fresh.now, fresh.past, feed.seq + 1
    page = show(f"/dq?queue=pages&theme={theme}{wall}", 1280, 1000, charts=9)
    named(page, len(NAMES))

    assert violations(page, "main") == []
    assert violations(page, foreign={} if wall else OF_DASK) == []


def test_a_screen_reader_reads_one_sentence_for_each_chart(show: Any, feed: Feed) -> None:
    """Each of the layers of a drawing had the sentence: it was read four times, and then nothing at all."""
    fresh = Feed()
    feed.now, feed.past, feed.seq = fresh.now, fresh.past, feed.seq + 1
    page = show("/dq?queue=pages&theme=light", 1280, 1000, charts=9)
    named(page, len(NAMES))
    said = read_out(page)
    charts = [name for role, name in said if role in ("image", "img") and ": " in name]

    assert sorted(charts) == [
        "Failures: 9 deliveries failed in the last minute, 4 classes in all",
        "Queue depth by state: fell by 22.7 messages/s, last 20 s · empty about 14:34",
        "Runs: 1 running",
        "Storage: 61 % garbage, more than 50 % · compacts itself at the next checkpoint",
        "Throughput per consumer: c5 does 14.0 pages/s, median 63.5",
        "Unacked messages: 1 of 64 messages past 1 min",
    ]
    buttons = [name for role, name in said if role == "button"]
    assert "Show Queue depth by state as table" in buttons
    assert ("combobox", "Queue") in [(role, name) for role, name in said if role == "combobox"]


@pytest.mark.parametrize("name", NAMES)
def test_each_chart_is_a_table_with_the_figures_of_its_chart(show: Any, feed: Feed, name: str) -> None:
    """By those to whom a line says nothing, with heads that a screen reader repeats."""
    fresh = Feed()
    feed.now, feed.past, feed.seq = fresh.now, fresh.past, feed.seq + 1
    page = show(f"/individual-dq-{name}?theme=light&queue=pages&read=1", 700, 420, charts=1)
    page.get_by_role("button", name="as table").click()
    page.locator("table td").first.wait_for(timeout=10_000)
    said = read_out(page)
    heads = [words for role, words in said if role == "columnheader"]

    assert heads[0] == FIRST_HEAD[name]
    assert FIGURES[name] in [words for role, words in said if role in ("cell", "gridcell", "rowheader")]


FIRST_HEAD = {
    "depth": "at", "unacked": "held for", "throughput": "consumer", "failures": "class", "runs": "run", "storage": "at"
}  # fmt: skip
FIGURES = {
    "depth": "15,846", "unacked": "4 min\N{EN DASH}8 min", "throughput": "14.0", "failures": "128",
    "runs": "65.4 %", "storage": "860 MB",
}  # fmt: skip
