"""Applications: what makes a document when a user opens one of these addresses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from bokeh.document import Document

from dqlab.live.feeds import Feed, feed_of
from dqlab.live.panels.look import BARE, FRAMED, page_template, read, tokens
from dqlab.live.panels.page import PANELS, Page
from dqlab.live.panels.readings import Readings
from dqlab.live.panels.scene import request

__all__ = ["APPLICATIONS", "PAGE", "draw_from", "forget", "open_page"]

PAGE = "/dq"
ABSENT = (
    "dqlab is not on this scheduler yet. In a notebook, dq.connect({address!r}) puts it there; "
    "then open this page again."
)

_readings: WeakKeyDictionary[Any, Readings] = WeakKeyDictionary()


def draw_from(scheduler: Any, feed: Feed) -> None:
    """Make the pages of a scheduler draw a feed."""
    _readings[scheduler] = Readings(feed)


def forget(scheduler: Any) -> None:
    """Make new pages of a scheduler show that there is nothing to draw."""
    _readings.pop(scheduler, None)


def _readings_of(scheduler: Any) -> Readings | None:
    readings = _readings.get(scheduler)
    feed = feed_of(scheduler) if readings is None else None
    if feed is not None:
        draw_from(scheduler, feed)
        return _readings[scheduler]
    return readings


def open_page(names: Sequence[str], scheduler: Any, extra: dict[str, Any], doc: Document) -> Page | None:
    """Fill a document with panels, or with one sentence where there is nothing to draw yet."""
    context = doc.session_context
    asked = request(context.request.arguments if context is not None and context.request is not None else {})
    alone = len(names) == 1
    doc.title = f"dqlab {names[0]}" if alone else "dqlab"
    doc.template = page_template()
    readings = _readings_of(scheduler)
    opened = Page(doc, readings, asked, names) if readings is not None else None
    doc.template_variables.update(extra)
    doc.template_variables.update(
        frame=BARE if alone or asked.wall else FRAMED,
        css=read("page.css"),
        theme=opened.theme if opened is not None else tokens(asked.theme),
        panels=[{"name": name, "title": PANELS[name].title} for name in names] if opened is not None else [],
        absent=ABSENT.format(address=getattr(scheduler, "address", "")),
        alone=alone,
        wall=asked.wall,
    )
    return opened


APPLICATIONS = {
    PAGE: partial(open_page, list(PANELS)),
    **{f"/individual-dq-{name}": partial(open_page, [name]) for name in PANELS},
}
"""What is served, by address: called with (scheduler, extra, document), as Dask's own."""
