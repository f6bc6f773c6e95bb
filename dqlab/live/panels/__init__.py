"""Panels of dqlab in Dask's own dashboard: depth, throughput, failures, unacked messages, runs and storage.

They draw the scheduler's feed and compute nothing. Importing this package loads no Bokeh; installing does.

::

    serving    adds pages to a scheduler, and makes the document of one that is opened
    page       brings it up to date           axis          the time axis of a page, its crosshair, its marks
    scene      what is looked at, at one instant, and what the sessions of a scheduler share of it
    head       controls, needs, figures       changes       sends only what differs
    panel      what every panel has           markup, look  what they are made of
    depth, unacked, throughput, failures, runs, storage: what is drawn
    metrics    the same numbers for Prometheus, a view of its own beside the panels
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from dqlab.live.feeds import Feed

__all__ = ["install", "preregister"]

Undo = Callable[[], None]


def preregister() -> None:
    """Serve the pages on each scheduler that starts in this process from now on; without Bokeh, do nothing."""
    try:
        from distributed.dashboard.scheduler import applications

        from dqlab.live.panels.serving import APPLICATIONS
    except ImportError:
        return
    applications.update(APPLICATIONS)


def install(scheduler: Any, feed: Feed) -> Undo:
    """Serve the pages on a running scheduler, unless it serves them already, and let them draw a feed.

    A scheduler in this process has no dashboard before its first page is opened; the pages come with it.

    Parameters
    ----------
    scheduler : Scheduler
    feed : Feed

    Returns
    -------
    callable
        Removes the pages.

    Raises
    ------
    ImportError
        No Bokeh here, no dashboard, or one that pages cannot be added to.
    """
    late = getattr(scheduler, "late_dashboard", None)
    return _install(scheduler, feed) if late is None else cast("Undo", late.add(partial(_install, scheduler, feed)))


def _install(scheduler: Any, feed: Feed) -> Undo:
    from dqlab.live.panels.serving import APPLICATIONS, PAGE, draw_from, forget, serve

    hide = serve(scheduler, APPLICATIONS, PAGE)
    draw_from(scheduler, feed)

    def undo() -> None:
        forget(scheduler)
        hide()

    return undo
