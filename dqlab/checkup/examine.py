"""`examine` a cluster, or `examine_store` without one: gather facts, then check them.

Both end in time, and raise for wrong use only. `judge` is pure: it decides which checks there are, and the order of
findings.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from dqlab.checkup.alerts import queues
from dqlab.checkup.checks import answers, jobs, resources, shards, stores, versions
from dqlab.checkup.facts import Facts, Process, StoreFacts, look_at_store
from dqlab.checkup.findings import Checkup
from dqlab.clock import SystemClock
from dqlab.config import seconds
from dqlab.errors import BadOption, DqlabError, LabClosed, UsageError
from dqlab.store.probe import Probe
from dqlab.waits import shown

if TYPE_CHECKING:
    from dqlab.cluster.transport.link import Link

__all__ = ["CHECKS", "TIMEOUT", "examine", "examine_store", "judge"]

TIMEOUT = "10s"
"""How long an examination may take."""
_GRACE = 2.0
"""Seconds after the limit at which the event loop itself counts as stuck."""


CHECKS = (answers, shards, versions, queues, stores, jobs, resources)
"""Every check, in the order in which equally bad findings are listed."""


def judge(facts: Facts) -> Checkup:
    """Return the findings of all checks, and the facts of every process."""
    findings = [finding for check in CHECKS for finding in check(facts)]
    findings.sort(key=lambda finding: finding.severity, reverse=True)
    return Checkup(facts.of, tuple(findings), facts.rows(), facts.at, facts.took)


def examine(link: Link, *, of: str, stores: Sequence[Path] = (), timeout: float | str = TIMEOUT) -> Checkup:
    """Examine a cluster, with or without dqlab on it, and `stores` in addition to those of its queues."""
    from dqlab.checkup.gathering import Gathering  # needs Dask, and a store alone does not

    limit = _checked(timeout)
    gathering = Gathering(link, of, stores, limit)
    try:
        with shown(f"examining {of}") as wait:
            wait.step(f"asking all processes; those that do not answer within {limit:g} s are named")
            return judge(link.sync(gathering.gather(), timeout=limit + _GRACE))
    except UsageError:  # called on the client's own event loop, which would wait for itself
        raise
    except LabClosed:  # Dask closes a client whose scheduler has ended
        return judge(gathering.nothing("the connection to it is closed"))
    except DqlabError as error:
        return judge(gathering.nothing(str(error).removesuffix(".")))


def examine_store(directory: Path, *, timeout: float | str = TIMEOUT) -> Checkup:
    """Examine the file system, the space and the queues' files of a store that any process may have open."""
    limit, clock = _checked(timeout), SystemClock()
    at, began = clock.wall(), clock.monotonic()
    found: SimpleQueue[StoreFacts] = SimpleQueue()
    # A thread that nothing waits for: a file system that hangs blocks it forever.
    threading.Thread(target=lambda: found.put(look_at_store(directory)), name="dqlab-doctor", daemon=True).start()
    try:
        store = found.get(timeout=limit)
    except Empty:
        store = StoreFacts(str(directory), Probe(str(directory), error=f"it did not answer within {limit:g} s"))
    else:
        if store.probe.error or not store.probe.made:
            reason = store.probe.error or "there is no such directory"
            problem = f"cannot be looked at: {reason}. Give the directory that keeps queues."
            raise BadOption(option="store", value=str(directory), problem=problem)
    took = clock.monotonic() - began
    return judge(Facts(f"store {directory}", Process(), stores=(store,), at=at, took=took))


def _checked(timeout: float | str) -> float:
    limit = seconds(timeout, name="timeout")
    if limit <= 0:
        raise BadOption(option="timeout", value=timeout, problem="must be above zero.")
    return limit
