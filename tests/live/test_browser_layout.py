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
    Unacked,
    total_queue,
)
from tests.kit.chromium import needs_chromium
from tests.live.conftest import CODE
from tests.live.pages import Show, as_sent
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


@pytest.mark.parametrize("width", [1600, 1500, 1100])
def test_figures_of_a_lab_and_their_heads_are_whole_in_a_wide_font(show: Show, snapshot: Snapshot, width: int) -> None:
    """With the font of JupyterLab on Debian heads were "in/s, last 6…", and 1,332 documents left "1,332 docume…"."""
    scene = sixteen(snapshot)
    runs = tuple(replace(run, counts=Counts(ready=914_306), units=None) for run in snapshot.runs)
    page = show(lab_view(replace(scene, runs=runs), lab_history(scene), place=Site("papers")), width=width)

    page.evaluate("() => document.body.style.setProperty('--jp-ui-font-family', 'DejaVu Sans')")

    assert cut(page, "th, td.dq-num") == []


def test_names_of_sixteen_queues_can_be_told_apart_at_every_width(show: Show, snapshot: Snapshot) -> None:
    """At 1600 px they had a tenth of the width: "queue-0…" seven times."""
    scene = sixteen(snapshot)
    page = show(lab_view(scene, lab_history(scene), place=Site("papers")), width=1600)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert cut(page, ".dq-queues td.dq-qn b") == [], width
        assert cut(page, ".dq-queues td.dq-qn") == [], width


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


def test_lines_that_are_not_listed_are_counted(
    show: Show, running: RunStats, snapshot: Snapshot, past: History
) -> None:
    """ "Needs you 7" with three lines below it."""
    page = show(run_view(running, Focus(replace(snapshot, attention_total=7), past)))

    assert page.locator(".dq-two h2", has_text="Needs you").inner_text() == "Needs you 7 · 4 not listed"
    assert page.locator(".dq-att li").count() == 3


def test_a_bin_without_messages_has_no_mark(show: Show, running: RunStats, snapshot: Snapshot, past: History) -> None:
    """A sliver of amber looked like a few."""
    unacked = Unacked(age_bins=(5, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0), total=6, timeout=60.0)
    page = show(run_view(running, Focus(replace(snapshot, unacked=unacked), past)))
    page.get_by_role("button", name="Unacked").click()

    heights = page.locator(".dq-bins i").evaluate_all("all => all.map((each) => each.getBoundingClientRect().height)")
    assert [height > 0 for height in heights] == [True, False, False, True, *[False] * 7]


def test_the_line_of_a_young_queue_fills_its_room(show: Show, snapshot: Snapshot) -> None:
    """Of half an hour one minute is known: the line was blank, or four pixels wide."""
    history = lab_history(snapshot)
    depths = {name: (*[None] * 27, *values[-3:]) for name, values in history.depths.items()}
    page = show(lab_view(snapshot, replace(history, depths=depths), place=Site("papers")), width=1600)
    line = page.locator('tr[data-name="pages"] .dq-spark path.dq-line')

    assert line.evaluate("each => each.getBBox().width") > 60


def test_the_bar_of_a_run_whose_input_goes_on_is_not_full(show: Show, running: RunStats) -> None:
    """All that is known so far is done; a full green bar says that all is."""
    counts = Counts(acked=400)
    page = show(run_view(replace(running, state=RunState.SUBMITTING, total=None, counts=counts, units=None)))

    piece, bar = (page.locator(each).bounding_box()["width"] for each in (".dq-prog .dq-bar i", ".dq-prog .dq-bar"))
    assert piece < 0.8 * bar


def test_without_keys_the_column_of_documents_leaves_and_no_other(
    show: Show, running: RunStats, snapshot: Snapshot, past: History
) -> None:
    """A column that came between hid how many are retried."""
    bare = tuple(replace(each, key=None) for each in running.classes)
    for classes, last in ((bare, "retrying"), (tuple(replace(each, key="a.pdf") for each in bare), "one document")):
        page = show(run_view(replace(running, classes=classes), Focus(snapshot, past)), width=1100)
        page.get_by_role("button", name="Failures").click()
        heads = page.locator('table[aria-label^="Failures"] th').evaluate_all(
            "all => all.filter((each) => each.getClientRects().length).map((each) => each.innerText)"
        )
        assert heads[-1] == last
        assert "retrying" in heads


def test_times_below_a_chart_are_read_to_their_end(
    show: Show, running: RunStats, snapshot: Snapshot, past: History
) -> None:
    """The last one was cut at the right edge: "00:36:3"."""
    chart = run_view(running, Focus(snapshot, past)).details.chart
    assert chart is not None
    script = """() => {
      const edge = document.querySelector(".dq-chart svg").getBoundingClientRect();
      return [...document.querySelectorAll(".dq-chart text")].filter((each) => {
        const box = each.getBoundingClientRect();
        return box.right > edge.right + 0.5 || box.left < edge.left - 0.5;
      }).map((each) => each.textContent);
    }"""
    page = show(run_view(running, Focus(snapshot, past)), width=1000)
    for end in range(80, 126, 3):
        ticks = tuple((float(at), f"00:3{at // 60}:{at % 60:02}") for at in range(0, end + 1, 25))
        full = run_view(running, Focus(snapshot, past))
        young = replace(chart, step=1.0, now=60.0, end=float(end), values=(9,) * 61, fan=(), marks=(), ticks=ticks)
        page.evaluate("view => update(view)", as_sent(replace(full, details=replace(full.details, chart=young))))
        for width in (1000, 420):
            page.set_viewport_size({"width": width, "height": 800})
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            assert page.evaluate(script) == [], (end, width)
            assert width < 1000 or page.locator(".dq-chart text", has_text="00:30:25").count() == 1
