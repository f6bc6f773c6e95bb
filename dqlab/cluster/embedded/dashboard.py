"""Dask's dashboard for an embedded scheduler, made when the first of its pages is opened.

Dask imports Bokeh before its scheduler starts, which is half of the time that `dqlab.connect` takes, and most notebooks
never open a page of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from distributed.http.utils import get_handlers
from tornado.web import Application, RequestHandler

__all__ = ["LateDashboard"]

logger = logging.getLogger("dqlab.registry")

PAGES = "distributed.dashboard.scheduler"
MISSING = "distributed.http.scheduler.missing_bokeh"
PAGES_AT = r"(?!/dqlab/).*"
"""Addresses at which there may be a page; those of `control_route` come later, and every view asks them."""
PLOTS = r"/individual-plots\.json"
"""List of the pages, which Dask answers with an empty one as long as it has no dashboard."""

Undo = Callable[[], None]


class LateDashboard:
    """Opens the dashboard at its first request, and answers that request with it.

    For the event loop of the scheduler, but for the constructor.

    Parameters
    ----------
    scheduler : Scheduler
        One that was made with ``dashboard=False``; this object becomes its attribute `late_dashboard`.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._pages: list[Callable[[], Undo]] = []
        self._undo: dict[Callable[[], Undo], Undo] = {}
        self._opening: asyncio.Future[None] | None = None
        self._there = False
        routing = scheduler.http_application
        given = {"dashboard": self}
        self._others = Application([(PAGES_AT, _Page, given)])
        routing.add_application(self._others)  # after all that the scheduler serves without a dashboard
        before = list(routing.default_router.rules)
        routing.add_handlers(r".*", [(PLOTS, _Page, given)])  # before them
        self._plots = [rule for rule in routing.default_router.rules if rule not in before]
        scheduler.late_dashboard = self

    @staticmethod
    def can_be_had() -> bool:
        """Return whether Bokeh is installed; without it, Dask's own pages describe what is missing."""
        return find_spec("bokeh") is not None

    def add(self, serve: Callable[[], Undo]) -> Undo:
        """Call `serve`, which adds pages and returns what removes them, once the dashboard is there."""
        self._pages.append(serve)
        if self._there:
            self._serve(serve)

        def undo() -> None:
            with suppress(ValueError):
                self._pages.remove(serve)
            self._undo.pop(serve, lambda: None)()

        return undo

    async def open(self) -> None:
        """Make the dashboard, unless it is there."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        scheduler = self._scheduler
        routing = scheduler.http_application
        try:
            # In a thread: the loop goes on serving queues.
            pages = await asyncio.get_running_loop().run_in_executor(None, import_module, PAGES)
            pages.connect(routing, scheduler.http_server, scheduler, prefix="/")
        except Exception as error:  # noqa: BLE001 - a Bokeh that Dask cannot use, or none that can be imported
            logger.warning("event=dashboard_left_out %r", error)
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
            self._undo[serve] = serve()
        except Exception as error:  # noqa: BLE001 - Dask's own pages are there nevertheless
            logger.warning("event=view_left_out %r", error)


class _Page(RequestHandler):
    """Opens the dashboard, and has the browser ask it for the page again."""

    def initialize(self, dashboard: LateDashboard) -> None:
        self._dashboard = dashboard

    async def get(self, *_: str) -> None:
        await self._dashboard.open()
        # One slash: a path that begins with two, or with a backslash, is another host to a browser.
        self.redirect("/" + str(self.request.uri).lstrip("/\\"))
