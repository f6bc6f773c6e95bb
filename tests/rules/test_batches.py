"""Frames as rows and as objects: no caller can tell the difference."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dqlab.rules.batches import CHUNK, Batch, Batches, Row

Frames = dict[int, tuple[int, int, int, int, bytes, tuple[int, ...] | None]]


class Beside(RuleBasedStateMachine):
    """`Batches` beside a plain dict of what each frame is."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = Batches()
        self.frames: Frames = {}
        self.next_id = 0
        self.place = 0

    def new(self, first: int, count: int, size: int, weighted: bool) -> None:
        weights = tuple(range(count)) if weighted else None
        self.place += size + 7
        row = Row(first, count, first * 3, 1_000_000 * len(self.frames), size, self.place)
        self.batches.add(row, weights)
        self.frames[first] = (first * 3, row.put_at, size, self.place, bytes(count), weights)

    @rule(gap=st.integers(0, 5), count=st.integers(1, 20), size=st.integers(0, 1000), weighted=st.booleans())
    def put(self, gap: int, count: int, size: int, weighted: bool) -> None:
        self.new(self.next_id + gap, count, size, weighted)
        self.next_id += gap + count

    @rule(n=st.integers(1, 50))
    def put_alike(self, n: int) -> None:
        for _ in range(n):
            self.put(0, 3, 100, False)

    @rule(back=st.integers(1, 30), size=st.integers(0, 1000))
    def put_out_of_order(self, back: int, size: int) -> None:
        """As copies behind their originals come."""
        first = max(0, self.next_id - back)
        if not any(lo < first + 1 and first < lo + len(frame[4]) for lo, frame in self.frames.items()):
            self.new(first, 1, size, False)
            self.next_id = max(self.next_id, first + 1)

    @precondition(lambda self: self.frames)
    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        first = data.draw(st.sampled_from(sorted(self.frames)))
        ordinal, put_at, size, place, states, weights = self.frames[first]
        index = data.draw(st.integers(0, len(states) - 1))
        found = self.batches.at(first + index)
        assert found is not None
        self.batches.keep(found[0])
        found[0].states[index] = 3
        changed = states[:index] + b"\3" + states[index + 1 :]
        self.frames[first] = ordinal, put_at, size, place, changed, weights

    @precondition(lambda self: self.frames)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        first = data.draw(st.sampled_from(sorted(self.frames)))
        batch = self.batches[first]
        self.batches.keep(batch)
        self.batches.remove(batch)
        del self.frames[first]

    @precondition(lambda self: self.frames)
    @rule(data=st.data(), far=st.booleans())
    def relocate(self, data: st.DataObject, far: bool) -> None:
        firsts = data.draw(st.sets(st.sampled_from(sorted(self.frames))))
        self.place += 1 << 70 if far else 1
        self.batches.relocate({first: self.place + first for first in firsts})
        for first in firsts:
            ordinal, put_at, size, _, states, weights = self.frames[first]
            self.frames[first] = ordinal, put_at, size, self.place + first, states, weights

    @rule(lo=st.integers(0, 300), n=st.integers(0, 100))
    def cover(self, lo: int, n: int) -> None:
        expected = [
            (first, max(0, lo - first), min(len(frame[4]), lo + n - first))
            for first, frame in sorted(self.frames.items())
            if first < lo + n and lo < first + len(frame[4]) and n
        ]
        assert [(batch.first, a, b) for batch, a, b in self.batches.covering(lo, lo + n)] == expected
        kept = {batch.first for batch in self.batches.kept(lo, lo + n)}
        assert kept == {first for first, _, _ in expected} & {batch.first for batch in self.batches.kept()}

    @invariant()
    def same(self) -> None:
        assert {batch.first: self.described(batch) for batch in self.batches} == self.frames
        assert [batch.first for batch in self.batches] == sorted(self.frames)
        assert len(self.batches) == len(self.frames)
        for first, frame in self.frames.items():
            found = self.batches.at(first + len(frame[4]) - 1)
            assert found is not None
            assert (found[0].first, found[1]) == (first, len(frame[4]) - 1)

    @staticmethod
    def described(batch: Batch) -> tuple[int, int, int, int, bytes, tuple[int, ...] | None]:
        weights = None if batch.weights is None else tuple(batch.weights)
        return batch.ordinal, round(batch.put_at * 1e6), batch.size, batch.place, bytes(batch.states), weights


@pytest.mark.long
class TestBatches(Beside.TestCase):
    """Any history of rows."""

    settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestBatchesInDepth(Beside.TestCase):
    """The same, with many more."""

    settings = settings(max_examples=300, stateful_step_count=30, deadline=None)


def test_rows_that_are_all_taken_leave_nothing_behind() -> None:
    batches = Batches()
    for first in range(2 * CHUNK):
        batches.add(Row(first, 1, first, first, 10, first), None)
    for first in range(2 * CHUNK):
        batch = batches[first]
        batches.keep(batch)
        batches.remove(batch)
    assert len(batches) == 0
    assert batches.frozen() == []


def test_a_frame_without_its_like_costs_a_row_and_no_object() -> None:
    batches = Batches()
    for at in range(CHUNK):
        batches.add(Row(7 * at, at % 5 + 1, 7 * at, at * at, at * 31 % 1000, at * at), None)
    [frozen] = batches.frozen()
    assert list(frozen.column("size")) == [at * 31 % 1000 for at in range(CHUNK)]
    assert batches.kept() == []


def test_no_ids_are_in_no_batch() -> None:
    batches = Batches()
    batches.add(Row(0, 3, 0, 0, 10, 0), None)
    batches.keep(batches[0])
    assert [batch.first for batch in batches.kept(1, 2)] == [0]
    assert batches.kept(1, 1) == []
