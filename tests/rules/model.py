"""What a queue promises, with one record per message: plain, slow, and written without a look at the rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from dqlab.frame import Outcome
from dqlab.rules.deliveries import MOST_UNCOUNTED

TIMEOUT, RETRIES, BACKOFF, MAX_DELIVERIES, MAXSIZE, EPOCH = 10, 3, 4, 3, 12, 3
ALIVE = {"ready", "delayed", "leased"}
FINAL = {"acked", "cancelled"}


@dataclass
class Message:
    id: int
    run: bytes
    ordinal: int
    frame: int
    size: int
    state: str = "ready"
    suspect: bool = False
    lost: int = 0
    """Losses as a suspect that did not count."""
    deliveries: int = 0
    exceptions: int = 0
    due: float = 0.0
    lease: int = 0
    receipt: tuple[int, int] | None = None
    function: bytes | None = None
    lives: int = 0
    first_lease: int = 0
    """Since its last retry: what earlier leases report does not count."""


@dataclass
class Held:
    id: int
    consumer: str
    run: bytes
    ids: list[int]
    deadline: float
    suspect: bool
    early: bool = False
    epoch: int = EPOCH
    """Of the shard that granted it."""
    isolated: bool = False
    ran: bool = False


@dataclass
class Model:
    """What a queue promises, one message at a time."""

    messages: dict[int, Message] = field(default_factory=dict)
    leases: dict[int, Held] = field(default_factory=dict)
    paused: set[bytes | None] = field(default_factory=set)
    draining: bool = False
    epoch: int = EPOCH

    def of(self, run: bytes, *states: str) -> list[Message]:
        return [m for m in self.messages.values() if m.run == run and (not states or m.state in states)]

    def unsettled(self, lease: Held) -> list[Message]:
        return [
            m
            for id in lease.ids
            if (m := self.messages.get(id)) is not None and m.state == "leased" and m.lease == lease.id
        ]

    def drop_empty_leases(self) -> None:
        self.leases = {id: lease for id, lease in self.leases.items() if self.unsettled(lease)}

    def end(self, lease: Held) -> int:
        lost = self.unsettled(lease)
        for m in lost:
            m.state, m.suspect = "ready", True
            uncounted = lease.suspect and not (lease.early or lease.isolated or lease.ran)
            m.lost += uncounted
            if lease.early or lease.isolated or (uncounted and m.lost > MOST_UNCOUNTED):
                m.deliveries += 1
                m.receipt = (lease.epoch, lease.id)
                if lease.early or m.deliveries - m.exceptions >= MAX_DELIVERIES:
                    m.state, m.suspect, m.lost = "dead", False, 0
        del self.leases[lease.id]
        return len(lost)

    def pass_time(self, now: float) -> None:
        for m in self.messages.values():
            if m.state == "delayed" and m.due <= now:
                m.state = "ready"
        for lease in list(self.leases.values()):
            if lease.deadline <= now:
                self.end(lease)
        if self.draining and not any(m.state in ALIVE for m in self.messages.values()):
            self.paused.add(None)

    def settle(self, id: int, run: bytes, receipt: tuple[int, int], outcome: Outcome, delay: float, now: float) -> str:
        """Return "ack", "failed", "other", "duplicate" or "stale"."""
        m = self.messages.get(id)
        if m is None or m.run != run or m.state == "cancelled":
            return "stale"
        if m.state in ("acked", "dead"):
            return "duplicate"
        lease = self.leases.get(m.lease) if m.state == "leased" else None
        if lease is not None and receipt != (lease.epoch, lease.id):
            return "stale"
        if lease is None and receipt[1] < m.first_lease:
            return "stale"
        if lease is None and outcome is not Outcome.ACK and (outcome is Outcome.RETURN or m.receipt == receipt):
            return "duplicate"
        if outcome is Outcome.ACK:
            m.state = "acked"
            return "ack"
        if outcome is Outcome.RETURN:
            m.state, m.suspect = "ready", lease is not None and lease.suspect
            return "other"
        early = lease is not None and lease.early
        m.deliveries += outcome is not Outcome.NACK or early
        m.exceptions += outcome is not Outcome.NACK
        m.receipt, m.suspect, m.lost = receipt, False, 0
        spent = outcome is not Outcome.NACK and m.exceptions > RETRIES
        if spent or outcome is Outcome.REJECT or early:
            m.state = "dead"
        else:
            m.due = now + (delay if outcome is Outcome.NACK else BACKOFF * 2 ** (m.exceptions - 1))
            m.state = "delayed" if m.due > now else "ready"
        return "other" if outcome is Outcome.NACK else "failed"

    def reclaim(self, former: Held, consumer: str, now: float) -> list[int]:
        """A consumer goes on with what it had before the shard was opened again; return what others have."""
        mine = [m for id in former.ids if (m := self.messages.get(id)) is not None and m.run == former.run]
        orphans = {m.id for lease in self.leases.values() if not lease.consumer for m in self.unsettled(lease)}
        free = [
            m for m in mine if (m.id in orphans if former.early else m.state == "ready" and m.first_lease <= former.id)
        ]
        others = sorted(set(former.ids) - {m.id for m in free})
        taken = [m for m in free if not m.suspect or len(former.ids) == 1]
        if taken:
            suspect, ids = taken[0].suspect, [m.id for m in taken]
            for m in taken:
                m.state, m.lease, m.suspect = "leased", former.id, False
            self.leases[former.id] = Held(
                former.id,
                consumer,
                former.run,
                ids,
                now + TIMEOUT,
                suspect,
                former.early,
                former.epoch,
            )
            self.drop_empty_leases()
        return others

    def reopen(self, epoch: int, orphans: dict[bytes, int], deadline: float) -> None:
        """Start again from what is on disk: nothing is leased, and what was acked early is not delivered again.

        For a while that is held for its consumers: `orphans` names the lease of each run.
        """
        held = {run: Held(id, "", run, [], deadline, False, early=True, epoch=epoch) for run, id in orphans.items()}
        for lease in self.leases.values():
            for m in self.unsettled(lease):
                m.state, m.suspect = "ready", lease.suspect
                if lease.early and m.run in held:
                    m.state, m.suspect, m.lease = "leased", False, held[m.run].id
                    held[m.run].ids.append(m.id)
                elif lease.early:
                    m.state, m.suspect, m.deliveries = "dead", False, m.deliveries + 1
        for m in self.messages.values():
            m.lost = 0
        self.leases = {lease.id: lease for lease in held.values()}
        self.epoch = epoch
