"""A queue shard: the rules of putting, leasing and settling, over all its lanes.

Not thread-safe. Time comes from the clock passed in, and what is due is applied before each change, so results do not
depend on when a timer fires. What the shell around it must do (notify a consumer) is left in `effects`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from operator import attrgetter
from random import Random
from types import EllipsisType
from typing import NamedTuple

from dqlab.clock import Clock
from dqlab.errors import BadOption, MessageNotFound, RunNotFound
from dqlab.frame import NO_ID, Frame, Settlement
from dqlab.rules.budget import amounts_of
from dqlab.rules.deliveries import Revoked, Settled, Settling, end_all, end_lease, let_go, retry, revoke
from dqlab.rules.flow import Flow, FlowTerms, Rate, Share
from dqlab.rules.journal import Journal
from dqlab.rules.lane import Activity, Lane, microseconds
from dqlab.rules.leases import NO_OWNER, Lease, LeasedPiece, Leases, epoch_of
from dqlab.rules.picking import Fairness, pick, pick_again, pick_suspect, serves, suspect_is_first
from dqlab.rules.puts import Producers, Uniques
from dqlab.rules.ranges import END, Ranges, first_id
from dqlab.rules.reports import HeldFor, HeldLease
from dqlab.rules.retry import QueueOptions, Retry
from dqlab.rules.states import ALIVE, State, Verdict
from dqlab.rules.trouble import StoredLetter

MOST_DESCRIBED = 5
"""Oldest leases that are described one by one."""

_EVERYTHING = ((0, END),)
_NOTHING: Mapping[str, float] = {}
_number = attrgetter("number")


class Put(NamedTuple):
    """The answer to a put."""

    verdict: Verdict
    first: int | None = None
    """Id of the frame's first message when ACCEPTED, or DUPLICATE of one of the producer's last 16 frames."""
    expected: int | None = None
    """When EARLY: the sequence that must come first."""


class Shard:
    """All lanes of one shard, and what clients and consumers do with them."""

    def __init__(
        self,
        name: str,
        index: int,
        *,
        epoch: int,
        options: QueueOptions,
        clock: Clock,
        random: Random,
        first_sequence: int = 0,
        journal: Journal,
    ) -> None:
        self.name = name  # the queue's name, for errors
        self.index = index  # the shard's number in its queue, 0-255
        self.epoch = epoch  # increases by one each time the shard is reopened
        self.options = options  # defaults for lanes opened without options of their own
        self.clock = clock
        self.random = random  # source of the jitter of retries
        # Both of the whole queue; a lane has its own `paused`.
        self.paused = False
        self.draining = False
        self.effects: deque[Revoked] = deque()  # for the shell to empty after each call
        self.journal = journal  # keeps the frames
        self.leases = Leases(epoch)  # the live ones
        self.activity = Activity()  # which lanes are active, so that idle lanes cost no time
        # By run; lane 0, `NO_ID`, is always there.
        self.lanes = {NO_ID: Lane(NO_ID, options, self.journal, self.activity)}
        self.producers = Producers()
        self.fairness = Fairness()
        self.next_id = first_id(index, first_sequence)
        self.uniques = Uniques()
        self._rates: dict[tuple[str, str], Rate] = {}  # limits that lanes share, by name and unit
        # Leases that ended by expiry or by their consumer's death, and messages that were redelivered.
        self.leases_lost = self.redelivered = 0

    def put(self, frame: Frame) -> Put:
        """Append a frame to its run's lane, or return why not, or raise RunNotFound when the run has no lane here."""
        self.tick()
        put = self.judge(frame)
        if put.verdict is not Verdict.ACCEPTED:
            return put
        first, lane = self.next_id, self.lane(frame.run)
        place = self.journal.put(frame, first)  # first: if it raises, nothing has changed
        if lane.redoes is not None:
            self.lapse(frame.run, frame.ordinal, frame.ordinal + frame.count)
        lane.put(frame, first, self.clock.monotonic(), place)
        self.next_id += frame.count
        self.producers.record(frame.producer, frame.run, first)
        return Put(put.verdict, first=first)

    def lapse(self, run: bytes, lo: int, hi: int) -> None:
        """Count the messages with these ordinals no longer, since their documents run again or are gone."""
        lane = self.lane(run)
        wanted = Ranges(lane.ids_of(lo, hi))
        for lease in self.leases.of_run(lane.run) if wanted else ():
            revoke(lane, lease, wanted, self.leases, self.effects)
        lane.lapse(lo, hi)

    def delay(self, id: int, seconds: float) -> None:
        """Make a ready plain put wait before it is leased."""
        lane = self.lane(NO_ID)
        found = lane.batches.at(id)
        assert found is not None, "it was just put"
        lane.trouble_of(id)  # holds when it is due
        due = microseconds(self.clock.monotonic() + seconds)
        lane.move(found[0], found[1], found[1] + 1, State.DELAYED, due=due)

    def judge(self, frame: Frame) -> Put:
        """Return the verdict that `put` would give now, without putting anything."""
        lane = self.lane(frame.run)
        verdict = self.producers.judge(frame.producer, frame.sequence)
        # First: a client that repeats a confirmed frame has to get its success, even if the queue drains or the lane is
        # sealed since.
        if verdict is Verdict.DUPLICATE:
            return Put(verdict, first=self.producers.first_of(frame.producer, frame.sequence))
        if self.draining:
            return Put(Verdict.DRAINING)
        if lane.sealed or lane.is_left_by(frame.producer):
            return Put(Verdict.SEALED)
        if verdict is Verdict.EARLY:
            return Put(verdict, expected=self.producers.expected(frame.producer))
        if not (lane.has_room(frame) and self.journal.room(frame.nbytes)):
            return Put(Verdict.FULL)
        return Put(verdict)

    def lease(
        self,
        consumer: str,
        n: int,
        *,
        slots: int = 1,
        max_bytes: int = 1 << 20,
        budget: float | None = None,
        at_least: int = 1,
        has: Mapping[str, float] = _NOTHING,
        stays: bytes | None = None,
    ) -> Lease | None:
        """Lease up to `n` messages of one lane, or one suspect alone, or return None when there is nothing to lease."""
        self.tick()
        # A consumer holds as many suspects as it has slots; other consumers get the rest.
        suspects = self.leases.suspects_held(consumer) < slots
        now = self.clock.monotonic()
        ready = [
            lane
            for lane in self.activity.alive()
            if lane.leasable(suspects=suspects) and (not lane.needs or serves(has, lane.needs)) and lane.room(now) != 0
        ]
        ready = [lane for lane in ready if self._below_caps(lane, 1, suspects=suspects) != []]
        if self.paused or n < 1 or not ready:
            return None
        # In the order of opening: `activity` has them in the order in which they became alive, and fairness needs a
        # fixed one.
        ready.sort(key=_number)
        # What a slot has loaded for a run is gone when it turns to another one. Fairness makes up for it afterwards.
        runs = [lane.run for lane in ready]
        run = stays if stays is not None and stays in runs else self.fairness.choose(runs)
        lane = self.lanes[run]
        if budget is not None:
            # `budget` is in seconds. `at_least` beats it, because coroutines wait concurrently.
            n = min(n, max(at_least, self.fairness.batch(run, budget, lane.ready.size if any(lane.units) else 0)))
        if (room := lane.room(now)) is not None:
            n = min(n, room)
        suspect = suspects and suspect_is_first(lane)
        free = self._below_caps(lane, min(n, at_least), suspects=suspects)
        if free is not None:  # a message that waits in its slot counts as a call
            suspect = free[0] in lane.suspects
            pieces = pick_again(lane, Ranges((id, id + 1) for id in free), suspects=suspect)[0]
        else:
            pieces = pick_suspect(lane) if suspect else pick(lane, n, max_bytes, consumer)
        if suspect:
            self.redelivered += 1
        elif lane.retrying or lane.taken:
            self.redelivered += sum(
                lane.delivered_before(piece.frame + piece.lo, piece.frame + piece.lo + piece.n) for piece in pieces
            )
        return self._grant(consumer, run, pieces, suspect=suspect)

    def _below_caps(self, lane: Lane, n: int, *, suspects: bool) -> list[int] | None:
        """Return up to `n` messages that the lane's caps let through, or None where it has no caps."""
        if lane.flow is None or lane.flow.caps is None:
            return None
        caps, leases = lane.flow.caps, self.leases.of_run(lane.run)
        leased = [ids for lease in leases for ids in lease.remaining]
        if suspects and (first := lane.suspects.first) is not None:  # alone, as ever
            found = caps.free([(first, first + 1)], leased, 1, lane.batches)
            if found or caps.wanted:
                return found
        return caps.free(lane.ready, leased, n, lane.batches)

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
        """Give a lease of an earlier epoch back to the consumer that still works on it, and return ids that it lost."""
        self.tick()
        # `ids` are the part that the consumer has not settled; `age` is in seconds since the lease; `early` = it was
        # acked early. Lost are ids that are leased to others, settled, cancelled or retried by hand by now.
        if lease_id in self.leases or epoch_of(lease_id) >= self.epoch:
            return []
        lane = self.lanes.get(run)
        if lane is None:
            return list(ids)
        wanted = Ranges(ids)
        if early:
            return self._reclaim_begun(consumer, lease_id, run, wanted, age)
        suspect = wanted.size == 1 and wanted.first in lane.suspects
        pieces, others = pick_again(lane, wanted, suspects=suspect, lease_id=lease_id)
        if pieces:
            self._grant(consumer, run, pieces, suspect=suspect, id=lease_id).since -= age
        return others

    def _reclaim_begun(
        self, consumer: str, lease_id: int, run: bytes, wanted: Ranges, age: float
    ) -> list[tuple[int, int]]:
        """Give a lease that was acked early back to the consumer that began it."""
        # The log does not record which consumer began it, so all of a run wait in one lease of `NO_OWNER`.
        orphan = next((lease for lease in self.leases.of_consumer(NO_OWNER) if lease.run == run), None)
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
        """Hold messages acked early in an earlier epoch until their consumer reclaims them, for at most `seconds`."""
        lane = self.lanes.get(run)
        pieces = [] if lane is None else pick_again(lane, ids, suspects=True)[0]
        if pieces:
            now = self.clock.monotonic()
            held = self.leases.grant(NO_OWNER, run, pieces, now=now, timeout=seconds, suspect=False, price=0.0)
            # So they are dead when this lease ends, and never delivered again.
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
        count, flow = sum(piece.n for piece in pieces), self.lanes[run].flow
        taken = _NOTHING if flow is None else flow.take(count, self.clock.monotonic())
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
            taken=taken,
            id=id,
        )

    def begin(self, lease_id: int) -> bool:
        """Ack a lease early, and return False when it no longer exists, so that its messages must not run."""
        self.tick()
        lease = self.leases.get(lease_id)
        if lease is not None:
            lease.early = True
        return lease is not None

    def isolate(self, lease_id: int) -> bool:
        """Note that a suspect runs in its consumer's process, and return False if it must not run."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.deadline <= self.clock.monotonic():  # an end before the run must not count
            return False
        lease.isolated = lease.suspect
        return True

    def note_run(self, lease_id: int) -> None:
        """Note that a suspect has run."""
        lease = self.leases.get(lease_id)
        if lease is not None and lease.suspect:
            # Its consumer may have the next one, and its loss counts no longer against it.
            lease.ran, lease.isolated = True, False

    def extend(self, lease_ids: Iterable[int]) -> list[int]:
        """Renew leases for their full time, and return the ids of those that no longer exist."""
        now, ids = self.clock.monotonic(), list(lease_ids)
        held = [lease for id in ids if (lease := self.leases.get(id)) is not None]
        for lease in held:
            if lease.deadline > now:  # first: what others hold may keep `tick` from its work
                self.leases.renew(lease, now)
        try:
            self.tick()
        except BaseException:
            # While the journal accepts nothing, expired leases cannot end: all of these go on, and the caller gets the
            # reason.
            for lease in held:
                if lease.deadline <= now and self.leases.get(lease.id) is lease:
                    self.leases.renew(lease, now)
            raise
        return [id for id in ids if self.leases.get(id) is None]

    def note_answered(self, lease_id: int, n: int) -> None:
        """Note that the calls of `n` messages of a lease have ended, whose rows wait for their part of a sink."""
        lease = self.leases.get(lease_id)
        lane = None if lease is None else self.lanes[lease.run]
        if lease is not None and lane is not None and lane.flow is not None:
            more, lease.answered, now = n - lease.answered, n, self.clock.monotonic()
            if more > 0:
                took, in_flight = now - lease.since, lane.counts[State.LEASED]
                lane.flow.answered(more, now, took=took, in_flight=in_flight)
            self._count_waiting(lane)

    def _count_waiting(self, lane: Lane) -> None:
        if lane.flow is not None:
            leases = (lease for lease in self.leases.values() if lease.run == lane.run)
            lane.flow.waiting = sum(min(lease.answered, lease.remaining.size) for lease in leases)

    def settle(self, settlement: Settlement) -> Settled:
        """Apply a consumer's outcomes, as far as `Settling` accepts them."""
        self.tick()
        run = settlement.run
        lane = self.lanes.get(run)
        if lane is None:
            return Settled(stale=settlement.count)
        lease = self.leases.get(settlement.lease)
        if lease is not None and (lease.run != run or lease.receipt[0] != settlement.epoch):
            lease = None
        held = 0 if lease is None else lease.remaining.size
        settling = Settling(
            lane, lease, settlement, now=self.clock.monotonic(), random=self.random, next_lease=self.leases.next_id
        )
        settled = settling.apply()
        if settling.processed:
            self.fairness.charge(run, settlement.busy_s)
            self.fairness.learn(run, settlement.busy_s, settling.processed)
        if lane.flow is not None and lane.flow.metered:
            amounts = list(amounts_of(settlement, settled.called))
            back, taken = (0, _NOTHING) if lease is None else (held - lease.remaining.size, lease.taken)
            lane.flow.settle(amounts, taken, back, self.clock.monotonic())
        if lease is not None:
            self.fairness.charge(run, -lease.price * (held - lease.remaining.size))
            if not lease.remaining:
                self.leases.close(lease)
            if lane.flow is not None and lane.flow.waiting:
                self._count_waiting(lane)
        self.end_drain()
        return settled

    def release(self, consumer: str, why: str = "") -> int:
        """Take back all that a dead consumer held, and return how many messages that were."""
        self.tick()
        released = sum(self.end(lease, why, died=True) for lease in self.leases.of_consumer(consumer))
        for lane in self.activity.alive():
            if lane.groups is not None:
                lane.groups.forget(consumer.partition("#")[0])
        self.end_drain()
        return released

    # --- orders of users --------------------------------------------------------------------------

    def open_lane(
        self,
        run: bytes,
        *,
        retry: Retry | None = None,
        max_deliveries: int | None = None,
        visibility_timeout: float | None = None,
        maxsize: int | EllipsisType | None = ...,
        max_bytes: int | EllipsisType | None = ...,
    ) -> Lane:
        """Return the lane of a run, after creating it with these options if there is none yet."""
        if run not in self.lanes:
            # For `maxsize` and `max_bytes` None means no limit, so "as the queue has it" is spelled by leaving them
            # out.
            given = self.options
            options = QueueOptions(
                visibility_timeout=given.visibility_timeout if visibility_timeout is None else visibility_timeout,
                max_deliveries=given.max_deliveries if max_deliveries is None else max_deliveries,
                retry=given.retry if retry is None else retry,
                maxsize=given.maxsize if isinstance(maxsize, EllipsisType) else maxsize,
                max_bytes=given.max_bytes if isinstance(max_bytes, EllipsisType) else max_bytes,
            )
            self.lanes[run] = Lane(run, options, self.journal, self.activity)
        return self.lanes[run]

    def set_flow(self, run: bytes, terms: FlowTerms) -> None:
        """Hold a run's messages back as these terms say, from now on."""
        lane, share, wall = self.lane(run), terms.share or Share(), self.clock.wall()
        self.fairness.share(run, share)
        lane.share, lane.waits = share, share.starting(wall) if wall < share.starts else ""
        self.activity.touch(run)
        before, terms = lane.flow, replace(terms, share=None)
        if terms == FlowTerms() if before is None else before.keeps(terms):
            return  # what it has learnt stays
        now, rates = self.clock.monotonic(), list[Rate]()
        own = {rate.limit.unit: rate for rate in (before.rates if before else ()) if not rate.limit.name}
        for limit in terms.rates:
            rate = self._rates.get((limit.name, limit.unit)) if limit.name else own.get(limit.unit)
            rate = rate or Rate(limit, now)
            rate.tune(limit, now)
            rates.append(rate)
            if limit.name:
                self._rates[limit.name, limit.unit] = rate
        lane.flow = Flow(terms, rates, proven=lane.counts[State.ACKED] > 0)
        if before is not None and before.terms.adaptive == terms.adaptive:
            lane.flow.level = before.level  # what was found out stays
        if before is not None and before.purse is not None and lane.flow.purse is not None:
            lane.flow.purse.follow(before.purse)
        self._count_waiting(lane)

    def seal_lane(self, run: bytes, total: int) -> None:
        """Refuse further puts, since `total` messages of the run were put here."""
        lane = self.lane(run)
        lane.total = total
        lane.redo(again=False)
        # Messages that are missing from the total are lost, as when an earlier epoch confirmed them and left no log.
        lane.counts[State.LOST] = max(0, total - (sum(lane.counts) - lane.counts[State.LOST]))
        self.activity.touch(run)

    def reopen_lane(self, run: bytes, producer: bytes = NO_ID, *, redo: bool = False) -> None:
        """Accept puts again, of this producer alone: the input was cut off and continues, or documents run again."""
        lane = self.lane(run)
        lane.total, lane.producer = None, producer
        lane.redo(again=redo)
        self.activity.touch(run)

    def drop_lane(self, run: bytes) -> None:
        """Cancel what is left of a run, free its frames and forget it, or start over with lane 0."""
        self.tick()
        lane = self.lanes.pop(run, None)
        if lane is None:
            return
        for lease in self.leases.of_run(run):
            revoke(lane, lease, Ranges(_EVERYTHING), self.leases, self.effects)
        for batch in lane.batches:
            self.journal.freed(batch)
        self.fairness.forget(run)
        self.activity.forget(run)
        if run == NO_ID:
            # The producers of lane 0 live on, so their numbers are kept.
            self.lanes[NO_ID] = Lane(NO_ID, self.options, self.journal, self.activity)
        else:
            self.producers.forget(run)
        self.end_drain()

    def cancel(self, run: bytes, ids: Iterable[tuple[int, int]] | None = None) -> int:
        """Cancel what is ready, delayed or leased in a run, or in half-open ranges of its ids, and return how many."""
        return self._end_all([self.lane(run)], _EVERYTHING if ids is None else ids, ALIVE, State.CANCELLED)

    def let_go(self, run: bytes, ids: Iterable[tuple[int, int]], why: str = "") -> int:
        """Take leased messages from their consumers, make them ready, or with `why` dead, and return how many."""
        self.tick()
        taken = let_go(self.lane(run), ids, self.leases, self.effects, why)
        self.end_drain()
        return taken

    def lose(self, run: bytes, ids: Iterable[tuple[int, int]]) -> int:
        """Count as lost the unsettled messages in ranges of ids whose bytes cannot be read, and return how many."""
        return self._end_all([self.lane(run)], ids, (*ALIVE, State.DEAD), State.LOST)

    def purge(self, run: bytes | None, state: State) -> int:
        """Cancel all READY, DELAYED or DEAD messages of a run (None = of all), and return how many."""
        if state not in (State.READY, State.DELAYED, State.DEAD):
            raise BadOption(option="state", value=state.name.lower(), problem="one of ready, delayed, dead.")
        lanes = list(self.lanes.values()) if run is None else [self.lane(run)]
        return self._end_all(lanes, _EVERYTHING, (state,), State.CANCELLED)

    def _end_all(self, lanes: Iterable[Lane], ids: Iterable[tuple[int, int]], of: Collection[State], new: State) -> int:
        self.tick()
        ended = sum(end_all(lane, ids, of, new, self.leases, self.effects) for lane in lanes)
        self.end_drain()
        return ended

    def retry(
        self,
        run: bytes,
        ids: Iterable[tuple[int, int]],
        function: bytes | None = None,
        *,
        first_lease: int | None = None,
    ) -> int:
        """Deliver dead messages again, in their old places and with fresh counts, and return how many."""
        self.tick()
        # `function` runs in place of the function of their frames. Reports of leases before `first_lease` do not count;
        # a replay, which has no leases, passes the one of then.
        return retry(self.lane(run), ids, function, self.leases.next_id if first_lease is None else first_lease)

    def adopt(self, run: bytes, function: bytes, replaced: Iterable[bytes] | None = None) -> int:
        """Make every later delivery of a run's messages run this function, and return how many are ready or delayed."""
        self.tick()
        lane = self.lane(run)
        # A message that runs now keeps its function; redelivered, it runs the new one too. `replaced` are the functions
        # that this one replaces in later frames (None = any): others are newer.
        lane.overrides.assign(*_EVERYTHING[0], function)
        lane.replaced = None if replaced is None else set(replaced)
        self.activity.touch(run)
        return lane.counts[State.READY] + lane.counts[State.DELAYED]

    def pause(self, run: bytes | None) -> None:
        """Lease nothing more of a run, or of the whole queue with None, but still accept puts."""
        self.tick()
        if run is None:
            self.paused = True
        else:
            self.lane(run).paused = True
            self.activity.touch(run)

    def resume(self, run: bytes | None) -> None:
        """End a run's pause, or with None the whole queue's pause and draining, but no pause of a run."""
        self.tick()
        if run is None:
            self.paused = self.draining = False
        else:
            self.lane(run).paused = False
            self.activity.touch(run)

    def drain(self) -> None:
        """Refuse puts, and pause when nothing is ready, delayed or leased any more."""
        self.draining = True
        self.tick()

    # --- what it holds, and what is due -----------------------------------------------------------

    def __repr__(self) -> str:
        alive = sum(lane.alive for lane in self.lanes.values())
        return f"<Shard {self.name}/{self.index} epoch {self.epoch}: {len(self.lanes)} lanes, {alive:,} messages alive>"

    def tick(self) -> None:
        """Apply what is due, so that delayed messages become ready and expired leases end."""
        now = self.clock.monotonic()
        for lane in self.activity.alive():
            if lane.waits and self.clock.wall() >= lane.share.starts:  # not monotonic: a machine may sleep
                lane.waits = ""
            if lane.delayed:
                # Before `admit`: this is not recorded, since a replay ends delays by time.
                lane.wake(now)
        expired = self.leases.expired(now)
        if expired:
            # Recorded at once, so that no other record can be taken for the cause. While the journal accepts nothing,
            # leases last.
            self.journal.admit()
            for lease in expired:
                self.end(lease, died=False)
            self.journal.noted()
        self.end_drain()

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do or a flow lets messages through, or None if time changes nothing."""
        dues = [due for lane in self.activity.alive() if (due := lane.next_due()) is not None]
        now = self.clock.monotonic()
        for lane in self.activity.alive():
            if lane.waits:
                dues.append(now + lane.share.starts - self.clock.wall())
            if lane.flow is not None and not self.paused and lane.leasable(suspects=True):
                opens = lane.flow.opens(now, lane.counts[State.LEASED])
                dues += [] if opens is None else [opens]
        lease = self.leases.next_deadline()
        return min(dues if lease is None else [*dues, lease], default=None)

    def locate(self, run: bytes, id: int) -> tuple[int, int]:
        """Return the first id of the frame that holds a message and its index there, or raise MessageNotFound."""
        found = self.lane(run).batches.at(id)
        if found is not None:
            return found[0].first, found[1]
        raise MessageNotFound(queue=self.name, id=id)

    def dead_letters(
        self, run: bytes, *, after: int = -1, limit: int = 1000, classes: Collection[str] = ()
    ) -> list[StoredLetter]:
        """Return up to `limit` dead letters of a run with ids above `after`, by id, perhaps of some classes only."""
        return list(islice(self.lane(run).letters(after, classes), limit))

    def unsettled(self, run: bytes, lo: int, hi: int) -> int:
        """Return how many messages with ids in ``[lo, hi)`` are ready, delayed or leased."""
        return self.lane(run).alive_among(lo, hi)

    def lag(self) -> float:
        """Return the age of the oldest ready message, in seconds, or 0.0 when none is ready."""
        oldest = min((put_at for lane in self.activity.alive() if (put_at := lane.oldest()) is not None), default=None)
        return 0.0 if oldest is None else self.clock.monotonic() - oldest

    def lane(self, run: bytes) -> Lane:
        """Return the lane of a run, or raise RunNotFound when it has none here."""
        lane = self.lanes.get(run)
        if lane is None:
            raise RunNotFound(run=run.hex(), hint=" It may have been dropped.", known="see lab.all_runs()")
        return lane

    def end(self, lease: Lease, why: str = "", *, died: bool | None = None) -> int:
        """Close a lease, give its unsettled messages back to their lane, and return how many they were."""
        self.leases.close(lease)
        self.leases_lost += 1
        if (flow := self.lanes[lease.run].flow) is not None:
            flow.lose(lease.remaining.size)
            self._count_waiting(self.lanes[lease.run])
        return end_lease(self.lanes[lease.run], lease, why, died=died)

    def end_drain(self) -> None:
        """Pause a draining queue that is empty."""
        if self.draining and not self.activity.alive():
            self.paused = True


class Holding(NamedTuple):
    """Leased messages by age, and the leases that have been held longest."""

    held: list[HeldFor]
    oldest: list[HeldLease]


def holding(shard: Shard) -> Holding:
    """Return ages of leased messages, as durations at this instant, in one row for each second of age."""
    now = shard.clock.monotonic()
    rows: dict[tuple[int, float], HeldFor] = {}
    for lease in shard.leases.values():
        age, left, own = now - lease.since, lease.deadline - now, (int(now - lease.since), lease.timeout)
        row = rows.get(own) or HeldFor(age, left, lease.timeout, 0)
        rows[own] = row._replace(left=min(row.left, left), messages=row.messages + lease.remaining.size)
    oldest = nsmallest(MOST_DESCRIBED, shard.leases.values(), key=lambda lease: lease.since)
    return Holding(list(rows.values()), [described(shard, lease) for lease in oldest])


def described(shard: Shard, lease: Lease) -> HeldLease:
    """Return a lease with its durations at this instant."""
    now, delivery = shard.clock.monotonic(), 1
    if lease.remaining.size == 1:
        ((id, _),) = lease.remaining
        lane = shard.lanes[lease.run]
        trouble = lane.trouble.get(id)
        delivery += (trouble.deliveries if trouble is not None else 0) + lane.taken.get(id, 0)
    age, left = now - lease.since, lease.deadline - now
    return HeldLease(lease.consumer, age, left, lease.remaining.size, lease.renewals, delivery, lease.run)
