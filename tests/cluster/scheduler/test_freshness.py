"""Statistics of this instant: what is asked of workers, and for how long it is waited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dqlab.cluster.scheduler import control
from dqlab.cluster.scheduler.control import Freshness
from dqlab.cluster.scheduler.state import ClusterState, Entry, OpenQueue


def state_of(*entries: Entry) -> ClusterState:
    """A state with these actors, of queues of one shard."""
    scheduler: Any = SimpleNamespace(rpc=None)
    state = ClusterState(scheduler, cast(Any, None))
    state.entries = {entry.name: entry for entry in entries}
    state.queues = {entry.queue: OpenQueue(1) for entry in entries}
    return state


def entry(queue: str, worker: str, gone: str | None = None, *, kind: str = "queue", made: bool = True) -> Entry:
    """An actor."""
    actor = Entry(name=f"{kind}/{queue}/{worker}", queue=queue, address=worker, key="k", epoch=0, gone=gone)
    if made:
        actor.made.set()
    return actor


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str, int], Any]], list[str]]:
    """Has workers answer by a function; returns the list of those that are asked."""

    def answering(answer: Callable[[str, int], Any]) -> list[str]:
        workers = list[str]()

        async def ask_handler(pool: object, worker: str, op: str, number: int) -> Any:
            workers.append(worker)
            return await answer(worker, number)

        monkeypatch.setattr(control, "ask_handler", ask_handler)
        return workers

    return answering


def test_waits_until_the_reports_have_come_not_only_the_answers(asked: Any) -> None:
    """Reports come over a stream of their own, which may be behind."""

    async def scenario() -> None:
        numbers = list[int]()

        async def answer(worker: str, number: int) -> dict[str, Any]:
            numbers.append(number)
            return {}

        asked(answer)
        fresh = Freshness(state_of(entry("q", "a"), entry("q", "b")))
        bringing = asyncio.create_task(fresh.bring("", 30.0))
        while len(numbers) < 2:  # noqa: ASYNC110 - both are asked in the next turn of the loop
            await asyncio.sleep(0)
        fresh.note("a", numbers[0])
        fresh.note("b", numbers[0] + 7)  # of another question
        await asyncio.sleep(0)
        assert not bringing.done()
        fresh.note("b", numbers[0])
        assert await bringing

    asyncio.run(scenario())


def test_a_worker_that_hangs_is_waited_for_as_long_as_was_said(asked: Any) -> None:
    """What came of the others counts."""

    async def answer(worker: str, number: int) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    asked(answer)
    assert not asyncio.run(Freshness(state_of(entry("q", "a"))).bring("", 0.01))


@pytest.mark.parametrize("failure", [OSError("gone"), KeyError("dq_report")])
def test_a_worker_that_cannot_answer_is_not_waited_for(asked: Any, failure: Exception) -> None:
    """It dies, leaves, or has an older dqlab."""

    async def answer(worker: str, number: int) -> dict[str, Any]:
        raise failure

    asked(answer)
    assert not asyncio.run(Freshness(state_of(entry("q", "a"))).bring("", 30.0))


def test_only_workers_with_something_of_the_queue_are_asked(asked: Any) -> None:
    """A cluster of a hundred workers answers a question about one queue no slower."""

    async def answer(worker: str, number: int) -> dict[str, Any]:
        raise OSError

    workers = asked(answer)
    fresh = Freshness(state_of(entry("q", "a"), entry("other", "b"), entry("q", "c", gone="died")))
    asyncio.run(fresh.bring("q", 30.0))
    assert workers == ["a"]
    assert asyncio.run(fresh.bring("none", 30.0))


@pytest.mark.parametrize(
    ("shard", "asks"),
    [
        (entry("q", "a"), ["a"]),
        (entry("q", "a", gone="died"), []),
        (entry("q", "a", made=False), []),
        (entry("other", "a"), []),
    ],
    ids=["stands", "gone", "being recreated", "of a closed queue"],
)
def test_the_shards_of_a_queue_have_reported_only_if_all_of_them_stand(
    asked: Any, shard: Entry, asks: list[str]
) -> None:
    """A view would show numbers from before a worker's death as those of now; consumers that hang do not delay it."""

    async def scenario() -> bool:
        fresh = Freshness(state_of(shard, entry("q", "c", kind="consumer")))

        async def answer(worker: str, number: int) -> dict[str, Any]:
            fresh.note(worker, number)
            return {}

        workers = asked(answer)
        came = await fresh.bring_shards("q", 30.0)
        assert workers == asks
        return came

    assert asyncio.run(scenario()) is bool(asks)
