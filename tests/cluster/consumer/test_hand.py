"""What a slot has in hand, and what follows from it, played through in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dqlab.cluster.consumer.hand import IN_HAND, SAY_AFTER, SAY_EVERY, STAY_S, Hand, Stage
from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.frame import Frame, Kind
from tests.kit.sampled import examples

BATCH, SHARDS = 7, 3


class Hands(RuleBasedStateMachine):
    """A slot's hand beside a model of it: the stage of each chunk, and which of its messages are left."""

    def __init__(self) -> None:
        super().__init__()
        self.hand, self.model = Hand("c#0", BATCH), dict[Chunk, Stage]()
        self.now, self.ids = 0.0, 0
        self.sent: dict[int, tuple[int, int]] = {}

    def pick(self, data: st.DataObject, *stages: Stage) -> Chunk | None:
        found = [chunk for chunk, stage in self.model.items() if stage in stages]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(shard=st.integers(0, SHARDS - 1), n=st.integers(1, 3), chunks=st.integers(1, 3))
    def receive(self, shard: int, n: int, chunks: int) -> None:
        self.ids += 1
        frame = Frame.decode(Frame.encode([b"x"] * n, kind=Kind.ELEMENT))
        for at in range(chunks):
            chunk = Chunk(Lease(shard, self.ids, 0, 60.0), [n * at], [frame])
            self.hand.move(chunk, Stage.WAITS)
            self.model[chunk] = Stage.WAITS

    @rule()
    def take(self) -> None:
        """The oldest one that waits runs next, and no other beside it."""
        waits = [chunk for chunk, stage in self.model.items() if stage is Stage.WAITS]
        assert self.hand.at(Stage.WAITS) is (waits[0] if waits else None)
        if waits and Stage.RUNS not in self.model.values():
            self.hand.move(waits[0], Stage.RUNS)
            self.model[waits[0]] = Stage.RUNS

    @rule(data=st.data())
    def begin_message(self, data: st.DataObject) -> None:
        chunk = self.pick(data, Stage.RUNS, Stage.FLIES)
        if chunk is not None and chunk.todo:
            chunk.todo.popleft()

    @rule(data=st.data(), to=st.sampled_from([Stage.FLIES, Stage.ENDS]))
    def advance(self, data: st.DataObject, to: Stage) -> None:
        chunk = self.pick(data, Stage.RUNS)
        if chunk is not None:
            self.hand.move(chunk, to)
            self.model[chunk] = to

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        chunk = self.pick(data, Stage.FLIES, Stage.ENDS)
        if chunk is not None:
            self.hand.leave(chunk)
            del self.model[chunk]

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """Only one that has not begun leaves with its last message."""
        chunk = self.pick(data, *Stage)
        if chunk is not None:
            chunk.give_back(chunk.count)
            if chunk.finished:
                self.hand.leave(chunk, Stage.WAITS)
                if self.model[chunk] is Stage.WAITS:
                    del self.model[chunk]

    @rule(shard=st.integers(0, SHARDS - 1), late=st.booleans())
    def tell(self, shard: int, late: bool) -> None:
        """An answer may arrive after that of a later credit."""
        credit, later = self.hand.credit(shard), self.hand.credit(shard)
        assert later.at > credit.at
        for each in (later, credit) if late else (credit, later):
            self.hand.told(shard, each)
        self.sent[shard] = later.at, later.want
        assert not self.hand.outdated(shard)

    @rule(
        run=st.sampled_from([b"a", b"b"]),
        seconds=st.sampled_from([0.0, STAY_S / 2, STAY_S]),
        loading=st.sampled_from([0.0, 0.9 * STAY_S]),
    )
    def load(self, run: bytes, seconds: float, loading: float) -> None:
        """A run that has loaded keeps its time, however often others load meanwhile, and more if loading is long."""
        self.now += seconds
        before = self.hand.stays(self.now)
        self.hand.stay(run, self.now, loading)
        assert self.hand.stays(self.now) in ((before,) if before is not None else (run, None))
        if before is None and self.hand.stays(self.now):
            assert self.hand.stays(self.now + max(STAY_S, 4 * loading) - 1) == run

    @rule()
    def stop(self) -> None:
        self.hand.stopping = True

    @invariant()
    def nothing_in_hand_is_forgotten(self) -> None:
        for shard in range(SHARDS):
            there = [chunk for chunk in self.model if chunk.lease.shard == shard]
            assert self.hand.of(shard) == there
            left = {chunk.lease.id for chunk in there if chunk.unsettled()}
            assert {held.lease for held in self.hand.held(shard, self.now)} == left
        assert self.hand.chunks == [chunk for chunk, stage in self.model.items() if stage is not Stage.ENDS]

    @invariant()
    def a_shard_is_asked_for_more_while_few_leases_are_in_hand(self) -> None:
        busy = {
            (chunk.lease.shard, chunk.lease.id)
            for chunk, stage in self.model.items()
            if stage is not Stage.ENDS and (chunk.todo or (stage is Stage.RUNS and not chunk.finished))
        }
        for shard in range(SHARDS):
            here = len([1 for of, _ in busy if of == shard])
            wants = not self.hand.stopping and (here == 0 or (len(busy) < IN_HAND and here < IN_HAND))
            assert self.hand.want(shard) == (BATCH if wants else 0)
            if shard in self.sent:
                stale = self.sent[shard][1] != self.hand.want(shard) and not self.hand.stopping
                assert self.hand.outdated(shard) == stale


Hands.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
TestHand = Hands.TestCase


def chunk_at(ordinal: int) -> Chunk:
    frame = Frame.decode(Frame.encode([b"x"] * 4, kind=Kind.ELEMENT, ordinal=ordinal))
    return Chunk(Lease(0, 1, 0, 60.0), [ordinal], [frame])


def test_the_oldest_of_several_chunks_is_named_however_they_are_looked_at() -> None:
    """Coroutines of several chunks run together, and each chunk is looked at by itself."""
    hand, first, second = Hand("c#0", BATCH), chunk_at(100), chunk_at(200)
    hand.move(first, Stage.FLIES)
    hand.move(second, Stage.FLIES)
    first.running = 2
    hand.look(first, 10.0)
    for at in range(1, 50):
        second.running = at % 4
        hand.look(second, 10.0 + at)
        hand.look(first, 10.0 + at)

    assert hand.longest() == (first, 2)
    assert first.seen is not None
    assert first.seen[1] == 10.0
    first.running = None
    hand.look(first, 60.0)
    assert hand.longest() == (second, 1)
    second.running = None
    assert hand.longest() is None


def test_a_long_message_is_reported_after_a_second_and_then_now_and_then() -> None:
    hand, chunk = Hand("c#0", BATCH), chunk_at(0)
    chunk.running = 1
    reported = [
        at for at in (0.0, SAY_AFTER - 0.1, SAY_AFTER, 2.0, SAY_EVERY, SAY_AFTER + SAY_EVERY) if hand.look(chunk, at)
    ]
    assert reported == [SAY_AFTER, SAY_AFTER + SAY_EVERY]
