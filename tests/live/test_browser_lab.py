"""The widgets of labs and queues in a real browser, alone in a page, with a model that only records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dqlab.live.lab_picture import Site, absent_queues, lab_view, queue_view
from dqlab.live.run_picture import Silence
from dqlab.live.views import QueuesView
from dqlab.stats import History, Snapshot
from tests.kit.chromium import needs_chromium
from tests.live.pages import POOR_CONTRAST, Show, as_sent, overflowing
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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_lab_fits_and_is_readable(show: Show, hundred: QueuesView, lab: QueuesView, dark: bool) -> None:
    """No figure is cut at any width; text has 4.5:1 contrast on its ground, also on a washed row."""
    page = show(lab, dark=dark)
    for view in (lab, hundred):
        page.evaluate("view => update(view)", as_sent(view))
        for width in (340, 400, 700, 1000, 1160, 1500):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(
                "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
            )
            assert overflowing(page) == [], width
            assert page.evaluate(CUT) == [], width
        assert page.evaluate(POOR_CONTRAST) == []


CUT = """() => [...document.querySelectorAll(".dq-queues .dq-num, .dq-v, .dq-s, .dq-acts")]
  .filter((each) => each.getClientRects().length && each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.textContent)"""


def test_columns_give_way_to_narrow_places(show: Show, lab: QueuesView) -> None:
    """Name, reason, ready, dead, empty in and Pause stay to the last."""
    page = show(lab, width=400)
    shown = """() => [...document.querySelectorAll(".dq-queues th")].filter((each) => each.getClientRects().length)
      .map((each) => each.innerText)"""
    assert page.evaluate(shown)[:4] == ["queue", "ready", "dead", "empty in"]
    assert "KeyError" in row(page, "pages").locator(".dq-why").inner_text()

    page.set_viewport_size({"width": 800, "height": 800})
    assert len(page.evaluate(shown)) == 9


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


def test_discarding_asks_in_place_with_the_safe_answer_in_focus(show: Show, lab: QueuesView) -> None:
    """Enter, pressed out of habit, keeps the dead documents."""
    page = show(lab, width=1160)
    page.get_by_role("button", name="More for pages").click()
    page.get_by_role("menuitem", name="Discard 212 dead…").click()

    dialog = page.get_by_role("alertdialog")
    assert "Discard 212 dead messages of pages?" in dialog.inner_text()
    assert page.evaluate(FOCUSED) == "Keep them"
    page.keyboard.press("Enter")
    assert not dialog.is_visible()
    assert page.evaluate("sent") == []
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "More for pages"

    page.get_by_role("button", name="More for pages").click()
    page.get_by_role("menuitem", name="Discard 212 dead…").click()
    page.get_by_role("button", name="Discard 212", exact=True).click()
    assert page.evaluate("sent") == [{"command": "purge", "queue": "pages"}]


def test_of_a_hundred_queues_those_in_sight_are_drawn(show: Show, hundred: QueuesView) -> None:
    """Those that need somebody first, with the reason; totals count all."""
    page = show(hundred, width=1300)

    assert page.locator("tr[data-name]").count() < 30
    assert page.locator("tbody .dq-grp").first.inner_text() == "Needs you · 6"
    assert page.locator("tr[data-name]").first.inner_text().startswith("ocr-07\nWaiting · paused itself: 31 % failing")
    assert page.locator("[role=gridcell]").count() == 100
    assert page.locator(".dq-toggle").all_inner_texts() == [
        "needs you 6", "running 42", "paused 3", "empty 53", "all 100",
    ]  # fmt: skip

    page.locator(".dq-window").evaluate("each => { each.scrollTop = each.scrollHeight; }")
    page.wait_for_function("document.querySelector('tr[data-name=\"rest-52\"]')")
    assert page.locator("tr[data-name]").count() < 30


def test_scrolling_a_hundred_queues_draws_few_rows_while_numbers_move(show: Show, hundred: QueuesView) -> None:
    """That is what keeps it smooth: a step of the wheel makes a few rows, a tick changes those in sight."""
    page = show(hundred, width=1300)
    moved = [tuple(each._replace(ready=f"{n},{at:03}") for at, each in enumerate(hundred.rows)) for n in range(10)]
    states = [as_sent(replace(hundred, rows=rows)) for rows in moved]
    script = """async (states) => {
      const area = document.querySelector(".dq-window");
      let made = 0, changed = 0;
      const watcher = new MutationObserver((records) => records.forEach((record) => {
        const rows = [...record.addedNodes].filter((node) => node.nodeName === "TR").length;
        made += rows;
        changed += 1;
      }));
      watcher.observe(area, { subtree: true, childList: true, characterData: true, attributes: true });
      const steps = [];
      for (const [at, state] of states.entries()) {
        made = changed = 0;
        update(state);
        area.scrollTop = at * 170;
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        steps.push([made, changed]);
      }
      return steps.slice(1);
    }"""

    for made, changed in page.evaluate(script, states):
        assert made <= 12
        assert changed < 600
    assert page.locator("tr[data-name]").count() < 34


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

    page.get_by_role("button", name="paused 3").click()
    assert page.get_by_role("button", name="paused 3").get_attribute("aria-pressed") == "true"
    assert page.locator("tr[data-name]").count() == 3
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


def test_a_cell_of_the_map_leads_to_its_row(show: Show, hundred: QueuesView) -> None:
    """A hundred queues at one glance, and the one that is meant."""
    page = show(hundred, width=1300)
    page.locator("[role=gridcell]").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.name") == hundred.rows[50].name
    page.keyboard.press("Enter")

    assert page.evaluate("document.activeElement.matches('tr')")
    assert page.evaluate("document.activeElement.dataset.name") == hundred.rows[50].name


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


def test_silence_of_a_lab_keeps_the_numbers_dated(show: Show, snapshot: Snapshot) -> None:
    """Old numbers never pose as new ones."""
    page = show(lab_view(snapshot, place=PAPERS, silence=Silence(38, snapshot.at - 38)), width=1160)

    assert "No answer since 14:21:29. This view keeps asking. The lab goes on" in page.inner_text(".dq-notice")
    assert "as of 14:22:07" in page.inner_text(".dq-sub")
    assert page.locator(".dq-v").nth(2).inner_text().startswith("\N{EN DASH}")
    page.get_by_role("button", name="Retry now").click()
    assert page.evaluate("sent") == [{"command": "ask"}]


def test_lab_that_has_not_answered_has_no_figures(show: Show) -> None:
    """Zeros would look like an empty lab."""
    page = show(absent_queues(PAPERS))

    assert "asking for the first numbers" in page.inner_text("header")
    assert page.locator(".dq-v:visible").count() == 0


@pytest.mark.parametrize("width", [400, 1000])
def test_queue_shows_its_row_in_full(show: Show, pages: QueuesView, width: int) -> None:
    """Figures, depth over time, what needs somebody, who serves it, what fails."""
    page = show(pages, width=width, dark=width == 400)

    assert page.get_by_role("status").inner_text() == "Running"
    assert page.get_by_role("img", name="Messages waiting, last 24 min: 16,057 now").is_visible()
    assert page.locator(".dq-v").all_inner_texts()[4] == "12min"
    for name in ("Consumers 8", "Runs 1", "Failures 4 classes", "Unacked 64"):
        page.get_by_role("button", name=name).click()
        assert overflowing(page) == []
        assert page.evaluate(CUT) == []
        assert page.evaluate(POOR_CONTRAST) == []


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


def test_closed_views_leave_nothing_behind(show: Show, lab: QueuesView, pages: QueuesView) -> None:
    """Outputs are cleared and drawn again all day."""
    for view in (lab, pages):
        page = show(view)
        page.evaluate("cleanup()")
        assert page.evaluate("listeners.size") == 0


def test_wishes_of_the_system_are_obeyed(show: Show, lab: QueuesView) -> None:
    """Bars do not glide, which took two thirds of the widget's CPU; with forced colours they have edges."""
    page = show(lab, width=1160)
    bar = page.locator(".dq-bar").first
    look = "each => [getComputedStyle(each.firstChild).transitionDuration, getComputedStyle(each).borderTopWidth]"
    assert bar.evaluate(look) == ["0s", "0px"]

    page.emulate_media(forced_colors="active")

    assert bar.evaluate(look) == ["0s", "1px"]


def test_marks_keep_the_colour_of_their_state_where_colours_are_forced(
    show: Show, hundred: QueuesView, pages: QueuesView
) -> None:
    """A map of a hundred queues in one colour says nothing."""
    painted = """() => Object.fromEntries([".dq-heat [data-kind=bad]", ".dq-bar i", ".dq-inl i", ".dq-bins i"]
      .map((name) => [name, document.querySelector(name)])
      .filter(([, mark]) => mark)
      .map(([name, mark]) => [name, getComputedStyle(mark).backgroundColor]))"""
    seen: set[str] = set()
    for view in (hundred, pages):
        page = show(view, width=1160)
        for name in ("Consumers 8", "Unacked 64") if view is pages else ():
            page.get_by_role("button", name=name).click()
        colours = page.evaluate(painted)
        page.emulate_media(forced_colors="active")

        assert page.evaluate(painted) == colours
        seen.update(colours)
    assert len(seen) == 4


def test_a_lab_lists_its_runs_below_its_queues(show: Show, snapshot: Snapshot, lab: QueuesView) -> None:
    """It listed queues alone: which runs there are, and which of them failed, stood nowhere."""
    page = show(lab, width=1200)
    runs = page.get_by_role("region", name="Runs")
    assert runs.get_by_role("heading").inner_text() == "Runs 5"
    assert runs.locator("tbody tr").count() == 5
    words = runs.locator("tbody tr").first.inner_text()
    assert all(each in words for each in ("parse-invoices", "pages", "Running", "65.4 %", "14:34", "212"))

    many = tuple(replace(snapshot.runs[0], name=f"r{n:02}", started=snapshot.at - n) for n in range(20))
    crowded = lab_view(replace(snapshot, runs=many, runs_total=37, attention=()), place=PAPERS)
    page.evaluate("view => update(view)", as_sent(crowded))
    assert runs.locator("tbody tr").count() == 8
    assert runs.locator(".dq-rest").inner_text() == "and 29 more: %dq runs"
    for width in (1600, 1000, 620, 400):
        page.set_viewport_size({"width": width, "height": 900})
        assert overflowing(page) == [], width


def test_a_lab_without_runs_has_no_empty_list(show: Show, snapshot: Snapshot) -> None:
    """A heading above nothing is a riddle."""
    page = show(lab_view(replace(snapshot, runs=(), runs_total=0), place=PAPERS))

    assert page.get_by_role("region", name="Runs").count() == 0
