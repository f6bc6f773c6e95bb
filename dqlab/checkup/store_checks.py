"""Checks of stores: one directory for all processes, with locks and room, and the files of its queues.

`stores` judges the directory, `files` its contents and what opening them found.
"""

from __future__ import annotations

from collections.abc import Iterator

from dqlab import numbers
from dqlab.checkup.facts import Facts, ShardFacts, StoreFacts, WorkerFacts
from dqlab.checkup.findings import Finding
from dqlab.log import LogOptions
from dqlab.numbers import many
from dqlab.stats import Severity
from dqlab.store.inspection import SurveyedShard
from dqlab.store.probe import Probe

__all__ = ["files", "files_fine", "stores", "stores_fine"]

LITTLE = 1_000_000_000
"""Free bytes below which a store is short of room."""
FULL = 64 << 20
"""Free bytes below which a missing reserve was given up to a full disk; a repaired log has no reserve either."""
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def stores(facts: Facts) -> Iterator[Finding]:
    """Judge each store as this process and the workers see it."""
    for store in facts.stores:
        yield from _from_here(facts, store)
        for worker in facts.answering:
            seen = worker.probe(store.directory)
            if seen is not None and _may_host(facts, worker):
                yield from _from_worker(store, worker, seen)
        views = [store.probe, *(seen for worker in facts.answering if (seen := worker.probe(store.directory)))]
        usable = [view for view in views if not view.error]
        if usable:
            yield from _file_system(store, usable[0])
            yield from _space(store, min(usable, key=lambda view: view.free))


def stores_fine(facts: Facts) -> str:
    """Return where queues are kept, and on what."""
    parts = []
    for store in facts.stores:
        seen = sum(worker.probe(store.directory) is not None for worker in facts.answering)
        by = f", seen by {many(seen, 'worker')}" if seen else ""
        free = f"{numbers.size(store.probe.free)} free" if store.probe.free else "free space not known here"
        where = store.directory if store.probe.made else f"{store.directory} (made with its first queue)"
        parts.append(f"{where} on {store.probe.filesystem or 'an unknown file system'}, locks work{by}, {free}")
    return "; ".join(parts)


def _from_here(facts: Facts, store: StoreFacts) -> Iterator[Finding]:
    probe = store.probe
    if probe.error:
        alone = facts.scheduler is None
        yield _finding(
            Severity.PROBLEM if alone else Severity.NOTE,
            f"store {store.directory} cannot be looked at from this process: {probe.error}",
            "Look at its disk, its mount and its server" if alone else "Only workers need it; on a machine of theirs",
            f"df {store.directory}" if alone else f"dqlab doctor --store {store.directory}",
            directory=store.directory,
        )
    else:
        yield from _usable("this process", store, probe)


def _from_worker(store: StoreFacts, worker: WorkerFacts, probe: Probe) -> Iterator[Finding]:
    values = {"directory": store.directory, "worker": worker.address}
    if probe.error:
        yield _finding(
            Severity.PROBLEM,
            f"{worker.title} would host queues and cannot use store {store.directory}: {probe.error}",
            "Mount it there under the same path, or choose a directory that all workers have",
            **values,
        )
        return
    if probe.marker == "missing":
        yield _finding(
            Severity.PROBLEM,
            f"{worker.title} has another directory under the path {store.directory}: it does not see what this process "
            "writes there",
            "Choose a directory on a file system that both share, or connect from the worker's machine",
            device=probe.device,
            inode=probe.inode,
            **values,
        )
    elif probe.marker == "unlocked" and probe.lock == "held":
        yield _finding(
            Severity.PROBLEM,
            f"{worker.title} does not see locks that this process holds in {store.directory} ({_type(probe)}): two "
            "processes could write to one queue",
            "Have it mounted with locks for all machines (NFS: without `nolock` and `local_lock`; Lustre: with "
            "`flock`), or use another directory",
            "mount | grep -E 'nfs|lustre'",
            **values,
        )
    yield from _usable(worker.title, store, probe)


def _usable(name: str, store: StoreFacts, probe: Probe) -> Iterator[Finding]:
    values = {"directory": store.directory, "filesystem": probe.filesystem, "lock": probe.lock, "who": name}
    if not probe.writable:
        yield _finding(
            Severity.PROBLEM,
            f"{name} cannot write to store {store.directory}",
            "Give its user the right to, or see whether the disk is full or mounted read-only",
            f"ls -ld {store.directory}",
            **values,
        )
    elif probe.lock != "held":
        says = "gives the same lock twice" if probe.lock == "ignored" else "supports no locks"
        yield _finding(
            Severity.PROBLEM,
            f"the file system of {store.directory} ({_type(probe)}) {says}, as {name} sees it: durable queues are "
            "refused there (LockUnsupported)",
            "Use a directory on another file system; on Lustre have it mounted with `-o flock`",
            "dq.connect(store='/another/directory')",
            **values,
        )


def _file_system(store: StoreFacts, probe: Probe) -> Iterator[Finding]:
    values = {"directory": store.directory, "filesystem": probe.filesystem}
    if probe.filesystem in _IN_MEMORY:
        yield _finding(
            Severity.WARNING,
            f"store {store.directory} lies in memory ({probe.filesystem}): a restart of the machine takes all of it",
            "Use a directory on a disk",
            **values,
        )
    elif probe.shared:
        yield _finding(
            Severity.NOTE,
            f"store {store.directory} is on a file system that other machines may see ({_type(probe)}): each "
            "confirmation may wait for a server, and a queue is not taken over from an owner that hangs without "
            "letting go of its lock",
            "A local disk is faster and safer where one machine hosts all queues",
            "dask worker ADDRESS --resources dq-queue=1",
            **values,
        )


def _space(store: StoreFacts, probe: Probe) -> Iterator[Finding]:
    reserve = LogOptions().reserve_bytes
    if probe.free >= LITTLE:
        return
    none = probe.free < 2 * reserve
    takes = "no new message is taken in" if none else "soon no new message is taken in"
    yield _finding(
        Severity.PROBLEM if none else Severity.WARNING,
        f"{numbers.size(probe.free)} are free for store {store.directory}; each shard keeps {numbers.size(reserve)} "
        f"in reserve, and {takes}",
        "Delete files, drop runs that are finished, and compact",
        "lab.gc()",
        directory=store.directory,
        free=probe.free,
    )


def _may_host(facts: Facts, worker: WorkerFacts) -> bool:
    return facts.registry is None or worker.address in facts.registry.hosts or bool(facts.hosting(worker.address))


def _type(probe: Probe) -> str:
    return probe.filesystem or "type unknown"


def _finding(severity: Severity, what: str, advice: str, command: str = "", **values: object) -> Finding:
    return Finding("store", severity, what, advice, command, values)


def files(facts: Facts) -> Iterator[Finding]:
    """Judge the files of stored queues, and what opening them found."""
    for store in facts.stores:
        if store.error:
            text = f"the files of store {store.directory} were not looked at: {store.error}"
            yield _file(Severity.NOTE, text, "Give it more time", "", directory=store.directory)
        for shard in store.shards:
            yield from _stored(facts, shard)
            if not shard.reserve and shard.epoch and store.probe.free < FULL:
                yield _short(shard)
    for worker in facts.workers:
        for opened in worker.shards:
            yield from _opened(opened)


def files_fine(facts: Facts) -> str:
    """Return how many shards were examined, and how many are open."""
    shards = [shard for store in facts.stores for shard in store.shards]
    held = sum(shard.open for shard in shards)
    formats = ", ".join(sorted({shard.format for shard in shards if shard.format})) or "none yet"
    return f"{many(len(shards), 'stored shard')} whole, {held} open, format {formats}"


def _stored(facts: Facts, shard: SurveyedShard) -> Iterator[Finding]:
    name, values = f"shard {shard.index} of queue {shard.queue}", {"directory": shard.directory}
    fsck = f"dqlab fsck {shard.directory}"
    if shard.error:
        yield _file(
            Severity.PROBLEM,
            f"{name} cannot be read: {shard.error.removesuffix('.')}",
            "See what it has",
            fsck,
            **values,
        )
    if shard.missing:
        text = f"{name} lacks {many(len(shard.missing), 'file')}: {', '.join(shard.missing[:3])}"
        yield _file(Severity.PROBLEM, text, "Put them back from a copy, or save the rest", fsck, **values)
    if shard.damaged:
        text = f"{many(len(shard.damaged), 'checkpoint')} of {name} cannot be read"
        yield _file(Severity.WARNING, text, "See whether anything is lost by it", fsck, **values)
    if shard.quarantined:
        text = f"{name} has put {many(shard.quarantined, 'damaged file')} aside in quarantine/"
        yield _file(
            Severity.WARNING, text, "See what was lost; delete quarantine/ when it is of no more use", fsck, **values
        )
    yield from _held(facts, shard, name)


def _short(shard: SurveyedShard) -> Finding:
    text = (
        f"shard {shard.index} of queue {shard.queue} has no reserve, and its disk is full: it takes in no new message"
    )
    advice = "Make room; it takes the reserve back by itself"
    return _file(Severity.WARNING, text, advice, "lab.gc()", directory=shard.directory)


def _held(facts: Facts, shard: SurveyedShard, name: str) -> Iterator[Finding]:
    holder = shard.holder
    if holder is None or holder.held is False:
        return
    ours = {(process.host, process.pid) for _, process in facts.processes}
    values = {"directory": shard.directory, "host": holder.host, "pid": holder.pid}
    if shard.queue in facts.silenced:  # its worker, which `answers` names, may be the holder
        return
    if holder.held and (holder.host, holder.pid) not in ours:
        known = "" if facts.scheduler is None else ", which is not a process of this cluster"
        advice = "Only that process can use the queue; to share it, connect to its cluster. What it is"
        text = f"{name} is open in process {holder.pid} on {holder.host}{known}"
        yield _file(Severity.NOTE, text, advice, f"ps -fp {holder.pid}", **values)
    elif holder.held is None and not shard.clean and (holder.host, holder.pid) not in ours:
        text = (
            f"{name} was last opened by process {holder.pid} on {holder.host}; whether it still is cannot be seen here"
        )
        yield _file(Severity.NOTE, text, "Look there", f"ssh {holder.host} ps -p {holder.pid}", **values)


def _opened(shard: ShardFacts) -> Iterator[Finding]:
    log = shard.log
    if log is None:
        return
    values = {"directory": log["directory"], "lock": log["lock"]}
    if log["lock"] == "bypassed":
        yield _file(
            Severity.WARNING,
            f"lock: bypassed. {shard.name} was taken over while its last owner still held the lock; the epoch "
            "keeps that one from writing",
            "See whether the old process hangs, and end it",
            f"fuser -v {log['directory']}/LOCK",
            **values,
        )
    elif log["lock"] == "unsupported":
        yield _file(
            Severity.WARNING,
            f"{shard.name} is open without a lock, because its file system has none",
            "Make sure that no other process opens it, or move the store",
            **values,
        )
    if log["corrupt"] or log["checkpoint_lost"]:
        lost = "its checkpoints could not be read" if log["checkpoint_lost"] else many(log["corrupt"], "damaged place")
        text = f"opening {shard.name} found damage: {lost}"
        yield _file(Severity.WARNING, text, "See which messages are lost", f"dqlab fsck {log['directory']}", **values)
    if not log["room"]:
        yield _file(
            Severity.PROBLEM,
            f"{shard.name} takes in no new message: its disk or quota is full",
            "Make room: delete files, drop runs that are finished, compact",
            "lab.gc()",
            **values,
        )


def _file(severity: Severity, what: str, advice: str, command: str = "", **values: object) -> Finding:
    return Finding("files", severity, what, advice, command, values)
