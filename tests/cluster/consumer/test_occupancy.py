"""Who runs beside whom in a worker process, and who is to blame when it dies."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

import dqlab as dq
from dqlab.cluster.consumer import slot as slots
from dqlab.cluster.consumer.running.functions import FunctionCache
from dqlab.cluster.consumer.running.occupancy import Occupancy
from dqlab.cluster.consumer.slot import Slot
from dqlab.cluster.transport.sealed import seal_value
from dqlab.frame import Frame, Kind
from dqlab.rules.states import State
from tests.cluster.consumer.test_coroutines import Bench, bench, until


def test_chunks_run_beside_each_other_and_one_that_is_to_be_alone_waits_for_them() -> None:
    room = Occupancy()
    first, second, alone = room.enter(), room.enter(), room.enter(alone=True)
    assert (first.inside, second.inside, alone.inside) == (True, True, False)
    first.leave()
    assert not alone.inside

    second.leave()

    assert alone.inside


def test_nothing_passes_one_that_waits_to_be_alone() -> None:
    """It would wait as long as there is work."""
    room = Occupancy()
    first, alone, later = room.enter(), room.enter(alone=True), room.enter()
    assert not later.inside
    first.leave()
    assert (alone.inside, later.inside) == (True, False)

    alone.leave()

    assert later.inside


def test_several_that_are_to_be_alone_run_one_after_another() -> None:
    room = Occupancy()
    stays = [room.enter(alone=True) for _ in range(3)]
    admitted = []
    for stay in stays:
        admitted.append(sum(each.inside for each in stays))
        stay.leave()

    assert admitted == [1, 2, 3]


@pytest.mark.parametrize("inside", [True, False])
def test_one_that_shares_lets_others_in(inside: bool) -> None:
    room = Occupancy()
    before = None if inside else room.enter()
    alone, later = room.enter(alone=True), room.enter()

    alone.share()

    assert alone.inside
    assert later.inside
    assert before is None or before.inside


def test_one_that_leaves_while_it_waits_holds_up_no_other() -> None:
    room = Occupancy()
    first, alone, later = room.enter(), room.enter(alone=True), room.enter()

    alone.leave()
    first.leave()
    alone.leave()

    assert later.inside
    assert room.enter().inside


async def _put_suspect(here: Bench, in_vain: int = 0) -> None:
    """Put a message that two consumers were lost with, and `in_vain` more that ran others beside it.

    The next one has to run it with nothing beside it.
    """
    shard = here.actor.shard
    shard.put(Frame.decode(Frame.encode([seal_value("suspect")], kind=Kind.VALUE)))
    for _ in range(2):
        assert shard.lease("lost", 1) is not None
        shard.release("lost")
    for _ in range(in_vain):
        lease = shard.lease("lost", 1)
        assert lease is not None
        shard.isolate(lease.id, alone=False)
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


def test_quarantined_suspect_runs_when_the_other_slots_of_its_process_have_ended() -> None:
    """Its shard knows before it begins."""
    gate, seen = threading.Event(), list[Any]()

    def work(x: Any) -> None:
        seen.append(f"{x} begins")
        assert x == "suspect" or gate.wait(20)
        seen.append(f"{x} ends")

    async def scenario() -> int:
        async with two_slots(work) as here:
            await here.put(["other"])
            await until(lambda: seen)
            await _put_suspect(here)
            await until(lambda: here.counts()[State.LEASED] == 2)
            assert here.ref.count("isolate") == 0
            gate.set()
            await here.until(State.ACKED, 2)
            return here.ref.count("isolate")

    assert asyncio.run(scenario()) == 1
    assert seen == ["other begins", "other ends", "suspect begins", "suspect ends"]


def test_function_that_waits_for_a_message_of_its_own_process_goes_on_though_it_ran_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A suspect that maps over another queue, all of whose consumers are in its process, would wait for ever."""
    monkeypatch.setattr(slots, "ISOLATED_FOR", 0.2)
    other, seen = threading.Event(), list[Any]()

    def work(x: Any) -> None:
        seen.append(x)
        assert x == "other" or other.wait(20)
        other.set()

    async def scenario() -> None:
        async with two_slots(work) as here:
            await _put_suspect(here)
            await until(lambda: seen)
            await here.put(["other"])
            await here.until(State.ACKED, 2)

    asyncio.run(scenario())
    assert seen == ["suspect", "other"]


def test_suspect_that_waits_too_long_to_be_alone_runs_beside_others_and_its_death_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What runs may wait for a message behind it, or never end."""
    monkeypatch.setattr(slots, "ISOLATED_WITHIN", 0.2)
    gate, seen = threading.Event(), list[Any]()

    def work(x: Any) -> Any:
        seen.append(x)
        assert gate.wait(20)
        return x

    async def scenario() -> list[tuple[bool, bool]]:
        async with two_slots(work) as here:
            await here.put(["other"])
            await until(lambda: "other" in seen)
            await _put_suspect(here)
            await until(lambda: "suspect" in seen)
            noted = [(lease.isolated, lease.beside) for lease in here.actor.shard.leases.values()]
            gate.set()
            await here.until(State.ACKED, 2)
            return noted

    assert asyncio.run(scenario()) == [(False, False), (False, True)]


def test_suspect_that_is_cancelled_while_it_waits_lets_the_others_begin() -> None:
    gate, seen = threading.Event(), list[Any]()

    def work(x: Any) -> Any:
        seen.append(x)
        assert x != "first" or gate.wait(20)
        return x

    async def scenario() -> list[Any]:
        async with two_slots(work) as here:
            await here.put(["first"])
            await until(lambda: "first" in seen)
            await _put_suspect(here)
            await until(lambda: here.counts()[State.LEASED] == 2)
            [suspect] = [lease for lease in here.actor.shard.leases.values() if lease.suspect]
            here.actor.ledger.let_go(suspect.run, list(suspect.remaining), "given up")
            here.actor._dispatch()
            await here.put(["later"])
            await until(lambda: "later" in seen)
            gate.set()
            await here.until(State.ACKED, 2)
            return seen

    assert asyncio.run(scenario()) == ["first", "later"]


@pytest.mark.parametrize("what", ["refused", "late"])
def test_suspect_whose_shard_does_not_note_that_it_is_alone_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Late: it runs, and its death does not count. Refused: its lease has ended, and another may have it."""
    monkeypatch.setattr(slots, "ISOLATION_TOLD_IN", 0.2)
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
            await _put_suspect(here)
            await here.put(["other"])
            here.actor._dispatch()
            await here.until(State.ACKED, 2)
            return seen

    assert sorted(asyncio.run(scenario())) == ["other", "suspect"]


def test_what_runs_beside_a_suspect_that_has_run_alone_for_long_does_not_make_its_death_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five minutes of work beside one that kills at once: the slow one was dead after five deaths of the other."""
    monkeypatch.setattr(slots, "ISOLATED_FOR", 0.2)
    gate, seen = threading.Event(), list[Any]()

    def work(x: Any) -> None:
        seen.append(x)
        assert gate.wait(20)

    async def scenario() -> tuple[list[bool], list[bool]]:
        async with two_slots(work) as here:
            leases = here.actor.shard.leases
            await _put_suspect(here)
            await until(lambda: seen)
            await asyncio.sleep(0.3)  # longer than ISOLATED_FOR: as long as nothing waits, it is alone
            before = [lease.isolated for lease in leases.values()]
            await here.put(["other"])
            await until(lambda: len(seen) == 2)
            after = [lease.isolated for lease in leases.values()]
            gate.set()
            await here.until(State.ACKED, 2)
            return before, after

    assert asyncio.run(scenario()) == ([True], [False, False])


def test_next_message_begins_when_the_outcome_of_one_that_ran_alone_has_arrived() -> None:
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
            await _put_suspect(here)
            await here.put(["other"])
            await asyncio.wait_for(asked.wait(), 20)
            await asyncio.sleep(0.3)  # it would begin within a millisecond
            before = seen[:]
            gate.set()
            await here.until(State.ACKED, 2)
            return before, seen

    assert asyncio.run(scenario()) == (["suspect"], ["suspect", "other"])


@pytest.mark.parametrize("what", ["waits", "runs"])
def test_suspect_that_was_lost_beside_others_gets_twice_as_long_to_run_alone(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Else one that kills its process at once would do so beside what takes longer than that, again and again."""
    monkeypatch.setattr(slots, "ISOLATED_WITHIN", 0.25)
    monkeypatch.setattr(slots, "ISOLATED_FOR", 0.25)
    gate, began = threading.Event(), dict[Any, float]()

    def work(x: Any) -> None:
        began[x] = time.monotonic()
        assert gate.wait(20)

    async def scenario() -> float:
        async with two_slots(work) as here:
            first, second = ("other", "suspect") if what == "waits" else ("suspect", "other")
            puts = {"other": lambda: here.put(["other"]), "suspect": lambda: _put_suspect(here, in_vain=2)}
            await puts[first]()
            await until(lambda: first in began)
            start = time.monotonic()
            await puts[second]()
            await until(lambda: second in began)
            gate.set()
            await here.until(State.ACKED, 2)
            return began[second] - start

    assert 0.9 < asyncio.run(scenario()) < 10


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
    assert (letter.ordinal, letter.reason.split(";")[0]) == (0, "its consumer died 2 times")
    assert list(run.results(errors="skip")) == list(range(1, 12))
    assert run.failures()[0].deliveries == 2


@pytest.mark.cluster
def test_documents_of_another_queue_are_not_blamed_for_the_deaths_of_their_process() -> None:
    """They were dead letters "its consumer died 5 times", although a function of another queue called `os._exit`."""

    def deadly(x: int) -> int:
        time.sleep(0.1)
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
