"""Leasing: order, size, pieces, renewal, and time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from dqlab.frame import NO_ID, Outcome
from dqlab.rules.leases import LeasedPiece
from dqlab.rules.states import State
from tests.rules.invariants import check_shard

RUN = b"run-of-the-tests"


def test_messages_are_leased_in_the_order_of_their_puts(desk: Any) -> None:
    """FIFO of first deliveries."""
    desk.put(3)
    desk.put(3)

    assert [desk.ids(desk.lease(4)), desk.ids(desk.lease(4))] == [[0, 1, 2, 3], [4, 5]]


def test_a_piece_lies_in_one_frame_and_knows_its_ordinal(desk: Any) -> None:
    """The reply slices frames without opening them."""
    desk.put(2, ordinal=500)
    desk.put(2, ordinal=900)

    pieces = desk.lease(3).pieces

    assert pieces == (LeasedPiece(0, 0, 2, 500, None), LeasedPiece(2, 0, 1, 900, None))


def test_in_lane_0_a_message_stands_at_its_id(desk: Any) -> None:
    """Plain puts have no input to count positions in."""
    desk.put(2)
    desk.lease()
    desk.put(3, run=NO_ID, ordinal=77)

    piece = desk.lease().pieces[0]

    assert piece.ordinal == piece.frame == 2


def test_a_lease_is_cut_at_its_bytes_but_never_empty(desk: Any) -> None:
    """One message larger than the budget still travels."""
    desk.put(5, size=100)

    assert len(desk.ids(desk.lease(10, max_bytes=250))) == 2
    assert len(desk.ids(desk.lease(10, max_bytes=1))) == 1
    assert len(desk.ids(desk.lease(10, max_bytes=200))) == 2


def test_bytes_are_counted_over_frames(desk: Any) -> None:
    """A lease of many small frames is as heavy as one of a large one."""
    for _ in range(5):
        desk.put(2, size=100)

    assert desk.ids(desk.lease(10, max_bytes=500)) == [0, 1, 2, 3, 4]


def test_nothing_to_lease_is_none(desk: Any) -> None:
    """The consumer's call stays parked."""
    assert desk.shard.lease("c", 10) is None
    desk.put()
    assert desk.shard.lease("c", 0) is None


def test_an_expired_lease_returns_its_messages_to_the_front(desk: Any) -> None:
    """A dead consumer costs its messages one lease of delay, not their place in line."""
    desk.put(2)
    desk.lease(2)
    desk.put(2)
    desk.clock.advance(60)

    assert [desk.ids(desk.lease(9, "d", slots=9)) for _ in range(3)] == [[0], [1], [2, 3]]
    check_shard(desk.shard)


def test_a_renewed_lease_lasts_its_full_time_again(desk: Any) -> None:
    """A slow document is not a dead consumer."""
    desk.put()
    lease = desk.lease()
    desk.clock.advance(59)
    assert desk.shard.extend([lease.id, 999]) == [999]
    desk.clock.advance(59)

    assert desk.counts() == {State.LEASED: 1}
    assert desk.shard.next_deadline() == desk.clock.monotonic() + 1


def test_a_late_renewal_says_that_the_lease_is_gone(desk: Any) -> None:
    """The consumer must stop, for another may have the messages."""
    desk.put()
    lease = desk.lease()
    desk.clock.advance(60)

    assert desk.shard.extend([lease.id]) == [lease.id]


def test_renewals_hold_while_the_journal_accepts_nothing(desk: Any) -> None:
    """The lease of a dead consumer cannot end then, and refused all others their time: they ran twice afterwards."""
    desk.put(3)
    desk.lease(1, "dead")
    desk.clock.advance(30)
    early, late = desk.lease(1, "alive"), desk.lease(1, "late")
    refuses = pytest.MonkeyPatch()
    refuses.setattr(desk.shard.journal, "admit", _refuse)
    for _ in range(4):
        desk.clock.advance(20)
        with suppress(_Refused):
            desk.shard.extend([early.id])
    with pytest.raises(_Refused):
        desk.shard.extend([late.id])  # its time is over, and it has not ended
    refuses.undo()

    assert desk.shard.extend([early.id, late.id]) == []
    assert desk.counts() == {State.READY: 1, State.LEASED: 2}
    check_shard(desk.shard)


class _Refused(Exception):
    """What a log raises whose disk is full."""


def _refuse(*_: object) -> None:
    raise _Refused


def test_a_settled_lease_is_gone(desk: Any) -> None:
    """Nothing is left to wait for."""
    desk.put(2)
    desk.ack(desk.lease())

    assert len(desk.shard.leases) == 0
    assert desk.shard.next_deadline() is None


def test_results_do_not_depend_on_when_a_timer_fires(make_desk: Callable[..., Any]) -> None:
    """The queue's worker may be busy when a lease ends; the next call applies it first."""
    punctual, late = make_desk(), make_desk()
    for desk in (punctual, late):
        desk.put(2)
        desk.settle(desk.lease(1), Outcome.FAIL)
        desk.lease(1, "dies")
    for _ in range(70):
        punctual.clock.advance(1)
        punctual.shard.tick()
    late.clock.advance(70)

    leased = [[desk.ids(desk.lease(5)), desk.ids(desk.lease(5))] for desk in (punctual, late)]
    assert leased[0] == leased[1] == [[0], [1]]


def test_lag_is_the_age_of_the_oldest_ready_message(desk: Any) -> None:
    """Leased messages are another slot's work already."""
    desk.put()
    desk.clock.advance(5)
    desk.put(run=NO_ID)
    desk.clock.advance(2)
    assert (desk.shard.lag(), desk.shard.lag(RUN), desk.shard.lag(NO_ID)) == (7, 7, 2)
    desk.lease(1)
    desk.lease(1)

    assert desk.shard.lag() == 0.0
