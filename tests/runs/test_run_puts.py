"""Single calls and values: confirmed, in order, with their results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import dask.config
import pytest

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.errors import (
    BadOption,
    CallTimeout,
    MessageTooLarge,
    NotPicklable,
    PutTimeout,
    ResultsFull,
    RunFailed,
    WaitTimeout,
)
from dqlab.frame import NO_ID
from dqlab.rules.states import Verdict
from dqlab.runs.submit import sender

MANY = 20_000
"""More than two consumers settle at once."""


def add(a: int, b: int = 0) -> int:
    return a + b


def put_twice(pool: dq.QueuePool, value: object) -> None:
    pool.put(value)
    pool.put(value)


def divide(a: int, b: int) -> float:
    return a / b


@pytest.fixture
def unserved(lab: dq.Lab, queue_name: str) -> Iterator[dq.QueuePool]:
    """A queue without consumers."""
    pool = dq.QueuePool(lab.client, name=queue_name)
    yield pool
    pool.close()


def test_submit_answers_with_ids_durability_and_results(queue: dq.QueuePool) -> None:
    """Three questions about a put: where is it, is it safe, what came of it."""
    put = queue.submit(add, 1, b=2)

    assert len(put) == 1
    assert put.durability == "transient"
    assert put.results(timeout=20) == [3]
    assert len(put.ids) == 1
    assert "confirmed" in repr(put)


def test_batch_gives_results_in_the_order_of_its_calls(queue: dq.QueuePool) -> None:
    """In any order of completion."""
    put = queue.batch_submit([(add, 1, 2), (divide, 9, 3), (add, (4,), {"b": 5})])

    assert put.results(timeout=20) == [3, 3.0, 9]


def test_ids_ascend_in_the_order_of_the_puts(unserved: dq.QueuePool) -> None:
    """One client's messages stay in line."""
    puts = [unserved.put(n) for n in range(50)] + [unserved.put_many(range(2500))]

    ids = [id for put in puts for id in put.ids]

    assert ids == sorted(set(ids))
    assert len(ids) == 2550


def test_failed_call_raises_with_its_error(queue: dq.QueuePool) -> None:
    """The result of a call that failed is its failure."""
    queue_with_one = queue.batch_submit([(divide, 1, 1), (divide, 1, 0)])

    with pytest.raises(RunFailed, match="ZeroDivisionError") as caught:
        queue_with_one.results(timeout=40)

    assert str(caught.value).startswith(f"1 of 2 messages of a put on {queue.name} failed, the first with Zero")
    assert str(caught.value).endswith("results(errors='return'). Put again what failed.")
    one, letter = queue_with_one.results(errors="return", timeout=40)
    assert (one, letter.error) == (1.0, "ZeroDivisionError")


def test_results_of_what_no_consumer_runs_time_out(unserved: dq.QueuePool) -> None:
    """The messages stay queued."""
    put = unserved.submit(add, 1)

    with pytest.raises(WaitTimeout):
        put.results(timeout=0.2)

    assert unserved.counts()["ready"] == 1


def test_refused_batch_sends_nothing(unserved: dq.QueuePool) -> None:
    """All of a put or none of it, so that it can be mended and put again."""
    with pytest.raises(NotPicklable, match="value 1"):
        unserved.put_many([1, (n for n in range(3)), 3])
    with pytest.raises(MessageTooLarge, match="message 1"):
        unserved.put_many([1, bytes(2 << 20), 3])
    with pytest.raises(BadOption, match="call 1"):
        unserved.batch_submit([(add, 1), "add"])  # type: ignore[list-item]
    with pytest.raises(BadOption, match="call 0"):
        unserved.batch_submit([(1, add)])

    unserved.flush()
    assert sum(unserved.counts().values()) == 0


def test_large_message_is_warned_of_once(unserved: dq.QueuePool) -> None:
    """Contents do not belong in messages; said where the user's line is, and once."""
    with pytest.warns(UserWarning, match="references") as caught:
        put_twice(unserved, bytes(100_000))

    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_pool_takes_puts_again_after_one_that_was_not_confirmed(
    unserved: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue was away for too long, and came back; the number of a frame that may be there is not given again."""
    ask = Handle.ask

    async def deaf(self: Handle, shard: int, call: calls.Call[Any], *rest: Any, **options: Any) -> Any:
        answer = await ask(self, shard, call, *rest, **options)
        if isinstance(call, calls.PutCall):
            raise CallTimeout(name="queue", call=call.method, seconds=0.0)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Handle, "ask", deaf)
        patch.setattr(sender, "CONFIRM_WAIT", 0.0)
        with pytest.raises(PutTimeout):
            _ = unserved.put(1).ids

    assert len(unserved.put_many([2, 3]).ids) == 2
    unserved.flush()
    assert unserved.counts()["ready"] == 3


def test_repeated_frame_is_counted_once(unserved: dq.QueuePool) -> None:
    """A confirm that was lost makes the client put again; the queue must not run it twice."""
    from dqlab.frame import Frame, Kind

    frame = Frame.encode([b"x"] * 5, kind=Kind.VALUE, producer=b"p" * 16, run=NO_ID)
    link, handle = unserved.handle.link, unserved.handle
    put = calls.PutCall(frames=1, wait=0.0)

    first, _ = link.sync(handle.ask(0, put, frame))
    second, _ = link.sync(handle.ask(0, put, frame))

    assert (first.verdict, second.verdict) == (Verdict.ACCEPTED, Verdict.DUPLICATE)
    assert second.firsts == first.firsts
    assert unserved.counts()["ready"] == 5


@pytest.fixture
def cramped(lab: dq.Lab, queue_name: str) -> Iterator[dq.QueuePool]:
    """A queue with room for a few results."""
    with dask.config.set({"dqlab.results.maxsize": 20_000}):
        pool = lab.queue(queue_name)
    yield pool
    pool.close()


def test_waiting_for_calls_raises_when_results_have_no_room(cramped: dq.QueuePool) -> None:
    """The queue pauses itself then, which is nobody's wish; without a limit the wait never ended."""
    put = cramped.batch_submit([(bytes, 1_000)] * MANY)

    with pytest.raises(ResultsFull, match="20,000"):
        put.results()


def slowly(x: int) -> bytes:
    time.sleep(0.002)  # so that its documents are settled a few at a time
    return bytes(x)


def test_run_that_has_no_room_for_results_goes_on_when_another_is_dropped(cramped: dq.QueuePool) -> None:
    """The error says to drop what is finished; the run stood still after that, and named a limit that it kept."""
    large = cramped.map(bytes, [1_000] * MANY, name=f"large-{cramped.name}")
    with pytest.raises(ResultsFull, match=r"run\.drop\(\).*continues by itself"):
        large.wait(timeout=30)
    other = cramped.map(slowly, [10] * 500, name=f"other-{cramped.name}")
    with pytest.raises(ResultsFull):
        other.wait(timeout=30)

    large.drop()

    assert list(other.results(timeout=30)) == [bytes(10)] * 500


def test_streaming_results_raises_when_they_have_no_room(cramped: dq.QueuePool) -> None:
    """What has come is given first; then it is said why no more comes."""
    came: list[Any] = []
    results = cramped.map(bytes, [1_000] * MANY).as_completed()

    with pytest.raises(ResultsFull, match="20,000"):
        came.extend(key for key, _ in results)

    assert came


def test_consumers_that_could_not_be_made_are_asked_for_with_the_next_put(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first put noted that the queue has its consumers before the scheduler had the order."""
    served, asked = list[str](), Link.scheduler

    async def out_of_reach(self: Link, call: str, **arguments: Any) -> Any:
        if call == "dq_serve":
            served.append(arguments["queue"])
            if len(served) == 1:
                raise CallTimeout(name="scheduler", call=call, seconds=1.0)
        return await asked(self, call, **arguments)

    monkeypatch.setattr(Link, "scheduler", out_of_reach)
    monkeypatch.setattr(queue._puts._sender, "on_unserved", None)  # which mends it later, by what the queue answers
    with pytest.raises(CallTimeout):
        queue.submit(add, 1)

    assert queue.submit(add, 2, b=3).results(timeout=20) == [5]
    assert served == [queue.name] * 2
