"""Shards that are recreated without what they held: what was there is counted as lost, and may come once more."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.rules.ids import next_sequence
from dqlab.rules.ledger import Ledger
from dqlab.rules.options import QueueOptions
from dqlab.rules.past import Past, recall
from dqlab.rules.shard import Put, Shard
from dqlab.rules.states import State, Verdict
from dqlab.testing import FakeClock

RUN = b"run-of-the-tests"
AGAIN = b"who sends again."
CODE = {"name": "double", "hash": "h", "short": "s", "source": None, "cell": None, "blob": b"b"}
OPEN = {
    "run": RUN,
    "record": {"name": "word-count", "codes": [CODE], "client": "c", "started": 7.0},
    "max_deliveries": 2,
}


def ledger_of(epoch: int, past: Past | None = None) -> Ledger:
    ledger = Ledger(Shard("q", 1, epoch=epoch, options=QueueOptions(), clock=FakeClock(), random=Random(0)))
    if past is not None:
        recall(ledger, past)
    return ledger


def past_of(lost: int, **told: Any) -> Past:
    lane: Any = {"run": RUN, "lost": lost, "cancelled": 0, "units": (0, 0), "died": ["tcp://w"], "open": OPEN, **told}
    first = next_sequence(lost)
    return {"first_sequence": first, "paused": False, "draining": False, "lanes": [lane]}


def sealed(here: int) -> dict[str, Any]:
    return {"here": here, "total": 2 * here, "incomplete": None}


def put(ledger: Ledger, n: int, *, ordinal: int = 0, sequence: int = 0, lost: bool = False) -> Put:
    blob = Frame.encode(
        [b"x"] * n, kind=Kind.ELEMENT, run=RUN, producer=AGAIN, sequence=sequence, ordinal=ordinal, weights=[2] * n
    )
    return ledger.shard.put(Frame.decode(blob), lost=lost)


def counts(ledger: Ledger, run: bytes = RUN) -> dict[State, int]:
    found = ledger.shard.lanes[run].counts
    return {state: found[state] for state in State if found[state]}


def test_a_run_that_was_sealed_is_over_with_all_its_documents_lost() -> None:
    submitted = {"submitted": 20, "digest": "d"}
    ledger = ledger_of(2, past_of(7, seal=sealed(10), submitted=submitted, ended=9.0))

    book = ledger.books[RUN]

    assert counts(ledger) == {State.LOST: 10}  # the last report knew of 7
    assert book.lane.done
    assert book.lane.max_deliveries == 2
    assert book.record is not None
    assert (book.record.name, book.record.started, book.record.total) == ("word-count", 7.0, 20)
    assert (book.record.submitted, book.record.digest, book.ended) == (20, "d", 9.0)
    assert book.report(RUN).died == ["tcp://w"]
    ledger.shard.invariants()


@pytest.mark.parametrize("reported", [0, 4, 12])
def test_the_seal_puts_right_what_the_last_report_knew_of_a_run_that_was_being_submitted(reported: int) -> None:
    """It lags behind what was confirmed, or knows of frames that were never confirmed and came again."""
    ledger = ledger_of(2, past_of(reported))
    put(ledger, 5, ordinal=100)
    assert counts(ledger) == {State.READY: 5} | ({State.LOST: reported} if reported else {})
    assert not ledger.books[RUN].lane.done

    ledger.order("seal", RUN, {"seal": {"run": RUN, "here": 12, "total": 12}})

    assert counts(ledger) == {State.READY: 5, State.LOST: 7}
    ledger.shard.cancel(RUN)
    assert ledger.books[RUN].lane.done
    ledger.shard.invariants()


def test_lost_documents_come_back_into_a_sealed_run_and_take_the_place_of_lost_ones() -> None:
    ledger = ledger_of(2, past_of(10, seal=sealed(10)))
    lane = ledger.books[RUN].lane

    assert put(ledger, 6, ordinal=3, lost=True).verdict is Verdict.ACCEPTED

    assert counts(ledger) == {State.READY: 6, State.LOST: 4}
    assert list(lane.came) == [(3, 9)]
    assert not lane.done
    assert put(ledger, 6, ordinal=3, lost=True).verdict is Verdict.DUPLICATE
    ledger.shard.invariants()


def test_a_sealed_run_takes_no_more_than_it_lost_and_nothing_else() -> None:
    ledger = ledger_of(2, past_of(5, seal=sealed(5)))

    assert put(ledger, 1).verdict is Verdict.SEALED
    assert put(ledger, 6, lost=True).verdict is Verdict.SEALED
    assert put(ledger, 5, lost=True).verdict is Verdict.ACCEPTED
    assert put(ledger, 1, sequence=1, lost=True).verdict is Verdict.SEALED
    assert counts(ledger) == {State.READY: 5}


def test_units_of_lost_documents_are_counted_once_when_they_come_again() -> None:
    told = past_of(5, seal=sealed(5), units=(10, 0))
    ledger = ledger_of(2, told)
    put(ledger, 3, lost=True)

    assert ledger.shard.lanes[RUN].units[State.READY] == 6
    assert sum(ledger.shard.lanes[RUN].units) == 10


def test_ids_and_leases_of_a_new_epoch_are_others() -> None:
    """A renewal or settlement that comes an epoch late meets no other one's."""
    before, after = ledger_of(1), ledger_of(2, past_of(1000))
    before.open(OPEN)
    put(before, 3)
    put(after, 3)
    old, new = before.shard.lease("c", 3), after.shard.lease("c", 3)
    assert old is not None
    assert new is not None

    late = Settlement.encode([Piece(0, 0, 3)], bytes([Outcome.ACK] * 3), [b""] * 3, run=RUN, epoch=1, lease=old.id)
    settled = after.shard.settle(Settlement.decode(late))

    assert new.pieces[0].frame - old.pieces[0].frame == 1 << 24
    assert after.shard.extend([old.id]) == [old.id]
    assert not after.shard.begin(old.id)
    assert (settled.stale, settled.results) == (3, ())
    assert counts(after) == {State.LEASED: 3, State.LOST: 1000}


def test_pauses_are_kept_by_the_queue_and_by_the_run() -> None:
    told = past_of(5, paused=True)
    ledger = ledger_of(2, told | {"paused": True})

    assert ledger.shard.paused
    assert ledger.books[RUN].lane.paused


def test_single_calls_that_were_lost_are_counted_in_their_lane() -> None:
    told = past_of(0)
    told["lanes"] = [{"run": NO_ID, "lost": 8, "cancelled": 0, "units": (0, 0), "died": ["tcp://w"], "retries": 7}]
    ledger = ledger_of(2, told)

    assert counts(ledger, NO_ID) == {State.LOST: 8}
    assert ledger.shard.lanes[NO_ID].retry.retries == 7


def test_a_run_whose_client_is_gone_as_well_is_cut_off() -> None:
    """No other client would ever seal it."""
    ledger = ledger_of(2, past_of(5))

    [seal] = ledger.cut_off(ledger.submitting())
    ledger.order("seal", None, {"seal": seal})

    assert counts(ledger) == {State.LOST: 5}
    assert ledger.books[RUN].lane.done


def test_what_cannot_be_read_any_more_is_no_longer_among_the_ordinals_that_are_here() -> None:
    ledger = ledger_of(1)
    ledger.open(OPEN)
    first = put(ledger, 10, ordinal=50).first
    assert first is not None

    ledger.shard.lose(RUN, [(first + 2, first + 5)])

    assert list(ledger.shard.lanes[RUN].came) == [(50, 52), (55, 60)]


def test_a_document_that_is_here_is_not_taken_once_more_as_a_lost_one() -> None:
    """Two who send the same ones would fill the room of others."""
    ledger = ledger_of(2, past_of(10, seal=sealed(10)))
    put(ledger, 4, ordinal=2, lost=True)

    other = Frame.encode([b"x"] * 3, kind=Kind.ELEMENT, run=RUN, producer=b"somebody else...", sequence=0, ordinal=5)
    assert ledger.shard.put(Frame.decode(other), lost=True).verdict is Verdict.SEALED
    assert counts(ledger) == {State.READY: 4, State.LOST: 6}


def test_what_was_cancelled_of_a_run_is_not_lost_with_it() -> None:
    ledger = ledger_of(2, past_of(4, cancelled=6, seal=sealed(10)))

    assert counts(ledger) == {State.LOST: 4, State.CANCELLED: 6}
    assert ledger.books[RUN].lane.done


def test_code_that_a_run_has_got_since_is_there_again() -> None:
    """A retry of what is sent again runs the newest code; of older ones all messages are lost."""
    record = {**OPEN["record"], "codes": [CODE, {**CODE, "blob": b"newer"}]}  # type: ignore[dict-item]
    told = past_of(4, functions={b"newer": b"blob", b"named by nothing": b"blob"}, open={**OPEN, "record": record})
    ledger = ledger_of(2, told)

    assert ledger.functions == {b"newer": b"blob"}


def test_a_run_that_is_complete_stays_complete_when_it_is_cancelled() -> None:
    complete, going = (ledger_of(2, past_of(lost, seal=sealed(10))) for lost in (0, 10))
    complete.shard.lanes[RUN].counts = [0, 0, 0, 10, 0, 0, 0]

    for ledger in (complete, going):
        ledger.order("cancel", RUN, {})

    found = [ledger.books[RUN].record for ledger in (complete, going)]
    assert [record is not None and record.cancelled for record in found] == [False, True]


def test_whether_a_run_was_cancelled_is_the_same_when_its_order_is_read_from_a_log() -> None:
    """By then its frames may be damaged, and a complete run look as if something were left of it."""
    complete, damaged, meta = ledger_of(2, past_of(0, seal=sealed(10))), ledger_of(2, past_of(10, seal=sealed(10))), {}
    complete.shard.lanes[RUN].counts = [0, 0, 0, 10, 0, 0, 0]

    for ledger in (complete, damaged):
        ledger.order("cancel", RUN, meta)

    record = damaged.books[RUN].record
    assert record is not None
    assert not record.cancelled
