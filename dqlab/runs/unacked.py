"""`UnackedLeases`: the messages of a queue that consumers hold now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dqlab import numbers
from dqlab.numbers import many
from dqlab.stats import ConsumerStats, short_name


@dataclass(frozen=True)
class Unacked:
    """Messages that one consumer slot holds under one lease; times are in seconds.

    Attributes
    ----------
    run : str or None
        The run's name; None for plain puts.
    consumer : str
        The consumer's name as views show it, for `Run.replace`.
    held, ends_in : float
        Time since delivery, and until the lease ends unless it is renewed.
    document : str or None
        The document that the consumer runs, as views name it, for `Run.give_up`; None before the consumer reports it.
    running : float or None
        Time since the function began with that document; None before the consumer reports it.
    since : float
        When the messages were delivered, in seconds since 1970 UTC.
    delivery : int
        The number of this delivery, if the lease has one message.
    renewals : int
        How often the lease was renewed.
    step : str
        How far the function is in the document, as "12 of 300", if it uses `track`.
    """

    run: str | None
    consumer: str
    messages: int
    held: float
    ends_in: float
    document: str | None = None
    since: float = 0.0
    delivery: int = 1
    renewals: int = 0
    running: float | None = None
    step: str = ""

    @property
    def shown_document(self) -> str:
        """The document, with how far its function is in it; "" where it is not known."""
        return f"{self.document} ({self.step})" if self.document and self.step else self.document or ""

    def __repr__(self) -> str:
        of = "" if self.run is None else f" of run {self.run!r}"
        delivery = f"delivery {self.delivery}, at {numbers.clock(self.since)}"
        if self.document is None:
            what = f"{many(self.messages, 'message')}{of}"
            return f"<{self.consumer} holds {what}, for {numbers.duration(self.held)} since {delivery}>"
        times = "" if self.running is None else f" for {numbers.duration(self.running)}"
        others = f" and holds {many(self.messages - 1, 'other')}" if self.messages > 1 else ""
        step = f", at {self.step}," if self.step else ""
        return f"<{self.consumer} runs {self.document!r}{of}{step}{times}{others}, {delivery}>"


class UnackedLeases(list[Unacked]):
    """The messages of a queue that consumers hold, longest held first; a notebook shows them as a table.

    Attributes
    ----------
    queue : str
        The queue's name.
    """

    def __init__(self, leases: Iterable[Unacked], queue: str) -> None:
        super().__init__(leases)
        self.queue = queue


def leases_of(
    rows: Iterable[Sequence[Any]],
    *,
    queue: str,
    runs: Mapping[bytes, str],
    consumers: Iterable[ConsumerStats],
    now: float,
) -> UnackedLeases:
    """Return the leases that `QueueActor.leases` has listed, with the documents that their consumers run."""
    runs_now = {each.name: (each.document, each.oldest_age, each.step) for each in consumers if each.queue == queue}
    held = []
    for consumer, age, left, messages, renewals, delivery, run in rows:
        name, since = runs.get(run), now - age
        held.append(Unacked(name, short_name(consumer), messages, age, left, None, since, delivery, renewals))
    # A consumer runs a document of its oldest lease: sort first, so that `pop` gives the document to that lease only.
    found = sorted(held, key=lambda lease: -lease.held)
    named = ((lease, *runs_now.pop(lease.consumer, (None, None, ""))) for lease in found)
    return UnackedLeases(
        (replace(lease, document=name, running=age, step=step) for lease, name, age, step in named), queue
    )
