"""A cluster that was started on this machine has as many workers as it was started with, whatever became of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.transport.internals import replace_lost_workers, tend

if TYPE_CHECKING:
    from distributed import SpecCluster

__all__ = ["tend_workers"]

logger = logging.getLogger("dqlab.registry")

LOOK_EVERY = 2.0
"""Seconds between two looks at who is missing."""


def tend_workers(cluster: SpecCluster) -> None:
    """Make workers again that are gone and that nobody replaces, until the cluster closes; those retired stay away."""
    absent: dict[Any, int] = {}

    async def look() -> None:
        scheduler: Any = cluster.scheduler
        registry = scheduler.plugins.get(Registry.name)
        retired = registry.departures.retired if isinstance(registry, Registry) else ()
        try:
            for name in await replace_lost_workers(cluster, retired, absent):
                logger.warning("event=worker_made_again name=%s", name)
        except Exception as error:  # noqa: BLE001 - the next look may fare better
            logger.warning("event=tending_failed %r", error)

    tend(cluster, LOOK_EVERY, look)
