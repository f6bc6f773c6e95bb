"""Serve pages on the dashboard of a running scheduler: add them, and make the document of an opened page.

The only module that uses internals of Bokeh and Dask; `Unservable` reports what has changed there.

"""

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
from bokeh.server.views.ws import WSHandler

from dqlab.live.feeds import Feed, feed_of
from dqlab.live.panels.look import BARE, FRAMED, page_template, read, tokens
from dqlab.live.panels.page import PANELS, Page
from dqlab.live.panels.scene import Readings, request

__all__ = ["APPLICATIONS", "PAGE", "Unservable", "draw_from", "forget", "open_page", "serve"]


class Unservable(ImportError):
    """The dashboard lacks what a page needs, so the panels are left out."""


class Socket(WSHandler):  # type: ignore[misc] # Bokeh is not followed
    """The connection of one page, which drops messages that arrive after it was lost, and closes once."""

    # Bokeh would log a traceback instead, and a scheduler in a notebook writes that into a cell.
    async def _handle(self, message: Any) -> Any:
        return None if self._is_lost else await super()._handle(message)

    def on_close(self) -> None:
        if not self._is_lost:
            super().on_close()

    @property
    def _is_lost(self) -> bool:
        # Private: without the attribute, nothing is taken for lost.
        return getattr(self.connection, "_session", self) is None


def serve(scheduler: Any, applications: Mapping[str, Callable[..., Any]], page: str) -> Callable[[], None]:
    """Serve applications that are not served yet, name them in the navigation, and return what removes them."""
    tornado = _dashboard(scheduler)
    shown = _navigation(scheduler)
    new = {url: make for url, make in applications.items() if url not in tornado.app_paths}
    extra = {"prefix": f"{tornado.prefix}/", **shown}
    _replace_sockets(tornado, applications)
    rules = list(tornado.default_router.rules)
    for url, make in new.items():
        _add(tornado, url, partial(make, scheduler, extra))
    added = [rule for rule in tornado.default_router.rules if rule not in rules]
    # `page` gets a place in the bar; the others are found under "More...".
    hide = _show(shown, applications, page)

    def undo() -> None:
        hide()
        for rule in added:
            if rule in tornado.default_router.rules:
                tornado.default_router.rules.remove(rule)
        for url in new:
            tornado._applications.pop(url, None)

    return undo


def _dashboard(scheduler: Any) -> Any:
    application = getattr(scheduler, "http_application", None)
    known = [app for app in getattr(application, "applications", ()) if isinstance(app, BokehTornado)]
    if not known:
        raise Unservable("the scheduler has no Bokeh dashboard")
    tornado = known[0]
    # Checked before the first change: half of a page could not be removed.
    missing = [name for name in ("_applications", "_loop", "default_router", "prefix") if not hasattr(tornado, name)]
    if missing or not isinstance(tornado._applications, dict) or not hasattr(tornado.default_router, "rules"):
        raise Unservable(
            f"this Bokeh's server is not one that pages can be added to: {', '.join(missing) or 'changed'}"
        )
    return tornado


def _navigation(scheduler: Any) -> dict[str, Any]:
    """Return the lists of pages that Dask's pages show."""
    from distributed.dashboard.scheduler import template_variables

    # Dask makes these lists once for each scheduler: changed in place, they reach pages opened later.
    shown: dict[str, Any] = template_variables(scheduler)
    if not isinstance(shown.get("pages"), list) or not isinstance(shown.get("plots"), list):
        raise Unservable("this Dask's dashboard has another navigation")
    return shown


def _add(tornado: Any, url: str, make: Callable[[Any], Any]) -> None:
    application = Application(FunctionHandler(make, trap_exceptions=False))
    application.add(DocumentLifecycleHandler())
    context = ApplicationContext(application, io_loop=tornado._loop, url=url)
    base = f"{tornado.prefix}{url}"
    settings = {"application_context": context, "bokeh_websocket_path": f"{base}/ws"}
    patterns = [(base + path, Socket if view is WSHandler else view, settings) for path, view, *_ in per_app_patterns]
    tornado.add_handlers(r".*", patterns)
    tornado._applications[url] = context
    tornado._loop.add_callback(context.run_load_hook)


def _replace_sockets(tornado: Any, applications: Mapping[str, Any]) -> None:
    """Give a `Socket` to pages that the dashboard began with too."""
    for rule in getattr(getattr(tornado, "wildcard_router", None), "rules", ()):
        context = (getattr(rule, "target_kwargs", None) or {}).get("application_context")
        if rule.target is WSHandler and getattr(context, "url", None) in applications:
            rule.target = rule.handler_class = Socket


def _show(shown: dict[str, Any], applications: Mapping[str, Any], page: str) -> Callable[[], None]:
    pages, plots = shown["pages"], shown["plots"]
    name = page.strip("/")
    fresh = name not in pages
    if fresh:
        pages.insert(min(1, len(pages)), name)
    there = {plot["url"] for plot in plots}
    added = [
        {"url": url.strip("/"), "name": f"dq {url.rsplit('-', 1)[-1].title()}"}
        for url in applications
        if url != page and url.strip("/") not in there
    ]
    plots.extend(added)
    plots.sort(key=lambda plot: plot["name"].lower())

    def hide() -> None:
        if fresh and name in pages:
            pages.remove(name)
        for plot in added:
            if plot in plots:
                plots.remove(plot)

    return hide


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
"""By address, each called with (scheduler, extra, document), as Dask's own."""
