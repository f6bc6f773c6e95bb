"""Panels in a real browser, on a real scheduler: that they draw, where they stand, and that they follow."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from dqlab.stats import Held
from tests.browser.panel_pages import DRAWN, NAMES, Feed
from tests.chromium import needs_chromium
from tests.logs import lines_of

pytestmark = [pytest.mark.browser, needs_chromium, pytest.mark.timeout(120)]

TEXT = """() => {
  const words = []
  const visit = (root) => root.childNodes.forEach((node) => {
    if (node.nodeType === 3) words.push(node.textContent)
    else if (!["STYLE", "SCRIPT"].includes(node.tagName)) { if (node.shadowRoot) visit(node.shadowRoot); visit(node) }
  })
  visit(document.body)
  return words.join(" ").replace(/\\s+/g, " ")
}"""
FRAMES = """(urls) => {
  document.body.innerHTML = ""
  for (const url of urls) {
    const frame = document.createElement("iframe")
    Object.assign(frame, { src: url, width: 400, height: 300, style: "border:0" })
    document.body.append(frame)
  }
}"""
BOXES = """() => [...document.querySelectorAll("section.card")].map((card) => {
  const box = card.getBoundingClientRect()
  return [Math.round(box.left), Math.round(box.top), Math.round(box.width), Math.round(box.height)]
})"""


def test_a_page_in_a_hidden_frame_reports_that_it_is_not_seen(show: Any, address: str) -> None:
    """Of tabs that lie behind one another only the one in front costs the scheduler anything."""
    page = show("/individual-dq-runs?queue=pages", 1240, 640, charts=1)
    page.evaluate(FRAMES, [f"{address}/individual-dq-storage"])
    (frame,) = [frame for frame in page.frames if frame.parent_frame]
    eyes = "() => window.Bokeh?.documents[0]?.get_model_by_name('eyes')?.active"
    frame.wait_for_function(f"({eyes})() === true", timeout=20_000)

    # A headless browser draws, and so looks at what is hidden, only while something moves.
    page.evaluate("() => { const move = () => requestAnimationFrame(move); move() }")
    for hidden in ("true", "false"):
        page.evaluate(f"() => {{ document.querySelector('iframe').style.display = {hidden} ? 'none' : '' }}")
        frame.wait_for_function(f"({eyes})() !== {hidden}", timeout=60_000, polling=100)


def test_each_panel_draws_in_a_small_frame(show: Any, address: str) -> None:
    """A tab of JupyterLab beside a notebook has 400 by 300 pixels."""
    page = show("/individual-dq-depth?queue=pages", 1240, 640, charts=4)
    page.evaluate(FRAMES, [f"{address}/individual-dq-{name}?queue=pages&theme=dark" for name in NAMES])
    frames = [frame for frame in page.frames if frame.parent_frame]

    assert len(frames) == 6
    for frame in frames:
        frame.wait_for_function(DRAWN, arg=1, timeout=20_000, polling=200)
        assert frame.evaluate(BOXES) == [[0, 0, 400, 300]]
        assert frame.evaluate("document.documentElement.scrollWidth") <= 400
        assert frame.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 17, 17)"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_fits_each_width_in_both_themes(show: Any, theme: str) -> None:
    """From a phone to a wall, nothing hangs over and nothing lies upon another."""
    page = show(f"/dq?queue=pages&theme={theme}", 400, 1080, charts=9)
    for width, columns in ((400, 1), (1280, 2), (1920, 3)):
        page.set_viewport_size({"width": width, "height": 1080})
        page.wait_for_function(f"() => new Set(({BOXES})().map((box) => box[0])).size === {columns}")

        boxes = page.evaluate(BOXES)
        assert len(boxes) == 6
        assert not [(one, other) for one, other in combinations(boxes, 2) if overlap(one, other)]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if columns == 2:
            assert boxes[1][2] / boxes[2][2] == pytest.approx(7 / 5, abs=0.06)
        if columns == 3:
            assert page.evaluate("document.documentElement.scrollHeight") <= 1080
    ground = {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 17, 17)"}[theme]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground


def overlap(one: list[int], other: list[int]) -> bool:
    """Whether two boxes (left, top, width, height) share a pixel."""
    beside = one[0] + one[2] <= other[0] or other[0] + other[2] <= one[0]
    return not (beside or one[1] + one[3] <= other[1] or other[1] + other[3] <= one[1])


def test_a_wall_has_larger_figures_and_nothing_to_press(show: Any) -> None:
    """Nobody stands before it with a mouse, and some stand five metres away."""
    page = show("/dq?queue=pages&wall=1", 1920, 1080, charts=9)

    assert page.get_by_role("button").count() == 0
    assert page.get_by_role("combobox").count() == 0
    size = "getComputedStyle(document.querySelector('h2')).fontSize"
    assert page.evaluate(size) == "16px"


def test_the_page_answers_from_the_screen_alone_and_is_found(show: Any) -> None:
    """How much is left, until when, what fails and why, who is slow, what is stuck; and nobody types an address."""
    page = show("/dq?queue=pages&theme=light", 1280, 1000, charts=9)
    said = page.evaluate(TEXT)

    for answer in (
        "16,121 documents",
        "14:34 in 12 min",
        "80 % sure: 14:32\N{EN DASH}14:38",
        "PdfError invalid xref table",
        "c5 does 14.0 pages/s, median 63.5",
        "acme/2019/ledger-0417.pdf",
        "4 min 12 s",
        "61 % garbage",
    ):
        assert answer in said
    assert page.locator(".navbar a", has_text="Dq").first.get_attribute("href") == "dq"
    listed = json.loads(page.request.get(page.url.split("/dq")[0] + "/individual-plots.json").text())
    assert {f"/individual-dq-{name}" for name in NAMES} <= set(listed.values())


@pytest.mark.smoke
def test_an_open_page_follows_what_happens_and_can_be_held(show: Any, feed: Feed) -> None:
    """What is on the screen is what is."""
    page = show("/dq?queue=pages&theme=light", 1280, 1000, charts=9)
    feed.now = replace(feed.now, seq=feed.seq + 1, lab="another lab")
    feed.seq += 1
    page.wait_for_function(f"() => ({TEXT})().includes('another lab')", timeout=10_000)

    page.get_by_role("button", name="Hold").click()
    page.get_by_role("button", name="Held").wait_for(timeout=10_000)
    feed.now = replace(feed.now, seq=feed.seq + 1, lab="a third one")
    feed.seq += 1
    page.get_by_role("button", name="Held, 1 change missed").wait_for(timeout=10_000)
    assert "a third one" not in page.evaluate(TEXT)

    page.get_by_role("button", name="Held").click()
    page.wait_for_function(f"() => ({TEXT})().includes('a third one')", timeout=10_000)
    page.get_by_role("button", name="5 min", exact=True).click()
    page.wait_for_url("**span=300")
    page.get_by_role("button", name="30 min", exact=True).click()
    page.wait_for_url("**span=1800")


def test_figures_that_change_are_written_without_making_their_place_again(show: Any, feed: Feed) -> None:
    """Bokeh makes it again, with its style sheets, and lays out what is around: half of the cost of an open page."""
    page = show("/dq?queue=pages&theme=light", 1280, 1000, charts=9)

    def follow(name: str) -> None:
        feed.now = replace(feed.now, seq=feed.seq + 1, lab=name)
        feed.seq += 1
        page.wait_for_function(f"() => ({TEXT})().includes('{name}')", timeout=10_000)

    markup = "Bokeh.index.get_by_id(Bokeh.documents[0].get_model_by_name('where').id).markup_el"
    follow("second")
    page.evaluate(f"() => {{ window.place = {markup} }}")
    follow("third")
    assert page.evaluate(f"() => window.place.isConnected && window.place === {markup}")


def test_pointing_at_a_curve_shows_exact_values_and_one_crosshair(show: Any) -> None:
    """48,210 is not read off an axis; and what happened then elsewhere is on the same line."""
    page = show("/dq?queue=pages&theme=dark", 1280, 1700, charts=9)
    card = page.locator("section.depth").bounding_box()
    before = page.locator("section.storage").screenshot()

    page.mouse.move(card["x"] + card["width"] * 0.6, card["y"] + card["height"] * 0.4, steps=3)
    page.wait_for_function(f"() => /ready 2[0-9],[0-9]{{3}}/.test(({TEXT})())", timeout=10_000)

    assert page.evaluate("getComputedStyle(document.querySelector('.bk-Tooltip')).backgroundColor") == "rgb(28, 28, 28)"
    assert page.locator("section.storage").screenshot() != before


FOCUSED = """() => {
  let each = document.activeElement
  while (each?.shadowRoot?.activeElement) each = each.shadowRoot.activeElement
  return each?.getAttribute("aria-label")
}"""
CUT = """() => {
  const cut = []
  const visit = (root) => root.querySelectorAll("*").forEach((each) => {
    if (each.matches(".kpi div, .kpi small, .scope, .h > span, .h button, .answer, h2, .n *") && each.clientWidth)
      if (each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== "visible")
        cut.push(each.textContent)
    if (each.shadowRoot) visit(each.shadowRoot)
  })
  visit(document.querySelector("main"))
  return cut
}"""


def test_a_press_on_a_head_sorts_the_runs_and_keeps_the_focus(show: Any) -> None:
    """The head is written again with its new order; the focus fell to the page with it."""
    page = show("/individual-dq-runs?theme=light", 900, 400, charts=1)
    page.get_by_role("button", name="Sort by dead").press("Enter")
    page.wait_for_function(f"() => ({FOCUSED})() === 'Sort by dead, sorted now'", timeout=10_000)
    rows = page.locator(".left.jobs .r b").all_inner_texts()

    assert rows[:2] == ["parse-invoices", "ocr-scans"]


def test_each_chart_has_words_and_a_table(show: Any) -> None:
    """A canvas is nothing to who cannot see it."""
    page = show("/dq?queue=pages&theme=light", 1280, 1000, charts=9)
    page.get_by_role("combobox", name="Queue").wait_for(timeout=10_000)
    for name in NAMES:
        card = page.locator(f"section.{name}")
        card.get_by_role("button", name="as table").click()
        card.locator("table td").first.wait_for(timeout=10_000)
        assert card.get_by_role("button", name="as table").get_attribute("aria-pressed") == "true"
        page.wait_for_function(
            f"() => ({SPOKEN})('section.{name}').every((words) => /^[A-Z].*: ./.test(words))", timeout=10_000
        )
        card.get_by_role("button", name="as table").click()
        card.locator("table td").first.wait_for(state="detached", timeout=10_000)


SPOKEN = """(selector) => {
  const words = []
  const visit = (root) => root.querySelectorAll("*").forEach((each) => {
    if (each.tagName === "CANVAS" && each.ariaHidden !== "true") words.push(each.getAttribute("aria-label") ?? "")
    if (each.shadowRoot) visit(each.shadowRoot)
  })
  visit(document.querySelector(selector))
  return words
}"""


def test_a_page_that_gets_nothing_new_says_since_when(show: Any, feed: Feed) -> None:
    """A scheduler that hangs keeps its connections, and cannot say it."""
    page = show("/dq?queue=pages&theme=light", 1280, 1000, charts=9)
    page.wait_for_function(f"() => ({TEXT})().includes('No answer since ')", timeout=8_000)
    assert page.evaluate("document.body.classList.contains('dq-lost')")

    feed.seq += 1
    feed.now = replace(feed.now, seq=feed.seq, at=feed.now.at + 1)
    page.wait_for_function("() => !document.body.classList.contains('dq-lost')", timeout=8_000)


def test_rows_of_a_low_panel_stay_beside_their_lines(show: Any) -> None:
    """Lines were squeezed into the height: sixteen of them on six rows. The panel scrolls instead."""
    page = show("/individual-dq-throughput?queue=pages", 700, 180, charts=1)
    rows, lines = page.locator(".t.consumers").first.bounding_box(), page.locator(".bk-Figure").first.bounding_box()

    assert abs(rows["height"] - lines["height"]) <= 2
    assert abs(rows["y"] - lines["y"]) <= 2
    card = "document.querySelector('section.card')"
    assert page.evaluate(f"{card}.scrollHeight > {card}.clientHeight")


@pytest.mark.parametrize("width", [1600, 1100, 420])
def test_no_figure_and_no_head_is_cut(show: Any, width: int) -> None:
    """ "28,018 m…" and "pages/sdocument…" are read wrongly, or not at all."""
    page = show("/dq?queue=pages&theme=light", width, 1000, charts=9)
    page.wait_for_timeout(300)

    assert page.evaluate(CUT) == []


NAMES_CUT = """() => {
  const cut = []
  const visit = (root) => root.querySelectorAll("*").forEach((each) => {
    const isName = each.matches(".r:not(.h) > span:nth-child(2):not(:has(.beyond))") && root.host?.matches(".left.jobs")
    if (isName) cut.push([each.textContent.trim(), each.scrollWidth > each.clientWidth])
    if (each.shadowRoot) visit(each.shadowRoot)
  })
  visit(document)
  return cut
}"""


def test_names_of_runs_are_read_where_it_is_narrow(show: Any) -> None:
    """ "parse-inv…" stood beside a chart of 40 pixels, in which nothing can be seen."""
    page = show("/dq?queue=pages&theme=light", 400, 900, charts=1)
    page.wait_for_timeout(300)

    assert page.evaluate(NAMES_CUT) == [["parse-invoices", False]]


def test_closing_pages_leaves_nothing_in_the_log(browser: Any, address: str, feed: Feed, caplog: Any) -> None:
    """A scheduler in a notebook writes its log into a cell."""
    for _ in range(3):
        page = browser.new_page()
        page.goto(f"{address}/individual-dq-depth?queue=pages")
        page.wait_for_function(DRAWN, arg=4, timeout=20_000, polling=200)
        with page.expect_event("close"):
            page.close(run_before_unload=True)
        feed.seq += 1
        feed.now = replace(feed.now, seq=feed.seq, at=feed.now.at + 1)
    page = browser.new_page()  # by now the scheduler has seen that the others are gone
    page.goto(f"{address}/individual-dq-depth?queue=pages")
    page.wait_for_function(DRAWN, arg=4, timeout=20_000, polling=200)
    page.close()

    assert [each.getMessage() for each in lines_of(caplog, logging.ERROR)] == []


OLDEST = """() => {
  const rows = []
  const visit = (root) => root.querySelectorAll("*").forEach((element) => {
    if (element.matches(".oldest .r")) rows.push([...element.children])
    if (element.shadowRoot) visit(element.shadowRoot)
  })
  visit(document)
  return rows.map((cells) => cells.map((each) => [each.textContent, each.scrollWidth > each.clientWidth]))
}"""


@pytest.mark.parametrize("path", ["/individual-dq-unacked?queue=pages", "/individual-dq-unacked?queue=pages&wall=1"])
def test_times_of_what_is_held_longest_are_read_in_full(show: Any, feed: Feed, path: str) -> None:
    """Of 12 min 34 s the last figures were cut, with an age in bold also where a tab is narrow."""
    page, now = show(path, 700, 500, charts=1), feed.now
    for seconds in (5.96, 252.0, 3599.0, 86_000.0, 1_036_800.0):
        oldest = (Held("c0", seconds, seconds, document=f"{seconds}.pdf", running=seconds),)
        feed.seq += 1
        feed.now = replace(now, seq=feed.seq, unacked=replace(now.unacked, oldest=oldest))
        page.wait_for_function(f"(name) => ({OLDEST})()[1]?.[0][0] === name", arg=f"{seconds}.pdf")
        for width in (400, 520, 700):
            page.set_viewport_size({"width": width, "height": 500})
            cells = [cell for row in page.evaluate(OLDEST) for cell in row[2:4]]

            assert len(cells) == 4
            assert [text for text, cut in cells if cut] == [], width
    feed.seq += 1
    feed.now = replace(now, seq=feed.seq)
