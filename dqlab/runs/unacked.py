"""What consumers hold of a queue now, as users see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dqlab import numbers
from dqlab.numbers import many
from dqlab.stats import ConsumerStats, short_name

__all__ = ["Unacked", "UnackedLeases", "leases_of"]


@dataclass(frozen=True)
class Unacked:
    """Messages one consumer slot holds under one lease. Times in seconds.

    Attributes
    ----------
    run : str or None
        The run's name; None for plain puts.
    consumer : str
        Its name as views show it, which `Run.replace` takes.
    held, ends_in : float
        Time since delivery, and until the lease ends unless it is renewed.
    document : str or None
        What the consumer runs of them, as views name it, which `Run.give_up` takes; None where it has not reported yet.
    running : float or None
        Time since the function began with that document, as views show it; None where it has not reported yet.
    since : float
        When they were delivered, seconds since 1970 UTC.
    delivery : int
        Which delivery it is, for a message alone.
    renewals : int
        How often the lease was renewed.
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

    def __repr__(self) -> str:
        of = "" if self.run is None else f" of run {self.run!r}"
        delivery = f"delivery {self.delivery}, at {numbers.clock(self.since)}"
        if self.document is None:
            what = f"{many(self.messages, 'message')}{of}"
            return f"<{self.consumer} holds {what}, for {numbers.duration(self.held)} since {delivery}>"
        times = "" if self.running is None else f" for {numbers.duration(self.running)}"
        others = f" and holds {many(self.messages - 1, 'other')}" if self.messages > 1 else ""
        return f"<{self.consumer} runs {self.document!r}{of}{times}{others}, {delivery}>"


class UnackedLeases(list[Unacked]):
    """What consumers hold of a queue, longest held first; a notebook shows it as a table.

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
    """Return the leases that shards have listed, with what their consumers have reported.

    Parameters
    ----------
    rows : iterable of sequence
        As `QueueActor.leases` returns them; those of an older version of dqlab end early.
    runs : mapping of bytes to str
        Names of the queue's runs by id.
    consumers : iterable of ConsumerStats
        The document of each is of the lease that it has had longest.
    now : float
        Seconds since 1970 UTC.
    """
    runs_now = {each.name: (each.document, each.oldest_age) for each in consumers if each.queue == queue}
    held = []
    for run, consumer, messages, age, left, *more in rows:
        held.append(Unacked(runs.get(run), short_name(consumer), messages, age, left, None, now - age, *more))
    found = sorted(held, key=lambda lease: -lease.held)
    named = ((lease, *runs_now.pop(lease.consumer, (None, None))) for lease in found)
    return UnackedLeases((replace(lease, document=name, running=age) for lease, name, age in named), queue)
