"""Leases that outlive their shard's process: their consumers go on working."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dqlab.frame import Outcome
from dqlab.rules.ranges import Ranges
from dqlab.rules.retry import QueueOptions
from dqlab.rules.states import State
from tests.rules.invariants import check_shard

RUN = b"run-of-the-tests"
TIMEOUT = QueueOptions().visibility_timeout


@pytest.fixture
def moved(make_desk: Callable[..., Any]) -> Callable[..., tuple[Any, Any, int]]:
    """Return a maker of a shard's next epoch, a lease of four messages, and its id, as the epoch before granted it."""

    def make(n: int = 4) -> tuple[Any, Any, int]:
        before, after = make_desk(epoch=1), make_desk(epoch=2)
        for desk in (before, after):
            desk.put(6, ordinal=0)
        lease = before.lease(n)
        return after, lease, lease.id

    return make


def test_consumer_goes_on_with_what_it_has_in_hand(moved: Any) -> None:
    """No other slot gets it, and what it settles counts under the receipt that it has."""
    desk, lease, id = moved()

    assert desk.shard.reclaim("c", id, RUN, [(0, 4)], age=7.0) == []
    assert desk.ids(desk.lease(consumer="other")) == [4, 5]
    assert desk.shard.extend([id]) == []
    assert desk.clock.monotonic() - desk.shard.leases[id].since == 7.0
    settled = desk.settle(lease, *[Outcome.ACK] * 4, epoch=1)
    assert sum(piece.n for piece, _ in settled.results) == desk.counts()[State.ACKED] == 4
    assert id not in desk.shard.leases


def test_what_others_have_meanwhile_stays_theirs(moved: Any) -> None:
    desk, lease, id = moved()
    theirs = desk.lease(2, consumer="other")

    assert desk.shard.reclaim("c", id, RUN, [(0, 4)]) == [(0, 2)]
    assert list(desk.shard.leases[id].remaining) == [(2, 4)]
    assert desk.settle(lease, *[Outcome.ACK] * 4, epoch=1).stale == 2
    assert desk.ack(theirs).stale == 0


def test_what_was_retried_since_is_not_given_back(moved: Any) -> None:
    """It waits for the code of its retry."""
    desk, _, id = moved()
    desk.settle(desk.lease(1, consumer="other"), Outcome.REJECT)
    desk.shard.retry(RUN, [(0, 1)])

    assert desk.shard.reclaim("c", id, RUN, [(0, 4)]) == [(0, 1)]
    assert list(desk.shard.leases[id].remaining) == [(1, 4)]


def test_what_is_settled_or_gone_is_not_leased_again(moved: Any) -> None:
    desk, lease, id = moved()
    desk.settle(lease, Outcome.ACK, epoch=1)
    desk.shard.cancel(RUN, [(1, 2)])

    assert desk.shard.reclaim("c", id, RUN, [(0, 4), (90, 92)]) == [(0, 2), (90, 92)]
    assert desk.shard.reclaim("c", id + 1, b"run-that-is-gone", [(0, 1)]) == [(0, 1)]
    assert desk.counts() == {State.ACKED: 1, State.CANCELLED: 1, State.LEASED: 2, State.READY: 2}


def test_lease_of_this_epoch_that_has_ended_is_not_brought_back(desk: Any) -> None:
    """Its messages may have failed since, and wait for their retry."""
    desk.put(2)
    lease = desk.lease()
    desk.clock.advance(TIMEOUT + 1)
    desk.shard.tick()

    assert desk.shard.reclaim("c", lease.id, RUN, [(0, 2)]) == []
    assert desk.counts() == {State.READY: 2}


def test_lease_that_is_held_is_left_as_it_is(moved: Any) -> None:
    """The same call may come twice."""
    desk, _, id = moved()
    for _ in range(2):
        assert desk.shard.reclaim("c", id, RUN, [(0, 4)]) == []

    assert desk.counts() == {State.LEASED: 4, State.READY: 2}


def test_suspect_is_held_alone_or_not_at_all(moved: Any) -> None:
    desk, _, id = moved()
    desk.lease(2, consumer="dies")
    desk.shard.release("dies")

    assert desk.shard.reclaim("c", id, RUN, [(0, 4)]) == []
    assert list(desk.shard.leases[id].remaining) == [(2, 4)]
    assert desk.shard.reclaim("c", id - 1, RUN, [(0, 1)]) == []
    assert desk.shard.leases[id - 1].suspect


def test_lease_with_gaps_in_a_frame_to_which_nothing_else_has_happened_is_reclaimed(moved: Any) -> None:
    """What its consumer gave back before the move is in no log: the frame is as it was put, and the rest has gaps."""
    desk, _, id = moved()

    assert desk.shard.reclaim("c", id, RUN, [(0, 1), (2, 3)]) == []

    check_shard(desk.shard)
    assert list(desk.shard.leases[id].remaining) == [(0, 1), (2, 3)]
    assert desk.ids(desk.lease(consumer="other")) == [1, 3, 4, 5]


def test_failure_of_a_reclaimed_lease_is_counted_once(moved: Any) -> None:
    """Also when it comes after its end."""
    desk, lease, id = moved(1)
    desk.shard.reclaim("c", id, RUN, [(0, 1)])
    desk.clock.advance(TIMEOUT + 1)

    late = desk.settle(lease, Outcome.FAIL, payloads=[b"{}"], epoch=1)

    assert len(late.failed) == 1  # the end of the lease did not count
    assert desk.settle(lease, Outcome.FAIL, payloads=[b"{}"], epoch=1).duplicates == 1
    assert desk.shard.lanes[RUN].trouble[0].deliveries == 1


def test_dead_consumer_gives_back_what_it_had_reclaimed(moved: Any) -> None:
    desk, _, id = moved()
    desk.shard.reclaim("c", id, RUN, [(0, 4)])

    assert desk.shard.release("c") == 4
    assert desk.counts() == {State.READY: 6}


def test_what_was_acked_early_is_held_for_who_began_it(moved: Any) -> None:
    """And for no other slot: it would be delivered twice."""
    desk, lease, id = moved()
    desk.shard.hold_begun(RUN, Ranges([(0, 4)]), 1.0)

    assert desk.shard.reclaim("c", id - 1, RUN, [(0, 4)]) == [(0, 4)]
    assert desk.shard.reclaim("c", id, RUN, [(0, 4)], early=True) == []
    desk.clock.advance(2.0)
    desk.shard.tick()
    assert desk.counts() == {State.LEASED: 4, State.READY: 2}
    assert sum(piece.n for piece, _ in desk.settle(lease, *[Outcome.ACK] * 4, epoch=1).results) == 4


def test_what_was_acked_early_is_dead_when_no_consumer_comes_for_it(moved: Any) -> None:
    desk, _, id = moved()
    desk.shard.hold_begun(RUN, Ranges([(0, 4)]), 1.0)
    desk.clock.advance(2.0)

    assert desk.shard.reclaim("c", id, RUN, [(0, 4)], early=True) == [(0, 4)]
    assert desk.counts() == {State.DEAD: 4, State.READY: 2}
    assert desk.shard.lanes[RUN].trouble[0].reason == "lost after early ack"
