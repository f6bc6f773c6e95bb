"""Neighbours that cost one consumer less than two are leased to one, as long as there is something for the others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab import rules
from dqlab.frame import Outcome
from dqlab.rules.frame_notes import Groups
from dqlab.rules.ranges import END, Ranges
from tests.rules.invariants import check_shard


def groups(desk: Any, *sizes: int) -> None:
    """Put groups of messages in frames of five at most; mark the first frame of each group, as a sender does."""
    for size in sizes:
        for lo in range(0, size, 5):
            desk.put(min(5, size - lo), opens=not lo and desk.shard.next_id > 0)


def leased(desk: Any, slot: str, n: int = 4) -> list[int]:
    return list(desk.ids(desk.lease(n, slot)))


def test_slots_of_one_process_share_a_group(desk: Any) -> None:
    """They share what is decoded."""
    groups(desk, 10, 10)

    assert [leased(desk, slot)[0] for slot in ("a#0", "b#0", "a#1")] == [0, 10, 4]


# --- what a lease costs ---------------------------------------------------------------------


def steps(call: Callable[[], object]) -> int:
    """Return how many lines of the rules a call runs."""
    ran, room = 0, str(Path(rules.__file__).parent)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal ran
        ran += event == "line"
        return trace if frame.f_code.co_filename.startswith(room) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return ran


def far(n: int) -> int:
    """A process goes on with the last of many groups, while another one runs the first."""
    groups, ready = Groups(), Ranges([(0, 10 * n)])
    for end in range(10, 10 * n, 10):
        groups.end(end)
    groups.span("a#0", ready, 10)
    ready.discard(10, 10 * (n - 2))
    assert groups.span("b#0", ready, 10)[1] == 10 * (n - 1)
    return steps(lambda: groups.span("b#0", ready, 10))


def shared(n: int) -> int:
    """A third process finds nothing free among as many groups, and helps."""
    groups, ready = Groups(), Ranges([(0, 10), (10 * n, 10 * n + 10)])
    for end in (10, *range(20, 10 * n + 20, 10)):
        groups.end(end)
    assert [groups.span(slot, ready, 10)[0] for slot in ("a#0", "b#0")] == [0, 10 * n]
    return steps(lambda: groups.span("c#0", ready, 10))


@pytest.mark.parametrize("scene", [far, shared])
def test_a_lease_costs_the_same_among_few_groups_and_many(scene: Callable[[int], int]) -> None:
    assert scene(400) < scene(100) + 30


def test_a_lease_costs_the_same_with_few_gaps_and_many_where_no_group_is_left(make_desk: Callable[..., Any]) -> None:
    """Their row groups have run, and each message that came back is a stretch of its own."""

    def cost(gaps: int) -> int:
        desk = make_desk()
        desk.put(5)
        desk.put(2 * gaps + 10, opens=True)
        desk.ack(desk.lease(5, "a#0"))
        given = desk.lease(2 * gaps, "b#0")
        desk.settle(given, *[Outcome.RETURN] * gaps, ids=desk.ids(given)[::2])
        ran = steps(lambda: desk.shard.lease("a#0", 1))
        check_shard(desk.shard)
        return ran

    assert cost(400) < cost(100) + 60


def plain_span(ends: list[int], runs: dict[str, int], process: str, ready: Ranges, n: int) -> tuple[int, int]:
    """Return what `Groups.span` returns, by looking at every group."""
    first = ready.first
    assert first is not None
    ends[:] = [end for end in ends if end > first]
    mine, others = runs.pop(process, None), set(runs.values())
    for wanted in ({mine}, set(ends) - others):
        before = 0
        for at, end in enumerate(ends):
            if end in wanted and (found := ready.overlap(before, end)):
                for behind in ends[at + 1 :]:
                    if behind - found[0][0] > n or behind in others:
                        break
                    end = behind
                runs[process] = end
                return found[0][0], end
            before = end
    behind_all = ready.overlap(ends[-1], END) if ends else []
    return (behind_all[0][0] if behind_all else first), END


@given(
    st.lists(st.integers(1, 9), max_size=8),
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(1, 12), st.integers(0, 60), st.integers(0, 12), st.booleans()),
        max_size=30,
    ),
)
def test_groups_are_chosen_as_by_looking_at_each(
    sizes: list[int], leases: list[tuple[str, int, int, int, bool]]
) -> None:
    groups, ends, runs, at = Groups(), list[int](), dict[str, int](), 0
    for size in sizes:
        at += size
        ends.append(at)
        groups.end(at)
    ready = Ranges([(0, at + 10)])
    for process, n, back, width, gone in leases:
        if not ready:
            break
        lo, hi = groups.span(f"{process}#1", ready, n)
        assert (lo, hi) == plain_span(ends, runs, process, ready, n)
        taken = ready.overlap(lo, min(hi, lo + n))
        for a, b in taken:
            ready.discard(a, b)
        ready.add(back, min(back + width, at + 10))  # some come back, also from groups that had run
        if gone:
            groups.forget(process)
            runs.pop(process, None)
