"""Orders to a queue and its runs: the messages for the shards, and the facts that the scheduler keeps.

`QueueCalls.order` gives them. Shards write the messages to their logs, so names and fields must not change: older logs
are replayed.
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
    "Forget",
    "LearnCode",
    "Note",
    "NotedFacts",
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


class NotedFacts(TypedDict, total=False):
    """What must not be lost with a shard in memory, as far as an order changes it."""

    open: dict[str, Any]
    """The specification of a run's lanes, `Open.spec`."""
    open_where_unknown: dict[str, Any]
    """The same, used if nothing is noted of the run: closing the queue dropped its notes."""
    code: CodeRecord
    """A newer code version, with `function` and `blob`, and `adopted` if the rest of the run uses it."""
    function: bytes
    blob: bytes
    adopted: bool
    client: str
    """The client that continues to submit the run."""
    producer: bytes
    """The only producer that puts and seals from now on."""
    by: bytes
    """The producer that notes these facts."""
    submitted: dict[str, Any]
    """How much of the input was submitted, `Submitted.record`."""
    seal: SealFacts | None
    """None if the run continues after a seal."""
    cancelled: bool
    paused: bool
    """Whether a user paused it."""
    goes_on: list[int] | None
    """Shards, None for all, in which the order ends the pause of a run that paused itself."""
    retries: int
    queue_paused: bool
    queue_draining: bool


class Note(NamedTuple):
    """What the scheduler keeps about a run on a queue in memory, or None to forget the run."""

    run: bytes
    facts: NotedFacts | None


class RunningMessage(NamedTuple):
    """A message that a consumer runs."""

    shard: int
    run: bytes
    id: int
    document: str
    """Its name, as views show it."""
    seconds: float
    """How long it has been seen running."""


class Code(NamedTuple):
    """A code version with its function."""

    function: bytes
    blob: bytes
    code: CodeRecord

    @property
    def fields(self) -> Message:
        """The fields of an order with this code."""
        return self._asdict()

    def facts(self, *, adopted: bool = False) -> NotedFacts:
        """Return the facts of a note with this code."""
        facts = NotedFacts(code=self.code, function=self.function, blob=self.blob)
        if adopted:
            facts["adopted"] = True
        return facts


@dataclass(frozen=True)
class Order:
    """One order about a run, or about the whole queue where `run` is None."""

    op: ClassVar[Op]
    run: bytes | None

    def shards(self, count: int) -> Iterable[int]:
        """Return which of `count` shards get the order."""
        return range(count)

    def waves(self, shards: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return these shards in groups, where each group waits until the one before has carried out the order."""
        return [shards]

    def messages(self, shard: int) -> Sequence[Message]:
        """Return the messages for a shard, which are sent one after the other."""
        return [{"op": self.op, "run": self.run, **self.fields(shard)}]

    def fields(self, shard: int) -> Message:
        """Return the fields of the message for a shard, besides the run."""
        return {}

    def note(self) -> Note | None:
        """Return what must not be lost with a shard in memory, or None."""
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
    """Delete messages in a state, by its name."""

    op = Op.PURGE
    state: str

    def fields(self, shard: int) -> Message:
        """Return the state."""
        return {"state": self.state}


@dataclass(frozen=True)
class Forget(Order):
    """Forget results by id, and with `coming` also the results of messages that are not settled yet."""

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
    """Open a run's lane, in shards that do not have it."""

    op = Op.OPEN
    record: dict[str, Any]
    """What the run record begins with."""
    retry: dict[str, Any] | None = None
    """Options of its `Retry`, or None for the queue's."""

    @property
    def spec(self) -> dict[str, Any]:
        """The specification of a lane, which put frames carry too."""
        return {"run": self.run, "record": self.record} | ({} if self.retry is None else {"retry": self.retry})

    @property
    def where_unknown(self) -> NotedFacts:
        """Facts to note if nothing is noted of the run, as when another client closed and reopened its queue."""
        return {"open_where_unknown": self.spec}

    @property
    def where_missing(self) -> OpenMissing:
        """The same order, for shards that may have the lane already."""
        return OpenMissing(self.run, self.record, self.retry)

    def waves(self, shards: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the first shard, then the others."""
        # The first shard decides whether there is such a run; `Drop` has the reverse order.
        return [wave for wave in ([at for at in shards if at == 0], [at for at in shards if at != 0]) if wave]

    def messages(self, shard: int) -> Sequence[Message]:
        """Return the order with its specification, which contains the run."""
        return [{"op": self.op, "open": self.spec}]

    def note(self) -> Note | None:
        """Make the run known."""
        return Note(self.run, {"open": self.spec})


@dataclass(frozen=True)
class OpenMissing(Open):
    """Open the lane of a run that was started before, in shards that do not have it."""

    def note(self) -> Note | None:
        """Leave the note of the start as it is."""
        # That note may hold more facts, and newer code.
        return None


@dataclass(frozen=True)
class Drop(RunOrder):
    """Forget a run, its results and failures."""

    op = Op.DROP

    def waves(self, shards: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the first shard last."""
        # If the client dies in between, the first shard still lists the run, so it can be dropped again.
        return [wave for wave in ([at for at in shards if at != 0], [at for at in shards if at == 0]) if wave]

    def note(self) -> Note | None:
        """Forget the run."""
        return Note(self.run, None)


@dataclass(frozen=True)
class Cancel(RunOrder):
    """Cancel documents without a result, and accept no more."""

    op = Op.CANCEL
    complete: bool = False
    """Whether the run had ended before."""

    def note(self) -> Note | None:
        """Make a recreated shard refuse more documents, unless the run had ended."""
        return None if self.complete else Note(self.run, {"cancelled": True})


@dataclass(frozen=True)
class CancelledNothing(RunOrder):
    """Withdraw the note of a `Cancel` that found the run ended."""

    def shards(self, count: int) -> Iterable[int]:
        """Return none, since shards know that already."""
        return ()

    def note(self) -> Note | None:
        """Note that the run was not cancelled."""
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
        """Return the shards that have the messages, and the first one, which has the run record."""
        return dict.fromkeys((0, *(shard_of(lo) for lo, _ in self.ids)))

    def fields(self, shard: int) -> Message:
        """Return the ids of this shard, and all ordinals."""
        ids = [(lo, hi) for lo, hi in self.ids if shard_of(lo) == shard]
        return {"ids": ids, "ordinals": self.ordinals, "function": self.function, "blob": self.blob}

    def note(self) -> Note | None:
        """Keep that the run continues, for a shard that dies before it has reported it."""
        return Note(self.run, {"goes_on": list(self.shards(0))})


@dataclass(frozen=True)
class LearnCode(RunOrder):
    """Know a newer code version, which later retries run."""

    op = Op.RETRY
    version: Code

    def fields(self, shard: int) -> Message:
        """Return a retry of no messages, which carries the code."""
        return {"ids": [], "ordinals": [], **self.version.fields}

    def note(self) -> Note | None:
        """Keep the code for a recreated shard."""
        return Note(self.run, self.version.facts())


@dataclass(frozen=True)
class Adopt(RunOrder):
    """Run this code for all documents that are not done, and for those still to be put."""

    op = Op.ADOPT
    version: Code

    def fields(self, shard: int) -> Message:
        """Return the code."""
        return self.version.fields

    def note(self) -> Note | None:
        """Keep the code for a recreated shard, whose later documents run it too."""
        return Note(self.run, {**self.version.facts(adopted=True), "goes_on": None})


@dataclass(frozen=True)
class Retries(RunOrder):
    """Deliver failed messages of a lane at most `retries` times again."""

    op = Op.RETRIES
    retries: int

    def fields(self, shard: int) -> Message:
        """Return the number."""
        return {"retries": self.retries}

    def note(self) -> Note | None:
        """Keep the number for a recreated shard."""
        return Note(self.run, {"retries": self.retries})


# --- about the input of a run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordSubmitted(RunOrder):
    """Record how much of the input was submitted."""

    op = Op.SUBMITTED
    known: Submitted
    """The next process that maps the input compares it with this."""
    by: bytes
    """The producer that submits it; once another one continues the run, shards ignore this one."""

    def shards(self, count: int) -> Iterable[int]:
        """Return the first shard, which has the run record."""
        return (0,)

    def fields(self, shard: int) -> Message:
        """Return the record."""
        return {**self.known.record(), "by": self.by}

    def note(self) -> Note | None:
        """Keep the record for a recreated first shard."""
        return Note(self.run, {"submitted": self.known.record(), "by": self.by})


@dataclass(frozen=True)
class Seal(RunOrder):
    """End the input of a run."""

    op = Op.SEAL
    here: Sequence[int]
    """How many documents each shard holds."""
    incomplete: str | None
    """Why the input is incomplete, or None."""
    submitted: RecordSubmitted
    """How much of the input was submitted; the first shard records it before its seal."""
    opening: Open | None = None
    """What the run was opened with; None if it may have been dropped."""

    def waves(self, shards: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return one shard at a time."""
        # In order: while the first shard is out of reach, no other one may end the run.
        return [[at] for at in shards]

    def messages(self, shard: int) -> Sequence[Message]:
        """Return the record of the input, for the first shard, then the seal, which contains the run."""
        seal = {"total": sum(self.here), "incomplete": self.incomplete, "run": self.run, "here": self.here[shard]}
        seal["by"] = self.submitted.by
        before = self.submitted.messages(shard) if shard in self.submitted.shards(len(self.here)) else ()
        return [*before, {"op": self.op, "seal": seal}]

    def note(self) -> Note | None:
        """Keep the seal for a shard that dies with it."""
        seal = SealFacts(here=list(self.here), total=sum(self.here), incomplete=self.incomplete)
        facts = NotedFacts(seal=seal, submitted=self.submitted.known.record(), by=self.submitted.by)
        return Note(self.run, facts if self.opening is None else {**facts, **self.opening.where_unknown})


@dataclass(frozen=True)
class Reopen(RunOrder):
    """Accept documents after a seal from this client's producer, unless the run was cancelled."""

    op = Op.REOPEN
    client: str
    producer: bytes

    def fields(self, shard: int) -> Message:
        """Return client and producer."""
        return {"client": self.client, "producer": self.producer}

    def note(self) -> Note | None:
        """Forget the seal."""
        return Note(self.run, {"seal": None, "client": self.client, "producer": self.producer})
