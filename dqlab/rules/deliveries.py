"""How deliveries end: which outcomes of a settlement count, and what becomes of a message without an ack.

An outcome is accepted, a duplicate (the message was settled before, which is success), or stale; see `Settling`. A
delivery counts when it ends in an exception, or when the message was a suspect that ran in its consumer's process and
its lease ended by death or expiry; see `end_lease`. A lease that was acked early and is lost leaves its messages dead,
and so does a suspect's last chance. Everything else returns the message uncounted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from random import Random
from typing import NamedTuple

from dqlab.errors import FrameCorrupt, MemoryLimit, MessageTimeout, ProcessDied
from dqlab.failures.classes import asked_wait, fingerprint_of, keep, passing_of
from dqlab.failures.failure import Failure, path_of
from dqlab.frame import Outcome, Piece, Settlement
from dqlab.rules.batches import Batch
from dqlab.rules.lane import Lane, microseconds
from dqlab.rules.leases import Lease, Leases
from dqlab.rules.ranges import Ranges
from dqlab.rules.states import State, stretches
from dqlab.rules.trouble import ONCE, Receipt, Trouble
from dqlab.texts import brief

MOST_UNCOUNTED = 6
"""Losses of a suspect with its consumer that do not count, as others ran there; each further one does."""

_CUT_OFF = frozenset(map(path_of, (MemoryLimit, MessageTimeout, ProcessDied)))
"""Failures of calls that could not say at their end what they have cost."""
_OUTCOMES = tuple(Outcome)
ONLY = b" only"
"""The end of a delay that is about its message alone."""
_REASON = 300
"""Most characters of the reason why a consumer died."""
_LONGEST_S = 1e9  # 31 years; keeps microseconds finite for any delay that a consumer sends


def fail(
    lane: Lane,
    batch: Batch,
    index: int,
    outcome: Outcome,
    entry: bytes,
    *,
    early: bool,
    receipt: Receipt,
    now: float,
    random: Random,
) -> bool:
    """End a delivery with FAIL, REJECT or NACK, and return whether its message is dead now."""
    id = batch.first + index
    # FAIL and REJECT count. A NACK is the function's own request to get the message later (`dq.Later`), and counts only
    # where the lease was acked early, since the message is not delivered again then. `entry` is what the consumer sent
    # with it: a failure record, or a delay.
    record = lane.trouble_of(id) if outcome is Outcome.NACK and not early else lane.count_delivery(id)
    record.receipt = receipt
    if outcome is not Outcome.NACK:
        record.exceptions += 1
        record.failure = keep(entry)
    record.reason = _death_reason(lane, record, outcome, entry, early=early)
    if record.reason and outcome is Outcome.NACK:
        _bury(lane, batch, index, record)
        return True
    if record.reason:
        lane.move(batch, index, index + 1, State.DEAD)
        return True
    # What a server asks for, plus the delay of any retry: not all its documents must return together.
    nacked = outcome is Outcome.NACK
    delay = _seconds(entry) if nacked else lane.retry.delay(record.exceptions, random) + _seconds(asked_wait(entry))
    due = microseconds(now + min(delay, _LONGEST_S))
    new = State.DELAYED if due > microseconds(now) else State.READY
    lane.move(batch, index, index + 1, new, due=due)
    return False


def end_lease(lane: Lane, lease: Lease, why: str = "", *, died: bool | None = None) -> int:
    """Give the messages that a lost lease still holds back to its lane, and return how many they are."""
    # Lost: it expired (`died` is False), its consumer died (True, `why` if known), or neither is known (None).
    for lo, hi in lease.remaining:
        for batch, a, b in lane.batches.covering(lo, hi):
            # A consumer that dies leaves suspects, and each is leased alone. Its loss counts if it ran in the process
            # of its consumer. Most run in a process of their own, whose death would be an outcome: their consumer died
            # of something else. But one that ends the whole machine must not be delivered for ever.
            counts = lease.early or lease.isolated
            if lease.suspect and not (counts or lease.ran):
                counts = lane.note_lost(batch.first + a) > MOST_UNCOUNTED
            if counts:
                for index in range(a, b):
                    _lose(lane, batch, index, lease, why, died=died)
            else:
                lane.move(batch, a, b, State.READY, suspect=True)
    return lease.remaining.size


def give_up(lane: Lane, batch: Batch, index: int, lease: Lease, why: str) -> None:
    """End a delivery for which a user no longer waits, and make its message dead."""
    record = lane.count_delivery(batch.first + index)
    record.receipt, record.reason = lease.receipt, brief(why, _REASON)
    _bury(lane, batch, index, record)


def _bury(lane: Lane, batch: Batch, index: int, record: Trouble) -> None:
    """Make a message dead whose delivery ended without an exception."""
    # No failure record counts it, so `Book` adds this number to those that do.
    lane.died_unanswered[fingerprint_of(record.failure)] += 1
    lane.move(batch, index, index + 1, State.DEAD)


def _lose(lane: Lane, batch: Batch, index: int, lease: Lease, why: str, *, died: bool | None) -> None:
    """Count a delivery that ended without an answer."""
    record = lane.count_delivery(batch.first + index)
    # None: it is not known whether its consumer died or its lease expired.
    if died is not None:
        record.deaths, record.expiries = record.deaths + died, record.expiries + (not died)
    record.receipt = lease.receipt
    if lease.early:
        record.reason = "lost after early ack"
    # `max_deliveries` bounds deliveries that count and ended without an exception; the lane's retries bound exceptions
    # (`_death_reason`).
    elif record.unanswered >= lane.max_deliveries:
        record.reason = _without_answer(record) + (f"; {brief(why, _REASON)}" if why else "")
    if record.reason:
        _bury(lane, batch, index, record)
    else:
        lane.move(batch, index, index + 1, State.READY, suspect=True)


def _without_answer(record: Trouble) -> str:
    """Return how deliveries ended that were not answered."""
    # How they ended is not known of those before a restart.
    if record.deaths + record.expiries != record.unanswered:
        return f"its consumer died or its lease ended {_times(record.unanswered)}"
    ways = (("its consumer died", record.deaths), ("its lease ended", record.expiries))
    return " and ".join(f"{way} {_times(n)}" for way, n in ways if n)


def _death_reason(lane: Lane, record: Trouble, outcome: Outcome, entry: bytes, *, early: bool) -> str:
    """Return why a message is not delivered again, or "" if it is."""
    if early:
        return "not retried after early ack"
    if outcome is Outcome.NACK:
        return ""
    retry, retries, rejected = lane.retry, lane.retry.retries, outcome is Outcome.REJECT
    if retry.on or retry.never:
        if not retry.allows(_kinds_in(entry), rejected=rejected):
            return "not retried" if rejected else "not retried, as on= and never= of its Retry say"
    elif rejected:
        return "not retried"
    if record.exceptions <= retries:
        return ""
    return (
        f"{retries} {'retry' if retries == 1 else 'retries'} used up" if retries else "not retried, because retries=0"
    )


def _kinds_in(entry: bytes) -> str:
    try:
        return Failure.from_bytes(entry).kinds
    except FrameCorrupt:  # a record of a later version
        return ""


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def _seconds(entry: bytes) -> float:
    """Parse a delay sent as ASCII, and return 0 unless it is finite and positive."""
    try:
        delay = float(entry.partition(b" ")[0])
    except ValueError:
        return 0.0
    return delay if math.isfinite(delay) and delay > 0.0 else 0.0


def kept_at(settlement: Settlement, at: int) -> bytes | None:
    """Return the answers that a message has kept, by its position in a settlement, or None for none."""
    rider = settlement.riders.get(ONCE)
    entry = None if rider is None else rider.get(at)
    return None if entry is None else bytes(entry)


class Failed(NamedTuple):
    """A newly accepted FAIL or REJECT."""

    id: int
    ordinal: int
    at: int
    """Its position in the settlement's columns."""
    dead: bool
    """False when the message will be tried again."""


class Settled(NamedTuple):
    """The changes that a settlement made."""

    results: tuple[tuple[Piece, int], ...] = ()
    """Newly acked messages, and the position of their stretch in the settlement's columns."""
    failed: tuple[Failed, ...] = ()
    """Newly accepted exceptions."""
    put_off: tuple[int, ...] = ()
    """Places of messages whose call neither gave a result nor failed, and is made again later."""
    duplicates: int = 0
    """Outcomes of messages that were settled before."""
    stale: int = 0
    """Outcomes of messages that are leased to another consumer, retried since, cancelled or unknown."""

    @property
    def called(self) -> list[int]:
        """Places of all messages whose calls were accepted, whatever came of them."""
        answered = [at + i for piece, at in self.results for i in range(piece.n)]
        return [*answered, *(failed.at for failed in self.failed), *self.put_off]


class Settling:
    """Applies one settlement to a lane."""

    def __init__(
        self,
        lane: Lane,
        lease: Lease | None,
        settlement: Settlement,
        *,
        now: float,
        random: Random,
        next_lease: int,
    ) -> None:
        # The lane that the settlement names: it does not know messages of other lanes, so they are stale.
        self._lane = lane
        # The lease of the receipt, None when it no longer exists.
        self._lease = lease
        self._settlement = settlement
        self._receipt: Receipt = (settlement.epoch, settlement.lease)
        self._now = now
        self._random = random
        self._next_lease = next_lease
        self._results: list[tuple[Piece, int]] = []
        self._failed: list[Failed] = []
        self._put_off: list[int] = []
        self._duplicates = 0
        self._stale = 0
        self._answered = 0
        """Calls that what they call has answered, whatever the function made of it."""
        self.processed = 0
        """Messages with an accepted outcome other than RETURN."""

    def apply(self) -> Settled:
        """Judge every outcome, change the lane accordingly, and return the changes."""
        outcomes, at, in_flight = self._settlement.outcomes, 0, self._lane.counts[State.LEASED]
        for first, _, n in self._settlement.pieces:
            for start, stop, outcome in stretches(outcomes, at, at + n):
                self._stretch(first + start - at, first + stop - at, _OUTCOMES[outcome], start)
            at += n
        if self._lease is not None and self._lease.answered:  # these were answered before
            told = min(self._lease.answered, self._answered)
            self._lease.answered -= told
            self._answered -= told
        if self._answered and self._lane.flow is not None:
            took = 0.0 if self._lease is None else self._now - self._lease.since
            self._lane.flow.answered(self._answered, self._now, took=took, in_flight=in_flight)
        return Settled(tuple(self._results), tuple(self._failed), tuple(self._put_off), self._duplicates, self._stale)

    def _stretch(self, lo: int, hi: int, outcome: Outcome, at: int) -> None:
        """Judge ids ``[lo, hi)``, which all have the same outcome and start at position `at`."""
        if self._lease is None:
            self._free(lo, hi, outcome, at)
            return
        remaining = self._lease.remaining
        held = remaining.overlap(lo, hi)
        others = remaining.gaps(lo, hi) if held != [(lo, hi)] else []
        for a, b in held:
            remaining.discard(a, b)
            for batch, start, stop in self._lane.batches.covering(a, b):
                self._accept(batch, start, stop, outcome, at + batch.first + start - lo)
        for a, b in others:
            self._free(a, b, outcome, at + a - lo)

    def _free(self, lo: int, hi: int, outcome: Outcome, at: int) -> None:
        """Judge ids that are not leased under the receipt."""
        # Counted first: an ack below may free its frame, and would then be counted here again.
        settled = sum(b - a for a, b in self._lane.settled.within(lo, hi))
        unknown = hi - lo - settled
        for batch, a, b, state in self._lane.stretches(lo, hi):
            unknown -= b - a
            if state in (State.ACKED, State.DEAD):
                self._duplicates += b - a
            # An ack or a failure is accepted also when no consumer holds the message, because its lease expired or an
            # earlier epoch granted it: that saves running it again.
            elif state not in (State.READY, State.DELAYED):
                self._stale += b - a
            else:
                # Not from before a retry by hand: that delivery ran the code that was retried.
                for x, y in self._lane.answerable(batch.first + a, batch.first + b, self._settlement.lease):
                    self._waiting(batch, x - batch.first, y - batch.first, outcome, at + x - lo)
                    self._stale -= y - x
                self._stale += b - a
        self._duplicates += settled
        self._stale += unknown

    def _waiting(self, batch: Batch, a: int, b: int, outcome: Outcome, at: int) -> None:
        """Judge waiting messages, for which reports of this delivery may count."""
        if outcome is Outcome.ACK:
            self._accept(batch, a, b, outcome, at)
        else:
            self._free_failures(batch, a, b, outcome, at)

    def _free_failures(self, batch: Batch, a: int, b: int, outcome: Outcome, at: int) -> None:
        """Accept failures of waiting messages unless the same delivery was counted or given back before."""
        for index in range(a, b):
            record = self._lane.trouble.get(batch.first + index)
            # A failure counts once for each delivery, however often its settlement arrives.
            returned = outcome in (Outcome.RETURN, Outcome.REFUSED)
            if returned or (record is not None and record.receipt == self._receipt):
                self._duplicates += 1
            else:
                self._fail(batch, index, outcome, at + index - a, early=False)

    def _accept(self, batch: Batch, a: int, b: int, outcome: Outcome, at: int) -> None:
        if outcome is Outcome.ACK:
            self._lane.move(batch, a, b, State.ACKED)
            self._results.append((Piece(batch.first + a, batch.ordinal + a, b - a), at))
            self.processed += b - a
            self._answered += b - a
        elif outcome is Outcome.RETURN:
            suspect = self._lease is not None and self._lease.suspect
            self._lane.move(batch, a, b, State.READY, suspect=suspect)
        else:
            early = self._lease is not None and self._lease.early
            for index in range(a, b):
                self._fail(batch, index, outcome, at + index - a, early=early)

    def _held_back(self, outcome: Outcome, entry: bytes) -> bool:
        """Tell the lane's flow of a call that did not succeed, and return whether that is not the message's failure."""
        lane, now = self._lane, self._now
        limited = lane.flow is not None and lane.flow.limited
        if outcome is Outcome.REFUSED or (outcome is Outcome.NACK and limited and not entry.endswith(ONLY)):
            after, _, told = entry.partition(b" ")
            said = told.decode(errors="replace")
            lease, following = self._settlement.lease, self._next_lease
            lane.flowing().refused(_seconds(after), said, now, lease=lease, next_lease=following)
            return True
        if outcome is Outcome.NACK:
            return False
        passing = passing_of(entry) if outcome is Outcome.FAIL else ""
        if not passing:  # the function's own mistake: what it calls is there
            self._answered += 1
            purse = None if lane.flow is None else lane.flow.purse
            if purse is not None and not _CUT_OFF.isdisjoint(_kinds_in(entry).split()):
                purse.lose(1)
            return False
        return lane.flowing().failed(passing, now)

    def _fail(self, batch: Batch, index: int, outcome: Outcome, at: int, *, early: bool) -> None:
        entry = bytes(self._settlement.entry(at))
        if (once := kept_at(self._settlement, at)) is not None:
            self._lane.trouble_of(batch.first + index).once = once
        if self._held_back(outcome, entry) and not early:
            suspect = self._lease is not None and self._lease.suspect
            self._lane.move(batch, index, index + 1, State.READY, suspect=suspect)
            self._put_off.append(at)
            return
        dead = fail(
            self._lane,
            batch,
            index,
            Outcome.NACK if outcome is Outcome.REFUSED else outcome,
            entry,
            early=early,
            receipt=self._receipt,
            now=self._now,
            random=self._random,
        )
        self.processed += 1
        if outcome in (Outcome.NACK, Outcome.REFUSED):
            self._put_off.append(at)
        else:
            self._failed.append(Failed(batch.first + index, batch.ordinal + index, at, dead))


class Revoked(NamedTuple):
    """Ids of a lease that its consumer should skip."""

    consumer: str
    lease_id: int
    ranges: tuple[tuple[int, int], ...]


def revoke(lane: Lane, lease: Lease, wanted: Ranges, leases: Leases, effects: deque[Revoked]) -> None:
    """Remove ids from a lease of a lane, if it holds any of them, and leave a `Revoked` for its consumer."""
    taken = tuple(hit for lo, hi in wanted for hit in lease.remaining.overlap(lo, hi))
    if not taken:
        return
    for lo, hi in taken:
        lease.remaining.discard(lo, hi)
    effects.append(Revoked(lease.consumer, lease.id, taken))
    if lane.flow is not None:
        lane.flow.lose(sum(hi - lo for lo, hi in taken))
    if not lease.remaining:
        leases.close(lease)


def let_go(lane: Lane, ids: Iterable[tuple[int, int]], leases: Leases, effects: deque[Revoked], why: str = "") -> int:
    """Take leased messages among `ids` from their consumers, and return how many."""
    wanted, taken = Ranges(ids), 0
    for lease in leases.of_run(lane.run):
        # Without a reason the messages are ready again, uncounted. What was acked early is never delivered again, so it
        # stays with its consumer; with a reason it is dead.
        if lease.early and not why:
            continue
        # Before `revoke`, which removes them from the lease and may close it.
        held = [hit for lo, hi in wanted for hit in lease.remaining.overlap(lo, hi)]
        revoke(lane, lease, wanted, leases, effects)
        for lo, hi in held:
            taken += hi - lo
            for batch, a, b in lane.batches.covering(lo, hi):
                if not why:
                    lane.move(batch, a, b, State.READY, suspect=lease.suspect)
                    lane.take(batch.first + a, batch.first + b)
                    continue
                for index in range(a, b):
                    give_up(lane, batch, index, lease, why)
    return taken


def end_all(
    lane: Lane,
    ids: Iterable[tuple[int, int]],
    of: Collection[State],
    new: State,
    leases: Leases,
    effects: deque[Revoked],
) -> int:
    """Move the messages among `ids` that are in one of some states to a final one, and return how many."""
    wanted, ended = Ranges(ids), 0
    if State.LEASED in of:  # first: none of the leases may hold a message that has ended
        for lease in leases.of_run(lane.run):
            revoke(lane, lease, wanted, leases, effects)
    for lo, hi in wanted:
        for batch, a, b, state in lane.stretches(lo, hi):
            if state in of:
                lane.move(batch, a, b, new)
                ended += b - a
    return ended


def retry(lane: Lane, ids: Iterable[tuple[int, int]], function: bytes | None, first_lease: int) -> int:
    """Make the dead messages among `ids` ready in their old places, and return how many."""
    revived = 0
    for lo, hi in Ranges(ids):
        for batch, a, b, state in lane.stretches(lo, hi):
            if state is not State.DEAD:
                continue
            first, stop = batch.first + a, batch.first + b
            for id in range(first, stop):
                # Reports of leases before the next one do not count for these messages. This precedes the move, which
                # counts how many are retried.
                lane.trouble[id].restart(first_lease)
            if function is not None:
                lane.overrides.assign(first, stop, function)
            lane.move(batch, a, b, State.READY)
            revived += b - a
    return revived
