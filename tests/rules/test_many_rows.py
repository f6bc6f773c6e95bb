from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dqlab.frame import NO_ID
from dqlab.rules.batches import Row
from dqlab.rules.lane import Lane
from dqlab.rules.retry import QueueOptions
from tests.rules.memory_journal import MemoryJournal

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
