"""Where the parts of the dashboard stand, at each width and size, with few figures and with very many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from tests.browser.panel_pages import CARDS, NAMES, Feed, crowded
from tests.kit.chromium import needs_chromium
from tests.kit.structure import SIZES, flaws

pytestmark = [pytest.mark.browser, needs_chromium, pytest.mark.timeout(180)]

LAID_OUT = """() => new Promise((done) => {
  let before = ""
  const look = () => {
    const boxes = []
    const visit = (root) => root.querySelectorAll("*").forEach((each) => {
      if (each.tagName === "CANVAS") boxes.push(each.clientWidth, each.clientHeight)
      if (each.shadowRoot) visit(each.shadowRoot)
    })
    visit(document)
    const now = boxes.join()
    if (now === before) done(true)
    else { before = now; setTimeout(look, 150) }
  }
  look()
})"""
"""Waits until no chart changes its size any more."""
Scene = Callable[[Feed], None]


def golden(feed: Feed) -> None:
    """Show the lab of the examples."""
    fresh = Feed()
    feed.now, feed.past, feed.seq = fresh.now, fresh.past, feed.seq + 1


def opened(show: Any, path: str, size: str, height: int = 900) -> Any:
    """Open a page of panels in a window of some size."""
    width, scale = SIZES[size]
    page = show(path, width, height, charts=0, scale=scale)
    page.wait_for_function(LAID_OUT)
    return page


@pytest.mark.parametrize("scene", [golden, crowded])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("queue", ["", "pages"], ids=["all queues", "one queue"])
def test_the_dashboard_stands_in_each_window(
    show: Any, feed: Feed, size: str, theme: str, scene: Scene, queue: str
) -> None:
    """A figure that is cut is a wrong figure, and one below another cannot be read at all."""
    scene(feed)
    page = opened(show, f"/dq?theme={theme}&queue={queue}&of={scene.__name__}", size)

    assert flaws(page, "main", CARDS) == {}


@pytest.mark.parametrize("scene", [golden, crowded])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_each_panel_stands_in_its_tab(show: Any, feed: Feed, name: str, size: str, theme: str, scene: Scene) -> None:
    """A tab of JupyterLab is wide or narrow, and often low."""
    scene(feed)
    page = opened(show, f"/individual-dq-{name}?theme={theme}&of={scene.__name__}", size, 420)

    assert flaws(page, "main", CARDS) == {}


@pytest.mark.parametrize("scene", [golden, crowded])
@pytest.mark.parametrize("width", [1280, 1920])
def test_a_wall_stands_in_its_screen(show: Any, feed: Feed, width: int, scene: Scene) -> None:
    """Nobody scrolls it."""
    scene(feed)
    page = show(f"/dq?wall=1&theme=dark&of={scene.__name__}", width, 1080, charts=0)
    page.wait_for_function(LAID_OUT)

    assert flaws(page, "main", CARDS) == {}
