"""Looking at a queue: counts, statistics, who holds what, how it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dqlab.cluster.transport.handle import Handle
from dqlab.config import seconds
from dqlab.errors import QueueClosed
from dqlab.frame import NO_ID
from dqlab.rules.states import State
from dqlab.runs.failures import Failures
from dqlab.runs.timeline import Timeline
from dqlab.runs.unacked import Unacked
from dqlab.stats import History, QueueStats, Snapshot

if TYPE_CHECKING:
    from dqlab.runs.session import Session

__all__ = ["PoolViews"]


class PoolViews:
    """The part of a queue that asks and changes nothing. Attributes: see `QueuePool`."""

    name: str
    handle: Handle
    session: Session
    _closed: bool

    @property
    def closed(self) -> bool:
        """Whether this handle was closed."""
        return self._closed

    @property
    def gone(self) -> bool:
        """Whether one of its shards has died and cannot be made anew; asks for 10 s at most while that goes on."""
        return self.handle.link.sync(self.handle.missing())[0]

    def counts(self) -> dict[str, int]:
        """Return messages by state over all lanes, asked from the queue now."""
        totals = dict.fromkeys((state.name.lower() for state in State), 0)
        for report in self.handle.link.sync(self.handle.ask_all("stats", {})):
            for lane in report["lanes"]:
                for state in State:
                    totals[state.name.lower()] += lane["counts"][state]
        return totals

    def stats(self) -> QueueStats:
        """Return the queue's statistics at this instant."""
        known = self.snapshot().queue(self.name)
        if known is None:
            raise QueueClosed(queue=self.name)
        return known

    def snapshot(self, *, timeout: float | None = None) -> Snapshot:
        """Return everything at this instant; leases, consumers, failures and storage are those of this queue.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for an answer.
        """
        link = self.handle.link
        return Snapshot.from_dict(link.sync(link.scheduler("dq_snapshot", queue=self.name), timeout=timeout))

    def history(self, span: float | str = "30m") -> Timeline:
        """Return how the queue was.

        Parameters
        ----------
        span : float or str, default "30m"
            How far back; seconds of the last quarter of an hour and minutes of the last day are known.

        Returns
        -------
        Timeline
            A sequence of moments; `.to_frame()` for pandas, `.plot()` for a figure.
        """
        return Timeline(self.past(seconds(span, name="span")))

    def past(self, span: float, *, timeout: float | None = None) -> History:
        """Return the series that charts are drawn from, over the last `span` seconds."""
        link = self.handle.link
        asked = link.scheduler("dq_history", span=span, queue=self.name)
        return History.from_dict(link.sync(asked, timeout=timeout))

    def unacked(self) -> list[Unacked]:
        """Return what consumers hold now, longest held first."""
        names = {run.id: run.name for run in self.session.runs}
        answers = self.handle.link.sync(self.handle.ask_all("leases", {}))
        held = [Unacked(names.get(run), *row) for answer in answers for run, *row in answer["rows"]]
        return sorted(held, key=lambda lease: -lease.held)

    def dead(self) -> Failures:
        """Return dead letters of plain puts; those of runs are in `run.failures()`."""
        progress = self.handle.link.sync(self.handle.ask_all("watch", {"run": NO_ID, "wait": 0.0}))
        return Failures(self.name, self.handle, NO_ID, [shard["counts"][State.DEAD] for shard in progress])
