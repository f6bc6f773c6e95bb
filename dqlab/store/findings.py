"""The findings of a check: how bad each one is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from dqlab.log import RecordType

__all__ = ["Finding", "FsckReport", "Level", "QueueCheck", "ShardCheck", "describe_ids", "loss_of"]

SCHEMA = 1


class Level(IntEnum):
    """How bad a finding is; the worst one is the exit status."""

    CLEAN = 0
    """Nothing to do."""
    DAMAGED = 1
    """Something has changed since it was written, and nothing is lost."""
    LOST = 2
    """Messages, results or other facts are gone."""
    UNREADABLE = 3
    """It cannot be opened as it is."""


_NEXT = {
    Level.CLEAN: "Nothing to do.",
    Level.DAMAGED: "Opening the queue is safe and repairs it.",
    Level.LOST: (
        "Make a copy of the directory first. Then open the queue and put the lost messages again, "
        "or take what is left with `dqlab fsck DIR --repair NEWDIR`."
    ),
    Level.UNREADABLE: "Put the file back from a copy, or save the rest with `dqlab fsck DIR --repair NEWDIR`.",
}

_LOSSES = {
    RecordType.SETTLE: "a settlement is damaged: its results are gone, and its messages are delivered again",
    RecordType.STATE: "a change of states is damaged: some messages are in the state before it",
    RecordType.RUN: "an order is damaged: a run may be unknown, or go on as if the order had not been given",
    RecordType.FUNCTION: "a function is damaged: runs that need it fail until they are retried with it",
    RecordType.LEASE: "an early ack is damaged: its messages may be delivered a second time",
}


def loss_of(type: int | None) -> tuple[Level, str]:
    """Return how bad damage to a record behind the checkpoint is, and what it means; not for PUT."""
    if type is None:
        return Level.LOST, "damaged bytes; what records they held is not known"
    if type in _LOSSES:
        return Level.LOST, _LOSSES[RecordType(type)]
    return Level.DAMAGED, "a record of the log's own is damaged, and it holds no message"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes
    ----------
    level : Level
        How bad it is.
    text : str
        A sentence without its period: what it is and what it means.
    file : str
        Name in the shard's directory, "" when the finding is about no single file.
    offset, nbytes : int
        Which bytes of it.
    lost : tuple of (int, int)
        Ids of messages that are lost, half-open ranges.
    then : str, optional
        What to do next; by default the advice for the level.
    """

    level: Level
    text: str
    file: str = ""
    offset: int = 0
    nbytes: int = 0
    lost: tuple[tuple[int, int], ...] = ()
    then: str = ""

    @property
    def advice(self) -> str:
        """What to do next."""
        return self.then or _NEXT[self.level]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return asdict(self) | {"level": int(self.level), "then": self.advice}

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        if self.nbytes:
            where = f"{self.file}, bytes {self.offset:,} to {self.offset + self.nbytes:,}: "
        ids = f"; lost: {describe_ids(self.lost)}" if self.lost else ""
        return f"{where}{self.text}{ids}."


@dataclass(frozen=True)
class ShardCheck:
    """What was found in one shard.

    Attributes
    ----------
    lost, lost_results : tuple of (int, int)
        Ids of lost messages, and of acked ones whose results are lost; half-open ranges.
    counts : dict
        Messages of each run by state, without the lost ones.
    """

    index: int
    directory: str
    findings: tuple[Finding, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    lost_results: tuple[tuple[int, int], ...] = ()
    counts: dict[str, dict[str, int]] | None = None
    segments: int = 0
    records: int = 0

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        return max((finding.level for finding in self.findings), default=Level.CLEAN)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        findings = [finding.to_dict() for finding in self.findings]
        return asdict(self) | {"status": int(self.level), "findings": findings}


@dataclass(frozen=True)
class QueueCheck:
    """What was found in one queue; `findings` are those about no single shard."""

    name: str
    directory: str
    findings: tuple[Finding, ...]
    shards: tuple[ShardCheck, ...]

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        worst = max((finding.level for finding in self.findings), default=Level.CLEAN)
        return max((worst, *(shard.level for shard in self.shards)))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        findings, shards = [f.to_dict() for f in self.findings], [shard.to_dict() for shard in self.shards]
        return asdict(self) | {"status": int(self.level), "findings": findings, "shards": shards}


@dataclass(frozen=True)
class FsckReport:
    """What was found in all queues."""

    directory: str
    queues: tuple[QueueCheck, ...]

    @property
    def level(self) -> Level:
        """The level of the worst finding."""
        return max((queue.level for queue in self.queues), default=Level.CLEAN)

    def shards(self) -> Iterator[ShardCheck]:
        """Yield the shards of all queues."""
        for queue in self.queues:
            yield from queue.shards

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON; `status` is the exit status."""
        queues = [queue.to_dict() for queue in self.queues]
        return {"schema": SCHEMA, "status": int(self.level), "directory": self.directory, "queues": queues}


def describe_ids(ranges: Iterable[tuple[int, int]]) -> str:
    """Return half-open ranges of ids in words, at most eight of them."""
    spans = list(ranges)
    total = sum(hi - lo for lo, hi in spans)
    words = [str(lo) if hi == lo + 1 else f"{lo} to {hi - 1}" for lo, hi in spans[:8]]
    more = f" and {len(spans) - 8:,} more ranges" if len(spans) > 8 else ""
    return (
        f"{total:,} {'message' if total == 1 else 'messages'}, {'id' if total == 1 else 'ids'} "
        + ", ".join(words)
        + more
    )
