"""Checks the files of stored queues, and what opening them found."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab.checkup.facts import Facts, ShardFacts
from dqlab.checkup.findings import Finding
from dqlab.numbers import many
from dqlab.stats import Severity
from dqlab.store.inspection import SurveyedShard

__all__ = ["files", "files_fine"]


LITTLE = 64 << 20
"""Bytes of free space below which a missing reserve was given up to a full disk; a repaired log never had one."""


def files(facts: Facts) -> Iterator[Finding]:
    """Judge the files of stored queues, and what opening them found."""
    for store in facts.stores:
        if store.error:
            said = f"the files of store {store.directory} were not looked at: {store.error}"
            yield _file(Severity.NOTE, said, "Give it more time", "", directory=store.directory)
        for shard in store.shards:
            yield from _stored(facts, shard)
            if not shard.reserve and shard.epoch and store.probe.free < LITTLE:
                yield _short(shard)
    for worker in facts.workers:
        for opened in worker.shards:
            yield from _opened(opened)


def files_fine(facts: Facts) -> str:
    """Say how many queues were looked at, and how many are open."""
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
        said = f"{name} lacks {many(len(shard.missing), 'file')}: {', '.join(shard.missing[:3])}"
        yield _file(Severity.PROBLEM, said, "Put them back from a copy, or save the rest", fsck, **values)
    if shard.damaged:
        said = f"{many(len(shard.damaged), 'checkpoint')} of {name} cannot be read"
        yield _file(Severity.WARNING, said, "See whether anything is lost by it", fsck, **values)
    if shard.quarantined:
        said = f"{name} has put {many(shard.quarantined, 'damaged file')} aside in quarantine/"
        yield _file(
            Severity.WARNING, said, "See what was lost; delete quarantine/ when it is of no more use", fsck, **values
        )
    yield from _held(facts, shard, name)


def _short(shard: SurveyedShard) -> Finding:
    said = (
        f"shard {shard.index} of queue {shard.queue} has no reserve, and its disk is full: it takes in no new message"
    )
    advice = "Make room; it takes the reserve back by itself"
    return _file(Severity.WARNING, said, advice, "lab.gc()", directory=shard.directory)


def _held(facts: Facts, shard: SurveyedShard, name: str) -> Iterator[Finding]:
    holder = shard.holder
    if holder is None or holder.held is False:
        return
    ours = {(process.host, process.pid) for _, process in facts.processes}
    values = {"directory": shard.directory, "host": holder.host, "pid": holder.pid}
    if shard.queue in facts.silenced:  # it is in the hands of a worker that is named for its silence
        return
    if holder.held and (holder.host, holder.pid) not in ours:
        known = "" if facts.scheduler is None else ", which is none of this cluster's"
        advice = "Only that process can use the queue; to share it, connect to its cluster. What it is"
        said = f"{name} is open in process {holder.pid} on {holder.host}{known}"
        yield _file(Severity.NOTE, said, advice, f"ps -fp {holder.pid}", **values)
    elif holder.held is None and not shard.clean and (holder.host, holder.pid) not in ours:
        said = (
            f"{name} was last opened by process {holder.pid} on {holder.host}; whether it still is cannot be seen here"
        )
        yield _file(Severity.NOTE, said, "Look there", f"ssh {holder.host} ps -p {holder.pid}", **values)


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
            "See to it that nobody else opens it, or move the store",
            **values,
        )
    if log["corrupt"] or log["checkpoint_lost"]:
        lost = "its checkpoints could not be read" if log["checkpoint_lost"] else many(log["corrupt"], "damaged place")
        said = f"opening {shard.name} found damage: {lost}"
        yield _file(Severity.WARNING, said, "See which messages are lost", f"dqlab fsck {log['directory']}", **values)
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
