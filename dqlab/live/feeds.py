"""Define what views need from the things they show.

::

    RunSource       a run: statistics, history, controls, retry of one failure class
    LabSource       a lab: statistics, history, controls by queue
    PoolSource      one queue: the same, and its own controls
    QueueControls   the controls of one queue
    Feed            on the scheduler: statistics without a call

"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

from dqlab.stats import CodeStats, History, Snapshot

__all__ = [
    "Feed",
    "LabSource",
    "PoolSource",
    "QueueControls",
    "RunSource",
    "call_again",
    "cluster_of",
    "feed_of",
    "is_embedded",
    "is_lab",
    "is_queue",
]


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


class RunSource(Protocol):
    """A run that can be followed, as `Run`."""

    @property
    def name(self) -> str:
        """The run's name."""
        ...

    @property
    def source(self) -> str | None:
        """Source of the newest code version, if it is known."""
        ...

    def snapshot(self, *, timeout: float | None = None) -> Snapshot:
        """Return everything about this run alone, with the run as `own_run`."""
        ...

    def past(self, span: float, *, timeout: float | None = None) -> History:
        """Return the history of the last `span` seconds."""
        ...

    def newer(self, code: CodeStats) -> Callable[..., Any] | None:
        """Return the notebook's present function under the name of this code, or None if that is the same."""
        ...

    def send_again(
        self, fn: Callable[..., Any] | None = None, *, fingerprint: str | None = None, limit: int | None = None
    ) -> int:
        """Send at most `limit` dead documents through again, with `fn` or the newest code, and return how many."""
        ...

    def examples(self, fingerprint: str, limit: int = 5, *, timeout: float | None = None) -> Sequence[Any]:
        """Return some dead documents of one failure class with key, deliveries, version and traceback."""
        ...

    def scale(self, n: int) -> Any:
        """Set the number of consumers on the run's queue."""
        ...

    def pause(self) -> Any:
        """Stop leasing."""
        ...

    def resume(self) -> Any:
        """Lease again."""
        ...

    def cancel(self) -> Any:
        """Cancel what is left."""
        ...

    def replace(self, consumer: str) -> list[str]:
        """Take its documents from a consumer, for another try, and return their names."""
        ...

    def give_up(self, document: str) -> list[str]:
        """Give up a document that a consumer runs, and return the names of what was given up."""
        ...

    def failures(self) -> Sequence[Any]:
        """Return the dead documents with key, error, message, at, deliveries, version and traceback."""
        ...


class QueueControls(Protocol):
    """The controls of one queue."""

    def pause(self) -> Any:
        """Stop leasing."""
        ...

    def resume(self) -> Any:
        """Lease again, after `pause` or `drain`."""
        ...

    def drain(self) -> Any:
        """Refuse puts, process all queued messages, then pause."""
        ...

    def scale(self, n: int) -> Any:
        """Set the number of consumers."""
        ...

    def purge(self, state: str = "dead") -> int:
        """Discard the messages of one state, and return how many."""
        ...

    def compact(self) -> Any:
        """Free disk space, and return an object with ``bytes_before`` and ``bytes_after``."""
        ...


class PoolSource(QueueControls, Protocol):
    """One queue that can be followed, as `QueuePool`."""

    @property
    def name(self) -> str:
        """The queue's name."""
        ...

    @property
    def closed(self) -> bool:
        """Whether there is nothing to follow any more."""
        ...

    def snapshot(self, *, timeout: float | None = None, fresh: bool = True) -> Snapshot:
        """Return everything about this queue alone, or raise QueueClosed once no answer can come."""
        ...

    def past(self, span: float, *, timeout: float | None = None) -> History:
        """Return the history of the last `span` seconds."""
        ...


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

    def controls(self, queue: str) -> QueueControls:
        """Return the controls of any queue of this lab, or raise QueueNotFound."""
        ...

    def retry(self, run: str, *, fingerprint: str = "") -> int:
        """Retry dead documents of a run, limited to one failure class if it is named, and return how many."""
        ...


def is_lab(source: object) -> TypeGuard[LabSource]:
    """Return whether a source is a lab that can be followed."""
    return _has(source, "snapshot", "past", "controls")


def is_queue(source: object) -> TypeGuard[PoolSource]:
    """Return whether a source is a queue that can be followed."""
    return _has(source, "snapshot", "past", "drain", "purge")


class Connection(Protocol):
    """The connection of a source."""

    @property
    def address(self) -> str:
        """Address of its scheduler."""
        ...

    @property
    def again(self) -> str:
        """The call that connects to the same cluster or store from any process, and "" where none can."""
        ...


class _Linked(Protocol):
    @property
    def link(self) -> Connection: ...


@runtime_checkable
class _OfQueue(Protocol):
    """A queue or a run."""

    @property
    def handle(self) -> _Linked: ...


@runtime_checkable
class _OfLab(Protocol):
    @property
    def session(self) -> _Linked: ...


def cluster_of(source: object) -> str:
    """Return the address of the scheduler of a run, a queue or a lab, and "" where it has none."""
    link = _link_of(source)
    return "" if link is None else link.address


def call_again(source: object) -> str:
    """Return the call that connects to the cluster or store of a run from any process, and "" where none can."""
    link = _link_of(source)
    return "" if link is None else link.again


def _link_of(source: object) -> Connection | None:
    if isinstance(source, _OfQueue):
        return source.handle.link
    return source.session.link if isinstance(source, _OfLab) else None


def is_embedded(source: object) -> bool:
    """Return whether a lab has started the processes of its cluster."""
    return bool(getattr(source, "embedded", False))


def _has(source: object, *names: str) -> bool:
    # Of the type: on the object, a property such as `source` or `closed` would be computed, and may ask the cluster.
    return all(hasattr(type(source), name) for name in names)
