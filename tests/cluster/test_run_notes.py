"""What is known of runs outside of their shards, and what a shard that is recreated is told of it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.cluster.scheduler.run_notes import RunNotes
from dqlab.cluster.scheduler.state import Entry, OpenQueue
from dqlab.cluster.statistics.collector import Collector
from dqlab.cluster.statistics.known import KnownLanes
from dqlab.cluster.transport import orders
from dqlab.frame import NO_ID
from dqlab.rules.book import CANCELLED
from dqlab.rules.ids import first_id
from dqlab.rules.ledger import Ledger
from dqlab.rules.options import QueueOptions
from dqlab.rules.past import recall
from dqlab.rules.reports import LaneReport
from dqlab.rules.shard import Shard
from dqlab.testing import FakeClock
from tests.cluster.reports import shard_report

RUN = b"run-of-the-tests"
STRIDE = 1 << 24


def lane(run: bytes, *counts: int, **more: Any) -> LaneReport:
    return LaneReport(
        **{"run": run.hex(), "name": "n", "counts": [*counts, *[0] * (7 - len(counts))], "started": 7.0, **more}
    )


class Beside:
    """A registry with one queue of two shards; the second one is lost."""

    def __init__(self) -> None:
        self.queues = {"q": OpenQueue(2)}
        self.collector = Collector(clock=FakeClock())
        self.run_notes = RunNotes(self)  # type: ignore[arg-type]
        self.entry = Entry("queue/q/1", "q", "", "", 2, "", b"", ("q", 1, 1, {}), last="tcp://w")

    def report(self, *lanes: LaneReport, next_id: int = 0, state: str = "running", epoch: int = 1) -> None:
        report = shard_report("q", *lanes, shard=1, epoch=epoch, next_id=first_id(1, next_id), state=state)
        self.collector.known.reports["q"] = {1: report}
        self.collector.known.lanes_by_queue["q"] = known = KnownLanes()
        known.take(1, report)

    def note(self, run: bytes = RUN, **facts: Any) -> None:
        asyncio.run(self.run_notes.note("q", run, facts))

    def told(self, run: bytes = RUN) -> Any:
        return next(lane for lane in self.run_notes.past(self.entry)["lanes"] if lane["run"] == run)


@pytest.fixture
def beside() -> Beside:
    return Beside()


def opened(**more: Any) -> dict[str, Any]:
    return {"run": RUN, "record": {"name": "n", "codes": [{"hash": "first"}], "client": "a"}, **more}


def test_a_run_that_no_report_has_named_yet_is_there_all_the_same(beside: Beside) -> None:
    beside.note(open=opened())

    assert beside.told()["lost"] == 0
    assert beside.told()["open"]["record"]["name"] == "n"


def test_what_was_sealed_since_the_last_report_is_sealed(beside: Beside) -> None:
    beside.note(open=opened())
    beside.report(lane(RUN, 3, 0, 1))
    seal = {"here": [5, 9], "total": 14, "incomplete": None}
    beside.note(seal=seal, submitted={"submitted": 14, "digest": "d"})

    assert beside.told()["seal"] == {"here": 9, "total": 14, "incomplete": None}
    assert beside.told()["submitted"] == {"submitted": 14, "digest": "d"}


def test_a_run_that_shards_cut_off_themselves_is_sealed_as_they_reported(beside: Beside) -> None:
    beside.note(open=opened())
    beside.report(lane(RUN, 3, 0, 1, sealed=True, incomplete="cut off"))

    assert beside.told()["seal"] == {"here": 4, "total": None, "incomplete": "cut off"}


def test_a_run_that_goes_on_since_the_last_report_is_open(beside: Beside) -> None:
    beside.note(open=opened())
    beside.report(lane(RUN, 3, sealed=True, incomplete="cut off"))
    beside.note(seal=None, client="b")

    assert "seal" not in beside.told()
    assert beside.told()["open"]["record"]["client"] == "b"


def test_a_run_that_another_producer_goes_on_with_is_not_sealed_by_the_one_that_was_cut_off(beside: Beside) -> None:
    """It may note its end late, as when its process was stopped; the shard that is recreated keeps refusing it too."""
    beside.note(open=opened())
    beside.note(seal={"here": [1, 2], "total": 3, "incomplete": None}, submitted={"submitted": 3, "digest": ""}, by=RUN)
    beside.note(seal=None, client="b", producer=b"goes on")
    beside.note(seal={"here": [1, 2], "total": 3, "incomplete": None}, submitted={"submitted": 9, "digest": ""}, by=RUN)
    assert "seal" not in beside.told()
    assert beside.told()["submitted"]["submitted"] == 3
    assert beside.told()["producer"] == b"goes on"

    seal = {"here": [5, 9], "total": 14, "incomplete": None}
    beside.note(seal=seal, submitted={"submitted": 14, "digest": ""}, by=b"goes on")
    assert beside.told()["seal"]["total"] == 14


def test_a_run_that_was_paused_since_the_last_report_stays_paused(beside: Beside) -> None:
    """A user pauses a run that does damage, its worker dies a moment later, and it went on."""
    beside.note(open=opened())
    beside.note(paused=True)
    assert beside.told()["paused"]
    beside.report(lane(RUN, 3))
    assert beside.told()["paused"]

    beside.report(lane(RUN, 3, paused=True))
    beside.note(paused=False)
    assert not beside.told()["paused"]


def test_a_run_that_paused_itself_after_it_was_resumed_is_paused(beside: Beside) -> None:
    beside.note(open=opened())
    beside.note(paused=False)
    beside.report(lane(RUN, 3, paused=True, halted="the first 100 failed"))

    assert beside.told()["paused"]


def test_what_was_ordered_of_a_queue_since_the_last_report_holds(beside: Beside) -> None:
    def stands(reported: str) -> tuple[bool, bool]:
        beside.report(state=reported)
        past = beside.run_notes.past(beside.entry)
        return past["paused"], past["draining"]

    assert [stands(reported) for reported in ("running", "paused", "draining")] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    beside.note(NO_ID, queue_draining=True)
    assert stands("running") == (False, True)
    beside.note(NO_ID, queue_paused=True)
    assert stands("draining") == (True, True)
    beside.note(NO_ID, queue_paused=False, queue_draining=False)
    assert stands("draining") == (False, False)


def test_newer_code_of_a_run_is_remembered(beside: Beside) -> None:
    beside.note(open=opened())
    for _ in range(2):  # the same once more is no other
        beside.note(code={"hash": "second"}, function=b"f2", blob=b"blob")

    assert [code["hash"] for code in beside.told()["open"]["record"]["codes"]] == ["first", "second"]
    assert beside.told()["functions"] == {b"f2": b"blob"}


def test_a_run_that_was_dropped_does_not_come_back(beside: Beside) -> None:
    beside.note(open=opened())
    beside.report(lane(NO_ID, 1), lane(RUN, 3))
    asyncio.run(beside.run_notes.note("q", RUN, None))

    assert [told["run"] for told in beside.run_notes.past(beside.entry)["lanes"]] == [NO_ID]


def test_what_is_noted_of_a_run_after_it_was_dropped_is_not_kept(beside: Beside) -> None:
    """Another client goes on submitting it for a moment; no client would ever drop these notes."""
    beside.note(open=opened())
    asyncio.run(beside.run_notes.note("q", RUN, None))
    beside.note(submitted={"submitted": 14, "digest": "d"})

    assert beside.run_notes._runs["q"] == {}


def test_a_run_that_goes_on_in_a_queue_that_was_opened_again_is_known_there(beside: Beside) -> None:
    """What was noted of it went with the queue that was closed."""
    beside.note(open=opened())
    beside.run_notes.forget("q")
    beside.note(open_where_unknown=opened(), seal={"here": [1, 2], "total": 3, "incomplete": None})

    told = beside.told()
    assert told["open"]["record"]["name"] == "n"
    assert told["seal"] == {"here": 2, "total": 3, "incomplete": None}


def test_what_a_run_was_opened_with_does_not_hide_what_was_noted_since(beside: Beside) -> None:
    beside.note(open=opened())
    beside.note(code={"hash": "second"}, function=b"second", blob=b"...")
    beside.note(client="b")
    beside.note(open_where_unknown=opened())

    record = beside.told()["open"]["record"]
    assert [version["hash"] for version in record["codes"]] == ["first", "second"]
    assert record["client"] == "b"


def test_nothing_is_kept_of_a_queue_that_is_closed(beside: Beside) -> None:
    beside.note(open=opened())
    beside.run_notes.forget("q")
    assert [told["run"] for told in beside.run_notes.past(beside.entry)["lanes"]] == [NO_ID]
    beside.queues.clear()
    beside.note(open=opened())

    assert [told["run"] for told in beside.run_notes.past(beside.entry)["lanes"]] == [NO_ID]


def test_workers_are_named_as_long_as_something_lost_with_them_is_missing(beside: Beside) -> None:
    beside.note(open=opened())
    beside.report(lane(RUN, 1, 0, 0, 0, 0, 0, 2, died=["tcp://before"]))
    assert beside.told()["died"] == ["tcp://before", "tcp://w"]
    beside.report(lane(RUN, 3, died=["tcp://before"]))
    assert beside.told()["died"] == ["tcp://w"]


def test_ids_of_each_epoch_begin_above_those_of_the_one_before(beside: Beside) -> None:
    """Also of one that died before its first report."""
    begin = [beside.run_notes.past(beside.entry)["first_sequence"] for _ in range(2)]
    beside.report(next_id=5 * STRIDE + 7)
    begin += [beside.run_notes.past(beside.entry)["first_sequence"] for _ in range(2)]

    assert begin == [STRIDE, 2 * STRIDE, 6 * STRIDE, 7 * STRIDE]


def test_pauses_are_told(beside: Beside) -> None:
    beside.note(open=opened())
    beside.report(lane(RUN, 1, paused=True), state="draining")
    past = beside.run_notes.past(beside.entry)

    assert (past["paused"], past["draining"]) == (False, True)
    assert beside.told()["paused"]


def test_a_shard_that_died_before_its_first_report_is_told_with_which_worker_single_calls_went(beside: Beside) -> None:
    assert beside.told(NO_ID) == {
        "run": NO_ID,
        "lost": 0,
        "cancelled": 0,
        "units": (0, 0),
        "died": ["tcp://w"],
    }


def test_a_run_that_was_cancelled_stays_cancelled_whatever_was_reported_last(beside: Beside) -> None:
    """Reports lag: the last one may know nothing of it."""
    beside.note(open=opened())
    beside.report(lane(RUN, 30, 2, 1, 50, units=[60, 4, 2, 100, 0, 0, 0]))
    beside.note(cancelled=True)
    told = beside.told()

    assert told["open"]["record"]["cancelled"]
    assert (told["lost"], told["cancelled"], told["units"]) == (50, 33, (100, 66))
    assert told["seal"] == {"here": 83, "total": None, "incomplete": CANCELLED}


def test_how_far_a_run_was_submitted_is_known_before_it_is_sealed(beside: Beside) -> None:
    """Its client may be gone as well, and another one map other documents under its name."""
    beside.note(open=opened())
    beside.note(submitted={"submitted": 500, "digest": "d"})

    assert beside.told()["submitted"] == {"submitted": 500, "digest": "d"}


def test_retries_of_plain_puts_are_remembered(beside: Beside) -> None:
    beside.note(NO_ID, retries=7)

    assert beside.told(NO_ID)["retries"] == 7


def test_a_shard_that_is_made_again_is_told_which_code_the_rest_of_a_run_has(beside: Beside) -> None:
    """Its submitter still sends the code that the run began with."""
    first, second, third = ({"hash": name, "blob": name.encode()} for name in ("first", "second", "third"))
    beside.note(open=opened(record={"name": "n", "codes": [first], "client": "a"}))
    beside.note(function=b"second", blob=b"2", code=second, adopted=True)
    beside.note(function=b"third", blob=b"3", code=third)

    told = beside.told()
    assert told["adopted"] == b"second"
    assert told["functions"] == {b"second": b"2", b"third": b"3"}
    assert [code["hash"] for code in told["open"]["record"]["codes"]] == ["first", "second", "third"]


def test_code_of_the_same_version_takes_the_place_of_the_newest(beside: Beside) -> None:
    """A version does not tell all values apart; those that were sent last are meant."""
    beside.note(open=opened(record={"name": "n", "codes": ({"hash": "first", "blob": b"a"},), "client": "a"}))
    beside.note(function=b"b", blob=b"2", code={"hash": "first", "blob": b"b"})

    assert beside.told()["open"]["record"]["codes"] == [{"hash": "first", "blob": b"b"}]
    assert beside.told()["functions"] == {b"b": b"2"}


NEWER = orders.Code(b"g" * 16, b"blob", {"hash": "second", "name": "fn", "short": "g", "blob": b"g" * 16, "cell": None})
ORDERS = {
    "pause": orders.Pause(RUN),
    "resume": orders.Resume(RUN),
    "pause the queue": orders.Pause(None),
    "resume the queue": orders.Resume(None),
    "drain": orders.Drain(None),
    "adopt": orders.Adopt(RUN, NEWER),
    "retry": orders.RetryDead(RUN, [(first_id(1, STRIDE), first_id(1, STRIDE) + 1)], [(0, 1)], b"f" * 16, b"blob"),
}


class Pair:
    """A shard in memory, what it has reported, and what the scheduler has noted of the orders to it."""

    def __init__(self) -> None:
        self.beside = Beside()
        self.ledger = self._made(1)
        self.give(orders.Open(RUN, {"name": "n", "codes": [{"hash": "first", "blob": b"f" * 16}], "stop_if": 5}))

    @staticmethod
    def _made(epoch: int) -> Ledger:
        clock = FakeClock()
        return Ledger(Shard("q", 1, epoch=epoch, options=QueueOptions(), clock=clock, random=random.Random(1)))

    def give(self, order: orders.Order) -> None:
        note = order.note()
        if note is not None:
            asyncio.run(self.beside.run_notes.note("q", note.run, None if note.facts is None else dict(note.facts)))
        for message in order.messages(1):
            fields = dict(message)
            self.ledger.obey(fields.pop("op"), fields.pop("run", None), fields)

    def report(self) -> None:
        shard = self.ledger.shard
        state = "draining" if shard.draining else "paused" if shard.paused else "running"
        self.beside.report(*(book.report(run) for run, book in self.ledger.books.items()), state=state)

    def halt(self) -> None:
        record = self.ledger.books[RUN].record
        if record is not None and record.stop_if is not None:  # else it was judged
            self.ledger.obey("halt", RUN, {"halted": "all of its first 5 documents failed"})
            self.report()

    def recreated(self) -> Ledger:
        again = self._made(2)
        recall(again, self.beside.run_notes.past(self.beside.entry))
        again.shard.tick()  # a queue that is drained pauses
        return again


def standing(ledger: Ledger) -> tuple[bool, bool, bool, str]:
    book = ledger.books[RUN]
    assert book.record is not None
    return ledger.shard.paused, ledger.shard.draining, book.lane.paused, book.record.halted


@given(st.lists(st.sampled_from([*ORDERS, "halt", "report"]), max_size=8))
def test_a_recreated_shard_is_paused_and_drains_exactly_where_the_lost_one_did(steps: list[str]) -> None:
    """Whatever was ordered and reported, in any order, and also what was ordered since the last report."""
    pair = Pair()
    for step in steps:
        if step in ORDERS:
            pair.give(ORDERS[step])
        else:
            getattr(pair, step)()

    assert standing(pair.recreated()) == standing(pair.ledger)
