"""What is known of runs on transient queues outside of their shards: enough to report what was lost with a shard.

Clients note here what must not be lost with a shard: how a run was opened, and how many documents each shard
held when it was sealed. The rest, up to 250 ms old, is in the collector's reports.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from dqlab.cluster.scheduler.state import ClusterState, Entry
from dqlab.cluster.transport.orders import Code, Facts, SealFacts
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
"""Facts that are kept as they come."""


@dataclass
class NotedRun:
    """What clients have noted of a run, or of lane 0; None where nothing was noted."""

    open: dict[str, Any] | None = None
    """What its lanes are opened with, see `Open.spec`; None for lane 0."""
    codes: list[CodeRecord] = field(default_factory=list)
    """Code versions that came after those in `open`."""
    functions: dict[bytes, bytes] = field(default_factory=dict)
    """Blobs of the functions that what comes may run, by name."""
    adopted: bytes | None = None
    """The function that the rest of the run has."""
    client: str | None = None
    producer: bytes | None = None
    submitted: dict[str, Any] | None = None
    seal: SealFacts | None = None
    sealing: bool = False
    """A seal was noted, or, with `seal` None, that the run continues after one."""
    cancelled: bool = False
    paused: bool | None = None
    """By a user."""
    went_on: set[int] = field(default_factory=set)
    """Shards in which the pause of a run that paused itself was ended."""
    unpaused: set[int] = field(default_factory=set)
    """Those in which a user's pause was ended with it."""
    retries: int | None = None
    queue_paused: bool | None = None
    queue_draining: bool | None = None

    def keep(self, facts: Facts) -> None:
        """Note what replaces what was noted before."""
        if "seal" in facts:
            self.seal, self.sealing = facts["seal"], True
        for name, fact in facts.items():
            if name in _KEPT:
                setattr(self, name, fact)

    def learn(self, version: Code, *, adopted: bool) -> None:
        """Note a newer code version; with `adopted` the rest of the run has it."""
        if adopted:
            self.adopted = version.function
        kept = {hash: self.functions[hash] for hash in self.functions.keys() & {self.adopted}}
        self.functions = kept | {version.function: version.blob}  # of other ones the messages are lost
        record = {"codes": []} if self.open is None else self.open["record"]
        newest = [code["hash"] for code in [*record["codes"], *self.codes][-1:]]
        if newest != [version.code["hash"]]:
            self.codes = [*self.codes, version.code]
        elif self.codes:  # equal versions may have read different values; the later ones are meant
            self.codes = [*self.codes[:-1], version.code]
        else:
            record["codes"] = [*record["codes"][:-1], version.code]


class RunNotes:
    """Notes of runs by queue."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._runs: dict[str, dict[bytes, NotedRun]] = {}
        self._began: dict[str, int] = {}
        """Where the ids of a shard's present epoch begin, by its name."""

    # --- notes of clients -------------------------------------------------------------------

    async def note(self, queue: str, run: bytes, facts: Facts | None) -> None:
        """Keep facts about a run, or forget it with None."""
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
            return  # dropped while another client continued it
        known = runs.setdefault(run, NotedRun())
        if opening is not None:
            known.open = opening
        if "by" in facts and known.producer not in (None, facts["by"]):
            return  # another producer goes on with it
        if "code" in facts:
            known.learn(Code(facts["function"], facts["blob"], facts["code"]), adopted=facts.get("adopted", False))
        if facts.get("paused"):
            known.unpaused = set()
        if "goes_on" in facts:
            self._go_on(queue, runs if run == NO_ID else {run: known}, facts["goes_on"])
        known.keep(facts)

    def _go_on(self, queue: str, runs: dict[bytes, NotedRun], shards: Collection[int] | None) -> None:
        """Note an order that ends the pause of runs that paused themselves, in some shards or in all."""
        for run, known in runs.items():
            halted = self._halted(queue, run) - known.went_on
            going = {shard for shard in halted if shards is None or shard in shards}
            known.went_on = known.went_on | going
            known.unpaused = known.unpaused | going  # its shard ends a user's pause with its own

    def _halted(self, queue: str, run: bytes) -> set[int]:
        """Return the shards that have reported that a run paused itself; a shard does that once for a run."""
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
        """Return what the next epoch of a shard learns about those before it."""
        queue, index = entry.queue, int(entry.args[1])
        report = self._state.collector.known.shard(queue, index) or ShardReport(queue=queue, shard=index, epoch=0)
        began = next_sequence(self._began.get(entry.name, 0))  # an epoch that never reported gave ids too
        self._began[entry.name] = max(began, next_sequence(report.next_id))
        reported = {bytes.fromhex(lane.run): lane for lane in report.lanes}
        known = self._runs.get(queue, {})
        runs = {NO_ID: None, **reported, **known}
        lanes = [_lane(run, index, reported.get(run), known.get(run, NotedRun()), entry.last) for run in runs]
        ordered = known.get(NO_ID, NotedRun())  # may be newer than the last report
        paused, draining = report.state == QueueState.PAUSED, report.state == QueueState.DRAINING
        return {
            "first_sequence": self._began[entry.name],
            "paused": paused if ordered.queue_paused is None else ordered.queue_paused,
            "draining": draining if ordered.queue_draining is None else ordered.queue_draining,
            "lanes": [lane for lane in lanes if lane["run"] == NO_ID or "open" in lane],
        }


def _lane(run: bytes, index: int, last: LaneReport | None, notes: NotedRun, worker: str) -> PastLane:
    """Join a shard's last report of a lane with the client's notes about the run."""
    if last is not None and last.halted and index in notes.went_on:
        last = replace(last, halted="", paused=False)  # it was reported before the order that ended it
    gone, units = _gone(last, cancelled=notes.cancelled)
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
        # May be newer than the last report; a run also pauses itself.
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
    """Return the order that ends a lane which had so many messages; None while its input goes on."""
    if notes.seal is not None:
        return {
            "here": notes.seal["here"][index],
            "total": notes.seal["total"],
            "incomplete": notes.seal["incomplete"],
        }
    if not notes.sealing and last is not None and last.sealed:
        return {"here": had, "total": last.total, "incomplete": last.incomplete}
    return {"here": had, "total": None, "incomplete": CANCELLED} if notes.cancelled else None


def _gone(last: LaneReport | None, *, cancelled: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (lost, cancelled) messages, and their units: the rest of a cancelled run is not lost."""
    none = [0] * len(State)
    counts, units = (none, none) if last is None else (last.counts, last.units or none)
    given_up = [state for state in State if state is State.CANCELLED or (cancelled and state.alive)]
    messages, weights = (sum(column[state] for state in given_up) for column in (counts, units))
    return (sum(counts) - messages, messages), (sum(units) - weights, weights)
