"""Orders of people: pause, drain, cancel, purge, retry, drop."""

from __future__ import annotations

from typing import Any

import pytest

from dqlab.errors import BadOption, MessageNotFound, RunNotFound
from dqlab.frame import NO_ID, Outcome
from dqlab.rules.book import Book, RunRecord
from dqlab.rules.deliveries import Revoked, Settled
from dqlab.rules.journal import Op
from dqlab.rules.ledger import Ledger
from dqlab.rules.retry import Retry
from dqlab.rules.shard import described
from dqlab.rules.states import State, Verdict
from dqlab.rules.trouble import Death
from tests.rules.invariants import check_shard

RUN = b"run-of-the-tests"
OTHER = b"another-run-id.."
NEW = b"function-v2-----"
ACK, FAIL, REJECT, NACK, RETURN, REFUSED = Outcome


def test_a_paused_run_leases_nothing_and_takes_puts(desk: Any) -> None:
    """Pause stops work, not people."""
    desk.put()
    desk.shard.pause(RUN)
    assert desk.shard.lease("c", 1) is None
    assert desk.put().verdict is Verdict.ACCEPTED
    desk.put(run=NO_ID)
    assert desk.lease().run == NO_ID
    desk.shard.resume(RUN)

    assert desk.lease().run == RUN


def test_a_paused_queue_leases_nothing_but_settles(desk: Any) -> None:
    """What is running may end."""
    desk.put(2)
    lease = desk.lease(1)
    desk.shard.pause(None)

    assert desk.shard.lease("c", 1) is None
    assert len(desk.ack(lease).results) == 1


def test_resuming_the_queue_leaves_runs_paused_by_name(desk: Any) -> None:
    """Each pause is ended by who made it."""
    desk.put()
    desk.shard.pause(RUN)
    desk.shard.pause(None)
    desk.shard.resume(None)

    assert desk.shard.lease("c", 1) is None


def test_a_draining_queue_refuses_puts_and_pauses_when_empty(desk: Any) -> None:
    """All that is in it is processed first, retries included."""
    desk.put(2)
    desk.shard.drain()
    assert desk.put().verdict is Verdict.DRAINING
    desk.settle(desk.lease(), ACK, FAIL)
    assert not desk.shard.paused
    desk.clock.advance(1)
    desk.ack(desk.lease())
    assert desk.shard.paused
    desk.shard.resume(None)

    assert not desk.shard.paused
    assert desk.put().verdict is Verdict.ACCEPTED


def test_an_empty_queue_is_drained_at_once(desk: Any) -> None:
    """There is nothing to wait for."""
    desk.shard.drain()

    assert desk.shard.paused


def test_a_cancelled_message_is_taken_out_of_its_lease(desk: Any) -> None:
    """Its consumer learns to skip it; a result that comes anyway is stale."""
    desk.put(4)
    lease = desk.lease(3)
    assert desk.shard.cancel(RUN, [(1, 2), (3, 9)]) == 2

    assert list(desk.shard.effects) == [Revoked("c", lease.id, ((1, 2),))]
    settled = desk.settle(lease, ACK, ACK, ACK)
    assert (len(settled.results), settled.stale) == (2, 1)
    assert len(desk.shard.leases) == 0


def test_cancelling_a_run_leaves_its_dead_letters(desk: Any) -> None:
    """They say why the run was cancelled."""
    desk.put(5)
    desk.settle(desk.lease(3), ACK, REJECT, FAIL)
    desk.lease(1)

    assert desk.shard.cancel(RUN) == 3
    assert desk.counts() == {State.ACKED: 1, State.DEAD: 1, State.CANCELLED: 3}
    assert desk.shard.next_deadline() is None
    check_shard(desk.shard)


def test_cancelling_everything_frees_the_frames(desk: Any) -> None:
    """A cancelled run holds no memory, and a late ack of it is stale."""
    desk.put(2)
    lease = desk.lease(1)
    desk.shard.cancel(RUN)

    assert desk.kept_frames() == []
    assert desk.ack(lease) == Settled(stale=1)


@pytest.mark.parametrize(("state", "left"), [(State.READY, State.DELAYED), (State.DELAYED, State.READY)])
def test_purge_cancels_one_state(desk: Any, state: State, left: State) -> None:
    """Purging the dead must not touch what waits, and the reverse."""
    desk.put(3)
    desk.settle(desk.lease(2), FAIL, REJECT)

    assert desk.shard.purge(RUN, state) == 1
    assert desk.counts() == {State.CANCELLED: 1, left: 1, State.DEAD: 1}
    assert desk.shard.purge(None, State.DEAD) == 1
    check_shard(desk.shard)


def test_purge_takes_suspects_with_what_is_ready(desk: Any) -> None:
    """Suspects are ready; people do not know the word."""
    desk.put(2)
    desk.lease(2)
    desk.shard.release("c")

    assert desk.shard.purge(RUN, State.READY) == 2


def test_purge_of_leased_messages_is_refused(desk: Any) -> None:
    """They are work that was ordered; cancel says that."""
    with pytest.raises(BadOption):
        desk.shard.purge(RUN, State.LEASED)


def test_retried_messages_keep_their_places_and_run_the_new_function(desk: Any) -> None:
    """Edit the function, retry the failed ones: only they run the new code."""
    desk.put(4)
    desk.settle(desk.lease(3), REJECT, ACK, REJECT)
    assert desk.shard.retry(RUN, [(0, 99)], NEW) == 2

    pieces = desk.lease().pieces
    assert [(piece.lo, piece.n, piece.function) for piece in pieces] == [(0, 1, NEW), (2, 1, NEW), (3, 1, None)]


def test_pieces_split_where_the_function_changes(desk: Any) -> None:
    """Each piece is one call to the executor, with one function."""
    desk.put(4)
    desk.settle(desk.lease(), *[REJECT] * 4)
    desk.shard.retry(RUN, [(0, 3)])
    desk.settle(desk.lease(), *[REJECT] * 3)
    desk.shard.retry(RUN, [(0, 2)], NEW)
    desk.shard.retry(RUN, [(2, 4)])

    assert [(piece.lo, piece.n, piece.function) for piece in desk.lease().pieces] == [(0, 2, NEW), (2, 2, None)]


def test_pieces_come_in_order_whichever_function_was_given_first(desk: Any) -> None:
    """Overrides are kept by function, messages by place."""
    desk.put(3)
    desk.settle(desk.lease(), *[REJECT] * 3)
    desk.shard.retry(RUN, [(2, 3)], NEW)
    desk.shard.retry(RUN, [(0, 1)], OTHER)
    desk.shard.retry(RUN, [(1, 2)])

    assert [(piece.lo, piece.function) for piece in desk.lease().pieces] == [(0, OTHER), (1, None), (2, NEW)]


def test_a_retry_resets_counts_and_keeps_the_history(desk: Any) -> None:
    """The new code gets all its retries; the old failures stay readable."""
    desk.put()
    desk.settle(desk.lease(), REJECT, payloads=[b"old"])
    desk.shard.retry(RUN, [(0, 1)])
    for n in range(4):
        desk.fail_alone(FAIL, b"new %d" % n)

    (letter,) = desk.shard.dead_letters(RUN)
    assert (letter.exceptions, letter.failure) == (4, b"new 3")
    assert letter.history == (Death("not retried", b"old", 1, 1),)


def test_the_history_of_a_message_is_bounded(desk: Any) -> None:
    """Someone will retry in a loop."""
    desk.put()
    for n in range(20):
        desk.settle(desk.lease(), REJECT, payloads=[b"%d" % n])
        desk.shard.retry(RUN, [(0, 1)])
    desk.settle(desk.lease(), REJECT)

    assert [death.failure for death in desk.shard.dead_letters(RUN)[0].history] == [b"%d" % n for n in range(12, 20)]


def test_a_late_copy_of_a_failure_does_not_kill_the_retried_message(desk: Any) -> None:
    """It belongs to the life before."""
    desk.put()
    lease = desk.lease()
    desk.settle(lease, REJECT)
    desk.shard.retry(RUN, [(0, 1)])

    assert desk.settle(lease, REJECT, ids=[0]) == Settled(stale=1)
    assert desk.counts() == {State.READY: 1}


def test_retry_touches_the_dead_only(desk: Any) -> None:
    """Asking twice changes nothing."""
    desk.put(3)
    desk.settle(desk.lease(), ACK, REJECT, FAIL)

    assert [desk.shard.retry(RUN, [(0, 3), (0, 3)]), desk.shard.retry(RUN, [(0, 3)])] == [1, 0]


def test_a_dropped_run_is_gone_with_its_frames_and_leases(desk: Any) -> None:
    """drop() is how memory comes back."""
    desk.put(2)
    desk.put(2)
    lease = desk.lease(3)
    desk.shard.drop_lane(RUN)

    assert list(desk.shard.effects) == [Revoked("c", lease.id, ((0, 3),))]
    assert desk.kept_frames() == []
    assert desk.settle(lease, ACK, ids=[0], run=RUN) == Settled(stale=1)
    with pytest.raises(RunNotFound):
        desk.shard.cancel(RUN)
    desk.shard.drop_lane(RUN)
    desk.shard.tick()


def test_a_message_is_found_by_its_id(desk: Any) -> None:
    """`show ID` must work for any shard, run and frame."""
    desk.shard.open_lane(OTHER)
    desk.put(3)
    desk.put(3, run=OTHER)

    assert [desk.shard.locate(RUN, id) for id in (0, 2)] == [(0, 0), (0, 2)]
    assert [desk.shard.locate(OTHER, id) for id in (3, 5)] == [(3, 0), (3, 2)]
    for id in (6, -1):
        with pytest.raises(MessageNotFound):
            desk.shard.locate(RUN, id)


# --- another submission goes on with a run ----------------------------------------------------

CUT_OFF = b"who was cut off."
GOES_ON = b"who goes on now."


@pytest.fixture
def continued(desk: Any) -> Ledger:
    """A run whose submission was cut off after two documents, and that another one goes on with."""
    ledger = Ledger(desk.shard)
    ledger.keep(RUN, Book(desk.shard.lane(RUN), record=RunRecord("word-count", codes=[{"hash": "h"}])))
    desk.put(2, producer=CUT_OFF)
    ledger.order("submitted", RUN, {"submitted": 2, "digest": "two", "by": CUT_OFF})
    ledger.order("seal", None, {"seal": {"run": RUN, "here": 2, "incomplete": "its process ended"}})
    ledger.order("reopen", RUN, {"client": "another", "producer": GOES_ON})
    return ledger


def test_documents_of_a_submission_that_was_cut_off_are_refused_once_another_goes_on(
    desk: Any, continued: Ledger
) -> None:
    """A put that comes late, as after a partition, has ordinals that the other one puts too: they would run twice."""
    assert desk.put(3, producer=CUT_OFF, sequence=1, ordinal=2).verdict is Verdict.SEALED
    assert desk.put(2, producer=CUT_OFF, sequence=0).verdict is Verdict.DUPLICATE, "its put that was confirmed stays so"
    assert desk.put(3, producer=GOES_ON, ordinal=2).verdict is Verdict.ACCEPTED

    assert desk.counts() == {State.READY: 5}


def test_the_end_of_a_submission_that_was_cut_off_does_not_end_the_one_that_goes_on(
    desk: Any, continued: Ledger
) -> None:
    """The run would be done with a part of its input, and the rest refused."""
    record = continued.book(RUN).record
    assert record is not None
    for why in (None, "it was cancelled"):
        continued.order("submitted", RUN, {"submitted": 1, "digest": "one", "by": CUT_OFF})
        continued.order("seal", None, {"seal": {"run": RUN, "here": 2, "total": 2, "incomplete": why, "by": CUT_OFF}})
        assert not desk.shard.lane(RUN).sealed
        assert (record.submitted, record.digest, record.total, record.incomplete) == (2, "two", None, None)

    continued.order("submitted", RUN, {"submitted": 5, "digest": "five", "by": GOES_ON})
    continued.order("seal", None, {"seal": {"run": RUN, "here": 5, "total": 5, "incomplete": None, "by": GOES_ON}})
    assert desk.shard.lane(RUN).sealed
    assert (record.submitted, record.digest, record.total) == (5, "five", 5)


def test_the_queue_seals_a_run_whichever_submission_goes_on_with_it(desk: Any, continued: Ledger) -> None:
    """When its client has gone, or it is cancelled."""
    (seal,) = continued.cut_off(continued.submitting())
    continued.order("seal", None, {"seal": seal})
    assert desk.shard.lane(RUN).sealed

    continued.order("reopen", RUN, {"client": "another", "producer": GOES_ON})
    continued.order("cancel", RUN, {})
    assert desk.shard.lane(RUN).sealed


def test_each_order_has_its_name_and_each_name_its_order(desk: Any) -> None:
    """A name without an order would fail where a log is replayed, and nowhere before."""
    assert Ledger(desk.shard).orders(None).keys() == set(Op)


def test_what_was_settled_with_what_was_revived_only_grows(make_desk: Any) -> None:
    """A speed is measured by it: after a retry fewer are settled than before."""
    desk = make_desk(retry=Retry(0))
    desk.put(4, weights=[1, 2, 3, 4])
    lane = desk.shard.lanes[RUN]
    desk.settle(desk.lease(4), Outcome.ACK, *[Outcome.FAIL] * 3)
    assert lane.revived == [0, 0]

    assert desk.shard.retry(RUN, [(0, 4)]) == 3
    assert lane.revived == [3, 2 + 3 + 4]
    desk.ack(desk.lease(4))

    assert lane.revived == [3, 9]
    assert lane.counts[State.ACKED] + lane.revived[0] == 7


def test_a_message_that_was_taken_from_its_consumer_is_delivered_again_and_counts_for_no_limit(desk: Any) -> None:
    """After *Replace* views had "0 delivered again", and "delivery 1" of the second one."""
    desk.put(3)
    lane = desk.shard.lanes[RUN]
    for taken in range(2):
        lease = desk.lease(1)
        assert (described(desk.shard, lease).delivery, desk.shard.redelivered) == (1 + taken, taken)
        assert desk.shard.let_go(RUN, list(lease.remaining)) == 1

    again = desk.lease(3)
    assert desk.shard.redelivered == 2
    desk.settle(again, Outcome.NACK, payloads=[b""], ids=[0])
    assert lane.trouble[0].deliveries == 0
    lease = desk.lease(1)
    assert described(desk.shard, lease).delivery == 3
    desk.ack(lease)

    assert lane.taken == {}


@pytest.mark.parametrize("end", ["cancelled", "given up"])
def test_what_was_taken_and_has_ended_is_forgotten(desk: Any, end: str) -> None:
    desk.put(1)
    desk.shard.let_go(RUN, list(desk.lease(1).remaining))
    if end == "cancelled":
        desk.shard.cancel(RUN)
    else:
        desk.shard.let_go(RUN, list(desk.lease(1).remaining), "given up")

    assert desk.shard.lanes[RUN].taken == {}
