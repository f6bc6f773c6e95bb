"""Statistics on the scheduler: what clients ask of the collector, and the views that draw it there."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from distributed import Scheduler

from dqlab.cluster.collector import Collector
from dqlab.config import option, seconds
from dqlab.stats.attention import Thresholds

__all__ = ["Statistics"]

logger = logging.getLogger("dqlab.registry")


class Statistics:
    """The collector, its handlers, and the views of this scheduler.

    Views are modules named in the option ``views``, each with ``install(scheduler, feed)`` that returns what takes the
    view away again, or None. One that cannot be had here is left out, with one line in the log.

    Parameters
    ----------
    scheduler : Scheduler
    where : str
        What views call this cluster.
    """

    def __init__(self, scheduler: Scheduler, where: str) -> None:
        self._scheduler = scheduler
        self._undo: list[Callable[[], None]] = []
        self.collector = Collector(where=where, thresholds=_thresholds())
        self.collector.workers = len(scheduler.workers)

    @property
    def handlers(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """What clients may ask, by operation."""
        return {"dq_snapshot": self.snapshot, "dq_history": self.history, "dq_mark": self.mark}

    def show(self) -> None:
        """Install the views."""
        for name in option("views") or ():
            try:
                undo = import_module(name).install(self._scheduler, self.collector)
            except ImportError as error:
                logger.info("event=view_left_out view=%s %s", name, error)
            except Exception as error:  # noqa: BLE001 - a view that cannot be had is not to keep queues from working
                logger.warning("event=view_left_out view=%s %r", name, error)
            else:
                self._undo += [undo] if undo is not None else []

    def close(self) -> None:
        """Take the views away."""
        for undo in self._undo:
            with suppress(Exception):
                undo()
        self._undo.clear()

    async def snapshot(self, since: int = -1, wait: float = 0.0, queue: str = "", run: str = "") -> dict[str, Any]:
        """Return the newest snapshot; wait up to `wait` seconds for one newer than `since`."""
        if wait > 0:
            await self.collector.change(since, wait)
        return self.collector.snapshot(queue, run).to_dict()

    async def history(self, span: float, queue: str = "", run: str = "") -> dict[str, Any]:
        """Return how it was over the last `span` seconds."""
        return self.collector.history(span, queue, run).to_dict()

    async def mark(self, text: str, cell: int | None = None, queue: str = "", by: str = "") -> None:
        """Note what a person did."""
        self.collector.mark(text, cell=cell, queue=queue, by=by)


def _thresholds() -> Thresholds:
    spoken = option("attention") or {}
    durations = ("no-consumer", "held", "growing", "lag")
    values = {key.replace("-", "_"): value for key, value in spoken.items()}
    return Thresholds(**values | {key.replace("-", "_"): seconds(spoken[key]) for key in durations if key in spoken})
