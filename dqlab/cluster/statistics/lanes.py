"""Joins the lanes of one run. A lane is one shard's report about one run: see `rules.book.Book.report`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dqlab.rules.book import CANCELLED
from dqlab.rules.reports import CodeName, LaneReport
from dqlab.stats import NO_ROOM, Blocked, CodeStats, Counts, RunState, RunStats, StopReason, run_state


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
