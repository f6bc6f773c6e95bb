"""Makes Dask's dashboard for an embedded scheduler when one of its pages is first opened.

Dask imports Bokeh before its scheduler starts, which is half of the time of `dqlab.connect`, and most notebooks never
open a page.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from distributed.http.utils import get_handlers
from tornado.web import Application, RequestHandler

logger = logging.getLogger("dqlab.registry")

PAGES = "distributed.dashboard.scheduler"
MISSING = "distributed.http.scheduler.missing_bokeh"
PAGES_AT = r"(?!/dqlab/).*"
"""Paths that may be pages, without those of `control_route`: these are registered later, and every view requests
them."""
PLOTS = r"/individual-plots\.json"
"""Path of the list of pages, which Dask itself answers with an empty list while it has no dashboard."""

Undo = Callable[[], None]


def _nothing() -> None:
    """Remove no page."""


class LateDashboard:
    """Opens the dashboard at the first request for a page, and answers that request."""

    # Runs in the scheduler's event loop, except the constructor. The scheduler was made with ``dashboard=False``; its
    # attribute `late_dashboard` is this object.
    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._pages: dict[Callable[[], Undo], Undo] = {}
        """What adds pages, and what removes them once they are there."""
        self._opening: asyncio.Future[None] | None = None
        self._there = False
        routing = scheduler.http_application
        given = {"dashboard": self}
        self._others = Application([(PAGES_AT, _Page, given)])
        routing.add_application(self._others)  # matches after all routes that the scheduler has without a dashboard
        before = list(routing.default_router.rules)
        routing.add_handlers(r".*", [(PLOTS, _Page, given)])  # matches before them: the scheduler has this route too
        self._plots = [rule for rule in routing.default_router.rules if rule not in before]
        scheduler.late_dashboard = self

    @staticmethod
    def can_be_had() -> bool:
        """Return whether Bokeh is installed."""
        # Without it, Dask's own pages describe how to install it.
        return find_spec("bokeh") is not None

    def add(self, serve: Callable[[], Undo]) -> Undo:
        """Call `serve`, which adds pages and returns a function that removes them, once the dashboard exists."""
        self._pages[serve] = _nothing
        if self._there:
            self._serve(serve)
        return lambda: self._pages.pop(serve, _nothing)()

    async def open(self) -> None:
        """Make the dashboard, once for all requests."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        await asyncio.shield(self._opening)  # one cancelled request must not cancel it for the others

    async def _open(self) -> None:
        scheduler = self._scheduler
        routing = scheduler.http_application
        try:
            # Import in a thread, so that the loop continues to serve queues.
            pages = await asyncio.get_running_loop().run_in_executor(None, import_module, PAGES)
            pages.connect(routing, scheduler.http_server, scheduler, prefix="/")
        except Exception:  # Dask cannot use this Bokeh, or it cannot be imported
            logger.warning("event=dashboard_left_out", exc_info=True)
            routing.add_handlers(r".*", get_handlers(server=scheduler, modules=[MISSING], prefix="/"))
        else:
            for serve in list(self._pages):
                self._serve(serve)
            self._there = True
        finally:
            routing.applications.remove(self._others)
            for rule in self._plots:
                routing.default_router.rules.remove(rule)

    def _serve(self, serve: Callable[[], Undo]) -> None:
        try:
            self._pages[serve] = serve()
        except Exception:  # Dask's own pages work nevertheless
            logger.warning("event=view_left_out", exc_info=True)


class _Page(RequestHandler):
    """Opens the dashboard, then redirects the browser to the same page."""

    def initialize(self, dashboard: LateDashboard) -> None:
        self._dashboard = dashboard

    async def get(self, *_: str) -> None:
        await self._dashboard.open()
        # Exactly one slash: browsers read a path that begins with two, or with a backslash, as another host.
        self.redirect("/" + str(self.request.uri).lstrip("/\\"))
