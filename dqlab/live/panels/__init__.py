"""Draw panels of dqlab in Dask's own dashboard: depth, throughput, failures, unacked messages, runs and storage.

They draw the scheduler's feed and compute nothing. Importing this package loads no Bokeh; installing does.

::

    page       adds pages to a scheduler, and runs an open one: controls, needs, figures, panels
    scene      the chosen queue, run and span at one instant, and readings shared by the sessions of a scheduler
    figures    the panels        parts       their words, tables and charts, colours, style sheets, template
    metrics    the same numbers for Prometheus, a view of its own beside the panels

"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from dqlab.live.panels.scene import Feed

__all__ = ["install", "preregister"]

Undo = Callable[[], None]


def preregister() -> None:
    """Serve the pages on each scheduler that starts in this process later, or do nothing without Bokeh."""
    try:
        from distributed.dashboard.scheduler import applications

        from dqlab.live.panels.page import APPLICATIONS
    except ImportError:
        return
    applications.update(APPLICATIONS)


def install(scheduler: Any, feed: Feed) -> Undo:
    """Serve the pages on a running scheduler, and return what empties them; raise ImportError without a dashboard."""
    # A scheduler in this process has no dashboard before its first page is opened: the pages are added then.
    late = getattr(scheduler, "late_dashboard", None)
    return _install(scheduler, feed) if late is None else cast("Undo", late.add(partial(_install, scheduler, feed)))


def _install(scheduler: Any, feed: Feed) -> Undo:
    from dqlab.live.panels.page import APPLICATIONS, PAGE, draw_from, forget, serve

    serve(scheduler, APPLICATIONS, PAGE)
    draw_from(scheduler, feed)
    return partial(forget, scheduler)  # the pages stay, and say that there is nothing to draw
