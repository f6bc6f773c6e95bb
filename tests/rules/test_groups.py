"""Neighbours that cost one consumer less than two are leased to one, as long as there is something for the others."""

from __future__ import annotations

from typing import Any

from dqlab.frame import Outcome


def groups(desk: Any, *sizes: int) -> None:
    """Put groups of messages in frames of five at most; mark the first frame of each group, as a sender does."""
    for size in sizes:
        for lo in range(0, size, 5):
            desk.put(min(5, size - lo), opens=not lo and desk.shard.next_id > 0)


def leased(desk: Any, slot: str, n: int = 4) -> list[int]:
    return list(desk.ids(desk.lease(n, slot)))


def test_consumers_lease_from_groups_of_their_own(desk: Any) -> None:
    groups(desk, 10, 10)

    assert [leased(desk, slot)[0] for slot in ("a#0", "b#0", "a#0", "b#0")] == [0, 10, 4, 14]


def test_slots_of_one_process_share_a_group(desk: Any) -> None:
    """They share what is decoded."""
    groups(desk, 10, 10)

    assert [leased(desk, slot)[0] for slot in ("a#0", "b#0", "a#1")] == [0, 10, 4]


def test_a_lease_ends_where_its_group_ends(desk: Any) -> None:
    groups(desk, 10, 10)
    leased(desk, "a#0", 8)

    assert leased(desk, "a#0", 8) == [8, 9]


def test_small_groups_are_leased_together_whole(desk: Any) -> None:
    groups(desk, 3, 3, 3, 3)

    assert leased(desk, "a#0", 8) == [0, 1, 2, 3, 4, 5]


def test_what_comes_after_the_last_known_end_is_leased_before_the_group_of_another(desk: Any) -> None:
    groups(desk, 10, 5)

    assert [leased(desk, slot)[0] for slot in ("a#0", "b#0", "c#0")] == [0, 10, 14]


def test_a_consumer_without_a_group_of_its_own_helps_another(desk: Any) -> None:
    """No process starves beside work."""
    groups(desk, 10, 6, 4)
    assert [leased(desk, slot)[0] for slot in ("a#0", "b#0", "c#0")] == [0, 10, 16]

    assert leased(desk, "c#0") == [4, 5, 6, 7]


def test_what_a_consumer_leaves_behind_is_leased_before_groups_that_come_later(desk: Any) -> None:
    groups(desk, 5, 5, 5)
    given = desk.lease(5, "a#0")
    assert leased(desk, "b#0", 5) == [5, 6, 7, 8, 9]

    desk.settle(given, *[Outcome.RETURN] * 5)
    desk.shard.release("a#0")

    assert leased(desk, "b#0") == [0, 1, 2, 3]


def test_all_groups_are_leased_to_their_last_message(desk: Any) -> None:
    groups(desk, 7, 10, 3, 12)
    desk.put(4)
    found: list[int] = []
    slots = ["a#0", "b#0", "c#0", "b#1"]
    while lease := desk.shard.lease(slots[len(found) % 4], 4):
        found += desk.ids(lease)

    assert sorted(found) == list(range(36))
    desk.shard.invariants()
