"""The alerts of the statistics as findings of the doctor.

`stats.attention` alone decides that something is wrong, how bad it is, and its words; this module adds the advice.
"""

from __future__ import annotations

from collections.abc import Iterator

from dqlab.checkup.facts import Facts
from dqlab.checkup.findings import Finding
from dqlab.live.next_lines import DOCTOR, next_line
from dqlab.numbers import many
from dqlab.stats import Attention, AttentionKind, QueueState, Severity, StopReason
from dqlab.stats.attention import at_rest
from dqlab.stats.queues import short_name
from dqlab.texts import as_word

_UNACKED = "See whose they are, which documents, and whether those workers hang"
_WORKERS = "Add workers, and have a consumer on each of them"
_AGAIN = "`dqlab store check` shows why a log lost documents. The error names them: map them again under another name"

ADVICE: dict[AttentionKind, str] = {
    AttentionKind.STOPPED: "Read and drop runs that are finished, or return less per document; then let it go on",
    AttentionKind.NO_CONSUMER: _WORKERS,
    AttentionKind.UNABLE: "Start workers with these devices or resources; or cancel it, and map it with less",
    AttentionKind.NO_ANSWER: "Its processes are stopped, or their hosts are; what they hold is delivered again",
    AttentionKind.SILENT: "Its process is stopped, or its host is; restart it, and what it holds is delivered again",
    AttentionKind.STORE: "What was confirmed is on disk. Restart the worker of the shard: another one opens the log",
    AttentionKind.NO_ROOM: "Make room: delete files, drop runs that are finished, compact. It goes on by itself",
    AttentionKind.SINK: "Make room there, or have the workers reach it; the run goes on by itself",
    AttentionKind.LOST: _AGAIN,
    AttentionKind.MISSING: f"This must not happen. {_AGAIN}",
    AttentionKind.LEASE_ENDS: _UNACKED,
    AttentionKind.RUNS_ON: "Restart its worker; what its consumers hold goes back. Processes can be killed: "
    "map(..., timeout='90s')",
    AttentionKind.SLOW: "See what else runs on that worker's machine, and which document it has",
    AttentionKind.FAILING: "See why, and retry them with a function that was mended",
    AttentionKind.PUT_OFF: "A function that raises dq.Later each time never ends. Or give up what is left",
    AttentionKind.PUTS_WAIT: "See what its consumers do, and whether there are any",
    AttentionKind.GROWING: _WORKERS,
    AttentionKind.LAG: _WORKERS,
    AttentionKind.LEAVING: "Nothing, if the cluster asks for more jobs by itself; else ask for some now",
    AttentionKind.AT_REST: "See why, and retry them with a function that was mended; or drop what is of no more use",
}
"""What to do about alerts of each kind but `HELD`, which has a sentence of its own."""
_OF_CONSUMERS = (AttentionKind.SILENT, AttentionKind.HELD, AttentionKind.RUNS_ON, AttentionKind.SLOW)
"""Alerts with the bare name of a consumer as their subject."""


def queues(facts: Facts) -> Iterator[Finding]:
    """Report the alerts, dead documents that nothing retries, and queues that a user stopped."""
    for alert in facts.alerts():
        yield _finding(facts, alert)
    for queue in () if facts.snapshot is None else facts.snapshot.queues:
        all_runs = facts.snapshot is not None and facts.snapshot.runs_total == len(facts.snapshot.runs)
        dead = at_rest(queue, facts.snapshot.runs if facts.snapshot is not None else (), all_runs=all_runs)
        if dead is not None:
            yield _finding(facts, dead)
        if queue.state in (QueueState.PAUSED, QueueState.DRAINING):
            left = f", and {many(queue.counts.left, 'message')} wait" if queue.counts.left else ""
            what = f"queue {queue.name} is {queue.state}{left}"
            line = f"lab.queue({queue.name!r}).resume()"
            yield Finding("queues", Severity.NOTE, what, "To let it go on", line, {"queue": queue.name})


def _finding(facts: Facts, alert: Attention) -> Finding:
    owner = f"run {alert.run}" if alert.run else f"queue {alert.queue}" if alert.queue else ""
    named = alert.subject in (alert.run, alert.queue) or owner in alert.text
    place = "" if named or not owner else f"{owner}: "
    if alert.kind in _OF_CONSUMERS:
        place = f"queue {alert.queue}: consumer "
    detail = alert.detail.removesuffix(".").replace(" · ", "; ")
    colon = ":" if alert.kind is AttentionKind.FAILING else ""  # its text is an error
    what = f"{place}{alert.subject}{colon} {alert.text}" + (f": {detail}" if detail else "")
    advice, line = _advice(facts, alert)
    values = {"queue": alert.queue, "run": alert.run, "kind": str(alert.kind), "amount": alert.amount}
    return Finding("queues", alert.severity, what, advice, line, values)


def _is_refused(facts: Facts, name: str) -> bool:
    """Return whether a run paused itself because a storage or a service refuses it."""
    runs = () if facts.snapshot is None else facts.snapshot.runs
    return any(run.name == name and run.stop in (StopReason.REFUSED, StopReason.CALLS_REFUSED) for run in runs)


def _advice(facts: Facts, alert: Attention) -> tuple[str, str]:
    """Return what to do about an alert, and the line to copy."""
    holder = f"lab.attach({alert.run!r})" if alert.run else f"lab.queue({alert.queue!r})"
    advice, line = ADVICE.get(alert.kind, "See what the views show of it"), next_line(alert)
    if alert.kind is AttentionKind.HELD:
        fails = f"{holder}.give_up({alert.detail!r}) makes it a failure. " if alert.detail else ""
        limit = "A limit ends such documents by itself, map(..., timeout='90s')"
        return f"A slow document, or one that hangs. {fails}{limit}. To retry it", f"{holder}.replace({alert.target!r})"
    if alert.kind is AttentionKind.STOPPED and alert.action == "retry":
        again = f"%dq retry {as_word(alert.run)} --rest"
        advice = f"See why, and define the mended function; then give it to all of the run: {again}"
    elif alert.kind is AttentionKind.STOPPED and _is_refused(facts, alert.run):
        advice = "Renew the credentials that it names; then"
    elif alert.kind is AttentionKind.STORE:
        at = sorted({actor.address for actor in facts.actors if actor.is_shard and actor.queue == alert.queue})
        line = f"lab.client.restart_workers({at!r})"
    elif alert.kind is AttentionKind.RUNS_ON:
        own = [actor for actor in facts.actors if not actor.is_shard and actor.queue == alert.queue]
        at = sorted({actor.address for actor in own if short_name(actor.name) == alert.target})
        line = f"lab.client.restart_workers({at!r})"
    elif alert.kind is AttentionKind.AT_REST:
        line = f"%dq failed {as_word(alert.run)}" if alert.run else f"lab.queue({alert.queue!r}).dead()"
    elif alert.kind in (AttentionKind.LOST, AttentionKind.MISSING):
        line = f"{holder}.wait()"
    elif line == DOCTOR:
        line = f"lab.queue({alert.queue!r}).unacked()"
    return advice, line
