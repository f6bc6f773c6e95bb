"""Keeps what clients note of runs on transient queues, to report what was lost with a shard.

Clients note what must not be lost with a shard: how a run was opened, and how many documents each shard held when the
run was sealed. The rest is in the collector's reports, which are up to 250 ms old.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from dqlab.cluster.scheduler.state import ClusterState, Entry
from dqlab.cluster.transport.orders import Code, NotedFacts, SealFacts
from dqlab.cluster.transport.reports import ShardReport
from dqlab.frame import NO_ID
from dqlab.rules.book import CANCELLED, CodeRecord
from dqlab.rules.ids import next_sequence
from dqlab.rules.past import Past, PastLane
from dqlab.rules.reports import LaneReport
from dqlab.rules.states import State
from dqlab.stats import QueueState

__all__ = ["RunNotes"]

_KEPT = ("client", "producer", "submitted", "cancelled", "paused", "retries", "queue_paused", "queue_draining")
"""Facts that replace the earlier ones as they are."""


@dataclass
class NotedRun:
    """What clients have noted of a run, or of lane 0, with None for what they have not."""

    open: dict[str, Any] | None = None
    """The specification of its lanes, see `Open.spec`; None for lane 0."""
    codes: list[CodeRecord] = field(default_factory=list)
    """Code versions that are newer than those in `open`."""
    functions: dict[bytes, bytes] = field(default_factory=dict)
    """Blobs of the functions that later messages may run, by name."""
    adopted: bytes | None = None
    """The function that the rest of the run uses."""
    client: str | None = None
    producer: bytes | None = None
    submitted: dict[str, Any] | None = None
    seal: SealFacts | None = None
    sealing: bool = False
    """Whether a seal was noted or, with `seal` None, that the run continues after one."""
    cancelled: bool = False
    paused: bool | None = None
    """Whether a user paused it; it may also pause itself."""
    went_on: set[int] = field(default_factory=set)
    """Shards where an order ended the pause that the run had made itself."""
    unpaused: set[int] = field(default_factory=set)
    """Shards where a user's pause ended with it."""
    retries: int | None = None
    queue_paused: bool | None = None
    queue_draining: bool | None = None

    def keep(self, facts: NotedFacts) -> None:
        """Note the facts that replace earlier ones."""
        if "seal" in facts:  # with None too: a reopened run has no seal, whatever its shards reported
            self.seal, self.sealing = facts["seal"], True
        for name, fact in facts.items():
            if name in _KEPT:
                setattr(self, name, fact)

    def learn(self, version: Code, *, adopted: bool) -> None:
        """Note a newer code version, which the rest of the run uses if `adopted`."""
        if adopted:
            self.adopted = version.function
        kept = {hash: self.functions[hash] for hash in self.functions.keys() & {self.adopted}}
        self.functions = kept | {version.function: version.blob}  # messages of others are lost with a shard
        record = {"codes": []} if self.open is None else self.open["record"]
        newest = [code["hash"] for code in [*record["codes"], *self.codes][-1:]]
        if newest != [version.code["hash"]]:
            self.codes = [*self.codes, version.code]
        elif self.codes:  # equal versions may have read other values; the user means the latest
            self.codes = [*self.codes[:-1], version.code]
        else:
            record["codes"] = [*record["codes"][:-1], version.code]


class RunNotes:
    """The notes of runs, by queue."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._runs: dict[str, dict[bytes, NotedRun]] = {}
        self._began: dict[str, int] = {}
        """Where the ids of a shard's current epoch begin, by the shard's name."""

    # --- notes of clients -------------------------------------------------------------------

    async def note(self, queue: str, run: bytes, facts: NotedFacts | None) -> None:
        """Keep facts about a run, or forget the run if there are none."""
        if queue not in self._state.queues:
            return
        runs = self._runs.setdefault(queue, {})
        if facts is None:
            runs.pop(run, None)
            return
        opening = facts.get("open")
        if opening is None and run not in runs:
            opening = facts.get("open_where_unknown")
        if run not in runs and run != NO_ID and opening is None:
            return  # dropped while another client continued it: a late note must not bring it back
        known = runs.setdefault(run, NotedRun())
        if opening is not None:
            known.open = opening
        if "by" in facts and known.producer not in (None, facts["by"]):
            return  # another producer continues the run, and this note is late
        if "code" in facts:
            known.learn(Code(facts["function"], facts["blob"], facts["code"]), adopted=facts.get("adopted", False))
        if facts.get("paused"):
            known.unpaused = set()
        if "goes_on" in facts:
            self._end_pauses(queue, runs if run == NO_ID else {run: known}, facts["goes_on"])
        known.keep(facts)

    def _end_pauses(self, queue: str, runs: dict[bytes, NotedRun], shards: Collection[int] | None) -> None:
        """Note that an order ends the pause of runs that paused themselves, in some shards or in all."""
        for run, known in runs.items():
            halted = self._halted(queue, run) - known.went_on
            going = {shard for shard in halted if shards is None or shard in shards}
            known.went_on = known.went_on | going
            known.unpaused = known.unpaused | going  # as the shard does: it ends both pauses at once

    def _halted(self, queue: str, run: bytes) -> set[int]:
        """Return the shards that have reported a run as paused by itself."""
        # A shard does that once for a run, so those in `went_on` are subtracted for good.
        known, name = self._state.collector.known, run.hex()
        reports = {index: known.shard(queue, index) for index in range(self._state.queues[queue].shards)}
        return {
            index
            for index, report in reports.items()
            if report is not None and any(lane.run == name and lane.halted for lane in report.lanes)
        }

    # --- what a recreated shard gets -------------------------------------------------------------

    def forget(self, queue: str) -> None:
        """Forget a queue that is closed."""
        self._runs.pop(queue, None)
        for name in [name for name in self._began if name.rpartition("/")[0] == f"queue/{queue}"]:
            del self._began[name]

    def past(self, entry: Entry) -> Past:
        """Return what the next epoch of a shard learns about earlier epochs."""
        queue, index = entry.queue, int(entry.args[1])
        report = self._state.collector.known.shard(queue, index) or ShardReport(queue=queue, shard=index, epoch=0)
        began = next_sequence(self._began.get(entry.name, 0))  # an epoch that never reported may have given ids
        self._began[entry.name] = max(began, next_sequence(report.next_id))
        reported = {bytes.fromhex(lane.run): lane for lane in report.lanes}
        known = self._runs.get(queue, {})
        runs = {NO_ID: None, **reported, **known}
        lanes = [_lane(run, index, reported.get(run), known.get(run, NotedRun()), entry.last) for run in runs]
        ordered = known.get(NO_ID, NotedRun())  # wins: it may be newer than the last report
        paused, draining = report.state == QueueState.PAUSED, report.state == QueueState.DRAINING
        # A lane without its opening is left out: it cannot be opened again, and nobody can ask for its run.
        return {
            "first_sequence": self._began[entry.name],
            "paused": paused if ordered.queue_paused is None else ordered.queue_paused,
            "draining": draining if ordered.queue_draining is None else ordered.queue_draining,
            "lanes": [lane for lane in lanes if lane["run"] == NO_ID or "open" in lane],
        }


def _lane(run: bytes, index: int, last: LaneReport | None, notes: NotedRun, worker: str) -> PastLane:
    """Join a shard's last report of a lane with the client's notes about the run."""
    if last is not None and last.halted and index in notes.went_on:
        last = replace(last, halted="", paused=False)  # the report is older than the order that ended the pause
    gone, units = _lost_and_cancelled(last, cancelled=notes.cancelled)
    died = [*(last.died if last is not None and last.counts[State.LOST] else ()), worker]
    lane = PastLane(run=run, lost=gone[0], cancelled=gone[1], units=units, died=died)
    if notes.open is not None:
        record = notes.open["record"]
        record = {**record, "client": record.get("client", "") if notes.client is None else notes.client}
        record["codes"] = [*record["codes"], *notes.codes]
        record |= {"cancelled": True} if notes.cancelled else {}
        if last is not None:
            record |= {"started": last.started, "halted": last.halted, "stop_if": last.stop_if}
        lane["open"] = {**notes.open, "record": record}
        lane["functions"] = notes.functions
        if notes.adopted is not None:
            lane["adopted"] = notes.adopted
    if notes.retries is not None:
        lane["retries"] = notes.retries
    if last is not None:
        lane["paused"] = last.paused and not last.stopped
        lane["ended"] = last.ended
    if notes.paused is not None and not (last is not None and last.halted):
        # The note may be newer than the last report; of a run that paused itself, the report is right.
        lane["paused"] = notes.paused and index not in notes.unpaused
    if notes.producer is not None:
        lane["producer"] = notes.producer
    if notes.submitted is not None:
        lane["submitted"] = notes.submitted
    seal = _seal(index, last, notes, sum(gone))
    if seal is not None:
        lane["seal"] = seal
    return lane


def _seal(index: int, last: LaneReport | None, notes: NotedRun, had: int) -> dict[str, Any] | None:
    """Return the seal of a lane that had `had` messages, or None while the run's input continues."""
    if notes.seal is not None:
        return {
            "here": notes.seal["here"][index],
            "total": notes.seal["total"],
            "incomplete": notes.seal["incomplete"],
        }
    if not notes.sealing and last is not None and last.sealed:
        return {"here": had, "total": last.total, "incomplete": last.incomplete}
    return {"here": had, "total": None, "incomplete": CANCELLED} if notes.cancelled else None


def _lost_and_cancelled(last: LaneReport | None, *, cancelled: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the lost and the cancelled messages, and the same in units."""
    none = [0] * len(State)
    counts, units = (none, none) if last is None else (last.counts, last.units or none)
    # What a cancelled run had not done is cancelled, not lost.
    given_up = [state for state in State if state is State.CANCELLED or (cancelled and state.alive)]
    messages, weights = (sum(column[state] for state in given_up) for column in (counts, units))
    return (sum(counts) - messages, messages), (sum(units) - weights, weights)
