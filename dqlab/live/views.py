"""Pictures of a run, a lab and a queue, ready to be drawn.

A `RunView` and a `QueuesView` hold finished strings and fractions: what draws them (terminal, HTML, widget)
formats nothing and decides nothing. Two equal views draw the same picture, which is how a view that did not change is
skipped. `run_picture` and `lab_picture` make them, `details` makes what stands below the figures.

::

    Command, Press, Button, Figure, Notice, FailureRow  what both kinds of views are made of
    Details                                             what stands below the figures: chart, needs, consumers, leases
    RunView                                             a run
    QueuesView                                          a lab, or one queue
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

from dqlab.live.tables import NO_TABLE, Table

__all__ = [
    "NO_DETAILS",
    "NO_OFFERS",
    "NO_PULSE",
    "Ask",
    "Bar",
    "Button",
    "Chart",
    "ChartMark",
    "CodePane",
    "Command",
    "ConsumerRow",
    "Consumers",
    "Counter",
    "Details",
    "Example",
    "Face",
    "FailureRow",
    "Figure",
    "HeldRow",
    "Leases",
    "Need",
    "Notice",
    "Offers",
    "Press",
    "Pulse",
    "QueueRow",
    "QueuesView",
    "RunLine",
    "RunView",
    "Toggle",
    "Tone",
    "plain",
]


class Need(NamedTuple):
    """A line of what needs the user.

    `key` identifies it; `action` is the command of its button, and `label` the button's text; `pane` is
    the table that the button opens, unless it is `ready` to be carried out at once; `line` is what to type where there
    are not buttons.
    """

    key: str
    tone: str
    icon: str
    subject: str
    text: str
    detail: str
    action: str = ""
    label: str = ""
    pane: str = ""
    queue: str = ""
    run: str = ""
    target: str = ""
    ready: bool = False
    line: str = ""


class ConsumerRow(NamedTuple):
    """One consumer; `fraction` is its speed beside the fastest one's, 0 to 1."""

    name: str
    worker: str
    fraction: float
    units_rate: str
    rate: str
    idle: str
    leased: str
    oldest: str
    memory: str
    error: str
    trouble: str
    document: str


@dataclass(frozen=True, slots=True)
class Consumers:
    """A table of consumers: how many there are, how many are silent, stuck or slow, what its figures are."""

    title: str = ""
    troubles: str = ""
    caption: str = ""
    unit: str = ""
    rows: tuple[ConsumerRow, ...] = ()
    more: str = ""


class HeldRow(NamedTuple):
    """Messages under one lease."""

    document: str
    consumer: str
    held: str
    ends_in: str
    renewals: str
    delivery: str
    late: bool


@dataclass(frozen=True, slots=True)
class Leases:
    """What consumers hold: the oldest, messages by age, and how leases ended."""

    title: str = ""
    summary: str = ""
    bins: tuple[tuple[str, int, bool], ...] = ()
    """Words for the age, messages, and whether that is beyond the visibility timeout."""
    rows: tuple[HeldRow, ...] = ()


@dataclass(frozen=True, slots=True)
class CodePane:
    """The function a run uses: version, where it is from, its source."""

    title: str = ""
    caption: str = ""
    text: str = ""


class Example(NamedTuple):
    """A document of a requested failure class."""

    document: str
    deliveries: str
    version: str
    traceback: str
    cell: str = ""
    """Opens it and calls the function with it."""


class ChartMark(NamedTuple):
    """Something a person did: seconds after the chart's start, the cell, what."""

    at: float
    cell: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A line over time, and its estimated course from now on.

    Attributes
    ----------
    title, label, empty : str
        `label` is the sentence for screen readers, `empty` stands in place of a line while there is none.
    step, now, end : float
        Seconds between values; seconds after the first value.
    values : tuple of int or None
    fan : tuple of float
        Where it reaches zero: early, probably, late; seconds after the first value. Empty when unknown.
    due, band : str
        The same as times of day.
    ticks : tuple of (float, str)
        Times of day below it.
    """

    title: str = ""
    label: str = ""
    empty: str = ""
    step: float = 1.0
    now: float = 0.0
    end: float = 0.0
    values: tuple[int | None, ...] = ()
    fan: tuple[float, ...] = ()
    due: str = ""
    band: str = ""
    ticks: tuple[tuple[float, str], ...] = ()
    marks: tuple[ChartMark, ...] = ()


class Pulse(NamedTuple):
    """Speed over a whole run in one line of block characters: what it is, the line, its scale."""

    title: str = ""
    line: str = ""
    scale: str = ""


NO_PULSE = Pulse()


@dataclass(frozen=True, slots=True)
class Details:
    """What stands below the figures of a run or a queue."""

    chart: Chart | None = None
    needs: tuple[Need, ...] = ()
    needs_total: int = 0
    consumers: Consumers | None = None
    leases: Leases | None = None
    code: CodePane | None = None
    examples: tuple[str, tuple[Example, ...]] | None = None
    """Fingerprint of the requested class, and documents of it."""

    def parts(self) -> dict[str, Any]:
        """Return plain JSON-ready data in parts, as widgets receive them."""
        return {
            "chart": plain(self.chart),
            "needs": plain({"total": self.needs_total, "rows": self.needs}),
            "consumers": plain(self.consumers),
            "leases": plain(self.leases),
            "code": plain(self.code),
            "examples": plain(self.examples),
        }


NO_DETAILS = Details()


def plain(value: Any) -> Any:
    """Return JSON-ready data: named tuples and dataclasses as objects, other tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, tuple | list):
        as_dict = getattr(value, "_asdict", None)
        return [plain(each) for each in value] if as_dict is None else plain(as_dict())
    if hasattr(value, "__dataclass_fields__"):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value


class Face(StrEnum):
    """How a run is shown: its state, or why none is known."""

    CONNECTING = "connecting"
    SUBMITTING = "submitting"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"
    NO_ANSWER = "no answer"
    GONE = "gone"
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
    FIX = "fix"
    """Open the failures, where it is written what to do before a retry: the front end does that, and sends nothing."""
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
    """A headline number, what it counts, and a second line in two parts.

    One that is `live` is a speed or a forecast: a widget that nothing comes to shows it as unknown.
    """

    label: str
    value: str
    unit: str
    second: str
    extra: str = ""
    tone: Tone = Tone.PLAIN
    live: bool = False

    @property
    def words(self) -> str:
        """All of it but the second line's first part, in a sentence."""
        extra = f"({self.extra})" if self.extra else ""
        label, comma, span = self.label.lower().partition(", ")
        return " ".join(part for part in (label, self.value, self.unit, extra) if part) + comma + span


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
    """One failure class; with `mend`, what to do before its retry is of any use."""

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
    mend: str = ""


class Offers(NamedTuple):
    """What can be made of a run in the notebook.

    `cluster` is the address of its scheduler. `results` and `code` are cells, `label` is the entry that inserts `code`,
    `python` are lines to copy, and `open` is the line that leads to the dashboard where the front end opens no tabs.
    """

    cluster: str = ""
    queue: str = ""
    run: str = ""
    results: str = ""
    code: str = ""
    label: str = ""
    open: str = ""
    python: tuple[str, ...] = ()


NO_OFFERS = Offers()


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
    notice, lasting : Notice
        What needs attention now; and what does without what a press has done, or None where that is the same.
    saved : bool
        The picture is kept, and dates its numbers; see `as_saved`.
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
    lasting: Notice | None = None
    saved: bool = False
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
        return f"{'as of' if self.stale or self.saved else 'live'} {self.moment}" if self.moment else ""

    def as_saved(self) -> RunView:
        """Return the picture that is kept, and read later: dated, without what a press has done."""
        return replace(self, saved=True, notice=self.notice if self.lasting is None else self.lasting)

    @property
    def subtitle(self) -> str:
        """Code, queue, time so far and clock in one muted line."""
        parts = (self.code, self.queue and f"queue {self.queue}", self.elapsed, self.live)
        return " · ".join(part for part in parts if part)

    def parts(self) -> dict[str, Any]:
        """Return plain JSON-ready data in parts, as the widget receives them; see `LiveWidget`."""
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
    """A summary of one run; `key` identifies it, as several queues may have runs of one name.

    `tone` is how much its state matters: "", "warn" or "bad".
    """

    key: str
    name: str
    queue: str
    state: str
    tone: str
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
    notice, lasting, saved
        See `RunView`.
    sparks : tuple of (str, tuple)
        Messages that waited in each queue, over 30 minutes.
    runs : tuple of RunLine
        Of a lab the first few, of a queue all; `runs_more` has how many there are besides, and what lists them.
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
    lasting: Notice | None = None
    saved: bool = False
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
    runs_title: str = ""
    runs_more: str = ""
    log: str = ""

    @property
    def live(self) -> str:
        """When the numbers are from: ``live 14:22:07``, or ``as of`` when they are old."""
        return f"{'as of' if self.stale or self.saved else 'live'} {self.moment}" if self.moment else ""

    def as_saved(self) -> QueuesView:
        """Return the picture that is kept; see `RunView.as_saved`."""
        return replace(self, saved=True, notice=self.notice if self.lasting is None else self.lasting)

    @property
    def subtitle(self) -> str:
        """What it consists of, and the clock, in one muted line."""
        return " · ".join(part for part in (self.about, self.live) if part)

    def parts(self) -> dict[str, Any]:
        """Return plain JSON-ready data in parts, as the widget receives them; see `LiveWidget`."""
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
            "runs": plain({"title": self.runs_title, "rows": self.runs, "more": self.runs_more}),
            "needs": self.details.parts()["needs"],
        }
        if self.single:
            parts["failures"] = plain({"title": self.failures_title, "rows": self.failures, "more": self.failures_more})
            parts |= self.details.parts()
        return parts
