"""Orders to a queue and its runs, as messages for the shards, and the verbs of users that give them.

`QueueCalls.order` gives orders. Shards write the messages to their logs, so names and fields must not change: older
logs are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from dqlab.errors import BadOption
from dqlab.rules.book import CodeRecord
from dqlab.rules.journal import Op
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import shard_of

TRANSIENT = "transient"
"""Promise of a queue without a store."""

Message = dict[str, Any]
_OPTIONAL = frozenset({"coming", "redo", "gone"})
"""Fields that older logs do not have; left out where they say nothing."""


class RunningMessage(NamedTuple):
    """A message that a consumer runs."""

    shard: int
    run: bytes
    id: int
    document: str
    """Its name, as views show it."""
    seconds: float
    """How long it has been seen running."""
    step: str = ""
    """How far its function is in the document, as "12 of 300", where it says so."""


class Code(NamedTuple):
    """A code version with its function."""

    function: bytes
    blob: bytes
    code: CodeRecord


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
        """Return the fields of the message for a shard, besides the run and what may be left out."""
        return {name: value for name, value in vars(self).items() if name != "run" and (value or name not in _OPTIONAL)}


# --- about a run or the whole queue -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pause(Order):
    """Lease nothing more."""

    op = Op.PAUSE


@dataclass(frozen=True)
class Resume(Order):
    """Lease again."""

    op = Op.RESUME


@dataclass(frozen=True)
class Drain(Order):
    """Refuse puts, process what is there, then pause."""

    op = Op.DRAIN


@dataclass(frozen=True)
class Purge(Order):
    """Delete messages in a state, by its name."""

    op = Op.PURGE
    state: str


@dataclass(frozen=True)
class Forget(Order):
    """Forget results by id, and with `coming` also the results of messages that are not settled yet."""

    op = Op.FORGET
    ids: Sequence[tuple[int, int]]
    coming: bool = False


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

    def waves(self, shards: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the first shard, then the others."""
        # The first shard decides whether there is such a run; `Drop` has the reverse order.
        return [wave for wave in ([at for at in shards if at == 0], [at for at in shards if at != 0]) if wave]

    def messages(self, shard: int) -> Sequence[Message]:
        """Return the order with its specification, which contains the run."""
        return [{"op": self.op, "open": self.spec}]


@dataclass(frozen=True)
class Drop(RunOrder):
    """Forget a run, its results and failures."""

    op = Op.DROP

    def waves(self, shards: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the first shard last."""
        # If the client dies in between, the first shard still lists the run, so it can be dropped again.
        return [wave for wave in ([at for at in shards if at != 0], [at for at in shards if at == 0]) if wave]


@dataclass(frozen=True)
class Cancel(RunOrder):
    """Cancel documents without a result, and accept no more."""

    op = Op.CANCEL


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


@dataclass(frozen=True)
class LearnCode(RunOrder):
    """Know a newer code version, which later retries run."""

    op = Op.RETRY
    version: Code

    def fields(self, shard: int) -> Message:
        """Return a retry of no messages, which carries the code."""
        return {"ids": [], "ordinals": [], **self.version._asdict()}


@dataclass(frozen=True)
class Adopt(RunOrder):
    """Run this code for all documents that are not done, and for those still to be put."""

    op = Op.ADOPT
    version: Code

    def fields(self, shard: int) -> Message:
        """Return the code."""
        return self.version._asdict()


@dataclass(frozen=True)
class Retries(RunOrder):
    """Deliver failed messages of a lane at most `retries` times again."""

    op = Op.RETRIES
    retries: int


@dataclass(frozen=True)
class Pace(RunOrder):
    """Hold back what is left of a run by these terms of `rules.flow.FlowTerms`."""

    op = Op.FLOW
    flow: dict[str, Any]


@dataclass(frozen=True)
class Judge(RunOrder):
    """Note which results its user found right or wrong."""

    op = Op.JUDGE
    marks: Sequence[Sequence[Any]]
    """Each [ordinal, whether it is right], with None for no mark."""

    def shards(self, count: int) -> Iterable[int]:
        """Return the first shard, which has the run record."""
        return (0,)


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


@dataclass(frozen=True)
class Reopen(RunOrder):
    """Accept documents after a seal from this client's producer."""

    op = Op.REOPEN
    client: str
    producer: bytes
    redo: bool = False
    """Whether documents under ordinals that came before run again in their places."""
    gone: Sequence[tuple[int, int]] = ()
    """Ordinals of settled documents that count no longer, and whose results are forgotten."""


# --- each verb once, for Python's methods and for the actions of pages ----------------------------


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: what it is for, and what an action may say of it."""

    of_queues: bool = True
    of_runs: bool = False
    fields: tuple[str, ...] = ()
    """Fields of an action beside its queue and its run."""
    needs: tuple[str, ...] = ()
    """Fields; an action must name one of them."""


@dataclass(frozen=True, slots=True)
class OrderVerb(Verb):
    """A verb that is carried out by one order to all shards."""

    order: Callable[[bytes | None], Order] = Pause
    """Makes the order for a run, or for the queue."""
    stops: bool = False
    """Whether charts name who did it."""
    said: str = ""
    """What a page says afterwards of the queue or the run."""


ORDERS = {
    "pause": OrderVerb(
        of_runs=True, order=Pause, stops=True, said="is paused: what runs now ends, nothing more is leased"
    ),
    "resume": OrderVerb(of_runs=True, order=Resume, said="goes on"),
    "drain": OrderVerb(
        order=Drain, stops=True, said="takes no more messages; what it has is processed, then it pauses"
    ),
}
_OF_CONSUMERS = Verb(fields=("consumer", "document"), needs=("consumer", "document"))
VERBS: dict[str, Verb] = {
    **ORDERS,
    "scale": Verb(fields=("n",), needs=("n",)),
    "purge": Verb(fields=("state",)),
    "compact": Verb(),
    "replace": _OF_CONSUMERS,
    "give_up": _OF_CONSUMERS,
    "cancel": Verb(of_queues=False, of_runs=True),
    "retry": Verb(of_queues=False, of_runs=True, fields=("fingerprints", "limit")),
}


def purged_state(state: str) -> Purge:
    """Return the order that discards a queue's messages in a state, or raise BadOption for another state."""
    if state not in ("ready", "delayed", "dead"):
        raise BadOption(option="state", value=state, problem="is 'ready', 'delayed' or 'dead'. Nothing was done.")
    return Purge(None, state.upper())
