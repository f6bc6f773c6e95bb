"""Orders of people: pause, drain, cancel, purge, retry, drop."""

from __future__ import annotations

from typing import Any

import pytest

from dqlab.errors import BadOption, MessageNotFound
from dqlab.frame import Outcome
from dqlab.rules.book import Book, RunRecord
from dqlab.rules.frame_notes import Overrides
from dqlab.rules.journal import Op
from dqlab.rules.ledger import Ledger
from dqlab.rules.retry import Retry
from dqlab.rules.shard import described
from dqlab.rules.states import State, Verdict
from dqlab.rules.trouble import Death

RUN = b"run-of-the-tests"
OTHER = b"another-run-id.."
ACK, FAIL, REJECT, NACK, RETURN, REFUSED = Outcome


def test_purge_of_leased_messages_is_refused(desk: Any) -> None:
    """They are work that was ordered; cancel says that."""
    with pytest.raises(BadOption):
        desk.shard.purge(RUN, State.LEASED)


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


def test_function_of_a_whole_lane_is_that_of_messages_still_to_come() -> None:
    """The submitter's frames name the old function; they may be on their way."""
    overrides, old, new = Overrides(), b"o" * 16, b"n" * 16
    overrides.assign(10, 20, old)
    overrides.assign(0, 1 << 53, new)

    assert list(overrides.split(5, 30)) == [(5, 30, new)]
    overrides.discard(0, 15)
    assert list(overrides.split(10, 20)) == [(10, 15, None), (15, 20, new)]
