"""`Timeline`: the history of a queue as rows or as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, overload

from dqlab.imports import import_whole
from dqlab.keywords import SuggestsAttributes
from dqlab.stats import History, Mark

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
