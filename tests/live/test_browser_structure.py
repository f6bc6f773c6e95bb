"""Where the parts of the widgets stand, at each width and size: inside of the window, beside each other, not cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.run_picture import Focus, run_view
from dqlab.live.views import RunView
from dqlab.stats import History, RunStats, Snapshot
from tests.kit.chromium import needs_chromium
from tests.kit.structure import SIZES, flaws
from tests.live.conftest import CODE
from tests.live.pages import Show
from tests.live.scenes import lab_history, many_queues

pytestmark = [pytest.mark.browser, needs_chromium]

CARD = ".dq-card"


@pytest.fixture
def full(running: RunStats, snapshot: Snapshot, past: History) -> RunView:
    """The run with all that is known of it."""
    return run_view(running, Focus(snapshot, past, CODE))


def test_the_widget_of_a_run_stands_in_a_narrow_notebook(show: Show, full: RunView) -> None:
    """Beside a sidebar and a panel a notebook has 420 pixels."""
    assert flaws(show(full, width=420), CARD, CARD) == {}


@pytest.mark.parametrize("name", ["loop", "run-of-a-long-name-that-says-all-of-it"])
def test_the_header_of_a_run_has_its_name_and_whole_buttons_in_a_window_of_420_pixels(
    show: Show, done: RunStats, snapshot: Snapshot, past: History, name: str
) -> None:
    """JupyterLab leaves 290 of 420 pixels: no name was seen, and the button that matters was "Retr…"."""
    page = show(run_view(replace(done, name=name), Focus(snapshot, past, CODE)), width=312)

    seen, cut = page.evaluate("""() => [document.querySelector("h1").clientWidth,
      [...document.querySelectorAll("header button")].filter((each) => each.scrollWidth > each.clientWidth)
        .map((each) => each.innerText)]""")
    assert seen > 25
    assert cut == []
    assert flaws(page, CARD, CARD) == {}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_widget_of_a_run_stands_at_each_size(show: Show, full: RunView, size: str, dark: bool) -> None:
    """With each of its tables open, one after the other."""
    width, scale = SIZES[size]
    page = show(full, width=width, dark=dark, scale=scale)
    assert flaws(page, CARD, CARD) == {}
    for name in ("Consumers", "Failures", "Unacked", "Code"):
        page.get_by_role("button", name=name).click()
        assert flaws(page, CARD, CARD) == {}, name


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_an_ended_run_stands_at_each_size(show: Show, done: RunStats, size: str, dark: bool) -> None:
    """The header with its actions stays above the figures."""
    width, scale = SIZES[size]
    long = replace(done, name="run-of-a-long-name-that-says-all-of-it")

    assert flaws(show(run_view(long), width=width, dark=dark, scale=scale), CARD, CARD) == {}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_widget_of_a_queue_stands_at_each_size(
    show: Show, snapshot: Snapshot, past: History, size: str, dark: bool
) -> None:
    """One queue has one row, in full."""
    width, scale = SIZES[size]
    view = queue_view(snapshot, past, place=Site("pages"))

    assert flaws(show(view, width=width, dark=dark, scale=scale), CARD, CARD) == {}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("crowded", [False, True], ids=["six queues", "a hundred"])
def test_the_widget_of_a_lab_stands_at_each_size(
    show: Show, snapshot: Snapshot, size: str, dark: bool, crowded: bool
) -> None:
    """Names had a tenth of the width, and heads were cut, where there was most room."""
    width, scale = SIZES[size]
    scene = many_queues() if crowded else snapshot
    view = lab_view(scene, lab_history(scene), place=Site("papers", "http://127.0.0.1:8787/status"))

    assert flaws(show(view, width=width, dark=dark, scale=scale), CARD, CARD) == {}


CUT = """() => {
  const right = document.querySelector(".dq-card").getBoundingClientRect().right
  const figures = ".dq-v, .dq-stat .dq-lab, .dq-s, .dq-leg span"
  return [...document.querySelectorAll(`${figures}, .dq-card :is(table, a, button)`)]
    .filter((each) => each.getClientRects().length)
    .map((each) => each.closest(":has(> table)") ?? each) // a table scrolls sideways in its box
    .filter((each) => getComputedStyle(each).overflowX !== "auto" || each.getBoundingClientRect().right > right)
    .filter((each) => each.scrollWidth > each.clientWidth + 1 || each.getBoundingClientRect().right > right)
    .map((each) => each.textContent)
}"""


@pytest.mark.parametrize("kind", ["run", "queue", "lab"])
def test_no_figure_is_cut_beside_a_sidebar_at_200_percent(
    show: Show, full: RunView, snapshot: Snapshot, past: History, kind: str
) -> None:
    """A window of 1100 pixels at 200 % leaves a view 130: "3,346 messages" was "3,3…"."""
    views = {
        "run": full,
        "queue": queue_view(snapshot, past, place=Site("pages")),
        "lab": lab_view(snapshot, past, place=Site("papers", "http://127.0.0.1:8787/status")),
    }
    page = show(views[kind], width=156, scale=2)

    assert page.evaluate("document.querySelector('.dqlab').clientWidth") < 150
    assert page.evaluate(CUT) == []
