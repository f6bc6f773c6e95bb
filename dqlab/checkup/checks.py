"""Which checks there are, when each applies, and the order in which findings are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dqlab.checkup.connections import answers, answers_fine, clocks, clocks_fine, connections, connections_fine
from dqlab.checkup.facts import Facts
from dqlab.checkup.files import files, files_fine
from dqlab.checkup.findings import Checkup, Finding
from dqlab.checkup.imports import imports, imports_fine
from dqlab.checkup.jobs import jobs, jobs_fine
from dqlab.checkup.placement import placement, placement_fine
from dqlab.checkup.queues import leases, leases_fine, queues, queues_fine
from dqlab.checkup.resources import resources, resources_fine
from dqlab.checkup.stores import stores, stores_fine
from dqlab.checkup.versions import plugins, plugins_fine, versions, versions_fine
from dqlab.stats import Severity

__all__ = ["CHECKS", "judge"]


class Check(NamedTuple):
    """One check: it applies or not, yields what it finds, and says what was fine when that is nothing."""

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
"""Every check, in the order in which it is told of those that are equally bad."""


def judge(facts: Facts) -> Checkup:
    """Return what all checks that apply make of the facts; pure."""
    findings: list[Finding] = []
    for check in CHECKS:
        if check.applies(facts):
            found = list(check.look(facts))
            findings += found or [Finding(check.name, Severity.OK, check.fine(facts))]
    findings.sort(key=lambda finding: finding.severity, reverse=True)
    return Checkup(facts.of, tuple(findings), facts.at, facts.took)
