"""Where the parts of the widgets stand, at each width and size: inside of the window, beside each other, not cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.run_picture import run_view
from dqlab.live.views import RunView
from dqlab.stats import History, RunStats, Snapshot
from tests.kit.chromium import needs_chromium
from tests.kit.structure import SIZES, flaws
from tests.live.pages import Show
from tests.live.scenes import lab_history, many_queues

pytestmark = [pytest.mark.browser, needs_chromium]

CARD = ".dq-card"


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
