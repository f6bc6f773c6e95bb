"""Which workers host queues, and which consumers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from distributed.core import Status

from dqlab.cluster.scheduler import actors
from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.state import REPLACED_IN, ClusterState, Entry, Host, Plan, plan
from dqlab.cluster.statistics.collector import Collector
from dqlab.errors import CallTimeout


def hosts(n: int) -> list[Host]:
    return [Host(f"tcp://{i:02}", f"{i:02}", 1, hosting=i == 0) for i in range(n)]


def test_workers_with_resources_are_kept_for_consumers() -> None:
    """A queue could be anywhere, and what needs a GPU only there."""
    there = [Host(f"tcp://{i}", f"{i}", 1, {"GPU": 1.0} if i == 0 else {}) for i in range(3)]

    assert plan(there).queues == ("tcp://1",)


@pytest.mark.parametrize(
    ("there", "missing", "queues", "consumers", "shared"),
    [
        (0, 0, 0, 0, False),
        (1, 0, 1, 1, True),
        (2, 0, 1, 2, True),
        (3, 0, 1, 2, False),
        (17, 0, 2, 15, False),
        # Workers that died are expected back: no function runs beside the queues until then.
        (2, 1, 1, 1, False),
        (1, 2, 1, 0, False),
        (1, 1, 1, 1, True),
        (16, 1, 2, 14, False),
        (0, 3, 0, 0, False),
    ],
)
def test_queues_have_workers_of_their_own_where_there_are_or_were_a_moment_ago_enough(
    there: int, missing: int, queues: int, consumers: int, shared: bool
) -> None:
    found = plan(hosts(there), missing=missing)

    assert (len(found.queues), len(found.consumers), found.shared) == (queues, consumers, shared)
    assert there == 0 or found.queues[0] == "tcp://00"


def test_reserved_workers_host_queues_alone_whatever_is_missing() -> None:
    assert plan(hosts(2), ["00"], missing=5) == Plan(("tcp://00",), ("tcp://01",))


def _worker(address: str, nanny: str = "tcp://nanny") -> Any:
    return SimpleNamespace(address=address, name=address, nthreads=1, resources={}, status=Status.running, nanny=nanny)


def _state(*addresses: str, nanny: str = "tcp://nanny") -> Any:
    workers = {address: _worker(address, nanny) for address in addresses}
    state = ClusterState(cast("Any", SimpleNamespace(id="s", workers=workers)), Collector())
    for address in addresses:
        state.note_came(address)
    return state


def test_worker_that_died_is_expected_back_until_one_comes_or_some_time_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One worker is there, of three: beside its queue nothing runs while the others restart."""

    async def scenario() -> list[int]:
        now = 0.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        state = _state("tcp://a", "tcp://b", "tcp://c")
        seen = list[int]()
        for worker in ("tcp://b", "tcp://c"):
            del state.scheduler.workers[worker]
            assert state.note_left(worker)
        seen.append(len(state.plan().consumers))
        now = REPLACED_IN - 1.0
        state.scheduler.workers["tcp://d"] = _worker("tcp://d")
        state.note_came("tcp://d")
        seen.append(len(state.plan().consumers))
        del state.scheduler.workers["tcp://d"]
        assert state.note_left("tcp://d")
        seen.append(len(state.plan().consumers))
        now = REPLACED_IN
        seen.append(len(state.plan().consumers))
        return seen

    assert asyncio.run(scenario()) == [0, 1, 0, 1]


@pytest.mark.parametrize("why", ["no nanny", "was to leave"])
def test_worker_that_nothing_replaces_is_not_expected_back(why: str) -> None:
    async def scenario() -> int:
        state = _state("tcp://a", "tcp://b", "tcp://c", nanny="" if why == "no nanny" else "tcp://nanny")
        for worker in ("tcp://b", "tcp://c"):
            if why == "was to leave":
                state.leaving.add(worker)
            del state.scheduler.workers[worker]
            assert not state.note_left(worker)
        return len(state.plan().consumers)

    assert asyncio.run(scenario()) == 1


@pytest.mark.parametrize(
    ("workers", "reserved", "beside"),
    [("abc", [], ["consumer/q/0"]), ("ab", [], []), ("a", [], []), ("ab", ["a"], ["consumer/q/0"])],
    ids=["three", "two share", "one", "reserved"],
)
def test_recreated_shard_knows_which_consumers_are_out_of_place_beside_it(
    workers: str, reserved: list[str], beside: list[str]
) -> None:
    async def scenario() -> list[str]:
        state = ClusterState(
            cast("Any", SimpleNamespace(workers={at: _worker(at) for at in workers}, id="s")), Collector(), reserved
        )
        shard = Entry("queue/q/0", "q", "a", "k", 2, args=("q", 0, 1, {"store": {}}))
        others = [Entry(f"consumer/q/{i}", "q", at, f"k{i}", 1) for i, at in enumerate("ab")]
        state.entries |= {entry.name: entry for entry in [shard, *others]}
        return Actors(state)._beside(shard)

    assert asyncio.run(scenario()) == beside


@pytest.mark.parametrize("status", [Status.paused, Status.running])
def test_new_queue_on_a_paused_worker_names_its_memory(monkeypatch: pytest.MonkeyPatch, status: Status) -> None:
    """It waited for 30 s, and the error said that a process was stopped, busy or out of reach."""
    for limit in ("PAUSED_TIMEOUT", "SPAWN_TIMEOUT"):
        monkeypatch.setattr(actors, limit, 0.01)

    async def connect(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()  # it accepts the task, and does not begin it

    async def scenario() -> None:
        worker = _worker("a")
        worker.status, worker.memory_limit = status, 9_500_000_000
        worker.memory = SimpleNamespace(process=7_600_000_000)
        scheduler: Any = SimpleNamespace(
            id="s", address="s", clients={}, workers={"a": worker}, rpc=SimpleNamespace(connect=connect)
        )
        state = ClusterState(scheduler, Collector())
        await Actors(state)._ask_to_spawn(Entry("queue/q/0", "q", "a", "k", 1, args=("q", 0, 1, {})))

    with pytest.raises(CallTimeout) as caught:
        asyncio.run(scenario())

    assert isinstance(caught.value, actors.WorkerPaused) is (status is Status.paused)
    assert ("has taken 7.6 GB of 9.5 GB of memory" in str(caught.value)) is (status is Status.paused)
