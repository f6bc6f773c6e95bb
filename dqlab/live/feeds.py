"""What views need of the things they show.

::

    RunSource       a run: statistics, pause, resume, cancel; enough to watch it
    RunDetails      what a run may have besides: what needs the user, history, consumers, retry of one failure class
    LabSource       a lab: statistics, history, controls by queue
    PoolSource      one queue: the same, and its own controls
    QueueControls   what can be done to one queue
    Feed            on the scheduler: statistics without a call
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

from dqlab.stats import CodeStats, History, RunStats, Snapshot

__all__ = [
    "Feed",
    "LabSource",
    "PoolSource",
    "QueueControls",
    "RunDetails",
    "RunSource",
    "call_again",
    "cluster_of",
    "feed_of",
    "has_details",
    "is_embedded",
    "is_lab",
    "is_queue",
]


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


class RunSource(Protocol):
    """A run that can be watched; `Run` is one."""

    @property
    def name(self) -> str:
        """The run's name."""
        ...

    def stats(self, *, timeout: float | None = None) -> RunStats:
        """Return the run's newest statistics.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait for an answer.

        Raises
        ------
        SchedulerGone, ActorGone, CallTimeout
            No answer. A view keeps its picture, shows since when it is old, and polls again.
        """
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
        """Take from a consumer what it runs, to be tried again; return which documents."""
        ...

    def give_up(self, document: str) -> list[str]:
        """Give up a document that a consumer runs."""
        ...

    def failures(self) -> Sequence[Any]:
        """Return the dead documents: key, error, message, at, deliveries, version, traceback."""
        ...


class RunDetails(Protocol):
    """What a watched run may have besides; polled at most once a second."""

    @property
    def source(self) -> str | None:
        """Source of the newest code version, if it is known."""
        ...

    def snapshot(self, *, timeout: float | None = None, fresh: bool = True) -> Snapshot:
        """Return everything about this run: attention, consumers, leases, failures and marks are its own.

        Raises
        ------
        SchedulerGone, ActorGone, CallTimeout
            No answer; the view shows what it had.
        """
        ...

    def past(self, span: float | None = None, *, timeout: float | None = None) -> History:
        """Return the history of the last `span` seconds; with None, since the run began."""
        ...

    def newer(self, code: CodeStats) -> Callable[..., Any] | None:
        """Return the function that the notebook has under the name of this code now, if it is another one."""
        ...

    def send_again(
        self, fn: Callable[..., Any] | None = None, *, fingerprint: str | None = None, limit: int | None = None
    ) -> int:
        """Send dead documents through again; return how many.

        Parameters
        ----------
        fn : callable, optional
            The corrected function; default: the run's newest code.
        fingerprint : str, optional
            Retry only this failure class.
        limit : int, optional
            At most so many.
        """
        ...

    def examples(self, fingerprint: str, limit: int = 5, *, timeout: float | None = None) -> Sequence[Any]:
        """Return some dead documents of one failure class: key, deliveries, version, traceback."""
        ...

    def scale(self, n: int) -> Any:
        """Set the number of consumers on the run's queue."""
        ...


class QueueControls(Protocol):
    """What can be done to one queue."""

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
        """Discard messages of one state; return how many."""
        ...

    def compact(self) -> Any:
        """Free disk space; returns an object with ``bytes_before`` and ``bytes_after``."""
        ...


class PoolSource(QueueControls, Protocol):
    """One queue that can be watched: `QueuePool`."""

    @property
    def name(self) -> str:
        """The queue's name."""
        ...

    @property
    def closed(self) -> bool:
        """Whether there is nothing to watch any more."""
        ...

    def snapshot(self, *, timeout: float | None = None, fresh: bool = True) -> Snapshot:
        """Return everything about this queue: leases, consumers, failures and storage are its own.

        Raises
        ------
        SchedulerGone, ActorGone, CallTimeout
            No answer. A view keeps its picture, shows since when it is old, and polls again.
        QueueClosed
            There will be no answer; the view ends with its last picture.
        """
        ...

    def past(self, span: float | None = None, *, timeout: float | None = None) -> History:
        """Return the history of the last `span` seconds."""
        ...


class LabSource(Protocol):
    """A lab that can be watched, with all its queues: `Lab`."""

    @property
    def name(self) -> str:
        """The lab's name."""
        ...

    @property
    def dashboard(self) -> str:
        """Address of the dashboard that is opened in a tab of its own; "" for none."""
        ...

    @property
    def closed(self) -> bool:
        """Whether there is nothing to watch any more."""
        ...

    def snapshot(self, *, timeout: float | None = None, fresh: bool = True) -> Snapshot:
        """Return everything now.

        Raises
        ------
        SchedulerGone, ActorGone, CallTimeout
            No answer. A view keeps its picture, shows since when it is old, and polls again.
        LabClosed
            There will be no answer; the view ends with its last picture.
        """
        ...

    def past(self, span: float | None = None, *, timeout: float | None = None) -> History:
        """Return the history of all queues over the last `span` seconds, with ``depths``."""
        ...

    def controls(self, queue: str) -> QueueControls:
        """Return the controls of a queue of this lab, also of one that another client has made.

        Raises
        ------
        QueueNotFound
            The name is unknown.
        """
        ...

    def retry(self, run: str, *, fingerprint: str = "") -> int:
        """Retry dead documents of a run, of one failure class if it is named; return how many."""
        ...


def has_details(source: object) -> TypeGuard[RunDetails]:
    """Return whether a run provides more than statistics."""
    return _has(source, "snapshot", "past")


def is_lab(source: object) -> TypeGuard[LabSource]:
    """Return whether something is a lab that can be watched."""
    return _has(source, "snapshot", "past", "controls")


def is_queue(source: object) -> TypeGuard[PoolSource]:
    """Return whether something is a queue that can be watched."""
    return _has(source, "snapshot", "past", "drain", "purge")


class Connection(Protocol):
    """Where something that is shown comes from."""

    @property
    def address(self) -> str:
        """The address of its scheduler."""
        ...

    @property
    def again(self) -> str:
        """The call that connects to the same cluster or store again, from any process; "" where none can."""
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
    """Return the address of the scheduler that a run, a queue or a lab belongs to; "" where it has none."""
    link = _link_of(source)
    return "" if link is None else link.address


def call_again(source: object) -> str:
    """Return the call that connects to the cluster or store of a run again, from any process; "" where none does."""
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
    return all(hasattr(type(source), name) for name in names)
