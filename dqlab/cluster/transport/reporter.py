"""Counters on their way to the scheduler: at most four messages a second, none while nothing changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from distributed import Worker

from dqlab.cluster.transport.internals import report
from dqlab.cluster.transport.reports import ConsumerReport, ShardReport, packed

__all__ = ["Reporter"]

logger = logging.getLogger("dqlab.reporter")

INTERVAL = 0.25


class Reporter:
    """Sends absolute totals, so that a lost or repeated report does no harm.

    One that cannot be made or packed is left out and counted: views are late then, and work continues.

    Parameters
    ----------
    worker : Worker
        Whose stream to the scheduler is used.
    totals : callable
        Returns the report.

    Attributes
    ----------
    unsent : int
        Reports that were left out.
    """

    def __init__(self, worker: Worker, totals: Callable[[], ShardReport | ConsumerReport]) -> None:
        self._worker, self._totals = worker, totals
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0
        self.unsent = 0

    def touch(self) -> None:
        """Note that something changed; a report follows within the interval."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            delay = max(0.0, self._last + INTERVAL - loop.time())
            self._timer = loop.call_later(delay, self.send)

    def send(self) -> None:
        """Report now."""
        self.close()
        self._last = asyncio.get_running_loop().time()
        try:
            totals = packed(replace(self._totals(), unsent=self.unsent))
        except Exception:  # the next one may fare better, and nothing else is to suffer
            self.unsent += 1
            logger.exception("event=report_not_sent worker=%s so_far=%s", self._worker.address, self.unsent)
            return
        report(self._worker, "dq-report", totals=totals)

    def close(self) -> None:
        """Cancel what is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
