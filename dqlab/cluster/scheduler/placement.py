"""Which workers host queues and which host consumers. Pure.

A worker that runs users' functions cannot promise to answer: C code that holds the GIL stalls its
event loop for seconds. So queues get workers of their own where there are enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dqlab.errors import DqlabError

__all__ = ["QUEUE_RESOURCE", "Host", "NoWorkers", "Plan", "plan"]

QUEUE_RESOURCE = "dq-queue"
"""Workers started with this Dask resource host queues first."""
WORKERS_PER_HOST = 16


@dataclass(frozen=True, slots=True)
class Host:
    """A worker as the scheduler sees it; `hosting` when a shard lives there."""

    address: str
    name: str
    slots: int
    resources: Mapping[str, float] = field(default_factory=dict)
    hosting: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Addresses for queues and for consumers; `shared` when one worker hosts both."""

    queues: tuple[str, ...]
    consumers: tuple[str, ...]
    shared: bool = False


def plan(hosts: Sequence[Host], reserved: Collection[str] = (), missing: int = 0) -> Plan:
    """Split workers between queues and consumers.

    Parameters
    ----------
    hosts : sequence of Host
        All workers that run now.
    reserved : collection of str
        Names of workers kept for queues (an embedded cluster's); a nanny's replacement keeps the name.
    missing : int
        Workers that died a moment ago, and whose nannies may be replacing them.

    Returns
    -------
    Plan
        1 worker: shared. 2: queues share the one with the fewest slots. 3 and more: one of every 16
        is kept for queues, those with the resource "dq-queue" first, then those where a queue lives, then those with
        the fewest slots.
    """
    ranked = sorted(
        hosts,
        key=lambda host: (
            QUEUE_RESOURCE not in host.resources,
            not host.hosting,
            host.slots,
            host.name,
            host.address,
        ),
    )
    named = [host.address for host in ranked if host.name in reserved]
    if named:
        return Plan(tuple(named), tuple(host.address for host in ranked if host.address not in named))
    everyone = tuple(host.address for host in ranked)
    # What killed the others would kill the queues next, were consumers made beside them until the others are back.
    usual = len(ranked) + missing
    if usual <= 2:
        return Plan(everyone[:1], everyone, shared=bool(ranked))
    kept = -(-usual // WORKERS_PER_HOST)
    return Plan(everyone[:kept], everyone[kept:])


class NoWorkers(DqlabError):
    """The cluster has no worker to put a queue or a consumer on."""

    text = "the cluster has no worker for queue {queue!r}. Nothing was made. Scale the cluster up, then call again."
