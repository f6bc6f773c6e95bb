"""The dashboard for people who use a keyboard or a screen reader: rules of axe-core, and what a browser reads out."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from tests.browser.panel_pages import Feed
from tests.kit.axe import needs_axe, read_out, violations
from tests.kit.chromium import needs_chromium

pytestmark = [pytest.mark.browser, needs_chromium, needs_axe, pytest.mark.timeout(180)]

OF_DASK = {
    "image-alt": "pictures in Dask's bar have no text",
    "link-name": "links in Dask's bar are these pictures",
    "list": "Dask's bar has a menu among the items of a list",
    "listitem": "and an item outside of it",
    "region": "Dask's bar is no landmark",
}
"""What Dask's template, in which the dashboard stands, brings along: it is not ours to change."""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_dashboard_breaks_no_rule_that_is_ours(show: Any, feed: Feed, theme: str) -> None:
    """The list of queues had no name; what Dask's template brings is listed above."""
    fresh = Feed()
    feed.now, feed.past, feed.seq = fresh.now, fresh.past, feed.seq + 1
    page = show(f"/dq?queue=pages&theme={theme}", 1280, 1000, charts=5)

    assert violations(page, foreign=OF_DASK) == []


def test_a_screen_reader_reads_the_title_and_the_answer_of_each_panel(show: Any, feed: Feed) -> None:
    """A canvas is nothing to who cannot see it."""
    fresh = Feed()
    feed.now, feed.past, feed.seq = fresh.now, fresh.past, feed.seq + 1
    page = show("/dq?queue=pages&theme=light", 1280, 1000, charts=5)
    said = read_out(page)
    words = [name for _, name in said]

    assert "Queue depth by state" in words
    assert "fell by 22.7 messages/s, last 20 s · empty about 14:34" in words
    assert [name for role, name in said if role == "combobox"] == ["queue"]
