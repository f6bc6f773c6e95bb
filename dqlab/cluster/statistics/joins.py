"""Joins the reports of shards and consumers into the parts of a Snapshot, as pure functions.

A lane is one shard's report about one run: see `rules.book.Book.report`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from dqlab.cluster.transport.reports import Running, ShardReport
from dqlab.failures.classes import FailureClass
from dqlab.failures.failure import common_message, shown_name
from dqlab.rules.book import CANCELLED
from dqlab.rules.reports import CodeName, LaneReport
from dqlab.stats import (
    AGE_EDGES,
    NO_ROOM,
    Blocked,
    ClassStats,
    CodeStats,
    Compaction,
    ConsumerStats,
    Counts,
    FailingDocument,
    Failures,
    Held,
    RunState,
    RunStats,
    Speed,
    StopReason,
    StorageStats,
    Unacked,
    run_state,
    short_name,
)
from dqlab.stats.counts import sums
from dqlab.stats.eta import Effort
from dqlab.stats.snapshot import MAX_CLASSES


def sum_counts(lanes: Iterable[LaneReport]) -> Counts:
    """Return the messages of lanes by state."""
    return _summed([lane.counts for lane in lanes])


def sum_units(lanes: Iterable[LaneReport]) -> Counts | None:
    """Return the weights of lanes by state in pages or bytes, or None if messages have no weights."""
    known = [lane.units for lane in lanes if lane.units]
    return _summed(known) if known else None


def sum_revived(lanes: Iterable[LaneReport]) -> tuple[int, int]:
    """Return the number of messages that were settled and are delivered again, and the sum of their weights."""
    rows = [lane.revived for lane in lanes]
    return sum(messages for messages, _ in rows), sum(units for _, units in rows)


def _summed(rows: Sequence[Sequence[int]]) -> Counts:
    if len(rows) == 1:
        return Counts(*rows[0])
    return Counts(*map(sum, zip(*rows, strict=True))) if rows else Counts()


def state_of(lanes: Collection[LaneReport], *, paused: bool, blocked: str, served: bool) -> RunState:
    """Return the state of a run, from its lanes and its queue's `paused`, `blocked` and `served`."""
    return run_state(
        sum_counts(lanes),
        sealed=all(lane.sealed for lane in lanes),
        incomplete=any(lane.name is not None and lane.incomplete is not None for lane in lanes),
        cancelled=any(lane.name is not None and lane.incomplete == CANCELLED for lane in lanes),
        paused=paused or any(lane.paused for lane in lanes),
        stopped=any(lane.stopped or lane.halted for lane in lanes),
        served=served and not _unable(lanes),
        blocked=bool(blocked) or any(lane.held for lane in lanes),
    )


def run_stats(
    lanes: Collection[LaneReport],
    record: LaneReport,
    *,
    queue: str,
    at: float,
    consumers: int,
    paused: bool,
    paused_by: str,
    blocked: str,
    unanswered: str,
) -> RunStats:
    """Return the statistics of a run without what is measured, from its lanes and the lane with its record."""
    # `paused`, `paused_by` and `blocked` are of its queue, `consumers` are those that answer, and
    # `unanswered` is since when none does.
    counts, sealed = sum_counts(lanes), all(lane.sealed for lane in lanes)
    state = state_of(lanes, paused=paused, blocked=blocked, served=consumers > 0)
    ends = [lane.ended for lane in lanes if lane.ended is not None]
    halted = next((lane.halted for lane in lanes if lane.halted), "")
    cause: Blocked | None = None
    held = next((lane.held for lane in lanes if lane.held), "")
    if held and not blocked:
        blocked, cause = held, Blocked.RESULTS
    if halted:
        why = halted
    elif any(lane.stopped for lane in lanes):
        why = NO_ROOM
    elif blocked and (counts.left or not sealed):
        why = blocked
    elif state is RunState.WAITING:
        why, cause = unanswered or f"no consumer serves queue {queue}", Blocked.ANSWER if unanswered else None
        if not unanswered and (unable := _unable(lanes)):
            why, cause = unable, Blocked.NEEDS
    elif (shut := next((lane.shut for lane in lanes if lane.shut), "")) and (counts.left or not sealed) and not paused:
        why = shut
    else:
        why = record.incomplete or record.why or (paused_by if state is RunState.PAUSED else "")
    stop = next((lane.halt for lane in lanes if lane.halted), StopReason.RESULTS_FULL)
    code = record.code or CodeName("?", "")
    return RunStats(
        name=record.name or "",
        queue=queue,
        state=state,
        counts=counts,
        units=sum_units(lanes),
        weighed_in=record.unit or "pages",
        why=why,
        stop=stop if state is RunState.STOPPED else None,
        blocked=cause,
        code=CodeStats(
            name=code.name,
            short=code.short,
            version=len(record.codes),
            cell=code.cell,
            note=code.note,
            rest=_of_the_rest(lanes, record),
            did=done_by(lanes, record),
        ),
        total=record.total if sealed else None,
        pace=_pace(lanes),
        retrying=sum(lane.retrying for lane in lanes),
        owner=record.owner,
        started=record.started,
        ended=max(ends) if len(ends) == len(lanes) else None,
        idle=max(lane.idle for lane in lanes),
        at=at,
        consumers=consumers,
    )


def _pace(lanes: Collection[LaneReport]) -> str:
    """Return what holds a run back in general, in words: those of one shard, which say so."""
    pace = next((lane.pace for lane in lanes if lane.pace), "")
    return f"{pace} (in one of {len(lanes)} shards)" if pace and len(lanes) > 1 else pace


def _unable(lanes: Iterable[LaneReport]) -> str:
    """Return what a run needs and no slot has, or ""."""
    return next((lane.unable for lane in lanes if lane.unable), "")


def done_by(lanes: Iterable[LaneReport], record: LaneReport) -> tuple[int, ...]:
    """Return the number of acked documents by code version."""
    if len(record.codes) < 2:
        return ()
    did = [0] * len(record.codes)
    for lane in lanes:
        for function, acked in lane.acked_by.items():
            did[record.blobs.get(function, 1) - 1] += acked  # a function that no version names counts for the first
    return tuple(did)


def _of_the_rest(lanes: Iterable[LaneReport], record: LaneReport) -> tuple[int, ...]:
    """Return the versions before the newest that unsettled documents run."""
    used = {record.blobs.get(function) for lane in lanes for function in lane.runs}
    return tuple(sorted(at for at in used if at is not None and at < len(record.codes)))


OLDEST = 5
DOCUMENTS = 4
UNRENEWED = 20.0
"""Seconds before its end at which a lease counts as not renewed, or half its timeout if that is less."""
SETTLED_IN = 30.0
"""Seconds that a consumer must have worked before it can count as slow."""


class Shards(NamedTuple):
    """The latest reports of some shards."""

    reports: Sequence[ShardReport]
    came: Sequence[float]
    """When each report came, monotonic seconds."""


def sum_effort(lanes: Iterable[LaneReport]) -> Effort:
    """Return the sum of the lanes' settled work and the seconds it took."""
    return sum((lane.effort for lane in lanes), Effort())


def merged_unacked(parts: Sequence[Unacked]) -> Unacked:
    """Return the leases of several queues as one."""
    if len(parts) == 1:
        return parts[0]
    bins = [sum(amounts) for amounts in zip(*(part.age_bins for part in parts), strict=True)]
    return Unacked(
        age_bins=tuple(bins) or Unacked().age_bins,
        timeout=max((part.timeout for part in parts if part.timeout is not None), default=None),
        oldest=tuple(nlargest(OLDEST, (held for part in parts for held in part.oldest), key=attrgetter("age"))),
        **sums(parts, "total", "past", "redelivered_10m", "leases_lost_10m", "ending_20s"),
    )


def unacked_of(shards: Shards, now: float, begun: Mapping[str, Running], lately: tuple[int, int]) -> Unacked:
    """Return the leases of shards, with the documents that consumers have `begun`."""
    bins = [0] * (len(AGE_EDGES) + 1)
    past = ending = 0
    timeout: float | None = None
    oldest: list[Held] = []
    for report, came in zip(*shards, strict=True):
        waited = now - came  # ages and ends in a report are of the instant it came
        for age, left, limit, messages in report.held:
            bins[bisect_right(AGE_EDGES, age + waited)] += messages
            timeout = limit if timeout is None else max(timeout, limit)
            past += messages if age + waited > limit else 0
            ending += messages if left - waited < min(UNRENEWED, limit / 2) else 0
        for consumer, age, left, messages, renewals, delivery, _ in report.oldest:
            held = Held(consumer.split("#", 1)[0], age + waited, max(0.0, left - waited), messages)
            oldest.append(replace(held, renewals=renewals, delivery=delivery))
    redelivered, lost = lately  # of the last ten minutes
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
    """Yield leases with short names, each consumer's oldest lease with its running document."""
    # A consumer works through its leases in order, so its running document is of the oldest.
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
    """Return the consumers of one queue with the slow ones marked, and their median speed."""
    # A slow consumer is below `share` of the median pace (speed while it has work) and of the median shown speed. The
    # second condition keeps views plausible: after a rest all shown speeds are alike, whatever the paces were.
    speeds, known = (
        [consumer.units_rate for consumer in consumers if consumer.units_rate],
        [rate for pace in paces if (rate := pace.rate(now))],
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
    codes = {lane.run: lane.codes for lane in lanes if lane.codes}  # only the shard with the run's record has them
    return merged_classes(
        class_stats(entry, versions_of(entry, codes.get(lane.run, ()))) for lane in lanes for entry in lane.classes
    )


def class_stats(entry: FailureClass, versions: Iterable[str]) -> ClassStats:
    """Return a shard's failure class with the names of its code versions."""
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
    """Return the code versions of a class's failures, like "parse v1", from the run's (name, short hash) in order."""
    known = {short: f"{name} v{at}" for at, (name, short) in enumerate(codes, 1)}
    # Without the run's record, its codes are unknown: keep the short hash.
    return sorted(known.get(code, code) for code in entry.codes if code)


def merged_classes(classes: Iterable[ClassStats]) -> list[ClassStats]:
    """Join classes of the same fingerprint and return them, the most dead first."""
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
    """Return the number of failed deliveries by fingerprint."""
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
    """Return the failure classes of lanes and the documents that failed most, with sums over more lanes if given."""
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
    documents = [document for part in parts for document in part.documents]
    return Failures(
        **sums(parts, "dead", "retrying", "per_minute"),
        classes_total=max(len(classes), max((part.classes_total for part in parts), default=0)),
        classes=tuple(classes[:MAX_CLASSES]),
        documents=tuple(nlargest(DOCUMENTS, documents, key=lambda each: (each.deliveries, each.pages or 0))),
    )


def storage_of(reports: Iterable[ShardReport], write_rates: Iterable[float | None]) -> StorageStats:
    """Return the disk use of shards, all zero for transient ones, with the sum of the rates of their queues."""
    found = [report.storage for report in reports if report.storage]
    rates = [rate for rate in write_rates if rate is not None]
    if not found:
        return StorageStats()
    syncs = [each.sync_p99 for each in found if each.sync_p99 is not None]
    compactions = sorted((Compaction(*each) for storage in found for each in storage.compactions), key=attrgetter("at"))
    return StorageStats(
        **sums(found, "live", "garbage"),
        disk_free=min(each.free for each in found),
        write_rate=sum(rates) if rates else None,
        fsync_p99=max(syncs, default=None),
        compact_above=min(each.compact_above for each in found),
        compactions=tuple(compactions[-10:]),
    )
