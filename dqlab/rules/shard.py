"""A queue shard: the rules of putting, leasing and settling, over all its lanes.

Pure: no I/O, threads, Dask or real time. Time comes from the clock that is passed in, and what is due is
applied before each change, so results do not depend on when a timer fires. What the shell around it has
to do in turn (tell a consumer) is left in `effects`; bytes are the journal's. Not thread-safe.

::

    Holdings    lanes, leases, what is due, questions
    └── Orders      open, seal, drop, pause, drain, cancel, purge, retry
        └── Shard       put, lease, reclaim, begin, extend, settle, release
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from dqlab.frame import Frame, Settlement
from dqlab.rules.invariants import check
from dqlab.rules.leases import NOBODY, Lease, LeasedPiece, epoch_of
from dqlab.rules.orders import Orders
from dqlab.rules.picking import pick, pick_again, pick_suspect, suspect_is_first
from dqlab.rules.ranges import Ranges
from dqlab.rules.settling import Settled, Settling
from dqlab.rules.states import Verdict

__all__ = ["Put", "Shard"]


_number = attrgetter("number")


class Put(NamedTuple):
    """The answer to a put.

    Attributes
    ----------
    first : int or None
        Id of the frame's first message when ACCEPTED, or DUPLICATE of one of the producer's last 16 frames.
    expected : int or None
        When EARLY: the sequence that must come first.
    """

    verdict: Verdict
    first: int | None = None
    expected: int | None = None


class Shard(Orders):
    """What clients and consumers do with a shard. Parameters and attributes: see `Holdings`."""

    def put(self, frame: Frame, *, lost: bool = False) -> Put:
        """Take a frame in at the end of its run's lane, or say why not.

        Parameters
        ----------
        lost : bool, default False
            It holds documents that were lost, and takes their place, also in a lane that is sealed.

        Raises
        ------
        RunNotFound
            The frame names a run that has no lane here.
        """
        self.tick()
        lane = self.lane(frame.run)
        verdict = self.producers.judge(frame.producer, frame.sequence)
        if verdict is Verdict.DUPLICATE:
            return Put(verdict, first=self.producers.first_of(frame.producer, frame.sequence))
        if self.draining:
            return Put(Verdict.DRAINING)
        if not lane.misses(frame) if lost else lane.sealed:
            return Put(Verdict.SEALED)
        if verdict is Verdict.EARLY:
            return Put(verdict, expected=self.producers.expected(frame.producer))
        if not (lane.has_room(frame) and self.journal.room(frame.nbytes)):
            return Put(Verdict.FULL)
        first = self.next_id
        lane.put(frame, first, self.clock.monotonic(), self.journal.put(frame, first))
        self.next_id += frame.count
        self.producers.record(frame.producer, frame.run, first)
        return Put(verdict, first=first)

    def lease(
        self,
        consumer: str,
        n: int,
        *,
        slots: int = 1,
        max_bytes: int = 1 << 20,
        budget: float | None = None,
        at_least: int = 1,
    ) -> Lease | None:
        """Lease up to `n` messages of one lane, or one suspect alone; None when there is nothing to lease.

        Parameters
        ----------
        slots : int, default 1
            Suspects this consumer may hold at a time; further ones are left to others.
        max_bytes : int, default 1 MiB
            Most payload bytes of a lease of several messages.
        budget : float, optional
            Seconds of work to lease at most, by the lane's mean cost; a few messages while that is unknown.
        at_least : int, default 1
            Messages to lease even when the budget allows fewer: coroutines that wait together.
        """
        self.tick()
        suspects = self.leases.suspects_held(consumer) < slots
        ready = [lane for lane in self.activity.alive() if lane.leasable(suspects=suspects)]
        if self.paused or n < 1 or not ready:
            return None
        ready.sort(key=_number)
        run = self.fairness.choose([lane.run for lane in ready])
        lane = self.lanes[run]
        if budget is not None:
            n = min(n, max(at_least, self.fairness.batch(run, budget)))
        suspect = suspects and suspect_is_first(lane)
        pieces = pick_suspect(lane) if suspect else pick(lane, n, max_bytes)
        if suspect:
            self.redelivered += 1
        elif lane.retrying:
            self.redelivered += sum(
                lane.trouble[id].deliveries > 0
                for piece in pieces
                for id in lane.troubled(piece.frame + piece.lo, piece.frame + piece.lo + piece.n)
            )
        return self._grant(consumer, run, pieces, suspect=suspect)

    def reclaim(
        self,
        consumer: str,
        lease_id: int,
        run: bytes,
        ids: Iterable[tuple[int, int]],
        *,
        age: float = 0.0,
        early: bool = False,
    ) -> list[tuple[int, int]]:
        """Give a lease of an earlier epoch back to its consumer, which still works on it.

        Parameters
        ----------
        ids : iterable of (int, int)
            What of it the consumer has not settled.
        age : float
            Seconds since it was leased.
        early : bool
            It was acked early.

        Returns
        -------
        list of (int, int)
            Ids of which others have disposed meanwhile: leased, settled, cancelled.
        """
        self.tick()
        if lease_id in self.leases or epoch_of(lease_id) >= self.epoch:
            return []
        lane = self.lanes.get(run)
        if lane is None:
            return list(ids)
        wanted = Ranges(ids)
        if early:
            return self._reclaim_begun(consumer, lease_id, run, wanted, age)
        suspect = wanted.size == 1 and wanted.first in lane.suspects
        pieces, others = pick_again(lane, wanted, suspects=suspect)
        if pieces:
            self._grant(consumer, run, pieces, suspect=suspect, id=lease_id).since -= age
        return others

    def _reclaim_begun(
        self, consumer: str, lease_id: int, run: bytes, wanted: Ranges, age: float
    ) -> list[tuple[int, int]]:
        """Give a lease that was acked early back to who began it: the log does not say who that was."""
        orphan = next((lease for lease in self.leases.of_consumer(NOBODY) if lease.run == run), None)
        if orphan is None:
            return list(wanted)
        pieces, others = pick_again(self.lanes[run], wanted, suspects=True, orphan=orphan.remaining)
        if pieces:
            lease = self._grant(consumer, run, pieces, suspect=False, id=lease_id)
            lease.since -= age
            lease.early = True
            for lo, hi in lease.remaining:
                orphan.remaining.discard(lo, hi)
            if not orphan.remaining:
                self.leases.close(orphan)
        return others

    def hold_begun(self, run: bytes, ids: Ranges, seconds: float) -> None:
        """Hold what was acked early in an earlier epoch for its consumer to reclaim; after some seconds it is dead."""
        lane = self.lanes.get(run)
        pieces = [] if lane is None else pick_again(lane, ids, suspects=True)[0]
        if pieces:
            now = self.clock.monotonic()
            held = self.leases.grant(NOBODY, run, pieces, now=now, timeout=seconds, suspect=False, price=0.0)
            held.early = True

    def _grant(
        self,
        consumer: str,
        run: bytes,
        pieces: list[LeasedPiece],
        *,
        suspect: bool,
        id: int | None = None,
    ) -> Lease:
        count = sum(piece.n for piece in pieces)
        price = self.fairness.price(run, count)
        self.fairness.charge(run, price * count)
        return self.leases.grant(
            consumer,
            run,
            pieces,
            now=self.clock.monotonic(),
            timeout=self.lanes[run].visibility_timeout,
            suspect=suspect,
            price=price,
            id=id,
        )

    def begin(self, lease_id: int) -> bool:
        """Ack a lease early: nothing of it is delivered again, unless its consumer returns it untouched.

        Returns
        -------
        bool
            False when the lease is no more; its messages must not be run then.
        """
        self.tick()
        lease = self.leases.get(lease_id)
        if lease is not None:
            lease.early = True
        return lease is not None

    def extend(self, lease_ids: Iterable[int]) -> list[int]:
        """Renew leases for their full time; return the ids of those that are no more."""
        self.tick()
        now, gone = self.clock.monotonic(), []
        for lease_id in lease_ids:
            lease = self.leases.get(lease_id)
            if lease is None:
                gone.append(lease_id)
            else:
                self.leases.renew(lease, now)
        return gone

    def settle(self, settlement: Settlement) -> Settled:
        """Apply a consumer's outcomes; see `dqlab.rules.settling` for which of them count."""
        self.tick()
        run = settlement.run
        lane = self.lanes.get(run)
        if lane is None:
            return Settled(stale=settlement.count)
        lease = self.leases.get(settlement.lease)
        if lease is not None and (lease.run != run or lease.receipt[0] != settlement.epoch):
            lease = None
        held = 0 if lease is None else lease.remaining.size
        settling = Settling(lane, lease, settlement, now=self.clock.monotonic(), random=self.random)
        settled = settling.apply()
        if settling.processed:
            self.fairness.charge(run, settlement.busy_s)
            self.fairness.learn(run, settlement.busy_s, settling.processed)
        if lease is not None:
            self.fairness.charge(run, -lease.price * (held - lease.remaining.size))
            if not lease.remaining:
                self.leases.close(lease)
        self.end_drain()
        return settled

    def release(self, consumer: str, why: str = "") -> int:
        """Take back all that a dead consumer held; return how many messages that were.

        Parameters
        ----------
        why : str, optional
            What it died of.
        """
        self.tick()
        released = sum(self.end(lease, why) for lease in self.leases.of_consumer(consumer))
        self.end_drain()
        return released

    def invariants(self) -> None:
        """Assert that everything that can be checked agrees; costs time, for tests."""
        check(self)
