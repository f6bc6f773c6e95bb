"""Documents that are done run again in their places: what counts, what is read, and what a log brings back."""

from __future__ import annotations

from pathlib import Path

import pytest

from dqlab.cluster.statistics.joins import done_by
from dqlab.frame import Frame, Kind, Outcome
from dqlab.rules.states import State, Verdict
from dqlab.store.durable_shard import MOSTLY, compaction, run_through
from dqlab.store.journal import needed_by
from tests.rules.invariants import check_shard
from tests.store.test_functions import Desk, function, run_of

RUN = run_of(1)
PRODUCERS = iter(range(1, 1000))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "log")
    desk.start(RUN, 1)
    desk.put(RUN, 1, n=10)
    desk.seal(RUN)
    return desk


def redo(desk: Desk, lo: int, hi: int, producer: bytes = b"") -> Verdict:
    producer = producer or next(PRODUCERS).to_bytes(16, "big")
    desk.order("reopen", RUN, {"client": "c", "producer": producer, "redo": True})
    code = desk.ledger.books[RUN].record.code  # type: ignore[union-attr]
    blob = Frame.encode(
        [b"again"] * (hi - lo), kind=Kind.ELEMENT, run=RUN, function=code["blob"], producer=producer, ordinal=lo
    )
    verdict = desk.ledger.shard.put(Frame.decode(blob)).verdict
    desk.durable.journal.noted()
    desk.seal(RUN)
    return verdict


def agrees(desk: Desk) -> None:
    desk.durable.journal.noted()
    check_shard(desk.ledger.shard)
    log, book = desk.durable.journal.log, desk.ledger.books[RUN]
    needed = needed_by(desk.ledger)
    assert {segment: log._needed[segment] for segment in needed} == needed
    assert sum(book.lane.counts) == 10
    ordinals = [piece.ordinal + i for _, piece, _ in book.results.between(0, 100) for i in range(piece.n)]
    assert len(ordinals) == len(set(ordinals)), "never two rows"
    streamed = [each.piece.ordinal + i for each in book.results.behind(0) for i in range(each.piece.n)]
    assert sorted(streamed) == ordinals


def counted(desk: Desk) -> dict[State, int]:
    counts = desk.ledger.books[RUN].lane.counts
    return {state: counts[state] for state in State if counts[state]}


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_document_that_runs_again_keeps_its_result_until_the_new_one_is_recorded(
    desk: Desk, checkpoint: bool
) -> None:
    desk.work()
    assert redo(desk, 3, 6) is Verdict.ACCEPTED
    for _ in range(2):
        agrees(desk)
        assert counted(desk) == {State.READY: 3, State.ACKED: 7}
        assert list(desk.ledger.books[RUN].results.covered) == [(0, 10)]
        assert not desk.ledger.books[RUN].lane.done
        desk.reopen(checkpoint=checkpoint)
    old = {stretch.place for stretch, _, _ in desk.ledger.books[RUN].results.between(3, 6)}
    desk.work()
    for _ in range(2):
        agrees(desk)
        assert counted(desk) == {State.ACKED: 10}
        assert list(desk.ledger.books[RUN].results.covered) == [(0, 10)]
        new = {stretch.place for stretch, _, _ in desk.ledger.books[RUN].results.between(3, 6)}
        assert not new & old
        assert desk.ledger.books[RUN].lane.done
        desk.reopen(checkpoint=checkpoint)
    run_through(compaction(desk.durable, below=MOSTLY))
    agrees(desk)
    desk.reopen(checkpoint=checkpoint)
    agrees(desk)
    assert counted(desk) == {State.ACKED: 10}


@pytest.mark.parametrize("checkpoint", [True, False])
def test_the_results_of_a_settlement_leave_the_log_when_all_have_been_replaced(desk: Desk, checkpoint: bool) -> None:
    desk.work()
    (place,) = {stretch.place for stretch in desk.ledger.books[RUN].results}
    for lo, hi in ((0, 4), (6, 10), (4, 6)):
        assert place in {stretch.place for stretch in desk.ledger.books[RUN].results}
        redo(desk, lo, hi)
        desk.work()
        desk.reopen(checkpoint=checkpoint)
        agrees(desk)
    assert place not in {stretch.place for stretch in desk.ledger.books[RUN].results}


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_redo_that_ends_dead_keeps_the_old_result_and_is_listed(desk: Desk, checkpoint: bool) -> None:
    desk.work()
    redo(desk, 2, 4)
    desk.work(Outcome.REJECT)
    for _ in range(2):
        agrees(desk)
        book = desk.ledger.books[RUN]
        assert counted(desk) == {State.ACKED: 8, State.DEAD: 2}
        assert list(book.results.covered) == [(0, 10)]
        assert [letter.ordinal for letter in book.lane.letters(-1)] == [2, 3]
        assert book.lane.done
        desk.reopen(checkpoint=checkpoint)
    lane = desk.ledger.books[RUN].lane
    desk.order("retry", RUN, {"ids": list(lane.dead), "ordinals": [(2, 4)]})
    desk.work()
    agrees(desk)
    assert counted(desk) == {State.ACKED: 10}


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("before", ["ready", "leased", "dead", "retried", "redone"])
def test_the_later_order_wins_whatever_state_the_document_is_in(desk: Desk, before: str, checkpoint: bool) -> None:
    """A message that was put earlier never settles behind the one that replaces it."""
    shard, lease = desk.ledger.shard, None
    if before == "leased":
        lease = shard.lease("other", 10)
    elif before in ("dead", "retried"):
        desk.work(Outcome.REJECT)
    elif before == "redone":
        desk.work()
        redo(desk, 0, 10)
    if before == "retried":
        lane = desk.ledger.books[RUN].lane
        desk.order("retry", RUN, {"ids": list(lane.dead), "ordinals": [(0, 10)]})
    redo(desk, 2, 5)
    agrees(desk)
    assert sum(counted(desk).values()) == 10
    if lease is not None:
        assert lease.remaining.size == 7
        first = lease.pieces[0].frame
        assert [revoked.ranges for revoked in shard.effects] == [((first + 2, first + 5),)]
    desk.reopen(checkpoint=checkpoint)
    agrees(desk)
    desk.work()
    agrees(desk)
    dead = {State.DEAD: 7} if before == "dead" else {}
    assert counted(desk) == {State.ACKED: 10 - sum(dead.values()), **dead}


@pytest.mark.parametrize("checkpoint", [True, False])
def test_what_was_cancelled_counts_no_longer_once_documents_run_again(desk: Desk, checkpoint: bool) -> None:
    """With a result of before it is acked, as that stays; without one it never came."""
    desk.work()
    redo(desk, 2, 4)
    desk.order("cancel", RUN, {})
    assert counted(desk) == {State.ACKED: 8, State.CANCELLED: 2}
    redo(desk, 6, 7)
    for _ in range(2):
        agrees(desk)
        assert counted(desk) == {State.READY: 1, State.ACKED: 9}
        assert list(desk.ledger.books[RUN].lane.came) == [(0, 10)]
        desk.reopen(checkpoint=checkpoint)
    desk.work()
    agrees(desk)
    assert counted(desk) == {State.ACKED: 10}


@pytest.mark.parametrize("checkpoint", [True, False])
def test_cancelled_documents_without_a_result_come_again(desk: Desk, checkpoint: bool) -> None:
    """Also beside others that are dead, whose frames are kept."""
    desk.work(Outcome.REJECT)
    ((lo, hi),) = desk.ledger.books[RUN].lane.dead
    desk.order("retry", RUN, {"ids": [(lo + 4, hi)], "ordinals": [(4, 10)]})
    desk.order("cancel", RUN, {})
    assert counted(desk) == {State.DEAD: 4, State.CANCELLED: 6}
    redo(desk, 4, 10)
    desk.reopen(checkpoint=checkpoint)
    agrees(desk)
    assert counted(desk) == {State.DEAD: 4, State.READY: 6}


@pytest.mark.parametrize("checkpoint", [True, False])
def test_equal_code_in_other_bytes_keeps_what_its_version_made(desk: Desk, checkpoint: bool) -> None:
    """A cell that runs again may pickle to other bytes; the first version gets none of its results."""
    desk.work(Outcome.REJECT)
    lane = desk.ledger.books[RUN].lane
    ((lo, _),) = lane.dead
    for number, at in ((2, 0), (3, 4)):
        code = {"name": "f", "hash": "2", "short": "", "source": "", "cell": None, "blob": function(number)}
        chosen = {"ids": [(lo + at, lo + at + 3)], "ordinals": [(at, at + 3)]}
        desk.order("retry", RUN, chosen | {"function": function(number), "blob": bytes(9), "code": code})
        desk.work()
    desk.reopen(checkpoint=checkpoint)
    report = desk.ledger.books[RUN].report(RUN, 0.0)
    assert done_by([report], report) == (0, 6)


def test_the_same_order_given_twice_is_carried_out_once(desk: Desk) -> None:
    desk.work()
    assert redo(desk, 0, 2, b"p" * 16) is Verdict.ACCEPTED
    assert redo(desk, 0, 2, b"p" * 16) is Verdict.DUPLICATE
    assert counted(desk) == {State.READY: 2, State.ACKED: 8}
    agrees(desk)
