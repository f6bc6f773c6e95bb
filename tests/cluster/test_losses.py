"""What is known of runs outside of their shards, and what a shard that is made anew is told of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.cluster.collector import Collector
from dqlab.cluster.losses import Losses
from dqlab.cluster.supervisor import Entry
from dqlab.frame import NO_ID
from dqlab.queue.ids import first_id
from dqlab.testing import FakeClock

RUN, OTHER = b"run-of-the-tests", b"another-run-here"
STRIDE = 1 << 24


def lane(run: bytes, *counts: int, **more: Any) -> dict[str, Any]:
    known = {"name": "n", "units": None, "paused": False, "stopped": False, "sealed": False, "total": None}
    rest = {"incomplete": None, "started": 7.0, "ended": None, "died": []}
    return {"run": run.hex(), "counts": [*counts, *[0] * (7 - len(counts))], **known, **rest, **more}


class Beside:
    """A registry with one queue of two shards, of which the second is lost."""

    def __init__(self) -> None:
        self.queues = {"q": {"shards": 2}}
        self.scheduler = SimpleNamespace(clients={"a": 1, "b": 1})
        self.collector = Collector(clock=FakeClock())
        self.losses = Losses(self)  # type: ignore[arg-type]
        self.entry = Entry("queue/q/1", "q", "", "", 2, "", b"", ("q", 1, 1, {}), last="tcp://w")

    def report(self, *lanes: dict[str, Any], next_id: int = 0, state: str = "running", epoch: int = 1) -> None:
        self.collector._shards["q", 1] = {
            "epoch": epoch,
            "next_id": first_id(1, next_id),
            "state": state,
            "lanes": list(lanes),
        }

    def note(self, run: bytes = RUN, **facts: Any) -> None:
        asyncio.run(self.losses.note("q", run, facts))

    def told(self, run: bytes = RUN) -> Any:
        return next(lane for lane in self.losses.past(self.entry)["lanes"] if lane["run"] == run)


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


def test_newer_code_of_a_run_is_remembered(beside: Beside) -> None:
    beside.note(open=opened())
    beside.note(code={"hash": "second"})

    assert [code["hash"] for code in beside.told()["open"]["record"]["codes"]] == ["first", "second"]


def test_a_run_that_was_dropped_does_not_come_back(beside: Beside) -> None:
    beside.note(open=opened())
    beside.report(lane(NO_ID, 1), lane(RUN, 3))
    asyncio.run(beside.losses.note("q", RUN, None))

    assert [told["run"] for told in beside.losses.past(beside.entry)["lanes"]] == [NO_ID]


def test_nothing_is_kept_of_a_queue_that_is_closed(beside: Beside) -> None:
    beside.note(open=opened())
    beside.losses.forget("q")
    assert not beside.losses.past(beside.entry)["lanes"]
    beside.queues.clear()
    beside.note(open=opened())

    assert not beside.losses.past(beside.entry)["lanes"]


def test_workers_are_named_as_long_as_something_lost_with_them_is_missing(beside: Beside) -> None:
    beside.note(open=opened())
    beside.report(lane(RUN, 1, 0, 0, 0, 0, 0, 2, died=["tcp://before"]))
    assert beside.told()["died"] == ["tcp://before", "tcp://w"]
    beside.report(lane(RUN, 3, died=["tcp://before"]))
    assert beside.told()["died"] == ["tcp://w"]


def test_ids_of_each_epoch_begin_above_those_of_the_one_before(beside: Beside) -> None:
    """Also of one that died before its first report."""
    begin = [beside.losses.past(beside.entry)["first_sequence"] for _ in range(2)]
    beside.report(next_id=5 * STRIDE + 7)
    begin += [beside.losses.past(beside.entry)["first_sequence"] for _ in range(2)]

    assert begin == [STRIDE, 2 * STRIDE, 6 * STRIDE, 7 * STRIDE]


def test_pauses_are_told(beside: Beside) -> None:
    beside.note(open=opened())
    beside.report(lane(RUN, 1, paused=True), state="draining")
    past = beside.losses.past(beside.entry)

    assert (past["paused"], past["draining"]) == (False, True)
    assert beside.told()["paused"]


def test_one_client_at_a_time_sends_again_and_others_wait_for_it(beside: Beside) -> None:
    async def scenario() -> list[bool]:
        losses = beside.losses
        said = [await losses.claim(RUN, "a"), await losses.claim(RUN, "b"), await losses.claim(OTHER, "b")]
        said += [await losses.claimed(RUN, 0.0)]
        waiting = asyncio.create_task(losses.claimed(RUN, 60.0))
        await asyncio.sleep(0)
        await losses.disclaim(RUN)
        return [*said, await waiting, await losses.claim(RUN, "b")]

    assert asyncio.run(scenario()) == [True, False, True, True, False, True]


def test_who_is_gone_sends_nothing_any_more(beside: Beside) -> None:
    async def scenario() -> tuple[bool, bool]:
        await beside.losses.claim(RUN, "a")
        del beside.scheduler.clients["a"]
        return await beside.losses.claimed(RUN, 0.0), await beside.losses.claim(RUN, "b")

    assert asyncio.run(scenario()) == (False, True)
