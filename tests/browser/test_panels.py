"""Panels in a real browser, on a real scheduler: that they draw, where they stand, and that they follow."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from tests.browser.conftest import dashboard
from tests.browser.panel_pages import DRAWN, NAMES, Feed
from tests.kit.chromium import needs_chromium
from tests.kit.logs import lines_of

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


def test_each_panel_draws_in_a_small_frame(show: Any, address: str) -> None:
    """A tab of JupyterLab beside a notebook has 400 by 300 pixels."""
    page = show("/individual-dq-depth?queue=pages", 1240, 640, charts=2)
    page.evaluate(FRAMES, [f"{address}/individual-dq-{name}?queue=pages&theme=dark" for name in NAMES])
    frames = [frame for frame in page.frames if frame.parent_frame]

    assert len(frames) == 6
    for frame in frames:
        charts = 0 if "-runs" in frame.url else 1
        frame.wait_for_function(DRAWN, arg=charts, timeout=20_000, polling=200)
        assert frame.evaluate(BOXES) == [[0, 0, 400, 300]]
        assert frame.evaluate("document.documentElement.scrollWidth") <= 400
        assert frame.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 17, 17)"


@pytest.mark.smoke
def test_an_open_page_follows_what_happens(show: Any, feed: Feed) -> None:
    """What is on the screen is what is."""
    page = show("/dq?queue=pages&theme=light", 1280, 1000, charts=5)
    feed.now = replace(feed.now, seq=feed.seq + 1, lab="another lab")
    feed.seq += 1
    page.wait_for_function(f"() => ({TEXT})().includes('another lab')", timeout=10_000)

    page.get_by_role("button", name="5 min", exact=True).click()
    page.wait_for_url("**span=300")
    page.get_by_role("button", name="30 min", exact=True).click()
    page.wait_for_url("**span=1800")


def test_a_page_whose_scheduler_is_gone_says_so(browser: Any) -> None:
    """Old numbers must not pose as new ones: neither on the page nor in a tab."""
    with dashboard(Feed()) as (cluster, address):
        pages = [browser.new_page() for _ in range(2)]
        for page, path in zip(pages, ("/dq?queue=pages", "/individual-dq-depth"), strict=True):
            page.goto(address + path)
            page.wait_for_function(DRAWN, arg=1, timeout=20_000, polling=200)
        cluster.close()
        for page in pages:
            page.wait_for_function(f"() => ({TEXT})().includes('No answer since 14:22:07')", timeout=20_000)
            assert page.evaluate("document.body.classList.contains('dq-lost')")
            assert page.locator(".top").is_visible()
            page.close()


def test_a_page_that_gets_nothing_new_says_since_when(show: Any, feed: Feed) -> None:
    """A scheduler that hangs keeps its connections, and cannot say it."""
    page = show("/dq?queue=pages&theme=light", 1280, 1000, charts=5)
    page.wait_for_function(f"() => ({TEXT})().includes('No answer since ')", timeout=10_000)
    assert page.evaluate("document.body.classList.contains('dq-lost')")

    feed.seq += 1
    feed.now = replace(feed.now, seq=feed.seq, at=feed.now.at + 1)
    page.wait_for_function("() => !document.body.classList.contains('dq-lost')", timeout=10_000)


def test_closing_pages_leaves_nothing_in_the_log(browser: Any, address: str, feed: Feed, caplog: Any) -> None:
    """A scheduler in a notebook writes its log into a cell."""
    for _ in range(3):
        page = browser.new_page()
        page.goto(f"{address}/individual-dq-depth?queue=pages")
        page.wait_for_function(DRAWN, arg=2, timeout=20_000, polling=200)
        with page.expect_event("close"):
            page.close(run_before_unload=True)
        feed.seq += 1
        feed.now = replace(feed.now, seq=feed.seq, at=feed.now.at + 1)
    page = browser.new_page()  # by now the scheduler has seen that the others are gone
    page.goto(f"{address}/individual-dq-depth?queue=pages")
    page.wait_for_function(DRAWN, arg=2, timeout=20_000, polling=200)
    page.close()

    assert [each.getMessage() for each in lines_of(caplog, logging.ERROR)] == []
