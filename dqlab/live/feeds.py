"""Define what views need from a lab, which they cannot import, and from the scheduler that they run on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from dqlab.stats import History, Snapshot

if TYPE_CHECKING:
    from dqlab.runs.pool import QueuePool


class Feed(Protocol):
    """A source of statistics in the same process, as the scheduler's plugin is one."""

    @property
    def seq(self) -> int:
        """Number of the newest change, which stays the same while only time passes."""
        ...

    def snapshot(self, queue: str = "", run: str = "") -> Snapshot:
        """Return everything now, with the details of one queue or run, if one is named."""
        ...

    def history(self, span: float, queue: str = "", run: str = "") -> History:
        """Return the statistics of the last `span` seconds."""
        ...


def feed_of(scheduler: Any) -> Feed | None:
    """Return the feed of a scheduler, or None when no dqlab is installed on it yet."""
    plugin = scheduler.plugins.get("dqlab")
    return None if plugin is None else getattr(plugin, "collector", None)


class LabSource(Protocol):
    """A lab that can be followed with all its queues, as `Lab`."""

    @property
    def name(self) -> str:
        """The lab's name."""
        ...

    @property
    def dashboard(self) -> str:
        """Address of the dashboard, opened in a tab of its own, and "" for none."""
        ...

    @property
    def closed(self) -> bool:
        """Whether there is nothing to follow any more."""
        ...

    def snapshot(self, *, timeout: float | None = None, fresh: bool = True) -> Snapshot:
        """Return everything now, or raise LabClosed once no answer can come."""
        ...

    def past(self, span: float, *, timeout: float | None = None) -> History:
        """Return the history of all queues over the last `span` seconds, with ``depths``."""
        ...

    def controls(self, queue: str) -> QueuePool:
        """Return the controls of any queue of this lab, or raise QueueNotFound."""
        ...

    def retry(self, run: str, *, fingerprint: str = "") -> int:
        """Retry dead documents of a run, limited to one failure class if it is named, and return how many."""
        ...


def is_lab(source: object) -> TypeGuard[LabSource]:
    """Return whether a source is a lab that can be followed."""
    return _has(source, "snapshot", "past", "controls")


def is_queue(source: object) -> TypeGuard[QueuePool]:
    """Return whether a source is a queue that can be followed."""
    return _has(source, "snapshot", "past", "drain", "purge")


def cluster_of(source: object) -> str:
    """Return the address of the scheduler of a run, a queue or a lab, and "" where it has none."""
    owner = getattr(source, "handle", None) or getattr(source, "session", None)
    return str(getattr(getattr(owner, "link", None), "address", ""))


def is_embedded(source: object) -> bool:
    """Return whether a lab has started the processes of its cluster."""
    return bool(getattr(source, "embedded", False))


def _has(source: object, *names: str) -> bool:
    # Of the type: on the object, a property such as `source` or `closed` would be computed, and may ask the cluster.
    return all(hasattr(type(source), name) for name in names)
