"""The widgets for people who use a keyboard or a screen reader: rules of axe-core, and what a browser reads out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.run_picture import Standing, absent_view, run_view
from dqlab.live.views import RunView
from dqlab.stats import Counts, History, RunState, RunStats, Snapshot
from tests.kit.axe import needs_axe, read_out, violations
from tests.kit.chromium import needs_chromium
from tests.live.pages import Show, as_sent
from tests.live.scenes import lab_history, many_queues

pytestmark = [pytest.mark.browser, needs_chromium, needs_axe]

WIDGET = "#out"
"""The rest of the page stands for a notebook: it has no title and no landmarks."""


def test_the_widget_of_a_run_breaks_no_rule(show: Show, full: RunView) -> None:
    """Rows that open something were of a table, which has no such rows."""
    assert violations(show(full), WIDGET) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [420, 1100])
def test_each_part_of_a_run_breaks_no_rule(show: Show, full: RunView, width: int, dark: bool) -> None:
    """Tables, menus and questions too, when they are open."""
    page = show(full, width=width, dark=dark)
    for name in ("Consumers", "Failures", "Unacked", "Code"):
        page.get_by_role("button", name=name).click()
        assert violations(page, WIDGET) == [], name
    page.get_by_role("button", name="More").click()
    assert violations(page, WIDGET) == [], "menu"
    page.get_by_role("menuitem", name="Show chart as table").click()
    assert violations(page, WIDGET) == [], "chart as table"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_each_state_of_a_run_breaks_no_rule(show: Show, running: RunStats, done: RunStats, dark: bool) -> None:
    """Submitting, paused, stopped, silent, done, cancelled, and without any work."""
    stats = [replace(running, state=state, why="because of a reason") for state in RunState]
    stats += [done, replace(running, total=0, counts=Counts(), units=None, state=RunState.DONE)]
    views = [run_view(each) for each in stats]
    views += [
        run_view(running, standing=Standing(silence=running.at - 38)),
        absent_view("parse-invoices"),
    ]
    page = show(views[0], dark=dark)
    for view in views:
        page.evaluate("view => update(view)", as_sent(view))
        assert violations(page, WIDGET) == [], view.chip
    page = show(run_view(running), dark=dark)
    page.get_by_role("button", name="Cancel run…").click()
    assert violations(page, WIDGET) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [420, 1100])
def test_widgets_of_labs_and_queues_break_no_rule(
    show: Show, snapshot: Snapshot, past: History, width: int, dark: bool
) -> None:
    """One queue, six of them, and a hundred with a filter and a map."""
    scene, place = many_queues(), Site("papers", "http://127.0.0.1:8787/status")
    for view in (
        lab_view(snapshot, lab_history(snapshot), place=place),
        lab_view(scene, lab_history(scene), place=place),
        queue_view(snapshot, past, place=Site("pages")),
    ):
        page = show(view, width=width, dark=dark)
        assert violations(page, WIDGET) == []
        more = page.get_by_role("button", name="More").first
        if more.is_visible():  # a row in a narrow place has none
            more.click()
            assert violations(page, WIDGET) == []


def test_a_screen_reader_reads_a_sentence_for_each_picture(
    show: Show, full: RunView, snapshot: Snapshot, past: History
) -> None:
    """Of a run its bar and its chart, of a queue its chart; glyphs beside their words are silent."""

    def pictures(page: Any) -> list[str]:
        return [name for role, name in read_out(page) if role in ("image", "img")]

    bar, chart = pictures(show(full))
    assert bar == "65.4 percent of pages settled"
    assert chart.startswith("Pages left over time: 315,894 now, zero expected at 14:34")
    queue = queue_view(snapshot, past, place=Site("pages"))
    assert pictures(show(queue)) == ["Messages waiting, last 24 min: 16,057 now"]
