"""Where views on the scheduler get their numbers."""

from __future__ import annotations

from typing import Any, Protocol

from dqlab.stats import History, Snapshot

__all__ = ["Feed", "feed_of"]


class Feed(Protocol):
    """A source of statistics in this process; the scheduler's plugin has one."""

    @property
    def seq(self) -> int:
        """Number of the newest change: equal numbers, equal statistics but for the passing of time."""
        ...

    def snapshot(self, queue: str = "", run: str = "") -> Snapshot:
        """Return everything now; leases, consumers, failures and storage of one queue or run, if one is named."""
        ...

    def history(self, span: float, queue: str = "", run: str = "") -> History:
        """Return how it was over the last `span` seconds."""
        ...


def feed_of(scheduler: Any) -> Feed | None:
    """Return the feed of a scheduler, or None when no dqlab is installed on it yet."""
    plugin = scheduler.plugins.get("dqlab")
    return None if plugin is None else getattr(plugin, "collector", None)
