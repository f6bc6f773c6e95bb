"""`examine` a cluster: gather facts, then check them.

It ends in time, and raises for wrong use only. `judge` is pure: it decides which checks there are, and the order of
findings.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dqlab.checkup.alerts import queues
from dqlab.checkup.checks import answers, jobs, resources, shards, stores, versions
from dqlab.checkup.facts import Facts
from dqlab.checkup.findings import Checkup
from dqlab.checkup.gathering import Gathering
from dqlab.config import seconds
from dqlab.errors import BadOption, DqlabError, LabClosed, UsageError
from dqlab.waits import shown

if TYPE_CHECKING:
    from dqlab.cluster.transport.link import Link

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
    """Examine a cluster, and `stores` in addition to those of its queues."""
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


def _checked(timeout: float | str) -> float:
    limit = seconds(timeout, name="timeout")
    if limit <= 0:
        raise BadOption(option="timeout", value=timeout, problem="must be above zero.")
    return limit
