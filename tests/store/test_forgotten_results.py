"""Results of single calls are freed one by one: from memory, from the log and behind a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from dqlab.frame import NO_ID, Piece
from dqlab.rules.result_index import ResultIndex, Stretch
from dqlab.rules.states import State
from dqlab.store.durable_shard import MOSTLY, compaction, run_through
from dqlab.store.journal import needed_by
from tests.store.test_functions import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "log")


def forget(desk: Desk, lo: int, hi: int, *, coming: bool = True) -> None:
    desk.order("forget", NO_ID, {"ids": [[lo, hi]], "coming": coming})


def agrees(desk: Desk) -> None:
    """What the log is told to keep is what the ledger names."""
    log = desk.durable.journal.log
    desk.durable.journal.noted()
    needed = needed_by(desk.ledger)
    assert {segment: log._needed[segment] for segment in needed} == needed


def results(desk: Desk) -> int:
    return len(desk.ledger.books[NO_ID].results)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_results_that_can_no_longer_be_asked_for_leave_the_log(desk: Desk, checkpoint: bool) -> None:
    """A service that calls a queue for months would else keep every answer that it ever got."""
    for _ in range(50):
        desk.put(NO_ID, 1)
        desk.work(n=1)
        forget(desk, 0, max(0, desk.ledger.shard.next_id - 4))
        agrees(desk)
    assert results(desk) == 4
    assert desk.durable.journal.stored < 1000
    desk.reopen(checkpoint=checkpoint)
    assert results(desk) == 4
    agrees(desk)
    run_through(compaction(desk.durable, below=MOSTLY))
    agrees(desk)
    desk.reopen(checkpoint=checkpoint)
    assert results(desk) == 4
    forget(desk, 0, 1 << 53, coming=False)
    assert (results(desk), desk.durable.journal.stored) == (0, 0)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_result_that_comes_when_it_can_no_longer_be_asked_for_is_not_kept(desk: Desk, checkpoint: bool) -> None:
    """Most calls whose results no client wants are let go of before they have run."""
    desk.put(NO_ID, 1, n=4)
    forget(desk, 1, 3)
    desk.reopen(checkpoint=checkpoint)
    desk.work(n=1)
    book = desk.ledger.books[NO_ID]
    assert list(book.results.covered) == [(0, 1), (3, 4)]
    assert not book.unwanted
    assert book.lane.counts[State.ACKED] == 4
    agrees(desk)


def test_of_results_that_came_together_all_are_kept_until_the_last_is_forgotten(desk: Desk) -> None:
    desk.put(NO_ID, 1, n=4)
    desk.work(n=4)
    stored = desk.durable.journal.stored
    forget(desk, 0, 3)
    assert desk.durable.journal.stored == stored
    assert list(desk.ledger.books[NO_ID].results.covered) == [(3, 4)]
    forget(desk, 3, 4)
    assert desk.durable.journal.stored == 0
    agrees(desk)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_what_is_forgotten_stays_so_behind_a_restart_while_others_that_came_with_it_are_kept(
    desk: Desk, checkpoint: bool
) -> None:
    """They came back with a checkpoint, and what was stored for them was never freed: no client forgets them twice."""
    desk.put(NO_ID, 1, n=4)
    desk.work(n=4)
    forget(desk, 0, 2)
    desk.reopen(checkpoint=checkpoint)
    forget(desk, 2, 3)
    for _ in range(2):
        desk.reopen(checkpoint=checkpoint)
        assert list(desk.ledger.books[NO_ID].results.covered) == [(3, 4)]
        agrees(desk)
    forget(desk, 3, 4)
    assert (results(desk), desk.durable.journal.stored) == (0, 0)
    agrees(desk)


def test_a_cursor_passes_over_what_was_forgotten() -> None:
    """Who reads results as they come must not wait for one that there will never be."""
    index = ResultIndex()
    for id in range(6):
        index.add(Stretch(Piece(id, id, 1), 100 + id, 0))
    assert [stretch.place for stretch in index.forget(1, 3)] == [101, 102]
    assert [stretch.number for stretch in index.behind(1)] == [3, 4, 5]
    index.forget(5, 6)
    assert not list(index.behind(5))
    assert index.end == 6
    assert index.relocate(103, 7)
    assert not index.relocate(101, 8)
    assert sorted(stretch.place for stretch in index) == [7, 100, 104]
