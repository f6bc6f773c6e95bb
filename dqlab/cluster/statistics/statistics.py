"""Statistics on the scheduler: what clients ask of the collector, and the views that draw it there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from typing import Any

from distributed import Scheduler

from dqlab.cluster.statistics.collector import Collector
from dqlab.config import option, seconds
from dqlab.errors import BadOption
from dqlab.stats.attention import Thresholds
from dqlab.stats.snapshot import MAX_ATTENTION

__all__ = ["Statistics", "thresholds"]

logger = logging.getLogger("dqlab.registry")


class Statistics:
    """The collector, what clients ask of it, and the views of this scheduler.

    Views are modules named in the option ``views``, each with ``install(scheduler, feed)`` that returns what takes the
    view away again, or None. One that is not available here is left out, with one line in the log.

    Parameters
    ----------
    where : str
        What views call this cluster.
    """

    def __init__(self, scheduler: Scheduler, where: str) -> None:
        self._scheduler = scheduler
        self._undo: list[Callable[[], None]] = []
        self.collector = Collector(where=where, thresholds=thresholds(option("attention") or {}))
        self.collector.known.workers = len(scheduler.workers)

    def show(self) -> None:
        """Install the views."""
        for name in option("views") or ():
            try:
                undo = import_module(name).install(self._scheduler, self.collector)
            except ImportError as error:
                logger.info("event=view_left_out view=%s %s", name, error)
            except Exception as error:  # noqa: BLE001 - a missing view must not stop queues
                logger.warning("event=view_left_out view=%s %r", name, error)
            else:
                self._undo += [undo] if undo is not None else []

    def close(self) -> None:
        """Take the views away."""
        for undo in self._undo:
            with suppress(Exception):
                undo()
        self._undo.clear()

    async def snapshot(
        self, since: int = -1, wait: float = 0.0, queue: str = "", run: str = "", alerts: int = MAX_ATTENTION
    ) -> dict[str, Any]:
        """Return the newest snapshot; wait up to `wait` seconds for one newer than `since`."""
        if wait > 0:
            await self.collector.change(since, wait)
        return self.collector.snapshot(queue, run, alerts=alerts).to_dict()

    async def history(self, span: float, queue: str = "", run: str = "", whole: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - called by name
        """Return how it was over the last `span` seconds."""
        return self.collector.history(span, queue, run, whole=whole).to_dict()

    async def mark(self, text: str, cell: int | None = None, queue: str = "", by: str = "") -> None:
        """Note what a person did."""
        self.collector.mark(text, cell=cell, queue=queue, by=by)


def thresholds(spoken: Mapping[str, Any]) -> Thresholds:
    """Return the thresholds of the option ``attention``.

    Raises
    ------
    BadOption
        A key is unknown, or a value is not a duration or share.
    """
    known = {each.name.replace("_", "-"): each.name for each in fields(Thresholds)}
    values = {}
    for key, value in spoken.items():
        name = f"dqlab.attention.{key}"
        if key not in known:
            raise BadOption(option=name, value=value, problem=f"is not a threshold. There are: {', '.join(known)}.")
        values[known[key]] = _share(value, name) if key in ("slow", "failing") else seconds(value, name=name)
    return Thresholds(**values)


def _share(value: Any, name: str) -> float:
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    raise BadOption(option=name, value=value, problem="is a share, from 0 to 1.")
