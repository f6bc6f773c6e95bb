"""Dead letters are found by their failure class, exactly, and a page costs what it shows."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dqlab.cluster.shard.actor import QueueActor
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.failures.classes import NO_ANSWER, fingerprint_of, keep
from dqlab.failures.failure import Failure
from dqlab.frame import NO_ID, Frame, Kind, Outcome
from dqlab.rules.book import Book
from dqlab.rules.retry import Retry
from dqlab.rules.shard import Shard
from dqlab.rules.states import State
from dqlab.rules.trouble import Trouble
from tests.rules.invariants import check_shard

RUN = b"run-of-the-tests"
MANY = 200_000
CLASSES = "11111111", "22222222"
RARE = 1000
"""Every so many of them is of the second class."""


def record(fingerprint: str, key: str = "a.pdf", message: str = "bad") -> bytes:
    failure = Failure("ValueError", message, "Traceback …", "parse:3", fingerprint, key, "v1", "c", "w", 1.7e9, 0.1)
    return failure.to_bytes()


def ids(shard: Shard, run: bytes, *classes: str, after: int = -1, limit: int = 1000) -> list[int]:
    return [letter.id for letter in shard.dead_letters(run, after=after, limit=limit, classes=classes)]


def test_dead_letters_are_found_by_their_class(make_desk: Callable[..., Any]) -> None:
    """A person retries one cause, not all of them."""
    desk = make_desk(retry=Retry(0))
    desk.put(6)
    marks = ["11111111", "22222222", "11111111", "33333333", "22222222"]
    desk.settle(desk.lease(5), *[Outcome.FAIL] * 5, payloads=[record(mark) for mark in marks])
    lane = desk.shard.lanes[b"run-of-the-tests"]

    assert ids(desk.shard, lane.run, "11111111") == [0, 2]
    assert ids(desk.shard, lane.run, "33333333", "22222222") == [1, 3, 4]
    assert ids(desk.shard, lane.run, "33333333", "22222222", after=1, limit=1) == [3]
    assert ids(desk.shard, lane.run, "none such") == []
    assert ids(desk.shard, lane.run) == [0, 1, 2, 3, 4]
    assert lane.dead_count(["11111111", "11111111", "none such"]) == 2
    assert lane.dead_count() == 5


def test_retried_and_purged_letters_leave_their_class(make_desk: Callable[..., Any]) -> None:
    """Counts of a class are what is dead now, not what ever was."""
    desk = make_desk(retry=Retry(0))
    desk.put(4)
    desk.settle(desk.lease(4), *[Outcome.FAIL] * 4, payloads=[record("11111111")] * 4)
    lane = desk.shard.lanes[b"run-of-the-tests"]

    desk.shard.retry(lane.run, [(1, 3)])
    check_shard(desk.shard)
    assert ids(desk.shard, lane.run, "11111111") == [0, 3]

    desk.settle(desk.lease(2), Outcome.FAIL, Outcome.ACK, payloads=[record("22222222"), b""])
    assert (ids(desk.shard, lane.run, "11111111"), ids(desk.shard, lane.run, "22222222")) == ([0, 3], [1])

    desk.shard.purge(lane.run, State.DEAD)
    check_shard(desk.shard)
    assert (lane.dead_count(["11111111"]), lane.dead_count(["22222222"]), lane.dead_count()) == (0, 0, 0)


def test_letters_without_a_record_are_in_a_class_of_their_own(make_desk: Callable[..., Any]) -> None:
    """A document whose process died never raised."""
    desk = make_desk(retry=Retry(0))
    desk.put(3)
    desk.settle(desk.lease(3), *[Outcome.REJECT] * 3, payloads=[b"", b"{junk", record("11111111")])
    lane = desk.shard.lanes[b"run-of-the-tests"]

    assert ids(desk.shard, lane.run) == [0, 1, 2]
    assert ids(desk.shard, lane.run, NO_ANSWER) == [0, 1]
    assert ids(desk.shard, lane.run, "11111111") == [2]


@pytest.mark.parametrize("key", ['"fingerprint":"00000000"', "a.pdf", "文書", '\\"fingerprint":"'])
def test_fingerprint_is_read_without_opening_a_record(key: str) -> None:
    """Names of documents are anything; none of them passes for the fingerprint."""
    first, second = keep(record("abcdef01", key, key)), keep(record("abcdef01", key, "other words"))

    assert fingerprint_of(first) == fingerprint_of(second) == "abcdef01"
    assert json.loads(bytes(second))["message"] == "other words"


def full(shard: Shard, run: bytes) -> None:
    """Fill a lane with dead letters, by the lane's own rules."""
    lane = shard.open_lane(run, maxsize=None, max_bytes=None)
    common, rare = ([keep(record(mark, f"{n}.pdf", "bad " * 20)) for n in range(100)] for mark in CLASSES)
    for at in range(0, MANY, 1000):
        given = {"kind": Kind.ELEMENT, "run": run, "function": NO_ID, "producer": NO_ID, "sequence": 0}
        blob = Frame.encode([b"x"] * 1000, ordinal=at, **given)
        assert shard.put(Frame.decode(blob)).first == at
        for index in range(1000):
            id = at + index
            stored = (common if id % RARE else rare)[id % 100]
            lane.trouble[id] = Trouble(1, 1, "not retried, because retries=0", stored)
        lane.move(lane.batches[at], 0, 1000, State.DEAD)


@pytest.mark.long
def test_page_of_fifty_takes_no_longer_with_two_hundred_thousand_dead(tmp_path: Path) -> None:
    """People page through failures just when there are very many of them."""
    run = b"run-of-the-tests"
    settings = {"visibility_timeout": 60.0, "max_deliveries": 5, "maxsize": None, "max_bytes": None}
    kept = {"retry": {"retries": 0, "backoff": 1.0}, "results_maxsize": 1 << 20}
    store = {"directory": str(tmp_path), "sync": "os", "reserve_bytes": 0}

    async def page(actor: QueueActor, after: int, *classes: str) -> tuple[list[int], float]:
        asked = {"run": run, "after": after, "limit": 50, "classes": list(classes), "bare": True}
        began = time.perf_counter()
        meta, records = unpack(await actor.dead(pack(asked)))
        took = time.perf_counter() - began
        assert len(records) == len(meta["rows"])
        return [row[0] for row in meta["rows"]], took

    async def look() -> None:
        actor = QueueActor("q", 0, 1, {**settings, **kept, "store": store})
        await actor._open()
        full(actor.shard, run)
        for classes, expected in (((), range(MANY)), (("22222222",), range(0, MANY, RARE))):
            counts, _ = unpack(await actor.dead_counts(pack({"run": None, "classes": list(classes)})))
            assert counts["counts"] == [[run, len(expected)]]
            for start in (0, len(expected) // 2, len(expected) - 50):
                after = expected[start] - 1
                times = []
                for _ in range(3):  # whatever else this machine does now
                    found, took = await page(actor, after, *classes)
                    times.append(took)
                assert found == list(expected[start : start + 50])
                assert min(times) < 0.05

    asyncio.run(look())


def given_up(desk: Any) -> None:
    lease = desk.lease(2)
    desk.shard.let_go(lease.run, [(0, 2)], "given up after 35 s on c2")


def lost_after_early_ack(desk: Any) -> None:
    for _ in range(2):
        assert desk.shard.begin(desk.lease(1).id)
        desk.shard.release("c")


def deadly(desk: Any) -> None:
    for _ in range(2):
        desk.lease_isolated()
        desk.shard.release("c")


def put_off_after_early_ack(desk: Any) -> None:
    for _ in range(2):
        lease = desk.lease(1)
        assert desk.shard.begin(lease.id)
        desk.settle(lease, Outcome.NACK, payloads=[b"5"])


@pytest.mark.parametrize("end", [given_up, lost_after_early_ack, deadly, put_off_after_early_ack])
def test_a_document_that_is_dead_without_an_exception_counts_as_a_failed_delivery(
    make_desk: Callable[..., Any], end: Callable[[Any], None]
) -> None:
    """Dead rose, and the views of failures said "none in the last minute"."""
    desk = make_desk(max_deliveries=1)
    desk.put(2)
    book = Book(desk.shard.lanes[RUN])

    end(desk)

    report = book.report(RUN, 0.0)
    assert report.counts[State.DEAD] == report.failed == 2
    assert [(each.fingerprint, each.dead, each.failed) for each in report.classes] == [(NO_ANSWER, 2, 2)]


def test_a_document_that_raised_and_is_given_up_fails_twice_in_its_class(make_desk: Callable[..., Any]) -> None:
    """Its dead letter is of the class of its exception, so that its last delivery is, too."""
    desk = make_desk(retry=Retry(3, backoff=0.0))
    desk.put(1)
    book = Book(desk.shard.lanes[RUN])
    failure = record("11111111")
    desk.settle(desk.lease(1), Outcome.FAIL, payloads=[failure])
    book.failed(failure, dead=False, ordinal=0, id=0)

    desk.lease(1)
    desk.shard.let_go(RUN, [(0, 1)], "given up")

    report = book.report(RUN, 0.0)
    assert [(each.fingerprint, each.dead, each.failed) for each in report.classes] == [("11111111", 1, 2)]
    assert report.failed == 2
