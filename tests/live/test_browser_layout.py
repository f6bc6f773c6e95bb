"""What can be read of the widgets at each width: heads, names, figures, marks; in a real browser."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.run_picture import Focus, run_view
from dqlab.stats import (
    Attention,
    Counts,
    History,
    QueueStats,
    RunState,
    RunStats,
    Severity,
    Snapshot,
    total_queue,
)
from tests.kit.chromium import needs_chromium
from tests.live.conftest import CODE
from tests.live.pages import Show
from tests.live.scenes import lab_history

pytestmark = [pytest.mark.browser, needs_chromium]

WIDTHS = (1600, 1500, 1100, 800, 420)
CUT = """(selector) => [...document.querySelectorAll(selector)]
  .filter((each) => each.getClientRects().length && each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.textContent)"""


def cut(page: Any, selector: str) -> list[str]:
    """The texts of elements that have no room for all of it, once the view has followed its width."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")
    found: list[str] = page.evaluate(CUT, selector)
    return found


def sixteen(snapshot: Snapshot) -> Snapshot:
    """A lab of sixteen queues with names of some length, some of them in trouble."""
    counts = Counts(ready=12_090, delayed=211, leased=64, acked=400, dead=2731)
    queues = [
        QueueStats(
            f"queue-{n:02}-invoices",
            "running",
            counts,
            in_rate=101.0,
            out_rate=23.9,
            lag=13_150.0,
            consumers=4,
            disk=44_000_000,
        )
        for n in range(16)
    ]
    failing = Attention(Severity.PROBLEM, "failing", "36 dead", "ValueError no total", "", "retry", queues[0].name, "r")
    totals = total_queue(queues, consumers=4)
    states = {"running": 16}
    return replace(
        snapshot, queues=tuple(queues), queues_total=16, totals=totals, attention=(failing,), queues_by_state=states
    )


def test_no_head_of_a_table_is_cut_at_any_width(
    show: Show, running: RunStats, snapshot: Snapshot, past: History
) -> None:
    """A column named "depth, 30 …" is a riddle; a figure without its unit is another."""
    run = run_view(running, Focus(snapshot, past, CODE))
    page = show(run, width=1600)
    for pane in ("Consumers", "Failures", "Unacked"):
        page.get_by_role("button", name=pane).click()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert cut(page, "th") == [], (pane, width)
    scene = sixteen(snapshot)
    for view in (
        lab_view(scene, lab_history(scene), place=Site("papers")),
        queue_view(snapshot, past, place=Site("pages")),
    ):
        page = show(view, width=1600)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert cut(page, "th") == [], (view.name, width)


def test_what_needs_the_user_is_read_to_its_end_where_it_is_narrow(
    show: Show, running: RunStats, snapshot: Snapshot, past: History
) -> None:
    """At 420 px the figure at the end was cut: "c0 held one document for 2 …"."""
    held = Attention(
        Severity.WARNING, "held", "c0", "held one document for 12 h 57 min", "scans/2016/invoice-00777.pdf", "show"
    )
    picture = replace(snapshot, attention=(held, *snapshot.attention), attention_total=5)
    page = show(run_view(running, Focus(picture, past)), width=420)
    words = page.locator(".dq-att .dq-t").first

    assert words.inner_text() == "c0 held one document for 12 h 57 min"
    assert words.evaluate("each => each.scrollHeight <= each.clientHeight && each.scrollWidth <= each.clientWidth")


def test_the_bar_of_a_run_whose_input_goes_on_is_not_full(show: Show, running: RunStats) -> None:
    """All that is known so far is done; a full green bar says that all is."""
    counts = Counts(acked=400)
    page = show(run_view(replace(running, state=RunState.SUBMITTING, total=None, counts=counts, units=None)))

    piece, bar = (page.locator(each).bounding_box()["width"] for each in (".dq-prog .dq-bar i", ".dq-prog .dq-bar"))
    assert piece < 0.8 * bar
