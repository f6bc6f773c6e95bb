"""Turn a Snapshot into a `QueuesView`: its rows, words, figures and buttons.

Computes nothing: every number is a field or property of the Snapshot, spelled by `numbers`. Users' text leaves here fit
for one line, but not escaped.

"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from dqlab import numbers
from dqlab.live import details
from dqlab.live.details import failure_row
from dqlab.live.parts import NO_TABLE, Table
from dqlab.live.run_picture import AS_EVER, LONGEST, Standing, silence_notice
from dqlab.live.run_rows import LAST_MINUTE, RunRow, runs_in_order, without_live
from dqlab.live.style import Ink
from dqlab.live.tables import lag_of, runs_table, status_table
from dqlab.live.views import (
    NO_NOTICE,
    Button,
    Command,
    Details,
    Figure,
    Notice,
    QueueRow,
    QueuesView,
    RunLine,
    Tone,
)
from dqlab.numbers import UNKNOWN, many
from dqlab.stats import Attention, Counts, History, QueueState, QueueStats, RunStats, Severity, Snapshot
from dqlab.stats.attention import at_rest
from dqlab.texts import one_line

RUNS = 20
"""Rows of runs in text and static HTML; `%dq runs` lists them all."""
FIRST_RUNS = 8
"""Rows of runs in the widget, below its queues."""
MANY_QUEUES = 12
"""Number of rows above which those that need the user come first."""
_ICONS = {
    QueueState.RUNNING: "running",
    QueueState.KEEPING_UP: "running",
    QueueState.WAITING: "waiting",
    QueueState.PAUSED: "paused",
    QueueState.DRAINING: "drain",
    QueueState.EMPTY: "connecting",
}
_ACTIONS = ("retry", "show", "resume", "scale", "compact")


@dataclass(frozen=True, slots=True)
class Site:
    """Where a lab or queue is looked at."""

    name: str
    dashboard: str = ""
    """Address of the dashboard."""
    cluster: str = ""
    """Address of the scheduler."""
    embedded: bool = False
    """The lab has started the processes of its cluster."""


def absent_queues(place: Site, reason: str = "", *, single: bool = False, silence: float | None = None) -> QueuesView:
    """Return the view of a lab or queue that has not answered yet, or does not answer now."""
    what = "The queue" if single else "The lab"
    notice = Notice(one_line(reason, LONGEST), Tone.WARN) if reason else NO_NOTICE
    return QueuesView(
        name=one_line(place.name),
        single=single,
        icon="connecting" if silence is None else "no answer",
        about="asking for the first numbers" if silence is None and not reason else "",
        notice=notice if silence is None else silence_notice(silence, what),
        buttons=() if silence is None else (Button(Command.ASK, "Retry now"),),
    )


def moved_queues(place: Site, *, single: bool = False) -> QueuesView:
    """Return the view of a lab or queue that is shown elsewhere now."""
    # Without numbers: they would stand still in this picture.
    return QueuesView(
        name=one_line(place.name), single=single, icon="connecting", about="its live view is in a later cell"
    )


def lab_view(
    snapshot: Snapshot, history: History | None = None, *, place: Site, standing: Standing = AS_EVER
) -> QueuesView:
    """Return the picture of a lab."""
    stale = standing.stale
    snapshot = _as_known(snapshot) if stale else snapshot
    needing, deepest = _needing(snapshot), snapshot.deepest
    queues = _ordered(snapshot, needing)
    about = [many(snapshot.queues_total, "queue"), _consumer_words(snapshot, "process" if place.embedded else "worker")]
    about += [f"store {one_line(snapshot.store, 60)}"] if snapshot.store else []
    hidden = snapshot.queues_total - len(queues)
    return QueuesView(
        name=one_line(place.name),
        icon="no answer" if stale else "running",
        about=" · ".join(about),
        moment=numbers.clock(snapshot.at),
        dashboard=place.dashboard,
        cluster=place.cluster,
        stale=stale,
        notice=_notice(snapshot, standing, "The lab"),
        lasting=_notice(snapshot, standing._replace(trouble="", busy=""), "The lab"),
        buttons=() if standing.silence is None else (Button(Command.ASK, "Retry now"),),
        figures=lab_figures(snapshot, stale=stale),
        rows=tuple(_row(snapshot, queue, needing, deepest, stale=stale) for queue in queues),
        more=f"and {many(hidden, 'queue')} not listed; the totals above count all" if hidden > 0 else "",
        sparks=_sparks(history, queues),
        details=Details(
            needs=details.needs(snapshot.attention, (), several=True), needs_total=snapshot.attention_total
        ),
        table=status_table(snapshot, stale=stale),
        runs=_run_lines(snapshot.runs, snapshot.attention, stale=stale)[:FIRST_RUNS],
        runs_title=numbers.count(snapshot.runs_total) if snapshot.runs else "",
        runs_more=_more_runs(snapshot.runs_total - min(FIRST_RUNS, len(snapshot.runs))),
        runs_table=_runs(snapshot.runs, snapshot.runs_total, snapshot.attention, snapshot.totals, stale=stale),
    )


def queue_view(
    snapshot: Snapshot, history: History | None = None, *, place: Site, standing: Standing = AS_EVER
) -> QueuesView:
    """Return the picture of the queue at `place`."""
    stale = standing.stale
    snapshot = _as_known(snapshot) if stale else snapshot
    queue = snapshot.queue(place.name)
    if queue is None:
        return absent_queues(place, f"no queue named {place.name!r} is known to the cluster", single=True)
    row = _row(snapshot, queue, _needing(snapshot), snapshot.deepest, stale=stale)._replace(retries=())
    runs = [run for run in snapshot.runs if run.queue == queue.name]
    lines = [each for each in snapshot.attention if each.queue == queue.name]
    failures = snapshot.failures
    consumers = details.consumers(snapshot, queue.consumers)
    slow = consumers.troubles if consumers is not None else ""
    about = [many(queue.shards, "shard"), ", ".join(part for part in (many(queue.consumers, "consumer"), slow) if part)]
    about += ["transient" if queue.disk is None else f"durable{f', {snapshot.store}' if snapshot.store else ''}"]
    first = Button(Command.RESUME, "Resume", primary=True) if row.paused else Button(Command.PAUSE, "Pause")
    return QueuesView(
        name=one_line(queue.name),
        single=True,
        icon="no answer" if stale else row.icon,
        chip="No answer" if stale else row.state,
        tone=row.tone,
        about=" · ".join([*([row.why] if row.why else []), *about]),
        moment=numbers.clock(snapshot.at),
        dashboard=place.dashboard,
        cluster=place.cluster,
        stale=stale,
        notice=_notice(snapshot, standing, "The queue"),
        lasting=_notice(snapshot, standing._replace(trouble="", busy=""), "The queue"),
        buttons=() if standing.over else (first,) if standing.silence is None else (Button(Command.ASK, "Retry now"),),
        figures=_queue_figures(snapshot, queue, row, stale=stale),
        rows=(row,),
        sparks=(),
        runs=_run_lines(runs, lines, stale=stale),
        runs_title=numbers.count(max(len(runs), queue.runs)) if runs or queue.runs else "",
        runs_more=_more_runs(queue.runs - len(runs)),
        failures=tuple(failure_row(entry, at=snapshot.at) for entry in failures.classes),
        failures_title=many(failures.classes_total, "class") if failures.classes_total else "",
        failures_more=f"and {many(failures.other_classes, 'class')} more, {numbers.count(failures.other_dead)} dead"
        if failures.other_classes
        else "",
        details=Details(
            chart=details.depth_chart(queue.counts.waiting, history),
            needs=details.needs(lines, _ACTIONS, several=True),
            needs_total=len(lines),
            consumers=consumers,
            leases=details.leases(snapshot),
        ),
        table=status_table(snapshot, only=queue.name, stale=stale),
        runs_table=_runs(runs, max(len(runs), queue.runs), lines, queue, stale=stale),
    )


def _needing(snapshot: Snapshot) -> dict[str, Attention | None]:
    """Return the listed queues that need the user, the worst first, each with its worst line."""
    kinds = list(dict.fromkeys(each.kind for each in snapshot.attention))
    # The Snapshot lists kinds worst first; within a kind, the queue with the most comes first.
    lines = sorted(snapshot.attention, key=lambda each: (kinds.index(each.kind), -each.amount))
    found: dict[str, Attention | None] = {}
    for each in lines:
        if snapshot.queue(each.queue) is not None:
            found.setdefault(each.queue, each)
    for queue in snapshot.queues:
        if queue.troubled:
            found.setdefault(queue.name, None)
    # Dead documents at rest are no alert, but need the user all the same: they come last.
    every = snapshot.runs_total == len(snapshot.runs)
    resting = [rests for queue in snapshot.queues if (rests := at_rest(queue, snapshot.runs, all_runs=every))]
    for rests in sorted(resting, key=lambda rests: (-rests.severity, -rests.amount)):
        found.setdefault(rests.queue, rests)
    return found


def _ordered(snapshot: Snapshot, needing: Collection[str]) -> list[QueueStats]:
    """Return few queues in their own order, and many with those that need the user first, then the deepest."""
    if len(snapshot.queues) <= MANY_QUEUES:
        return list(snapshot.queues)
    first_of = {name: place for place, name in enumerate(needing)}

    def place(queue: QueueStats) -> tuple[int, int, str]:
        return (first_of.get(queue.name, len(needing)), -queue.counts.waiting, queue.name)

    return sorted(snapshot.queues, key=place)


def _row(
    snapshot: Snapshot, queue: QueueStats, needing: Mapping[str, Attention | None], deepest: int, *, stale: bool
) -> QueueRow:
    counts, scale = queue.counts, deepest or 1
    need = needing.get(queue.name)
    tone = "" if queue.name not in needing else "bad" if _is_bad(need, queue) else "warn"
    paused = queue.state == QueueState.PAUSED
    return QueueRow(
        name=one_line(queue.name, 80),
        icon=_ICONS[queue.state],
        tone=tone,
        state=f"Was {queue.state}" if stale else queue.state.capitalize(),
        why=_why(queue, need),
        leased_part=round(counts.leased / scale, 5),
        ready_part=round(counts.ready / scale, 5),
        delayed_part=round(counts.delayed / scale, 5),
        waiting=numbers.count(counts.waiting),
        ready=numbers.count(counts.ready),
        delayed=numbers.count(counts.delayed),
        unacked=numbers.count(counts.leased),
        dead=numbers.count(counts.dead),
        in_rate=numbers.rate(queue.in_rate),
        out_rate=numbers.rate(queue.out_rate),
        lag=lag_of(queue),
        empty_in="never" if queue.never_empty else UNKNOWN if queue.empty_in is None else numbers.soon(queue.empty_in),
        disk=numbers.size(queue.disk),
        paused=paused,
        durable=queue.disk is not None,
        consumers=queue.consumers,
        purge=_purge_question(queue),
        retries=tuple(
            (run.name, f"Retry {numbers.count(run.counts.dead)} dead of {one_line(run.name, 40)}")
            for run in snapshot.runs
            if run.queue == queue.name and run.counts.dead
        )[:3],
    )


def _is_bad(need: Attention | None, queue: QueueStats) -> bool:
    halted = queue.state not in (QueueState.RUNNING, QueueState.KEEPING_UP)
    return halted and need is not None and need.severity is Severity.PROBLEM


def _why(queue: QueueStats, need: Attention | None) -> str:
    if queue.why:
        return one_line(queue.why, 100)
    if need is not None:
        return one_line(f"{need.subject} {need.text}", 100)
    if queue.state == QueueState.EMPTY and queue.last_used is not None:
        return f"last used {numbers.minute(queue.last_used)}"
    return ""


def _purge_question(queue: QueueStats) -> tuple[str, ...]:
    dead = queue.counts.dead
    if not dead:
        return ()
    question = f"Discard {many(dead, 'dead message')} of {one_line(queue.name, 40)}?"
    return (question, "Their errors go with them.", "Keep them", f"Discard {numbers.count(dead)}")


def _notice(snapshot: Snapshot, standing: Standing, what: str) -> Notice:
    if bad := standing.over or standing.trouble:
        return Notice(one_line(bad, LONGEST), Tone.BAD)
    if standing.silence is not None:
        return silence_notice(standing.silence, what)
    if standing.busy:
        return Notice(one_line(standing.busy, 300))
    for each in snapshot.attention:
        if not each.queue:
            tone = Tone.BAD if each.severity is Severity.PROBLEM else Tone.WARN
            return Notice(one_line(f"{each.subject} {each.text}", 300), tone)
    if snapshot.resting:
        names = numbers.few_of(snapshot.resting)
        text = f"{many(len(snapshot.resting), 'queue')} in the store: {names}. %dq runs lists their runs."
        return Notice(one_line(text, 300))
    return Notice()


def _consumer_words(snapshot: Snapshot, noun: str) -> str:
    """Return how many consumers there are, by processes or workers."""
    # Each queue has a consumer in each process: the number of processes is what the user asked for.
    consumers, on = snapshot.consumers_total, len({consumer.worker for consumer in snapshot.consumers})
    if not consumers or len(snapshot.consumers) < consumers:
        amount = many(consumers, "consumer") if consumers else "no consumers yet"
        return f"{many(snapshot.workers, 'worker')} · {amount}"
    if consumers == on and noun == "process":
        return many(on, "consumer process")
    return f"{many(consumers, 'consumer')} on {many(on, noun)}"


def lab_figures(snapshot: Snapshot, *, stale: bool = False) -> tuple[Figure, ...]:
    """Return the headline figures of all queues."""
    totals, counts = snapshot.totals, snapshot.totals.counts
    worst = snapshot.most_dead
    where = many(snapshot.dead_queues, "queue") if counts.dead else ""
    if worst is not None and snapshot.dead_queues > 2:
        where += f", most in {one_line(worst.name, 24)}"
    busy = numbers.share(None if stale else snapshot.working_share, places=0).split()
    return (
        _waiting(counts),
        Figure("Unacked", numbers.count(counts.leased), _messages(counts.leased), _oldest(snapshot)),
        _out(totals, stale=stale),
        _dead(counts.dead, where),
        Figure(
            "Busy",
            busy[0],
            "".join(busy[1:]),
            f"of {many(snapshot.consumers_total, 'consumer')}, {LAST_MINUTE}",
            "" if stale else snapshot.consumer_troubles,
            live=True,
        ),
        _on_disk(snapshot, totals),
    )


def queue_figures(snapshot: Snapshot, queue: QueueStats) -> tuple[Figure, ...]:
    """Return the headline figures of one queue."""
    return _queue_figures(snapshot, queue, _row(snapshot, queue, {}, snapshot.deepest, stale=False), stale=False)


def _queue_figures(snapshot: Snapshot, queue: QueueStats, row: QueueRow, *, stale: bool) -> tuple[Figure, ...]:
    empty_in = UNKNOWN if stale else row.empty_in
    amount, _, unit = empty_in.partition(" ")
    lag = f"oldest ready: {row.lag}" if row.lag != UNKNOWN else "nothing waits"
    classes = snapshot.failures.classes_total
    return (
        _waiting(queue.counts),
        Figure("Unacked", row.unacked, _messages(queue.counts.leased), _oldest(snapshot)),
        _out(queue, stale=stale),
        _dead(queue.counts.dead, many(classes, "class") if classes else ""),
        Figure("Empty in", amount, unit, lag, live=True),
        _on_disk(snapshot, queue),
    )


def _messages(amount: int) -> str:
    return numbers.noun_of(amount, "message")


def _waiting(counts: Counts) -> Figure:
    second = f"{numbers.count(counts.ready)} ready · {numbers.count(counts.delayed)} delayed"
    return Figure("Waiting", numbers.count(counts.waiting), _messages(counts.waiting), second)


def _oldest(snapshot: Snapshot) -> str:
    oldest = snapshot.unacked.oldest
    return f"oldest {details.age_of(oldest[0])}" if oldest else ""


def _out(queue: QueueStats, *, stale: bool) -> Figure:
    rates = (None, None) if stale else (queue.out_rate, queue.in_rate)
    # Not the speed of this instant: a queue that has just become empty has one for a minute.
    return Figure(
        f"Out, {LAST_MINUTE}",
        numbers.rate(rates[0]),
        "messages/s",
        f"in {numbers.rate(rates[1])} messages/s",
        live=True,
    )


def _dead(amount: int, where: str) -> Figure:
    return Figure("Dead", numbers.count(amount), _messages(amount), where, tone=Tone.BAD if amount else Tone.QUIET)


def _on_disk(snapshot: Snapshot, queue: QueueStats) -> Figure:
    if queue.disk is None:
        amount, _, unit = numbers.size(queue.nbytes).partition(" ")
        return Figure("Payloads", amount, unit, "of messages that wait")
    amount, _, unit = numbers.size(queue.disk).partition(" ")
    storage = snapshot.storage
    garbage = f"{numbers.share(storage.garbage_share, places=0)} garbage, {numbers.size(storage.garbage)}"
    return Figure("On disk", amount, unit, garbage if storage.total else "")


def _sparks(history: History | None, queues: list[QueueStats]) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
    if history is None:
        return ()
    return tuple(
        (
            one_line(queue.name, 80),
            tuple(None if value is None else round(value) for value in history.depths[queue.name]),
        )
        for queue in queues
        if queue.name in history.depths
    )


def _as_known(snapshot: Snapshot) -> Snapshot:
    """Return a Snapshot without speeds and estimates, which hold only while numbers arrive."""
    totals, *queues = (
        replace(queue, in_rate=None, out_rate=None, empty_in=None, never_empty=False)
        for queue in (snapshot.totals, *snapshot.queues)
    )
    return replace(snapshot, totals=totals, queues=tuple(queues), runs=tuple(map(without_live, snapshot.runs)))


def _runs(
    runs: Sequence[RunStats], total: int, attention: Sequence[Attention], ended: QueueStats, *, stale: bool
) -> Table:
    hidden = total - len(runs)
    return runs_table(runs, hidden, attention, most=RUNS, ended=ended, stale=stale) if runs else NO_TABLE


def _more_runs(hidden: int) -> str:
    return f"and {numbers.count(hidden)} more: %dq runs" if hidden > 0 else ""


def _run_lines(runs: Sequence[RunStats], attention: Sequence[Attention], *, stale: bool) -> tuple[RunLine, ...]:
    """Return the lines of runs in the order of `%dq runs`."""
    return tuple(_run_line(row, stale=stale) for row in runs_in_order(runs, attention))


def _run_line(row: RunRow, *, stale: bool) -> RunLine:
    state = f"Was {row.state}" if stale and not row.over else row.state.capitalize()
    return RunLine(
        key=one_line(f"{row.queue} {row.name}", 200),
        name=one_line(row.name, 80),
        queue=one_line(row.queue, 60),
        state=state + (f" · {one_line(row.why, 60)}" if row.why else ""),
        tone={Ink.BAD: "bad", Ink.WARN: "warn"}.get(row.ink, ""),
        share=row.share,
        left=row.left,
        done=row.due,
        dead=numbers.count(row.dead),
    )
