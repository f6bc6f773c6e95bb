"""Widgets whose kernel stops sending, in a real browser with a clock that is moved by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dqlab.live.run_picture import Focus, run_view
from dqlab.numbers import UNKNOWN, clock
from dqlab.stats import RunStats, Snapshot
from tests.kit.chromium import needs_chromium
from tests.live.pages import Show, as_sent

pytestmark = [pytest.mark.browser, needs_chromium]

BEGAN = datetime(2026, 9, 13, 19, 49, 41, tzinfo=UTC).timestamp()


def stop(page: Any) -> None:
    """End the kernel: nothing comes any more."""
    page.evaluate("clearInterval(window.beats)")


@pytest.mark.smoke
def test_a_run_whose_kernel_stops_is_grey_within_five_seconds_and_dated(show: Show, running: RunStats) -> None:
    """Speed and end would be wrong by now; what was left is what was left then."""
    page = show(run_view(running), clock=BEGAN)
    assert page.locator(".dqlab").get_attribute("data-stale") == "false"
    stop(page)

    page.clock.fast_forward(5_000)

    page.wait_for_selector(".dqlab[data-stale=true]")
    assert page.get_by_role("status").inner_text().startswith("No answer")
    assert f"No answer since {clock(running.at)}." in page.locator(".dq-notice").inner_text()
    assert "as of" in page.locator(".dq-sub").inner_text()
    left, done, speed, dead = page.locator(".dq-v span").all_inner_texts()
    assert (done, speed) == (UNKNOWN, UNKNOWN)
    assert left == "315,894"
    assert dead == "212"


def test_a_run_is_live_again_with_the_next_message(show: Show, running: RunStats) -> None:
    """A kernel that was held up, or a page that was asleep, goes on."""
    page = show(run_view(running), clock=BEGAN)
    stop(page)
    page.clock.fast_forward(60_000)
    page.wait_for_selector(".dqlab[data-stale=true]")

    page.evaluate("view => update(view)", as_sent(run_view(replace(running, at=running.at + 60))))

    page.wait_for_selector(".dqlab[data-stale=false]")
    assert page.get_by_role("status").inner_text().startswith("Running")
    assert not page.locator(".dq-notice").is_visible()


def test_a_press_that_no_kernel_answers_is_named(show: Show, running: RunStats) -> None:
    """Otherwise the run would be taken for paused."""
    page = show(run_view(running), clock=BEGAN)
    stop(page)
    page.get_by_role("button", name="Pause").click()

    page.clock.fast_forward(5_000)

    page.wait_for_selector(".dqlab[data-stale=true]")
    assert "“pause” was not answered, and may not have been carried out." in page.locator(".dq-notice").inner_text()
    assert page.evaluate("sent.length") == 1


def test_what_needs_a_kernel_is_held_until_it_answers(show: Show, running: RunStats, snapshot: Snapshot) -> None:
    """ "Pause" looked as if it would pause, and was carried out minutes later, when the kernel went on."""
    page = show(run_view(running, Focus(snapshot)), clock=BEGAN)
    page.locator(".dq-tools").get_by_role("button", name="Cancel run…").click()
    stop(page)
    page.clock.fast_forward(5_000)
    page.wait_for_selector(".dqlab[data-stale=true]")

    page.get_by_role("button", name="Cancel 16,121").click()
    assert "“cancel” was not sent." in page.locator(".dq-notice").inner_text()
    pause = page.locator("button[data-command=pause]")
    assert pause.get_attribute("aria-disabled") == "true"
    pause.click(force=True)
    page.keyboard.press("p")
    assert page.evaluate("sent.length") == 0
    held = page.locator(".dq-att button:visible")
    assert held.count() > 0
    assert {each.get_attribute("aria-disabled") for each in held.all()} == {"true"}

    page.evaluate("view => update(view)", as_sent(run_view(replace(running, at=running.at + 60))))

    page.wait_for_selector(".dqlab[data-stale=false]")
    assert pause.get_attribute("aria-disabled") == "false"
    assert not page.locator(".dq-notice").is_visible()


def test_what_is_scrolled_away_is_not_drawn_until_it_is_scrolled_to(show: Show, running: RunStats) -> None:
    """A notebook has many views, and a page only one screen."""
    page = show(run_view(running))
    page.evaluate("document.body.style.paddingTop = '5000px'")
    page.wait_for_selector(".dqlab[data-seen=false]", state="attached")
    later = as_sent(run_view(replace(running, at=running.at + 2)))
    page.evaluate("view => update({ numbers: view.numbers })", later)
    before = page.locator(".dq-sub").text_content()
    assert before != later["numbers"]["subtitle"]

    page.evaluate("scrollTo(0, 5000)")

    page.wait_for_function(
        "text => document.querySelector('.dq-sub').textContent === text", arg=later["numbers"]["subtitle"]
    )
