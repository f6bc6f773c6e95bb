"""Chooses the workers that host queues and those that host consumers, as pure functions.

A worker that runs users' functions cannot promise to answer: C code that holds the GIL stalls its event loop for
seconds. So queues get workers of their own where there are enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dqlab.errors import DqlabError

QUEUE_RESOURCE = "dq-queue"
"""Workers started with this Dask resource host queues first."""
WORKERS_PER_HOST = 16
"""One of this many workers is kept for queues."""


@dataclass(frozen=True, slots=True)
class Host:
    """A worker as the scheduler sees it."""

    address: str
    name: str
    slots: int
    resources: Mapping[str, float] = field(default_factory=dict)
    hosting: bool = False
    """Whether a shard lives there."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Addresses of workers for queues and for consumers."""

    queues: tuple[str, ...]
    consumers: tuple[str, ...]
    shared: bool = False
    """Whether one worker hosts both."""


def plan(hosts: Sequence[Host], reserved: Collection[str] = (), missing: int = 0) -> Plan:
    """Split the workers that run now between queues and consumers."""
    # Workers with the resource come first, then those where a queue lives, so that a new worker moves no queue.
    ranked = sorted(
        hosts,
        key=lambda host: (
            QUEUE_RESOURCE not in host.resources,
            not host.hosting,
            bool(host.resources.keys() - {QUEUE_RESOURCE}),  # only they can run what needs their resources
            host.slots,
            host.name,
            host.address,
        ),
    )
    # An embedded cluster reserves workers by name: a nanny's replacement has another address and the same name.
    named = [host.address for host in ranked if host.name in reserved]
    if named:
        return Plan(tuple(named), tuple(host.address for host in ranked if host.address not in named))
    everyone = tuple(host.address for host in ranked)
    # Count workers that died a moment ago, and may be replaced soon. Else consumers would be made beside the queues
    # until then, and the document that killed those workers would kill the queues next.
    usual = len(ranked) + missing
    if usual <= 2:
        return Plan(everyone[:1], everyone, shared=bool(ranked))
    kept = -(-usual // WORKERS_PER_HOST)
    return Plan(everyone[:kept], everyone[kept:])


class NoWorkers(DqlabError):
    """The cluster has no worker to put a queue or a consumer on."""

    text = "the cluster has no worker for queue {queue!r}. Nothing was made. Scale the cluster up, then call again."
