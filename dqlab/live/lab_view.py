"""One picture of a lab, or of one queue, ready to be drawn; `lab_picture` makes it.

Like `RunView`, it holds finished strings and fractions, and equal views draw the same picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from dqlab.live.pieces import NO_DETAILS, Details, plain
from dqlab.live.run_view import NO_NOTICE, Button, FailureRow, Figure, Notice
from dqlab.live.tables import NO_TABLE, Table

__all__ = ["QueueRow", "QueuesView", "RunLine", "Toggle"]


class QueueRow(NamedTuple):
    """One queue.

    Attributes
    ----------
    icon, tone : str
        The glyph, and how much its reason matters: "", "warn" or "bad".
    state, why : str
        In words.
    group : str
        The toggle that filters it.
    leased_part, ready_part, delayed_part : float
        Its depth on the scale of all rows, 0 to 1.
    paused, durable : bool
        Decide which buttons it has.
    consumers : int
        How many serve it now.
    purge : tuple of str
        The question before dead messages are purged: question, detail, safe answer, the other; or empty.
    retries : tuple of (str, str)
        Runs whose dead documents can be retried: name, and label of the button.
    """

    name: str
    icon: str
    tone: str
    state: str
    why: str
    group: str
    leased_part: float
    ready_part: float
    delayed_part: float
    waiting: str
    ready: str
    delayed: str
    unacked: str
    dead: str
    in_rate: str
    out_rate: str
    lag: str
    empty_in: str
    disk: str
    paused: bool
    durable: bool
    consumers: int
    purge: tuple[str, ...]
    retries: tuple[tuple[str, str], ...]


class Toggle(NamedTuple):
    """A group of queues: its key, its word, how many are in it, which glyph, and the heading of its rows."""

    group: str
    word: str
    amount: str
    icon: str
    head: str


class RunLine(NamedTuple):
    """A summary of one run of a queue."""

    name: str
    state: str
    share: str
    left: str
    done: str
    dead: str


@dataclass(frozen=True, slots=True)
class QueuesView:
    """One picture of a lab, or of a queue.

    Attributes
    ----------
    single : bool
        It is one queue: the first row is its own, and there are details.
    icon, chip, tone : str
        Glyph, and for a queue its state in words, with how much that matters.
    about : str
        The quiet line beside the name, without the clock.
    moment : str
        Clock time of the numbers.
    dashboard, cluster : str
        Addresses of the dashboard and of the scheduler.
    stale : bool
        The numbers are old.
    sparks : tuple of (str, tuple)
        Messages that waited in each queue, over 30 minutes.
    table, runs_table : Table
        The same queues, and the newest runs, for text and static HTML.
    log : str
        Everything in one line, for pipes and logs.
    """

    name: str
    single: bool = False
    icon: str = "running"
    chip: str = ""
    tone: str = ""
    about: str = ""
    moment: str = ""
    dashboard: str = ""
    cluster: str = ""
    stale: bool = False
    notice: Notice = NO_NOTICE
    buttons: tuple[Button, ...] = ()
    figures: tuple[Figure, ...] = ()
    rows: tuple[QueueRow, ...] = ()
    toggles: tuple[Toggle, ...] = ()
    more: str = ""
    sparks: tuple[tuple[str, tuple[int | None, ...]], ...] = ()
    runs: tuple[RunLine, ...] = ()
    failures: tuple[FailureRow, ...] = ()
    failures_title: str = ""
    failures_more: str = ""
    details: Details = NO_DETAILS
    table: Table = NO_TABLE
    runs_table: Table = NO_TABLE
    log: str = ""

    @property
    def live(self) -> str:
        """When the numbers are from: ``live 14:22:07``, or ``as of`` when they are old."""
        return f"{'as of' if self.stale else 'live'} {self.moment}" if self.moment else ""

    @property
    def subtitle(self) -> str:
        """What it consists of, and the clock, in one muted line."""
        return " · ".join(part for part in (self.about, self.live) if part)

    def parts(self) -> dict[str, Any]:
        """Return plain JSON-ready data in parts, as the widget receives them; see `pace`."""
        parts = {
            "head": plain(
                {
                    "name": self.name,
                    "icon": self.icon,
                    "chip": self.chip,
                    "tone": self.tone,
                    "dashboard": self.dashboard,
                    "cluster": self.cluster,
                    "stale": self.stale,
                    "notice": self.notice,
                    "buttons": self.buttons,
                }
            ),
            "numbers": plain({"subtitle": self.subtitle, "live": self.live, "figures": self.figures}),
            "rows": {
                "rows": [[plain(each) for each in row] for row in self.rows],
                "toggles": [list(each) for each in self.toggles],
                "more": self.more,
            },
            "sparks": {name: list(values) for name, values in self.sparks},
        }
        if self.single:
            parts["runs"] = plain(self.runs)
            parts["failures"] = plain({"title": self.failures_title, "rows": self.failures, "more": self.failures_more})
            parts |= self.details.parts()
        return parts
