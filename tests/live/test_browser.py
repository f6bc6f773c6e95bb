"""The run widget in a real browser, alone in a page, with a model that only records."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from dqlab.live.details import examples
from dqlab.live.run_picture import Focus, Standing, absent_view, run_view
from dqlab.live.views import RunView
from dqlab.stats import Attention, ClassStats, Counts, History, RunState, RunStats, Severity, Snapshot
from tests.kit.chromium import needs_chromium
from tests.live.pages import Show, as_sent, overflowing
from tests.live.test_run_picture import stuck

pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.mark.smoke
def test_pause_sends_one_message_and_waits_for_the_next_view(show: Show, running: RunStats) -> None:
    """A second press of a button that did not react yet must not do anything."""
    page = show(run_view(running))

    page.get_by_role("button", name="Pause").click()

    assert page.evaluate("sent") == [{"command": "pause"}]
    assert page.get_by_role("button", name="Pause").is_disabled()
    page.evaluate("view => update(view)", as_sent(run_view(replace(running, state=RunState.PAUSED))))
    assert page.get_by_role("button", name="Resume").is_enabled()


def test_cancel_asks_in_place_with_the_safe_answer_in_focus(show: Show, running: RunStats) -> None:
    """Enter, pressed out of habit, keeps the run."""
    page = show(run_view(running))

    page.get_by_role("button", name="Cancel run…").click()

    dialog = page.get_by_role("alertdialog")
    assert "Cancel 16,121 documents? 31,877 results stay." in dialog.inner_text()
    assert page.evaluate("document.activeElement.textContent") == "Keep running"
    assert page.get_by_role("button", name="Pause").is_disabled()
    page.keyboard.press("Enter")
    assert not dialog.is_visible()
    assert page.evaluate("sent") == []
    assert page.evaluate("document.activeElement.textContent") == "Cancel run…"


def test_narrow_widget_keeps_cancel_behind_a_menu(show: Show, running: RunStats) -> None:
    """At 400 px there is room for Pause and a menu; Escape closes what was opened and gives the focus back."""
    page = show(run_view(running), width=400)
    more = page.get_by_role("button", name="More")
    assert not page.get_by_role("button", name="Cancel run…").is_visible()

    more.click()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "Cancel run…"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "More"
    more.click()
    page.get_by_role("menuitem", name="Cancel run…").click()

    assert page.evaluate("document.activeElement.textContent") == "Keep running"
    assert overflowing(page) == []


def test_failures_table_lists_classes_and_can_be_closed(show: Show, running: RunStats) -> None:
    """What fails and why is readable without a click."""
    known = replace(running.classes[0], key="acme/2021/inv-30991.pdf", versions=("parse v3",))
    page = show(run_view(replace(running, classes=(known, *running.classes[1:]))))
    rows = page.locator("tbody tr")
    assert rows.count() == 4
    assert rows.first.locator("td").all_inner_texts() == [
        "PdfError",
        "invalid xref table",
        "parse:31",
        "parse v3",
        "128",
        "140",
        "acme/2021/inv-30991.pdf",
    ]

    toggle = page.get_by_role("button", name="Failures 4 classes")
    assert toggle.get_attribute("aria-expanded") == "true"
    toggle.click()

    assert toggle.get_attribute("aria-expanded") == "false"
    assert page.locator("table:visible").count() == 0


def test_markup_in_names_and_messages_stays_text(show: Show, running: RunStats) -> None:
    """Messages come from documents; a document must not run code in the notebook."""
    evil = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
    entry = ClassStats(evil, evil, evil, evil, 1, 0, running.at, running.at, evil)
    page = show(run_view(replace(running, name=evil, queue=evil, why=evil, classes=(entry,))))

    assert page.evaluate("window.hacked") is None
    assert page.locator("img, script").count() == 0
    assert "<img" in page.locator("h1").inner_text()


def test_closing_the_view_leaves_no_listener(show: Show, running: RunStats) -> None:
    """Outputs are cleared and drawn again all day; each must take its listener with it."""
    page = show(run_view(running))

    page.evaluate("cleanup()")

    assert page.evaluate("listeners.size") == 0


STATES = [
    RunState.SUBMITTING,
    RunState.PAUSED,
    RunState.WAITING,
    RunState.STOPPED,
    RunState.INCOMPLETE,
    RunState.CANCELLED,
]


@pytest.mark.smoke
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_state_fits(show: Show, running: RunStats, done: RunStats, dark: bool) -> None:
    """In both themes, at the least width."""
    stats = [replace(running, state=state, why="because of a reason") for state in STATES]
    stats[0] = replace(stats[0], total=None)
    stats += [running, done, replace(running, total=0, counts=Counts(), units=None, state=RunState.DONE)]
    views = [run_view(each) for each in stats]
    views += [
        run_view(running, standing=Standing(silence=running.at - 38)),
        absent_view("parse-invoices"),
    ]
    page = show(views[0], width=400, dark=dark)
    for view in views:
        page.evaluate("view => update(view)", as_sent(view))
        assert overflowing(page) == [], view.face
        assert page.get_by_role("status").inner_text().startswith(view.chip)


@pytest.mark.parametrize(("width", "dark"), [(1000, False), (400, True)], ids=["wide", "narrow and dark"])
def test_chart_is_drawn_at_the_real_width_and_says_what_it_shows(
    show: Show, full: RunView, width: int, dark: bool
) -> None:
    """Text in it never scales, and who cannot see it hears its sentence."""
    page = show(full, width=width, dark=dark)
    chart = page.get_by_role("img", name="Pages left over time: 315,894 now, zero expected at 14:34")
    box, place = chart.bounding_box(), page.locator(".dq-chart").bounding_box()

    assert box["width"] == int(place["width"])
    assert chart.locator("text").first.evaluate("each => getComputedStyle(each).fontSize") == "11px"
    assert chart.locator(".dq-due").text_content() == "14:34"
    assert "[12]" in chart.locator(".dq-code").all_text_contents()
    page.set_viewport_size({"width": width + 60, "height": 800})
    page.wait_for_function("before => document.querySelector('.dq-chart svg').clientWidth > before", arg=box["width"])
    assert overflowing(page) == []


def test_chart_can_be_read_as_a_table(show: Show, full: RunView) -> None:
    """By those to whom a line says nothing."""
    page = show(full)
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Show chart as table").click()

    assert page.locator(".dq-chart tbody tr").count() == 3
    assert page.locator(".dq-chart tbody tr").last.inner_text().startswith("14:20")


def test_needs_lead_to_where_they_are_seen_to(show: Show, full: RunView) -> None:
    """Each line has one thing to do; fixing begins at the failure class."""
    page = show(full)
    lines = page.locator(".dq-att li")
    assert [line.split("\n")[0] for line in lines.all_inner_texts()] == [
        "61 dead: KeyError 'total'",
        "c5 held one document for 4 min 12 s",
        "128 dead: PdfError invalid xref table",
    ]

    lines.nth(1).get_by_role("button", name="Show").click()
    assert page.get_by_role("table", name="Held longest").is_visible()
    lines.first.get_by_role("button", name="Fix & retry…").click()

    assert page.evaluate("sent") == [{"command": "show", "target": "7b0f44a1"}]
    assert page.locator("tr[aria-expanded=true]").inner_text().startswith("KeyError")
    letter = SimpleNamespace(key="lux/contract-7.pdf", deliveries=4, version="a41f9c", traceback="in totals\nKeyError")
    shown = replace(full, details=replace(full.details, examples=examples("7b0f44a1", [letter])))
    page.evaluate("view => update(view)", as_sent(shown))
    assert "in totals" in page.locator(".dq-detail pre").inner_text()
    assert "lux/contract-7.pdf (4 deliveries, code a41f9c)" in page.locator(".dq-detail").inner_text()
    page.get_by_role("button", name="Retry 61 with v4").click()
    assert page.evaluate("sent[1]") == {"command": "retry", "target": "7b0f44a1"}


def test_keyboard_walks_in_reading_order_and_closes_what_it_opened(show: Show, full: RunView) -> None:
    """Controls, needs, disclosures, table; one stop for a table; Escape gives the focus back."""
    page = show(full)
    focused = "document.activeElement.textContent"
    order = []
    for _ in range(10):
        page.keyboard.press("Tab")
        order.append(page.evaluate(focused))
    assert order[:3] == ["Pause", "⋯", "Cancel run…"]
    assert order[3:6] == ["Fix & retry…", "Show", "Fix & retry…"]
    assert [each[:11] for each in order[6:]] == ["▸ Consumers", "▸ Failures ", "▸ Unacked 6", "▸ Code v4"]

    page.get_by_role("button", name="Failures").focus()
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate(focused).startswith("PdfError")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("tr[aria-expanded=true]").inner_text().startswith("KeyError")
    page.keyboard.press("Escape")
    assert page.evaluate(focused).startswith("▸ Failures")
    page.keyboard.press("p")
    assert page.evaluate("sent.at(-1)") == {"command": "pause"}


def test_stuck_document_can_be_given_up_and_its_consumer_replaced_where_it_is_named(
    show: Show, running: RunStats, snapshot: Snapshot
) -> None:
    """There was nothing to press but the end of the whole run; and the page does not move when this appears."""
    run, focus = stuck(running, snapshot, 360.0)
    page = show(run_view(running))
    place = "document.querySelector('.dq-body').getBoundingClientRect().top"
    before = page.evaluate(place)
    page.evaluate("view => update(view)", as_sent(run_view(run, focus)))
    assert page.evaluate(place) == before
    page.get_by_role("button", name="Replace c0").click()
    assert page.evaluate("sent") == [{"command": "replace", "target": "c0"}]

    page = show(run_view(run, focus), width=420)
    assert page.locator(".dq-notice .dq-grow").bounding_box()["width"] > 300
    page.get_by_role("button", name="Give up inv-00777.pdf").click()
    assert page.evaluate("sent") == [{"command": "give_up", "target": "inv-00777.pdf"}]


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
