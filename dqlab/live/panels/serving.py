"""Serve pages on the dashboard of a running scheduler: add them, and make the document of an opened page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from bokeh.application import Application
from bokeh.application.handlers import FunctionHandler
from bokeh.application.handlers.document_lifecycle import DocumentLifecycleHandler
from bokeh.document import Document
from bokeh.server.contexts import ApplicationContext
from bokeh.server.tornado import BokehTornado
from bokeh.server.urls import per_app_patterns
from distributed.dashboard.scheduler import template_variables

from dqlab.live.feeds import Feed, feed_of
from dqlab.live.panels.look import page_template, read, tokens
from dqlab.live.panels.page import PANELS, Page
from dqlab.live.panels.scene import Readings, request


def serve(scheduler: Any, applications: Mapping[str, Callable[..., Any]], page: str) -> None:
    """Serve applications that are not served yet, and name them in the navigation."""
    servers = getattr(scheduler.http_application, "applications", ())
    tornado = next((app for app in servers if isinstance(app, BokehTornado)), None)
    if tornado is None:
        raise ImportError("the scheduler has no Bokeh dashboard, so it shows no panels")
    # Dask makes these lists once for each scheduler: changed in place, they reach pages opened later.
    shown = template_variables(scheduler)
    for url, make in applications.items():
        if url not in tornado.app_paths:
            _add(tornado, url, partial(make, scheduler, {"prefix": f"{tornado.prefix}/", **shown}))
    # `page` gets a place in the bar; the others are found under "More...".
    name, pages, plots = page.strip("/"), shown["pages"], shown["plots"]
    if name not in pages:
        pages.insert(min(1, len(pages)), name)
    there = {plot["url"] for plot in plots}
    plots.extend(
        {"url": url.strip("/"), "name": f"dq {url.rsplit('-', 1)[-1].title()}"}
        for url in applications
        if url != page and url.strip("/") not in there
    )
    plots.sort(key=lambda plot: plot["name"].lower())


def _add(tornado: Any, url: str, make: Callable[[Any], Any]) -> None:
    """Add an application, as Bokeh's server does with those that it begins with."""
    application = Application(FunctionHandler(make, trap_exceptions=False))
    application.add(DocumentLifecycleHandler())
    context = ApplicationContext(application, io_loop=tornado._loop, url=url)
    base = f"{tornado.prefix}{url}"
    settings = {"application_context": context, "bokeh_websocket_path": f"{base}/ws"}
    tornado.add_handlers(r".*", [(base + path, view, settings) for path, view, *_ in per_app_patterns])
    tornado._applications[url] = context
    tornado._loop.add_callback(context.run_load_hook)


PAGE = "/dq"
ABSENT = (
    "dqlab is not on this scheduler yet. In a notebook, dq.connect({address!r}) puts it there; "
    "then open this page again."
)

# Weak: a scheduler that ended must not stay alive for its pages.
_readings: WeakKeyDictionary[Any, Readings] = WeakKeyDictionary()


def draw_from(scheduler: Any, feed: Feed) -> None:
    """Make the pages of a scheduler draw a feed."""
    _readings[scheduler] = Readings(feed)


def forget(scheduler: Any) -> None:
    """Make new pages of a scheduler show that there is nothing to draw."""
    _readings.pop(scheduler, None)


def _readings_of(scheduler: Any) -> Readings | None:
    feed = None if scheduler in _readings else feed_of(scheduler)
    if feed is not None:
        draw_from(scheduler, feed)
    return _readings.get(scheduler)


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
        css=read("page.css"),
        theme=tokens(asked.theme),
        panels={name: PANELS[name].title for name in names} if opened is not None else {},
        absent=ABSENT.format(address=getattr(scheduler, "address", "")),
        alone=alone,
        wall=asked.wall,
    )
    return opened


APPLICATIONS = {
    PAGE: partial(open_page, list(PANELS)),
    **{f"/individual-dq-{name}": partial(open_page, [name]) for name in PANELS},
}
"""By address, each called with (scheduler, extra, document), as Dask's own."""
