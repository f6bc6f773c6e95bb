"""A scheduler with panels that draw scenes, and a browser that looks at them: started once for a file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.browser.panel_pages import DRAWN, Feed
from tests.kit.chromium import chromium


@pytest.fixture(scope="module")
def feed() -> Feed:
    return Feed()


@contextmanager
def dashboard(feed: Feed) -> Iterator[tuple[Any, str]]:
    """Start a cluster without workers, with panels that draw a feed; yield it and the address of its dashboard."""
    from distributed import LocalCluster

    import dqlab.live.panels as panels
    from dqlab.live.panels import scene

    with (
        pytest.MonkeyPatch.context() as patch,
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
    ):
        # A page is open within the second for which readings are kept, and would draw the scene of the test before.
        patch.setattr(scene, "FRESH", 0.0)

        async def install() -> None:
            panels.install(cluster.scheduler, feed)

        cluster.sync(install)
        yield cluster, f"http://127.0.0.1:{cluster.scheduler.http_server.port}"


@pytest.fixture(scope="module")
def address(feed: Feed) -> Iterator[str]:
    """The dashboard of a cluster with panels that draw the scenario."""
    with dashboard(feed) as (_, address):
        yield address


OPEN = 3
"""Pages that stay open for the next tests: each draws what changes, which takes 4 % of a core."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def show(browser: Any, address: str) -> Iterator[Any]:
    """Open an address, or find it open, and wait for its charts; no page may report an error or ask elsewhere."""
    pages: dict[tuple[str, float], Any] = {}
    complaints: list[str] = []

    def opened(path: str, width: int, height: int, *, charts: int, scale: float = 1) -> Any:
        page = pages.pop((path, scale), None)
        if page is None:
            while len(pages) >= OPEN:
                pages.pop(next(iter(pages))).close()
            page = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=scale)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
            page.on("request", lambda asked: None if asked.url.startswith(address) else complaints.append(asked.url))
            page.goto(address + path)
        pages[path, scale] = page
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(DRAWN, arg=charts, timeout=20_000, polling=200)
        return page

    yield opened
    for page in pages.values():
        page.close()
    assert complaints == []
