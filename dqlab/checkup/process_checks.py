"""Checks of the processes of a cluster: whether they answer and how they are reached, what they run and host.

All must run the same versions, with dqlab and the packages of functions installed; shards and consumers must not stand
in each other's way; clocks may differ by a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dqlab import numbers
from dqlab.checkup.facts import Actor, Facts, Process, Registered, WorkerFacts
from dqlab.checkup.findings import Finding
from dqlab.numbers import few_of, many
from dqlab.stats import Severity

__all__ = [
    "answers",
    "answers_fine",
    "clocks",
    "clocks_fine",
    "connections",
    "connections_fine",
    "imports",
    "imports_fine",
    "placement",
    "placement_fine",
    "plugins",
    "plugins_fine",
    "versions",
    "versions_fine",
]

SKEW = 1.0
"""Seconds by which clocks may differ."""


def answers(facts: Facts) -> Iterator[Finding]:
    """Find the processes that do not answer."""
    scheduler = facts.scheduler
    if scheduler is None:
        return
    if scheduler.process is None:
        yield Finding(
            "answers",
            Severity.PROBLEM,
            f"the scheduler at {scheduler.address} does not answer: {scheduler.silence}",
            "See whether its process lives and can be reached from here. If it is gone, durable queues are in their "
            "store; connect again",
            "lab = dq.connect(...)",
            {"address": scheduler.address, "silence": scheduler.silence},
        )
        return
    if not facts.workers:
        yield Finding(
            "answers",
            Severity.PROBLEM,
            "the cluster has no worker: nothing can be queued and nothing runs",
            "Close this lab and connect again; durable queues are in their store"
            if facts.embedded
            else "Start some; with a scheduler of your own",
            "lab.close(); lab = dq.connect(...)"
            if facts.embedded
            else f"dask worker {scheduler.address} --nworkers 3 --nthreads 1",
        )
    for worker in facts.workers:
        if worker.process is None:
            yield _silent(facts, worker)
        elif worker.unsent:
            yield _unreported(f"{worker.title} could not send", worker.unsent, "that worker's", worker.address)
    if facts.registry is not None and facts.registry.untaken:
        yield _unreported("the scheduler could not read", facts.registry.untaken, "the scheduler's", scheduler.address)


def _unreported(name: str, amount: int, owner: str, address: str) -> Finding:
    return Finding(
        "answers",
        Severity.WARNING,
        f"{name} {many(amount, 'report')}: statistics and views may be out of date; messages and results are complete",
        f"This is a defect of dqlab. Please report what follows event=report_not in {owner} log",
        values={"address": address, "reports": amount},
    )


def _silent(facts: Facts, worker: WorkerFacts) -> Finding:
    hosted = facts.hosting(worker.address)
    holds = f"; it holds queue {', '.join(hosted)}" if hosted else ""
    last_beat = f"its last heartbeat came {numbers.duration(worker.silent)} ago"
    return Finding(
        "answers",
        Severity.PROBLEM,
        f"{worker.title} does not answer: {worker.silence}; {last_beat}{holds}",
        "Its process hangs, is stopped, or holds the GIL in native code. Restart it: what its consumers hold "
        "is delivered again, and its queues are opened by another worker",
        f"lab.client.restart_workers([{worker.address!r}])",
        {"worker": worker.address, "name": worker.name, "silence": worker.silence, "queues": hosted},
    )


def answers_fine(facts: Facts) -> str:
    """Return which processes answered."""
    return f"the scheduler and {many(len(facts.workers), 'worker')} answer"


def connections(facts: Facts) -> Iterator[Finding]:
    """Find workers that this process reaches only through the scheduler."""
    proxied = [worker for worker in facts.answering if worker.path == "proxied"]
    advice = "Run this process where the workers can be reached: see interface= of Dask's workers, and firewalls"
    if proxied:
        names = ", ".join(worker.title for worker in proxied[:3]) + (" and others" if len(proxied) > 3 else "")
        yield Finding(
            "connections",
            Severity.WARNING,
            f"this process reaches {len(proxied)} of {len(facts.workers)} workers through the scheduler only "
            f"({names}): what goes through it is several times slower, and the scheduler carries every message",
            advice,
            values={"proxied": [worker.address for worker in proxied]},
        )
    elif not facts.direct:
        yield Finding(
            "connections",
            Severity.WARNING,
            "this lab sends everything through the scheduler, because a worker could not be reached when it connected; "
            "by now all can be",
            "Close the lab and connect again",
            "lab.close()",
        )


def connections_fine(facts: Facts) -> str:
    """Return how workers are reached."""
    direct = sum(worker.path == "direct" for worker in facts.workers)
    return f"{many(direct, 'worker')} reached directly from here"


def clocks(facts: Facts) -> Iterator[Finding]:
    """Find clocks that are wrong, on which times in tables depend and leases do not."""
    for name, process in facts.processes[1:]:
        off = abs(process.skew) - process.doubt
        if off > SKEW:
            side = "ahead of" if process.skew > 0 else "behind"
            yield Finding(
                "clocks",
                Severity.WARNING,
                f"the clock of {name} is {numbers.duration(abs(process.skew))} {side} this process's; times of runs "
                "and failures are wrong by as much, leases are not",
                f"Set the clock of host {process.host} by NTP",
                "timedatectl set-ntp true",
                {"who": name, "skew": process.skew, "doubt": process.doubt},
            )


def clocks_fine(facts: Facts) -> str:
    """Return how far apart clocks are."""
    most = max((max(0.0, abs(process.skew) - process.doubt) for _, process in facts.processes), default=0.0)
    return "all show the same time" if most < 0.1 else f"at most {numbers.duration(most)} apart"


_SERIOUS = ("dask", "distributed", "cloudpickle")
_NONE = "none"


def versions(facts: Facts) -> Iterator[Finding]:
    """Compare the versions of every process with those of this one."""

    def of_package(name: str) -> Callable[[Process], str]:
        return lambda process: _text(process.packages.get(name))

    yield from _differing(facts, "protocol of dqlab", lambda process: _text(process.protocol), Severity.PROBLEM)
    yield from _differing(facts, "dqlab", lambda process: _text(process.version), Severity.WARNING)
    # Functions are pickled as byte code, which differs between minor versions of Python.
    if len({_minor(process.python) for _, process in facts.processes}) > 1:
        yield from _differing(facts, "Python", lambda process: _minor(process.python), Severity.PROBLEM)
    else:
        yield from _differing(facts, "Python", lambda process: process.python, Severity.NOTE)
    for package in sorted(set().union(*(process.packages for _, process in facts.processes))):
        severity = Severity.WARNING if package in _SERIOUS else Severity.NOTE
        yield from _differing(facts, package, of_package(package), severity)


def versions_fine(facts: Facts) -> str:
    """Return which versions run everywhere."""
    ours = facts.client
    where = f"all {len(facts.processes)} processes" if len(facts.processes) > 1 else "this process"
    dask = f", distributed {ours.packages['distributed']}" if ours.packages.get("distributed") else ""
    return f"Python {ours.python}, dqlab {ours.version} (protocol {ours.protocol}){dask} in {where}"


def plugins(facts: Facts) -> Iterator[Finding]:
    """Find out where dqlab is not installed, or not of this version."""
    scheduler = facts.scheduler
    if scheduler is None or scheduler.process is None:
        return
    if scheduler.process.version is None:
        yield _finding(
            Severity.PROBLEM,
            "dqlab cannot be imported on the scheduler",
            "Install it in the scheduler's environment",
            f"pip install 'dqlab=={facts.client.version}'",
        )
        return
    if scheduler.registry is None:
        yield _finding(
            Severity.WARNING,
            "the scheduler has no plugin of this dqlab: no client has connected to it with this version",
            "Connect once, which installs it on the scheduler and on every worker",
            f"dq.connect({scheduler.address!r})",
        )
        return
    for worker in facts.answering:
        if worker.plugin or worker.process is None:
            continue
        values = {"worker": worker.address}
        if worker.process.version is None:
            what = f"dqlab is not installed on {worker.title}"
            advice, line = "Install it in the worker's environment", f"pip install 'dqlab=={facts.client.version}'"
        else:
            what = (
                f"{worker.title} has dqlab {worker.process.version}, and no plugin of it: it hosts and serves no queue"
            )
            advice, line = "Restart the worker", f"lab.client.restart_workers([{worker.address!r}])"
        yield _finding(Severity.PROBLEM, what, advice, line, **values)


def plugins_fine(facts: Facts) -> str:
    """Return where dqlab's plugins are."""
    return f"dqlab's plugins are on the scheduler and on {many(len(facts.answering), 'worker')}"


def imports(facts: Facts) -> Iterator[Finding]:
    """Find packages that some workers lack."""
    lacking: dict[str, list[str]] = {}
    serving = () if facts.registry is None else facts.registry.serving
    unknown = []
    for worker in facts.answering:
        if worker.address in serving and facts.packages:
            unknown += [worker.title] if worker.missing is None else []
            for package in worker.missing or ():
                lacking.setdefault(package, []).append(worker.title)
    if unknown:
        yield Finding(
            "imports",
            Severity.NOTE,
            f"whether {few_of(unknown)} can import what open runs need ({', '.join(facts.packages)}) is not known: "
            "it did not answer in time",
            "Give it more time",
            "lab.doctor(timeout='60s')",
            {"packages": list(facts.packages), "workers": unknown},
        )
    for package, workers in lacking.items():
        yield Finding(
            "imports",
            Severity.PROBLEM,
            f"{package} cannot be imported on {few_of(workers)}, and functions of open runs need it: documents that "
            "come there fail with ImportError",
            "Install it there, then send what failed again with run.retry(). A module of your own must lie where "
            "workers find it",
            f"pip install {package}",
            {"package": package, "workers": workers},
        )


def imports_fine(facts: Facts) -> str:
    """Return which packages were looked for."""
    if not facts.packages:
        return f"no open run needs a package{facts.unknown}"
    return f"every worker can import what open runs need ({', '.join(facts.packages)}){facts.unknown}"


def _differing(facts: Facts, what: str, value: Callable[[Process], str], severity: Severity) -> Iterator[Finding]:
    """Yield one finding that names the processes with another version than this one."""
    ours = value(facts.client)
    others: dict[str, list[str]] = {}
    for name, process in facts.processes:
        if value(process) != ours and not ("dqlab" in what and value(process) == _NONE):  # `plugins` reports none
            others.setdefault(value(process), []).append(name)
    if not others:
        return
    text = "; ".join(f"{theirs} on {few_of(names)}" for theirs, names in others.items())
    advice, line = "Give all of them the same version", ""
    if what == "Python":
        advice = "Functions of a notebook do not cross minor versions of Python: start all in one environment"
        if severity is Severity.NOTE:
            advice = "Usually harmless; one environment for all is safer"
    elif "dqlab" not in what:
        line = f"pip install '{what}=={ours}'" if ours != _NONE else ""
    else:
        advice = "Install the same dqlab in all environments"
        line = f"pip install 'dqlab=={facts.client.version}'"
    values = {"package": what, "here": ours, "elsewhere": others}
    yield Finding("versions", severity, f"{what} is {ours} here, and {text}", advice, line, values)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _text(value: object) -> str:
    return _NONE if value is None else str(value)


def _finding(severity: Severity, what: str, advice: str, command: str, **values: object) -> Finding:
    return Finding("plugins", severity, what, advice, command, values)


def placement(facts: Facts) -> Iterator[Finding]:
    """Judge where shards and consumers are."""
    registry = facts.registry
    if registry is None:
        return
    if registry.shared and facts.workers:
        few = many(len(facts.workers), "worker")
        yield Finding(
            "placement",
            Severity.WARNING,
            f"the cluster has {few}, so queues share a worker with functions: one that holds the GIL stalls them",
            "Workers that are missing are made again in seconds; if they stay away, close this lab and connect again"
            if facts.embedded
            else "Start three workers or more, so that one is kept for queues, or mark one with a resource",
            "lab.close(); lab = dq.connect(...)"
            if facts.embedded
            else "dask worker ADDRESS --nthreads 1 --resources dq-queue=1",
            {"workers": len(facts.workers)},
        )
    for actor in registry.actors:
        yield from _actor(facts, actor)
        if actor.is_shard and not registry.shared and actor.address in registry.serving and actor.gone is None:
            yield _beside_functions(facts, actor)
    yield from _unserved(facts, registry)


def _actor(facts: Facts, actor: Actor) -> Iterator[Finding]:
    values = {"name": actor.name, "worker": actor.address, "epoch": actor.epoch}
    what = _called(actor)
    if actor.gone is not None:
        advice, line = "Restart its consumers", "consumers.start()"
        if actor.is_shard:
            advice = "Open the queue again; what a durable one held is in its store"
            line = f"lab.queue({actor.queue!r})"
        yield Finding("placement", Severity.PROBLEM, f"{what} is gone: {_sentence(actor.gone)}", advice, line, values)
    elif not actor.made and actor.failure:
        yield Finding(
            "placement",
            Severity.PROBLEM,
            f"the log of {what} fails: {_sentence(actor.failure)}",
            "It is opened again by itself, once a minute at least, and runs go on then. Check its disk, then have it "
            "opened at once",
            f"lab.queue({actor.queue!r})",
            values,
        )
    elif not actor.made:
        yield Finding(
            "placement",
            Severity.WARNING,
            f"{what} is being opened, epoch {actor.epoch}; calls to it wait",
            "Look again in some seconds. If it stays so, no worker can take it: see the other findings",
            values=values,
        )
    elif facts.workers and all(worker.address != actor.address for worker in facts.workers):
        yield Finding(
            "placement",
            Severity.PROBLEM,
            f"{what} is registered on {actor.address}, which is not a worker of this cluster any more",
            "Open its queue again",
            f"lab.queue({actor.queue!r})",
            values,
        )


def _beside_functions(facts: Facts, actor: Actor) -> Finding:
    worker = next((worker.title for worker in facts.workers if worker.address == actor.address), actor.address)
    durable = facts.registry is not None and any(
        queue.name == actor.queue and queue.directory is not None for queue in facts.registry.queues
    )
    stays = "it loses nothing by that" if durable else "in memory it loses all by that, so wait until it is empty"
    return Finding(
        "placement",
        Severity.WARNING,
        f"{_called(actor)} lives on {worker}, which runs functions too, though another worker is kept for queues: a "
        "function that holds the GIL stalls it",
        f"To move it close the queue, and open it again ({stays})",
        f"lab.queue({actor.queue!r}).close(force=True); lab.queue({actor.queue!r})",
        {"name": actor.name, "worker": actor.address},
    )


def _unserved(facts: Facts, registry: Registered) -> Iterator[Finding]:
    """Find workers that should have a consumer and have none."""
    for queue in registry.served:
        there = {actor.address for actor in registry.actors if actor.queue == queue and not actor.is_shard}
        bare = [
            worker for worker in facts.workers if worker.address in registry.serving and worker.address not in there
        ]
        if bare:
            names = ", ".join(worker.title for worker in bare[:3]) + (" and others" if len(bare) > 3 else "")
            yield Finding(
                "placement",
                Severity.WARNING,
                f"queue {queue} has no consumer on {names}; work goes on without them",
                "Look for `spawn_failed` in the scheduler's log; a worker that is restarted is given its consumers",
                f"lab.client.restart_workers({[worker.address for worker in bare]!r})",
                {"queue": queue, "workers": [worker.address for worker in bare]},
            )


def placement_fine(facts: Facts) -> str:
    """Return which workers host which shards and consumers."""
    registry = facts.registry
    if registry is None or not registry.actors:
        return "no queue is open"
    shards = [actor for actor in registry.actors if actor.is_shard]
    consumers = [actor for actor in registry.actors if not actor.is_shard]
    processes = {worker.address: worker for worker in facts.workers}
    parts = []
    for shard in shards[:3]:
        worker = processes.get(shard.address)
        process = None if worker is None else worker.process
        where = "" if process is None else f", pid {process.pid} on {process.host}"
        name = shard.address if worker is None else f"worker {worker.name}"
        parts.append(f"{_called(shard)} on {name}{where}, epoch {shard.epoch}")
    if len(shards) > 3:
        parts.append(f"{len(shards) - 3} more shards")
    on = len({actor.address for actor in consumers})
    return "; ".join([*parts, f"{many(len(consumers), 'consumer')} on {many(on, 'worker')}"])


def _called(actor: Actor) -> str:
    kind, _, rest = actor.name.partition("/")
    queue, _, number = rest.rpartition("/")
    return f"shard {number} of queue {queue}" if kind == "queue" else f"consumer {number} of queue {queue}"


def _sentence(text: str) -> str:
    return text.strip().removesuffix(".")
