"""What is known of runs on transient queues outside of their shards: enough to report what was lost with a shard.

Clients note here what must not be lost with a shard: how a run was opened, and how many documents each shard
held when it was sealed. The rest, up to 250 ms old, is in the collector's reports.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dqlab.cluster.scheduler.state import ClusterState, Entry
from dqlab.cluster.transport.reports import ShardReport
from dqlab.frame import NO_ID
from dqlab.rules.book import CANCELLED
from dqlab.rules.ids import next_sequence
from dqlab.rules.past import Past, PastLane
from dqlab.rules.reports import LaneReport
from dqlab.rules.states import State
from dqlab.stats import QueueState

__all__ = ["RunNotes"]


class RunNotes:
    """Notes of runs by queue."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._runs: dict[str, dict[bytes, dict[str, Any]]] = {}
        self._began: dict[str, int] = {}
        """Where the ids of a shard's present epoch begin, by its name."""

    # --- notes of clients -------------------------------------------------------------------

    async def note(self, queue: str, run: bytes, facts: dict[str, Any] | None) -> None:
        """Keep facts about a run, or forget it with None; `transport.orders` has those of each order.

        Facts are ``open``, what its lanes are opened with, and ``open_where_unknown``, which counts only if the queue
        was closed since, and with it all that was noted; ``code``, a newer code version, with the ``function`` and
        its ``blob``, and ``adopted`` where the rest of the run has it; ``client``, which continues to submit it;
        ``producer``, the only one that puts and seals from then on, and ``by``, the one that notes this; ``submitted``,
        how far that came; ``seal``, the order that ends it, or None when it continues; ``cancelled``;
        ``paused``, by a user; ``goes_on``, the shards, None for all, in which the order ends the pause of a run that
        paused itself; for plain puts, ``retries``; and for the whole queue, ``queue_paused``, ``queue_draining`` and
        ``goes_on``.
        """
        if queue not in self._state.queues:
            return
        runs = self._runs.setdefault(queue, {})
        if facts is None:
            runs.pop(run, None)
            return
        spec = facts.pop("open_where_unknown", None)
        if spec is not None and run not in runs:
            facts["open"] = spec
        if run not in runs and run != NO_ID and "open" not in facts:
            return  # dropped while another client continued it
        known = runs.setdefault(run, {"codes": [], "functions": {}})
        by = facts.pop("by", None)
        if by is not None and known.get("producer", by) != by:
            return  # another producer goes on with it
        code = facts.pop("code", None)
        if code is not None:
            function, blob = facts.pop("function"), facts.pop("blob")
            adopted = known["adopted"] = function if facts.pop("adopted", False) else known.get("adopted")
            kept = {hash: known["functions"][hash] for hash in known["functions"].keys() & {adopted}}
            known["functions"] = kept | {function: blob}  # of other ones the messages are lost
            record = known.get("open", {"record": {"codes": []}})["record"]
            holder = known if known["codes"] else record
            same = [version["hash"] for version in holder["codes"][-1:]] == [code["hash"]]
            if same:  # equal versions may have read different values; the later ones are meant
                holder["codes"] = [*holder["codes"][:-1], code]
            else:
                known["codes"] = [*known["codes"], code]
        if facts.get("paused"):
            known["unpaused"] = set()
        if "goes_on" in facts:
            shards = facts.pop("goes_on")
            for each in [run] if run != NO_ID else runs:
                halted = self._halted(queue, each) - runs[each].get("went_on", set())
                going = {shard for shard in halted if shards is None or shard in shards}
                for part in ("went_on", "unpaused"):  # its shard ends a user's pause with its own
                    runs[each][part] = runs[each].get(part, set()) | going
        known.update(facts)

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
        lanes = [_lane(run, index, reported.get(run), known.get(run), entry.last) for run in runs]
        ordered = known.get(NO_ID, {})  # may be newer than the last report
        return {
            "first_sequence": self._began[entry.name],
            "paused": ordered.get("queue_paused", report.state == QueueState.PAUSED),
            "draining": ordered.get("queue_draining", report.state == QueueState.DRAINING),
            "lanes": [lane for lane in lanes if lane["run"] == NO_ID or "open" in lane],
        }


def _lane(run: bytes, index: int, reported: LaneReport | None, known: dict[str, Any] | None, worker: str) -> PastLane:
    """Join a shard's last report of a lane with the client's notes about the run."""
    last, notes = reported, known or {}
    if last is not None and last.halted and index in notes.get("went_on", ()):
        last = replace(last, halted="", paused=False)  # it was reported before the order that ended it
    gone, units = _gone(last, cancelled=bool(notes.get("cancelled")))
    died = [*(last.died if last is not None and last.counts[State.LOST] else ()), worker]
    lane = PastLane(run=run, lost=gone[0], cancelled=gone[1], units=units, died=died)
    if "open" in notes:
        record = {**notes["open"]["record"], "client": notes.get("client", notes["open"]["record"].get("client", ""))}
        record["codes"] = [*record["codes"], *notes["codes"]]
        record |= {"cancelled": True} if notes.get("cancelled") else {}
        if last is not None:
            record |= {"started": last.started, "halted": last.halted, "stop_if": last.stop_if}
        lane["open"] = {**notes["open"], "record": record}
        lane["functions"] = notes["functions"]
        if notes.get("adopted") is not None:
            lane["adopted"] = notes["adopted"]
    if "retries" in notes:
        lane["retries"] = notes["retries"]
    if last is not None:
        lane["paused"] = last.paused and not last.stopped
        lane["ended"] = last.ended
    if "paused" in notes and not (last is not None and last.halted):
        # May be newer than the last report; a run also pauses itself.
        lane["paused"] = notes["paused"] and index not in notes.get("unpaused", ())
    if "producer" in notes:
        lane["producer"] = notes["producer"]
    if "submitted" in notes:
        lane["submitted"] = notes["submitted"]
    seal = _seal(index, last, notes, sum(gone))
    if seal is not None:
        lane["seal"] = seal
    return lane


def _seal(index: int, last: LaneReport | None, notes: dict[str, Any], had: int) -> dict[str, Any] | None:
    """Return the order that ends a lane which had so many messages; None while its input goes on."""
    if notes.get("seal") is not None:
        seal = notes["seal"]
        return {"here": seal["here"][index], "total": seal["total"], "incomplete": seal["incomplete"]}
    if "seal" not in notes and last is not None and last.sealed:
        return {"here": had, "total": last.total, "incomplete": last.incomplete}
    return {"here": had, "total": None, "incomplete": CANCELLED} if notes.get("cancelled") else None


def _gone(last: LaneReport | None, *, cancelled: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (lost, cancelled) messages, and their units: the rest of a cancelled run is not lost."""
    none = [0] * len(State)
    counts, units = (none, none) if last is None else (last.counts, last.units or none)
    given_up = [state for state in State if state is State.CANCELLED or (cancelled and state.alive)]
    messages, weights = (sum(column[state] for state in given_up) for column in (counts, units))
    return (sum(counts) - messages, messages), (sum(units) - weights, weights)
