"""The alerts of the statistics as findings of the doctor.

`stats.attention` alone decides that something is wrong and how bad it is; this module owns the doctor's words for it,
and the advice.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from dqlab.checkup.facts import Facts
from dqlab.checkup.findings import Finding
from dqlab.stats import Attention, AttentionKind, RunStats, StopReason

__all__ = ["WORDINGS", "alerted", "alerts", "in_shell"]


class Advice(NamedTuple):
    """A sentence without its period on what to do next, and a line to copy, for Python and perhaps for a shell."""

    text: str
    command: str = ""
    shell: str = ""


class Wording(NamedTuple):
    """The check, the sentence and the advice of a finding for alerts of one kind."""

    check: str
    what: Callable[[Attention], str]
    advice: Callable[[Facts, Attention], Advice]


def alerts(facts: Facts, check: str, *, without: Collection[Attention] = ()) -> Iterator[Finding]:
    """Yield the findings of one check from the alerts, except those in `without`: probing found more about them."""
    for alert in facts.alerts:
        wording = WORDINGS.get(alert.kind, _OTHER)
        if wording.check == check and alert not in without:
            advice = wording.advice(facts, alert)
            values = {"queue": alert.queue, "run": alert.run}
            yield Finding(check, alert.severity, wording.what(alert), advice.text, advice.command, values, advice.shell)


def alerted(facts: Facts, *kinds: AttentionKind, queue: str = "") -> list[Attention]:
    """Return the alerts of some kinds, of one queue if it is named."""
    return [alert for alert in facts.alerts if alert.kind in kinds and queue in ("", alert.queue)]


def _stopped(facts: Facts, alert: Attention) -> Advice:
    """Return how a run that paused itself can go on, which depends on the reason of its pause."""
    attach = f"lab.attach({alert.run!r})"
    run = _run(facts, alert)
    # A snapshot has only the newest runs; of an older one the alert's action shows why it stopped.
    reason = run.stop if run is not None else StopReason.ALL_FAILED if alert.action == "retry" else None
    if reason is StopReason.ALL_FAILED:
        text = (
            f"See {attach}.failures(), and define the mended function; then give it to all of the run, in a notebook "
            f"%dq retry {shlex.quote(alert.run)} --rest"
        )
        return Advice(text, f"{attach}.retry(fn=..., rest=True)", in_shell("failed", alert.run))
    text = "Read and drop runs that are finished, or return less per document; then let it go on"
    return Advice(text, f"{attach}.resume()", in_shell("resume", alert.run))


def _run(facts: Facts, alert: Attention) -> RunStats | None:
    runs = facts.snapshot.runs if facts.snapshot is not None else ()
    return next((run for run in runs if (run.queue, run.name) == (alert.queue, alert.run)), None)


def _store(facts: Facts, alert: Attention) -> Advice:
    actors = facts.registry.actors if facts.registry is not None else ()
    hosts = sorted({actor.address for actor in actors if actor.is_shard and actor.queue == alert.queue})
    text = "What was confirmed is on disk. Restart the worker of the shard: another one opens the log"
    return Advice(text, f"lab.client.restart_workers({hosts!r})")


def _no_consumer(_: Facts, alert: Attention) -> Advice:
    line = f"dq.ConsumerPool(lab.client, lab.queue({alert.queue!r})).start()"
    return Advice("Start consumers: more workers, or a consumer pool of your own", line)


def _silent(_: Facts, alert: Attention) -> Advice:
    text = "Look at that process: it is stopped, or its host is; restart it, and what it holds is delivered again"
    return Advice(text, f"lab.queue({alert.queue!r}).unacked()")


def _more_consumers(_: Facts, alert: Attention) -> Advice:
    text = "Add workers, and have a consumer on each of them"
    return Advice(text, f"lab.queue({alert.queue!r}).scale('auto')", in_shell("scale auto", alert.queue))


def _unacked(text: str) -> Callable[[Facts, Attention], Advice]:
    return lambda _, alert: Advice(text, f"lab.queue({alert.queue!r}).unacked()")


def _let_go(_: Facts, alert: Attention) -> Advice:
    """Return how to take from a consumer the documents that it has held for long, the quickest way first."""
    holder = f"lab.attach({alert.run!r})" if alert.run else f"lab.queue({alert.queue!r})"
    fails = f"{holder}.give_up({alert.detail!r}) makes it a failure. " if alert.detail else ""
    text = (
        f"A slow document, or one that hangs. {fails}A limit ends such documents by itself, map(..., timeout='90s'). "
        "To retry it"
    )
    return Advice(text, f"{holder}.replace({alert.target!r})")


def _of_run(text: str, call: str, command: str = "") -> Callable[[Facts, Attention], Advice]:
    return lambda _, alert: Advice(
        text, f"lab.attach({alert.run!r}){call}", in_shell(command, alert.run) if command else ""
    )


def in_shell(command: str, name: str) -> str:
    """Return the line that acts on a run or a queue of a cluster of `dqlab up` in a shell."""
    return f"dqlab {command} {shlex.quote(name)}"


def _listed(text: str) -> str:
    """Return the parts of a detail as one sentence."""
    return text.removesuffix(".").replace(" · ", "; ")


WORDINGS: dict[AttentionKind, Wording] = {
    AttentionKind.STOPPED: Wording("queues", lambda it: f"run {it.run} {it.text}: {_listed(it.detail)}", _stopped),
    AttentionKind.NO_CONSUMER: Wording("queues", lambda it: f"queue {it.queue} {it.text}: {it.detail}", _no_consumer),
    AttentionKind.NO_ANSWER: Wording("queues", lambda it: f"queue {it.queue} {it.text}: {_listed(it.detail)}", _silent),
    AttentionKind.SILENT: Wording(
        "leases", lambda it: f"consumer {it.subject} of queue {it.queue} {it.text}, {it.detail}", _silent
    ),
    AttentionKind.MISSING: Wording(
        "queues",
        lambda it: f"{it.subject} {it.text}: they were acknowledged, and are not there",
        _of_run("This must not happen. Look up which documents, and map these once more under another name", ".wait()"),
    ),
    AttentionKind.LOST: Wording(
        "queues",
        lambda it: f"run {it.run} lacks documents: {it.subject}",
        _of_run("`dqlab fsck` shows why. The error names the documents: map them again under another name", ".wait()"),
    ),
    AttentionKind.FAILING: Wording(
        "queues",
        lambda it: f"{it.subject} in run {it.run}: {it.text}; {_listed(it.detail)}",
        _of_run("See why, and retry them with a function that was mended", ".failures()", "failed"),
    ),
    AttentionKind.PUT_OFF: Wording(
        "queues",
        lambda it: f"run {it.run}: {it.subject} {it.text} {it.detail}",
        _of_run(
            "A function that raises dq.Later each time never ends. See what it waits for, or give up what is left",
            ".cancel()",
            "cancel",
        ),
    ),
    AttentionKind.PUTS_WAIT: Wording(
        "queues",
        lambda it: f"{it.subject} {it.text}: {it.detail}",
        _unacked("See what its consumers do, and whether there are any"),
    ),
    AttentionKind.GROWING: Wording(
        "queues", lambda it: f"queue {it.queue} {it.text} {_listed(it.detail)}", _more_consumers
    ),
    AttentionKind.LAG: Wording("queues", lambda it: f"queue {it.queue} {it.text}: {it.detail}", _more_consumers),
    AttentionKind.STORE: Wording("leases", lambda it: f"queue {it.queue} {it.text}: {_listed(it.detail)}", _store),
    AttentionKind.NO_ROOM: Wording(
        "leases",
        lambda it: f"queue {it.queue} {it.text}: {_listed(it.detail)}",
        lambda _, __: Advice("Make room: delete files, drop runs that are finished, compact", "lab.gc()"),
    ),
    AttentionKind.SINK: Wording(
        "queues",
        lambda it: f"run {it.run} {it.text}: {_listed(it.detail)}",
        lambda _, __: Advice("Make room there, or have the workers reach it; the run goes on by itself", "df -h"),
    ),
    AttentionKind.REFUSED: Wording(
        "queues",
        lambda it: f"run {it.run} {it.text}: {_listed(it.detail)}",
        lambda _, __: Advice("Renew the credentials of the process that it names; the run goes on by itself", ""),
    ),
    AttentionKind.LEASE_ENDS: Wording(
        "leases",
        lambda it: f"{it.subject} {it.text} in queue {it.queue}: {it.detail}",
        _unacked("See whose they are, and whether those workers hang"),
    ),
    AttentionKind.HELD: Wording(
        "leases",
        lambda it: f"consumer {it.subject} of queue {it.queue} {it.text}" + (f": {it.detail}" if it.detail else ""),
        _let_go,
    ),
    AttentionKind.SLOW: Wording(
        "leases",
        lambda it: f"consumer {it.subject} of queue {it.queue} {it.text}, {it.detail}",
        _unacked("See what else runs on that worker's machine, and which document it has"),
    ),
    AttentionKind.LEAVING: Wording(
        "jobs",
        lambda it: f"{it.subject} {it.text}: {it.detail}",
        lambda _, __: Advice(
            "Nothing, if the cluster asks for more jobs by itself; else ask for some now", "cluster.scale(jobs=4)"
        ),
    ),
}
"""The doctor's words for each kind of alert."""
_OTHER = Wording(
    "queues", lambda it: f"{it.subject} {it.text}", lambda _, __: Advice("See what the views show of it", "lab")
)
"""Words for a kind that only a newer dqlab, on the scheduler, knows."""
