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


def test_lease_with_gaps_in_a_frame_to_which_nothing_else_has_happened_is_reclaimed(moved: Any) -> None:
    """What its consumer gave back before the move is in no log: the frame is as it was put, and the rest has gaps."""
    desk, _, id = moved()

    assert desk.shard.reclaim("c", id, RUN, [(0, 1), (2, 3)]) == []

    check_shard(desk.shard)
    assert list(desk.shard.leases[id].remaining) == [(0, 1), (2, 3)]
    assert desk.ids(desk.lease(consumer="other")) == [1, 3, 4, 5]


def test_what_was_acked_early_is_dead_when_no_consumer_comes_for_it(moved: Any) -> None:
    desk, _, id = moved()
    desk.shard.hold_begun(RUN, Ranges([(0, 4)]), 1.0)
    desk.clock.advance(2.0)

    assert desk.shard.reclaim("c", id, RUN, [(0, 4)], early=True) == [(0, 4)]
    assert desk.counts() == {State.DEAD: 4, State.READY: 2}
    assert desk.shard.lanes[RUN].trouble[0].reason == "lost after early ack"
