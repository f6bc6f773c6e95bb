"""Find what needs a user, worst first, and put it into words.

Pure: `find` reads what a Snapshot is made of, and what a Snapshot does not carry (`QueueFacts`). Each rule is a
function that yields what it found; the order of the rules is the order of the lines.

"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dqlab import numbers
from dqlab.stats.counts import Blocked, QueueState, RunState
from dqlab.stats.queues import ConsumerStats, QueueStats, Unacked
from dqlab.stats.runs import ClassStats, RunStats
from dqlab.stats.snapshot import Attention, AttentionKind, Severity

GOES_ON = (
    "A slot's process was ended. A thread cannot be killed: a function that does not end keeps running there, and "
    "slows others, until it ends or its worker is restarted (%dq doctor has the line)"
)
"""What to know after a message was taken from the consumer that runs it."""

STANDS = 60.0
"""Seconds, the window of a rate: a run that ends no document for so long, and has put some off, may never end."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When something needs a user."""

    no_consumer: float = 30.0
    """Seconds that work waits without a consumer, or that a consumer's worker is silent."""
    held: float = 60.0
    """Seconds that a consumer holds one document; the limit is ten times `QueueFacts.typical` where that is more."""
    slow: float = 1 / 3
    """Share of the median speed below which a consumer is slow."""
    failing: float = 0.01
    """Share of the settled documents above which a failure class is shown."""
    growing: float = 300.0
    """Seconds over which more messages arrive than leave."""
    lag: float = 900.0
    """Seconds: age of the oldest ready message, if that age still grows."""
    leaving: float = 300.0
    """Seconds until the jobs of workers end."""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What is known about one queue, also what a Snapshot does not carry."""

    queue: QueueStats
    runs: Sequence[RunStats] = ()
    consumers: Sequence[ConsumerStats] = ()
    """All consumers of the queue."""
    runs_on: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Documents whose functions run on after they were cancelled or taken away, by consumer."""
    unacked: Unacked = field(default_factory=Unacked)
    at: float = 0.0
    median: float | None = None
    """Median speed of the consumers."""
    unserved: float | None = None
    """Seconds since the last consumer left while work waits; None with a consumer, or without work."""
    unanswered: float | None = None
    """Seconds since any of its consumers answered while work is left; None while one answers, or none exists."""
    trouble: str = ""
    """Why its store can confirm nothing."""
    full: bool = False
    """The trouble is a lack of room, or of files it may open: it ends by itself when there is room."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Processed documents without a result, by run."""
    typical: float | None = None
    """Seconds in which 95 of 100 documents are done."""
    marked: float = 0.0
    """When a person last acted on it, seconds since 1970 UTC."""
    in_lately: float | None = None
    out_lately: float | None = None
    """Messages per second over the last `Thresholds.growing` seconds, in and out."""
    depths: Sequence[float | None] = ()
    """Messages waiting at evenly spaced instants of the same seconds, the last one now."""
    lag_before: float | None = None
    """Its lag at the start of the same seconds."""
    runs_total: int = 0
    """All its runs; `runs` leaves out those that ended long ago."""


def find(queues: Sequence[QueueFacts], thresholds: Thresholds) -> list[Attention]:
    """Return what needs a user in some queues, worst first."""
    # Rules outside, queues inside: the worst kind of any queue comes before a lesser kind of the first queue.
    return [found for rule in _RULES for facts in queues for found in rule(facts, thresholds)]


def find_leaving(leave: int, workers: int, within: float) -> list[Attention]:
    """Return that workers leave because their jobs end in `within` seconds, or nothing when none leave."""
    if not leave:
        return []
    subject = f"{leave} of {numbers.many(max(leave, workers), 'worker')}"
    verb = "leaves" if leave == 1 else "leave"
    text = f"{verb} in {numbers.duration(within)}" if within > 0 else f"{verb} now"
    detail = "the walltime of their jobs is nearly over; what they have not begun goes to others"
    return [Attention(Severity.WARNING, AttentionKind.LEAVING, subject, text, detail)]


def is_stuck(consumer: ConsumerStats, typical: float | None, thresholds: Thresholds) -> bool:
    """Return whether a consumer has held one document for so long that it needs a user."""
    limit = max(thresholds.held, 10 * (typical or 0.0))
    return consumer.silent is None and consumer.oldest_age is not None and consumer.oldest_age > limit


def brief(found: Attention) -> str:
    """Return the finding in two or three words, for a row of a table."""
    word = found.text.split(" ", 1)[0]
    return {
        AttentionKind.STOPPED: "stopped itself",
        AttentionKind.NO_CONSUMER: "no consumer",
        AttentionKind.UNABLE: "no consumer can",
        AttentionKind.NO_ANSWER: "no consumer answers",
        AttentionKind.SILENT: f"{found.subject} is silent",
        AttentionKind.STORE: "store has failed",
        AttentionKind.NO_ROOM: "no room",
        AttentionKind.SINK: "sink refuses",
        AttentionKind.LOST: f"{found.subject}",
        AttentionKind.MISSING: f"{found.subject}",
        AttentionKind.LEASE_ENDS: "lease ends unrenewed",
        AttentionKind.HELD: f"{found.subject} is stuck",
        AttentionKind.RUNS_ON: f"{found.subject} slowed",
        AttentionKind.SLOW: f"{found.subject} is slow",
        AttentionKind.FAILING: f"{word} spreading",
        AttentionKind.PUT_OFF: "put off",
        AttentionKind.PUTS_WAIT: "full",
        AttentionKind.GROWING: "growing",
        AttentionKind.LAG: "falls behind",
        AttentionKind.LEAVING: "workers leave",
        AttentionKind.AT_REST: found.subject,
        AttentionKind.OTHER: found.subject,
    }[found.kind]


_ON_PURPOSE = (QueueState.PAUSED, QueueState.DRAINING)


def _stopped(facts: QueueFacts, _: Thresholds) -> Iterator[Attention]:
    for run in facts.runs:
        if run.state is RunState.STOPPED:
            detail = f"{run.why or 'it stopped itself'} · {numbers.many(run.counts.left, 'document')} left"
            action, worst = "resume", ""
            # To resume the same code would fail the rest of the documents too, so the offer is a retry with other code.
            if run.fails_throughout:
                action, worst = "retry", run.classes[0].fingerprint if run.classes else ""
            yield _of(
                facts, AttentionKind.STOPPED, run.name, "paused itself", detail, action, run=run.name, target=worst
            )


def _no_consumer(facts: QueueFacts, thresholds: Thresholds) -> Iterator[Attention]:
    queue, unserved = facts.queue, facts.unserved
    if unserved is not None and unserved >= thresholds.no_consumer and queue.state not in _ON_PURPOSE:
        waiting = numbers.many(queue.counts.waiting, "message")
        detail = f"{waiting} {'waits' if queue.counts.waiting == 1 else 'wait'} for {numbers.duration(unserved)}"
        yield _of(facts, AttentionKind.NO_CONSUMER, queue.name, "has no consumer", detail, "scale")
    for run in facts.runs:
        if run.blocked is Blocked.NEEDS:
            yield _of(facts, AttentionKind.UNABLE, run.name, "has no consumer that can run it", run.why, run=run.name)


def _silent(facts: QueueFacts, thresholds: Thresholds) -> Iterator[Attention]:
    queue, unanswered = facts.queue, facts.unanswered
    if not queue.counts.left or queue.state in _ON_PURPOSE:
        return
    if unanswered is not None:
        if unanswered >= thresholds.no_consumer:
            left = f"{numbers.many(queue.counts.left, 'message')} left"
            names = numbers.few_of([f"{consumer.name} on worker {consumer.worker}" for consumer in facts.consumers])
            detail = f"{names} silent for {numbers.duration(unanswered)} · {left}"
            since = f"since {numbers.clock(facts.at - unanswered)}"
            yield _of(
                facts, AttentionKind.NO_ANSWER, queue.name, f"has no consumer that answers {since}", detail, "doctor"
            )
        return
    for consumer in facts.consumers:
        if consumer.silent is not None and consumer.silent >= thresholds.no_consumer:
            text = f"has not answered for {numbers.duration(consumer.silent)}"
            detail = f"on worker {consumer.worker}"
            yield _of(facts, AttentionKind.SILENT, consumer.name, text, detail, "doctor", target=consumer.name)


def _store(facts: QueueFacts, _: Thresholds) -> Iterator[Attention]:
    if facts.trouble:
        kind, text = (
            (AttentionKind.NO_ROOM, "waits for room in its store")
            if facts.full
            else (AttentionKind.STORE, "can confirm nothing")
        )
        yield _of(facts, kind, facts.queue.name, text, facts.trouble, "doctor")
    for run in facts.runs:
        # A store without room holds up the sink too: one cause makes one line.
        if run.unwritten and not facts.trouble:
            yield _of(facts, AttentionKind.SINK, run.name, "waits for its sink", run.why, run=run.name)
    for name, missing in facts.missing.items():
        subject, detail = f"{numbers.many(missing, 'result')} missing", "run.wait() names the documents"
        text = f"of run {name}, though processed"
        yield _of(facts, AttentionKind.MISSING, subject, text, detail, "doctor", run=name, amount=missing)
    for run in facts.runs:
        if run.counts.lost:
            lost = f"{numbers.count(run.counts.lost)} lost"
            detail = "run.wait() names the documents"
            yield _of(
                facts, AttentionKind.LOST, lost, f"of run {run.name}", detail, run=run.name, amount=run.counts.lost
            )


def _lease_ends(facts: QueueFacts, _: Thresholds) -> Iterator[Attention]:
    ending = facts.unacked.ending_20s
    if ending:
        ends = "lease ends" if ending == 1 else "leases end"
        detail = "their consumers do not renew; the messages will be delivered again"
        yield _of(
            facts, AttentionKind.LEASE_ENDS, numbers.count(ending), f"{ends} within 20 s", detail, "show", amount=ending
        )


def _held(facts: QueueFacts, thresholds: Thresholds) -> Iterator[Attention]:
    # The message was given up or cancelled: the consumer's last report may still name it.
    if not facts.queue.counts.leased:
        return
    for consumer in facts.consumers:
        if is_stuck(consumer, facts.typical, thresholds):
            text = f"held one document for {numbers.duration(consumer.oldest_age)}"
            yield _of(
                facts,
                AttentionKind.HELD,
                consumer.name,
                text,
                consumer.document or "",
                "show",
                run=consumer.run,
                target=consumer.name,
            )


def _runs_on(facts: QueueFacts, _: Thresholds) -> Iterator[Attention]:
    for consumer, documents in facts.runs_on.items():
        text = f"still runs {numbers.many(len(documents), 'function')} given up"
        detail = f"{numbers.few_of(list(documents))}; threads cannot be killed, and these slow the others"
        amount = len(documents)
        yield _of(facts, AttentionKind.RUNS_ON, consumer, text, detail, "doctor", target=consumer, amount=amount)


def _slow(facts: QueueFacts, _: Thresholds) -> Iterator[Attention]:
    unit = "pages" if any(run.unit == "pages" for run in facts.runs) else "documents"
    for consumer in facts.consumers:
        if consumer.slow:
            text = f"does {numbers.rate(consumer.units_rate)} {unit}/s, median {numbers.rate(facts.median)}"
            detail = f"on worker {consumer.worker}"
            yield _of(facts, AttentionKind.SLOW, consumer.name, text, detail, "show", target=consumer.name)


def _failing(facts: QueueFacts, thresholds: Thresholds) -> Iterator[Attention]:
    for run in facts.runs:
        settled = max(1, run.counts.settled)
        for entry in run.classes:
            count = entry.dead + entry.retrying
            # A class that began after a person's last act (a retry, new code) is shown at once, however small its
            # share.
            new = entry.first > facts.marked > 0
            if count and (new or count > thresholds.failing * settled) and not run.finished:
                yield failures_of(run, entry)


def failures_of(run: RunStats, entry: ClassStats) -> Attention:
    """Return one class of a run's failures as an alert."""
    subject = f"{numbers.count(entry.dead)} dead" if entry.dead else f"{numbers.count(entry.retrying)} waiting to retry"
    source = [part for part in (entry.at, *entry.versions) if part]
    rest = [f"{numbers.count(entry.retrying)} waiting to retry"] if entry.dead and entry.retrying else []
    when = [numbers.seen(entry.first, entry.last, now=run.at)] if entry.first else []
    detail = " · ".join([", ".join(source), *rest, *when])
    severity, action = (Severity.PROBLEM, "retry") if entry.dead else (Severity.WARNING, "show")
    text = f"{entry.error} {entry.message}".strip()
    amount = entry.dead or entry.retrying
    return Attention(
        severity, AttentionKind.FAILING, subject, text, detail, action, run.queue, run.name, entry.fingerprint, amount
    )


def at_rest(queue: QueueStats, runs: Sequence[RunStats], *, all_runs: bool = True) -> Attention | None:
    """Return the dead documents that nothing retries in a queue, of ended runs and outside of runs."""
    own = [run for run in runs if run.queue == queue.name]
    ended = sorted((run for run in own if run.resting and run.counts.dead), key=lambda run: -run.counts.dead)
    # The queue counts runs that ended long ago, `runs` does not list them; an older scheduler sends no such count, so
    # the larger number is the better one.
    failed = max(len(ended), queue.failed_runs)
    if failed:
        amount = max(sum(run.counts.dead for run in ended), queue.dead_at_rest)
        worst = ended[0] if ended else None
        one = "a run that has ended" if worst is None else f"run {worst.name}, {worst.state}"
        where = one if failed == 1 else f"{numbers.count(failed)} runs that have ended"
        return _at_rest(queue, Severity.PROBLEM, amount, f"in {where}", "" if worst is None else worst.name)
    amount = 0 if queue.counts.left else queue.counts.dead - sum(run.counts.dead for run in own)
    # While some runs are not listed, the dead documents may belong to one of them: the text must not exclude that.
    where = "of submit or put" if all_runs else "in runs that are not listed, or of submit or put"
    return _at_rest(queue, Severity.WARNING, amount, where) if amount > 0 else None


def _at_rest(queue: QueueStats, severity: Severity, amount: int, where: str, run: str = "") -> Attention:
    subject = f"{numbers.count(amount)} dead"
    return Attention(severity, AttentionKind.AT_REST, subject, where, "", "show", queue.name, run, "", amount)


def _put_off(facts: QueueFacts, _: Thresholds) -> Iterator[Attention]:
    for run in facts.runs:
        stands = run.state is RunState.RUNNING and not run.rate and run.elapsed >= STANDS
        # With as many leased as put off, the run may simply wait for a document that takes long.
        if stands and run.put_off > run.counts.leased:
            subject = numbers.many(run.put_off, "document")
            text = "put off by their function" if run.put_off > 1 else "put off by its function"
            detail = f"with dq.Later, and no document ended in the last {numbers.duration(STANDS)}"
            yield _of(facts, AttentionKind.PUT_OFF, subject, text, detail, run=run.name, amount=run.put_off)


def _puts_wait(facts: QueueFacts, _: Thresholds) -> Iterator[Attention]:
    queue = facts.queue
    if queue.put_waiting and not queue.out_rate:
        waits = "put waits" if queue.put_waiting == 1 else "puts wait"
        detail = f"queue {queue.name} is full, and nothing leaves it"
        amount = queue.put_waiting
        yield _of(
            facts, AttentionKind.PUTS_WAIT, numbers.count(amount), f"{waits} for room", detail, "show", amount=amount
        )


def _growing(facts: QueueFacts, thresholds: Thresholds) -> Iterator[Attention]:
    queue, ins, outs = facts.queue, facts.in_lately, facts.out_lately
    busy = any(run.state is RunState.SUBMITTING or run.eta is not None for run in facts.runs)
    if busy or ins is None or outs is None or queue.lag < 2 or ins <= 1.05 * outs:
        return
    if queue.state != QueueState.RUNNING or not queue.in_rate or not _rises(facts.depths):
        # Paused, or one batch arrived at once: spread over all these seconds, it would look like a steady inflow.
        return
    text = f"gets {numbers.rate(ins)} messages/s and does {numbers.rate(outs)}"
    since = f"for {numbers.duration(thresholds.growing)}"
    yield _of(
        facts, AttentionKind.GROWING, queue.name, text, f"{since} · {numbers.count(queue.counts.waiting)} wait", "scale"
    )


def _rises(depths: Sequence[float | None]) -> bool:
    known = [depth for depth in depths if depth is not None]
    # A gap in the history proves nothing, so it does not count as growth.
    return len(known) == len(depths) > 1 and all(before < after for before, after in pairwise(known))


def _lag(facts: QueueFacts, thresholds: Thresholds) -> Iterator[Attention]:
    queue = facts.queue
    if any(run.eta is not None or run.state in (RunState.SUBMITTING, RunState.PAUSED) for run in facts.runs):
        return
    if queue.state == QueueState.RUNNING and queue.lag > thresholds.lag and (facts.lag_before or 0.0) < queue.lag:
        text = f"is {numbers.duration(queue.lag)} behind, and the delay grows"
        yield _of(facts, AttentionKind.LAG, queue.name, text, f"{numbers.count(queue.counts.waiting)} wait", "scale")


# The order is the order of the lines in every view: the worst first.
_RULES = (
    _stopped,
    _no_consumer,
    _silent,
    _store,
    _lease_ends,
    _held,
    _runs_on,
    _slow,
    _failing,
    _put_off,
    _puts_wait,
    _growing,
    _lag,
)
_BAD = frozenset(
    {
        AttentionKind.STOPPED,
        AttentionKind.NO_CONSUMER,
        AttentionKind.UNABLE,
        AttentionKind.NO_ANSWER,
        AttentionKind.STORE,
        AttentionKind.NO_ROOM,
        AttentionKind.SINK,
        AttentionKind.MISSING,
        AttentionKind.LOST,
    }
)


def _of(
    facts: QueueFacts,
    kind: AttentionKind,
    subject: str,
    text: str,
    detail: str,
    action: str = "",
    *,
    run: str = "",
    target: str = "",
    amount: int = 0,
) -> Attention:
    severity = Severity.PROBLEM if kind in _BAD else Severity.WARNING
    return Attention(severity, kind, subject, text, detail, action, facts.queue.name, run, target, amount)
