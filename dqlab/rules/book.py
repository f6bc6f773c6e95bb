"""The books of a shard: record, results and failure classes of each run, besides its lane.

Each shard has a run's record, as it was opened and sealed. How far the input came (`submitted`, `digest`, `beyond`,
`end_digest`) is in shard 0 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NotRequired, TypedDict

from dqlab.errors import FrameCorrupt
from dqlab.failures.classes import NO_ANSWER, FailureClass, FailureClasses
from dqlab.failures.failure import NO_ERROR, Failure
from dqlab.frame import NO_ID
from dqlab.numbers import many
from dqlab.rules.budget import Costs, Stop
from dqlab.rules.flow import pace_of, why_shut
from dqlab.rules.lane import Lane
from dqlab.rules.ranges import Ranges
from dqlab.rules.reports import CodeName, Failing, LaneReport
from dqlab.rules.result_index import ResultIndex
from dqlab.rules.states import State, stretches
from dqlab.stats.counts import StopReason
from dqlab.stats.eta import Effort
from dqlab.stats.runs import Spending
from dqlab.texts import one_line

CANCELLED = "it was cancelled"
"""Why the input of a run cancelled during submission is incomplete."""
ABANDONED = "its queue was closed, or its cell interrupted, while it was submitted"
"""Why an abandoned input is incomplete; it continues when the run is mapped again."""
WORDS = 500
"""Most characters of a description of a run: every report has it, and every answer to a waiting client."""
_WORST, _KEY = 4, 120
_CLASSES = 8
_WHAT = 200
_LOOKS = 500
"""Stretches of ids that a report may look at, on average, for the functions that have yet to run."""
CUT_OFF = "the process that submitted it ended"
"""Why an input is incomplete when no reason was given."""
REHEARSED = "rehearsed "
"""Begins the reason why an input is incomplete of which a sample alone was submitted, until its user decides."""


class CodeRecord(TypedDict):
    """One code version of a run, as records, orders and reports have it."""

    # A dict, since it lies in logs as it is.
    name: str
    hash: str
    """Shows whether it is the same code."""
    short: str
    source: str | None
    cell: int | None
    blob: NotRequired[bytes]
    """Names its function; missing in older logs."""
    former: NotRequired[list[bytes]]
    """Others that it had before: equal code is not always pickled to the same bytes."""
    parts: NotRequired[dict[str, str]]
    """Hashes of what it consists of, by name; missing in older logs."""
    planned: NotRequired[bool]
    """There is a `plan.Plan` beside its function, which new code of the run keeps."""
    returns: NotRequired[dict[str, Any]]
    """`columns` and `sealed` class of its results, where its return annotation names one."""
    owner: NotRequired[str]
    """Who mapped the run; the first version has it."""
    process: NotRequired[dict[str, Any] | None]
    """Limits of its processes, where a retry gave it others than the run has; None = it runs in threads."""
    note: NotRequired[str]
    """What the retry was for that brought it."""


@dataclass
class RunRecord:
    """The part of a run's state that makes its lane a run."""

    # Times are seconds since 1970 UTC. Logs and checkpoints hold these fields by name: a new one needs a default.
    name: str
    codes: list[CodeRecord]
    """Code versions, first to newest."""
    keyed: bool = False
    started: float = 0.0
    ended: float | None = None
    submitted: int = 0
    total: int | None = None
    incomplete: str | None = None
    digest: str = ""
    """Rolling blake2b over (key, version) of the submitted elements."""
    beyond: list[tuple[int, int]] = field(default_factory=list)
    """Ordinals that are held behind a gap, see `Submitted`; older logs have them in the text of `digest`."""
    end_digest: str = ""
    """Digest of all elements before the end of `beyond`."""
    client: str = ""
    """The client that submits it; another one may continue when it is gone."""
    cancelled: bool = False
    """Nothing is put any more."""
    process: dict[str, Any] | None = None
    """Limits of the processes its messages run in, as the consumers understand them; None = they run in threads."""
    stop_if: int | float | None = None
    """Pause a shard of it when so much has failed there; None = never (again). See `rules.budget`."""
    stop_despite: bool = False
    """Pause it even if documents have succeeded."""
    halted: str = ""
    """Why it paused itself, in words; "" once it was resumed."""
    halt: StopReason = StopReason.ALL_FAILED
    """The same as a value, while `halted` has words."""
    sink: dict[str, Any] | None = None
    """Where its rows are written, as the consumers understand it; None = its results are in the settlements."""
    options: list[str] = field(default_factory=list)
    """Options with which its documents are opened, as text. References have only their name; each function of the run
    brings them to the consumers."""
    flow: dict[str, Any] | None = None
    """What holds its messages back, as `FlowTerms` has it; None = nothing, until a server refuses or is away."""
    unit: str = ""
    """Unit of the weights of its messages: "bytes"; "" for pages, and where they have none."""
    needs: dict[str, float] = field(default_factory=dict)
    """Amounts of resources that a slot must have to run its messages."""
    marks: list[tuple[int, bool]] = field(default_factory=list)
    """Ordinals of results that its user looked at, and whether they are right."""

    @property
    def code(self) -> CodeRecord:
        """The newest code version."""
        return self.codes[-1]


@dataclass
class Book:
    """One lane's bookkeeping in one shard."""

    lane: Lane
    results: ResultIndex = field(default_factory=ResultIndex)
    unwanted: Ranges = field(default_factory=Ranges)
    """Ordinals whose results are discarded when they arrive: no client can ask for them any more."""
    record: RunRecord | None = None
    classes: FailureClasses = field(default_factory=FailureClasses)
    started: float = 0.0
    ended: float | None = None
    idle: float = 0.0
    """Seconds between each end and what followed it."""
    why: str = ""
    stopped: bool = False
    """Paused because no room was left for results."""
    effort: Effort = field(default_factory=Effort)
    """What was settled in this epoch, and how long it took."""
    spent: dict[str, float] = field(default_factory=dict)
    """What its messages have spent, by unit."""
    costs: dict[str, Costs] = field(default_factory=dict)
    """What the last of them have, by unit. In memory only."""
    worst: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Key and last error of the documents that failed most, by message id; a few."""

    _runs: list[str] = field(default_factory=list)
    _runs_due: int = 0
    """Reports until `_runs` is looked up again."""

    @property
    def halted(self) -> str:
        """Why it paused itself because everything fails, or "" when it did not."""
        return self.record.halted if self.record is not None else ""

    @property
    def stands(self) -> bool:
        """It paused itself, so waiting clients must get the reason."""
        return self.stopped or bool(self.halted)

    @property
    def stop(self) -> Stop | None:
        """When it pauses itself."""
        record = self.record
        return None if record is None or record.stop_if is None else Stop(record.stop_if, despite=record.stop_despite)

    @property
    def fails_too_much(self) -> bool:
        """Documents fail as its `stop` says, and others still wait."""
        stop, counts = self.stop, self.lane.counts
        waiting = counts[State.READY] + counts[State.DELAYED]
        return stop is not None and waiting > 0 and stop.due(dead=counts[State.DEAD], acked=counts[State.ACKED])

    def explain_failing(self) -> str:
        """Describe in a few words what failed."""
        dead, acked, top = self.lane.counts[State.DEAD], self.lane.counts[State.ACKED], self.classes.top(1)
        what = "its first document failed" if dead == 1 else f"all of its first {dead:,} documents failed"
        if acked:
            what = f"{dead:,} of its first {many(dead + acked, 'document')} failed"
        if top and top[0].dead:
            of = "" if top[0].dead == dead else f", {top[0].dead:,} of them"
            return f"{what}{of} with {one_line(f'{top[0].error}: {top[0].message}', _WHAT)}"
        letter = next(self.lane.letters(-1), None)
        return what if letter is None else f"{what}, the first one: {one_line(letter.reason, _WHAT)}"

    def _functions_to_run(self) -> list[str]:
        """Return the functions, in hex, of messages that have yet to run, perhaps as of an earlier report."""
        # After a retry of scattered documents a look may take 60 ms, and reports come four times a second.
        self._runs_due -= 1
        if self._runs_due < 0 or not self.lane.alive:
            self._runs = sorted(each.hex() for each in self.lane.functions_to_run())
            self._runs_due = self.lane.looks_to_run // _LOOKS
        return self._runs

    def pay(self, amounts: dict[str, float]) -> None:
        """Note what one message has spent."""
        for unit, amount in amounts.items():
            self.spent[unit] = self.spent.get(unit, 0.0) + amount
            self.costs.setdefault(unit, Costs()).add([amount])
        purse = None if self.lane.flow is None else self.lane.flow.purse
        if purse is not None:
            purse.pay(amounts.get(purse.budget.unit, 0.0))

    def spending(self, now: float, wall: float = 0.0) -> Spending | None:
        """Return what its messages have spent and what holds them back, or None for nothing."""
        flow, leased = self.lane.flow, self.lane.counts[State.LEASED]
        if flow is None and not self.spent:
            return None
        found = Spending(spent=dict(self.spent), spread={unit: each.spread for unit, each in self.costs.items()})
        if flow is not None:
            found.binds, found.moves = flow.binds(now, leased), [(wall - (now - at), why) for at, why in flow.moves]
            found.level = None if flow.level is None else flow.level.whole
        if flow is not None and flow.purse is not None:
            found.reserved, found.unknown = leased * (flow.purse.reserved or 0.0), flow.purse.unknown
            found.budget = flow.purse.budget.amount, flow.purse.budget.unit
        return found

    def fill_purse(self) -> None:
        """Take from the budget of the lane's flow, which is new, what was spent before."""
        purse = None if self.lane.flow is None else self.lane.flow.purse
        if purse is not None:
            purse.spent = self.spent.get(purse.budget.unit, 0.0)

    @property
    def spent_up(self) -> bool:
        """Its budget is spent, nothing is in flight, and others wait."""
        lane = self.lane
        flow, counts = lane.flow, lane.counts
        return (
            flow is not None
            and not lane.paused
            and counts[State.READY] + counts[State.DELAYED] > 0
            and flow.spent_up(counts[State.LEASED])
        )

    def explain_spent(self) -> str:
        """Describe in a few words how its budget was spent."""
        purse = None if self.lane.flow is None else self.lane.flow.purse
        assert purse is not None, "only a budget can be spent"
        return f"its budget does not pay for another call, {purse.words}. Raise it with run.budget('...')"

    def failed(self, record: bytes, *, dead: bool, ordinal: int, id: int) -> None:
        """Record a failure as its consumer sent it."""
        try:
            failure = Failure.from_bytes(record)
        except FrameCorrupt:
            # An unreadable record, perhaps of a later version, has no class, and must not stop its settlement.
            return
        self.classes.add(failure, dead=dead, ordinal=ordinal)
        self.worst[id] = (failure.key or f"#{ordinal}")[:_KEY], failure.error[:_KEY]
        if len(self.worst) > _WORST:
            del self.worst[min(self.worst, key=lambda other: (self._exceptions(other), other))]

    def _exceptions(self, id: int) -> int:
        trouble = self.lane.trouble.get(id)
        return trouble.exceptions if trouble is not None else 0

    def _classes(self) -> list[FailureClass]:
        """Return the largest failure classes, with how many messages of each are dead now."""
        lane, classes, unanswered = self.lane, [], self.lane.died_unanswered
        # The table counts failures when they are recorded. A message whose consumer died after it had failed is dead
        # all the same, and one that was purged no longer is: so the lane is asked.
        for each in self.classes.top(_CLASSES):
            dead = lane.dead_count([each.fingerprint])
            retrying = max(0, each.retrying - max(0, dead - each.dead))
            if dead or retrying:
                failed = each.failed + unanswered[each.fingerprint]
                classes.append(each._replace(dead=dead, retrying=retrying, failed=failed))
        for letter in islice(lane.letters(-1, [NO_ANSWER]), 1):
            dead = lane.dead_count([NO_ANSWER])
            key, failed = f"#{letter.ordinal}", unanswered[NO_ANSWER]
            classes.append(FailureClass(NO_ANSWER, NO_ERROR, letter.reason, "", dead, 0, 0.0, 0.0, key, failed))
        return sorted(classes, key=lambda each: (-each.dead, -each.retrying, -each.last, each.fingerprint))

    def _failing(self) -> list[Failing]:
        """Return the documents that failed most and were not acked since."""
        rows: list[Failing] = []
        for id, (key, error) in list(self.worst.items()):
            found = self.lane.batches.at(id) if id in self.lane.trouble else None
            if found is None:
                del self.worst[id]
                continue
            batch, index = found
            paged = batch.weights is not None and not (self.record and self.record.unit)
            rows.append(Failing(key, error, self._exceptions(id), batch.units(index, index + 1) if paged else None))
        return rows

    def go_on(self, now: float) -> None:
        """Record at `now`, seconds since 1970 UTC, that more messages follow the end."""
        if self.ended is not None:
            self.idle += max(0.0, now - self.ended)
            self.ended = None

    @property
    def missing(self) -> int:
        """Acked messages of a run that have no result."""
        lane = self.lane
        # A defect, for an ack keeps its result. Plain puts have none.
        return 0 if lane.run == NO_ID else max(0, lane.counts[State.ACKED] - len(self.results))

    def missing_ordinals(self) -> list[tuple[int, int]]:
        """Return the ordinals of these, as half-open ranges."""
        if not self.missing:
            return []
        # Cancelled and forgotten ones may remain among them: their frames are freed.
        gone = Ranges(gap for lo, hi in self.lane.came for gap in self.results.covered.gaps(lo, hi))
        for batch in self.lane.batches:
            for a, b, state in stretches(batch.states, 0, len(batch.states)):
                if state != State.ACKED:
                    gone.discard(batch.ordinal + a, batch.ordinal + b)
        return list(gone)

    def named_functions(self) -> set[bytes]:
        """Return the functions kept for this lane, which are those that may run again, and the run's newest."""
        named, lane, record = self.lane.named_functions(), self.lane, self.record
        newest = record.codes[-1] if record is not None and record.codes else None
        if record is None or newest is None or not (blob := newest.get("blob")):
            return named
        may_go_on = record.incomplete is not None and not record.cancelled
        # After the end of a run, its next code still needs the plan that stands beside the newest function.
        if lane.batches or not lane.sealed or lane.counts[State.LOST] or may_go_on or "planned" in newest:
            named.add(blob)
        return named

    def report(self, run: bytes, now: float, wall: float = 0.0) -> LaneReport:
        """Return this lane's absolute totals at `now`, monotonic seconds, which is `wall`, seconds since 1970 UTC."""
        lane, record = self.lane, self.record
        classes = self._classes()
        return LaneReport(
            run=run.hex(),
            name=record.name if record else None,
            code=_name_of(record.code) if record else None,
            codes=[_name_of(code)[:2] for code in record.codes] if record else [],
            blobs=_numbers(record.codes) if record else {},
            runs=[] if lane.run == NO_ID else self._functions_to_run(),
            owner=(record.codes[0].get("owner") or "") if record and record.codes else "",
            acked_by={function.hex(): n for function, n in lane.acked_by.items()},
            counts=list(lane.counts),
            missing=self.missing,
            units=list(lane.units) if any(lane.units) else None,
            unit=record.unit if record else "",
            revived=list(lane.revived),
            retrying=lane.retrying,
            nbytes=lane.nbytes,
            paused=lane.paused,
            stopped=self.stopped,
            halted=self.halted,
            halt=StopReason(record.halt) if record else StopReason.ALL_FAILED,
            held=lane.held,
            pace="; ".join(filter(None, (lane.share.words, "" if lane.flow is None else pace_of(lane.flow)))),
            shut=lane.waits or ("" if lane.flow is None else why_shut(lane.flow, now)),
            spending=self.spending(now, wall),
            stop_if=record.stop_if if record else None,
            stop_despite=record is not None and record.stop_despite,
            sealed=lane.sealed,
            total=record.total if record else None,
            incomplete=record.incomplete if record else None,
            why=self.why,
            started=record.started if record else self.started,
            ended=self.ended,
            idle=self.idle,
            classes=classes[:_CLASSES],
            classes_total=max(len(self.classes), len(classes)),
            failed=self.classes.failed + self.lane.died_unanswered.total(),
            failing=self._failing(),
            max_deliveries=lane.retry.retries + 1,
            effort=replace(self.effort),
        )


def _numbers(codes: Sequence[CodeRecord]) -> dict[str, int]:
    """Return the numbers of code versions by the functions that they have or had, the newest of equal code."""
    named = ((at, (*code.get("former", ()), code.get("blob", b""))) for at, code in enumerate(codes, 1))
    return {blob.hex(): at for at, blobs in named for blob in blobs}


def _name_of(code: CodeRecord) -> CodeName:
    return CodeName(code.get("name", ""), code.get("short", ""), code.get("cell"), code.get("note", ""))
