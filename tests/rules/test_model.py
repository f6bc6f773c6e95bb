"""Random histories of a shard, compared after every step with a model that keeps one record per message.

The model is slow and plain on purpose: no ranges, no stretches, no indexes. It does not choose lanes; it
checks that what the shard leased was allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.rules.batches import share
from dqlab.rules.deliveries import Revoked
from dqlab.rules.retry import QueueOptions, Retry
from dqlab.rules.shard import Shard
from dqlab.rules.states import State, Verdict
from dqlab.testing import FakeClock
from tests.rules.invariants import check_shard
from tests.rules.memory_journal import MemoryJournal
from tests.rules.model import (
    ALIVE,
    BACKOFF,
    EPOCH,
    FINAL,
    MAX_DELIVERIES,
    MAXSIZE,
    RETRIES,
    TIMEOUT,
    Held,
    Message,
    Model,
)

RUNS = [NO_ID, b"first-run-of-all"]
CONSUMERS = ["ann", "bob"]
# Not REFUSED, which makes all of a lane wait: see `test_flow`.
ENDS = (Outcome.ACK, Outcome.ACK, *(outcome for outcome in Outcome if outcome is not Outcome.REFUSED))
outcomes = st.lists(st.sampled_from(ENDS), min_size=1, max_size=8)
runs = st.sampled_from(RUNS)
slots = st.integers(1, 2)
budgets = st.sampled_from([1 << 20, 10, 0])
delays = st.sampled_from([b"", b"3", b"x"])
late = st.sampled_from([0, 0, 0, TIMEOUT + 1])
spans = st.just([(0, 1000)]) | st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=3)


OPTIONS = QueueOptions(
    visibility_timeout=TIMEOUT,
    max_deliveries=MAX_DELIVERIES,
    retry=Retry(RETRIES, backoff=BACKOFF, jitter=False),
    maxsize=MAXSIZE,
)


class ShardMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(monotonic=1000)
        self.shard = self.make_shard()
        for run in RUNS[1:]:
            self.shard.open_lane(run)
        self.model = Model()
        self.granted: list[Held] = []
        self.sequences = dict.fromkeys(RUNS, 0)
        self.next_id = 0

    def make_shard(self) -> Shard:
        return Shard("q", 0, epoch=EPOCH, options=OPTIONS, clock=self.clock, random=Random(0), journal=MemoryJournal())

    def now(self) -> float:
        return self.clock.monotonic()

    # --- what clients and consumers do ------------------------------------------------------

    @rule(run=runs, sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6), shift=st.sampled_from([0, 0, 0, -1, 1]))
    def put(self, run: bytes, sizes: list[int], shift: int) -> None:
        self._put(run, sizes, shift)

    @initialize(sizes=st.lists(st.integers(0, 9), min_size=5, max_size=5))
    def fill(self, sizes: list[int]) -> None:
        for run in RUNS:
            self._put(run, sizes, 0)

    def _put(self, run: bytes, sizes: list[int], shift: int) -> None:
        sequence = max(0, self.sequences[run] + shift)
        producer = bytes(reversed(run[:15])) + b"p"
        blob = Frame.encode(
            [bytes(size) for size in sizes],
            kind=Kind.ELEMENT,
            run=run,
            function=b"f" * 16,
            producer=producer,
            sequence=sequence,
            ordinal=100 * sequence,
            weights=sizes if sizes[0] % 2 else None,
        )
        put = self.shard.put(Frame.decode(blob))
        if sequence < self.sequences[run]:
            assert put.verdict is Verdict.DUPLICATE
        elif self.model.draining:
            assert put.verdict is Verdict.DRAINING
        elif sequence > self.sequences[run]:
            assert (put.verdict, put.expected) == (Verdict.EARLY, self.sequences[run])
        elif len(self.model.of(run, *ALIVE)) + len(sizes) > MAXSIZE:
            assert put.verdict is Verdict.FULL
        else:
            assert (put.verdict, put.first) == (Verdict.ACCEPTED, self.next_id)
            for i in range(len(sizes)):
                id, size = self.next_id + i, share(sum(sizes), len(sizes), i, i + 1)
                ordinal = id if run == NO_ID else 100 * sequence + i
                self.model.messages[id] = Message(id, run, ordinal, self.next_id, size)
            self.next_id += len(sizes)
            self.sequences[run] += 1

    @rule(consumer=st.sampled_from(CONSUMERS), n=st.integers(1, 8), slots=slots, max_bytes=budgets)
    def lease(self, consumer: str, n: int, slots: int, max_bytes: int) -> None:
        self._lease(consumer, n, slots, max_bytes)

    @rule(
        data=st.data(),
        consumer=st.sampled_from(CONSUMERS),
        n=st.integers(1, 8),
        results=outcomes,
        delay=delays,
        late=late,
    )
    def deliver(
        self, data: st.DataObject, consumer: str, n: int, results: list[Outcome], delay: bytes, late: int
    ) -> None:
        """Lease and settle in one step, for most steps should go somewhere."""
        held = self._lease(consumer, n, 2, 1 << 20)
        if held is not None:
            self.clock.advance(late)
            self.shard.tick()
            self.model.pass_time(self.now())
            ids = sorted(data.draw(st.permutations(held.ids))[: len(results)])
            self._settle(held, ids, [Piece(id, 0, 1) for id in ids], results[: len(ids)], delay, held.epoch)

    def _lease(self, consumer: str, n: int, slots: int, max_bytes: int) -> Held | None:
        lease = self.shard.lease(consumer, n, slots=slots, max_bytes=max_bytes)
        held_here = [held for held in self.model.leases.values() if held.consumer == consumer]
        suspects_held = sum(held.suspect and not held.ran for held in held_here)
        allowed = [m for m in self.model.messages.values() if m.state == "ready"]
        if suspects_held >= slots:
            allowed = [m for m in allowed if not m.suspect]
        allowed = [m for m in allowed if not {None, m.run} & self.model.paused]
        if lease is None:
            assert not allowed
            return None
        line = sorted((m for m in allowed if m.run == lease.run), key=lambda m: m.id)
        expected = line[:1] if line[0].suspect else self._fitting([m for m in line if not m.suspect], n, max_bytes)
        ids = [piece.frame + piece.lo + i for piece in lease.pieces for i in range(piece.n)]
        assert ids == [m.id for m in expected]
        assert lease.suspect == line[0].suspect
        for piece in lease.pieces:
            for i in range(piece.n):
                m = self.model.messages[piece.frame + piece.lo + i]
                assert (m.frame, m.ordinal, m.function) == (piece.frame, piece.ordinal + i, piece.function)
        held = Held(lease.id, consumer, lease.run, ids, self.now() + TIMEOUT, line[0].suspect, epoch=self.model.epoch)
        for m in expected:
            m.state, m.lease, m.suspect = "leased", lease.id, False
        self.model.leases[lease.id] = held
        self.granted.append(held)
        return held

    @staticmethod
    def _fitting(line: Sequence[Message], n: int, max_bytes: int) -> list[Message]:
        taken: list[Message] = []
        for m in line[:n]:
            if taken and sum(t.size for t in taken) + m.size > max_bytes:
                break
            taken.append(m)
            if sum(t.size for t in taken) > max_bytes:
                break
        return taken

    @precondition(lambda self: self.granted)
    @rule(
        data=st.data(),
        results=outcomes,
        delay=delays,
        older=st.sampled_from([0, 0, 0, 1]),
        by_piece=st.booleans(),
    )
    def settle(self, data: st.DataObject, results: list[Outcome], delay: bytes, older: int, by_piece: bool) -> None:
        live = [held for held in self.granted if held.id in self.model.leases]
        held = data.draw(st.sampled_from([*live, *self.granted[-3:]]))
        if by_piece:
            first = data.draw(st.sampled_from(held.ids))
            ids, pieces = list(range(first, first + len(results))), [Piece(first, 0, len(results))]
        else:
            known = st.sampled_from(sorted({*held.ids, 0, 9999}))
            ids = sorted(data.draw(st.lists(known, min_size=1, max_size=len(results), unique=True)))
            pieces, results = [Piece(id, 0, 1) for id in ids], results[: len(ids)]
        self._settle(held, ids, pieces, results, delay, held.epoch - older)

    def _settle(
        self, held: Held, ids: list[int], pieces: list[Piece], results: list[Outcome], delay: bytes, epoch: int
    ) -> None:
        payloads = [delay if outcome is Outcome.NACK else b"?" for outcome in results]
        blob = Settlement.encode(
            pieces, bytes(results), payloads, run=held.run, epoch=epoch, lease=held.id, busy_s=0.01
        )
        settled = self.shard.settle(Settlement.decode(blob))
        self.model.pass_time(self.now())
        wait = 3.0 if delay == b"3" else 0.0
        told = [
            self.model.settle(id, held.run, (epoch, held.id), outcome, wait, self.now())
            for id, outcome in zip(ids, results, strict=True)
        ]
        self.model.drop_empty_leases()
        acked = {at + i: piece.first + i for piece, at in settled.results for i in range(piece.n)}
        assert acked == {at: ids[at] for at, what in enumerate(told) if what == "ack"}
        for piece, _ in settled.results:
            assert piece.ordinal == self.model.messages[piece.first].ordinal
        failed = [
            (ids[at], self.model.messages[ids[at]].ordinal, at) for at, what in enumerate(told) if what == "failed"
        ]
        assert sorted(f[:3] for f in settled.failed) == sorted(failed)
        assert (settled.duplicates, settled.stale) == (told.count("duplicate"), told.count("stale"))

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.granted[-4:]))
        known = self.model.leases.get(held.id)  # not `held`: a lease that was reclaimed is another one of its id
        assert self.shard.begin(held.id) == (known is not None)
        if known is not None:
            known.early = True

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def isolate(self, data: st.DataObject) -> None:
        suspects = [held for held in self.model.leases.values() if held.suspect]
        held = data.draw(st.sampled_from([*suspects, *self.granted[-2:]]))
        lasts = held.id in self.model.leases and self.model.leases[held.id].deadline > self.now()
        assert self.shard.isolate(held.id) == lasts
        known = self.model.leases.get(held.id)
        if known is not None and known.suspect and lasts:
            known.isolated = True

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def note_run(self, data: st.DataObject) -> None:
        suspects = [held for held in self.model.leases.values() if held.suspect]
        held = data.draw(st.sampled_from([*suspects, *self.granted[-2:]]))
        self.shard.note_run(held.id)
        known = self.model.leases.get(held.id)
        if known is not None and known.suspect:
            known.ran, known.isolated = True, False

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        wanted = data.draw(st.lists(st.sampled_from(self.granted), max_size=4))
        gone = self.shard.extend(held.id for held in wanted)
        assert gone == [held.id for held in wanted if held.id not in self.model.leases]
        for lease in (self.model.leases[held.id] for held in wanted if held.id not in gone):
            lease.deadline = self.now() + TIMEOUT

    @rule(consumer=st.sampled_from(CONSUMERS))
    def release(self, consumer: str) -> None:
        lost = [lease for lease in self.model.leases.values() if lease.consumer == consumer]
        assert self.shard.release(consumer) == sum(self.model.end(lease) for lease in lost)

    # --- what people order ------------------------------------------------------------------

    @rule(
        order=st.sampled_from(["cancel", "let go", "purge", "pause", "resume", "resume", "drain", "drop"]),
        run=runs,
        whole=st.booleans(),
        ids=spans,
        state=st.sampled_from([State.READY, State.DELAYED, State.DEAD]),
    )
    def order(self, order: str, run: bytes, whole: bool, ids: list[tuple[int, int]], state: State) -> None:
        """One rule for all of them, so that most steps go to messages on their way."""
        match order:
            case "cancel":
                self.cancel(run, None if whole else ids)
            case "let go":
                self.let_go(run, ids, give_up=whole)
            case "purge":
                self.purge(None if whole else run, state)
            case "pause":
                self.pause(None if whole else run)
            case "resume":
                self.resume(None if whole else run)
            case "drain":
                self.drain()
            case "drop":
                self.drop(run)

    def cancel(self, run: bytes, ids: list[tuple[int, int]] | None) -> None:
        wanted = [m for m in self.model.of(run, *ALIVE) if ids is None or any(lo <= m.id < hi for lo, hi in ids)]
        revoked = {(m.lease, m.id) for m in wanted if m.state == "leased"}
        assert self.shard.cancel(run, ids) == len(wanted)
        for m in wanted:
            m.state = "cancelled"
        self.model.drop_empty_leases()
        told = [effect for effect in self.shard.effects if isinstance(effect, Revoked)]
        assert {(e.lease_id, id) for e in told for lo, hi in e.ranges for id in range(lo, hi)} == revoked

    def let_go(self, run: bytes, ids: list[tuple[int, int]], *, give_up: bool) -> None:
        leased = [m for m in self.model.of(run, "leased") if any(lo <= m.id < hi for lo, hi in ids)]
        wanted = [m for m in leased if give_up or not self.model.leases[m.lease].early]
        revoked = {(m.lease, m.id) for m in wanted}
        assert self.shard.let_go(run, ids, "given up" if give_up else "") == len(wanted)
        for m in wanted:
            lease = self.model.leases[m.lease]
            m.state, m.suspect = "ready", lease.suspect
            if give_up:
                m.state, m.suspect, m.deliveries, m.lost = "dead", False, m.deliveries + 1, 0
                m.receipt = (lease.epoch, lease.id)
        self.model.drop_empty_leases()
        told = [effect for effect in self.shard.effects if isinstance(effect, Revoked)]
        assert {(e.lease_id, id) for e in told for lo, hi in e.ranges for id in range(lo, hi)} == revoked

    def purge(self, run: bytes | None, state: State) -> None:
        wanted = [m for m in self.model.messages.values() if run in (None, m.run) and m.state == state.name.lower()]
        assert self.shard.purge(run, state) == len(wanted)
        for m in wanted:
            m.state = "cancelled"

    @rule(run=runs, ids=spans, function=st.sampled_from([None, b"g" * 16, b"h" * 16]))
    def retry(self, run: bytes, ids: list[tuple[int, int]], function: bytes | None) -> None:
        wanted = [m for m in self.model.of(run, "dead") if any(lo <= m.id < hi for lo, hi in ids)]
        first_lease = self.shard.leases.next_id
        assert self.shard.retry(run, ids, function) == len(wanted)
        for m in wanted:
            m.first_lease = first_lease
            m.state, m.deliveries, m.exceptions, m.lives = "ready", 0, 0, m.lives + 1
            m.function = function or m.function

    def pause(self, run: bytes | None) -> None:
        self.shard.pause(run)
        self.model.paused.add(run)

    def resume(self, run: bytes | None) -> None:
        self.shard.resume(run)
        self.model.paused.discard(run)
        self.model.draining = self.model.draining and run is not None

    def drain(self) -> None:
        self.shard.drain()
        self.model.draining = True

    def drop(self, run: bytes) -> None:
        self.shard.drop_lane(run)
        for m in self.model.of(run):
            del self.model.messages[m.id]
        self.model.drop_empty_leases()
        self.model.paused.discard(run)
        if run != NO_ID:
            self.shard.open_lane(run)
            self.sequences[run] = 0

    @rule(seconds=st.sampled_from([1, 2, 4, 8, 10, 12]), punctual=st.booleans())
    def advance(self, seconds: int, punctual: bool) -> None:
        for _ in range(seconds if punctual else 0):
            self.clock.advance(1)
            self.shard.tick()
            self.model.pass_time(self.now())
        self.clock.advance(0 if punctual else seconds)
        self.shard.tick()

    # --- what must agree --------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        self.model.pass_time(self.now())
        check_shard(self.shard)
        self.shard.effects.clear()
        self.check_frames({m.frame for m in self.model.messages.values() if m.state not in FINAL})
        assert set(self.shard.leases) == set(self.model.leases)
        assert self.shard.paused == (None in self.model.paused)
        for run in RUNS:
            self._agrees_on(run)
        deadlines = [m.due for m in self.model.messages.values() if m.state == "delayed"]
        deadlines += [held.deadline for held in self.model.leases.values()]
        assert self.shard.next_deadline() == min(deadlines, default=None)

    def check_frames(self, expected: set[int]) -> None:
        assert isinstance(self.shard.journal, MemoryJournal)
        assert set(self.shard.journal.frames) == expected

    def _agrees_on(self, run: bytes) -> None:
        lane = self.shard.lanes[run]
        for state in State:
            assert lane.counts[state] == len(self.model.of(run, state.name.lower())), state
        ready = self.model.of(run, "ready")
        suspects = [id for lo, hi in lane.suspects for id in range(lo, hi)]
        assert suspects == sorted(m.id for m in ready if m.suspect)
        alive = self.model.of(run, *ALIVE)
        assert lane.nbytes == sum(m.size for m in alive)
        assert lane.retrying == sum(m.deliveries > 0 for m in alive)
        letters = [(d.id, d.ordinal, d.deliveries, d.exceptions, len(d.history)) for d in self.shard.dead_letters(run)]
        dead = self.model.of(run, "dead")
        assert letters == [(m.id, m.ordinal, m.deliveries, m.exceptions, min(m.lives, 8)) for m in dead]


@pytest.mark.long
class TestShardAgainstModel(ShardMachine.TestCase):
    """Any history of calls leaves the shard and the model in the same state."""

    settings = settings(
        max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestShardAgainstModelInDepth(ShardMachine.TestCase):
    """The same, with many more histories."""

    settings = settings(
        max_examples=1000, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
