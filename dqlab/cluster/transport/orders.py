"""Orders to a queue and its runs: what the shards get of each, and what the scheduler keeps about it.

`QueueCalls.order` gives them. The messages are what shards write to their logs, so their names and fields stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypedDict

from dqlab.frame import NO_ID
from dqlab.rules.book import CodeRecord
from dqlab.rules.ids import shard_of
from dqlab.rules.journal import Op
from dqlab.rules.submitted import Submitted

__all__ = [
    "TRANSIENT",
    "Adopt",
    "Cancel",
    "CancelledNothing",
    "Code",
    "Drain",
    "Drop",
    "Facts",
    "Forget",
    "LearnCode",
    "Note",
    "Open",
    "OpenMissing",
    "Order",
    "Pause",
    "Purge",
    "RecordSubmitted",
    "Reopen",
    "Resume",
    "Retries",
    "RetryDead",
    "RunningMessage",
    "Seal",
    "SealFacts",
]

TRANSIENT = "transient"
"""Promise of a queue in memory."""

Message = dict[str, Any]


class SealFacts(TypedDict):
    """The order that ends a run."""

    here: list[int]
    """Documents that each shard holds."""
    total: int
    incomplete: str | None


class Facts(TypedDict, total=False):
    """What must not be lost with a shard in memory. Only what an order changes is sent."""

    open: dict[str, Any]
    """What the lanes of a run are opened with: `Open.spec`."""
    open_where_unknown: dict[str, Any]
    """The same where nothing is noted of the run: the queue was closed since, and with it all that was noted."""
    code: CodeRecord
    """A newer code version, with `function` and `blob`, and `adopted` where the rest of the run has it."""
    function: bytes
    blob: bytes
    adopted: bool
    client: str
    """Continues to submit it."""
    producer: bytes
    """The only one that puts and seals from then on."""
    by: bytes
    """The producer that notes this."""
    submitted: dict[str, Any]
    """How far the input came: `Submitted.record`."""
    seal: SealFacts | None
    """None: the run continues."""
    cancelled: bool
    paused: bool
    """By a user."""
    goes_on: list[int] | None
    """Shards, None for all, in which the order ends the pause of a run that paused itself."""
    retries: int
    queue_paused: bool
    queue_draining: bool


class Note(NamedTuple):
    """What the scheduler keeps about a run on a queue in memory; with facts None it forgets the run."""

    run: bytes
    facts: Facts | None


class RunningMessage(NamedTuple):
    """A message that a consumer runs; `document` is its name as views show it, `seconds` for how long it was seen."""

    shard: int
    run: bytes
    id: int
    document: str
    seconds: float


class Code(NamedTuple):
    """A code version with its function."""

    function: bytes
    blob: bytes
    code: CodeRecord

    @property
    def fields(self) -> Message:
        """As orders have it."""
        return self._asdict()

    def facts(self, *, adopted: bool = False) -> Facts:
        """As notes have it."""
        facts = Facts(code=self.code, function=self.function, blob=self.blob)
        if adopted:
            facts["adopted"] = True
        return facts


@dataclass(frozen=True)
class Order:
    """One order about a run, or about the whole queue where `run` is None."""

    op: ClassVar[Op]
    run: bytes | None

    def shards(self, count: int) -> Iterable[int]:
        """Return which of so many shards get it."""
        return range(count)

    def waves(self, shards: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return these shards in groups: each gets it when the group before has carried it out."""
        return [shards]

    def messages(self, shard: int) -> Sequence[Message]:
        """Return what a shard gets, one after the other."""
        return [{"op": self.op, "run": self.run, **self.fields(shard)}]

    def fields(self, shard: int) -> Message:
        """Return what a shard gets beside the run."""
        return {}

    def note(self) -> Note | None:
        """Return what must not be lost with a shard in memory; None = nothing."""
        return None


# --- about a run or the whole queue -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pause(Order):
    """Lease nothing more."""

    op = Op.PAUSE

    def note(self) -> Note | None:
        """Keep the pause for a shard that dies before it has reported it."""
        return Note(self.run, {"paused": True}) if self.run is not None else Note(NO_ID, {"queue_paused": True})


@dataclass(frozen=True)
class Resume(Order):
    """Lease again."""

    op = Op.RESUME

    def note(self) -> Note | None:
        """Keep the resume for a shard that dies before it has reported it."""
        if self.run is not None:
            return Note(self.run, {"paused": False, "goes_on": None})
        return Note(NO_ID, {"queue_paused": False, "queue_draining": False, "goes_on": None})


@dataclass(frozen=True)
class Drain(Order):
    """Refuse puts, process what is there, then pause."""

    op = Op.DRAIN

    def note(self) -> Note | None:
        """Keep the drain for a shard that dies before it has reported it."""
        return Note(NO_ID, {"queue_draining": True})


@dataclass(frozen=True)
class Purge(Order):
    """Throw away messages in a state, by its name."""

    op = Op.PURGE
    state: str

    def fields(self, shard: int) -> Message:
        """Return the state."""
        return {"state": self.state}


@dataclass(frozen=True)
class Forget(Order):
    """Forget results by id, with `coming` also those of messages that are not settled yet."""

    op = Op.FORGET
    ids: Sequence[tuple[int, int]]
    coming: bool = False

    def fields(self, shard: int) -> Message:
        """Return the ids."""
        return {"ids": self.ids} | ({"coming": True} if self.coming else {})


# --- about one run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunOrder(Order):
    """An order about one run."""

    run: bytes


@dataclass(frozen=True)
class Open(RunOrder):
    """Open a run's lane; a shard that has it leaves it as it is.

    Attributes
    ----------
    record : dict
        What the run record begins with.
    retry : dict or None
        Options of its `Retry`; None = the queue's.
    """

    op = Op.OPEN
    record: dict[str, Any]
    retry: dict[str, Any] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """What a lane is opened with; put frames carry it too."""
        return {"run": self.run, "record": self.record} | ({} if self.retry is None else {"retry": self.retry})

    @property
    def where_unknown(self) -> Facts:
        """Facts to note if nothing is noted of the run: its queue was closed, and opened again by another client."""
        return {"open_where_unknown": self.spec}

    @property
    def where_missing(self) -> OpenMissing:
        """The same for shards that may have the lane already."""
        return OpenMissing(self.run, self.record, self.retry)

    def waves(self, shards: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the first shard, which decides whether there is such a run, then the others; see `Drop`."""
        return [wave for wave in ([at for at in shards if at == 0], [at for at in shards if at != 0]) if wave]

    def messages(self, shard: int) -> Sequence[Message]:
        """Return the order; its run is part of the specification."""
        return [{"op": self.op, "open": self.spec}]

    def note(self) -> Note | None:
        """Have the run known."""
        return Note(self.run, {"open": self.spec})


@dataclass(frozen=True)
class OpenMissing(Open):
    """Open the lane of a run that was started before, in shards that do not have it."""

    def note(self) -> Note | None:
        """Leave the note of the start as it is: it may hold more, and has newer code."""
        return None


@dataclass(frozen=True)
class Drop(RunOrder):
    """Forget a run, its results and failures."""

    op = Op.DROP

    def waves(self, shards: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the first shard last: when the client dies in between, the run is there to be dropped again."""
        return [wave for wave in ([at for at in shards if at != 0], [at for at in shards if at == 0]) if wave]

    def note(self) -> Note | None:
        """Forget the run."""
        return Note(self.run, None)


@dataclass(frozen=True)
class Cancel(RunOrder):
    """Give up what has no result yet and take nothing more; `complete` = the run had ended when it was looked at."""

    op = Op.CANCEL
    complete: bool = False

    def note(self) -> Note | None:
        """Have a shard that is recreated take nothing more; of a run that has ended all results stay."""
        return None if self.complete else Note(self.run, {"cancelled": True})


@dataclass(frozen=True)
class CancelledNothing(RunOrder):
    """Take back the note of a `Cancel` that found the run ended; shards know that already."""

    def shards(self, count: int) -> Iterable[int]:
        """Return none."""
        return ()

    def note(self) -> Note | None:
        """Have the run as one that was not cancelled."""
        return Note(self.run, {"cancelled": False})


@dataclass(frozen=True)
class RetryDead(RunOrder):
    """Deliver dead messages again, by id and ordinal, with a function whose code version the run knows."""

    op = Op.RETRY
    ids: Sequence[tuple[int, int]]
    ordinals: Sequence[tuple[int, int]]
    function: bytes
    blob: bytes

    def shards(self, count: int) -> Iterable[int]:
        """Return those that have the messages, and the first, which has the run record."""
        return dict.fromkeys((0, *(shard_of(lo) for lo, _ in self.ids)))

    def fields(self, shard: int) -> Message:
        """Return the ids of this shard, and all ordinals."""
        ids = [(lo, hi) for lo, hi in self.ids if shard_of(lo) == shard]
        return {"ids": ids, "ordinals": self.ordinals, "function": self.function, "blob": self.blob}

    def note(self) -> Note | None:
        """Keep that the run goes on, for a shard that dies before it has reported it."""
        return Note(self.run, {"goes_on": list(self.shards(0))})


@dataclass(frozen=True)
class LearnCode(RunOrder):
    """Know a newer code version; what is retried from now on runs it."""

    op = Op.RETRY
    version: Code

    def fields(self, shard: int) -> Message:
        """Return a retry of nothing, which brings the code."""
        return {"ids": [], "ordinals": [], **self.version.fields}

    def note(self) -> Note | None:
        """Have the code in a shard that is recreated."""
        return Note(self.run, self.version.facts())


@dataclass(frozen=True)
class Adopt(RunOrder):
    """Run this code for all that is not done, and for what still comes."""

    op = Op.ADOPT
    version: Code

    def fields(self, shard: int) -> Message:
        """Return the code."""
        return self.version.fields

    def note(self) -> Note | None:
        """Have what comes to a shard that is recreated run it too."""
        return Note(self.run, {**self.version.facts(adopted=True), "goes_on": None})


@dataclass(frozen=True)
class Retries(RunOrder):
    """Deliver failed messages of a lane so many times again."""

    op = Op.RETRIES
    retries: int

    def fields(self, shard: int) -> Message:
        """Return how often."""
        return {"retries": self.retries}

    def note(self) -> Note | None:
        """Have it in a shard that is recreated."""
        return Note(self.run, {"retries": self.retries})


# --- about the input of a run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordSubmitted(RunOrder):
    """Record how far the input is submitted: the next process that maps it compares it with that."""

    op = Op.SUBMITTED
    known: Submitted
    by: bytes
    """The producer that submits it; of another one than goes on with the run, nothing is taken."""

    def shards(self, count: int) -> Iterable[int]:
        """Return the first, which has the run record."""
        return (0,)

    def fields(self, shard: int) -> Message:
        """Return the record."""
        return {**self.known.record(), "by": self.by}

    def note(self) -> Note | None:
        """Have the record in a first shard that is recreated."""
        return Note(self.run, {"submitted": self.known.record(), "by": self.by})


@dataclass(frozen=True)
class Seal(RunOrder):
    """End the input of a run.

    Attributes
    ----------
    here : sequence of int
        Documents that each shard holds.
    incomplete : str or None
        Why the input is not complete.
    submitted : RecordSubmitted
        How far it came; the first shard has that before it is sealed.
    opening : Open or None
        What the run was opened with; None if it may have been dropped.
    """

    op = Op.SEAL
    here: Sequence[int]
    incomplete: str | None
    submitted: RecordSubmitted
    opening: Open | None = None

    def waves(self, shards: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return one shard at a time: where the first is out of reach, no other ends the run."""
        return [[at] for at in shards]

    def messages(self, shard: int) -> Sequence[Message]:
        """Return what ends it here; its run is part of that."""
        seal = {"total": sum(self.here), "incomplete": self.incomplete, "run": self.run, "here": self.here[shard]}
        seal["by"] = self.submitted.by
        before = self.submitted.messages(shard) if shard in self.submitted.shards(len(self.here)) else ()
        return [*before, {"op": self.op, "seal": seal}]

    def note(self) -> Note | None:
        """Have a shard that dies with its seal recreated as a sealed one."""
        seal = SealFacts(here=list(self.here), total=sum(self.here), incomplete=self.incomplete)
        facts = Facts(seal=seal, submitted=self.submitted.known.record(), by=self.submitted.by)
        return Note(self.run, facts if self.opening is None else {**facts, **self.opening.where_unknown})


@dataclass(frozen=True)
class Reopen(RunOrder):
    """Take documents again after a seal, of this client's producer; of a run that was cancelled it is refused."""

    op = Op.REOPEN
    client: str
    producer: bytes

    def fields(self, shard: int) -> Message:
        """Return both."""
        return {"client": self.client, "producer": self.producer}

    def note(self) -> Note | None:
        """Forget the seal."""
        return Note(self.run, {"seal": None, "client": self.client, "producer": self.producer})
