"""What users may do to a queue or a run: each verb once, for Python's methods and for the actions of pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dqlab.cluster.transport.orders import Drain, Order, Pause, Purge, Resume
from dqlab.errors import BadOption


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: what it is for, and what an action may say of it."""

    of_queues: bool = True
    of_runs: bool = False
    fields: tuple[str, ...] = ()
    """Fields of an action beside its queue and its run."""


@dataclass(frozen=True, slots=True)
class OrderVerb(Verb):
    """A verb that is carried out by one order to all shards."""

    order: Callable[[bytes | None], Order] = Pause
    """Makes the order for a run, or for the queue."""
    stops: bool = False
    """Whether charts name who did it."""
    said: str = ""
    """What a page says afterwards of the queue or the run."""


ORDERS = {
    "pause": OrderVerb(
        of_runs=True, order=Pause, stops=True, said="is paused: what runs now ends, nothing more is leased"
    ),
    "resume": OrderVerb(of_runs=True, order=Resume, said="goes on"),
    "drain": OrderVerb(
        order=Drain, stops=True, said="takes no more messages; what it has is processed, then it pauses"
    ),
}
VERBS: dict[str, Verb] = {
    **ORDERS,
    "scale": Verb(fields=("n",)),
    "purge": Verb(fields=("state",)),
    "compact": Verb(),
    "replace": Verb(fields=("consumer", "document")),
    "give_up": Verb(fields=("consumer", "document")),
    "cancel": Verb(of_queues=False, of_runs=True),
    "retry": Verb(of_queues=False, of_runs=True, fields=("fingerprints", "limit")),
}


def purged_state(state: str) -> Purge:
    """Return the order that discards a queue's messages in a state, or raise BadOption for another state."""
    if state not in ("ready", "delayed", "dead"):
        raise BadOption(option="state", value=state, problem="is 'ready', 'delayed' or 'dead'. Nothing was done.")
    return Purge(None, state.upper())
