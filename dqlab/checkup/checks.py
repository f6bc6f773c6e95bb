"""Checks of processes, shards, stores and queues: each takes the facts and yields what is wrong.

`stats.attention` alone decides that a queue needs a user, how bad it is, and its words; `queues` adds the advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dqlab import numbers
from dqlab.checkup.facts import Facts, Finding, Process
from dqlab.live.next_lines import DOCTOR, next_line
from dqlab.log.writer import LogOptions
from dqlab.numbers import few_of, many
from dqlab.stats import Attention, AttentionKind, QueueState, Severity, StopReason
from dqlab.stats.attention import at_rest
from dqlab.stats.queues import short_name
from dqlab.store.probe import Probe
from dqlab.texts import as_word

NEARLY = 0.8
"""Share of a worker's memory limit above which the limit is nearly reached."""
LATE = 0.25
"""Seconds by which an event loop may be late, as the mean over a second."""
LITTLE = 1_000_000_000
"""Free bytes below which a store is short of room."""


def _restart(*addresses: str) -> str:
    return f"lab.client.restart_workers({list(addresses)!r})"


def answers(facts: Facts) -> Iterator[Finding]:
    """Find the processes that do not answer."""
    scheduler = facts.scheduler
    if scheduler.silence:
        yield Finding(
            "answers",
            Severity.PROBLEM,
            f"the scheduler at {scheduler.address} does not answer: {scheduler.silence}",
            "See whether its process lives and can be reached from here. If it is gone, durable queues are in their "
            "store; connect again",
            "lab = dq.connect(...)",
            {"address": scheduler.address, "silence": scheduler.silence},
        )
    elif not facts.workers:
        here = ("Close this lab and connect again; durable queues are in their store", "lab.close()")
        elsewhere = ("Start some; with a scheduler of your own", f"dask worker {scheduler.address} --nworkers 3")
        what = "the cluster has no worker: nothing can be queued and nothing runs"
        yield Finding("answers", Severity.PROBLEM, what, *(here if facts.embedded else elsewhere))
    for worker in facts.workers:
        if worker.silence:
            hosted = facts.hosting(worker.address)
            holds = f"; it holds queue {', '.join(hosted)}" if hosted else ""
            yield Finding(
                "answers",
                Severity.PROBLEM,
                f"{worker.title} does not answer: {worker.silence}; its last heartbeat came "
                f"{numbers.duration(worker.silent)} ago{holds}",
                "Its process hangs, is stopped, or holds the GIL in native code. Restart it: what its consumers hold "
                "is delivered again, and its queues are opened by another worker",
                _restart(worker.address),
                {"worker": worker.address, "silence": worker.silence, "queues": hosted},
            )


# --- environments ---------------------------------------------------------------------------


def versions(facts: Facts) -> Iterator[Finding]:
    """Find processes without dqlab, and versions that differ from this process's."""
    install = f"pip install 'dqlab=={facts.client.version}'"
    without = [each.title for each in facts.answering if each.version is None and each is not facts.client]
    if without:
        what = f"dqlab is not installed on {few_of(without)}"
        yield Finding("versions", Severity.PROBLEM, what, "Install it in that environment", install)
    elif bare := [each for each in facts.answering if not each.plugin]:
        what = f"{few_of([each.title for each in bare])} has no plugin of this dqlab: it hosts and serves no queue"
        yield Finding("versions", Severity.PROBLEM, what, "Restart it", _restart(*(each.address for each in bare)))
    compared: dict[str, tuple[Severity, Callable[[Process], object]]] = {
        "protocol of dqlab": (Severity.PROBLEM, lambda each: each.protocol),
        "dqlab": (Severity.WARNING, lambda each: each.version),
        # Functions are pickled as byte code, which differs between minor versions of Python.
        "Python": (Severity.PROBLEM, lambda each: each.python.rpartition(".")[0]),
        "dask": (Severity.WARNING, lambda each: each.packages.get("dask")),
        "distributed": (Severity.WARNING, lambda each: each.packages.get("distributed")),
        "cloudpickle": (Severity.WARNING, lambda each: each.packages.get("cloudpickle")),
    }
    for name, (severity, of) in compared.items():
        others: dict[str, list[str]] = {}
        for each in facts.answering:
            if of(each) not in (of(facts.client), None):
                others.setdefault(str(of(each)), []).append(each.title)
        if others:
            elsewhere = "; ".join(f"{theirs} on {few_of(titles)}" for theirs, titles in others.items())
            line = (
                install if "dqlab" in name else "" if name == "Python" else f"pip install '{name}=={of(facts.client)}'"
            )
            yield Finding(
                "versions",
                severity,
                f"{name} is {of(facts.client)} here, and {elsewhere}",
                "Start all of them in one environment, or give them the same version",
                line,
                {"package": name, "here": of(facts.client), "elsewhere": others},
            )


# --- processes ------------------------------------------------------------------------------


def resources(facts: Facts) -> Iterator[Finding]:
    """Find processes near their limits, and functions that were given up and still run."""
    for each in facts.answering:
        if each.lag > LATE:
            yield Finding(
                "resources",
                Severity.WARNING,
                f"the event loop of {each.title} is {numbers.duration(each.lag)} late: calls to it wait as long",
                "The machine is overloaded, or a function holds the GIL. Run such functions in processes of their own",
                "lab.map(fn, docs, executor='process')",
                {"process": each.title, "lag": each.lag},
            )
        if each.memory_limit is not None and each.memory > NEARLY * each.memory_limit:
            yield Finding(
                "resources",
                Severity.WARNING,
                f"{each.title} has {numbers.size(each.memory)} of {numbers.size(each.memory_limit)} in memory; Dask "
                "ends it near the limit",
                "Give workers more memory",
                values={"process": each.title, "memory": each.memory, "limit": each.memory_limit},
            )


def jobs(facts: Facts) -> Iterator[Finding]:
    """Find queues that end with a job; the alerts tell which workers leave soon."""
    registry = facts.registry
    for worker in () if registry.shared_logs else facts.workers:
        for queue in facts.hosting(worker.address):
            if worker.job_left is not None and registry.directories.get(queue) is None:
                yield Finding(
                    "jobs",
                    Severity.WARNING,
                    f"queue {queue} is on the machine of {worker.title}, whose job ends in "
                    f"{numbers.duration(worker.job_left)}: what it holds then is LOST, unless another job of this "
                    "cluster runs there",
                    "Keep queues where all jobs see them",
                    "dq.connect(cluster, store='/scratch/me/runs')",
                    {"queue": queue, "worker": worker.address, "left": worker.job_left},
                )


# --- shards and stores ----------------------------------------------------------------------


def shards(facts: Facts) -> Iterator[Finding]:
    """Find shards and consumers that are gone, or not made."""
    addresses = {worker.address for worker in facts.workers}
    for actor in facts.actors:
        severity, wrong, advice = Severity.PROBLEM, "", "Open the queue again; what a durable one held is in its store"
        if actor.gone is not None:
            wrong = f"is gone: {actor.gone.strip().removesuffix('.')}"
        elif actor.failure and not actor.made:
            wrong = f"cannot open its log: {actor.failure.strip().removesuffix('.')}"
            advice = (
                "It is opened again by itself, once a minute at least, and runs go on then. Check its disk, then have "
                "it opened at once"
            )
        elif not actor.made:
            severity, wrong = Severity.WARNING, "is being opened; calls to it wait"
            advice = "Look again in some seconds. If it stays so, no worker can take it: see the other findings"
        elif addresses and actor.address not in addresses:
            wrong = f"is registered on {actor.address}, which is not a worker of this cluster any more"
        if wrong:
            line = f"lab.queue({actor.queue!r})" if actor.is_shard else "consumers.start()"
            values = {"name": actor.name, "queue": actor.queue, "worker": actor.address}
            yield Finding("shards", severity, f"{actor.title} {wrong}", advice, line, values)


def unusable(name: str, directory: str, probe: Probe) -> str:
    """Return why a process, called by its name, cannot keep queues in a directory, and "" where it can."""
    kind = probe.filesystem or "type unknown"
    if probe.error:
        return f"{name} cannot use store {directory}: {probe.error}"
    if probe.marker == "missing":
        there = "it does not see what this process writes there"
        return f"{name} has another directory under the path {directory}: {there}"
    if not probe.writable:
        return f"{name} cannot write to store {directory}"
    if probe.lock != "held":
        says = "gives the same lock twice" if probe.lock == "ignored" else "supports no locks"
        return f"the file system of {directory} ({kind}) {says}, as {name} sees it: no queue can be kept there"
    if probe.marker == "unlocked":
        return (
            f"{name} does not see locks that this process holds in {directory} ({kind}): two processes could write to "
            "one queue"
        )
    return ""


def stores(facts: Facts) -> Iterator[Finding]:
    """Judge each store as this process and the workers see it."""
    for store in facts.stores:
        found = list(_store(facts, store))
        yield from found
        if not found:
            made = "" if store.made else " (made with its first queue)"
            kind = store.filesystem or "an unknown file system"
            what = f"{store.directory}{made} on {kind}, locks work, {numbers.size(store.free)} free"
            yield Finding("store", Severity.OK, what, values={"directory": store.directory})


def _store(facts: Facts, store: Probe) -> Iterator[Finding]:
    def finding(severity: Severity, what: str, advice: str, command: str, **values: object) -> Finding:
        return Finding("store", severity, what, advice, command, {"directory": store.directory} | values)

    views = [("this process", "", store)]
    for worker in facts.workers:
        hosts = facts.registry.hosts
        if not hosts or worker.address in hosts or facts.hosting(worker.address):
            seen = [probe for probe in worker.stores if probe.directory == store.directory]
            views += [(worker.title, worker.address, probe) for probe in seen]
    for name, address, probe in views:
        if why := unusable(name, store.directory, probe):
            # Only the workers need it, and they may have another machine.
            far = not address and bool(probe.error)
            advice = "Have it mounted there under the same path, writable and with locks (NFS: without `nolock` and "
            advice += "`local_lock`; Lustre: with `-o flock`), or use another directory"
            severity = Severity.NOTE if far else Severity.PROBLEM
            yield finding(severity, why, advice, f"df {store.directory}", worker=address)
    usable = [probe for *_, probe in views if not probe.error]
    if any(probe.shared for probe in usable):
        yield finding(
            Severity.NOTE,
            f"store {store.directory} is on a file system that other machines may see ({usable[0].filesystem}): each "
            "confirmation may wait for a server, and a queue is not taken over from an owner that hangs without "
            "letting go of its lock",
            "A local disk is faster and safer where one machine hosts all queues",
            "dask worker ADDRESS --resources dq-queue=1",
        )
    free = min((probe.free for probe in usable), default=LITTLE)
    if free < LITTLE:
        full = free < 2 * LogOptions().reserve_bytes
        yield finding(
            Severity.PROBLEM if full else Severity.WARNING,
            f"{numbers.size(free)} are free for store {store.directory}: {'no' if full else 'soon no'} new message is "
            "taken in",
            "Delete files, drop runs that are finished, and compact",
            "lab.gc()",
            free=free,
        )


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
    for alert in facts.snapshot.attention:
        yield _finding(facts, alert)
    runs = facts.snapshot.runs
    for queue in facts.snapshot.queues:
        dead = at_rest(queue, runs, all_runs=facts.snapshot.runs_total == len(runs))
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
    refused = StopReason.REFUSED, StopReason.CALLS_REFUSED
    return any(run.name == name and run.stop in refused for run in facts.snapshot.runs)


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
