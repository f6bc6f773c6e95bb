"""Frames as rows and as objects: no caller can tell the difference."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dqlab.frame import NO_ID
from dqlab.rules.batches import CHUNK, Batch, Batches, Column, Row
from dqlab.rules.lane import Lane
from dqlab.rules.retry import QueueOptions
from tests.rules.memory_journal import MemoryJournal

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


ascending = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=40, unique=True).map(sorted)
stepped = st.builds(
    lambda first, step, n, rest: [first + step * at for at in range(n)] + [first + step * n + more for more in rest],
    st.integers(0, 1 << 60),
    st.integers(0, 1 << 10),
    st.integers(1, 30),
    st.lists(st.integers(0, 1 << 20), max_size=10),
)


def appended(values: list[int]) -> Column:
    column = Column("Q")
    for value in values:
        column.append(value)
    return column


def at_once(values: list[int]) -> Column:
    return Column.of("Q", array("Q", values))


@pytest.mark.parametrize("make", [appended, at_once])
@given(values=stepped)
def test_a_column_holds_what_was_put_into_it(make: Callable[[list[int]], Column], values: list[int]) -> None:
    column = make(values)
    assert list(column) == values
    assert [column[at] for at in range(len(column))] == values


@pytest.mark.parametrize("make", [appended, at_once])
@given(values=ascending, wanted=st.integers(0, 1 << 40))
def test_rank_is_the_place_of_the_last_number_that_is_not_above(
    make: Callable[[list[int]], Column], values: list[int], wanted: int
) -> None:
    column = make(values)
    for value in (wanted, values[0], values[-1], values[len(values) // 2]):
        assert column.rank(value) == bisect_right(values, value) - 1


@given(values=stepped, more=st.integers(0, 1 << 20), at=st.integers(0, 100))
def test_what_is_shared_stays_as_it_was(values: list[int], more: int, at: int) -> None:
    column = appended(values)
    shared = column.shared()
    column.append(max(values) + more)
    column.replace({at % len(values): more})
    assert list(shared) == values
    expected = [*values, max(values) + more]
    expected[at % len(values)] = more
    assert list(column) == expected


@given(values=stepped, shift=st.integers(-(1 << 50), 1 << 50))
def test_a_shift_is_added_to_all(values: list[int], shift: int) -> None:
    assert list(Column.of("Q", array("Q", values), shift)) == [value + shift for value in values]


@given(values=stepped, n=st.integers(0, 40), again=stepped)
def test_cut_and_filled_again(values: list[int], n: int, again: list[int]) -> None:
    column = appended(values)
    column.cut(n := min(n, len(values)))
    kept = values[:n]
    for value in again:
        try:
            column.append(value)
        except OverflowError:
            break
        kept.append(value)
    assert list(column) == kept


def test_what_is_too_far_from_the_first_is_refused_and_changes_nothing() -> None:
    column = Column("I")
    for value in (100, 105, 110):
        column.append(value)
    for value in (99, 101 + (1 << 32)):
        with pytest.raises(OverflowError):
            column.append(value)
        assert list(column) == [100, 105, 110]
    column.append(99 + (1 << 32))
    assert column[3] == 99 + (1 << 32)


def test_numbers_beyond_64_bits_can_be_put_in_place_of_others() -> None:
    column = appended([1 << 70, (1 << 70) + 1, (1 << 70) + 7])
    column.replace({1: 5})
    assert list(column) == [1 << 70, 5, (1 << 70) + 7]


RUN = b"run-of-the-tests"
stretches = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=12)


def rows_of(numbers: list[tuple[int, int, int]], ordinals: list[int]) -> list[Row]:
    rows, end = [], 0
    for at, (gap, n, size) in enumerate(numbers):
        rows.append(Row(end + gap, n, 10 * ordinals[at], at, size, at))
        end += gap + n
    return rows


def seen(lane: Lane) -> tuple[object, ...]:
    batches = [(b.first, len(b.states), b.ordinal, b.put_at, b.size, b.place) for b in lane.batches]
    return batches, list(lane.ready), list(lane.came), list(lane.counts), list(lane.units), lane.nbytes


@given(stretches, st.randoms(use_true_random=False), st.sampled_from([RUN, NO_ID]), st.integers(0, 12))
def test_frames_stored_together_are_stored_as_one_by_one(
    numbers: list[tuple[int, int, int]], random: object, run: bytes, cut: int
) -> None:
    ordinals = list(range(len(numbers)))
    random.shuffle(ordinals)  # type: ignore[attr-defined]
    rows = rows_of(numbers, ordinals)
    together, alone = (Lane(run, QueueOptions(), MemoryJournal()) for _ in range(2))
    for row in rows:
        alone.put_row(row)
    for part in (rows[:cut], rows[cut:]):
        if part:
            together.put_rows(part)
    assert seen(together) == seen(alone)


def test_ordinals_that_only_add_up_are_not_taken_for_neighbours() -> None:
    """As those of one shard of several, put in another order: 1 + 10 documents, and the last one is the eleventh."""
    rows = [Row(0, 1, 0, 0, 0, 0), Row(1, 9, 50, 0, 0, 0), Row(10, 1, 10, 0, 0, 0)]
    lane = Lane(RUN, QueueOptions(), MemoryJournal())
    lane.put_rows(rows)
    assert list(lane.came) == [(0, 1), (10, 11), (50, 59)]
