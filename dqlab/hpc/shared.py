"""Checks, before a queue is opened, that workers can use a store, and that it is the intended directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dqlab.checkup.facts import Facts, Process, StoreFacts, WorkerFacts, known
from dqlab.checkup.stores import stores
from dqlab.cluster.transport.internals import scheduler_rpc
from dqlab.cluster.transport.link import Link
from dqlab.hpc.errors import StoreNotShared
from dqlab.stats import Severity
from dqlab.store.probe import Marker, Probe

__all__ = ["check_store"]

LIMIT = 5.0
"""Seconds for everything; a worker that does not answer in that time is skipped."""


def check_store(link: Link, store: Path, *, seen_here: bool) -> None:
    """Make one worker that may host queues check a store. Without a worker nothing is known, and nothing is raised.

    Parameters
    ----------
    This process must see the same directory. Otherwise only if there is one under this path: a client on another
        This process is to see the same directory. Otherwise only if there is one under this path: a client on another
        machine needs none.

    Raises
    ------
    The worker cannot keep queues there, or has another directory under that path.
        It cannot keep queues there, or has another directory under that path.
    """
    if seen_here or store.is_dir():
        with Marker(store) as marker:
            found = _look(link, store, marker.path)
    else:
        found = _look(link, store, "")
    if found is None:
        return
    not_looked_at = StoreFacts(str(store), Probe(str(store), error="not looked at"))
    for finding in stores(Facts(link.lab, Process(), workers=(found,), stores=(not_looked_at,))):
        about = finding.values.get("worker") or finding.values.get("who")
        if finding.severity is Severity.PROBLEM and about in (found.address, found.who):
            raise StoreNotShared(store=str(store), worker=found.address, reason=finding.what)


def _look(link: Link, store: Path, marker: str) -> WorkerFacts | None:
    try:
        return link.sync(_asked(link, store, marker), timeout=LIMIT)
    except Exception:  # noqa: BLE001 - a worker that hangs or goes: queues open elsewhere, or fail with their own error
        return None


async def _asked(link: Link, store: Path, marker: str) -> WorkerFacts | None:
    """Ask through the scheduler, to which there is a connection already."""
    scheduler = scheduler_rpc(link.client)
    overview: dict[str, Any] = await scheduler.dq_overview()
    hosts: list[str] = overview["registry"]["hosts"]
    if not hosts:
        return None
    asked = {"op": "dq_vitals", "stores": [[str(store), marker]], "limit": LIMIT / 2}
    said: dict[str, Any] | None = await scheduler.proxy(worker=hosts[0], msg=asked)
    if said is None:  # it does not have our handlers yet
        return None
    probes = tuple(known(Probe, seen) for seen in said["stores"])
    return known(WorkerFacts, {"address": hosts[0], "name": said["name"]}, process=known(Process, said), probes=probes)
