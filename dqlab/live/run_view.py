"""One picture of a run, ready to be drawn.

A `RunView` holds finished strings and fractions: what draws it (terminal, HTML, widget)
formats nothing and decides nothing. Two equal views draw the same picture, which is how a view
that did not change is skipped. `run_picture` makes them, `details` what stands below the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from dqlab.live.offers import NO_OFFERS, Offers
from dqlab.live.pieces import NO_DETAILS, NO_PULSE, Details, Pulse, plain

__all__ = [
    "Ask",
    "Bar",
    "Button",
    "Command",
    "Counter",
    "Face",
    "FailureRow",
    "Figure",
    "Notice",
    "Press",
    "RunView",
    "Tone",
]


class Face(StrEnum):
    """How a run is shown: its state, or why none is known."""

    CONNECTING = "connecting"
    SUBMITTING = "submitting"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"
    NO_ANSWER = "no answer"
    STOPPED = "stopped"
    DONE = "done"
    DONE_DEAD = "done with dead"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"
    EMPTY = "nothing to do"


class Tone(StrEnum):
    """How much a text matters."""

    PLAIN = "plain"
    QUIET = "quiet"
    WARN = "warn"
    BAD = "bad"


class Command(StrEnum):
    """The command of a button of the live view."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    ASK = "ask"
    """Poll for statistics again, now."""
    RETRY = "retry"
    """Send dead documents through again, those of one failure class."""
    SHOW = "show"
    """Fetch some documents of one failure class."""
    REPLACE = "replace"
    """Take from a consumer what it runs, to be tried again."""
    GIVE_UP = "give_up"
    """Give up a document that a consumer runs."""
    DRAIN = "drain"
    SCALE = "scale"
    COMPACT = "compact"
    PURGE = "purge"
    RESULTS = "results"
    """Insert a cell with the results: the front end does that, and sends nothing."""


class Press(NamedTuple):
    """A pressed button: the command, the queue, run and failure class it is about.

    `n` is a number of consumers, or how many documents at most; 0 for all.
    """

    command: Command
    queue: str = ""
    run: str = ""
    target: str = ""
    n: int = 0


class Bar(NamedTuple):
    """One piece of the bar: the state's field name and its share, 0 to 1; 0 still shows."""

    state: str
    fraction: float


class Counter(NamedTuple):
    """How many documents are in a state. `pages` and `share` are for the table of static HTML."""

    state: str
    word: str
    documents: str
    share: str
    pages: str
    zero: bool


class Figure(NamedTuple):
    """A headline number, what it counts, and a second line in two parts; terminals leave out `extra`.

    One that is `live` is a speed or a forecast: a widget that nothing comes to shows it as unknown.
    """

    label: str
    value: str
    unit: str
    second: str
    extra: str = ""
    tone: Tone = Tone.PLAIN
    live: bool = False


class Notice(NamedTuple):
    """A sentence that needs attention, with what can be done about it; empty text means there is none."""

    text: str = ""
    tone: Tone = Tone.PLAIN
    buttons: tuple[Button, ...] = ()


NO_NOTICE = Notice()


class Button(NamedTuple):
    """A command that is available now; `n` and `target` are sent with it."""

    command: Command
    label: str
    primary: bool = False
    n: int = 0
    hint: str = ""
    target: str = ""


class Ask(NamedTuple):
    """The question before a command that cannot be undone."""

    question: str
    detail: str
    keep: str
    go: str


class FailureRow(NamedTuple):
    """One failure class."""

    fingerprint: str
    error: str
    message: str
    at: str
    dead: str
    retrying: str
    document: str
    code: str = ""
    seen: str = ""
    retry: str = ""
    hint: str = ""
    first: int = 0


@dataclass(frozen=True, slots=True)
class RunView:
    """One picture of a run.

    Attributes
    ----------
    chip : str
        The state in words.
    code, queue, consumers, elapsed : str
        The muted line beside the name, in parts.
    moment : str
        Clock time of the numbers; `period` is the start and, once there, the end with its date.
    ended : str
        Clock time of the end, of a run that rests.
    sentence : str
        Size, time and speed in one sentence, for static HTML.
    percent, unit : str
        Settled share and what it counts ("pages").
    milestone : str
        How a screen reader announces progress; changes at 25, 50, 75 and 100 %.
    stale : bool
        The numbers are old; bars are drawn grey.
    compact : tuple of str
        Lines in place of counters and figures while there are none.
    more : str
        What the failure rows leave out.
    band : str
        The times between which it will be done, with a probability of 80 %.
    details : Details
        Chart, needs, consumers, leases and code.
    pulse : Pulse
        Speed over the whole run, for static HTML.
    variable : str
        What the notebook calls the run; "" where it has no name.
    log : str
        The run in one line for pipes and logs: no commas, no glyphs.
    """

    name: str
    face: Face
    chip: str
    code: str = ""
    queue: str = ""
    consumers: str = ""
    elapsed: str = ""
    moment: str = ""
    ended: str = ""
    period: str = ""
    sentence: str = ""
    percent: str = ""
    unit: str = ""
    milestone: str = ""
    stale: bool = False
    notice: Notice = NO_NOTICE
    bars: tuple[Bar, ...] = ()
    bar_label: str = ""
    counters: tuple[Counter, ...] = ()
    figures: tuple[Figure, ...] = ()
    compact: tuple[str, ...] = ()
    buttons: tuple[Button, ...] = ()
    ask: Ask | None = None
    failures: tuple[FailureRow, ...] = ()
    failures_title: str = ""
    more: str = ""
    band: str = ""
    details: Details = NO_DETAILS
    pulse: Pulse = NO_PULSE
    log: str = ""
    offers: Offers = NO_OFFERS
    variable: str = ""

    @property
    def live(self) -> str:
        """When the numbers are from: ``live 14:22:07``, ``as of`` when they are old, ``ended`` when they are final."""
        if self.ended:
            return f"ended {self.ended}"
        return f"{'as of' if self.stale else 'live'} {self.moment}" if self.moment else ""

    @property
    def subtitle(self) -> str:
        """Code, queue, time so far and clock in one muted line."""
        parts = (self.code, self.queue and f"queue {self.queue}", self.elapsed, self.live)
        return " · ".join(part for part in parts if part)

    def parts(self) -> dict[str, Any]:
        """Return plain JSON-ready data in parts, as the widget receives them; see `pace`."""
        return {
            "head": plain(
                {
                    "name": self.name,
                    "face": self.face,
                    "chip": self.chip,
                    "stale": self.stale,
                    "notice": self.notice,
                    "buttons": self.buttons,
                }
            ),
            "bars": plain(
                {
                    "percent": self.percent,
                    "unit": self.unit,
                    "bars": self.bars,
                    "label": self.bar_label,
                    "milestone": self.milestone,
                }
            ),
            "numbers": plain(
                {
                    "subtitle": self.subtitle,
                    "live": self.live,
                    "counters": [(each.state, each.word, each.documents, each.zero) for each in self.counters],
                    "figures": self.figures,
                    "lines": self.compact,
                    "ask": self.ask,
                }
            ),
            "failures": plain({"title": self.failures_title, "rows": self.failures, "more": self.more}),
            "offers": plain(self.offers),
            **self.details.parts(),
        }
