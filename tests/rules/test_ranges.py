"""Ranges against a plain set of integers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dqlab.rules.ranges import Ranges

spans = st.tuples(st.integers(0, 40), st.integers(0, 40))
changes = st.lists(st.tuples(st.sampled_from(["add", "discard"]), spans), max_size=40)


def as_set(intervals: object) -> set[int]:
    return {i for lo, hi in intervals for i in range(lo, hi)}  # type: ignore[attr-defined]


@given(changes, spans)
def test_ranges_hold_the_same_integers_as_a_set(
    script: list[tuple[str, tuple[int, int]]], probe: tuple[int, int]
) -> None:
    """Everything that is ready, dead or leased is kept in ranges: one lost integer is a lost message."""
    ranges, plain = Ranges(), set[int]()
    for change, (lo, hi) in script:
        if change == "add":
            ranges.add(lo, hi)
            plain |= set(range(lo, hi))
        else:
            ranges.discard(lo, hi)
            plain -= set(range(lo, hi))
        assert as_set(ranges) == plain
        assert ranges.size == len(plain)
        assert ranges.first == min(plain, default=None)
    wanted = set(range(*probe))
    assert as_set(ranges.overlap(*probe)) == plain & wanted
    assert as_set(ranges.gaps(*probe)) == wanted - plain
    assert all((i in ranges) == (i in plain) for i in range(42))


@given(changes)
def test_intervals_are_sorted_disjoint_and_never_touch(script: list[tuple[str, tuple[int, int]]]) -> None:
    """Equal sets have equal intervals, and a thousand neighbours cost as much as one."""
    ranges = Ranges()
    for change, (lo, hi) in script:
        ranges.discard(lo, hi) if change == "discard" else ranges.add(lo, hi)
    intervals = list(ranges)
    assert all(lo < hi for lo, hi in intervals)
    assert all(before[1] < after[0] for before, after in pairwise(intervals))
    assert ranges == Ranges([(i, i + 1) for i in as_set(intervals)])


def test_a_list_of_intervals_needs_no_room_for_their_integers() -> None:
    """New code for a whole run is one interval of all ids: with a length of that, no list of it could be made."""
    everything = Ranges([(0, 1 << 53)])

    assert list(everything) == [(0, 1 << 53)]
    assert not hasattr(everything, "__len__")
    assert everything
    assert not Ranges()
