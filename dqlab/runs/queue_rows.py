"""A queue as rows: `Timeline`, its history, and `UnackedLeases`, what consumers hold now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from dqlab import numbers
from dqlab.imports import import_whole
from dqlab.keywords import SuggestsAttributes
from dqlab.numbers import many
from dqlab.stats import ConsumerStats, History, Mark, short_name

if TYPE_CHECKING:
    import pandas as pd


class Moment(NamedTuple):
    """The state of a queue at one point in time, with None for what is unknown; rates are per second.

    Attributes
    ----------
    at : datetime
        The time, in the time zone of this process.
    depth : float or None
        Messages waiting: ready and delayed.
    unacked, dead : float or None
        Messages that consumers hold, and dead messages.
    in_rate, out_rate, failure_rate : float or None
        Messages put, messages settled, and failed deliveries.
    cells : str
        What people did since the previous moment: ``[12] submit``.
    """

    at: datetime
    depth: float | None
    unacked: float | None
    dead: float | None
    in_rate: float | None
    out_rate: float | None
    failure_rate: float | None
    cells: str = ""


@dataclass(frozen=True, eq=False)
class Timeline(Sequence[Moment], SuggestsAttributes):
    """A queue, or all queues together, over some time: a sequence of `Moment`, oldest first.

    Attributes
    ----------
    history : History
        All series.
    """

    history: History

    def __len__(self) -> int:
        return len(self.history.ready)

    @overload
    def __getitem__(self, index: int) -> Moment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Moment]: ...
    def __getitem__(self, index: int | slice) -> Moment | list[Moment]:
        if isinstance(index, slice):
            return [self._moment(at) for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        return self._moment(at)

    def __iter__(self) -> Iterator[Moment]:
        return map(self._moment, range(len(self)))

    def __repr__(self) -> str:
        of = f"queue {self.history.queue!r}" if self.history.queue else "all queues"
        return f"<Timeline of {of}: {len(self)} moments, {self.history.step:g} s apart; .to_frame()>"

    @property
    def marks(self) -> tuple[Mark, ...]:
        """What people did, with the cells in which they did it."""
        return self.history.marks

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each moment; needs pandas."""
        import_whole("pandas")
        import pandas as pd

        frame = pd.DataFrame.from_records(list(self), columns=list(Moment._fields))
        return frame.set_index("at")

    def _moment(self, at: int) -> Moment:
        history = self.history
        when = history.t0 + history.step * at
        until = when if at < len(self) - 1 else float("inf")  # the last moment also has marks newer than all points
        ready, delayed = history.ready[at], history.delayed[at]
        cells = [
            f"[{mark.cell}] {mark.text}" if mark.cell is not None else mark.text
            for mark in history.marks
            if when - history.step < mark.at <= until
        ]
        return Moment(
            datetime.fromtimestamp(when, tz=UTC).astimezone(),
            None if ready is None or delayed is None else ready + delayed,
            history.leased[at],
            history.dead[at],
            history.in_rate[at],
            history.out_rate[at],
            history.failure_rate[at],
            ", ".join(cells),
        )


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
