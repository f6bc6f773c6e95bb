"""Define pictures of a run, a lab and a queue, ready to be drawn.

A `RunView` and a `QueuesView` hold finished strings and fractions: terminal, HTML and widget format nothing and decide
nothing. Equal views draw the same picture, so a view equal to the last one is not drawn again. `run_picture` and
`lab_picture` make them; `details` makes the part below the figures.

::

    Command, Press, Button, Figure, Notice, FailureRow  parts of both kinds of views
    Details                                             the part below the figures: chart, needs, consumers, leases
    RunView                                             a run
    QueuesView                                          a lab, or one queue

"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from dqlab.live.parts import NO_TABLE, Bar, Table


class Need(NamedTuple):
    """A line about one thing that needs the user."""

    key: str
    """Identifies the line."""
    tone: str
    icon: str
    subject: str
    text: str
    detail: str
    action: str = ""
    """The command of its button."""
    label: str = ""
    """The text of its button."""
    pane: str = ""
    """The table that the button opens, unless the command is `ready` to be carried out at once."""
    queue: str = ""
    run: str = ""
    target: str = ""
    ready: bool = False
    line: str = ""
    """What to type where there are no buttons."""


class ConsumerRow(NamedTuple):
    """One consumer in the table of consumers."""

    name: str
    worker: str
    fraction: float
    """Its speed as a share of the fastest consumer's, 0 to 1."""
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
    """A table of consumers."""

    title: str = ""
    """How many there are."""
    troubles: str = ""
    """How many are silent, stuck or slow."""
    caption: str = ""
    """What the figures are about."""
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
    """The messages that consumers hold."""

    title: str = ""
    summary: str = ""
    """How leases ended lately."""
    bins: tuple[tuple[str, int, bool], ...] = ()
    """Words for an age, messages of that age, and whether it is beyond the visibility timeout."""
    rows: tuple[HeldRow, ...] = ()
    """The leases held longest."""


@dataclass(frozen=True, slots=True)
class CodePane:
    """The function that a run uses."""

    title: str = ""
    """Its version."""
    caption: str = ""
    """Its name, version and origin."""
    text: str = ""
    """Its source."""


class Example(NamedTuple):
    """A dead document of the failure class that was opened."""

    document: str
    deliveries: str
    version: str
    traceback: str
    cell: str = ""
    """Python that opens the document and calls the function with it."""


class ChartMark(NamedTuple):
    """Something that a person did, as a mark on a chart."""

    at: float
    """Seconds after the first value."""
    cell: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A line over time, and its estimated course from now on."""

    title: str = ""
    label: str = ""
    """The sentence for screen readers."""
    empty: str = ""
    """Text in place of the line while there is none."""
    step: float = 1.0
    """Seconds between values."""
    now: float = 0.0
    end: float = 0.0
    """Seconds after the first value, `now` and `end`."""
    values: tuple[int | None, ...] = ()
    fan: tuple[float, ...] = ()
    """When the line reaches zero: early, probably, late; seconds after the first value. Empty when unknown."""
    due: str = ""
    band: str = ""
    """The same as times of day: `due` is the probable one, `band` the others."""
    ticks: tuple[tuple[float, str], ...] = ()
    """Times of day below the line."""
    marks: tuple[ChartMark, ...] = ()


@dataclass(frozen=True, slots=True)
class Details:
    """The part below the figures of a run or a queue."""

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
        parts = {name: plain(getattr(self, name)) for name in ("chart", "consumers", "leases", "code", "examples")}
        return {**parts, "needs": plain({"total": self.needs_total, "rows": self.needs})}


NO_DETAILS = Details()


def plain(value: Any) -> Any:
    """Return JSON-ready data, with named tuples and dataclasses as objects, and other tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, tuple | list):
        as_dict = getattr(value, "_asdict", None)
        return [plain(each) for each in value] if as_dict is None else plain(as_dict())
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value


class Face(StrEnum):
    """The state of a run as it is shown, or why none is known."""

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
    """Send dead documents through again, limited to one failure class."""
    SHOW = "show"
    """Fetch some documents of one failure class."""
    REPLACE = "replace"
    """Take its documents from a consumer, for another try."""
    GIVE_UP = "give_up"
    """Give up a document that a consumer runs."""
    DRAIN = "drain"
    SCALE = "scale"
    COMPACT = "compact"
    PURGE = "purge"
    GO = "go"
    """Submit the rest of a run that was rehearsed."""
    REHEARSE = "rehearse"
    """Try more documents before that."""
    FIX = "fix"
    """Open the failures, which show what to do before a retry: the front end does that, and sends nothing."""
    RESULTS = "results"
    """Insert a cell with the results: the front end does that, and sends nothing."""


class Press(NamedTuple):
    """A pressed button, with the command and what it acts on."""

    command: Command
    queue: str = ""
    run: str = ""
    target: str = ""
    """A failure class, a consumer or a document."""
    n: int = 0
    """A number of consumers, or the most documents; 0 for all."""


class Counter(NamedTuple):
    """How many documents are in a state."""

    state: str
    word: str
    documents: str
    zero: bool


class Figure(NamedTuple):
    """A headline number, with a second line in two parts."""

    label: str
    value: str
    unit: str
    second: str
    extra: str = ""
    tone: Tone = Tone.PLAIN
    live: bool = False
    """A speed or a forecast: a widget without updates shows it as unknown."""


class Notice(NamedTuple):
    """A sentence that needs attention, with buttons that act on it."""

    text: str = ""
    """Empty means that there is no notice."""
    tone: Tone = Tone.PLAIN
    buttons: tuple[Button, ...] = ()


NO_NOTICE = Notice()


class Button(NamedTuple):
    """A command that is available now."""

    command: Command
    label: str
    primary: bool = False
    n: int = 0
    """Sent with the command."""
    hint: str = ""
    target: str = ""
    """Sent with the command."""


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
    mend: str = ""
    """What to do first: until then, a retry of this class is of no use."""


class Offers(NamedTuple):
    """What a notebook can do with a run."""

    cluster: str = ""
    """Address of its scheduler."""
    queue: str = ""
    run: str = ""
    results: str = ""
    """A cell with the results."""
    code: str = ""
    """A cell with the function."""
    label: str = ""
    """The entry that inserts `code`."""
    open: str = ""
    """The line that opens the dashboard where the front end opens no tabs."""


NO_OFFERS = Offers()


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What a picture of a run has, and one of a lab or a queue."""

    name: str
    chip: str = ""
    """The state in words."""
    moment: str = ""
    """Clock time of the numbers."""
    ended: str = ""
    """Clock time of the end, for a run that rests."""
    stale: bool = False
    """The numbers are old; bars are drawn grey."""
    notice: Notice = NO_NOTICE
    """What needs attention now."""
    lasting: Notice | None = None
    """The notice without the effect of a press, or None where that is the same."""
    saved: bool = False
    """The picture is stored, and dates its numbers; see `as_saved`."""
    buttons: tuple[Button, ...] = ()
    figures: tuple[Figure, ...] = ()
    failures: tuple[FailureRow, ...] = ()
    failures_title: str = ""
    more: str = ""
    """How many rows are left out: of failures, or of queues."""
    details: Details = NO_DETAILS

    def _sent(self, *names: str) -> dict[str, Any]:
        """Return some fields as plain JSON-ready data."""
        return {name: plain(getattr(self, name)) for name in names}

    @property
    def live(self) -> str:
        """When the numbers are from, as ``live 14:22:07``, ``as of`` when old, or ``ended`` when final."""
        if self.ended:
            return f"ended {self.ended}"
        return f"{'as of' if self.stale or self.saved else 'live'} {self.moment}" if self.moment else ""

    def as_saved(self) -> Self:
        """Return the picture that is stored and read later, dated and without the effect of a press."""
        return replace(self, saved=True, notice=self.notice if self.lasting is None else self.lasting)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView(_View):
    """One picture of a run."""

    face: Face
    code: str = ""
    queue: str = ""
    consumers: str = ""
    elapsed: str = ""
    """With `code`, `queue` and `consumers`: the muted line beside the name, in parts."""
    period: str = ""
    """The start and, once there, the end with its date."""
    sentence: str = ""
    """Size, time and speed in one sentence."""
    percent: str = ""
    """Settled share."""
    unit: str = ""
    """What the share counts, as "pages"."""
    milestone: str = ""
    """Progress as a screen reader announces it; changes at 25, 50, 75 and 100 %."""
    bars: tuple[Bar, ...] = ()
    bar_label: str = ""
    counters: tuple[Counter, ...] = ()
    compact: tuple[str, ...] = ()
    """Lines in place of counters and figures while there are none."""
    ask: Ask | None = None
    band: str = ""
    """The times between which it will end, with a probability of 80 %."""
    offers: Offers = NO_OFFERS
    variable: str = ""
    """Name of the variable that holds the run; "" where none does."""

    @property
    def subtitle(self) -> str:
        """Code, queue, time so far and clock in one muted line."""
        parts = (self.code, self.queue and f"queue {self.queue}", self.elapsed, self.live)
        return " · ".join(part for part in parts if part)

    def parts(self) -> dict[str, Any]:
        """Return plain JSON-ready data in the parts that `LiveWidget` sends."""
        return {
            "head": self._sent("name", "face", "chip", "stale", "notice", "buttons"),
            "bars": {**self._sent("percent", "unit", "bars", "milestone"), "label": self.bar_label},
            "numbers": {
                **self._sent("subtitle", "live", "figures", "ask"),
                "counters": [[*each] for each in self.counters],
                "lines": plain(self.compact),
            },
            "failures": plain({"title": self.failures_title, "rows": self.failures, "more": self.more}),
            "offers": plain(self.offers),
            **self.details.parts(),
        }


# `QueuesView.parts` sends a row as a list: `extension/src/widget/parts.ts` has the same order.
class QueueRow(NamedTuple):
    """One queue in the table of queues."""

    name: str
    icon: str
    """The glyph."""
    tone: str
    """How much its reason matters: "", "warn" or "bad"."""
    state: str
    why: str
    leased_part: float
    ready_part: float
    delayed_part: float
    """Parts of its depth on the scale of all rows, 0 to 1."""
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
    """`paused` and `durable` decide which buttons it has."""
    consumers: int
    """How many serve it now."""
    purge: tuple[str, ...]
    """The question before dead messages are purged: question, detail, safe answer, other answer; or empty."""
    retries: tuple[tuple[str, str], ...]
    """Runs whose dead documents can be retried: name, and label of the button."""


class RunLine(NamedTuple):
    """A summary of one run."""

    key: str
    """Identifies the line: runs of several queues may have the same name."""
    name: str
    queue: str
    state: str
    tone: str
    """How much its state matters: "", "warn" or "bad"."""
    share: str
    left: str
    done: str
    dead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesView(_View):
    """One picture of a lab, or of a queue."""

    single: bool = False
    """One queue: its own row comes first, and there are details."""
    icon: str = "running"
    """The glyph."""
    tone: str = ""
    """How much the state matters."""
    about: str = ""
    """The quiet line beside the name, without the clock."""
    dashboard: str = ""
    """Address of the dashboard."""
    cluster: str = ""
    """Address of the scheduler."""
    rows: tuple[QueueRow, ...] = ()
    sparks: tuple[tuple[str, tuple[int | None, ...]], ...] = ()
    """Messages waiting in each queue, over 30 minutes."""
    runs: tuple[RunLine, ...] = ()
    """For a lab the first few, for a queue all."""
    failures_more: str = ""
    table: Table = NO_TABLE
    runs_table: Table = NO_TABLE
    """The newest runs, and in `table` the queues, for text and static HTML."""
    runs_title: str = ""
    runs_more: str = ""
    """How many runs are left out, and the line that lists them."""

    @property
    def subtitle(self) -> str:
        """The parts of the lab and the clock, in one muted line."""
        return " · ".join(part for part in (self.about, self.live) if part)

    def parts(self) -> dict[str, Any]:
        """Return plain JSON-ready data in the parts that `LiveWidget` sends."""
        parts = {
            "head": self._sent("name", "icon", "chip", "tone", "dashboard", "cluster", "stale", "notice", "buttons"),
            "numbers": self._sent("subtitle", "live", "figures"),
            "rows": {"rows": [[plain(each) for each in row] for row in self.rows], "more": self.more},
            "sparks": {name: list(values) for name, values in self.sparks},
            "runs": plain({"title": self.runs_title, "rows": self.runs, "more": self.runs_more}),
            "needs": self.details.parts()["needs"],
        }
        if self.single:
            parts["failures"] = plain({"title": self.failures_title, "rows": self.failures, "more": self.failures_more})
            parts |= self.details.parts()
        return parts
