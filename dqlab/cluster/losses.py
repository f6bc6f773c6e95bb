"""What is known of the runs on transient queues outside of their shards: enough to say what was lost with one.

Clients note here what must not be lost with a shard: how a run was opened, and how many documents each shard
held when it was sealed. The rest, up to 250 ms old, is in the collector's reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dqlab.cluster.parking import Bell
from dqlab.frame import NO_ID
from dqlab.queue.ids import next_sequence
from dqlab.queue.past import Past, PastLane
from dqlab.queue.states import State

if TYPE_CHECKING:
    from dqlab.cluster.registry import Registry
    from dqlab.cluster.supervisor import Entry

__all__ = ["Losses"]


class Losses:
    """Notes of runs by queue, and who sends lost documents again."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._runs: dict[str, dict[bytes, dict[str, Any]]] = {}
        self._began: dict[str, int] = {}
        """Where the ids of a shard's present epoch begin, by its name."""
        self._claims: dict[bytes, list[str]] = {}
        """Clients that send a run's lost documents again, one entry for each time they were asked to."""
        self._changed = Bell()
        self.handlers: dict[str, Callable[..., Any]] = {
            "dq_note_run": self.note,
            "dq_claim": self.claim,
            "dq_disclaim": self.disclaim,
            "dq_claimed": self.claimed,
        }
        """What clients call, by the names that the scheduler knows."""

    # --- what clients say -------------------------------------------------------------------

    async def note(self, queue: str, run: bytes, facts: dict[str, Any] | None) -> None:
        """Keep facts about a run, or forget it with None.

        Facts are ``open``, what its lanes are opened with; ``code``, a newer code version; ``client``, who goes on
        submitting it; ``seal`` and ``submitted``, the orders that end its submission, or None when it goes on.
        """
        runs = self._runs.setdefault(queue, {})
        if facts is None or queue not in self._registry.queues:
            runs.pop(run, None)
            return
        known = runs.setdefault(run, {"codes": []})
        code = facts.pop("code", None)
        if code is not None:
            known["codes"].append(code)
        known.update(facts)

    async def claim(self, run: bytes, client: str) -> bool:
        """Let a client send a run's lost documents again, unless another one does."""
        claims = self._claims.setdefault(run, [])
        if claims and not self._claimed(run):  # whoever did is gone
            claims.clear()
        if claims and claims[0] != client:
            return False
        claims.append(client)
        return True

    async def disclaim(self, run: bytes) -> None:
        """Take a claim back."""
        claims = self._claims.get(run)
        if claims:
            claims.pop()
        if not claims:
            self._claims.pop(run, None)
        self._changed.ring()

    async def claimed(self, run: bytes, wait: float) -> bool:
        """Return whether somebody sends a run's lost documents again; wait up to `wait` seconds for the end of that."""
        return not await self._changed.until(lambda: not self._claimed(run), wait)

    def _claimed(self, run: bytes) -> bool:
        return any(client in self._registry.scheduler.clients for client in self._claims.get(run, ()))

    # --- what the registry asks -------------------------------------------------------------

    def forget(self, queue: str) -> None:
        """Forget a queue that is closed."""
        for run in self._runs.pop(queue, ()):
            self._claims.pop(run, None)
        for name in [name for name in self._began if name.rpartition("/")[0] == f"queue/{queue}"]:
            del self._began[name]

    def past(self, entry: Entry) -> Past:
        """Return what the next epoch of a shard is told of those before it."""
        queue, index = entry.queue, int(entry.args[1])
        report = self._registry.collector.shard(queue, index) or {"lanes": [], "next_id": 0, "state": "running"}
        began = next_sequence(self._began.get(entry.name, 0))  # an epoch that nothing was heard of gave ids too
        self._began[entry.name] = max(began, next_sequence(report["next_id"]))
        reported = {bytes.fromhex(lane["run"]): lane for lane in report["lanes"]}
        known = self._runs.get(queue, {})
        lanes = [_lane(run, index, reported.get(run), known.get(run), entry.last) for run in {**reported, **known}]
        return {
            "first_sequence": self._began[entry.name],
            "paused": report["state"] == "paused",
            "draining": report["state"] == "draining",
            "lanes": [lane for lane in lanes if lane["run"] == NO_ID or "open" in lane],
        }


def _lane(
    run: bytes, index: int, reported: dict[str, Any] | None, known: dict[str, Any] | None, worker: str
) -> PastLane:
    """Join what a shard reported last of a lane with what its client noted of the run."""
    last, notes = reported or {}, known or {}
    counts, units = last.get("counts") or [0], last.get("units") or [0]
    died = [*(last["died"] if last and counts[State.LOST] else ()), worker]
    lane = PastLane(run=run, lost=sum(counts), units=sum(units), died=died)
    if "open" in notes:
        record = {**notes["open"]["record"], "client": notes.get("client", notes["open"]["record"].get("client", ""))}
        record["codes"] = [*record["codes"], *notes["codes"]]
        record |= {"started": last["started"]} if last else {}
        lane["open"] = {**notes["open"], "record": record}
    if last:
        lane["paused"] = last["paused"] and not last["stopped"]
        lane["ended"] = last["ended"]
    if notes.get("seal") is not None:
        seal = notes["seal"]
        lane["seal"] = {"here": seal["here"][index], "total": seal["total"], "incomplete": seal["incomplete"]}
        lane["submitted"] = notes["submitted"]
    elif "seal" not in notes and last.get("sealed"):
        lane["seal"] = {"here": lane["lost"], "total": last["total"], "incomplete": last["incomplete"]}
    return lane
