"""Runs that ended long ago cost memory and nothing else: no dispatch, report or look goes through them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from dqlab.cluster.statistics.collector import Collector
from dqlab.cluster.statistics.known import RunTrack
from dqlab.cluster.statistics.snapshots import JoinedQueue
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.failures.classes import FailureClass
from dqlab.frame import NO_ID, Frame, Kind, Piece, Settlement
from dqlab.rules.book import Book
from dqlab.rules.lane import Lane
from dqlab.rules.reports import LaneReport
from dqlab.rules.states import Verdict
from dqlab.stats.snapshot import MAX_RUNS
from dqlab.testing import FakeClock
from tests.cluster.desk import DeskActor
from tests.cluster.reports import lane_report, shard_report

pytestmark = pytest.mark.lowest

MANY = 300
OPTIONS = {
    "visibility_timeout": 60.0,
    "max_deliveries": 5,
    "retry": {"retries": 3, "backoff": 1.0, "max_backoff": 300.0, "jitter": True},
    "maxsize": 1000,
    "max_bytes": 1 << 30,
    "results_maxsize": 1 << 30,
}


def run_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


class Quiet:
    """Where an actor's reports go: nowhere; a test asks for them."""

    def touch(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Stage:
    """A queue actor without a worker."""

    def __init__(self) -> None:
        self.actor = DeskActor("q", 0, 1, OPTIONS)

    async def begin(self) -> None:
        await self.actor._open()
        self.actor._reporter = Quiet()  # type: ignore[assignment]
        self.actor._begun = True

    async def order(self, op: str, run: bytes | None = None, **meta: Any) -> None:
        await self.actor.control(pack({"op": op, "run": run} | meta))

    async def submit(self, number: int) -> None:
        """Open a run of two documents, and seal it."""
        run = run_id(number)
        code = {"name": "f", "hash": "v", "short": "v", "source": "", "cell": None, "blob": b""}
        await self.order("open", open={"run": run, "record": {"name": f"r{number}", "codes": [code]}})
        await self.put(run, 0)
        await self.order("seal", seal={"run": run, "here": 2, "total": 2})

    async def put(self, run: bytes, sequence: int) -> None:
        frame = Frame.encode([b"a", b"b"], kind=Kind.VALUE, run=run, producer=run, sequence=sequence, ordinal=0)
        answer, _ = unpack(await self.actor.put(pack({"frames": 1, "wait": 0.0}, frame)))
        assert answer["verdict"] == Verdict.ACCEPTED.value

    async def work(self) -> bool:
        """Lease once and ack all of it; return whether there was something."""
        asked = asyncio.create_task(self.actor.lease(pack({"consumer": "c#0", "session": "s", "credit": [1, 100, 1]})))
        await asyncio.sleep(0)
        if not asked.done():
            self.actor._dispatch()
        await asyncio.wait([asked], timeout=0.05)
        if not asked.done():
            asked.cancel()
            return False
        lease, frames = unpack(asked.result())
        frame = Frame.decode(bytes(frames[0]))
        piece = Piece(lease["lease"]["firsts"][0], frame.ordinal, frame.count)
        blob = Settlement.encode(
            [piece], bytes(frame.count), [b"r"] * frame.count, run=frame.run, epoch=1, lease=lease["lease"]["id"]
        )
        await self.actor.settle(pack({"consumer": "c#0"}, blob))
        return True


def on_stage(play: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def perform() -> None:
        stage = Stage()
        await stage.begin()
        await play(stage)
        await stage.actor.hand_over(pack({}))

    asyncio.run(perform())


class _Watched(Lane):
    """A lane that must not be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"a lane that has ended was asked for {name}")


class _Read(Book):
    """A book that must not be opened."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the book of a run that has ended was asked for {name}")


def test_nothing_that_a_shard_does_for_one_run_touches_those_that_have_ended() -> None:
    """10,000 runs that are kept for their results once took nine tenths of a shard's time."""

    async def play(stage: Stage) -> None:
        for number in range(1, MANY):
            await stage.submit(number)
            assert await stage.work()
        actor = stage.actor
        assert all(actor.books[run_id(number)].ended is not None for number in range(1, MANY))
        actor.news()
        actor.shard.tick()
        watched: list[tuple[Any, type]] = [
            *((lane, Lane) for run, lane in actor.shard.lanes.items() if run != NO_ID),
            *((book, Book) for run, book in actor.books.items() if run != NO_ID),
        ]
        for each, kind in watched:
            each.__class__ = _Watched if kind is Lane else _Read
        try:
            await stage.put(NO_ID, 0)
            await stage.submit(MANY)
            assert await stage.work()
            assert await stage.work()
            assert not await stage.work()
            actor.shard.next_deadline()
            actor.shard.lag()
            assert unpack(await actor.idle(pack({"wait": 0.0, "stuck": ""})))[0]["alive"] == 0
            assert unpack(await actor.runs(pack({"name": f"r{MANY}"})))[0]["runs"] == [[run_id(MANY), f"r{MANY}"]]
            report = actor.news()
        finally:
            for each, kind in watched:
                each.__class__ = kind
        assert {lane.run for lane in report.lanes} == {NO_ID.hex(), run_id(MANY).hex()}

    on_stage(play)


def test_a_run_is_reported_when_something_of_it_changed_and_then_no_more() -> None:
    """The scheduler knows it already: 3.5 MB four times a second said nothing new."""

    async def play(stage: Stage) -> None:
        actor = stage.actor
        for number in (1, 2, 3):
            await stage.submit(number)
            while await stage.work():
                pass

        def reported() -> dict[str, LaneReport]:
            return {lane.run: lane for lane in actor.news().lanes}

        first = actor.news()
        assert first.whole
        assert len(first.lanes) == 4
        assert not reported()
        await stage.order("why", run_id(2), why="somebody said so")
        assert reported()[run_id(2).hex()].why == "somebody said so"
        await stage.order("pause", run_id(1))
        assert reported()[run_id(1).hex()].paused
        await stage.order("drop", run_id(3))
        last = actor.news()
        assert last.dropped == [run_id(3).hex()]
        assert not last.lanes
        await actor.resend(pack({}))
        whole = actor.news()
        assert whole.whole
        assert {lane.run for lane in whole.lanes} == {NO_ID.hex(), run_id(1).hex(), run_id(2).hex()}

    on_stage(play)


# --- the scheduler --------------------------------------------------------------------------


class Watched(LaneReport):
    """A lane's report that counts how often it is looked into."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name != "looks":
            self.looks += 1
        return found


def ended(number: int, **more: Any) -> Watched:
    counts = [0, 0, 0, 5, 0, 0, 0]
    more = {"counts": counts, "sealed": True, "total": 5, "started": float(number), "ended": float(number) + 1} | more
    made = lane_report(f"r{number}", **more)
    return Watched(**{each.name: getattr(made, each.name) for each in fields(made)})


def test_neither_reports_nor_looks_touch_what_ended_long_ago_on_the_scheduler() -> None:
    """The scheduler is one thread for everybody; at 10,000 runs it spent half of its time on each shard's reports."""
    clock = FakeClock()
    collector = Collector(clock=clock)
    old = [ended(number) for number in range(MANY)]
    working = lane_report("now", counts=[7, 0, 3, 1, 0, 0, 0], started=1e6)
    collector.take(shard_report("q", *old, working, number=1, whole=True))
    collector.snapshot()
    for each in old:
        each.looks = 0

    for number in range(2, 20):
        clock.advance(1.0)
        lane = replace(working, counts=[7, 0, 3, number, 0, 0, 0])
        collector.take(shard_report("q", lane, number=number, whole=False, dropped=[]))
        snapshot = collector.snapshot()
        assert not collector.known.has_run("nobody")
        collector.backlog("q", 1.0)

    assert sum(each.looks for each in old[:-MAX_RUNS]) == 0
    assert snapshot.totals.counts.acked == 5 * MANY + 19
    assert snapshot.runs_total == MANY + 1
    assert [run.name for run in snapshot.runs][:3] == ["now", f"r{MANY - 1}", f"r{MANY - 2}"]
    assert len(collector.known.of("q").runs) <= MAX_RUNS + 1


def test_of_the_runs_that_are_listed_those_are_worked_out_again_that_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty ended runs beside one that works took most of each report's time, and of each look."""
    fed, shown = [], []
    feed, show = RunTrack.feed, JoinedQueue._run
    here = threading.get_ident()  # another test's cluster may report to its scheduler, in a thread of this process

    def note_feed(track: RunTrack, now: float, wall: float, counts: Any, *more: Any, **stands: Any) -> None:
        if threading.get_ident() == here:
            fed.append(counts.settled)
        feed(track, now, wall, counts, *more, **stands)

    def note_show(queue: JoinedQueue, run: str, *more: Any) -> Any:
        if threading.get_ident() == here:
            shown.append(run)
        return show(queue, run, *more)

    monkeypatch.setattr(RunTrack, "feed", note_feed)
    monkeypatch.setattr(JoinedQueue, "_run", note_show)
    clock = FakeClock()
    collector = Collector(clock=clock)
    old = [ended(number) for number in range(MANY)]
    working = lane_report("now", counts=[7, 0, 3, 1, 0, 0, 0], started=1e6)
    collector.take(shard_report("q", *old, working, number=1, whole=True))
    first = collector.snapshot()
    assert len(fed) == len(shown) == MAX_RUNS + 1
    fed.clear()
    shown.clear()

    for number in range(2, 20):
        clock.advance(1.0)
        collector.take(
            shard_report(
                "q", replace(working, counts=[7, 0, 3, number, 0, 0, 0]), number=number, whole=False, dropped=[]
            )
        )
        snapshot = collector.snapshot()

    assert len(fed) == 18
    assert shown == [working.run] * 18
    assert [replace(run, at=0.0, rate=None) for run in snapshot.runs[1:]] == [
        replace(run, at=0.0, rate=None) for run in first.runs[1:]
    ]
    assert {run.at for run in snapshot.runs} == {clock.wall()}
    again = ended(MANY - 1, why="somebody said so")
    collector.take(shard_report("q", again, number=20, whole=False, dropped=[]))
    assert collector.snapshot().runs[1].why == "somebody said so"
    assert shown[-1] == again.run


def test_a_run_that_ended_long_ago_is_shown_when_it_is_asked_for() -> None:
    """Views list twenty runs; a run that is named is shown too."""
    collector = Collector(clock=FakeClock())
    collector.take(shard_report("q", *(ended(number) for number in range(MANY)), number=1, whole=True))

    snapshot = collector.snapshot("q", "r0")

    assert "r0" in [run.name for run in snapshot.runs]
    assert collector.history(60.0, "q", "r0").run == "r0"
    assert "r0" in [run.name for run in collector.snapshot("", "r0").runs]


def test_sums_stay_right_while_runs_end_go_on_and_are_dropped() -> None:
    """What is at rest is only added and taken away; a slip would stay for good."""
    random, clock = Random(1), FakeClock()
    collector, known = Collector(clock=clock), dict[tuple[int, str], LaneReport]()
    numbers = [0, 0]
    for _ in range(400):
        shard, name = random.randrange(2), f"r{random.randrange(12)}"
        counts = [random.choice([0, 0, 3]), 0, 0, random.randrange(9), random.randrange(3), 0, random.choice([0, 0, 1])]
        classes = [entry._replace(dead=counts[4], failed=counts[4]) for entry in lane_classes(random.randrange(3))]
        lane = lane_report(name, counts=counts, classes=classes, ended=None if counts[0] else 2.0)
        gone = [run for index, run in known if index == shard and random.random() < 0.05]
        gone = [run for run in gone if run != lane.run]
        for run in gone:
            del known[shard, run]
        known[shard, lane.run] = lane
        numbers[shard] += 1
        collector.take(
            shard_report("q", lane, shard=shard, number=numbers[shard], whole=numbers[shard] == 1, dropped=gone)
        )
        lanes = collector.known.of("q").lanes
        assert [lanes.counts.acked, lanes.counts.dead, lanes.counts.ready] == [
            sum(each.counts[state] for each in known.values()) for state in (3, 4, 0)
        ]
        assert lanes.failed == sum(each.failed for each in known.values())
        assert lanes.total == len({run for _, run in known})
        failed: dict[str, int] = {}
        for each in known.values():
            for entry in each.classes:
                failed[entry.fingerprint] = failed.get(entry.fingerprint, 0) + entry.failed
        assert lanes.failed_by_class() == failed


def lane_classes(n: int) -> list[FailureClass]:
    from tests.cluster.reports import failure_class

    return [failure_class(f"{mark:08x}") for mark in range(n)]


@pytest.mark.parametrize("lost", [2, 1])
def test_after_a_lost_report_the_shard_is_asked_for_all_its_lanes(lost: int) -> None:
    """Reports say what changed; what one of them said would else be missing for good."""
    clock = FakeClock()
    collector = Collector(clock=clock)
    asked: list[tuple[str, int]] = []
    collector.missing = lambda queue, shard: asked.append((queue, shard))
    reports = [
        shard_report("q", lane_report("a", counts=[1, 0, 0, 0, 0, 0, 0]), number=1, whole=True),
        shard_report("q", lane_report("b", counts=[2, 0, 0, 0, 0, 0, 0]), number=2, whole=False, dropped=[]),
        shard_report("q", lane_report("c", counts=[4, 0, 0, 0, 0, 0, 0]), number=3, whole=False, dropped=[]),
    ]
    del reports[lost - 1]
    for report in reports:
        collector.take(report)

    assert asked == [("q", 0)]
    clock.advance(2.0)
    collector.take(shard_report("q", number=4, whole=False, dropped=[]))
    assert len(asked) == 2, "it did not answer, and is asked again"
    everything = [lane_report(name, counts=[n, 0, 0, 0, 0, 0, 0]) for name, n in (("a", 1), ("b", 2), ("c", 4))]
    collector.take(shard_report("q", *everything, number=5, whole=True))
    assert collector.snapshot().totals.counts.ready == 7
    clock.advance(2.0)
    collector.take(shard_report("q", number=6, whole=False, dropped=[]))
    assert len(asked) == 2
