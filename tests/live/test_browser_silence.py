"""Widgets whose kernel stops sending, in a real browser with a clock that is moved by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.run_picture import Focus, Silence, run_view
from dqlab.numbers import UNKNOWN, clock
from dqlab.stats import Eta, RunState, RunStats, Snapshot
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


@pytest.mark.parametrize("single", [False, True], ids=["lab", "queue"])
def test_queues_hold_what_needs_a_kernel_too(show: Show, snapshot: Snapshot, *, single: bool) -> None:
    """One rule for all widgets."""
    page = show(
        queue_view(snapshot, place=Site("pages")) if single else lab_view(snapshot, None, place=Site("local")),
        clock=BEGAN,
    )
    stop(page)
    page.clock.fast_forward(5_000)
    page.wait_for_selector(".dqlab[data-stale=true]")

    buttons = page.get_by_role("button", name=re.compile("^(Pause|Resume)"))
    assert buttons.count() > 0
    assert {each.get_attribute("aria-disabled") for each in buttons.all()} == {"true"}


def test_a_press_that_a_live_kernel_does_not_answer_is_named_too(show: Show, running: RunStats) -> None:
    """Numbers still come, and what was asked for may wait for a shard."""
    page = show(run_view(running), clock=BEGAN)
    page.get_by_role("button", name="Pause").click()
    for _ in range(5):
        page.clock.run_for(1_000)

    page.wait_for_selector(".dq-notice:visible")
    assert page.locator(".dq-notice").inner_text().startswith("“pause” was not answered")
    assert page.locator(".dqlab").get_attribute("data-stale") == "false"
    page.evaluate("view => update(view)", as_sent(run_view(replace(running, state=RunState.PAUSED))))
    page.wait_for_selector(".dq-notice", state="hidden")


def test_a_run_that_rests_is_not_called_silent(show: Show, done: RunStats) -> None:
    """Its numbers are final, unless newer ones were promised."""
    view = replace(run_view(done), moment="")
    page = show(view, clock=BEGAN)
    stop(page)

    page.clock.fast_forward(60_000)

    assert page.locator(".dqlab").get_attribute("data-stale") == "false"


def test_a_lab_whose_kernel_stops_is_dated_too(show: Show, snapshot: Snapshot) -> None:
    """One rule for all widgets."""
    page = show(lab_view(snapshot, None, place=Site("local")), clock=BEGAN)
    stop(page)

    page.clock.fast_forward(5_000)

    page.wait_for_selector(".dqlab[data-stale=true]")
    assert "No answer since" in page.locator(".dq-notice").inner_text()
    assert "If it has ended, so has a cluster that it had started" in page.locator(".dq-notice").inner_text()


def test_focus_stays_with_the_button_that_was_pressed(show: Show, running: RunStats) -> None:
    """Pause by Enter, then Resume by Enter: without the mouse in between."""
    page = show(run_view(running))
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.command") == "pause"
    page.keyboard.press("Enter")
    assert page.evaluate("sent.length") == 1

    page.evaluate("view => update(view)", as_sent(run_view(replace(running, state=RunState.PAUSED))))

    page.wait_for_selector("button[data-command=resume]")
    assert page.evaluate("document.activeElement.dataset.command") == "resume"


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


def test_an_end_in_minutes_is_not_a_number_of_minutes_that_is_unknown(show: Show, running: RunStats) -> None:
    """It said "Done in" some minutes, without a number of them."""
    near = Eta(running.at + 60, running.at + 80, running.at + 130)
    page = show(run_view(replace(running, eta=near)), clock=BEGAN)
    assert page.locator(".dq-stat").nth(1).inner_text().startswith("Done in")
    stop(page)

    page.clock.fast_forward(5_000)
    page.wait_for_selector(".dqlab[data-stale=true]")

    assert page.locator(".dq-stat").nth(1).inner_text().split() == ["Done", "at", UNKNOWN]


def test_what_was_copied_makes_room_for_what_is_true(show: Show, running: RunStats, snapshot: Snapshot) -> None:
    """It stood in place of every notice until the next press."""
    calm = replace(snapshot, attention=(), attention_total=0)
    page = show(run_view(replace(running, why="its store takes nothing"), Focus(calm)), clock=BEGAN)
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Copy as Python…").click()
    page.get_by_role("menuitem").first.click()
    page.get_by_text("into a cell:").wait_for()

    page.clock.fast_forward(61_000)

    page.get_by_text("its store takes nothing").wait_for()


COLOURED = """() => {
  const coloured = (text) => { const [r, g, b, a = 1] = (text?.match(/[\\d.]+/g) ?? [0, 0, 0]).map(Number);
    return a > 0 && Math.max(r, g, b) - Math.min(r, g, b) > 8; };
  const grey = (each) => each && (getComputedStyle(each).filter.includes("grayscale") || grey(each.parentElement));
  return [...document.querySelectorAll(".dq-card > :not(header, .dq-news, .dq-notice, .dq-ask) *")]
    .filter((each) => each.getClientRects().length && !each.closest("button, a") && !grey(each))
    .filter((each) => ["color", "backgroundColor", "fill"].some((name) => coloured(getComputedStyle(each)[name])))
    .map((each) => each.outerHTML.slice(0, 90));
}"""


@pytest.mark.parametrize("kind", ["run", "lab", "queue"])
def test_nothing_below_the_notice_has_a_colour_while_it_is_old(
    show: Show, running: RunStats, snapshot: Snapshot, kind: str
) -> None:
    """Rows of a lab stayed amber, red and blue, and the legend of a run its colours: they seemed to be of now."""
    silence = Silence(13, snapshot.at - 13)
    views: dict[str, tuple[Any, Any]] = {
        "run": (run_view(running, Focus(snapshot)), run_view(running, Focus(snapshot), silence=silence)),
        "lab": tuple(lab_view(snapshot, place=Site("papers"), silence=each) for each in (None, silence)),
        "queue": tuple(queue_view(snapshot, place=Site("pages"), silence=each) for each in (None, silence)),
    }
    now, old = views[kind]
    page = show(now)
    assert page.evaluate(COLOURED)

    page.evaluate("view => update(view)", as_sent(old))
    page.wait_for_selector(".dqlab[data-stale=true]")

    assert page.evaluate(COLOURED) == []
