"""The widgets of labs and queues in a real browser, alone in a page, with a model that only records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.views import QueuesView
from dqlab.stats import History, Snapshot
from tests.kit.chromium import needs_chromium
from tests.live.pages import Show
from tests.live.scenes import lab_history, many_queues

PAPERS = Site("papers", "http://127.0.0.1:8787/status")
FOCUSED = "document.activeElement.textContent"

pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.fixture
def lab(snapshot: Snapshot) -> QueuesView:
    return lab_view(snapshot, lab_history(snapshot), place=PAPERS)


@pytest.fixture
def pages(snapshot: Snapshot, past: History) -> QueuesView:
    return queue_view(snapshot, past, place=Site("pages"))


@pytest.fixture
def hundred() -> QueuesView:
    scene = many_queues()
    return lab_view(scene, lab_history(scene), place=PAPERS)


def row(page: Any, name: str) -> Any:
    return page.locator(f'tr[data-name="{name}"]')


def test_rows_say_state_reason_and_figures(show: Show, lab: QueuesView) -> None:
    """Which queue needs what, in words, at one glance."""
    page = show(lab, width=1600)

    heads = page.locator("thead").first.inner_text().replace("\N{NO-BREAK SPACE}", " ").split("\t")
    assert heads[8:10] == ["in/s, last 60 s", "out/s, last 60 s"]
    assert page.locator("tr[data-name]").count() == 6
    words = row(page, "pages").inner_text().split()
    assert words[:4] == ["pages", "Running", "·", "KeyError"]
    assert words[5:15] == ["15,846", "211", "64", "212", "0.40", "23.9", "23", "min", "12", "min"]
    assert row(page, "embed").get_by_role("button").first.inner_text() == "Resume"
    assert page.get_by_role("link", name="Open dashboard").get_attribute("href") == PAPERS.dashboard


def test_pause_of_a_row_names_its_queue_and_blocks_until_answered(show: Show, lab: QueuesView) -> None:
    """Rows look alike; the press must not."""
    page = show(lab, width=1160)

    page.get_by_role("button", name="Pause ocr").click()
    assert page.evaluate("sent") == [{"command": "pause", "queue": "ocr"}]
    assert page.get_by_role("button", name="Pause ocr").is_disabled()
    page.evaluate("update({})")
    page.get_by_role("button", name="Resume embed").click()

    assert page.evaluate("sent[1]") == {"command": "resume", "queue": "embed"}


def test_menu_of_a_row_drains_scales_compacts_and_retries(show: Show, lab: QueuesView) -> None:
    """What is rare stands behind one button."""
    page = show(lab, width=1160)
    wanted = [
        ("Drain", {"command": "drain", "queue": "pages"}),
        ("Compact", {"command": "compact", "queue": "pages"}),
        ("Retry 212 dead of parse-invoices", {"command": "retry", "queue": "pages", "run": "parse-invoices"}),
    ]
    for name, message in wanted:
        page.get_by_role("button", name="More for pages").click()
        page.get_by_role("menuitem", name=name).click()
        assert page.evaluate("sent.at(-1)") == message
        page.evaluate("update({})")

    page.get_by_role("button", name="More for pages").click()
    page.get_by_role("menuitem", name="Scale…").click()
    assert page.evaluate("document.activeElement.value") == "8"
    page.get_by_role("spinbutton").fill("12")
    page.keyboard.press("Enter")
    assert page.evaluate("sent.at(-1)") == {"command": "scale", "queue": "pages", "n": 12}


def test_of_a_hundred_queues_those_in_sight_are_drawn(show: Show, hundred: QueuesView) -> None:
    """Those that need somebody first, with the reason; totals count all."""
    page = show(hundred, width=1300)

    assert page.locator("tr[data-name]").count() < 30
    assert page.locator("tr[data-name]").first.inner_text().startswith("ocr-07\nWaiting · paused itself: 31 % failing")
    assert page.locator("[role=gridcell]").count() == 100

    page.locator(".dq-window").evaluate("each => { each.scrollTop = each.scrollHeight; }")
    page.wait_for_function("document.querySelector('tr[data-name=\"rest-52\"]')")
    assert page.locator("tr[data-name]").count() < 30


def test_filter_finds_by_name_state_and_reason(show: Show, hundred: QueuesView) -> None:
    """One slash, a few letters."""
    page = show(hundred, width=1300)
    row(page, "ocr-07").focus()
    page.keyboard.press("/")
    page.keyboard.type("by ana")
    assert page.locator("tr[data-name]").count() == 3
    assert page.get_by_role("status").last.text_content() == "3 of 100 queues"
    page.keyboard.press("Escape")
    assert page.locator("tr[data-name]").count() > 10

    page.get_by_label("Filter queues").last.fill("nothing of that name")
    assert page.locator(".dq-rest:visible").inner_text() == "no queue matches"


def test_keyboard_reaches_every_queue_and_its_buttons(show: Show, hundred: QueuesView) -> None:
    """One stop for Tab; arrows move, Enter opens, P pauses; no key is bound to what destroys."""
    page = show(hundred, width=1300)
    row(page, "ocr-07").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.name") == "parse-03"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Pause parse-03"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("p")
    assert page.evaluate("sent") == [{"command": "pause", "queue": "parse-03"}]
    page.evaluate("update({})")

    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "Drain"
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowLeft")
    for _ in range(30):
        page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.name") == hundred.rows[31].name
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.dataset.name") == hundred.rows[-1].name
    assert page.locator("tr[data-name][tabindex='0']").count() == 1


def test_hostile_queue_names_stay_text(show: Show, snapshot: Snapshot) -> None:
    """Other clients name queues too."""
    evil = '<img src=x onerror="window.hacked=1">"\'\\'
    queues = tuple(replace(queue, name=f"{evil}{queue.name}", why=evil) for queue in snapshot.queues)
    runs = tuple(replace(run, name=evil, queue=f"{evil}{run.queue}") for run in snapshot.runs)
    scene = replace(snapshot, queues=queues, runs=runs, attention=())
    page = show(lab_view(scene, lab_history(scene), place=Site(evil, "javascript:window.hacked=1")), width=1160)
    page.get_by_role("button", name="⋯").or_(page.locator("tr .dq-more")).first.click()

    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("a:visible").count() == 0
    page.get_by_role("menuitem", name="Drain").click()
    assert page.evaluate("sent[0].queue") == f"{evil}pages"


@pytest.mark.smoke
def test_queue_obeys_its_buttons(show: Show, pages: QueuesView) -> None:
    """Without a name: there is only one."""
    page = show(pages)
    page.get_by_role("button", name="Pause").click()
    page.evaluate("update({})")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Discard 212 dead…").click()
    assert page.evaluate(FOCUSED) == "Keep them"
    page.get_by_role("button", name="Discard 212", exact=True).click()

    assert page.evaluate("sent") == [{"command": "pause"}, {"command": "purge"}]


def test_a_lab_lists_its_runs_below_its_queues(show: Show, lab: QueuesView) -> None:
    """It listed queues alone: which runs there are, and which of them failed, stood nowhere."""
    page = show(lab, width=1200)
    runs = page.get_by_role("region", name="Runs")
    assert runs.get_by_role("heading").inner_text() == "Runs 5"
    assert runs.locator("tbody tr").count() == 5
    words = runs.locator("tbody tr").first.inner_text()
    assert all(each in words for each in ("parse-invoices", "pages", "Running", "65.4 %", "14:34", "212"))
