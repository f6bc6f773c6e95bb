"""Looking at a lab: everything at one instant, how it was, the pages of the dashboard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dqlab.cluster.embedded.sockets import PREFIX
from dqlab.config import seconds
from dqlab.errors import BadOption
from dqlab.runs.session import Session
from dqlab.runs.timeline import Timeline
from dqlab.stats import History, Snapshot

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["LabViews"]

ANSWER = 40.0
"""Seconds in which the scheduler answers, once it has what to answer."""
PANELS = ("dq", "depth", "throughput", "failures", "unacked", "runs", "storage")
"""Pages of the dashboard that are ours."""


class LabViews:
    """The part of a lab that asks and changes nothing. Attributes: see `Lab`."""

    name: str
    client: Client
    session: Session
    store: Path | None
    closed: bool
    seen = Snapshot(at=0.0, seq=-1)

    @property
    def dashboard(self) -> str:
        """Address of Dask's own dashboard."""
        http, link = self.session.http, self.session.link
        if http is not None and link.address.startswith(PREFIX):  # Dask takes the sockets' directory for a host
            return f"{http['scheme']}://127.0.0.1:{http['port']}/status"
        return str(self.client.dashboard_link)

    def stats(self) -> Snapshot:
        """Return everything at this instant."""
        return self.snapshot()

    def snapshot(self, *, timeout: float | None = None) -> Snapshot:
        """Return everything at this instant.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for an answer.
        """
        self._check_open()
        link = self.session.link
        snapshot = Snapshot.from_dict(link.sync(link.scheduler("dq_snapshot"), timeout=timeout))
        self.seen = replace(snapshot, lab=self.name, store="" if self.store is None else str(self.store))
        return self.seen

    def history(self, span: float | str = "30m") -> Timeline:
        """Return how all queues together were; see `QueuePool.history`."""
        return Timeline(self.past(seconds(span, name="span")))

    def past(self, span: float, *, timeout: float | None = None) -> History:
        """Return the series that charts are drawn from, over the last `span` seconds."""
        self._check_open()
        link = self.session.link
        return History.from_dict(link.sync(link.scheduler("dq_history", span=span), timeout=timeout))

    def wait_for_change(self, since: int, timeout: float = 1.0) -> Snapshot:
        """Return the next snapshot after number `since`, or the present one after `timeout` seconds."""
        self._check_open()
        link = self.session.link
        return Snapshot.from_dict(
            link.sync(link.scheduler("dq_snapshot", since=since, wait=timeout, timeout=timeout + ANSWER))
        )

    def panel(self, name: str = "dq") -> str:
        """Return the address of a page of the dashboard: ``dq``, with all panels, or one of them alone.

        Parameters
        ----------
        name : {"dq", "depth", "throughput", "failures", "unacked", "runs", "storage"}
        """
        if name not in PANELS:
            raise BadOption(option="panel", value=name, problem=f"is one of {', '.join(PANELS)}.")
        page = "dq" if name == "dq" else f"individual-dq-{name}"
        return f"{self.dashboard.rsplit('/', 1)[0]}/{page}"

    def _check_open(self) -> None:
        if self.closed:
            raise self.session.link.closed_error()
