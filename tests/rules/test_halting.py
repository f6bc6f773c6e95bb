"""A run that fails throughout pauses itself, once, and no other does."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.errors import BadOption
from dqlab.failures.failure import Failure
from dqlab.frame import Outcome
from dqlab.rules.budget import Stop, as_stop
from dqlab.rules.ledger import Ledger
from dqlab.rules.retry import QueueOptions, Retry
from dqlab.rules.shard import Shard
from dqlab.rules.states import State
from dqlab.testing import FakeClock
from tests.rules.conftest import FUNCTION, RUN, Desk
from tests.rules.invariants import check_shard
from tests.rules.memory_journal import MemoryJournal

NEWER = b"function-v2-----"
FAILURE = Failure("KeyError", "'total'", "", "", "d2c81e07", None, "", "c", "w", 0.0, 0.0).to_bytes()
CODE = {"name": "f", "hash": "1", "blob": FUNCTION}


class Halting(Desk):
    """A ledger with one run of `n` documents, and short words for what happens to it."""

    def __init__(
        self, n: int, stop_if: int | float | None = 5, retries: int = 0, *, despite: bool = False, on: Any = ()
    ) -> None:
        options = QueueOptions(retry=Retry(retries, backoff=1.0, jitter=False, on=on))
        clock = FakeClock()
        shard = Shard("q", 0, epoch=1, options=options, clock=clock, random=Random(1), journal=MemoryJournal())
        super().__init__(shard, clock)
        self.ledger = Ledger(shard)
        self.ledger.open(
            {"run": RUN, "record": {"name": "r", "codes": [CODE], "stop_if": stop_if, "stop_despite": despite}}
        )
        if n:
            self.put(n)
            self.ledger.order("seal", RUN, {"seal": {"run": RUN, "here": n, "total": n}})

    def end(self, *outcomes: Outcome) -> list[bytes]:
        """Let the next documents end so; return what paused itself then."""
        lease = self.lease(len(outcomes))
        payloads = [FAILURE if outcome is Outcome.FAIL else b"" for outcome in outcomes]
        self.ledger.settle(self.settlement(lease, outcomes, payloads=payloads))
        return self.ledger.halt_failing()

    @property
    def halted(self) -> str:
        return self.ledger.book(RUN).halted

    @property
    def paused(self) -> bool:
        return self.shard.lanes[RUN].paused


FAIL, ACK = Outcome.FAIL, Outcome.ACK


def test_a_run_whose_first_documents_all_fail_pauses_itself_and_says_of_what() -> None:
    """Ten thousand documents were spent on a mistyped name, one by one."""
    desk = Halting(20)

    assert desk.end(*[FAIL] * 4) == []
    assert desk.end(FAIL) == [RUN]
    assert desk.paused
    assert desk.halted == "all of its first 5 documents failed with KeyError: 'total'"
    assert desk.counts() == {State.READY: 15, State.DEAD: 5}
    assert desk.shard.lease("c", 1) is None


@pytest.mark.parametrize("n", [1, 4, 5])
def test_a_run_of_no_more_documents_than_that_ends(n: int) -> None:
    """Nothing waits that a pause could save, and a run that is done is not paused."""
    desk = Halting(n)

    assert desk.end(*[FAIL] * n) == []
    assert not desk.paused
    assert desk.shard.lanes[RUN].done


def test_deliveries_that_are_tried_again_do_not_count() -> None:
    """A document counts once, when it is dead, however often it failed."""
    desk = Halting(6, retries=1)

    assert desk.end(*[FAIL] * 5) == []
    desk.clock.advance(10)
    assert desk.end(*[FAIL] * 4) == []
    assert desk.end(FAIL) == [RUN]


def test_resume_goes_on_and_does_not_judge_again() -> None:
    """Somebody has looked, and wants it so."""
    desk = Halting(50)
    desk.end(*[FAIL] * 5)

    desk.ledger.obey("resume", RUN, {})

    assert not desk.halted
    assert desk.end(*[FAIL] * 30) == []
    assert not desk.paused


def test_a_retry_with_new_code_goes_on_and_gives_it_to_the_rest() -> None:
    """Else the rest would fail with the code that was mended."""
    desk = Halting(20)
    desk.end(*[FAIL] * 5)
    lane = desk.shard.lanes[RUN]
    new = {"function": NEWER, "blob": b"new", "code": CODE | {"hash": "2", "blob": NEWER}}

    desk.ledger.obey("retry", RUN, {"ids": list(lane.dead), "ordinals": [(0, 5)], **new})

    assert (desk.halted, desk.paused) == ("", False)
    lease = desk.lease(20)
    assert {piece.function for piece in lease.pieces} == {NEWER}
    assert sum(piece.n for piece in lease.pieces) == 20


def test_functions_that_have_yet_to_run_are_those_of_what_is_not_settled() -> None:
    """After a retry the head named the newest code alone, although the rest ran the one before."""
    desk = Halting(4, stop_if=None)
    lane = desk.shard.lanes[RUN]
    assert lane.functions_to_run() == {FUNCTION}
    desk.end(FAIL)
    desk.shard.retry(RUN, [(0, 1)], NEWER)
    assert lane.functions_to_run() == {FUNCTION, NEWER}
    lease = desk.lease(2)
    assert lane.functions_to_run() == {FUNCTION, NEWER}
    desk.settle(lease, ACK, ACK)
    desk.end(ACK)

    assert lane.functions_to_run() == {FUNCTION}
    desk.end(ACK)
    assert lane.functions_to_run() == set()


def test_new_code_for_the_rest_leaves_none_of_the_old_to_run() -> None:
    """Also while the submitter still names the old one."""
    desk = Halting(0, stop_if=None)
    desk.put(3)
    desk.shard.adopt(RUN, NEWER, {FUNCTION})

    assert desk.shard.lanes[RUN].functions_to_run() == {NEWER}


def test_a_retry_with_the_same_code_goes_on() -> None:
    """A server that was down is up again."""
    desk = Halting(20)
    desk.end(*[FAIL] * 5)

    desk.ledger.obey("retry", RUN, {"ids": list(desk.shard.lanes[RUN].dead), "ordinals": [(0, 5)]})

    assert (desk.halted, desk.paused) == ("", False)
    assert desk.end(*[ACK] * 20) == []


def test_a_retry_with_settings_is_a_version_of_its_own_and_equal_code_is_not() -> None:
    """An order of the rest and one of the dead bring the same version, which counts once."""
    desk = Halting(20)
    desk.end(*[FAIL] * 5)

    def learn(blob: bytes, **more: Any) -> int:
        code = CODE | {"blob": blob, **more}
        for op, what in (("adopt", {}), ("retry", {"ids": [], "ordinals": []})):
            desk.ledger.obey(op, RUN, {"function": blob, "blob": b"code", "code": code, **what})
        return len(desk.ledger.book(RUN).record.codes)  # type: ignore[union-attr]

    assert learn(b"same") == 1, "its values were read again"
    assert learn(b"noted", process=None, note="once more") == 2
    assert learn(b"large", process={"memory": 8}, note="") == 3
    assert {piece.function for piece in desk.lease(15).pieces} == {b"large"}


def test_new_code_for_the_rest_goes_on() -> None:
    """The dead ones may stay dead."""
    desk = Halting(20)
    desk.end(*[FAIL] * 5)

    new = {"function": NEWER, "blob": b"new", "code": CODE | {"hash": "2", "blob": NEWER}}
    desk.ledger.obey("adopt", RUN, new)

    assert (desk.halted, desk.paused) == ("", False)


def test_a_pause_by_hand_is_not_ended_by_a_retry() -> None:
    """Only what paused itself goes on by itself."""
    desk = Halting(20)
    desk.end(*[FAIL] * 3)
    desk.ledger.obey("pause", RUN, {})

    desk.ledger.obey("retry", RUN, {"ids": list(desk.shard.lanes[RUN].dead), "ordinals": [(0, 3)]})

    assert desk.paused


def test_messages_that_die_without_an_exception_count() -> None:
    """A function that kills its consumer every time settles nothing."""
    desk = Halting(20, stop_if=1)
    lane = desk.shard.lanes[RUN]
    for _ in range(20):
        if lane.counts[State.DEAD]:
            break
        desk.lease_isolated()
        desk.ledger.release("c", "worker killed")

    assert desk.ledger.halt_failing() == [RUN]
    assert desk.halted.startswith("its first document failed, the first one: ")


@pytest.mark.long
@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([ACK, FAIL, FAIL, FAIL]), min_size=1, max_size=8), max_size=8),
    st.integers(1, 9) | st.floats(0.5, 0.99),
    st.booleans(),
)
def test_it_pauses_exactly_when_as_many_have_failed_as_it_allows(
    batches: Sequence[Sequence[Outcome]], stop_if: int | float, despite: bool
) -> None:
    """Whatever the settlements are that bring the outcomes; at most once, and a share of at least 200 documents."""
    desk, ended = Halting(400, stop_if=stop_if, despite=despite or isinstance(stop_if, float)), list[Outcome]()
    before = [FAIL, ACK] * 97 if isinstance(stop_if, float) else []
    for batch in [before, *batches] if before else batches:
        ended += batch
        dead = ended.count(FAIL)
        if isinstance(stop_if, float):
            due = len(ended) >= 200 and dead >= stop_if * len(ended)
        else:
            due = dead >= stop_if and (despite or ACK not in ended)
        assert desk.end(*batch) == ([RUN] if due else [])
        assert desk.paused == due
        check_shard(desk.shard)
        if due:
            break


def test_what_is_said_of_a_run_in_which_some_succeeded_counts_both() -> None:
    """ "All of its first documents failed" would be wrong, and the share is the reason."""
    desk = Halting(20, stop_if=3, despite=True)

    assert desk.end(ACK, FAIL, ACK, FAIL, FAIL) == [RUN]

    assert desk.halted == "3 of its first 5 documents failed with KeyError: 'total'"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("auto", Stop(100, despite=False)),
        (None, None),
        (20, Stop(20, despite=True)),
        (0.05, Stop(0.05, despite=True)),
    ],
)
def test_a_number_means_what_it_says_and_the_default_spares_what_works(given: object, meant: Stop | None) -> None:
    """A run that looks for the few that work is a run as well, unless somebody names a limit."""
    assert as_stop(given) == meant


@pytest.mark.parametrize("given", [0, -1, True, "never", 0.0, 1.0, 5.0, float("nan"), [5]])
def test_what_is_neither_a_count_nor_a_share_is_refused(given: object) -> None:
    """5.0 may mean 5 documents or 5 %, and 1.0 all or one."""
    with pytest.raises(BadOption, match="stop_if"):
        as_stop(given)


def test_what_is_said_about_a_run_stays_short() -> None:
    """It stands in the report of every shard, four times a second, and in each answer to who waits."""
    halting, long = Halting(1), "x" * 1_000_000

    halting.ledger.obey("why", RUN, {"why": long})
    halting.ledger.obey("seal", None, {"seal": {"run": RUN, "here": 1, "total": None, "incomplete": long}})
    halting.ledger.obey("halt", RUN, {"halted": long})

    assert len(repr(halting.ledger.book(RUN).report(RUN, 0.0))) < 5_000


def test_what_a_consumer_died_of_stays_short() -> None:
    """A million dead letters may have it."""
    halting = Halting(1)
    for _ in range(halting.shard.options.max_deliveries):
        halting.lease_isolated()
        halting.ledger.release("c", "x" * 1_000_000)

    (letter,) = halting.shard.dead_letters(RUN)
    assert letter.reason.startswith("its consumer died")
    assert len(letter.reason) < 500


def test_of_many_scattered_documents_the_functions_are_looked_up_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look took 60 ms in each of four reports a second, for as long as 14,000 retried documents waited."""
    desk = Halting(4_000, stop_if=None)
    lane = desk.shard.lanes[RUN]
    desk.end(*[FAIL, ACK] * 2_000)
    desk.shard.retry(RUN, list(lane.dead), NEWER)
    book, looks, look = desk.ledger.book(RUN), list[int](), type(lane).functions_to_run
    monkeypatch.setattr(type(lane), "functions_to_run", lambda lane: looks.append(1) or look(lane))

    assert [book.report(RUN, 0.0).runs for _ in range(100)] == [[NEWER.hex()]] * 100
    assert len(looks) <= 100 // (lane.looks_to_run // 500) + 1
    desk.end(*[ACK] * lane.alive)
    assert book.report(RUN, 0.0).runs == [], "at the end it is looked up at once"


def failed(function: Callable[[Any], Any], argument: Any = None) -> tuple[BaseException, Failure]:
    """Return what a function raises, and its record."""
    try:
        function(argument)
    except Exception as error:  # noqa: BLE001 - it is what the test is about
        return error, Failure.from_exception(error, skip=1, when=1.7e9, seconds=0.5)
    raise AssertionError("nothing was raised")


def test_a_variable_that_was_set_after_connecting_is_explained() -> None:
    """ "KeyError: 'MYVAR'. Fix the function" said of a notebook that had just set it."""
    _, record = failed(lambda _: os.environ["DQLAB_NOT_SET"])

    assert record.message.startswith("'DQLAB_NOT_SET': ")
    assert "consumers have the environment variables that were set when they were started, as by dq.connect" in (
        record.message
    )
    assert failed(lambda _: {}["DQLAB_NOT_SET"])[1].message == "'DQLAB_NOT_SET'", "of any other mapping"


def test_a_relative_path_is_explained_with_the_folder_of_the_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `os.chdir` in the notebook the file was there, and the consumers did not find it."""
    monkeypatch.chdir(tmp_path)

    _, record = failed(lambda _: Path("here.txt").read_bytes())

    assert record.message.startswith("[Errno 2] No such file or directory: 'here.txt'; ")
    assert f"from the folder in which the consumer was started, {tmp_path}; os.chdir" in record.message
    absolute = str(tmp_path / "gone.txt")
    assert (
        failed(lambda _: Path(absolute).read_bytes())[1].message == f"[Errno 2] No such file or directory: {absolute!r}"
    )
