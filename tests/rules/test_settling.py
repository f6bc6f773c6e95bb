"""Settling: what is accepted, what is a duplicate and what is stale."""

from __future__ import annotations

from typing import Any

import pytest

from dqlab.frame import NO_ID, Outcome, Piece, Settlement
from dqlab.rules.deliveries import Settled
from dqlab.rules.states import State

RUN = b"run-of-the-tests"
ACK, FAIL, REJECT, NACK, RETURN, REFUSED = Outcome


def test_neighbours_settled_alike_come_back_as_one_piece(desk: Any) -> None:
    """A thousand acks are one entry in the log, not a thousand."""
    desk.put(1000, ordinal=7)
    lease = desk.lease()
    blob = Settlement.encode([Piece(0, 7, 1000)], bytes(1000), [b""] * 1000, run=RUN, epoch=1, lease=lease.id)

    assert desk.shard.settle(Settlement.decode(blob)).results == ((Piece(0, 7, 1000), 0),)


@pytest.mark.parametrize("outcome", [ACK, FAIL, NACK, RETURN, REFUSED, REJECT])
def test_what_a_delivery_from_before_a_retry_reports_does_not_count(desk: Any, outcome: Outcome) -> None:
    """It ran the code that was retried, and what it wrote may be deleted: the run had ended before the retry."""
    desk.put(3)
    stopped = desk.lease()
    desk.clock.advance(61)
    for _ in range(3):  # leased one by one, since their consumer may be dead
        desk.settle(desk.lease(1, "d"), REJECT)
    assert desk.shard.retry(RUN, [(0, 2)]) == 2

    reported = desk.settle(stopped, outcome, outcome, outcome)
    assert reported == Settled(duplicates=1, stale=2)
    assert desk.counts() == {State.READY: 2, State.DEAD: 1}
    assert len(desk.ack(desk.lease(2, "d")).results) == 2


@pytest.mark.parametrize("outcome", [FAIL, NACK, RETURN, REFUSED, REJECT])
def test_a_settlement_that_arrives_twice_counts_once(desk: Any, outcome: Outcome) -> None:
    """A consumer that got no answer sends again; a failure must not use up two retries."""
    desk.put(2)
    lease = desk.lease()
    desk.settle(lease, outcome)
    before = desk.counts()

    assert desk.settle(lease, outcome, ids=[0]) == Settled(duplicates=1)
    assert desk.counts() == before
    counted = int(outcome is not NACK)
    assert all(record.deliveries == counted for record in desk.shard.lanes[RUN].trouble.values())


def test_unknown_ids_are_stale_and_harmless(desk: Any) -> None:
    """A settlement is input from another process."""
    desk.put(2)
    lease = desk.lease()
    ids = [2, 99, (1 << 64) - 1]

    assert desk.settle(lease, ACK, FAIL, NACK, ids=ids) == Settled(stale=3)
    assert desk.settle(None, ACK, ids=[0], run=b"?" * 16) == Settled(stale=1)
    assert list(lease.remaining) == [(0, 2)]


def test_an_ack_that_frees_its_frame_is_not_counted_twice(desk: Any) -> None:
    """One outcome, one verdict, also after the lease ended."""
    desk.put(1)
    lease = desk.lease()
    desk.clock.advance(61)
    blob = Settlement.encode([Piece(0, 0, 3)], bytes(3), [b""] * 3, run=RUN, epoch=1, lease=lease.id)

    assert desk.shard.settle(Settlement.decode(blob)) == Settled(results=((Piece(0, 0, 1), 0),), stale=2)


def test_a_settlement_under_another_run_is_stale(desk: Any) -> None:
    """Results filed under the wrong run would be worse than none."""
    desk.put()
    lease = desk.lease()

    assert desk.settle(lease, ACK, run=NO_ID) == Settled(stale=1)
    assert desk.counts() == {State.LEASED: 1}


def test_a_run_is_done_when_it_is_sealed_and_every_message_has_an_end(desk: Any) -> None:
    """Dead and cancelled messages end a run as well; a retry opens it again."""
    lane = desk.shard.lanes[RUN]
    desk.put(3)
    desk.settle(desk.lease(2), ACK, REJECT)
    desk.shard.cancel(RUN, [(2, 3)])
    assert not lane.done
    desk.shard.seal_lane(RUN, 3)
    assert lane.done
    desk.shard.retry(RUN, [(0, 9)])

    assert not lane.done


def test_an_ack_after_expiry_saves_the_second_run(desk: Any) -> None:
    """The work is done; only the lease was too short."""
    desk.put(2)
    lease = desk.lease()
    desk.clock.advance(61)

    assert len(desk.ack(lease).results) == 2
    assert desk.shard.lease("d", 9) is None


def test_an_ack_of_a_message_leased_to_another_is_stale(desk: Any) -> None:
    """Its result will come from the one who holds it now."""
    desk.put()
    lease = desk.lease()
    desk.clock.advance(61)
    other = desk.lease(1, "d")

    assert desk.ack(lease) == Settled(stale=1)
    assert len(desk.ack(other).results) == 1
    assert desk.ack(lease) == Settled(duplicates=1)


def test_an_ack_of_an_older_epoch_counts_while_no_consumer_holds_the_message(make_desk: Any) -> None:
    """The shard restarted while the function ran."""
    desk = make_desk(epoch=2)
    desk.put(2)
    assert len(desk.settle(None, ACK, ids=[0], epoch=1).results) == 1
    lease = desk.lease()

    assert desk.settle(lease, ACK, ids=[1], epoch=1) == Settled(stale=1)
    assert list(lease.remaining) == [(1, 2)]
