"""Where messages run that may have killed their consumer, and who is to blame when it dies again."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from distributed import LocalCluster, WorkerPlugin

import dqlab as dq
from dqlab.cluster.consumer import slot as slots
from dqlab.cluster.consumer.running.functions import FunctionCache
from dqlab.cluster.consumer.slot import Slot
from dqlab.cluster.transport.sealed import seal_value
from dqlab.frame import Frame, Kind
from dqlab.rules.states import State
from tests.cluster.consumer.test_coroutines import Bench, bench, until


def _put_suspects(here: Bench, *names: str) -> None:
    """Put messages that a consumer was lost with; values run in the process of their consumer."""
    shard = here.actor.shard
    shard.put(Frame.decode(Frame.encode([seal_value(name) for name in names], kind=Kind.VALUE)))
    assert shard.lease("lost", len(names)) is not None
    shard.release("lost")
    here.actor._dispatch()


@asynccontextmanager
async def two_slots(work: Callable[[Any], Any]) -> AsyncIterator[Bench]:
    """Serve one queue by two slots of this process."""
    async with bench(work, batch=1) as here:
        refs: dict[int, Any] = {0: here.ref}
        other = Slot("consumer/q/1#0", refs, here.slot.options, FunctionCache(), lambda: None)
        other.start()
        try:
            yield here
        finally:
            await other.stop()


def test_suspects_run_one_after_another_in_a_process_and_others_beside_them() -> None:
    """The shard knows before one begins: did it end the process, its loss would count, and that of no other."""
    gate, seen = threading.Event(), list[Any]()

    def work(x: Any) -> None:
        seen.append(f"{x} begins")
        assert x == "second" or gate.wait(20)
        seen.append(f"{x} ends")

    async def scenario() -> list[bool]:
        async with two_slots(work) as here:
            _put_suspects(here, "first", "second")
            await until(lambda: seen)
            await asyncio.sleep(0.3)  # the second one would begin within a millisecond
            noted = [lease.isolated for lease in here.actor.shard.leases.values()]
            gate.set()
            await here.until(State.ACKED, 2)
            return noted

    assert asyncio.run(scenario()) == [True, False]
    assert seen == ["first begins", "first ends", "second begins", "second ends"]


def test_function_that_waits_for_a_message_of_its_own_process_goes_on_though_it_is_a_suspect() -> None:
    """One that maps over another queue, all of whose consumers are in its process, would wait for ever."""
    other, seen = threading.Event(), list[Any]()

    def work(x: Any) -> None:
        seen.append(x)
        assert x == "other" or other.wait(20)
        other.set()

    async def scenario() -> None:
        async with two_slots(work) as here:
            _put_suspects(here, "suspect")
            await until(lambda: seen)
            await here.put(["other"])
            await here.until(State.ACKED, 2)

    asyncio.run(scenario())
    assert seen == ["suspect", "other"]


def test_suspect_that_waits_too_long_for_another_one_runs_beside_it_and_its_death_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What runs may wait for a message behind it, or never end."""
    monkeypatch.setattr(slots, "TURN_WITHIN", 0.2)
    gate, seen = threading.Event(), list[Any]()

    def work(x: Any) -> Any:
        seen.append(x)
        assert gate.wait(20)
        return x

    async def scenario() -> list[bool]:
        async with two_slots(work) as here:
            _put_suspects(here, "first", "second")
            await until(lambda: len(seen) == 2)
            noted = [lease.isolated for lease in here.actor.shard.leases.values()]
            gate.set()
            await here.until(State.ACKED, 2)
            return noted

    assert asyncio.run(scenario()) == [True, False]


@pytest.mark.parametrize("what", ["refused", "late"])
def test_suspect_whose_shard_does_not_note_it_holds_up_no_other(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Late: it runs, and its death does not count. Refused: its lease has ended, and another may have it."""
    monkeypatch.setattr(slots, "TOLD_IN", 0.2)
    seen: list[Any] = []

    async def scenario() -> list[Any]:
        async with bench(seen.append, batch=1) as here:
            asked = here.actor.isolate

            async def isolate(body: bytes) -> bytes:
                if what == "late":
                    await asyncio.sleep(3600)
                monkeypatch.setattr(here.actor, "isolate", asked)
                here.actor.shard.release("consumer/q/0#0")  # its lease ends
                return await asked(body)

            monkeypatch.setattr(here.actor, "isolate", isolate)
            _put_suspects(here, "suspect")
            await here.put(["other"])
            here.actor._dispatch()
            await here.until(State.ACKED, 2)
            return seen

    assert sorted(asyncio.run(scenario())) == ["other", "suspect"]


def test_next_message_begins_when_the_outcome_of_a_suspect_has_arrived() -> None:
    """Did the next one kill the process before, its death would count against the one that had ended."""
    seen, asked, gate = list[Any](), asyncio.Event(), asyncio.Event()

    async def scenario() -> tuple[list[Any], list[Any]]:
        async with bench(seen.append, batch=1) as here:
            settle = here.actor.settle

            async def late(body: bytes) -> bytes:
                asked.set()
                await gate.wait()
                return await settle(body)

            here.actor.settle = late  # type: ignore[method-assign]
            _put_suspects(here, "suspect")
            await here.put(["other"])
            await asyncio.wait_for(asked.wait(), 20)
            await asyncio.sleep(0.3)  # it would begin within a millisecond
            before = seen[:]
            gate.set()
            await here.until(State.ACKED, 2)
            return before, seen

    assert asyncio.run(scenario()) == (["suspect"], ["suspect", "other"])


# --- with real deaths -----------------------------------------------------------------------


@pytest.fixture
def threads(tmp_path: Path) -> Iterator[dq.Lab]:
    """Two consumers of three slots each, and a worker for queues."""
    with (
        LocalCluster(n_workers=3, threads_per_worker=3, dashboard_address=":0") as cluster,
        # On a machine so slow that workers are replaced late, a consumer beside the queue would end that too.
        dq.connect(cluster, store=tmp_path) as lab,
    ):
        yield lab


@pytest.mark.cluster
def test_document_that_kills_its_process_is_the_only_one_dead_of_those_that_ran_in_its_other_threads(
    threads: dq.Lab,
) -> None:
    """Slow documents are leased one by one: each of them counted each death of the process, and died of it."""

    def work(x: int) -> int:
        if x == 0:
            os._exit(3)
        time.sleep(0.8)
        return x

    run = threads.queue("deadly", max_deliveries=2).map(work, range(12)).wait(timeout=100)

    [letter] = run.failures()
    assert (letter.ordinal, letter.error) == (0, "ProcessDied")
    assert "ended itself with exit status 3" in letter.message
    assert list(run.results(errors="skip")) == list(range(1, 12))
    assert letter.deliveries == 1


class Model(WorkerPlugin):
    """Loads into each worker what functions use there."""

    def setup(self, worker: Any) -> None:
        sys.modules["colorsys"] = module = ModuleType("colorsys")
        module.model = 5  # type: ignore[attr-defined]


@pytest.mark.cluster
def test_document_that_needs_what_was_set_up_in_its_worker_is_not_dead_because_another_killed_that(
    threads: dq.Lab,
) -> None:
    """Its own process had no model: an AttributeError is not tried again, and it was dead beside the guilty one."""
    threads.client.register_plugin(Model())

    def work(x: int) -> int:
        import colorsys

        time.sleep(0.2)
        if x == 0 and hasattr(colorsys, "model"):
            os._exit(3)
        return x * colorsys.model  # type: ignore[attr-defined, no-any-return]

    run = threads.queue("set-up", max_deliveries=2).map(work, range(12), retry=dq.Retry(0)).wait(timeout=100)

    [letter] = run.failures()
    assert letter.ordinal == 0
    assert "consumer died" in letter.message
    assert list(run.results(errors="skip")) == [5 * x for x in range(1, 12)]


@pytest.mark.cluster
def test_documents_of_another_queue_are_not_blamed_for_the_deaths_of_their_process() -> None:
    """They were dead letters "its consumer died 5 times", although a function of another queue called `os._exit`."""

    async def deadly(x: int) -> int:
        await asyncio.sleep(0.1)
        os._exit(3)

    def slow(x: int) -> int:
        time.sleep(0.25)
        return x

    with dq.connect(n=1) as lab:
        innocent = lab.queue("innocent", max_deliveries=2).map(slow, range(12))
        guilty = lab.queue("guilty", max_deliveries=3).map(deadly, range(1))
        guilty.wait(timeout=100)

        assert list(innocent.results(timeout=100)) == list(range(12))
        [letter] = guilty.failures()
        died = "its consumer died 3 times; its last worker ended itself with exit status 3. With executor="
        assert letter.reason.startswith(died)
