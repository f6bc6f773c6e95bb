"""Every call to an actor: the method that answers it, its arguments, and its answer.

Both sides use these classes, so mypy finds a misspelt field; a test checks that each method exists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, get_args, get_origin

from dqlab.cluster.transport.orders import RunningMessage
from dqlab.cluster.transport.parking import Credit, SlotOrder
from dqlab.cluster.transport.reports import ConsumerReport, ShardProgress, ShardReport
from dqlab.cluster.transport.wire import Packed, PlainData, unpack
from dqlab.rules.reports import HeldLease
from dqlab.rules.states import Verdict
from dqlab.store.values import Compacted


class FromWire(Protocol):
    """A type that an answer can be opened as."""

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Return the object that was packed."""


A = TypeVar("A", bound=FromWire)


class Call(PlainData, Generic[A]):
    """The arguments of a call, whose answer is an `A`."""

    method: ClassVar[str]
    _answer: ClassVar[type[FromWire]]

    def __init_subclass__(cls) -> None:
        (cls._answer,) = (get_args(base)[0] for base in cls.__orig_bases__ if get_origin(base) is Call)  # type: ignore[attr-defined]

    async def ask(self, send: Callable[[str, bytes], Awaitable[Packed]]) -> tuple[A, list[memoryview]]:
        """Send this call by its method's name and packed arguments; return the answer, and its parts as views."""
        return self.opened(await send(self.method, self.pack()))

    def opened(self, answer: Packed) -> tuple[A, list[memoryview]]:
        """Return the answer to this call, and its parts as views."""
        meta, parts = unpack(answer)
        opened: A = self._answer.from_wire(meta)  # type: ignore[assignment]
        return opened, parts


@dataclass(slots=True)
class Done(PlainData):
    """The call was carried out."""


@dataclass(slots=True)
class Count(PlainData):
    """How many messages a call changed."""

    count: int


# --- messages in --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Fullness(PlainData):
    """Why there is no room."""

    disk: dict[str, Any] | None
    """Fields of the `DiskFull` that holds up the log, or None."""
    messages: int
    maxsize: int | None
    bytes: int
    max_bytes: int | None
    consumers: int
    """Living slots that have ever asked for work."""
    paused: bool


@dataclass(slots=True)
class PutAnswer(PlainData):
    """The outcome of the frames of one `PutCall`."""

    firsts: list[int | None]
    """First ids of the accepted frames, None for one that was accepted before.

    The next frame was refused with `verdict`, and the shard did not look at later ones.
    """
    verdict: Verdict | None = None
    """On the last frame that the shard looked at."""
    full: Fullness | None = None
    opened: bool = False
    """Whether the shard did not have the run, and opened it."""
    unserved: bool = False
    """Whether the shard knows no consumer."""


@dataclass(slots=True)
class PutCall(Call[PutAnswer]):
    """Accept frames of one producer, which are the parts, with the blob of `function` behind them."""

    method = "put"
    frames: int
    wait: float
    """Seconds that a frame waits for room, and for earlier frames of its producer."""
    open: dict[str, Any] | None = None
    """The run's `Open.spec`, for a shard that does not have it."""
    function: bytes | None = None
    """Name of the function that is sent with the frames."""
    unique: bytes | None = None
    """Of one message: what stands for it, see `Ledger.put_unique`."""
    within: float = 0.0
    delay: float = 0.0


@dataclass(slots=True)
class FunctionAnswer(PlainData):
    """Whether the shard knows the function, whose blob is the part."""

    known: bool


@dataclass(slots=True)
class FunctionCall(Call[FunctionAnswer]):
    """Fetch a function."""

    method = "function"
    hash: bytes


# --- messages out -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Delivery(PlainData):
    """A lease, whose frames are the parts of the answer."""

    id: int
    timeout: float
    """Seconds until it expires, unless it is renewed."""
    firsts: list[int]
    """First id of each frame."""
    process: dict[str, Any] | None
    """Limits of the process that its messages run in, or None if they run in a thread."""
    sink: bool = False
    unit: str = ""
    """The unit of weights, see `RunRecord.unit`."""
    attempts: Sequence[tuple[int, int]] = ()
    """Ids of messages that were delivered before, with the number of deliveries."""
    once: Sequence[tuple[int, bytes]] = ()
    """Ids of messages with the answers that earlier deliveries have kept."""
    suspect: bool = False
    """Its message may have killed its last consumer."""
    paced: bool = False
    """Only so many calls of its run may run at once."""


@dataclass(slots=True)
class LeaseAnswer(PlainData):
    """A lease, or none when the call was answered with orders or timed out."""

    orders: list[SlotOrder]
    epoch: int
    lease: Delivery | None = None


@dataclass(slots=True)
class LeaseCall(Call[LeaseAnswer]):
    """Wait for messages, or for orders."""

    method = "lease"
    consumer: str
    """The slot."""
    session: str
    credit: Credit
    has: dict[str, float] | None = None
    """The most that the slot has of each resource."""
    stays: bytes | None = None
    """The run that it wants messages of where there are any."""


@dataclass(slots=True)
class HeldBySlot(PlainData):
    """The messages of one lease that a slot holds."""

    slot: str
    lease: int
    run: bytes
    ids: list[tuple[int, int]]
    age: float
    """Seconds since it was leased."""
    early: bool


@dataclass(slots=True)
class ReclaimCall(Call[Done]):
    """Let a consumer keep what an earlier epoch leased to it, except messages that others have now."""

    method = "reclaim"
    consumer: str
    held: list[HeldBySlot]


@dataclass(slots=True)
class SettleAnswer(PlainData):
    """How many outcomes changed nothing."""

    duplicates: int
    stale: int


@dataclass(slots=True)
class SettleCall(Call[SettleAnswer]):
    """Record the outcomes and results of a `Settlement`, which is the part."""

    method = "settle"
    consumer: str
    """The slot."""
    credit: Credit | None = None
    answered: int | None = None
    """How many messages of the lease have a row that waits for its part of a sink; None: as it was."""


@dataclass(slots=True)
class RenewAnswer(PlainData):
    """Leases that are gone."""

    gone: list[int]


@dataclass(slots=True)
class RenewCall(Call[RenewAnswer]):
    """Renew leases."""

    method = "renew"
    leases: list[int]


@dataclass(slots=True)
class BeginAnswer(PlainData):
    """Whether the lease still exists."""

    begun: bool


@dataclass(slots=True)
class BeginCall(Call[BeginAnswer]):
    """Acknowledge a lease early, so that its messages are never delivered again."""

    method = "begin"
    lease: int


@dataclass(slots=True)
class IsolateAnswer(PlainData):
    """Whether the lease still exists."""

    held: bool


@dataclass(slots=True)
class IsolateCall(Call[IsolateAnswer]):
    """Note that a suspect runs in its consumer's process, and no other suspect beside it."""

    method = "isolate"
    lease: int


@dataclass(slots=True)
class RanCall(Call[Done]):
    """Note that a suspect has run, and that its outcome follows."""

    method = "ran"
    lease: int


@dataclass(slots=True)
class ReleaseAnswer(PlainData):
    """How many messages are ready again."""

    returned: int


@dataclass(slots=True)
class ReleaseCall(Call[ReleaseAnswer]):
    """Return the messages of consumers whose worker died."""

    method = "release"
    consumers: list[str]
    why: str = ""


@dataclass(slots=True)
class SinkAnswer(PlainData):
    """Where the rows of a run are written."""

    sink: dict[str, Any]
    """See `sinks.sink_of`."""
    name: str
    """The run's name."""
    durable: bool
    """Whether the queue is durable."""


@dataclass(slots=True)
class FindSinkCall(Call[SinkAnswer]):
    """Look up the sink of a run."""

    method = "sink"
    run: bytes


@dataclass(slots=True)
class HoldAnswer(PlainData):
    """What a shard knows about a run that is held up."""

    wanted: bool
    """Whether the run still has results to produce."""


@dataclass(slots=True)
class HoldCall(Call[HoldAnswer]):
    """Lease nothing of a run while a consumer cannot keep its results."""

    method = "hold"
    run: bytes
    consumer: str
    why: str
    """The reason; "" once the consumer can."""


# --- orders -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ControlCall(Call[Count]):
    """Carry out one message of an `Order`."""

    method = "control"
    message: dict[str, Any]
    """The order's fields as the log has them."""

    def to_wire(self) -> dict[str, Any]:
        """Return the message."""
        return self.message

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Return the call that `to_wire` was called on."""
        return cls(dict(wire))


@dataclass(slots=True)
class RetryAnswer(PlainData):
    """How many messages are delivered again."""

    count: int
    after: int | None
    """The next page's `after`; None at the end."""


@dataclass(slots=True)
class RetryCall(Call[RetryAnswer]):
    """Deliver a page of dead messages again."""

    method = "retry"
    run: bytes
    classes: list[str]
    """Fingerprints of failures; [] for all."""
    after: int
    """The page begins behind this id; -1 for the first page."""
    limit: int
    function: bytes | None = None
    blob: bytes | None = None


@dataclass(slots=True)
class LetGoCall(Call[Count]):
    """Take leased messages from their consumers."""

    method = "let_go"
    run: bytes
    ids: Sequence[tuple[int, int]]
    why: str
    """Why they become dead; "" if they are delivered again."""


@dataclass(slots=True)
class SubmittingAnswer(PlainData):
    """Clients that are submitting runs."""

    clients: list[str]


@dataclass(slots=True)
class SubmittingCall(Call[SubmittingAnswer]):
    """List the clients that are submitting runs."""

    method = "submitting"


@dataclass(slots=True)
class CutOffAnswer(PlainData):
    """How many inputs were ended."""

    sealed: int


@dataclass(slots=True)
class CutOffCall(Call[CutOffAnswer]):
    """End the input of runs whose submitting client is gone, and of one run that its own client gave up."""

    method = "cut_off"
    gone: list[str]
    run: bytes | None = None


@dataclass(slots=True)
class CompactAnswer(PlainData):
    """The progress of a compaction, in bytes."""

    copied: int
    of: int
    done: Compacted | None = None
    """What it freed; None while it runs."""


@dataclass(slots=True)
class CompactCall(Call[CompactAnswer]):
    """Free disk space, or continue to wait for that."""

    method = "compact"
    wait: float


# --- questions ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class WaitSettledAnswer(PlainData):
    """How far a range of messages is settled, with their results as parts once none is left."""

    left: int
    """Messages that are ready, delayed or leased, or whose results are not safe yet."""
    acked: int
    consumers: int
    paused: bool
    why: str
    stopped: bool
    """Whether it is paused for lack of room for results."""
    stored: int
    results_maxsize: int


@dataclass(slots=True)
class WaitSettledCall(Call[WaitSettledAnswer]):
    """Wait until all messages of [lo, hi) have an outcome."""

    method = "settled"
    run: bytes
    lo: int
    hi: int
    wait: float


@dataclass(slots=True)
class IdleAnswer(PlainData):
    """What is left to process."""

    alive: int
    stuck: str
    """Why nothing will be processed, or ""."""
    full: bool
    """Whether there is no room for results."""
    stored: int


@dataclass(slots=True)
class IdleCall(Call[IdleAnswer]):
    """Wait until nothing is ready, delayed or leased, or `stuck` is no longer the reason."""

    method = "idle"
    wait: float
    stuck: str


@dataclass(slots=True)
class PageCall(Call[Done]):
    """Read results by ordinal, which are the parts of the answer."""

    method = "page"
    run: bytes
    lo: int
    hi: int
    bare: bool = False
    """Whether the values are left out."""


@dataclass(slots=True)
class RiderAnswer(PlainData):
    """Whether the document has a result, with its entry as the part."""

    found: bool
    cursor: int | None
    """Where to search on, None at the end."""


@dataclass(slots=True)
class RiderCall(Call[RiderAnswer]):
    """Read what a side column of results has of one document, by its ordinal, or behind a cursor by its key."""

    method = "rider"
    run: bytes
    name: str
    key: str
    ordinal: int | None = None
    cursor: int = 0


class SlowRow(NamedTuple):
    """How long one result took, on which consumer, with its document's key and position."""

    seconds: float
    ordinal: int
    key: str | int | None
    consumer: str


@dataclass(slots=True)
class SlowestAnswer(PlainData):
    """The slowest results, the slowest first."""

    rows: list[SlowRow]
    cursor: int | None
    """Where to search on, None at the end."""


@dataclass(slots=True)
class SlowestCall(Call[SlowestAnswer]):
    """Find the slowest results behind a cursor."""

    method = "slowest"
    run: bytes
    n: int
    cursor: int = 0


@dataclass(slots=True)
class StreamAnswer(PlainData):
    """Where to continue, with results as parts."""

    cursor: int
    more: bool
    """Whether there are results behind the cursor."""
    done: bool
    """Whether no result will follow."""


@dataclass(slots=True)
class StreamCall(Call[StreamAnswer]):
    """Read results in the order of completion, from a cursor."""

    method = "stream"
    run: bytes
    cursor: int
    wait: float
    most: int | None = None


@dataclass(slots=True)
class WatchCall(Call[ShardProgress]):
    """Wait until a run is done or stopped."""

    method = "watch"
    run: bytes
    wait: float = 0.0
    covered: bool = False
    """Whether to answer ranges of ordinals too."""


class DeadRow(NamedTuple):
    """A dead letter without its failure record and payload."""

    id: int
    ordinal: int
    reason: str
    deliveries: int
    exceptions: int
    kind: int | None
    """A `Kind`; None if the payload was left out."""


@dataclass(slots=True)
class DeadAnswer(PlainData):
    """Dead letters, with the failure record of each as a part, and behind it the payload unless left out."""

    rows: list[DeadRow]


@dataclass(slots=True)
class DeadCall(Call[DeadAnswer]):
    """Read a page of dead letters."""

    method = "dead"
    run: bytes
    after: int
    """The page begins behind this id; -1 for the first page."""
    limit: int
    classes: list[str]
    """Fingerprints of failures; [] for all."""
    bare: bool = False
    """Whether to leave payloads out."""


@dataclass(slots=True)
class DeadOrdinalsAnswer(PlainData):
    """Ids and ordinals of dead documents, by id."""

    ids: list[int]
    ordinals: list[int]


@dataclass(slots=True)
class DeadOrdinalsCall(Call[DeadOrdinalsAnswer]):
    """Look up where dead documents are."""

    method = "dead_ordinals"
    run: bytes
    after: int
    limit: int


@dataclass(slots=True)
class DeadCountsAnswer(PlainData):
    """Lanes with dead messages, and how many."""

    counts: list[tuple[bytes, int]]


@dataclass(slots=True)
class DeadCountsCall(Call[DeadCountsAnswer]):
    """Count dead messages of a lane, or of all."""

    method = "dead_counts"
    run: bytes | None
    classes: list[str]


@dataclass(slots=True)
class LeasesAnswer(PlainData):
    """Live leases."""

    rows: list[HeldLease]


@dataclass(slots=True)
class LeasesCall(Call[LeasesAnswer]):
    """List live leases."""

    method = "leases"


@dataclass(slots=True)
class RunsAnswer(PlainData):
    """Id and name of runs."""

    runs: list[tuple[bytes, str]]


@dataclass(slots=True)
class RunsCall(Call[RunsAnswer]):
    """List the runs with a record in this shard."""

    method = "runs"
    name: str | None = None
    """None for all runs."""


@dataclass(slots=True)
class OpeningAnswer(PlainData):
    """What a run was opened with."""

    record: dict[str, Any]
    """What the run record begins with, as in `Open`."""
    retry: dict[str, Any]


@dataclass(slots=True)
class OpeningCall(Call[OpeningAnswer]):
    """Look up what a run was opened with."""

    method = "opening"
    run: bytes


@dataclass(slots=True)
class StatsCall(Call[ShardReport]):
    """Read the totals of a shard."""

    method = "stats"


@dataclass(slots=True)
class ResendCall(Call[Done]):
    """Report all lanes again."""

    method = "resend"


@dataclass(slots=True)
class HandOverCall(Call[Done]):
    """End a shard and release its log, so that the next epoch can open it elsewhere."""

    method = "hand_over"


# --- calls to consumers -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CloseCall(Call[Done]):
    """End a consumer."""

    # It answers with its last `ConsumerReport`, which the scheduler forwards unopened.
    method = "close"
    patience: float = 0.0
    """Seconds that its running messages may still take."""


@dataclass(slots=True)
class ConsumerStatsCall(Call[ConsumerReport]):
    """Read the totals of a consumer."""

    method = "stats"


@dataclass(slots=True)
class PrintedCall(Call[Done]):
    """Read what a running document has printed so far, the part of the answer; no part if it does not run here."""

    method = "printed"
    run: bytes
    document: str
    seconds: float | None = None
    """Only what was printed in so many seconds before now."""


@dataclass(slots=True)
class RunningAnswer(PlainData):
    """What runs in the slots of a consumer."""

    running: list[RunningMessage]


@dataclass(slots=True)
class RunningNowCall(Call[RunningAnswer]):
    """Look up what has run longest in each slot of a consumer, or all that runs there of one name."""

    method = "running"
    document: str = ""
