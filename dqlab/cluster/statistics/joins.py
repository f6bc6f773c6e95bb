"""From the reports of shards and consumers to the parts of a Snapshot. Pure: sums, merges and words."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from dqlab.cluster.transport.reports import Running, ShardReport
from dqlab.cluster.transport.run_facts import sum_counts
from dqlab.failures.classes import FailureClass
from dqlab.failures.failure import common_message, shown_name
from dqlab.rules.reports import LaneReport
from dqlab.stats import (
    AGE_EDGES,
    ClassStats,
    Compaction,
    ConsumerStats,
    FailingDocument,
    Failures,
    Held,
    Speed,
    StorageStats,
    Unacked,
    short_name,
)
from dqlab.stats.eta import Effort
from dqlab.stats.snapshot import MAX_CLASSES

__all__ = [
    "Shards",
    "class_stats",
    "classes_of",
    "failed_by_class",
    "failures_of",
    "mark_slow",
    "merged_classes",
    "merged_failures",
    "merged_storage",
    "storage_of",
    "sum_effort",
    "unacked_of",
    "versions_of",
]

OLDEST = 5
DOCUMENTS = 4
UNRENEWED = 20.0
"""Seconds before its end from which a lease counts as not renewed; half its timeout, if that is less."""
SETTLED_IN = 30.0
"""Seconds that a consumer must have worked before it is called slow."""


class Shards(NamedTuple):
    """The latest reports of some shards, and when each of them came, monotonic seconds."""

    reports: Sequence[ShardReport]
    came: Sequence[float]


def sum_effort(lanes: Iterable[LaneReport]) -> Effort:
    """Return what was settled in lanes, and how long it took."""
    return sum((lane.effort for lane in lanes), Effort())


def unacked_of(shards: Shards, now: float, begun: Mapping[str, Running], lately: tuple[int, int]) -> Unacked:
    """Return which consumers hold which messages.

    Parameters
    ----------
    begun : mapping
        What each consumer is running, and for how many seconds by now, by its name.
    lately : (int, int)
        Redeliveries and lost leases of the last ten minutes.
    """
    bins = [0] * (len(AGE_EDGES) + 1)
    past = ending = 0
    timeout: float | None = None
    oldest: list[Held] = []
    for report, came in zip(*shards, strict=True):
        waited = now - came
        for age, left, limit, messages in report.held:
            bins[bisect_right(AGE_EDGES, age + waited)] += messages
            timeout = limit if timeout is None else max(timeout, limit)
            past += messages if age + waited > limit else 0
            ending += messages if left - waited < min(UNRENEWED, limit / 2) else 0
        for consumer, age, left, messages, renewals, delivery in report.oldest:
            held = Held(consumer.split("#", 1)[0], age + waited, max(0.0, left - waited), messages)
            oldest.append(replace(held, renewals=renewals, delivery=delivery))
    redelivered, lost = lately
    return Unacked(
        age_bins=tuple(bins),
        total=sum(bins),
        past=past,
        timeout=timeout,
        oldest=tuple(nlargest(OLDEST, _named(oldest, begun), key=attrgetter("age"))),
        redelivered_10m=redelivered,
        leases_lost_10m=lost,
        ending_20s=ending,
    )


def _named(leases: Iterable[Held], begun: Mapping[str, Running]) -> Iterator[Held]:
    """Yield leases with short names; what a consumer runs is of the lease that it has had longest."""
    left = dict(begun)
    for held in sorted(leases, key=attrgetter("held"), reverse=True):
        runs, short = left.pop(held.consumer, None), short_name(held.consumer)
        if runs is None:
            yield replace(held, consumer=short)
        else:
            yield replace(held, consumer=short, document=runs.document, running=runs.seconds)


def mark_slow(
    consumers: Sequence[ConsumerStats], paces: Sequence[Speed], now: float, share: float
) -> tuple[list[ConsumerStats], float | None]:
    """Return the consumers of one queue with the slow ones marked, and the median of their speeds.

    One is slow by its pace, and by the speeds that views show: after a rest these are alike, whatever was before it.

    Parameters
    ----------
    paces : sequence of Speed
        What each does in a second while it has work.
    now : float
        Monotonic seconds.
    share : float
        Share of the median of these below which a consumer is slow.
    """
    speeds, known = (
        [each.units_rate for each in consumers if each.units_rate],
        [rate for each in paces if (rate := each.rate(now))],
    )
    middle = median(speeds) if speeds else None
    if middle is None or not known or len(consumers) < 3:
        return list(consumers), middle
    least, shown = share * median(known), share * middle

    def is_slow(of: ConsumerStats, pace: Speed) -> bool:
        works = of.leased and not of.trouble and pace.span(now) >= SETTLED_IN
        return bool(works) and (pace.rate(now) or 0.0) < least and (of.units_rate or 0.0) < shown

    marked = zip(consumers, paces, strict=True)
    return [replace(each, slow=True) if is_slow(each, pace) else each for each, pace in marked], middle


def classes_of(lanes: Iterable[LaneReport]) -> list[ClassStats]:
    """Return the failure classes of lanes, the most dead first."""
    lanes = list(lanes)
    codes = {lane.run: lane.codes for lane in lanes if lane.codes}  # of the shard with the run's record
    return merged_classes(
        class_stats(entry, versions_of(entry, codes.get(lane.run, ()))) for lane in lanes for entry in lane.classes
    )


def class_stats(entry: FailureClass, versions: Iterable[str]) -> ClassStats:
    """Return a failure class as a shard reported it, with the names of its code versions."""
    return ClassStats(
        fingerprint=entry.fingerprint,
        error=shown_name(entry.error),
        message=entry.message,
        at=entry.at,
        dead=entry.dead,
        retrying=entry.retrying,
        first=entry.first,
        last=entry.last,
        key=entry.key,
        failed=entry.failed,
        versions=tuple(versions),
    )


def versions_of(entry: FailureClass, codes: Iterable[tuple[str, str]]) -> list[str]:
    """Return which code made the failures of a class: "parse v1"; where the run's record is not known, its short hash.

    Parameters
    ----------
    codes : iterable of (str, str)
        Name and short hash of the run's code versions, first to newest.
    """
    known = {short: f"{name} v{at}" for at, (name, short) in enumerate(codes, 1)}
    return sorted(known.get(code, code) for code in entry.codes if code)


def merged_classes(classes: Iterable[ClassStats]) -> list[ClassStats]:
    """Return classes with those of the same fingerprint joined, the most dead first."""
    merged: dict[str, ClassStats] = {}
    for new in classes:
        old = merged.get(new.fingerprint)
        merged[new.fingerprint] = new if old is None else _merged(old, new)
    return sorted(merged.values(), key=lambda each: (-each.dead, -each.retrying, each.fingerprint))


def _merged(old: ClassStats, new: ClassStats) -> ClassStats:
    return replace(
        new,
        message=common_message(new.message, old.message),
        dead=old.dead + new.dead,
        retrying=old.retrying + new.retrying,
        first=min(old.first, new.first),
        last=max(old.last, new.last),
        key=old.key or new.key,
        failed=old.failed + new.failed,
        versions=tuple(sorted({*old.versions, *new.versions})),
    )


def failed_by_class(lanes: Iterable[LaneReport]) -> dict[str, int]:
    """Return how many deliveries have failed so far, by fingerprint."""
    failed: dict[str, int] = {}
    for lane in lanes:
        for entry in lane.classes:
            failed[entry.fingerprint] = failed.get(entry.fingerprint, 0) + entry.failed
    return failed


def failures_of(
    lanes: Sequence[LaneReport],
    per_minute: int,
    *,
    dead: int | None = None,
    classes: Sequence[ClassStats] | None = None,
) -> Failures:
    """Return why documents of lanes failed, and which failed most.

    Parameters
    ----------
    dead, classes : optional
        Of more than these lanes.
    """
    classes = classes_of(lanes) if classes is None else classes
    known = max((lane.classes_total for lane in lanes), default=0)
    documents = [
        FailingDocument(key, shown_name(error), deliveries, lane.max_deliveries, pages, lane.name or "")
        for lane in lanes
        for key, error, deliveries, pages in lane.failing
    ]
    return Failures(
        dead=sum_counts(lanes).dead if dead is None else dead,
        retrying=sum(lane.retrying for lane in lanes),
        per_minute=per_minute,
        classes_total=max(len(classes), known),
        classes=tuple(classes[:MAX_CLASSES]),
        documents=tuple(nlargest(DOCUMENTS, documents, key=lambda each: (each.deliveries, each.pages or 0))),
    )


def merged_failures(parts: Sequence[Failures]) -> Failures:
    """Return the failures of several queues as one."""
    if len(parts) == 1:
        return parts[0]
    classes = merged_classes(each for part in parts for each in part.classes)
    documents = [each for part in parts for each in part.documents]
    return Failures(
        dead=sum(part.dead for part in parts),
        retrying=sum(part.retrying for part in parts),
        per_minute=sum(part.per_minute for part in parts),
        classes_total=max(len(classes), max((part.classes_total for part in parts), default=0)),
        classes=tuple(classes[:MAX_CLASSES]),
        documents=tuple(nlargest(DOCUMENTS, documents, key=lambda each: (each.deliveries, each.pages or 0))),
    )


def storage_of(reports: Sequence[ShardReport], write_rate: float | None) -> StorageStats:
    """Return what the files of shards take up; all zero where all are in memory."""
    found = [report.storage for report in reports if report.storage]
    if not found:
        return StorageStats()
    syncs = [each.sync_p99 for each in found if each.sync_p99 is not None]
    compactions = sorted((Compaction(*each) for storage in found for each in storage.compactions), key=attrgetter("at"))
    return StorageStats(
        live=sum(each.live for each in found),
        garbage=sum(each.garbage for each in found),
        disk_free=min(each.free for each in found),
        write_rate=write_rate,
        fsync_p99=max(syncs, default=None),
        compact_above=min(each.compact_above for each in found),
        compactions=tuple(compactions[-10:]),
    )


def merged_storage(parts: Sequence[StorageStats]) -> StorageStats:
    """Return the files of several queues as one."""
    kept = [part for part in parts if part.compact_above is not None]
    if len(kept) < 2:
        return kept[0] if kept else StorageStats()
    compactions = sorted((each for part in kept for each in part.compactions), key=attrgetter("at"))
    rates = [part.write_rate for part in kept if part.write_rate is not None]
    return StorageStats(
        live=sum(part.live for part in kept),
        garbage=sum(part.garbage for part in kept),
        disk_free=min((part.disk_free for part in kept if part.disk_free is not None), default=None),
        write_rate=sum(rates) if rates else None,
        fsync_p99=max((part.fsync_p99 for part in kept if part.fsync_p99 is not None), default=None),
        compact_above=min(part.compact_above for part in kept if part.compact_above is not None),
        compactions=tuple(compactions[-10:]),
    )
