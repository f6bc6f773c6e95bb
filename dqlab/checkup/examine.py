"""`examine` a cluster, or `examine_store` without one: gather facts, then check them.

Both end in time, and raise for wrong use only. `judge` is pure: it decides which checks there are, when each applies,
and the order of findings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from dqlab.checkup.facts import Facts, Process, StoreFacts, look_at_store
from dqlab.checkup.findings import Checkup, Finding
from dqlab.checkup.process_checks import (
    answers,
    answers_fine,
    clocks,
    clocks_fine,
    connections,
    connections_fine,
    imports,
    imports_fine,
    placement,
    placement_fine,
    plugins,
    plugins_fine,
    versions,
    versions_fine,
)
from dqlab.checkup.queue_checks import leases, leases_fine, queues, queues_fine
from dqlab.checkup.resource_checks import jobs, jobs_fine, resources, resources_fine
from dqlab.checkup.store_checks import files, files_fine, stores, stores_fine
from dqlab.clock import SystemClock
from dqlab.config import seconds
from dqlab.errors import BadOption, DqlabError, LabClosed, UsageError
from dqlab.stats import Severity
from dqlab.store.probe import Probe
from dqlab.waits import shown

if TYPE_CHECKING:
    from dqlab.cluster.transport.link import Link

__all__ = ["CHECKS", "TIMEOUT", "examine", "examine_store", "judge"]

TIMEOUT = "10s"
"""How long an examination may take."""
_GRACE = 2.0
"""Seconds after the limit at which the event loop itself counts as stuck."""


class Check(NamedTuple):
    """One check, with when it applies, its search for findings, and its report where it finds none."""

    name: str
    applies: Callable[[Facts], bool]
    look: Callable[[Facts], Iterator[Finding]]
    fine: Callable[[Facts], str]


def _cluster(facts: Facts) -> bool:
    return facts.scheduler is not None


def _scheduler(facts: Facts) -> bool:
    return facts.scheduler is not None and facts.scheduler.process is not None


def _registry(facts: Facts) -> bool:
    return facts.registry is not None


def _workers(facts: Facts) -> bool:
    return bool(facts.answering)


def _jobs(facts: Facts) -> bool:
    return any(worker.batch or worker.job_left is not None for worker in facts.answering)


def _kept(facts: Facts) -> bool:
    return bool(facts.stores)


CHECKS = (
    Check("answers", _cluster, answers, answers_fine),
    Check("versions", _scheduler, versions, versions_fine),
    Check("plugins", _scheduler, plugins, plugins_fine),
    Check("connections", _workers, connections, connections_fine),
    Check("placement", _registry, placement, placement_fine),
    Check("queues", _registry, queues, queues_fine),
    Check("leases", _registry, leases, leases_fine),
    Check("imports", _registry, imports, imports_fine),
    Check("store", _kept, stores, stores_fine),
    Check("files", _kept, files, files_fine),
    Check("clocks", _workers, clocks, clocks_fine),
    Check("jobs", _jobs, jobs, jobs_fine),
    Check("resources", _workers, resources, resources_fine),
)
"""Every check, in the order in which equally bad findings are listed."""


def judge(facts: Facts) -> Checkup:
    """Return the findings of all checks that apply to the facts."""
    findings: list[Finding] = []
    for check in CHECKS:
        if check.applies(facts):
            found = list(check.look(facts))
            findings += found or [Finding(check.name, Severity.OK, check.fine(facts))]
    findings.sort(key=lambda finding: finding.severity, reverse=True)
    return Checkup(facts.of, tuple(findings), facts.at, facts.took)


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
        error = f"it did not answer within {limit:g} s"
        store = StoreFacts(str(directory), Probe(str(directory), error=error), error=error)
    else:
        if store.probe.error or not store.probe.made:
            reason = store.probe.error or "there is no such directory"
            problem = f"cannot be looked at: {reason}. Give the directory that keeps queues."
            raise BadOption(option="store", value=str(directory), problem=problem)
    took = clock.monotonic() - began
    return judge(Facts(f"store {directory}", Process(), stores=(store,), limit=limit, at=at, took=took))


def _checked(timeout: float | str) -> float:
    limit = seconds(timeout, name="timeout")
    if limit <= 0:
        raise BadOption(option="timeout", value=timeout, problem="must be above zero.")
    return limit
